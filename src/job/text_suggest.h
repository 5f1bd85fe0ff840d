/* The likely field for a name that does not exist. Internal to job. */
#ifndef PL_JOB_TEXT_SUGGEST_H
#define PL_JOB_TEXT_SUGGEST_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

enum { TEXT_SUGGESTION_MAX = 96 };

enum text_likeness {
    TEXT_EXACTLY, /* the same name, or another tool's name for it */
    TEXT_NEARLY,  /* or a name that differs by a slip or two */
};

/* A path from `type` ("batch", "solver.base_lr") for the `n` characters of `name`: a field of this
 * type that is as similar as `likeness` requires, or one of that name in an inner message. false:
 * none. */
bool text_suggest(const ProtobufCMessageDescriptor *type, const char *name, size_t n,
                  enum text_likeness likeness, char path[TEXT_SUGGESTION_MAX]);

/* "; it has list, root, color": the fields of a message that has few; "" when they are many. */
void text_list_fields(const ProtobufCMessageDescriptor *type, char out[TEXT_SUGGESTION_MAX]);

#endif
