/* An engine's shape tuner (tensor/tuner.h), and the file that keeps its choices for other runs.
 *
 * The environment's PACELINE_TUNER names the file, by a path with a slash in it; `off`, or any
 * other word, means no file; if it is not set, the file is paceline/kernels.txt under
 * $XDG_CACHE_HOME, or ~/.cache. A file of that name with other contents, or a link, is not changed,
 * and no choices are kept. The file is read once, when a net is first planned, and written after
 * each new choice: under another name, then renamed, with the choices that other processes have
 * added. If two processes write at once, one choice may be lost, and is measured again in a later
 * run. */
#ifndef PL_API_TUNING_H
#define PL_API_TUNING_H

#include "base/logger.h"
#include "tensor/tuner.h"

struct api_tuning;

/* The first call opens it, into *tuning. NULL: it is off, or out of memory. `log`
 * is borrowed until api_tuning_free. */
struct tuner *api_tuner(struct api_tuning **tuning, const struct logger *log);

void api_tuning_free(struct api_tuning *tuning); /* NULL is allowed */

#endif
