/* Fields of a protobuf-c message by their descriptors: the address of a value, whether it is set,
 * how to free it. Internal to job. */
#ifndef PL_JOB_TEXT_FIELD_H
#define PL_JOB_TEXT_FIELD_H

#include "base/bytes.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

/* A field that text calls `base` has another name in our schemas: in C, a message's `base` is
 * protobuf-c's. */
#define TEXT_BASE      "base"
#define TEXT_BASE_IN_C "base_"

/* A new message with its defaults, or NULL when memory is out. */
ProtobufCMessage *text_message_new(const ProtobufCMessageDescriptor *type);

/* The field called by `n` characters of `name`, or NULL. */
const ProtobufCFieldDescriptor *text_field_find(const ProtobufCMessageDescriptor *type,
                                                const char *name, size_t n);

/* Bytes of one value. */
size_t text_field_size(const ProtobufCFieldDescriptor *field);

bool text_field_repeated(const ProtobufCFieldDescriptor *field);
bool text_field_in_oneof(const ProtobufCFieldDescriptor *field);

/* The value, or for a repeated field the pointer to its array. */
void *text_field_slot(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field);

/* How many values of a repeated field there are. */
size_t *text_field_count(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field);

/* Set by someone; for a repeated field, not empty. */
bool text_field_is_set(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field);

/* The member of the field's oneof that is set, or NULL. */
const ProtobufCFieldDescriptor *text_field_rival(const ProtobufCMessage *msg,
                                                 const ProtobufCFieldDescriptor *field);

/* Say that the slot of a field that is not repeated was written. */
void text_field_mark(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field);

/* Room for one more value of a repeated field; counted by the caller once it is written. NULL when
 * memory is out. */
void *text_field_append(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field);

/* Free what the field, or the member of its oneof that is set, holds, and leave it unset. */
void text_field_clear(ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field);

/* Append a value that is no message, as text has it; and a field with its name, all of its values;
 * nothing where it is not set. */
void text_write_scalar(const ProtobufCFieldDescriptor *field, const void *slot, struct buf *out);
void text_write_field(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field,
                      struct buf *out);

/* Write out every default that was left unset, through all sub-messages there are; oneofs and
 * repeated fields stay as they are. False when memory is out. */
bool text_fill_defaults(ProtobufCMessage *msg);

#endif
