#include "job/text_field.h"

#include "base/fault.h"
#include "job/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIELD_NAME_MAX = 64 };

ProtobufCMessage *text_message_new(const ProtobufCMessageDescriptor *type)
{
    PL_ASSERT(type->message_init);
    ProtobufCMessage *msg = calloc(1, type->sizeof_message);
    if (msg)
        type->message_init(msg);
    return msg;
}

ProtobufCMessage *text_copy(const ProtobufCMessage *msg)
{
    size_t n = protobuf_c_message_get_packed_size(msg);
    uint8_t *bytes = malloc(n + 1);
    if (!bytes)
        return NULL;
    protobuf_c_message_pack(msg, bytes);
    ProtobufCMessage *copy = protobuf_c_message_unpack(msg->descriptor, NULL, n, bytes);
    free(bytes);
    return copy;
}

const ProtobufCFieldDescriptor *text_field_find(const ProtobufCMessageDescriptor *type,
                                                const char *name, size_t n)
{
    char copy[FIELD_NAME_MAX];
    if (n >= sizeof copy)
        return NULL;
    memcpy(copy, name, n);
    copy[n] = '\0';
    return protobuf_c_message_descriptor_get_field_by_name(
        type, strcmp(copy, TEXT_BASE) == 0 ? TEXT_BASE_IN_C : copy);
}

size_t text_field_size(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32: return sizeof(int32_t);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32: return sizeof(uint32_t);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64: return sizeof(int64_t);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: return sizeof(uint64_t);
    case PROTOBUF_C_TYPE_FLOAT: return sizeof(float);
    case PROTOBUF_C_TYPE_DOUBLE: return sizeof(double);
    case PROTOBUF_C_TYPE_BOOL: return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_ENUM: return sizeof(int);
    case PROTOBUF_C_TYPE_STRING: return sizeof(char *);
    case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_MESSAGE: return sizeof(ProtobufCMessage *);
    }
    PL_ASSERT(!"a type of field");
    return 0;
}

bool text_field_repeated(const ProtobufCFieldDescriptor *field)
{
    return field->label == PROTOBUF_C_LABEL_REPEATED;
}

bool text_field_in_oneof(const ProtobufCFieldDescriptor *field)
{
    return field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
}

/* Pointers of all types lie in slots; read and write them by their bytes. */
static void *pointer_get(const void *slot)
{
    void *pointer;
    memcpy(&pointer, slot, sizeof pointer);
    return pointer;
}

static void pointer_put(void *slot, const void *pointer)
{
    memcpy(slot, &pointer, sizeof pointer);
}

static void *field_address(const ProtobufCMessage *msg, unsigned offset)
{
    return (uint8_t *)(uintptr_t)msg + offset;
}

void *text_field_slot(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field)
{
    return field_address(msg, field->offset);
}

size_t *text_field_count(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field)
{
    PL_ASSERT(text_field_repeated(field));
    return field_address(msg, field->quantifier_offset);
}

bool text_field_is_set(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field)
{
    void *quantifier = field_address(msg, field->quantifier_offset);
    if (text_field_repeated(field))
        return *(size_t *)quantifier > 0;
    if (text_field_in_oneof(field))
        return *(uint32_t *)quantifier == field->id;
    if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE) {
        const void *value = pointer_get(text_field_slot(msg, field));
        return value && value != field->default_value;
    }
    return field->label == PROTOBUF_C_LABEL_REQUIRED || *(protobuf_c_boolean *)quantifier;
}

const ProtobufCFieldDescriptor *text_field_rival(const ProtobufCMessage *msg,
                                                 const ProtobufCFieldDescriptor *field)
{
    if (!text_field_in_oneof(field))
        return NULL;
    uint32_t id = *(uint32_t *)field_address(msg, field->quantifier_offset);
    return id ? protobuf_c_message_descriptor_get_field(msg->descriptor, id) : NULL;
}

void text_field_mark(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field)
{
    PL_ASSERT(!text_field_repeated(field));
    void *quantifier = field_address(msg, field->quantifier_offset);
    if (text_field_in_oneof(field))
        *(uint32_t *)quantifier = field->id;
    else if (field->label == PROTOBUF_C_LABEL_OPTIONAL && field->quantifier_offset)
        *(protobuf_c_boolean *)quantifier = true;
}

void *text_field_append(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field)
{
    size_t n = *text_field_count(msg, field), size = text_field_size(field);
    uint8_t *array = pointer_get(text_field_slot(msg, field));
    /* The capacity is not kept: it is 4, then doubles whenever the count is a power of two. */
    bool full = n == 0 || (n >= 4 && (n & (n - 1)) == 0);
    if (full) {
        size_t cap = n ? 2 * n : 4;
        uint8_t *grown = cap <= SIZE_MAX / size ? realloc(array, cap * size) : NULL;
        if (!grown)
            return NULL;
        pointer_put(text_field_slot(msg, field), grown);
        array = grown;
    }
    return array + n * size;
}

static void release_value(const ProtobufCFieldDescriptor *field, void *slot)
{
    const void *initial = text_field_repeated(field) ? NULL : field->default_value;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        protobuf_c_message_free_unpacked(pointer_get(slot), NULL);
    } else if (field->type == PROTOBUF_C_TYPE_STRING) {
        if (pointer_get(slot) != initial)
            free(pointer_get(slot));
    } else if (field->type == PROTOBUF_C_TYPE_BYTES) {
        ProtobufCBinaryData *bytes = slot;
        const ProtobufCBinaryData *bytes_initial = initial;
        if (!bytes_initial || bytes->data != bytes_initial->data)
            free(bytes->data);
    }
}

static void reset_value(const ProtobufCFieldDescriptor *field, void *slot)
{
    if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE)
        pointer_put(slot, field->default_value);
    else if (field->default_value)
        memcpy(slot, field->default_value, text_field_size(field));
    else
        memset(slot, 0, text_field_size(field));
}

void text_field_clear(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field)
{
    if (text_field_repeated(field)) {
        size_t *n = text_field_count(msg, field), size = text_field_size(field);
        uint8_t *array = pointer_get(text_field_slot(msg, field));
        for (size_t i = 0; i < *n; i++)
            release_value(field, array + i * size);
        free(array);
        pointer_put(text_field_slot(msg, field), NULL);
        *n = 0;
        return;
    }
    if (text_field_in_oneof(field)) {
        const ProtobufCFieldDescriptor *rival = text_field_rival(msg, field);
        if (!rival)
            return;
        release_value(rival, text_field_slot(msg, rival));
        *(uint32_t *)field_address(msg, field->quantifier_offset) = 0;
        return;
    }
    release_value(field, text_field_slot(msg, field));
    reset_value(field, text_field_slot(msg, field));
    if (field->label == PROTOBUF_C_LABEL_OPTIONAL && field->quantifier_offset)
        *(protobuf_c_boolean *)field_address(msg, field->quantifier_offset) = false;
}

static bool fill_messages(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field)
{
    const uint8_t *at = text_field_slot(msg, field);
    size_t n = text_field_is_set(msg, field) ? 1 : 0;
    if (text_field_repeated(field)) {
        n = *text_field_count(msg, field);
        at = pointer_get(at);
    }
    for (size_t i = 0; i < n; i++) {
        if (!text_fill_defaults(pointer_get(at + i * sizeof(void *))))
            return false;
    }
    return true;
}

bool text_fill_defaults(ProtobufCMessage *msg)
{
    for (unsigned i = 0; i < msg->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &msg->descriptor->fields[i];
        if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            if (!fill_messages(msg, field))
                return false;
            continue;
        }
        if (text_field_repeated(field) || text_field_in_oneof(field) || !field->default_value ||
            text_field_is_set(msg, field) || field->type == PROTOBUF_C_TYPE_BYTES)
            continue;
        if (field->type == PROTOBUF_C_TYPE_STRING) {
            char *copy = strdup(field->default_value);
            if (!copy)
                return false;
            pointer_put(text_field_slot(msg, field), copy);
        } else {
            text_field_mark(msg, field);
        }
    }
    return true;
}
