#include "job/text.h"

#include "base/fault.h"
#include "job/text_field.h"
#include "job/text_number.h"

#include <inttypes.h>
#include <string.h>

static void write_message(const ProtobufCMessage *msg, int indent, struct buf *out);

static void write_quoted(const uint8_t *data, size_t len, bool text, struct buf *out)
{
    buf_put_u8(out, '"');
    for (size_t i = 0; i < len; i++) {
        uint8_t c = data[i];
        if (c == '\n')
            buf_printf(out, "\\n");
        else if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c < ' ' || c == 0x7f || (c > 0x7f && !text))
            buf_printf(out, "\\%03o", c);
        else
            buf_put_u8(out, c);
    }
    buf_put_u8(out, '"');
}

static void write_enum(const ProtobufCEnumDescriptor *words, int value, struct buf *out)
{
    const ProtobufCEnumValue *word = protobuf_c_enum_descriptor_get_value(words, value);
    if (word)
        buf_printf(out, "%s", word->name);
    else
        buf_printf(out, "%d", value);
}

void text_write_scalar(const ProtobufCFieldDescriptor *field, const void *slot, struct buf *out)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32: buf_printf(out, "%" PRId32, *(const int32_t *)slot); return;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64: buf_printf(out, "%" PRId64, *(const int64_t *)slot); return;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32: buf_printf(out, "%" PRIu32, *(const uint32_t *)slot); return;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: buf_printf(out, "%" PRIu64, *(const uint64_t *)slot); return;
    case PROTOBUF_C_TYPE_FLOAT: text_number_put_float(out, *(const float *)slot); return;
    case PROTOBUF_C_TYPE_DOUBLE: text_number_put_double(out, *(const double *)slot); return;
    case PROTOBUF_C_TYPE_BOOL:
        buf_printf(out, "%s", *(const protobuf_c_boolean *)slot ? "true" : "false");
        return;
    case PROTOBUF_C_TYPE_ENUM: write_enum(field->descriptor, *(const int *)slot, out); return;
    case PROTOBUF_C_TYPE_STRING: {
        const char *text = *(char *const *)slot;
        write_quoted((const uint8_t *)text, strlen(text), true, out);
        return;
    }
    case PROTOBUF_C_TYPE_BYTES: {
        const ProtobufCBinaryData *bytes = slot;
        write_quoted(bytes->data, bytes->len, false, out);
        return;
    }
    case PROTOBUF_C_TYPE_MESSAGE: break;
    }
    PL_ASSERT(!"a value that is not a message");
}

static void write_value(const ProtobufCFieldDescriptor *field, const void *slot, int indent,
                        struct buf *out)
{
    bool is_base = strcmp(field->name, TEXT_BASE_IN_C) == 0;
    buf_printf(out, "%*s%s", indent, "", is_base ? TEXT_BASE : field->name);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        buf_printf(out, " {\n");
        write_message(*(ProtobufCMessage *const *)slot, indent + 2, out);
        buf_printf(out, "%*s}\n", indent, "");
    } else {
        buf_printf(out, ": ");
        text_write_scalar(field, slot, out);
        buf_printf(out, "\n");
    }
}

static void write_field(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field,
                        int indent, struct buf *out)
{
    if (!text_field_is_set(msg, field))
        return;
    const uint8_t *at = text_field_slot(msg, field);
    size_t n = 1, size = text_field_size(field);
    if (text_field_repeated(field)) {
        n = *text_field_count(msg, field);
        at = *(const uint8_t *const *)(const void *)at;
    }
    for (size_t k = 0; k < n; k++)
        write_value(field, at + k * size, indent, out);
}

void text_write_field(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field,
                      struct buf *out)
{
    write_field(msg, field, 0, out);
}

/* protobuf-c keeps descriptors of fields in the order of their numbers. */
static void write_message(const ProtobufCMessage *msg, int indent, struct buf *out)
{
    for (unsigned i = 0; i < msg->descriptor->n_fields; i++)
        write_field(msg, &msg->descriptor->fields[i], indent, out);
}

void text_write(const ProtobufCMessage *msg, struct buf *out)
{
    write_message(msg, 0, out);
}
