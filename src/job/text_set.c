#include "job/text.h"

#include "base/fault.h"
#include "job/text_field.h"
#include "job/text_read.h"
#include "job/text_suggest.h"

#include <stdlib.h>
#include <string.h>

/* The next name of a path; false at its end. */
static bool next_name(const char **path, const char **name, size_t *n)
{
    if (!**path)
        return false;
    *name = *path;
    *n = strcspn(*path, ".");
    *path += *n;
    if (**path == '.' && (*path)[1])
        ++*path; /* a dot at the end stays, as a name that is empty */
    return true;
}

/* Follow the path through the types alone: `*type` is the one that holds the last field. */
static int find_last(const char *path, const ProtobufCMessageDescriptor **type,
                     const ProtobufCFieldDescriptor **out, struct err *err)
{
    const char *rest = path, *name;
    const ProtobufCMessageDescriptor *root = *type;
    const ProtobufCFieldDescriptor *field = NULL;
    size_t n;
    while (next_name(&rest, &name, &n)) {
        char quoted[48];
        if (field && (field->type != PROTOBUF_C_TYPE_MESSAGE || text_field_repeated(field)))
            return err_set(err, ERR_INPUT, "%.200s: field `%s` of %s: has no single fields to set",
                           path, field->name, (*type)->short_name);
        if (field)
            *type = field->descriptor;
        field = text_field_find(*type, name, n);
        if (field)
            continue;
        char meant[TEXT_SUGGESTION_MAX];
        text_quote(name, n, quoted);
        if (text_suggest(*type, name, n, TEXT_NEARLY, meant))
            return err_set(err, ERR_INPUT, "%.200s: %s has no field `%s`; did you mean `%.*s%s`?",
                           path, (*type)->short_name, quoted, (int)(name - path), path, meant);
        if (text_suggest(root, name, n, TEXT_EXACTLY, meant))
            return err_set(err, ERR_INPUT, "%.200s: %s has no field `%s`; did you mean `%s`?", path,
                           (*type)->short_name, quoted, meant);
        text_list_fields(*type, meant);
        return err_set(err, ERR_INPUT, "%.200s: %s has no field `%s`%s", path, (*type)->short_name,
                       quoted, meant);
    }
    if (!field)
        return err_set(err, ERR_INPUT, "expected the name of a field of %s", (*type)->short_name);
    *out = field;
    return OK;
}

/* Read a string without quotes or escapes. */
static int read_plain(struct text_reader *r, ProtobufCMessage *msg,
                      const ProtobufCFieldDescriptor *field, const char *value)
{
    char *copy = strdup(value);
    char **slot =
        text_field_repeated(field) ? text_field_append(msg, field) : text_field_slot(msg, field);
    if (!copy || !slot) {
        free(copy);
        return err_set(r->err, ERR_NOMEM, "%.200s: out of memory", r->path);
    }
    *slot = copy;
    if (text_field_repeated(field))
        ++*text_field_count(msg, field);
    else
        text_field_mark(msg, field);
    return OK;
}

/* Read the whole of `value` into the field of a fresh message. A repeated field takes `[1, 2]` or
 * `1, 2`. */
static int read_whole(struct text_reader *r, ProtobufCMessage *msg,
                      const ProtobufCFieldDescriptor *field, const char *value)
{
    bool repeated = text_field_repeated(field);
    bool quoted = value[0] == '"' || value[0] == '\'' || (repeated && value[0] == '[');
    if (field->type == PROTOBUF_C_TYPE_STRING && !quoted)
        return read_plain(r, msg, field, value);
    text_lex_init(&r->lex, value, strlen(value));
    bool more = true, list = text_lex_is(&r->lex, '[');
    while (more) {
        int rc = text_read_field(r, msg, field);
        if (rc != OK)
            return rc;
        more = repeated && !list && text_lex_is(&r->lex, ',');
        if (more)
            text_lex_next(&r->lex);
    }
    if (r->lex.kind != TEXT_END)
        return text_fail_value(r, msg->descriptor, field, r->lex.at, "nothing after the value");
    return OK;
}

/* The message that holds the last field, made with all others on the way. NULL when memory is
 * out. */
static ProtobufCMessage *make_way(ProtobufCMessage *msg, const char *path)
{
    const char *name;
    size_t n;
    while (next_name(&path, &name, &n) && *path) {
        const ProtobufCFieldDescriptor *field = text_field_find(msg->descriptor, name, n);
        ProtobufCMessage **slot = text_field_slot(msg, field);
        if (!text_field_is_set(msg, field)) {
            ProtobufCMessage *made = text_message_new(field->descriptor);
            if (!made)
                return NULL;
            text_field_clear(msg, field);
            *slot = made;
            text_field_mark(msg, field);
        }
        msg = *slot;
    }
    return msg;
}

/* Move the field's value out of `from`, which must not free it any more. */
static void move_field(ProtobufCMessage *to, ProtobufCMessage *from,
                       const ProtobufCFieldDescriptor *field)
{
    text_field_clear(to, field);
    size_t size = text_field_repeated(field) ? sizeof(void *) : text_field_size(field);
    memcpy(text_field_slot(to, field), text_field_slot(from, field), size);
    if (text_field_repeated(field))
        *text_field_count(to, field) = *text_field_count(from, field);
    else
        text_field_mark(to, field);
}

int text_set(ProtobufCMessage *msg, const char *path, const char *value, struct err *err)
{
    PL_ASSERT(msg && path && value);
    const ProtobufCMessageDescriptor *type = msg->descriptor;
    const ProtobufCFieldDescriptor *field = NULL;
    int rc = find_last(path, &type, &field, err);
    if (rc != OK)
        return rc;
    /* Read into another message first, so that a bad value leaves this one as it was. */
    struct text_reader r = {.path = path, .err = err};
    ProtobufCMessage *fresh = text_message_new(type);
    if (!fresh)
        return err_set(err, ERR_NOMEM, "%.200s: out of memory", path);
    rc = read_whole(&r, fresh, field, value);
    ProtobufCMessage *holder = rc == OK ? make_way(msg, path) : NULL;
    if (!holder) {
        protobuf_c_message_free_unpacked(fresh, NULL);
        return rc != OK ? rc : err_set(err, ERR_NOMEM, "%.200s: out of memory", path);
    }
    move_field(holder, fresh, field);
    free(fresh);
    return OK;
}

int text_unset(ProtobufCMessage *msg, const char *path, bool *was_set, struct err *err)
{
    PL_ASSERT(msg && path);
    const ProtobufCMessageDescriptor *type = msg->descriptor;
    const ProtobufCFieldDescriptor *field = NULL;
    const char *rest = path, *name;
    size_t n;
    int rc = find_last(path, &type, &field, err);
    bool set = rc == OK;
    while (set && next_name(&rest, &name, &n)) {
        field = text_field_find(msg->descriptor, name, n);
        set = text_field_is_set(msg, field);
        if (set && *rest)
            msg = *(ProtobufCMessage **)text_field_slot(msg, field);
    }
    if (set)
        text_field_clear(msg, field);
    if (was_set)
        *was_set = set;
    return rc;
}
