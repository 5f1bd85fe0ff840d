#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static int gz_read_all(gzFile gz, const char *path, size_t max, struct file_bytes *out,
                       struct err *err)
{
    size_t cap = 1 << 16, len = 0;
    uint8_t *data = malloc(cap + 1);
    while (data) {
        int got = gzread(gz, data + len, (unsigned)(cap - len < (1u << 30) ? cap - len : 1u << 30));
        if (got < 0) {
            int code;
            const char *why = gzerror(gz, &code);
            free(data);
            return err_set(err, ERR_INPUT, "%s: cannot read: %s", path,
                           code == Z_ERRNO ? strerror(errno) : why);
        }
        if (got == 0)
            break;
        len += (size_t)got;
        if (len > max) {
            free(data);
            return err_set(err, ERR_INPUT, "%s: longer than the limit of %zu bytes", path, max);
        }
        if (len == cap) {
            cap *= 2;
            uint8_t *bigger = realloc(data, cap + 1);
            if (!bigger)
                free(data);
            data = bigger;
        }
    }
    if (!data)
        return err_set(err, ERR_NOMEM, "%s: out of memory after %zu bytes", path, len);
    data[len] = 0;
    *out = (struct file_bytes){data, len};
    return OK;
}

int file_read(const char *path, size_t max, struct file_bytes *out, struct err *err)
{
    /* Non-blocking, so that a FIFO is refused instead of waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(err, ERR_INPUT, "%s: cannot open: %s", path, strerror(errno));
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(err, ERR_INPUT, "%s: not a regular file", path);
    }
    gzFile gz = gzdopen(fd, "rb"); /* plain files pass through unchanged */
    if (!gz) {
        close(fd);
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    }
    gzbuffer(gz, 1 << 17);
    struct file_bytes bytes;
    int rc = gz_read_all(gz, path, max, &bytes, err);
    int closed = gzclose_r(gz);
    if (rc != OK)
        return rc;
    if (closed == Z_BUF_ERROR) {
        file_release(&bytes);
        return err_set(err, ERR_INPUT, "%s: the gzip stream is cut short", path);
    }
    *out = bytes;
    return OK;
}

void file_release(struct file_bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct file_bytes){0};
}

int file_resolve(const char *beside, const char *path, char *out, size_t size, struct err *err)
{
    const char *slash = beside ? strrchr(beside, '/') : NULL;
    int folder = path[0] == '/' || !slash ? 0 : (int)(slash - beside + 1);
    int n = snprintf(out, size, "%.*s%s", folder, beside ? beside : "", path);
    if (n < 0 || (size_t)n >= size)
        return err_set(err, ERR_INPUT, "%.80s...: path longer than %zu bytes", path, size);
    return OK;
}
