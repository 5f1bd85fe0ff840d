/* A lock on a file that says who has it: flock, which ends with its process, and also holds between
 * machines where the network file system carries it. Some do not. So a lock of another machine
 * counts, too, as long as its owner touches the file. The file:
 *
 *   5c0e8a61-…                                        (the machine's boot)
 *   process 4711 on host a, since 2026-11-24 12:03
 */
#include "real/disk_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BOOT_MAX = 64, LOCK_TEXT_MAX = 256, TRIES = 16 };

static int fail_lock(struct disk_file *file, const char *what, struct err *err)
{
    int rc = err_set(err, ERR_IO, "%s: cannot %s: %s", file->path, what, strerror(errno));
    if (file->fd >= 0)
        close(file->fd);
    free(file);
    return rc;
}

/* The identity of this machine since its boot. */
static void name_boot(char out[BOOT_MAX])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, BOOT_MAX - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0 && gethostname(out, BOOT_MAX - 1) == 0)
        n = (ssize_t)strnlen(out, BOOT_MAX - 1);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

/* On a full disk it holds without a name. */
static void write_owner(struct disk_file *file)
{
    char text[LOCK_TEXT_MAX], boot[BOOT_MAX], host[65] = "", since[32] = "";
    time_t now = time(NULL);
    struct tm parts;
    name_boot(boot);
    gethostname(host, sizeof host - 1);
    if (localtime_r(&now, &parts))
        strftime(since, sizeof since, "%Y-%m-%d %H:%M", &parts);
    int n = snprintf(text, sizeof text, "%s\nprocess %ld on host %s, since %s\n", boot,
                     (long)getpid(), host, since);
    if (ftruncate(file->fd, 0) == 0 && pwrite(file->fd, text, (size_t)n, 0) < n)
        futimens(file->fd, NULL);
    fdatasync(file->fd); /* other machines see it from now on */
}

/* The file's two lines; false: nobody has written them. */
static bool read_owner(const struct disk_file *file, char boot[BOOT_MAX],
                       struct disk_holder *holder)
{
    char text[LOCK_TEXT_MAX];
    ssize_t n = pread(file->fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    char *line = strchr(text, '\n');
    snprintf(holder->text, sizeof holder->text, "it is just beginning");
    if (!line)
        return false;
    *line++ = '\0';
    line[strcspn(line, "\n")] = '\0';
    snprintf(boot, BOOT_MAX, "%.63s", text);
    snprintf(holder->text, sizeof holder->text, "%.159s", line);
    return true;
}

/* By the clock of who keeps the file: it is touched, read again, and given its time back. */
static double count_silence(const struct disk_file *file)
{
    struct stat before, after;
    if (fstat(file->fd, &before) != 0 || futimens(file->fd, NULL) != 0 ||
        fstat(file->fd, &after) != 0)
        return 0;
    futimens(file->fd, (const struct timespec[2]){before.st_atim, before.st_mtim});
    return (double)(after.st_mtim.tv_sec - before.st_mtim.tv_sec) +
           (double)(after.st_mtim.tv_nsec - before.st_mtim.tv_nsec) * 1e-9;
}

/* The lock is ours, or there are none here: may an owner elsewhere, whose lock is not seen, live?
 */
static bool is_held_elsewhere(const struct disk_file *file, bool locked, struct disk_holder *holder)
{
    char boot[BOOT_MAX], own[BOOT_MAX];
    name_boot(own);
    if (!read_owner(file, boot, holder) || (locked && strcmp(boot, own) == 0))
        return false;
    holder->silent = count_silence(file);
    return holder->silent < DISK_SILENCE_MAX;
}

/* Does the path still lead to it? */
static bool is_there(const struct disk_file *file)
{
    struct stat open_one, named;
    return fstat(file->fd, &open_one) == 0 && lstat(file->path, &named) == 0 &&
           open_one.st_ino == named.st_ino && open_one.st_dev == named.st_dev;
}

/* Another has made the file and not yet written who it is. Where it has died before it could, or
 * had no room for that, the file is not touched any more. */
static bool is_beginning(const struct disk_file *file, struct disk_holder *holder)
{
    char boot[BOOT_MAX];
    if (read_owner(file, boot, holder))
        return false;
    holder->silent = count_silence(file);
    return holder->silent < DISK_SILENCE_MAX;
}

/* `made`: the file is new, and of this process's making. ERR_TIMEOUT: it was removed meanwhile. */
static int try_lock(struct disk_file *file, bool made, bool take_over, struct disk_holder *holder)
{
    char boot[BOOT_MAX];
    int rc;
    *holder = (struct disk_holder){.silent = -1};
    if (!made && !take_over && is_beginning(file, holder))
        return is_there(file) ? ERR_USAGE : ERR_TIMEOUT;
    while ((rc = flock(file->fd, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR)
        ;
    holder->silent = -1;
    if (rc != 0 && errno == EWOULDBLOCK) {
        read_owner(file, boot, holder);
        return ERR_USAGE;
    }
    if (!is_there(file))
        return ERR_TIMEOUT;
    if (!take_over && is_held_elsewhere(file, rc == 0, holder))
        return ERR_USAGE;
    write_owner(file);
    return OK;
}

/* *made: there was no such file. */
static int open_lock(const char *path, bool *made)
{
    const int claim = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    int fd = -1;
    *made = false;
    for (int i = 0; i < TRIES && fd < 0; i++) {
        fd = open(path, claim | O_CREAT | O_EXCL, 0666);
        *made = fd >= 0;
        if (fd >= 0 || errno != EEXIST)
            break;
        fd = open(path, claim);
        if (fd < 0 && errno != ENOENT) /* else it was removed in between */
            break;
    }
    return fd;
}

int disk_lock(struct disk *d, const char *path, bool take_over, struct disk_file **out,
              struct disk_holder *holder, struct err *err)
{
    (void)d;
    size_t size = strlen(path) + 1;
    struct disk_file *file = malloc(sizeof *file + size);
    if (!file)
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    memcpy(file->path, path, size);
    file->fd = -1;
    if (take_over && unlink(path) != 0 && errno != ENOENT)
        return fail_lock(file, "remove", err);
    for (int i = 0; i < TRIES; i++) {
        bool made;
        file->fd = open_lock(path, &made);
        if (file->fd < 0)
            return fail_lock(file, "open for writing", err);
        int rc = try_lock(file, made, take_over, holder);
        if (rc == OK) {
            *out = file;
            return OK;
        }
        close(file->fd);
        file->fd = -1;
        if (rc == ERR_USAGE) {
            free(file);
            return err_set(err, ERR_USAGE, "%s: is held by another: %s", path, holder->text);
        }
    }
    errno = EAGAIN;
    return fail_lock(file, "lock", err);
}

/* The process that took the lock over has released it, or is dead: the lock is this process's
 * again, if it can be had. */
static void retake_lock(struct disk_file *lock)
{
    struct disk_file *retry;
    struct disk_holder holder;
    if (disk_lock(NULL, lock->path, false, &retry, &holder, NULL) != OK)
        return;
    if (dup2(retry->fd, lock->fd) >= 0) /* the same open file, and so the same lock */
        fcntl(lock->fd, F_SETFD, FD_CLOEXEC);
    close(retry->fd);
    free(retry);
}

void disk_touch(struct disk_file *lock)
{
    if (is_there(lock))
        futimens(lock->fd, NULL);
    else
        retake_lock(lock);
}

/* It is removed while it is still held, so that nobody else's is. */
void disk_unlock(struct disk_file *lock)
{
    if (is_there(lock))
        unlink(lock->path);
    close(lock->fd);
    free(lock);
}
