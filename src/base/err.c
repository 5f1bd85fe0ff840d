#include "base/err.h"

#include "base/printable.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *err, int status, const char *format, ...)
{
    if (!err)
        return status;
    va_list args;
    va_start(args, format);
    err->status = status;
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    printable(err->text);
    return status;
}

void err_prefix(struct err *err, const char *format, ...)
{
    if (!err)
        return;
    char old[ERR_TEXT_MAX];
    memcpy(old, err->text, sizeof old);
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    size_t used = strlen(err->text);
    snprintf(err->text + used, sizeof err->text - used, ": %s", old);
    printable(err->text);
}

void err_remedy(struct err *err, const char *remedy)
{
    if (!err)
        return;
    size_t used = strlen(err->text), most = sizeof err->text - strlen(remedy) - sizeof "; ";
    used = used < most ? used : most; /* a long message is cut before it */
    snprintf(err->text + used, sizeof err->text - used, "; %s", remedy);
}
