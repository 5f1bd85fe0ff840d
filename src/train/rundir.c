#include "train/rundir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS "runs"
#define LOCK "driver.lock"

void rundir_file(const struct rundir *dir, const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s/%s", dir->path, name);
}

/* The lock does not count: the caller holds it. */
struct contents {
    size_t entries;
    bool is_run;
};

static void look_at_entry(void *user, const char *name)
{
    struct contents *contents = user;
    contents->entries += strcmp(name, LOCK) != 0;
    contents->is_run = contents->is_run || strcmp(name, "job.prototxt") == 0;
}

int rundir_set_path(struct rundir *dir, const char *path, struct err *err)
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

static int numbered_file(struct rundir *dir, const char *name, unsigned long number,
                         struct err *err)
{
    char path[RUNDIR_PATH_MAX];
    if (strchr(name, '/'))
        return err_set(err, ERR_USAGE, "name: `%.80s` cannot be part of a directory's name", name);
    snprintf(path, sizeof path, RUNS "/%s-%03lu", name, number);
    return rundir_set_path(dir, path, err);
}

/* Other processes may look for a number at the same moment: the one that makes the directory gets
 * it. */
static int make_numbered(struct rundir *dir, const char *name, struct err *err)
{
    struct disk *disk = dir->disk;
    unsigned long number = 0;
    bool made = false;
    int rc = disk_keep_dir(disk, RUNS, NULL, err);
    if (rc == OK)
        rc = newest_number(disk, name, &number, err);
    while (rc == OK && !made) {
        rc = numbered_file(dir, name, ++number, err);
        if (rc == OK && disk_keep_dir(disk, dir->path, &made, err) != OK)
            rc = ERR_USAGE;
    }
    return rc;
}

static int make_given(struct rundir *dir, const char *path, struct err *err)
{
    int rc = rundir_set_path(dir, path, err);
    if (rc != OK || disk_keep_dir(dir->disk, dir->path, NULL, err) == OK)
        return rc;
    err_remedy(err, "give another directory (--out)");
    return ERR_USAGE; /* the path is the caller's, and the message names it */
}

static int check_empty(const struct rundir *dir, struct err *err)
{
    struct contents contents = {0};
    int rc = dir->disk->ops->list(dir->disk, dir->path, look_at_entry, &contents, err);
    if (rc == OK && contents.entries > 0)
        rc = err_set(err, ERR_USAGE, "%s: is not empty%s; give another directory (--out)",
                     dir->path, contents.is_run ? "; --resume resumes the run in it" : "");
    return rc;
}

int rundir_create(struct rundir *dir, struct disk *disk, const char *path, const char *name,
                  struct err *err)
{
    char none[256];
    *dir = (struct rundir){.disk = disk};
    int rc = path ? make_given(dir, path, err) : make_numbered(dir, name, err);
    if (rc == OK)
        rc = rundir_lock(dir, false, none, err);
    if (rc == OK)
        rc = check_empty(dir, err);
    if (rc != OK)
        rundir_close(dir);
    return rc;
}

static int refuse_lock(const struct rundir *dir, const struct disk_holder *holder, struct err *err)
{
    if (holder->silent < 0)
        return err_set(err, ERR_USAGE,
                       "%s: its driver is alive (%s); end it first, or take the run over with "
                       "--take-over",
                       dir->path, holder->text);
    return err_set(err, ERR_USAGE,
                   "%s: its driver may be alive (%s; its last sign of life is %.0f s old, and no "
                   "more can be seen from here); try again in %.0f s, or take the run over with "
                   "--take-over",
                   dir->path, holder->text, holder->silent, DISK_SILENCE_MAX - holder->silent + 1);
}

int rundir_lock(struct rundir *dir, bool take_over, char *taken_from, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct disk *disk = dir->disk;
    struct disk_holder holder;
    rundir_file(dir, LOCK, path, sizeof path);
    taken_from[0] = '\0';
    int rc = disk->ops->lock(disk, path, false, &dir->lock, &holder, err);
    if (rc != ERR_USAGE || !take_over)
        return rc == ERR_USAGE ? refuse_lock(dir, &holder, err) : rc;
    snprintf(taken_from, sizeof holder.text, "%s", holder.text);
    return disk->ops->lock(disk, path, true, &dir->lock, &holder, err);
}

void rundir_beat(const struct rundir *dir)
{
    if (dir->lock)
        dir->disk->ops->touch(dir->lock);
}

int rundir_find(struct rundir *dir, struct disk *disk, const char *path, const char *name,
                struct err *err)
{
    *dir = (struct rundir){.disk = disk};
    unsigned long number = 0;
    int rc = path ? rundir_set_path(dir, path, err) : newest_number(disk, name, &number, err);
    if (rc == OK && !path)
        rc = numbered_file(dir, name, number, err);
    struct contents contents = {0};
    if (rc == OK && (path || number > 0))
        rc = disk->ops->list(disk, dir->path, look_at_entry, &contents, err);
    if ((rc == OK || rc == ERR_NOT_FOUND) && !contents.is_run)
        return err_set(err, ERR_NOT_FOUND,
                       "%s: there is no run to resume; give the directory of one (--out)",
                       number > 0 || path ? dir->path : RUNS);
    return rc;
}

int rundir_open(struct rundir *dir, const Paceline__Job *job, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    int rc = rundir_put_job(dir, job, err);
    rundir_file(dir, "events.jsonl", path, sizeof path);
    if (rc == OK)
        rc = event_log_open(&dir->events, dir->disk, path, err);
    return rc;
}

void rundir_close(struct rundir *dir)
{
    event_log_close(&dir->events);
    if (dir->lock)
        dir->disk->ops->unlock(dir->lock);
    dir->lock = NULL;
}
