#include "wire/catalogue.h"

#include <string.h>

static const char *const names[WIRE_KIND_COUNT] = {[WIRE_NONE] = "?",
#define WIRE_NAME(name, text) [WIRE_##name] = text,
                                                   WIRE_KINDS(WIRE_NAME)
#undef WIRE_NAME
};

const char *wire_kind_name(enum wire_kind kind)
{
    return kind < WIRE_KIND_COUNT ? names[kind] : names[WIRE_NONE];
}

enum wire_kind wire_kind_find(const char *name)
{
    for (int kind = 1; kind < WIRE_KIND_COUNT; kind++)
        if (strcmp(names[kind], name) == 0)
            return (enum wire_kind)kind;
    return WIRE_NONE;
}
