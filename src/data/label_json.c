#include "data/label_json.h"

#include "data/raw.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <string.h>

static const cJSON *find_member(const cJSON *object, const char *name, size_t n)
{
    const cJSON *member = NULL;
    if (cJSON_IsObject(object))
        cJSON_ArrayForEach(member, object) if (strncmp(member->string, name, n) == 0 &&
                                               !member->string[n]) return member;
    return NULL;
}

/* NULL: it leads nowhere. */
static const cJSON *follow_key(const cJSON *object, const char *key)
{
    for (;;) {
        size_t n = strcspn(key, ".");
        object = find_member(object, key, n);
        if (!object || !key[n])
            return object;
        key += n + 1;
    }
}

static bool read_label(const cJSON *value, uint32_t *out)
{
    if (!cJSON_IsNumber(value) || !(value->valuedouble >= 0) || value->valuedouble >= LABEL_MAX)
        return false;
    *out = (uint32_t)value->valuedouble;
    return (double)*out == value->valuedouble;
}

/* White space may follow the value, and nothing else. */
static bool is_end(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
        at++;
    return at == end;
}

int label_json_read(const char *text, size_t n, const char *key, uint32_t *out, struct err *err)
{
    const char *end = text;
    cJSON *root = cJSON_ParseWithLengthOpts(text, n, &end, false);
    if (!root || !is_end(end, text + n)) {
        cJSON_Delete(root);
        return err_set(err, ERR_INPUT, "is not JSON near byte %zu", (size_t)(end - text));
    }
    const cJSON *value = follow_key(root, key);
    int rc = OK;
    if (!value)
        rc = err_set(err, ERR_INPUT, "has no \"%.100s\"", key);
    else if (!read_label(value, out))
        rc = err_set(err, ERR_INPUT, "expected \"%.100s\" to be a label, a number from 0 to %d",
                     key, LABEL_MAX - 1);
    cJSON_Delete(root);
    return rc;
}
