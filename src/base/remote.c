#include "base/remote.h"

#include "base/file.h"

#include <string.h>
#include <strings.h>

enum { SECRET = 4 /* characters in its place: ***@ or ?*** */ };

bool remote_is_url(const char *path)
{
    return strncasecmp(path, "http://", 7) == 0 || strncasecmp(path, "https://", 8) == 0;
}

/* Characters of "user:password@" at the begin of what follows "://". */
static size_t user_length(const char *authority)
{
    size_t n = strcspn(authority, "/?#,");
    while (n > 0 && authority[n - 1] != '@')
        n--;
    return n;
}

const char *remote_shown(const char *paths, char *out, size_t room)
{
    size_t used = 0;
    bool in_url = false;
    while (*paths && used + SECRET < room) {
        const char *secret = NULL;
        in_url = in_url && *paths != ',';
        if (in_url && *paths == '?') {
            secret = "?***";
            paths += strcspn(paths, ",");
        } else {
            bool begins = used >= 3 && strncmp(out + used - 3, "://", 3) == 0;
            size_t user = begins && !in_url ? user_length(paths) : 0;
            in_url |= begins;
            secret = user > 0 ? "***@" : NULL;
            paths += user;
        }
        if (secret) {
            memcpy(out + used, secret, SECRET);
            used += SECRET;
        } else {
            out[used++] = *paths++;
        }
    }
    out[used] = '\0';
    return out;
}

int remote_part(const struct file_open *file, const char *path, uint64_t offset, void *out,
                size_t n, int status, struct err *err)
{
    if (!file->remote)
        return file_part(file, offset, out, n) == OK
                   ? OK
                   : err_set(err, status, "%s: cannot be read any more", path);
    int rc = file->remote->ops->read(file->remote, offset, out, n, err);
    if (rc != ERR_IO)
        return rc;
    if (err)
        err->status = status;
    return status;
}
