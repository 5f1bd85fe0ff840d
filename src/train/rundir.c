#include "train/rundir.h"

#include "base/bytes.h"
#include "base/file.h"
#include "job/job.h"
#include "job/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS "runs"

void rundir_file(const struct rundir *dir, const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s/%s", dir->path, name);
}

static void count_entry(void *user, const char *name)
{
    (void)name;
    ++*(size_t *)user;
}

static int set_path(struct rundir *dir, const char *path, struct err *err)
{
    int n = snprintf(dir->path, sizeof dir->path, "%s", path);
    if (n <= 0 || (size_t)n >= sizeof dir->path)
        return err_set(err, ERR_USAGE, "%.80s: not a usable path of a directory", path);
    while (n > 1 && dir->path[n - 1] == '/')
        dir->path[--n] = '\0';
    return OK;
}

/* Newest of runs/NAME-NNN. */
struct newest {
    const char *name;
    unsigned long number;
};

static void look_at(void *user, const char *entry)
{
    struct newest *newest = user;
    size_t n = strlen(newest->name);
    if (strncmp(entry, newest->name, n) != 0 || entry[n] != '-')
        return;
    char *end;
    unsigned long number = strtoul(entry + n + 1, &end, 10);
    if (*end == '\0' && end != entry + n + 1 && number > newest->number)
        newest->number = number;
}

static int newest_number(struct disk *disk, const char *name, unsigned long *number,
                         struct err *err)
{
    struct newest newest = {name, 0};
    int rc = disk->ops->list(disk, RUNS, look_at, &newest, err);
    if (rc == ERR_NOT_FOUND)
        rc = OK;
    *number = newest.number;
    return rc;
}

static int numbered(struct rundir *dir, const char *name, unsigned long number, struct err *err)
{
    char path[RUNDIR_PATH_MAX];
    if (strchr(name, '/'))
        return err_set(err, ERR_USAGE, "name: `%.80s` cannot be part of a directory's name", name);
    snprintf(path, sizeof path, RUNS "/%s-%03lu", name, number);
    return set_path(dir, path, err);
}

int rundir_create(struct rundir *dir, struct disk *disk, const char *path, const char *name,
                  struct err *err)
{
    *dir = (struct rundir){.disk = disk};
    int rc = OK;
    if (path) {
        rc = set_path(dir, path, err);
    } else {
        unsigned long number = 0;
        rc = disk_keep_dir(disk, RUNS, err);
        if (rc == OK)
            rc = newest_number(disk, name, &number, err);
        if (rc == OK)
            rc = numbered(dir, name, number + 1, err);
    }
    if (rc == OK && disk_keep_dir(disk, dir->path, err) != OK)
        rc = ERR_USAGE; /* the path is the caller's, and the message names it */
    size_t entries = 0;
    if (rc == OK)
        rc = disk->ops->list(disk, dir->path, count_entry, &entries, err);
    if (rc == OK && entries > 0)
        rc = err_set(err, ERR_USAGE, "%s: is not empty; --resume goes on with the run in it",
                     dir->path);
    return rc;
}

static void look_for_job(void *user, const char *name)
{
    if (strcmp(name, "job.prototxt") == 0)
        *(bool *)user = true;
}

int rundir_find(struct rundir *dir, struct disk *disk, const char *path, const char *name,
                struct err *err)
{
    *dir = (struct rundir){.disk = disk};
    unsigned long number = 0;
    int rc = path ? set_path(dir, path, err) : newest_number(disk, name, &number, err);
    if (rc == OK && !path)
        rc = numbered(dir, name, number, err);
    bool is_run = false;
    if (rc == OK && (path || number > 0))
        rc = disk->ops->list(disk, dir->path, look_for_job, &is_run, err);
    if ((rc == OK || rc == ERR_NOT_FOUND) && !is_run)
        return err_set(err, ERR_NOT_FOUND, "%s: there is no run to go on with",
                       number > 0 || path ? dir->path : RUNS);
    return rc;
}

/* The job as text that is read the same wherever it is read: with whole paths. */
static int write_job(const Paceline__Job *job, struct buf *text, struct err *err)
{
    char here[RUNDIR_PATH_MAX];
    Paceline__Job *whole = NULL;
    text_write(&job->base, text);
    int rc = text->failed ? err_set(err, ERR_NOMEM, "job: out of memory")
                          : job_parse("job", (char *)text->data, text->len, &whole, err);
    if (rc == OK)
        rc = file_here(here, sizeof here, err);
    if (rc == OK)
        rc = job_resolve_paths(whole, here, err);
    buf_release(text);
    if (rc == OK) {
        text_write(&whole->base, text);
        rc = text->failed ? err_set(err, ERR_NOMEM, "job: out of memory") : OK;
    }
    job_free(whole);
    return rc;
}

/* A power cut, or a full disk, may have left half a line: the next one begins a line of its own. */
static int end_the_last_line(const struct rundir *dir, const char *path, struct err *err)
{
    struct file_open file;
    char last = '\n';
    if (file_open(path, &file, NULL) != OK)
        return OK; /* nothing to be read, and writing says more */
    if (file.len > 0 && file_part(&file, file.len - 1, &last, 1) != OK)
        last = '\0';
    file_close(&file);
    return last == '\n' ? OK : dir->disk->ops->write(dir->events, "\n", 1, err);
}

int rundir_open(struct rundir *dir, const Paceline__Job *job, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct buf text = {0};
    int rc = write_job(job, &text, err);
    if (rc != OK) {
        buf_release(&text);
        return rc;
    }
    rundir_file(dir, "job.prototxt", path, sizeof path);
    rc = ERR_IO;
    /* Two drivers that take a run up at the same moment disturb each other: once, since one of them
     * ends (tenure.h). */
    for (int i = 0; i < 2 && rc == ERR_IO; i++)
        rc = disk_replace(dir->disk, path, text.data, text.len, err);
    buf_release(&text);
    rundir_file(dir, "events.jsonl", path, sizeof path);
    if (rc == OK)
        rc = dir->disk->ops->open(dir->disk, path, true, &dir->events, err);
    return rc == OK ? end_the_last_line(dir, path, err) : rc;
}

void rundir_line(struct rundir *dir, const char *line)
{
    if (!dir->events || dir->error.status != OK)
        return;
    struct buf text = {0}; /* one write, so that a kill leaves whole lines */
    buf_printf(&text, "%s\n", line);
    dir->error.status = text.failed
                            ? ERR_NOMEM
                            : dir->disk->ops->write(dir->events, text.data, text.len, &dir->error);
    buf_release(&text);
}

void rundir_close(struct rundir *dir)
{
    if (dir->events)
        dir->disk->ops->close(dir->events, NULL);
    dir->events = NULL;
}
