/* What calls that write files share. */
#ifndef PL_API_CONVERT_H
#define PL_API_CONVERT_H

#include "base/err.h"

enum { API_PATH_MAX = 4096 };

/* The path with a directory part, as disks want it. ERR_INPUT: too long */
int api_path_here(const char *path, char out[API_PATH_MAX], struct err *err);

#endif
