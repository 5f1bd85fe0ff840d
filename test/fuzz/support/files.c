/* base/file.h without a disk: the linker leads its callers here (--wrap). */
#include "fuzz.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

enum { FILES_MAX = 4 };

static struct {
    const char *path;
    const uint8_t *bytes;
    size_t n;
} files[FILES_MAX];
static int files_n;

void fuzz_files_clear(void)
{
    files_n = 0;
}

void fuzz_file(const char *path, const uint8_t *bytes, size_t n)
{
    PL_ASSERT(files_n < FILES_MAX);
    files[files_n].path = path;
    files[files_n].bytes = bytes;
    files[files_n++].n = n;
}

static int find_path(const char *path)
{
    for (int i = 0; i < files_n; i++)
        if (strcmp(files[i].path, path) == 0)
            return i;
    return -1;
}

int __wrap_file_read(const char *path, size_t max, struct file_bytes *out, struct err *err);
int __wrap_file_read_watched(const char *path, size_t max, const struct open_watch *watch,
                             struct file_bytes *out, struct err *err);
int __wrap_file_open(const char *path, struct file_open *out, struct err *err);
void __wrap_file_close(struct file_open *file);
int __wrap_file_part(const struct file_open *file, uint64_t offset, void *out, size_t n);
bool __wrap_file_is_folder(const char *path);
bool __wrap_file_is_regular(const char *path);

int __wrap_file_read(const char *path, size_t max, struct file_bytes *out, struct err *err)
{
    int i = find_path(path);
    if (i < 0)
        return err_set(err, ERR_INPUT, "%s: cannot open", path);
    if (files[i].n > max)
        return err_set(err, ERR_INPUT, "%s: longer than the limit of %zu bytes", path, max);
    uint8_t *copy = malloc(files[i].n + 1);
    if (!copy)
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    if (files[i].n > 0)
        memcpy(copy, files[i].bytes, files[i].n);
    copy[files[i].n] = 0;
    *out = (struct file_bytes){copy, files[i].n};
    return OK;
}

int __wrap_file_read_watched(const char *path, size_t max, const struct open_watch *watch,
                             struct file_bytes *out, struct err *err)
{
    (void)watch;
    return __wrap_file_read(path, max, out, err);
}

int __wrap_file_open(const char *path, struct file_open *out, struct err *err)
{
    int i = find_path(path);
    if (i < 0)
        return err_set(err, ERR_INPUT, "%s: cannot open", path);
    *out = (struct file_open){.fd = i, .len = files[i].n};
    return OK;
}

void __wrap_file_close(struct file_open *file)
{
    *file = (struct file_open){.fd = -1};
}

int __wrap_file_part(const struct file_open *file, uint64_t offset, void *out, size_t n)
{
    PL_ASSERT(offset <= file->len && n <= file->len - offset);
    if (n > 0)
        memcpy(out, files[file->fd].bytes + offset, n);
    return OK;
}

bool __wrap_file_is_folder(const char *path)
{
    (void)path;
    return false;
}

bool __wrap_file_is_regular(const char *path)
{
    return find_path(path) >= 0;
}
