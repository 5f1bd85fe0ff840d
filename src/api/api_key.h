/* The key that a world is opened with. */
#ifndef PL_API_API_KEY_H
#define PL_API_API_KEY_H

#include "api/api.h"
#include "real/key_file.h"

/* `given`; or, without one, at loopback (`address` NULL is), the user's own, which is read into
 * *own. NULL: there is none, which the log says: every user of this host may then join. The caller
 * gives *own back (real/secret.h), NULL or not, also after an error. ERR_INPUT: the user's own
 * cannot be read; ERR_NOMEM */
int api_key_choose(const struct logger *log, struct err *err, const char *given,
                   const char *address, char **own, const char **key);

#endif
