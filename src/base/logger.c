#include "base/logger.h"

#include "base/printable.h"

#include <stdarg.h>
#include <stdio.h>

void log_write(const struct logger *log, enum log_level level, const char *format, ...)
{
    if (!log || !log->write || level < log->level)
        return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    printable(line);
    log->write(log->user, level, line);
}
