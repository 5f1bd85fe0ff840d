/* Declarations that calls which write files share. */
#ifndef PL_API_CONVERT_H
#define PL_API_CONVERT_H

#include "base/err.h"

#include <stdbool.h>

enum { API_PATH_MAX = 4096 };

/* The path with a directory part, as disks want it. ERR_INPUT: too long */
int api_path_here(const char *path, char out[API_PATH_MAX], struct err *err);

/* The path of a result: one that does not exist or, with `replace`, a file; for a link, the file
 * that it leads to. ERR_INPUT: the path exists, by name; it is too long */
int api_path_result(const char *path, bool replace, char out[API_PATH_MAX], struct err *err);

#endif
