/* Files of this user alone, with a lock that ends with the process that has it. */
#define _GNU_SOURCE
#include "real/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = 4096, OTHERS = S_IRWXG | S_IRWXO };

static int fail_by_errno(const char *what, const char *path, struct err *err)
{
    return err_set(err, ERR_IO, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* 0, or -1 with errno EWOULDBLOCK: another process has it. */
static int claim_file(int fd)
{
    int rc;
    while ((rc = flock(fd, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR)
        ;
    return rc;
}

static int make_file(const char *path, const char *unnamed, int *fd, struct err *err)
{
    *fd = open(unnamed, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (*fd < 0)
        return fail_by_errno("make the file", unnamed, err);
    int rc = claim_file(*fd) == 0 ? OK : fail_by_errno("lock", unnamed, err);
    if (rc == OK && rename(unnamed, path) != 0)
        rc = fail_by_errno("rename", unnamed, err);
    if (rc != OK)
        unlink(unnamed);
    return rc;
}

int real_disk_own(const char *path, struct file_open *out, struct err *err)
{
    char unnamed[PATH_ROOM];
    int fd, n = snprintf(unnamed, sizeof unnamed, "%s" DISK_UNFINISHED, path);
    if (n < 0 || (size_t)n >= sizeof unnamed)
        return err_set(err, ERR_IO, "%.100s...: the path is too long", path);
    int rc = make_file(path, unnamed, &fd, err);
    if (rc == OK)
        *out = (struct file_open){.fd = fd};
    else if (fd >= 0)
        close(fd);
    return rc;
}

static int refuse_file(const char *path, const char *why, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: %s", path, why);
}

static int take_file(const char *path, int fd, struct file_open *out, struct err *err)
{
    struct stat st, named;
    if (fstat(fd, &st) != 0)
        return fail_by_errno("look at", path, err);
    if (!S_ISREG(st.st_mode))
        return refuse_file(path, "not a regular file", err);
    if (st.st_uid != geteuid() || (st.st_mode & OTHERS) != 0)
        return refuse_file(path, "it is another user's, or open to other users", err);
    if (claim_file(fd) != 0)
        return errno == EWOULDBLOCK
                   ? err_set(err, ERR_USAGE, "%s: the process that has it lives", path)
                   : fail_by_errno("lock", path, err);
    if (fstat(fd, &st) != 0 || lstat(path, &named) != 0) /* now that nobody writes it */
        return fail_by_errno("look at", path, err);
    if (st.st_ino != named.st_ino || st.st_dev != named.st_dev || st.st_nlink != 1)
        return refuse_file(path, "it was replaced, or has further names", err);
    *out = (struct file_open){.fd = fd, .len = (uint64_t)st.st_size};
    return OK;
}

int real_disk_inherit(const char *path, struct file_open *out, struct err *err)
{
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ELOOP)
        return refuse_file(path, "a link", err);
    if (fd < 0)
        return fail_by_errno("open", path, err);
    int rc = take_file(path, fd, out, err);
    if (rc != OK)
        close(fd);
    return rc;
}
