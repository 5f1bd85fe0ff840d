#include "base/array.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM_FIRST = 16 };

bool array_grow(void *at, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return true;
    void *old;
    memcpy(&old, at, sizeof old); /* *at may have any type of pointer to objects */
    size_t more = *room ? 2 * *room : ROOM_FIRST, bytes;
    void *larger = __builtin_mul_overflow(more, size, &bytes) ? NULL : realloc(old, bytes);
    if (!larger)
        return false;
    memcpy(at, &larger, sizeof larger);
    *room = more;
    return true;
}
