/* A trace as a file of Chrome's trace events, for Perfetto (ui.perfetto.dev) and chrome://tracing:
 * a JSON array, one event a line. Each node is a process, each of its rows a thread:
 *
 *     {"name":"compute","cat":"compute","ph":"X","ts":12.000,"dur":4000.000,"pid":2,"tid":1,
 *      "cname":"rail_response","args":{"step":1,"records":64}}
 *
 * ts and dur are microseconds, ts since the run began. The driver is process 1, worker w process w
 * + 2. Equal spans in equal order give equal bytes. The file grows with the spans. After a crash it
 * lacks the closing bracket, which both viewers accept. */
#ifndef PL_API_TRACE_FILE_H
#define PL_API_TRACE_FILE_H

#include "base/bytes.h"
#include "base/logger.h"
#include "world/disk.h"
#include "world/trace.h"

struct trace_file {
    struct disk *disk;
    struct disk_file *file; /* NULL: not open */
    const char *path;       /* borrowed */
    struct buf text;        /* of the spans at hand */
    bool first;             /* no span has been written yet */
    struct err error;       /* of the first write that failed: the run continues without its
                               trace */
    uint64_t *named;        /* pid << 32 | tid of named rows; 0: an empty slot */
    size_t names, places;
};

/* A new file. ERR_USAGE: it exists, or there can be none; the message names it. */
int trace_file_open(struct trace_file *f, struct disk *disk, const char *path, struct err *err);

/* A struct trace_sink's; `user` is the file. */
void trace_file_spans(void *user, uint32_t node, const struct trace_span *span, size_t n);

/* End the array; the log says what could not be written. Zeroed: nothing to do. */
void trace_file_close(struct trace_file *f, const struct logger *log);

/* Close it and remove it: there was no run. */
void trace_file_discard(struct trace_file *f);

#endif
