/* Functions that the builders share: messages made piece by piece. Memory is malloc's, since
 * protobuf-c frees a message so. Each call marks the build as failed when memory runs out, and then
 * returns NULL. */
#ifndef PL_MODEL_BUILD_MESSAGE_H
#define PL_MODEL_BUILD_MESSAGE_H

#include "model/build.h"

/* An empty message of that type. */
void *build_message(struct build *b, const ProtobufCMessageDescriptor *type);

/* Room for one more pointer in a repeated field of n. */
void *build_grown(struct build *b, void *list, size_t n);

void build_set_string(struct build *b, char **field, const char *text);
void build_add_string(struct build *b, char ***list, size_t *n, const char *text);

/* Append a layer with one top and, unless `bottom` is NULL, one bottom. */
Caffe__LayerParameter *build_add_layer(struct build *b, const char *type, const char *name,
                                       const char *bottom, const char *top);

/* Set an optional number of a message. */
#define BUILD_SET(message, field, number) \
    ((message)->has_##field = true, (message)->field = (number))

#endif
