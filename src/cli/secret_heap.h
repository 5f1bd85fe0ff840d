/* Memory for what must not be found in a core dump: the command's keys, and all that OpenSSL
 * allocates, since it copies keys into structures of its own. Core dumps leave these pages out,
 * they stay off the disk where the limit of locked memory allows it, and a block is wiped when it
 * is given back. */
#ifndef PL_CLI_SECRET_HEAP_H
#define PL_CLI_SECRET_HEAP_H

#include <stddef.h>

/* Have OpenSSL allocate here. Before anything in this process has used it; later it keeps what it
 * has, the C library's heap. */
void secret_heap_install(void);

/* Like malloc, realloc and free. */
void *secret_heap_take(size_t n);
void *secret_heap_resize(void *block, size_t n);
void secret_heap_give(void *block);

#endif
