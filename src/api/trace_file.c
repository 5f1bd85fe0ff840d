#include "api/trace_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* How a kind looks: names of its n and its amount (NULL: it has none), and one of the colours of
 * chrome://tracing: computing is blue and sending green, as in MPCA Fig. 9. Perfetto chooses its
 * own, by name. */
static const struct look {
    const char *n, *amount, *colour;
    bool peer;
} looks[SPAN_KINDS] = {
    [SPAN_COMPUTE] = {"step", "records", "rail_response", false},
    [SPAN_UPDATE] = {"step", NULL, "thread_state_runnable", false},
    [SPAN_COPY] = {"exchange", "bytes", "rail_idle", false},
    [SPAN_SEND] = {"exchange", "bytes", "rail_load", true},
    [SPAN_WAIT] = {"exchange", NULL, "grey", true},
    [SPAN_EXCHANGE] = {"exchange", "bytes", "thread_state_running", false},
    [SPAN_EVALUATE] = {"step", "records", "detailed_memory_dump", false},
    [SPAN_DATA] = {"step", "records", "terrible", false},
    [SPAN_REDUCE] = {"exchange", NULL, "good", false},
    [SPAN_PREPARE] = {"exchange", NULL, "bad", false},
    [SPAN_BROADCAST] = {"exchange", NULL, "vsync_highlight_color", false},
};

int trace_file_open(struct trace_file *f, struct disk *disk, const char *path, struct err *err)
{
    *f = (struct trace_file){.disk = disk, .path = path, .first = true};
    int rc = disk->ops->open(disk, path, false, &f->file, err);
    if (rc == ERR_IO) {
        rc = ERR_USAGE; /* the path is the caller's, and the message names it */
        err_remedy(err, "give --trace a new file, in an existing folder");
    }
    if (rc == OK)
        buf_printf(&f->text, "[");
    return rc;
}

/* ---- nodes and rows ---- */

static uint32_t pid_of(uint32_t node)
{
    return node == WORLD_DRIVER ? 1 : node + 2;
}

/* Rows are threads 1 to 256; then, for each peer, those of bytes on their way to it. */
static uint32_t tid_of(const struct trace_span *span)
{
    uint32_t row = span->row >= TRACE_STEPS && span->row < TRACE_TRANSFERS
                       ? span->row - TRACE_STEPS + 1u
                       : span->row + 8u;
    return span->kind == SPAN_SEND ? pid_of(span->peer) * 512 + row : row;
}

static const char *node_name(uint32_t node, char out[24])
{
    if (node == WORLD_DRIVER || node == WORLD_ANY)
        return node == WORLD_DRIVER ? "driver" : "anybody";
    snprintf(out, 24, "worker %" PRIu32, node);
    return out;
}

static void name_row(uint32_t node, const struct trace_span *span, char *out, size_t size)
{
    char to[24];
    int at = 0;
    switch (span->row) {
    case TRACE_STEPS:
        at = snprintf(out, size, node == WORLD_DRIVER ? "global model" : "steps");
        break;
    case TRACE_MODELS: at = snprintf(out, size, "models"); break;
    case TRACE_MODEL_WRITER: at = snprintf(out, size, "evaluation"); break;
    default:
        at = span->row < TRACE_LANES
                 ? snprintf(out, size, "lane %d", span->row)
                 : snprintf(out, size, "transfers %d", span->row - TRACE_TRANSFERS);
    }
    if (span->kind == SPAN_SEND)
        snprintf(out + at, size - (size_t)at, " to %s", node_name(span->peer, to));
}

/* The slot of the key, or the empty slot where it belongs. */
static uint64_t *find_name(const struct trace_file *f, uint64_t key)
{
    uint64_t mix = key * UINT64_C(0x9e3779b97f4a7c15);
    size_t at = (size_t)(mix >> 32) & (f->places - 1);
    while (f->named[at] != 0 && f->named[at] != key)
        at = (at + 1) & (f->places - 1);
    return &f->named[at];
}

/* At least half of the slots stay empty. false: out of memory. */
static bool make_place(struct trace_file *f)
{
    if (f->names + 1 <= f->places / 2)
        return true;
    struct trace_file more = *f;
    more.places = f->places > 0 ? f->places * 2 : 64;
    more.named = calloc(more.places, sizeof *more.named);
    if (!more.named)
        return false;
    for (size_t i = 0; i < f->places; i++)
        if (f->named[i] != 0)
            *find_name(&more, f->named[i]) = f->named[i];
    free(f->named);
    *f = more;
    return true;
}

/* Is this the first call for this pair? */
static bool is_new(struct trace_file *f, uint32_t pid, uint32_t tid)
{
    uint64_t key = (uint64_t)pid << 32 | tid;
    if (!make_place(f))
        return false; /* its span has no name */
    uint64_t *place = find_name(f, key);
    if (*place == key)
        return false;
    *place = key;
    f->names++;
    return true;
}

/* ---- events ---- */

static void next_event(struct trace_file *f)
{
    buf_printf(&f->text, f->first ? "\n" : ",\n");
    f->first = false;
}

static void put_name(struct trace_file *f, const char *what, uint32_t pid, uint32_t tid,
                     const char *name)
{
    next_event(f);
    buf_printf(&f->text,
               "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
               ",\"args\":{\"name\":\"%s\"}}",
               what, pid, tid, name);
}

static void put_microseconds(struct buf *text, const char *key, int64_t ns)
{
    buf_printf(text, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void put_span(struct trace_file *f, uint32_t pid, uint32_t tid, const struct trace_span *s)
{
    const struct look *look = &looks[s->kind];
    const char *name = trace_kind_name(s->kind);
    char peer[24];
    next_event(f);
    buf_printf(&f->text, "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\"", name, name);
    put_microseconds(&f->text, "ts", s->start);
    put_microseconds(&f->text, "dur", s->end - s->start);
    buf_printf(&f->text,
               ",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
               ",\"cname\":\"%s\",\"args\":{\"%s\":%" PRIu64,
               pid, tid, look->colour, look->n, s->n);
    if (look->amount)
        buf_printf(&f->text, ",\"%s\":%" PRIu64, look->amount, s->amount);
    if (s->kind == SPAN_SEND)
        buf_printf(&f->text, ",\"sends\":%u", s->sends);
    if (look->peer)
        buf_printf(&f->text, ",\"peer\":\"%s\"", node_name(s->peer, peer));
    buf_printf(&f->text, "}}");
}

/* Write the spans in the buffer. */
static void flush_spans(struct trace_file *f)
{
    if (f->error.status == OK && f->text.failed)
        f->error.status = err_set(&f->error, ERR_NOMEM, "%s: out of memory", f->path);
    if (f->error.status == OK)
        f->error.status = f->disk->ops->write(f->file, f->text.data, f->text.len, &f->error);
    f->text.len = 0;
}

void trace_file_spans(void *user, uint32_t node, const struct trace_span *span, size_t n)
{
    struct trace_file *f = user;
    uint32_t pid = pid_of(node);
    char name[64];
    for (const struct trace_span *s = span; s < span + n && f->error.status == OK; s++) {
        uint32_t tid = tid_of(s);
        if (is_new(f, pid, 0))
            put_name(f, "process_name", pid, 0, node_name(node, name));
        if (is_new(f, pid, tid)) {
            name_row(node, s, name, sizeof name);
            put_name(f, "thread_name", pid, tid, name);
        }
        put_span(f, pid, tid, s);
    }
    flush_spans(f);
}

void trace_file_close(struct trace_file *f, const struct logger *log)
{
    if (!f->file)
        return;
    buf_printf(&f->text, "\n]\n");
    flush_spans(f);
    struct err err;
    int rc = f->disk->ops->close(f->file, &err);
    if (f->error.status != OK || rc != OK)
        log_warn(log, "the trace is not whole: %s",
                 f->error.status != OK ? f->error.text : err.text);
    buf_release(&f->text);
    free(f->named);
    *f = (struct trace_file){0};
}

void trace_file_discard(struct trace_file *f)
{
    struct disk *disk = f->disk;
    const char *path = f->path;
    if (!f->file)
        return;
    trace_file_close(f, NULL);
    (void)disk->ops->remove(disk, path, NULL);
}
