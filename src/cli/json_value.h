/* Values of JSON objects that the command reads: events, and results of its own. */
#ifndef PL_CLI_JSON_VALUE_H
#define PL_CLI_JSON_VALUE_H

#include <cjson/cJSON.h>
#include <stdbool.h>

/* 0 or "" where there is none of that kind. */
static inline double json_number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static inline const char *json_text(const cJSON *object, const char *key)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return value ? value : "";
}

/* Is there such a number? Its value is then in *out. */
static inline bool json_has_number(const cJSON *object, const char *key, double *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (cJSON_IsNumber(item))
        *out = item->valuedouble;
    return cJSON_IsNumber(item);
}

#endif
