#include "api/tuning.h"

#include "base/file.h"
#include "base/plural.h"
#include "real/census.h"
#include "real/disk.h"
#include "real/real.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_MAX_HERE = 2048, FILE_MAX = 16 * 1024 * 1024 };

struct api_tuning {
    struct tuner *tuner; /* NULL: it is off */
    const struct logger *log;
    char path[PATH_MAX_HERE]; /* "": there is no folder for a file */
};

static int64_t clock_now(void *user)
{
    (void)user;
    return real_now();
}

static int64_t scheduling_delay(void *user)
{
    (void)user;
    return census_delay();
}

/* Nothing, or a table of ours, or empty: the name may be anybody's, and their file is not replaced
 * by ours. ERR_INPUT: it is something else, or cannot be read */
static int check_ours(const char *path, struct err *err)
{
    struct file_bytes start;
    enum file_type kind = file_type(path);
    if (kind == FILE_IS_NONE)
        return OK;
    int rc = file_read_begin(path, 64, NULL, &start, err);
    if (rc != OK)
        return rc;
    bool ours = kind == FILE_IS_REGULAR &&
                (start.len == 0 || tuner_is_table((const char *)start.data, start.len));
    file_release(&start);
    return ours ? OK : err_set(err, ERR_INPUT, "%s: is no file of choices", path);
}

/* Reads the choices that exist and can be read; a first run has no file. */
static void read_choices(const struct api_tuning *t)
{
    struct file_bytes bytes;
    if (!t->path[0] || file_read(t->path, FILE_MAX, &bytes, NULL) != OK)
        return;
    tuner_load(t->tuner, (const char *)bytes.data, bytes.len);
    file_release(&bytes);
}

/* Make the folders above the file; existing ones are not changed. */
static void make_folders(struct disk *disk, const char *path)
{
    char folder[PATH_MAX_HERE];
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
        disk->ops->make_dir(disk, folder, NULL, NULL);
    }
}

/* No two processes write the same file aside. */
static int write_choices(const struct api_tuning *t, struct err *err)
{
    struct disk *disk = real_disk();
    struct buf text = {0};
    char own[PATH_MAX_HERE + 32];
    snprintf(own, sizeof own, "%s.%" PRIx64, t->path, (uint64_t)real_now());
    int rc = tuner_text(t->tuner, &text);
    if (rc != OK)
        err_set(err, rc, "out of memory");
    else
        rc = disk_replace(disk, own, text.data, text.len, err);
    if (rc == OK && (rc = disk->ops->rename(disk, own, t->path, err)) != OK)
        disk->ops->remove(disk, own, NULL);
    buf_release(&text);
    return rc;
}

static void keep_choices(void *user, struct tuner *tuner, const struct tuner_news *news)
{
    const struct api_tuning *t = user;
    size_t fresh = news->timed + news->mended;
    double seconds = news->seconds;
    struct err err;
    (void)tuner;
    if (news->left > 0)
        log_info(t->log, "tuning stopped after %d s; rules choose for %zu shape%s", TUNER_SECONDS,
                 news->left, plural(news->left, "s"));
    if (news->disturbed > 0)
        log_warn(t->log,
                 "this machine is busy: %zu shape%s could not be timed; rules choose kernels in "
                 "this run, and a later run times the rest",
                 news->disturbed, plural(news->disturbed, "s"));
    if (news->mended > 0)
        log_info(t->log, "an earlier run had kept a slower code for %zu shape%s", news->mended,
                 plural(news->mended, "s"));
    if (fresh == 0)
        return;
    if (!t->path[0]) {
        log_info(t->log, "tuned %zu shape%s in %.1f s; there is no folder for the result", fresh,
                 plural(fresh, "s"), seconds);
        return;
    }
    int rc = check_ours(t->path, &err);
    if (rc == OK) {
        read_choices(t);
        make_folders(real_disk(), t->path);
        rc = write_choices(t, &err);
    }
    if (rc == OK)
        log_info(t->log, "tuned %zu shape%s in %.1f s, kept in %s", fresh, plural(fresh, "s"),
                 seconds, t->path);
    else
        log_warn(t->log,
                 "tuned %zu shape%s in %.1f s, but cannot save the result: %s; name another file "
                 "with PACELINE_TUNER=PATH",
                 fresh, plural(fresh, "s"), seconds, err.text);
}

/* "" where there is none, or it does not fit. */
static void find_path(char *out, size_t size)
{
    const char *own = getenv("PACELINE_TUNER"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int n = 0;
    if (own && own[0])
        n = snprintf(out, size, "%s", own);
    else if (cache && cache[0] == '/')
        n = snprintf(out, size, "%s/paceline/kernels.txt", cache);
    else if (home && home[0] == '/')
        n = snprintf(out, size, "%s/.cache/paceline/kernels.txt", home);
    if (n <= 0 || (size_t)n >= size)
        out[0] = '\0';
}

struct tuner *api_tuner(struct api_tuning **tuning, const struct logger *log)
{
    const char *text = getenv("PACELINE_TUNER");
    if (*tuning)
        return (*tuning)->tuner;
    struct api_tuning *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    *tuning = t;
    t->log = log;
    if (text && text[0] && !strchr(text, '/')) {
        if (strcmp(text, "off") != 0)
            log_warn(log, "PACELINE_TUNER: '%.40s' is neither off nor a path with a slash: off",
                     text);
        return NULL;
    }
    find_path(t->path, sizeof t->path);
    t->tuner = tuner_create(&(struct tuner_host){
        .now = clock_now, .delay = scheduling_delay, .keep = keep_choices, .user = t});
    if (t->tuner)
        read_choices(t);
    return t->tuner;
}

void api_tuning_free(struct api_tuning *tuning)
{
    if (tuning)
        tuner_free(tuning->tuner);
    free(tuning);
}
