#include "nn/fields.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool is_set(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field)
{
    const char *base = (const char *)msg;
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        size_t n;
        memcpy(&n, base + field->quantifier_offset, sizeof n);
        return n > 0;
    }
    if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE) {
        const void *at;
        memcpy(&at, base + field->offset, sizeof at);
        return at && at != field->default_value;
    }
    protobuf_c_boolean has;
    memcpy(&has, base + field->quantifier_offset, sizeof has);
    return has;
}

static bool is_listed(const char *name, const char *const *list)
{
    for (; list && *list; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

const char *fields_first_unknown(const ProtobufCMessage *msg, const char *const *known,
                                 const char *const *more, char *number, size_t size)
{
    const ProtobufCMessageDescriptor *type = msg->descriptor;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        if (is_set(msg, field) && !is_listed(field->name, known) && !is_listed(field->name, more))
            return field->name;
    }
    if (msg->n_unknown_fields == 0)
        return NULL;
    snprintf(number, size, "field %u", (unsigned)msg->unknown_fields[0].tag);
    return number;
}
