#include "world/disk.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { DISK_PATH_MAX = 4096 };

struct piece {
    struct disk *disk;
    const void *data;
    size_t len;
};

static int write_piece(void *user, struct disk_file *file, struct err *err)
{
    const struct piece *piece = user;
    return piece->disk->ops->write(file, piece->data, piece->len, err);
}

/* The directory of `path`; without a slash, the working directory. */
static void parent_folder(const char *path, char out[DISK_PATH_MAX])
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    snprintf(out, DISK_PATH_MAX, "%.*s", n > 0 ? (int)n : 1, n > 0 ? path : ".");
}

int disk_keep_dir(struct disk *d, const char *path, bool *made, struct err *err)
{
    char dir[DISK_PATH_MAX];
    if (strlen(path) >= sizeof dir)
        return err_set(err, ERR_IO, "%.100s: not a path that can be written", path);
    parent_folder(path, dir);
    int rc = d->ops->make_dir(d, path, made, err);
    return rc == OK ? d->ops->sync_dir(d, dir, err) : rc;
}

static int write_new(struct disk *d, const char *path,
                     int (*fill)(void *user, struct disk_file *file, struct err *err), void *user,
                     struct err *err)
{
    struct disk_file *file;
    int rc = d->ops->open(d, path, false, &file, err);
    if (rc != OK)
        return rc;
    rc = fill(user, file, err);
    if (rc == OK)
        rc = d->ops->sync(file, err);
    int closed = d->ops->close(file, rc == OK ? err : NULL);
    return rc == OK ? closed : rc;
}

int disk_replace_by(struct disk *d, const char *path,
                    int (*fill)(void *user, struct disk_file *file, struct err *err), void *user,
                    struct err *err)
{
    char temp[DISK_PATH_MAX], dir[DISK_PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n = snprintf(temp, sizeof temp, "%s" DISK_UNFINISHED, path);
    if (!slash || n < 0 || (size_t)n >= sizeof temp)
        return err_set(err, ERR_IO, "%.100s: not a path that can be written", path);
    parent_folder(path, dir);
    d->ops->remove(d, temp, NULL); /* a crash may have left one */
    int rc = write_new(d, temp, fill, user, err);
    if (rc == OK)
        rc = d->ops->rename(d, temp, path, err);
    if (rc == OK)
        return d->ops->sync_dir(d, dir, err);
    d->ops->remove(d, temp, NULL);
    return rc;
}

int disk_replace(struct disk *d, const char *path, const void *data, size_t len, struct err *err)
{
    struct piece piece = {d, data, len};
    return disk_replace_by(d, path, write_piece, &piece, err);
}
