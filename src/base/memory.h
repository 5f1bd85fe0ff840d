/* The machine's memory, for who is to refuse in words what would not fit in it: Linux hands out
 * what is not there, and kills whoever then uses it. */
#ifndef PL_BASE_MEMORY_H
#define PL_BASE_MEMORY_H

#include <stddef.h>

/* Bytes that could be taken now without swapping, as the system estimates; 0 where it does not
 * say. */
size_t memory_available(void);

#endif
