#include "train/event_log.h"

#include "base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN UINT64_MAX

/* End a line that a power cut left unfinished, so that the next event begins a new line. A file
 * that cannot be read gets a line end in any case, since its length is unknown. */
static int end_last_line(struct event_log *log, const char *path, struct err *err)
{
    struct file_open file;
    char last = '\n';
    log->whole = UNKNOWN;
    bool read = file_open(path, &file, NULL) == OK;
    if (read) {
        log->whole = file.len;
        read = file.len == 0 || file_part(&file, file.len - 1, &last, 1) == OK;
        file_close(&file);
    }
    if (read && last == '\n')
        return OK;
    log->whole += log->whole != UNKNOWN;
    return log->disk->ops->write(log->file, "\n", 1, err);
}

int event_log_open(struct event_log *log, struct disk *disk, const char *path, struct err *err)
{
    *log = (struct event_log){.disk = disk};
    int rc = disk->ops->open(disk, path, true, &log->file, err);
    return rc == OK ? end_last_line(log, path, err) : rc;
}

/* Drop the oldest kept line. */
static void drop_line(struct event_log *log)
{
    char *lines = (char *)log->kept.data;
    char *end = memchr(lines, '\n', log->kept.len);
    size_t n = end ? (size_t)(end - lines) + 1 : log->kept.len;
    static const char t[] = "{\"t\":";
    size_t skip = sizeof t - 1;
    if (n > skip && memcmp(lines, t, skip) == 0)
        snprintf(log->dropped_at, sizeof log->dropped_at, "%.*s",
                 (int)strcspn(lines + skip, ",}\n"), lines + skip);
    memmove(lines, lines + n, log->kept.len - n);
    log->kept.len -= n;
    log->kept_lines--;
    log->dropped++;
}

static void keep_line(struct event_log *log, const char *line)
{
    while (log->kept_lines > 0 && log->kept.len + strlen(line) + 1 > EVENT_LOG_KEPT_MAX)
        drop_line(log);
    size_t before = log->kept.len;
    buf_printf(&log->kept, "%s\n", line);
    if (log->kept.failed) { /* no memory for it */
        log->kept.len = before;
        log->kept.failed = false;
        log->dropped++;
    } else {
        log->kept_lines++;
    }
}

/* One write for all, so that a kill leaves whole lines. */
static int write_kept(struct event_log *log)
{
    const struct disk_ops *ops = log->disk->ops;
    struct buf text = {0};
    bool truncated =
        !log->torn || (log->whole != UNKNOWN && ops->truncate(log->file, log->whole, NULL) == OK);
    if (!truncated)
        buf_put_u8(&text, '\n');
    if (log->dropped > 0)
        buf_printf(&text, "{\"t\":%s,\"kind\":\"dropped\",\"lines\":%" PRIu64 "}\n",
                   log->dropped_at[0] ? log->dropped_at : "0", log->dropped);
    buf_put(&text, log->kept.data, log->kept.len);
    int rc = text.failed ? err_set(&log->error, ERR_NOMEM, "out of memory for events")
                         : ops->write(log->file, text.data, text.len, &log->error);
    log->torn = rc != OK;
    if (rc == OK) {
        log->whole = truncated && log->whole != UNKNOWN ? log->whole + text.len : UNKNOWN;
        log->kept.len = 0;
        log->kept_lines = log->dropped = 0;
    }
    buf_release(&text);
    return rc;
}

int event_log_line(struct event_log *log, const char *line)
{
    if (!log->file)
        return OK;
    keep_line(log, line);
    return write_kept(log);
}

uint64_t event_log_flush(struct event_log *log)
{
    if (log->file && log->kept_lines + log->dropped > 0)
        write_kept(log);
    return log->kept_lines + log->dropped;
}

void event_log_close(struct event_log *log)
{
    if (log->file)
        log->disk->ops->close(log->file, NULL);
    log->file = NULL;
    buf_release(&log->kept);
    log->kept_lines = 0;
}

/* The newest of the whole lines that is of that kind; NULL: there is none. *used: their bytes. */
static cJSON *find_in(char *text, const char *kind, size_t *used)
{
    cJSON *newest = NULL;
    *used = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        *used = (size_t)(end + 1 - text);
        cJSON *event = strstr(line, kind) ? cJSON_Parse(line) : NULL;
        const char *is = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event, "kind"));
        if (is && strcmp(is, kind) == 0) {
            cJSON_Delete(newest);
            newest = event;
        } else {
            cJSON_Delete(event);
        }
    }
    return newest;
}

/* Block by block, each from the start of a line on; lines longer than a block are left out. */
cJSON *event_log_newest(const char *path, const char *kind)
{
    enum { BLOCK = 1 << 20 };
    struct file_open file;
    cJSON *newest = NULL;
    if (file_open(path, &file, NULL) != OK)
        return NULL;
    char *text = malloc(BLOCK + 1);
    for (uint64_t at = 0, n; text && at < file.len; at += n) {
        n = file.len - at < BLOCK ? file.len - at : BLOCK;
        if (file_part(&file, at, text, (size_t)n) != OK)
            break;
        text[n] = '\0';
        size_t used;
        cJSON *found = find_in(text, kind, &used);
        n = used > 0 ? used : n;
        if (found) {
            cJSON_Delete(newest);
            newest = found;
        }
    }
    free(text);
    file_close(&file);
    return newest;
}

/* The end of a line that a crash has cut is no event; the one before it is. */
double event_log_last(const char *path)
{
    enum { TAIL = 64 * 1024 };
    struct file_open file;
    double t = 0;
    if (file_open(path, &file, NULL) != OK)
        return 0;
    size_t n = file.len < TAIL ? (size_t)file.len : TAIL;
    char *text = calloc(1, TAIL + 1);
    bool read = text && n > 0 && file_part(&file, file.len - n, text, n) == OK;
    file_close(&file);
    for (char *line = read ? text : NULL, *end; line && (end = strchr(line, '\n'));
         line = end + 1) {
        *end = '\0';
        cJSON *event = cJSON_Parse(line);
        const cJSON *at = cJSON_GetObjectItemCaseSensitive(event, "t");
        t = cJSON_IsNumber(at) ? at->valuedouble : t;
        cJSON_Delete(event);
    }
    free(text);
    return t;
}
