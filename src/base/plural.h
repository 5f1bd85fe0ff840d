/* Numbers of things in sentences: "1 shape", "2 shapes". */
#ifndef PL_BASE_PLURAL_H
#define PL_BASE_PLURAL_H

#include <stdint.h>

/* The ending of a plural: nothing for one thing, else `end`, as "s" or "es". */
static inline const char *plural(uint64_t n, const char *end)
{
    return n == 1 ? "" : end;
}

#endif
