/* Values that are not messages: numbers, words, flags, strings. */
#include "base/fault.h"
#include "job/text_number.h"
#include "job/text_read.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The context of one value; the token may be the second one, after a minus. */
struct value {
    struct text_reader *r;
    const ProtobufCMessageDescriptor *type;
    const ProtobufCFieldDescriptor *field;
    size_t at;
    bool minus;
};

static int refuse_value(const struct value *v, const char *wanted)
{
    return text_fail_value(v->r, v->type, v->field, v->at, wanted);
}

static bool word_is(const struct text_lex *lex, const char *word)
{
    size_t n = lex->end - lex->at;
    if (lex->kind != TEXT_WORD || strlen(word) != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        if ((lex->text[lex->at + i] | 0x20) != word[i])
            return false;
    }
    return true;
}

/* A magnitude and a sign within [low, high]; low <= 0. The bits return in two's complement. */
static bool read_integer(const struct value *v, int64_t low, uint64_t high, uint64_t *out)
{
    const struct text_lex *lex = &v->r->lex;
    uint64_t magnitude;
    if (lex->kind != TEXT_NUMBER ||
        !text_number_integer(lex->text + lex->at, lex->end - lex->at, &magnitude))
        return false;
    if (magnitude > (v->minus ? -(uint64_t)low : high))
        return false;
    *out = v->minus ? -magnitude : magnitude;
    return true;
}

static int store_signed(const struct value *v, size_t size, void *slot)
{
    int64_t low = size == 4 ? INT32_MIN : INT64_MIN, high = size == 4 ? INT32_MAX : INT64_MAX;
    uint64_t bits;
    if (!read_integer(v, low, (uint64_t)high, &bits)) {
        char wanted[80];
        snprintf(wanted, sizeof wanted, "an integer from %lld to %lld", (long long)low,
                 (long long)high);
        return refuse_value(v, wanted);
    }
    uint32_t bits32 = (uint32_t)bits;
    memcpy(slot, size == 4 ? (void *)&bits32 : (void *)&bits, size);
    return OK;
}

static int store_unsigned(const struct value *v, size_t size, void *slot)
{
    uint64_t high = size == 4 ? UINT32_MAX : UINT64_MAX, bits;
    if (!read_integer(v, 0, high, &bits)) {
        char wanted[80];
        snprintf(wanted, sizeof wanted, "an integer from 0 to %llu", (unsigned long long)high);
        return refuse_value(v, wanted);
    }
    uint32_t bits32 = (uint32_t)bits;
    memcpy(slot, size == 4 ? (void *)&bits32 : (void *)&bits, size);
    return OK;
}

static bool read_special(const struct text_lex *lex, double *out)
{
    if (word_is(lex, "nan"))
        *out = (double)NAN;
    else if (word_is(lex, "inf") || word_is(lex, "infinity"))
        *out = (double)INFINITY;
    else
        return false;
    return true;
}

static int store_float(const struct value *v, float *slot)
{
    const struct text_lex *lex = &v->r->lex;
    double word;
    float x;
    if (read_special(lex, &word))
        x = (float)word;
    else if (lex->kind != TEXT_NUMBER ||
             !text_number_float(lex->text + lex->at, lex->end - lex->at, &x))
        return refuse_value(v, "a number that fits a float");
    *slot = v->minus ? -x : x;
    return OK;
}

static int store_double(const struct value *v, double *slot)
{
    const struct text_lex *lex = &v->r->lex;
    double x;
    if (!read_special(lex, &x) &&
        (lex->kind != TEXT_NUMBER ||
         !text_number_double(lex->text + lex->at, lex->end - lex->at, &x)))
        return refuse_value(v, "a number that fits a double");
    *slot = v->minus ? -x : x;
    return OK;
}

static int store_bool(const struct value *v, protobuf_c_boolean *slot)
{
    const struct text_lex *lex = &v->r->lex;
    uint64_t bits;
    bool plain = !v->minus;
    if (plain && (word_is(lex, "true") || word_is(lex, "t")))
        *slot = true;
    else if (plain && (word_is(lex, "false") || word_is(lex, "f")))
        *slot = false;
    else if (plain && read_integer(v, 0, 1, &bits))
        *slot = bits != 0;
    else
        return refuse_value(v, "true or false");
    return OK;
}

static int store_enum(const struct value *v, int *slot)
{
    const ProtobufCEnumDescriptor *words = v->field->descriptor;
    const struct text_lex *lex = &v->r->lex;
    const ProtobufCEnumValue *found = NULL;
    uint64_t bits;
    char name[64];
    size_t n = lex->end - lex->at;
    if (lex->kind == TEXT_WORD && n < sizeof name && !v->minus) {
        memcpy(name, lex->text + lex->at, n);
        name[n] = '\0';
        found = protobuf_c_enum_descriptor_get_value_by_name(words, name);
    } else if (read_integer(v, INT32_MIN, INT32_MAX, &bits)) {
        found = protobuf_c_enum_descriptor_get_value(words, (int)(int64_t)bits);
    }
    if (found) {
        *slot = found->value;
        return OK;
    }
    char wanted[256] = "one of";
    for (unsigned i = 0; i < words->n_values; i++) {
        size_t used = strlen(wanted);
        snprintf(wanted + used, sizeof wanted - used, "%s %s", i ? "," : "", words->values[i].name);
    }
    return refuse_value(v, wanted);
}

/* Adjacent literals are one string. */
static int read_string(const struct value *v, struct buf *out)
{
    struct text_lex *lex = &v->r->lex;
    if (lex->kind != TEXT_STRING)
        return refuse_value(v, "a string in quotes");
    while (lex->kind == TEXT_STRING) {
        size_t bad;
        if (!text_lex_unescape(lex, out, &bad))
            return text_fail(v->r, bad, "field `%s` of %s: unknown escape in a string",
                             v->field->name, v->type->short_name);
        text_lex_next(lex);
    }
    if (v->field->type == PROTOBUF_C_TYPE_STRING && out->len && memchr(out->data, 0, out->len))
        return text_fail(v->r, v->at, "field `%s` of %s: a string cannot hold a zero byte",
                         v->field->name, v->type->short_name);
    buf_put_u8(out, 0);
    if (out->failed)
        return err_set(v->r->err, ERR_NOMEM, "field `%s` of %s: out of memory", v->field->name,
                       v->type->short_name);
    return OK;
}

static int store_string(const struct value *v, void *slot)
{
    struct buf bytes = {0};
    int rc = read_string(v, &bytes);
    if (rc == OK)
        rc = text_take(v->r, bytes.cap);
    if (rc != OK) {
        buf_release(&bytes);
        return rc;
    }
    /* The buffer's memory goes to the message, which frees it. */
    if (v->field->type == PROTOBUF_C_TYPE_STRING)
        *(char **)slot = (char *)bytes.data;
    else
        *(ProtobufCBinaryData *)slot = (ProtobufCBinaryData){bytes.len - 1, bytes.data};
    return OK;
}

static int store_value(const struct value *v, void *slot)
{
    switch (v->field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32: return store_signed(v, 4, slot);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64: return store_signed(v, 8, slot);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32: return store_unsigned(v, 4, slot);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: return store_unsigned(v, 8, slot);
    case PROTOBUF_C_TYPE_FLOAT: return store_float(v, slot);
    case PROTOBUF_C_TYPE_DOUBLE: return store_double(v, slot);
    case PROTOBUF_C_TYPE_BOOL: return store_bool(v, slot);
    case PROTOBUF_C_TYPE_ENUM: return store_enum(v, slot);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES: return store_string(v, slot);
    case PROTOBUF_C_TYPE_MESSAGE: break;
    }
    PL_ASSERT(!"a value that is not a message");
    return ERR_BUG;
}

int text_read_scalar(struct text_reader *r, const ProtobufCMessageDescriptor *type,
                     const ProtobufCFieldDescriptor *field, void *slot)
{
    struct value v = {r, type, field, r->lex.at, text_lex_is(&r->lex, '-')};
    bool string = field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_BYTES;
    if (v.minus && !string)
        text_lex_next(&r->lex);
    int rc = store_value(&v, slot);
    if (rc == OK && !string)
        text_lex_next(&r->lex);
    return rc;
}
