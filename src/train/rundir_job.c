/* The job of a run's directory. It reads the same from any working directory, and is kept when
 * another job replaces it. */
#include "base/bytes.h"
#include "base/file.h"
#include "job/job.h"
#include "job/text.h"
#include "train/rundir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int copy_job(const Paceline__Job *job, Paceline__Job **out, struct err *err)
{
    struct buf text = {0};
    text_write(&job->base, &text);
    int rc = text.failed ? err_set(err, ERR_NOMEM, "job: out of memory")
                         : job_parse("job", (char *)text.data, text.len, out, err);
    buf_release(&text);
    return rc;
}

int rundir_whole_job(const struct rundir *dir, const Paceline__Job *job, Paceline__Job **out,
                     struct err *err)
{
    char here[RUNDIR_PATH_MAX];
    Paceline__Job *whole = NULL;
    int rc = copy_job(job, &whole, err);
    if (rc == OK)
        rc = file_here(here, sizeof here, err);
    if (rc == OK)
        rc = job_resolve_paths(whole, here, err);
    if (rc != OK) {
        job_free(whole);
        return rc;
    }
    whole->has_threads = whole->has_threads && !dir->open_threads;
    *out = whole;
    return OK;
}

/* Begins a comment in job.prototxt that names the folder of the job file. */
#define FOLDER "# from "

static int write_job(const struct rundir *dir, const Paceline__Job *job, struct buf *text,
                     struct err *err)
{
    char folder[RUNDIR_PATH_MAX], here[RUNDIR_PATH_MAX];
    Paceline__Job *whole = NULL;
    int rc = rundir_whole_job(dir, job, &whole, err);
    if (rc == OK && dir->folder)
        rc = file_here(here, sizeof here, err);
    if (rc == OK && dir->folder)
        rc = file_resolve(here, dir->folder, folder, sizeof folder, err);
    if (rc == OK && dir->folder && !strpbrk(folder, "\r\n"))
        buf_printf(text, FOLDER "%s\n", folder);
    if (rc == OK) {
        text_write(&whole->base, text);
        rc = text->failed ? err_set(err, ERR_NOMEM, "job: out of memory") : OK;
    }
    job_free(whole);
    return rc;
}

int rundir_read_job(const struct rundir *dir, Paceline__Job **out, char *folder, struct err *err)
{
    struct file_bytes text;
    char file[RUNDIR_PATH_MAX + 64];
    rundir_file(dir, "job.prototxt", file, sizeof file);
    if (file_type(file) == FILE_IS_NONE)
        return err_set(err, ERR_NOT_FOUND,
                       "%s: there is no run to resume (no job.prototxt); give the directory of one",
                       dir->path);
    int rc = file_read(file, TEXT_BYTES_MAX, &text, err);
    if (rc != OK)
        return rc;
    const char *from = (const char *)text.data;
    size_t n = strncmp(from, FOLDER, strlen(FOLDER)) == 0 ? strcspn(from, "\n") : 0;
    folder[0] = '\0';
    if (n > strlen(FOLDER) && n < RUNDIR_PATH_MAX)
        snprintf(folder, RUNDIR_PATH_MAX, "%.*s", (int)(n - strlen(FOLDER)), from + strlen(FOLDER));
    rc = job_parse(file, from, text.len, out, err);
    file_release(&text);
    return rc;
}

/* ---- older jobs ---- */

static void find_oldest_free(void *user, const char *name)
{
    unsigned long *highest = user;
    char *end;
    if (strncmp(name, "job.", 4) != 0)
        return;
    unsigned long number = strtoul(name + 4, &end, 10);
    if (end != name + 4 && strcmp(end, ".prototxt") == 0 && number > *highest)
        *highest = number;
}

/* Keep an existing job file under a number, if it is another job or unreadable. *same: it is this
 * job. */
static int keep_older_job(const struct rundir *dir, const char *path, const struct buf *text,
                          bool *same, struct err *err)
{
    char older[RUNDIR_PATH_MAX + 64], name[48];
    struct file_bytes before;
    unsigned long highest = 0;
    *same = false;
    if (file_type(path) == FILE_IS_NONE)
        return OK;
    int read = file_read(path, TEXT_BYTES_MAX, &before, err);
    if (read == ERR_NOMEM)
        return read;
    if (read == OK)
        *same = before.len == text->len && memcmp(before.data, text->data, text->len) == 0;
    int rc = OK;
    if (!*same && (read != OK || before.len > 0)) {
        rc = dir->disk->ops->list(dir->disk, dir->path, find_oldest_free, &highest, err);
        snprintf(name, sizeof name, "job.%lu.prototxt", highest + 1);
        rundir_file(dir, name, older, sizeof older);
        if (rc == OK)
            rc = read == OK ? disk_replace(dir->disk, older, before.data, before.len, err)
                            : dir->disk->ops->rename(dir->disk, path, older, err);
    }
    if (read == OK)
        file_release(&before);
    return rc;
}

int rundir_put_job(const struct rundir *dir, const Paceline__Job *job, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct buf text = {0};
    bool same = false;
    rundir_file(dir, "job.prototxt", path, sizeof path);
    int rc = write_job(dir, job, &text, err);
    if (rc == OK)
        rc = keep_older_job(dir, path, &text, &same, err);
    if (rc == OK && !same)
        rc = ERR_IO;
    /* Two drivers that take a run up at the same moment disturb each other: once, since one of them
     * ends (driver_term_file.h). */
    for (int i = 0; i < 2 && rc == ERR_IO && !same; i++)
        rc = disk_replace(dir->disk, path, text.data, text.len, err);
    buf_release(&text);
    return rc;
}
