/* The log callback. The library prints nothing itself (D13): every engine carries one of these. */
#ifndef PL_BASE_LOGGER_H
#define PL_BASE_LOGGER_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

struct logger {
    void (*write)(void *user, enum log_level level, const char *line); /* NULL: silent */
    void *user;
    enum log_level level; /* lines below it are not formatted */
};

/* One line, lower case, no newline; values bare ("worker 3 joined", not "worker=3"). Control
 * characters become '?'. May be called from any thread when `write` may. `log` may be NULL. */
void log_write(const struct logger *log, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_debug(log, ...) log_write(log, LOG_DEBUG, __VA_ARGS__)
#define log_info(log, ...)  log_write(log, LOG_INFO, __VA_ARGS__)
#define log_warn(log, ...)  log_write(log, LOG_WARN, __VA_ARGS__)
#define log_error(log, ...) log_write(log, LOG_ERROR, __VA_ARGS__)

#endif
