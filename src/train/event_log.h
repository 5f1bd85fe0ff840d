/* events.jsonl as it grows. A line that cannot be written is kept, and written before the next one;
 * what is kept is bounded, the oldest lines go first, and a line says how many are missing:
 *
 *   {"t":12.5,"kind":"dropped","lines":31}     t: of the newest of them
 *
 * The file holds whole lines: of a write that failed half-way what was written is cut off again, or
 * else the next line begins on a line of its own. */
#ifndef PL_TRAIN_EVENT_LOG_H
#define PL_TRAIN_EVENT_LOG_H

#include "base/bytes.h"
#include "world/disk.h"

#include <cjson/cJSON.h>

enum { EVENT_LOG_KEPT_MAX = 1 << 20 }; /* bytes */

struct event_log {
    struct disk *disk;
    struct disk_file *file; /* NULL: it is not open */
    uint64_t whole;         /* bytes of the file that are whole lines; UINT64_MAX: unknown */
    bool torn;              /* the file may contain more bytes behind the last whole line */
    struct buf kept;        /* lines that were not written yet */
    uint64_t kept_lines, dropped;
    char dropped_at[32]; /* `t` of the newest line that was dropped */
    struct err error;    /* why the newest write failed */
};

/* Open the file for appending. ERR_IO, ERR_FULL, ERR_NOMEM */
int event_log_open(struct event_log *log, struct disk *disk, const char *path, struct err *err);

/* The newest event of that kind in a file that can be read, owned; NULL: there is none. Reads the
 * whole file. */
cJSON *event_log_newest(const char *path, const char *kind);

/* `t` of the newest event of a file that can be read; 0: there is none. */
double event_log_last(const char *path);

/* Write the kept lines, then this one. On an error the line is kept, and log->error has the
 * message. No effect while the log is not open. */
int event_log_line(struct event_log *log, const char *line);

/* Try again to write the kept lines. Returns the number of lines that the file lacks. */
uint64_t event_log_flush(struct event_log *log);
void event_log_close(struct event_log *log);

#endif
