/* A slow disk, to be preloaded: the first SLOW_OPENS files that are opened below a path that holds
 * SLOW_PATH take SLOW_MS each.
 *
 *   cc -shared -fPIC -o slow_open.so slow_open.c -ldl
 *   SLOW_PATH=pets SLOW_OPENS=300 SLOW_MS=1000 LD_PRELOAD=./slow_open.so paceline worker ... */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void delay_open(const char *path)
{
    static atomic_long opened;
    const char *where = getenv("SLOW_PATH"), *ms = getenv("SLOW_MS"), *n = getenv("SLOW_OPENS");
    if (!where || !ms || !n || !strstr(path, where) || atomic_fetch_add(&opened, 1) >= atol(n))
        return;
    long each = atol(ms);
    nanosleep(&(struct timespec){each / 1000, each % 1000 * 1000000}, NULL);
}

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    delay_open(path);
    return real(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int (*real)(int, const char *, int, ...) =
        (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat");
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    delay_open(path);
    return real(folder, path, flags, mode);
}
