#include "job/enums.h"

#include "job/text_field.h"

#include <stdio.h>
#include <string.h>

enum { PLACE_MAX = 256, WORDS_MAX = 200 };

/* The message under examination: value `i` of a field of its parent. */
struct place {
    const struct place *above; /* NULL: the outermost, which has no field */
    const ProtobufCMessage *msg;
    const ProtobufCFieldDescriptor *field;
    size_t i;
};

/* The message's own name, if it has one. */
static const char *name_of(const ProtobufCMessage *msg)
{
    const ProtobufCFieldDescriptor *field = text_field_find(msg->descriptor, "name", 4);
    if (!field || field->type != PROTOBUF_C_TYPE_STRING || text_field_repeated(field) ||
        !text_field_is_set(msg, field))
        return NULL;
    return *(char *const *)text_field_slot(msg, field);
}

/* `layer "conv1": `, `include[0].`, `weight_filler.`, from the outermost on. */
static void put_place(const struct place *p, char text[PLACE_MAX])
{
    if (!p->above)
        return;
    put_place(p->above, text);
    size_t used = strlen(text), room = PLACE_MAX - used;
    bool repeated = text_field_repeated(p->field);
    const char *name = repeated ? name_of(p->msg) : NULL;
    if (name)
        snprintf(text + used, room, "%s \"%.100s\": ", p->field->name, name);
    else if (repeated)
        snprintf(text + used, room, "%s[%zu].", p->field->name, p->i);
    else
        snprintf(text + used, room, "%s.", p->field->name);
}

static int check_value(const struct place *p, const ProtobufCFieldDescriptor *field, int value,
                       struct err *err)
{
    const ProtobufCEnumDescriptor *type = field->descriptor;
    char place[PLACE_MAX] = "", words[WORDS_MAX] = "";
    if (protobuf_c_enum_descriptor_get_value(type, value))
        return OK;
    put_place(p, place);
    for (unsigned k = 0; k < type->n_values; k++) {
        size_t used = strlen(words);
        snprintf(words + used, sizeof words - used, "%s%s", k ? ", " : "", type->values[k].name);
    }
    return err_set(err, ERR_INPUT, "%s%s: %d is none of %s", place, field->name, value, words);
}

static int check_message(const struct place *p, struct err *err);

static int check_field(const struct place *p, const ProtobufCFieldDescriptor *field,
                       struct err *err)
{
    const void *values = text_field_slot(p->msg, field);
    size_t n = 1;
    int rc = OK;
    if (text_field_repeated(field)) {
        n = *text_field_count(p->msg, field);
        values = *(const void *const *)values;
    }
    for (size_t i = 0; i < n && rc == OK; i++) {
        if (field->type == PROTOBUF_C_TYPE_ENUM) {
            rc = check_value(p, field, ((const int *)values)[i], err);
        } else {
            const ProtobufCMessage *msg = ((ProtobufCMessage *const *)values)[i];
            rc = check_message(&(struct place){p, msg, field, i}, err);
        }
    }
    return rc;
}

static int check_message(const struct place *p, struct err *err)
{
    const ProtobufCMessageDescriptor *type = p->msg->descriptor;
    int rc = OK;
    for (unsigned k = 0; k < type->n_fields && rc == OK; k++) {
        const ProtobufCFieldDescriptor *field = &type->fields[k];
        bool may_hold =
            field->type == PROTOBUF_C_TYPE_ENUM || field->type == PROTOBUF_C_TYPE_MESSAGE;
        if (may_hold && text_field_is_set(p->msg, field))
            rc = check_field(p, field, err);
    }
    return rc;
}

int enums_check(const ProtobufCMessage *msg, struct err *err)
{
    return check_message(&(struct place){.msg = msg}, err);
}
