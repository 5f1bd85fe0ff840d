/* Protobuf text in and out, generic over protobuf-c descriptors (D10): one reader for job files,
 * cluster files and Caffe's prototxt. */
#ifndef PL_JOB_TEXT_H
#define PL_JOB_TEXT_H

#include "base/bytes.h"
#include "base/err.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

/* Text is written for people: nets of several hundred layers have some hundred kilobytes. Messages
 * take more memory than their text, a layer of seven characters nearly half a kilobyte. */
enum {
    TEXT_DEPTH_MAX = 32,
    TEXT_BYTES_MAX = 8 * 1024 * 1024,
    TEXT_MEMORY_MAX = 256 * 1024 * 1024,
};

/* Parse `len` bytes of text into a new message. `name` is used in messages of errors, which say
 * file:line:column, the field, and what was expected. A field given twice that is not repeated, two
 * members of one oneof, an unknown field, a value out of range: all ERR_INPUT. Depth, size and the
 * memory of messages are bounded. The message is freed with protobuf_c_message_free_unpacked(msg,
 * NULL).
 *
 * ERR_INPUT, ERR_NOMEM */
int text_parse(const ProtobufCMessageDescriptor *type, const char *name, const char *text,
               size_t len, ProtobufCMessage **out, struct err *err);

/* A copy, freed in the same way; NULL: out of memory. */
ProtobufCMessage *text_copy(const ProtobufCMessage *msg);

/* Append the message as text, fields in order of their numbers, unset ones left out, floats with as
 * many digits as they need to be read back exactly. */
void text_write(const ProtobufCMessage *msg, struct buf *out);

/* Set one field by its path ("stop.epochs", "strategy.sync.tau") from the text of a value, as
 * `--set` does; sub-messages on the way are made. A string needs no quotes. Setting a member of a
 * oneof replaces the other. A repeated field is replaced. ERR_INPUT naming path and field. */
int text_set(ProtobufCMessage *msg, const char *path, const char *value, struct err *err);

/* Unset one field by its path: it has its default again, or is missing if it has none. *was_set
 * (may be NULL): it was set before; a missing enclosing message stays missing. ERR_INPUT: there is
 * no such field. */
int text_unset(ProtobufCMessage *msg, const char *path, bool *was_set, struct err *err);

#endif
