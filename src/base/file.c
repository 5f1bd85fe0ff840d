#define _GNU_SOURCE
#include "base/file.h"

#include "base/array.h"
#include "base/fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum {
    STEPS_MAX = 40, /* up a path, and along links */
    READ_MAX = 1 << 22,
};

/* A file on its way into memory. */
struct reading {
    const char *path;
    gzFile gz;
    uint64_t len; /* as it lies on the disk */
    const struct open_watch *watch;
};

static int report_bytes(const struct reading *r, struct err *err)
{
    z_off_t at = gzoffset(r->gz);
    uint64_t done = at > 0 ? (uint64_t)at : 0;
    if (done >= r->len) /* it may not be the last piece */
        return OK;
    return open_watch_report(r->watch, "bytes", done, r->len, err);
}

/* To its end, or `most` bytes. */
static int gz_read(const struct reading *r, size_t most, struct file_bytes *out, struct err *err)
{
    size_t cap = most < 1 << 16 ? most : 1 << 16, len = 0;
    uint8_t *data = malloc(cap + 1);
    while (data && len < most) {
        int got =
            gzread(r->gz, data + len, (unsigned)(cap - len < READ_MAX ? cap - len : READ_MAX));
        if (got < 0) {
            int code;
            const char *why = gzerror(r->gz, &code);
            free(data);
            return err_set(err, code == Z_MEM_ERROR ? ERR_NOMEM : ERR_INPUT, "%s: cannot read: %s",
                           r->path, code == Z_ERRNO ? strerror(errno) : why);
        }
        if (got == 0)
            break;
        len += (size_t)got;
        if (report_bytes(r, err) != OK) {
            free(data);
            return ERR_CANCELLED;
        }
        if (len == cap && len < most) {
            cap = most - cap < cap ? most : 2 * cap;
            uint8_t *bigger = realloc(data, cap + 1);
            if (!bigger)
                free(data);
            data = bigger;
        }
    }
    if (!data)
        return err_set(err, ERR_NOMEM, "%s: out of memory after %zu bytes", r->path, len);
    data[len] = 0;
    *out = (struct file_bytes){data, len};
    return OK;
}

static int refuse_path(const char *path, int why, struct err *err)
{
    char folder[1024];
    if (why == ENOENT && path[0] != '/' && getcwd(folder, sizeof folder))
        return err_set(err, ERR_INPUT,
                       "%s: cannot open: %s in %s; correct the path, or give an absolute one", path,
                       strerror(why), folder);
    return err_set(err, ERR_INPUT, "%s: cannot open: %s", path, strerror(why));
}

/* Non-blocking, so that a FIFO is refused instead of waited for. */
static int open_regular(const char *path, struct file_open *out, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return refuse_path(path, errno, err);
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(err, ERR_INPUT, "%s: not a regular file", path);
    }
    *out = (struct file_open){.fd = fd,
                              .len = (uint64_t)st.st_size,
                              .modified = (uint64_t)st.st_mtim.tv_sec * 1000000000 +
                                          (uint64_t)st.st_mtim.tv_nsec};
    return OK;
}

int file_read_begin(const char *path, size_t n, const struct open_watch *watch,
                    struct file_bytes *out, struct err *err)
{
    struct file_open file;
    struct reading r = {.path = path, .watch = watch};
    int rc = open_regular(path, &file, err);
    if (rc != OK)
        return rc;
    r.len = file.len;
    r.gz = gzdopen(file.fd, "rb"); /* plain files pass through unchanged */
    if (!r.gz) {
        close(file.fd);
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    }
    gzbuffer(r.gz, 1 << 17);
    struct file_bytes bytes;
    rc = gz_read(&r, n, &bytes, err);
    int closed = gzclose_r(r.gz);
    if (rc != OK)
        return rc;
    if (closed == Z_BUF_ERROR)
        rc = err_set(err, ERR_INPUT, "%s: the gzip stream is cut short", path);
    else if (r.len > 0)
        rc = open_watch_report(watch, "bytes", r.len, r.len, err);
    if (rc != OK) {
        file_release(&bytes);
        return rc;
    }
    *out = bytes;
    return OK;
}

int file_read(const char *path, size_t max, struct file_bytes *out, struct err *err)
{
    return file_read_watched(path, max, NULL, out, err);
}

int file_read_watched(const char *path, size_t max, const struct open_watch *watch,
                      struct file_bytes *out, struct err *err)
{
    struct file_bytes bytes;
    int rc = file_read_begin(path, max + 1, watch, &bytes, err);
    if (rc != OK)
        return rc;
    if (bytes.len > max) {
        file_release(&bytes);
        return err_set(err, ERR_INPUT, "%s: longer than the limit of %zu bytes", path, max);
    }
    *out = bytes;
    return OK;
}

void file_release(struct file_bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct file_bytes){0};
}

int file_open(const char *path, struct file_open *out, struct err *err)
{
    return open_regular(path, out, err);
}

void file_close(struct file_open *file)
{
    if (file->fd >= 0)
        close(file->fd);
    *file = (struct file_open){.fd = -1};
}

int file_part(const struct file_open *file, uint64_t offset, void *out, size_t n)
{
    PL_ASSERT(offset <= file->len && n <= file->len - offset);
    if (file->remote)
        return file->remote->ops->read(file->remote, offset, out, n, NULL);
    uint8_t *to = out;
    while (n > 0) {
        ssize_t got = pread(file->fd, to, n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return ERR_IO;
        to += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return OK;
}

void file_prefetch(const struct file_open *file, uint64_t offset, size_t n)
{
    if (!file->remote)
        (void)posix_fadvise(file->fd, (off_t)offset, (off_t)n, POSIX_FADV_WILLNEED);
}

bool file_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool file_is_regular(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

enum file_type file_type(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT || errno == ENOTDIR ? FILE_IS_NONE : FILE_IS_OTHER;
    return S_ISREG(st.st_mode) ? FILE_IS_REGULAR : FILE_IS_OTHER;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool add_name(struct file_names *names, size_t *cap, const char *name)
{
    if (!array_grow(&names->at, names->count, cap, sizeof *names->at))
        return false;
    names->at[names->count] = strdup(name);
    return names->at[names->count++] != NULL;
}

int file_list(const char *folder, size_t max, struct file_names *out, struct err *err)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return err_set(err, ERR_INPUT, "%s: cannot open the folder: %s", folder, strerror(errno));
    struct file_names names = {0};
    size_t cap = 0;
    int rc = OK;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno != 0)
            rc = err_set(err, ERR_INPUT, "%s: cannot read the folder: %s", folder, strerror(errno));
        if (!entry || rc != OK)
            break;
        if (entry->d_name[0] == '.')
            continue;
        if (names.count == max)
            rc = err_set(err, ERR_INPUT, "%s: holds more than %zu names", folder, max);
        else if (!add_name(&names, &cap, entry->d_name))
            rc = err_set(err, ERR_NOMEM, "%s: out of memory", folder);
    }
    closedir(dir);
    if (rc != OK) {
        file_names_release(&names);
        return rc;
    }
    if (names.count > 0)
        qsort(names.at, names.count, sizeof *names.at, compare_names);
    *out = names;
    return OK;
}

void file_names_release(struct file_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->at[i]);
    free(names->at);
    *names = (struct file_names){0};
}

int file_target(const char *path, char *out, size_t size, struct err *err)
{
    char *full = realpath(path, NULL);
    if (!full)
        return err_set(err, ERR_INPUT, "%s: %s", path, strerror(errno));
    bool fits = strlen(full) < size;
    if (fits)
        strcpy(out, full);
    free(full);
    if (!fits)
        return err_set(err, ERR_INPUT, "%.80s...: path longer than %zu bytes", path, size);
    return OK;
}

int file_canonical(const char *path, char *out, size_t size, struct err *err)
{
    int rc = file_target(path, out, size, err);
    return rc == OK && !file_is_folder(out) ? err_set(err, ERR_INPUT, "%s: not a folder", path)
                                            : rc;
}

static bool lies_under(const char *root, const char *full)
{
    size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);
    return strncmp(full, root, n) == 0 && (full[n] == '/' || full[n] == '\0');
}

static size_t without_slashes(const char *path, size_t n)
{
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

/* A path that is short enough as the folder and the last name in it; the slashes between go. */
static void split_path(const char *path, char folder[PATH_MAX], char name[PATH_MAX])
{
    size_t end = without_slashes(path, strlen(path)), at = end;
    while (at > 0 && path[at - 1] != '/')
        at--;
    snprintf(name, PATH_MAX, "%.*s", (int)(end - at), path + at);
    snprintf(folder, PATH_MAX, "%.*s", at ? (int)without_slashes(path, at) : 1, at ? path : ".");
}

/* Would a path that cannot be opened be under the root, by its names and links? A request for a
 * path outside of the root must not reveal whether that exists. */
static bool leads_under(const char *root, const char *path, int steps)
{
    char folder[PATH_MAX], name[PATH_MAX], next[2 * PATH_MAX + 2], *full = realpath(path, NULL);
    if (full) {
        bool under = lies_under(root, full);
        free(full);
        return under;
    }
    if (steps == 0 || strlen(path) >= PATH_MAX)
        return false;
    split_path(path, folder, name);
    if (name[0] == '\0' || strcmp(name, "..") == 0)
        return false;
    snprintf(next, sizeof next, "%s/%s", folder, name);
    ssize_t n = readlink(next, name, sizeof name - 1);
    if (n < 0)
        return leads_under(root, folder, steps - 1);
    name[n] = '\0';
    snprintf(next, sizeof next, "%s%s%s", name[0] == '/' ? "" : folder, name[0] == '/' ? "" : "/",
             name);
    return leads_under(root, next, steps - 1);
}

int file_check_under(const char *root, const char *path, struct err *err)
{
    if (!root)
        return OK;
    char *full = realpath(path, NULL);
    int why = errno;
    bool under = full ? lies_under(root, full) : leads_under(root, path, STEPS_MAX);
    bool there = full != NULL;
    free(full);
    if (!under)
        return err_set(err, ERR_INPUT, "%s: lies outside of the data root %s", path, root);
    return there ? OK : refuse_path(path, why, err);
}

int file_here(char *out, size_t size, struct err *err)
{
    if (!getcwd(out, size - 1))
        return err_set(err, ERR_IO, "the working directory: %s", strerror(errno));
    if (out[strlen(out) - 1] != '/')
        strcat(out, "/");
    return OK;
}

int file_resolve(const char *sibling, const char *path, char *out, size_t size, struct err *err)
{
    const char *slash = sibling ? strrchr(sibling, '/') : NULL;
    int folder = path[0] == '/' || !slash ? 0 : (int)(slash - sibling + 1);
    int n = snprintf(out, size, "%.*s%s", folder, sibling ? sibling : "", path);
    if (n < 0 || (size_t)n >= size)
        return err_set(err, ERR_INPUT, "%.80s...: path longer than %zu bytes", path, size);
    return OK;
}
