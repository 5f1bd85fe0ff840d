/* An engine's shape tuner (tensor/tuner.h), and the file that keeps its choices for other runs.
 *
 * The environment's PACELINE_TUNER names the file, by a path with a slash in it, or says `off`, as
 * does any other word; else it is paceline/kernels.txt under $XDG_CACHE_HOME, or ~/.cache. A file
 * of that name with other contents, or a link, is left alone, and nothing is kept. The file is read
 * once, when a net is first planned, and written whenever something new was found: aside, then
 * renamed, with what other processes have added in the meantime. Of two that write at once one may
 * be lost, and measures again some day. */
#ifndef PL_API_TUNING_H
#define PL_API_TUNING_H

#include "base/logger.h"
#include "tensor/tuner.h"

struct api_tuning;

/* Opened when first asked for, into *tuning; NULL: it is off, or there is no memory for it. `log`
 * is borrowed until api_tuning_free. */
struct tuner *api_tuner(struct api_tuning **tuning, const struct logger *log);

void api_tuning_free(struct api_tuning *tuning); /* NULL is allowed */

#endif
