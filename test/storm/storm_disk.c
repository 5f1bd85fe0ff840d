/* The run's disk: the host's, but writes take virtual time, during which anything may happen; it
 * can be full, or fail to sync; else syncs do nothing, since the host's power stays on. */
#include "real/disk.h"

#include "storm.h"

#include <stdlib.h>

struct disk_file {
    struct storm_disk *disk;
    struct disk_file *file; /* the host's */
};

static int make_dir(struct disk *d, const char *path, bool *made, struct err *err)
{
    (void)d;
    return real_disk()->ops->make_dir(real_disk(), path, made, err);
}

static int list_files(struct disk *d, const char *path, void (*fn)(void *user, const char *name),
                      void *user, struct err *err)
{
    (void)d;
    return real_disk()->ops->list(real_disk(), path, fn, user, err);
}

static int remove_file(struct disk *d, const char *path, struct err *err)
{
    (void)d;
    return real_disk()->ops->remove(real_disk(), path, err);
}

static int rename_file(struct disk *d, const char *from, const char *to, struct err *err)
{
    (void)d;
    return real_disk()->ops->rename(real_disk(), from, to, err);
}

static int sync_disk(struct storm_disk *d, struct err *err)
{
    if (!d->unsynced)
        return OK;
    d->failed = true;
    if (d->world)
        d->failed_at = sim_now(d->sim);
    return err_set(err, ERR_IO, "the storm's disk: it cannot sync");
}

static int sync_dir(struct disk *d, const char *path, struct err *err)
{
    (void)path;
    return sync_disk((struct storm_disk *)d, err);
}

static int free_space(struct disk *d, const char *path, uint64_t *bytes, struct err *err)
{
    (void)d;
    return real_disk()->ops->free_space(real_disk(), path, bytes, err);
}

static int open_file(struct disk *d, const char *path, bool append, struct disk_file **out,
                     struct err *err)
{
    struct disk_file *file = malloc(sizeof *file);
    if (!file)
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    file->disk = (struct storm_disk *)d;
    int rc = real_disk()->ops->open(real_disk(), path, append, &file->file, err);
    if (rc == OK)
        *out = file;
    else
        free(file);
    return rc;
}

/* A node that is killed, or finds the disk full, has written half. */
static int write_file(struct disk_file *f, const void *data, size_t len, struct err *err)
{
    struct storm_disk *d = f->disk;
    int slept = OK;
    d->writing = true;
    if (d->world)
        slept = world_sleep(d->world, world_now(d->world) + (int64_t)(d->write_s * 1e9));
    d->writing = false;
    bool fails = slept != OK || d->full;
    int rc = real_disk()->ops->write(f->file, data, fails ? len / 2 : len, err);
    d->failed |= d->full;
    if (d->full)
        d->failed_at = sim_now(d->sim);
    return fails ? err_set(err, ERR_IO, "the storm's disk: no space left") : rc;
}

static int rewrite_file(struct disk_file *f, const void *data, size_t len, struct err *err)
{
    return real_disk()->ops->rewrite(f->file, data, len, err);
}

static int sync_file(struct disk_file *f, struct err *err)
{
    return sync_disk(f->disk, err);
}

static int close_file(struct disk_file *f, struct err *err)
{
    int rc = real_disk()->ops->close(f->file, err);
    free(f);
    return rc;
}

/* As the host's: not of the storm's machines, which are one process. */
static int lock_file(struct disk *d, const char *path, bool take_over, struct disk_file **out,
                     struct disk_holder *holder, struct err *err)
{
    struct disk_file *file = malloc(sizeof *file);
    if (!file)
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    file->disk = (struct storm_disk *)d;
    int rc = real_disk()->ops->lock(real_disk(), path, take_over, &file->file, holder, err);
    if (rc == OK)
        *out = file;
    else
        free(file);
    return rc;
}

static void touch_file(struct disk_file *lock)
{
    real_disk()->ops->touch(lock->file);
}

static void unlock_file(struct disk_file *lock)
{
    real_disk()->ops->unlock(lock->file);
    free(lock);
}

void storm_disk_init(struct storm_disk *disk)
{
    static const struct disk_ops ops = {
        .make_dir = make_dir,
        .list = list_files,
        .remove = remove_file,
        .rename = rename_file,
        .sync_dir = sync_dir,
        .free_space = free_space,
        .open = open_file,
        .write = write_file,
        .rewrite = rewrite_file,
        .sync = sync_file,
        .close = close_file,
        .lock = lock_file,
        .touch = touch_file,
        .unlock = unlock_file,
    };
    *disk = (struct storm_disk){.disk = {&ops}, .write_s = 0.002};
}
