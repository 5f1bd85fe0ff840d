#include "real/disk.h"

#include "real/disk_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

static int set_failure(const char *what, const char *path, struct err *err)
{
    bool full = errno == ENOSPC || errno == EDQUOT;
    return err_set(err, full ? ERR_FULL : ERR_IO, "%s: cannot %s: %s", path, what, strerror(errno));
}

static int disk_make_dir(struct disk *d, const char *path, bool *made, struct err *err)
{
    (void)d;
    struct stat st;
    bool new = mkdir(path, 0777) == 0;
    if (made)
        *made = new;
    if (new)
        return OK;
    if (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return OK;
    return set_failure("make the directory", path, err);
}

static int not_dots(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int disk_list(struct disk *d, const char *path, void (*fn)(void *user, const char *name),
                     void *user, struct err *err)
{
    (void)d;
    struct dirent **names;
    int n = scandir(path, &names, not_dots, by_bytes);
    if (n < 0 && (errno == ENOENT || errno == ENOTDIR))
        return err_set(err, ERR_NOT_FOUND, "%s: no such directory", path);
    if (n < 0)
        return set_failure("list", path, err);
    for (int i = 0; i < n; i++) {
        fn(user, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    return OK;
}

static int disk_remove(struct disk *d, const char *path, struct err *err)
{
    (void)d;
    return unlink(path) == 0 ? OK : set_failure("remove", path, err);
}

static int disk_rename(struct disk *d, const char *from, const char *to, struct err *err)
{
    (void)d;
    return rename(from, to) == 0 ? OK : set_failure("rename", from, err);
}

static int disk_sync_dir(struct disk *d, const char *path, struct err *err)
{
    (void)d;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == EACCES)
        return OK; /* it may be written but not read: all has been done that can be */
    if (fd < 0)
        return set_failure("open", path, err);
    bool can = fsync(fd) == 0 || errno == EINVAL; /* some file systems do not sync directories */
    int rc = can ? OK : set_failure("sync", path, err);
    close(fd);
    return rc;
}

static int disk_free_space(struct disk *d, const char *path, uint64_t *bytes, struct err *err)
{
    (void)d;
    struct statvfs st;
    if (statvfs(path, &st) != 0)
        return set_failure("ask for the free space of", path, err);
    *bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return OK;
}

static int disk_open(struct disk *d, const char *path, bool append, struct disk_file **out,
                     struct err *err)
{
    (void)d;
    size_t size = strlen(path) + 1;
    struct disk_file *file = malloc(sizeof *file + size);
    if (!file)
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    memcpy(file->path, path, size);
    int action = append ? O_APPEND : O_EXCL;
    file->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | action, 0666);
    if (file->fd < 0) {
        free(file);
        return set_failure("open for writing", path, err);
    }
    *out = file;
    return OK;
}

static int disk_write(struct disk_file *f, const void *data, size_t len, struct err *err)
{
    const char *at = data;
    while (len > 0) {
        ssize_t n = write(f->fd, at, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return set_failure("write", f->path, err);
        at += n;
        len -= (size_t)n;
    }
    return OK;
}

static int disk_rewrite(struct disk_file *f, const void *data, size_t len, struct err *err)
{
    const char *from = data;
    for (size_t at = 0; at < len;) {
        ssize_t n = pwrite(f->fd, from + at, len - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return set_failure("write", f->path, err);
        at += (size_t)n;
    }
    return OK;
}

static int disk_truncate(struct disk_file *f, uint64_t len, struct err *err)
{
    return ftruncate(f->fd, (off_t)len) == 0 ? OK : set_failure("shorten", f->path, err);
}

static int disk_sync(struct disk_file *f, struct err *err)
{
    return fsync(f->fd) == 0 ? OK : set_failure("sync", f->path, err);
}

static int disk_close(struct disk_file *f, struct err *err)
{
    int rc = close(f->fd) == 0 ? OK : set_failure("close", f->path, err);
    free(f);
    return rc;
}

bool real_disk_in_memory(const char *path)
{
    enum { TMPFS = 0x01021994 };
    const unsigned long ramfs = 0x858458f6;
    struct statfs st;
    return statfs(path, &st) == 0 &&
           (st.f_type == TMPFS || ((unsigned long)st.f_type & 0xffffffff) == ramfs);
}

int real_disk_temporary(const char *folder, const char *name, char *path, size_t size,
                        struct err *err)
{
    static atomic_uint number;
    const char *where = folder ? folder : getenv("TMPDIR");
    if (!where || !where[0])
        where = "/tmp";
    int n = snprintf(path, size, "%s/paceline-%s-%ld-%u", where, name, (long)getpid(),
                     atomic_fetch_add(&number, 1));
    return n > 0 && (size_t)n < size
               ? OK
               : err_set(err, ERR_INPUT, "%.100s...: the path of this folder is too long", where);
}

struct disk *real_disk(void)
{
    static const struct disk_ops ops = {
        .make_dir = disk_make_dir,
        .list = disk_list,
        .remove = disk_remove,
        .rename = disk_rename,
        .sync_dir = disk_sync_dir,
        .free_space = disk_free_space,
        .open = disk_open,
        .write = disk_write,
        .rewrite = disk_rewrite,
        .truncate = disk_truncate,
        .sync = disk_sync,
        .close = disk_close,
        .lock = disk_lock,
        .touch = disk_touch,
        .unlock = disk_unlock,
    };
    static struct disk disk = {&ops}; /* never written */
    return &disk;
}
