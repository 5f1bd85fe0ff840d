/* Memory for keys: pages that no core dump contains and, where the limit of locked memory allows
 * it, that are never written to disk. It is wiped when it is given back. Each piece takes whole
 * pages: it is meant for a few keys. */
#ifndef PL_REAL_SECRET_H
#define PL_REAL_SECRET_H

#include <stddef.h>

/* Zeros; NULL: no memory. */
void *secret_alloc(size_t n);
void secret_free(void *secret); /* NULL allowed */

#endif
