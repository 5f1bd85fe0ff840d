/* Arrays that double when they are full. */
#ifndef PL_BASE_ARRAY_H
#define PL_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* Make room for one element behind the `count` that *at has. `at` is the address of the pointer to
 * the array, `size` that of an element; *room is 0 for the first. false: memory is out, and the
 * array is as it was. */
bool array_grow(void *at, size_t count, size_t *room, size_t size);

#endif
