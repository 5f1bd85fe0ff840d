#include "job/text_read.h"

#include "base/fault.h"
#include "job/text.h"
#include "job/text_field.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int text_fail(const struct text_reader *r, size_t at, const char *format, ...)
{
    char what[ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (!r->name)
        return err_set(r->err, ERR_INPUT, "%.200s: %s", r->path, what);
    size_t line, column;
    text_lex_place(&r->lex, at, &line, &column);
    return err_set(r->err, ERR_INPUT, "%.200s:%zu:%zu: %s", r->name, line, column, what);
}

const char *text_quote(const char *s, size_t n, char out[48])
{
    size_t kept = n < 40 ? n : 40;
    for (size_t i = 0; i < kept; i++)
        out[i] = (char)(s[i] >= ' ' && s[i] <= '~' ? s[i] : '?');
    snprintf(out + kept, 48 - kept, "%s", kept < n ? "..." : "");
    return out;
}

int text_fail_value(const struct text_reader *r, const ProtobufCMessageDescriptor *type,
                    const ProtobufCFieldDescriptor *field, size_t at, const char *wanted)
{
    char found[48];
    if (r->lex.kind == TEXT_BAD)
        return text_fail(r, r->lex.at, "field `%s` of %s: %s", field->name, type->short_name,
                         r->lex.why);
    if (r->lex.kind == TEXT_END)
        return text_fail(r, at, "field `%s` of %s: expected %s, not the end", field->name,
                         type->short_name, wanted);
    text_quote(r->lex.text + at, r->lex.end - at, found);
    return text_fail(r, at, "field `%s` of %s: expected %s, not `%s`", field->name,
                     type->short_name, wanted, found);
}

int text_take(struct text_reader *r, size_t bytes)
{
    if (bytes > TEXT_MEMORY_MAX - r->taken)
        return text_fail(r, r->lex.at, "the messages up to here take more than the limit of %d MiB",
                         TEXT_MEMORY_MAX >> 20);
    r->taken += bytes;
    return OK;
}

static int no_memory(const struct text_reader *r)
{
    return err_set(r->err, ERR_NOMEM, "%.200s: out of memory", r->name ? r->name : r->path);
}

/* The text is neither a value's nor a mark the grammar knows. */
static int fail_token(const struct text_reader *r, const ProtobufCMessageDescriptor *type,
                      const char *wanted)
{
    char found[48];
    if (r->lex.kind == TEXT_BAD)
        return text_fail(r, r->lex.at, "%s", r->lex.why);
    if (r->lex.kind == TEXT_END)
        return text_fail(r, r->lex.at, "expected %s of %s, not the end", wanted, type->short_name);
    text_quote(r->lex.text + r->lex.at, r->lex.end - r->lex.at, found);
    return text_fail(r, r->lex.at, "expected %s of %s, not `%s`", wanted, type->short_name, found);
}

static int find_field(struct text_reader *r, const ProtobufCMessage *msg,
                      const ProtobufCFieldDescriptor **out)
{
    const ProtobufCMessageDescriptor *type = msg->descriptor;
    const char *word = r->lex.text + r->lex.at;
    size_t n = r->lex.end - r->lex.at;
    const ProtobufCFieldDescriptor *field = text_field_find(type, word, n);
    if (!field) {
        char quoted[48];
        text_quote(word, n, quoted);
        const ProtobufCFieldDescriptor *near = text_field_nearest(type, word, n);
        if (near)
            return text_fail(r, r->lex.at, "%s has no field `%s`; did you mean `%s`?",
                             type->short_name, quoted, near->name);
        return text_fail(r, r->lex.at, "%s has no field `%s`", type->short_name, quoted);
    }
    const ProtobufCFieldDescriptor *rival = text_field_rival(msg, field);
    if (rival && rival != field)
        return text_fail(r, r->lex.at, "field `%s` of %s: `%s` is set, and one of the two may be",
                         field->name, type->short_name, rival->name);
    if (!text_field_repeated(field) && text_field_is_set(msg, field))
        return text_fail(r, r->lex.at, "field `%s` of %s: given twice", field->name,
                         type->short_name);
    *out = field;
    return OK;
}

/* Fields up to `close`, which is taken, or to the end of the text when `close` is 0. */
static int read_fields(struct text_reader *r, ProtobufCMessage *msg, char close)
{
    const ProtobufCMessageDescriptor *type = msg->descriptor;
    for (;;) {
        if (close ? text_lex_is(&r->lex, close) : r->lex.kind == TEXT_END) {
            text_lex_next(&r->lex);
            return OK;
        }
        if (r->lex.kind != TEXT_WORD)
            return fail_token(r, type,
                              close == '}'   ? "a field or `}`"
                              : close == '>' ? "a field or `>`"
                                             : "a field");
        const ProtobufCFieldDescriptor *field = NULL;
        int rc = find_field(r, msg, &field);
        if (rc != OK)
            return rc;
        text_lex_next(&r->lex);
        bool colon = text_lex_is(&r->lex, ':');
        if (!colon && field->type != PROTOBUF_C_TYPE_MESSAGE)
            return text_fail_value(r, type, field, r->lex.at, "`:` and a value");
        if (colon)
            text_lex_next(&r->lex);
        rc = text_read_field(r, msg, field);
        if (rc != OK)
            return rc;
        if (text_lex_is(&r->lex, ',') || text_lex_is(&r->lex, ';'))
            text_lex_next(&r->lex);
    }
}

static int read_message(struct text_reader *r, const ProtobufCMessageDescriptor *type,
                        const ProtobufCFieldDescriptor *field, ProtobufCMessage **slot)
{
    bool brace = text_lex_is(&r->lex, '{');
    if (!brace && !text_lex_is(&r->lex, '<'))
        return text_fail_value(r, type, field, r->lex.at, "`{`");
    if (r->depth == TEXT_DEPTH_MAX)
        return text_fail(r, r->lex.at, "field `%s` of %s: more than %d messages deep", field->name,
                         type->short_name, TEXT_DEPTH_MAX);
    const ProtobufCMessageDescriptor *inner = field->descriptor;
    int rc = text_take(r, inner->sizeof_message);
    if (rc != OK)
        return rc;
    ProtobufCMessage *msg = text_message_new(inner);
    if (!msg)
        return no_memory(r);
    r->depth++;
    text_lex_next(&r->lex);
    rc = read_fields(r, msg, brace ? '}' : '>');
    r->depth--;
    if (rc != OK) {
        protobuf_c_message_free_unpacked(msg, NULL);
        return rc;
    }
    *slot = msg;
    return OK;
}

static int read_value(struct text_reader *r, const ProtobufCMessageDescriptor *type,
                      const ProtobufCFieldDescriptor *field, void *slot)
{
    return field->type == PROTOBUF_C_TYPE_MESSAGE ? read_message(r, type, field, slot)
                                                  : text_read_scalar(r, type, field, slot);
}

static int read_element(struct text_reader *r, ProtobufCMessage *msg,
                        const ProtobufCFieldDescriptor *field)
{
    /* An array has room for 4 values, then for at most twice as many as there are. */
    size_t room = *text_field_count(msg, field) ? 2 : 4;
    int rc = text_take(r, room * text_field_size(field));
    if (rc != OK)
        return rc;
    void *slot = text_field_append(msg, field);
    if (!slot)
        return no_memory(r);
    rc = read_value(r, msg->descriptor, field, slot);
    if (rc == OK)
        ++*text_field_count(msg, field);
    return rc;
}

static int read_list(struct text_reader *r, ProtobufCMessage *msg,
                     const ProtobufCFieldDescriptor *field)
{
    text_lex_next(&r->lex);
    bool more = !text_lex_is(&r->lex, ']');
    while (more) {
        int rc = read_element(r, msg, field);
        if (rc != OK)
            return rc;
        more = text_lex_is(&r->lex, ',');
        if (more)
            text_lex_next(&r->lex);
        else if (!text_lex_is(&r->lex, ']'))
            return text_fail_value(r, msg->descriptor, field, r->lex.at, "`,` or `]`");
    }
    text_lex_next(&r->lex);
    return OK;
}

int text_read_field(struct text_reader *r, ProtobufCMessage *msg,
                    const ProtobufCFieldDescriptor *field)
{
    bool list = text_lex_is(&r->lex, '[');
    if (list && !text_field_repeated(field))
        return text_fail(r, r->lex.at, "field `%s` of %s: expected one value, not a list",
                         field->name, msg->descriptor->short_name);
    if (list)
        return read_list(r, msg, field);
    if (text_field_repeated(field))
        return read_element(r, msg, field);
    int rc = read_value(r, msg->descriptor, field, text_field_slot(msg, field));
    if (rc == OK)
        text_field_mark(msg, field);
    return rc;
}

int text_parse(const ProtobufCMessageDescriptor *type, const char *name, const char *text,
               size_t len, ProtobufCMessage **out, struct err *err)
{
    PL_ASSERT(name && (text || len == 0));
    if (len > TEXT_BYTES_MAX)
        return err_set(err, ERR_INPUT, "%.200s: %zu bytes of text, more than the limit of %d", name,
                       len, TEXT_BYTES_MAX);
    struct text_reader r = {.name = name, .err = err};
    ProtobufCMessage *msg = text_message_new(type);
    if (!msg)
        return no_memory(&r);
    text_lex_init(&r.lex, text ? text : "", len);
    int rc = read_fields(&r, msg, 0);
    if (rc != OK) {
        protobuf_c_message_free_unpacked(msg, NULL);
        return rc;
    }
    *out = msg;
    return OK;
}
