/* A disk that records its calls and fails on request: the real one, with faults.
 */
#ifndef PL_LIB_FAULTY_DISK_H
#define PL_LIB_FAULTY_DISK_H

#include "real/disk.h"

#include <stdlib.h>
#include <string.h>

struct faulty_disk {
    struct disk disk;    /* first */
    int calls;           /* until now */
    int fail_at;         /* this call, from 1; 0: none */
    bool for_good;       /* and all after it, as after a power cut */
    uint64_t space;      /* the reported free space; 0: the real one */
    char reported[1024]; /* "open write sync close " */
};

struct disk_file {
    struct faulty_disk *disk;
    struct disk_file *file; /* the real disk's */
};

/* One more call: does it fail? */
static bool faulty_call(struct faulty_disk *f, const char *name)
{
    size_t n = strlen(f->reported);
    if (n + strlen(name) + 2 < sizeof f->reported)
        strcat(strcat(f->reported, name), " ");
    f->calls++;
    return f->fail_at > 0 && (f->for_good ? f->calls >= f->fail_at : f->calls == f->fail_at);
}

static int faulty_failure(const char *name, struct err *err)
{
    return err_set(err, ERR_IO, "the disk: cannot %s", name);
}

static int faulty_make_dir(struct disk *d, const char *path, bool *made, struct err *err)
{
    return faulty_call((struct faulty_disk *)d, "make_dir")
               ? faulty_failure("make_dir", err)
               : real_disk()->ops->make_dir(real_disk(), path, made, err);
}

static int faulty_list(struct disk *d, const char *path, void (*fn)(void *user, const char *name),
                       void *user, struct err *err)
{
    return faulty_call((struct faulty_disk *)d, "list")
               ? faulty_failure("list", err)
               : real_disk()->ops->list(real_disk(), path, fn, user, err);
}

static int faulty_remove(struct disk *d, const char *path, struct err *err)
{
    return faulty_call((struct faulty_disk *)d, "remove")
               ? faulty_failure("remove", err)
               : real_disk()->ops->remove(real_disk(), path, err);
}

static int faulty_rename(struct disk *d, const char *from, const char *to, struct err *err)
{
    return faulty_call((struct faulty_disk *)d, "rename")
               ? faulty_failure("rename", err)
               : real_disk()->ops->rename(real_disk(), from, to, err);
}

static int faulty_sync_dir(struct disk *d, const char *path, struct err *err)
{
    return faulty_call((struct faulty_disk *)d, "sync_dir")
               ? faulty_failure("sync_dir", err)
               : real_disk()->ops->sync_dir(real_disk(), path, err);
}

static int faulty_free_space(struct disk *d, const char *path, uint64_t *bytes, struct err *err)
{
    struct faulty_disk *f = (struct faulty_disk *)d;
    if (faulty_call(f, "free_space"))
        return faulty_failure("free_space", err);
    int rc = real_disk()->ops->free_space(real_disk(), path, bytes, err);
    if (rc == OK && f->space > 0)
        *bytes = f->space;
    return rc;
}

static int faulty_open(struct disk *d, const char *path, bool append, struct disk_file **out,
                       struct err *err)
{
    struct faulty_disk *f = (struct faulty_disk *)d;
    if (faulty_call(f, "open"))
        return faulty_failure("open", err);
    struct disk_file *file = malloc(sizeof *file);
    if (!file)
        return err_set(err, ERR_NOMEM, "the disk: out of memory");
    file->disk = f;
    int rc = real_disk()->ops->open(real_disk(), path, append, &file->file, err);
    if (rc == OK)
        *out = file;
    else
        free(file);
    return rc;
}

/* A write that fails has written half. */
static int faulty_write(struct disk_file *f, const void *data, size_t len, struct err *err)
{
    bool fails = faulty_call(f->disk, "write");
    int rc = real_disk()->ops->write(f->file, data, fails ? len / 2 : len, err);
    return fails ? faulty_failure("write", err) : rc;
}

static int faulty_truncate(struct disk_file *f, uint64_t len, struct err *err)
{
    return faulty_call(f->disk, "truncate") ? faulty_failure("truncate", err)
                                            : real_disk()->ops->truncate(f->file, len, err);
}

static int faulty_sync(struct disk_file *f, struct err *err)
{
    return faulty_call(f->disk, "sync") ? faulty_failure("sync", err)
                                        : real_disk()->ops->sync(f->file, err);
}

static int faulty_close(struct disk_file *f, struct err *err)
{
    bool fails = faulty_call(f->disk, "close");
    int rc = real_disk()->ops->close(f->file, err);
    free(f);
    return fails ? faulty_failure("close", err) : rc;
}

static int faulty_lock(struct disk *d, const char *path, bool take_over, struct disk_file **out,
                       struct disk_holder *holder, struct err *err)
{
    struct faulty_disk *f = (struct faulty_disk *)d;
    if (faulty_call(f, "lock"))
        return faulty_failure("lock", err);
    struct disk_file *file = malloc(sizeof *file);
    if (!file)
        return err_set(err, ERR_NOMEM, "the disk: out of memory");
    file->disk = f;
    int rc = real_disk()->ops->lock(real_disk(), path, take_over, &file->file, holder, err);
    if (rc == OK)
        *out = file;
    else
        free(file);
    return rc;
}

static void faulty_touch(struct disk_file *lock)
{
    real_disk()->ops->touch(lock->file);
}

static void faulty_unlock(struct disk_file *lock)
{
    real_disk()->ops->unlock(lock->file);
    free(lock);
}

static inline void faulty_init(struct faulty_disk *f)
{
    static const struct disk_ops ops = {
        .make_dir = faulty_make_dir,
        .list = faulty_list,
        .remove = faulty_remove,
        .rename = faulty_rename,
        .sync_dir = faulty_sync_dir,
        .free_space = faulty_free_space,
        .open = faulty_open,
        .write = faulty_write,
        .truncate = faulty_truncate,
        .sync = faulty_sync,
        .close = faulty_close,
        .lock = faulty_lock,
        .touch = faulty_touch,
        .unlock = faulty_unlock,
    };
    *f = (struct faulty_disk){.disk = {&ops}};
}

#endif
