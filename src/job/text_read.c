#include "job/text_read.h"

#include "base/fault.h"
#include "job/text.h"
#include "job/text_field.h"
#include "job/text_suggest.h"

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

/* The purpose of a character that begins no token, and the right way to write it. */
static const char *remedy_for(char c)
{
    switch (c) {
    case '=': return "; write `:` between a field and its value, as in base_lr: 0.01";
    case '/':
    case '*':
    case '+':
    case '(':
    case ')': return "; nothing is computed here: write the number itself, as in 0.00390625";
    case '%': return "; write the share as a number, as in 0.2";
    case '\xe2': return "; quotes are written straight, \"like this\"";
    default:
        return (unsigned char)c >= ' ' && (unsigned char)c < 0x7f
                   ? ""
                   : "; is this a text file? Text beyond ASCII must be quoted";
    }
}

static int fail_bad(const struct text_reader *r, const char *place)
{
    unsigned char c = (unsigned char)r->lex.text[r->lex.at];
    char shown[16];
    if (r->lex.why)
        return text_fail(r, r->lex.at, "%s%s", place, r->lex.why);
    if (c > ' ' && c <= '~')
        snprintf(shown, sizeof shown, "`%c`", c);
    else
        snprintf(shown, sizeof shown, "byte 0x%02x", c);
    return text_fail(r, r->lex.at, "%s%s is not allowed here%s", place, shown, remedy_for((char)c));
}

int text_fail_value(const struct text_reader *r, const ProtobufCMessageDescriptor *type,
                    const ProtobufCFieldDescriptor *field, size_t at, const char *wanted)
{
    char found[48], place[160] = "";
    bool named = r->path && r->depth == 0; /* by the path, which every message begins with */
    if (!named)
        snprintf(place, sizeof place, "field `%s` of %s: ", field->name, type->short_name);
    if (r->lex.kind == TEXT_BAD)
        return fail_bad(r, place);
    if (r->lex.kind == TEXT_END)
        return text_fail(r, at, "%sexpected %s, not the end", place, wanted);
    text_quote(r->lex.text + at, r->lex.end - at, found);
    return text_fail(r, at, "%sexpected %s, not `%s`", place, wanted, found);
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

/* The text ends inside a message. */
static int fail_open(const struct text_reader *r, const ProtobufCMessageDescriptor *type,
                     const char *wanted)
{
    size_t line, column;
    if (!r->block || !r->block->name)
        return text_fail(r, r->lex.at, "expected %s of %s, not the end", wanted, type->short_name);
    text_lex_place(&r->lex, r->block->at, &line, &column);
    return text_fail(r, r->lex.at,
                     "expected %s of %s, not the end; `%s`, which begins in line %zu, is not "
                     "closed",
                     wanted, type->short_name, r->block->name, line);
}

/* The text is neither a value's nor a mark the grammar knows. */
static int fail_token(const struct text_reader *r, const ProtobufCMessageDescriptor *type,
                      const char *wanted)
{
    char found[48];
    if (r->lex.kind == TEXT_BAD)
        return fail_bad(r, "");
    if (r->lex.kind == TEXT_END)
        return fail_open(r, type, wanted);
    text_quote(r->lex.text + r->lex.at, r->lex.end - r->lex.at, found);
    return text_fail(r, r->lex.at, "expected %s of %s, not `%s`", wanted, type->short_name, found);
}

enum { NESTED_MAX = 4 * TEXT_SUGGESTION_MAX };

/* `solver.base_lr` as a file has it: `solver { base_lr: ... }`. */
static void nest_path(const char *path, char out[NESTED_MAX])
{
    size_t n = 0, depth = 0;
    for (; strchr(path, '.'); path = strchr(path, '.') + 1, depth++)
        n += (size_t)snprintf(out + n, NESTED_MAX - n, "%.*s { ", (int)strcspn(path, "."), path);
    n += (size_t)snprintf(out + n, NESTED_MAX - n, "%s%s", path, depth ? ": ..." : "");
    for (; depth > 0; depth--)
        n += (size_t)snprintf(out + n, NESTED_MAX - n, " }");
}

/* A message around this one knows the field: a brace is missing, most likely. */
static const struct text_block *find_around(const struct text_reader *r, const char *word, size_t n,
                                            const struct text_block **inside)
{
    for (const struct text_block *b = r->block; b && b->above; b = b->above) {
        *inside = b;
        if (text_field_find(b->above->type, word, n))
            return b->above;
    }
    return NULL;
}

static int fail_unknown(const struct text_reader *r, const ProtobufCMessageDescriptor *type,
                        const char *word, size_t n)
{
    char quoted[48], path[TEXT_SUGGESTION_MAX], nested[NESTED_MAX];
    const struct text_block *inside = NULL, *around = find_around(r, word, n, &inside);
    text_quote(word, n, quoted);
    if (around) {
        size_t line, column;
        text_lex_place(&r->lex, inside->at, &line, &column);
        return text_fail(r, r->lex.at,
                         "%s has no field `%s`, but %s has: is the `}` of `%s`, which begins in "
                         "line %zu, missing?",
                         type->short_name, quoted, around->type->short_name, inside->name, line);
    }
    const struct text_block *file = r->block;
    while (file && file->above)
        file = file->above;
    if (text_suggest(type, word, n, TEXT_NEARLY, path)) {
        nest_path(path, nested);
        return text_fail(r, r->lex.at, "%s has no field `%s`; did you mean `%s`?", type->short_name,
                         quoted, nested);
    }
    if (file && file->type != type && text_suggest(file->type, word, n, TEXT_EXACTLY, path)) {
        nest_path(path, nested);
        return text_fail(r, r->lex.at, "%s has no field `%s`; did you mean `%s` of %s?",
                         type->short_name, quoted, nested, file->type->short_name);
    }
    text_list_fields(type, path);
    return text_fail(r, r->lex.at, "%s has no field `%s`%s", type->short_name, quoted, path);
}

static int find_field(struct text_reader *r, const ProtobufCMessage *msg,
                      const ProtobufCFieldDescriptor **out)
{
    const ProtobufCMessageDescriptor *type = msg->descriptor;
    const char *word = r->lex.text + r->lex.at;
    size_t n = r->lex.end - r->lex.at;
    const ProtobufCFieldDescriptor *field = text_field_find(type, word, n);
    if (!field)
        return fail_unknown(r, type, word, n);
    const ProtobufCFieldDescriptor *rival = text_field_rival(msg, field);
    if (rival && rival != field)
        return text_fail(r, r->lex.at, "field `%s` of %s: `%s` is set, and one of the two may be",
                         field->name, type->short_name, rival->name);
    if (!text_field_repeated(field) && text_field_is_set(msg, field))
        return text_fail(r, r->lex.at, "field `%s` of %s: given twice; keep one", field->name,
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
    const struct text_block block = {r->block, inner, field->name, r->lex.at};
    r->block = r->block ? &block : NULL;
    r->depth++;
    text_lex_next(&r->lex);
    rc = read_fields(r, msg, brace ? '}' : '>');
    r->depth--;
    r->block = block.above;
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
    const struct text_block file = {.type = type};
    struct text_reader r = {.name = name, .block = &file, .err = err};
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
