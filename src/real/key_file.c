#define _GNU_SOURCE
#include "real/key_file.h"

#include "real/run_key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_TEXT_MAX = 4096 };

static int refuse_file(const char *file, const char *why, struct err *err)
{
    return err_set(err, ERR_INPUT, "key file %s: %s", file, why);
}

int key_draw(char out[KEY_TEXT_SIZE], struct err *err)
{
    uint8_t bytes[RUN_KEY_TEXT_MAX / 2];
    if (run_key_draw(bytes, sizeof bytes) != OK)
        return err_set(err, ERR_IO, "no random bytes for a key: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    explicit_bzero(bytes, sizeof bytes);
    return OK;
}

/* Written under another name and linked: another process sees the whole file or none. */
int key_file_make(const char *file, struct err *err)
{
    char reserve[PATH_TEXT_MAX], key[KEY_TEXT_SIZE];
    int rc = key_draw(key, err);
    if (rc != OK)
        return rc;
    if ((size_t)snprintf(reserve, sizeof reserve, "%s.%ld", file, (long)getpid()) >= sizeof reserve)
        return refuse_file(file, "the path is too long", err);
    int fd = open(reserve, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    bool made = fd >= 0 && fchmod(fd, S_IRUSR | S_IWUSR) == 0 && dprintf(fd, "%s\n", key) > 0 &&
                fsync(fd) == 0 && link(reserve, file) == 0;
    int why = errno;
    explicit_bzero(key, sizeof key);
    if (fd >= 0) {
        close(fd);
        unlink(reserve);
    }
    if (made)
        return OK;
    return refuse_file(file, why == EEXIST ? "it exists; name a new file" : strerror(why), err);
}

/* A file that others can read is not secret; a pipe belongs to the processes that inherited it. */
static const char *judge_file(int fd)
{
    struct stat of;
    if (fstat(fd, &of) != 0)
        return strerror(errno);
    if (S_ISFIFO(of.st_mode))
        return NULL;
    if (!S_ISREG(of.st_mode))
        return "it is neither a file nor a pipe";
    if ((of.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return "other users can read or change it; chmod 600 it";
    return of.st_uid != geteuid() ? "it belongs to another user; copy it, with mode 600" : NULL;
}

static int read_line(const char *file, int fd, char out[KEY_TEXT_SIZE], struct err *err)
{
    char text[KEY_TEXT_SIZE + 1];
    size_t n = 0;
    const char *why = judge_file(fd);
    if (why)
        return refuse_file(file, why, err);
    for (ssize_t k; n < sizeof text - 1; n += (size_t)k)
        if ((k = read(fd, text + n, sizeof text - 1 - n)) <= 0)
            break;
    text[n] = '\0';
    text[strcspn(text, " \t\r\n")] = '\0';
    n = strlen(text);
    bool sound = n >= RUN_KEY_TEXT_MIN && n <= RUN_KEY_TEXT_MAX;
    if (sound)
        memcpy(out, text, n + 1);
    explicit_bzero(text, sizeof text);
    return sound ? OK
                 : refuse_file(file,
                               "expected one line of 32 to 64 characters without spaces, as "
                               "`paceline keygen FILE` writes it",
                               err);
}

int key_file_read(const char *file, char out[KEY_TEXT_SIZE], struct err *err)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 && errno == ENOENT)
        return refuse_file(file,
                           "it is not there; make one with `paceline keygen FILE`, and copy it to "
                           "each machine",
                           err);
    if (fd < 0)
        return refuse_file(file, strerror(errno), err);
    int rc = read_line(file, fd, out, err);
    close(fd);
    return rc;
}

/* ~/.config/paceline/key, with its folders. */
static bool find_own(char path[PATH_TEXT_MAX])
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    bool given = config && config[0] == '/';
    if (!given && (!home || home[0] != '/'))
        return false;
    int n = snprintf(path, PATH_TEXT_MAX, given ? "%s" : "%s/.config", given ? config : home);
    if (n <= 0 || (size_t)n + sizeof "/paceline/key" >= PATH_TEXT_MAX)
        return false;
    (void)mkdir(path, S_IRWXU);
    memcpy(path + n, "/paceline", sizeof "/paceline");
    if (mkdir(path, S_IRWXU) != 0 && errno != EEXIST)
        return false;
    memcpy(path + n, "/paceline/key", sizeof "/paceline/key");
    return true;
}

int key_file_own(char out[KEY_TEXT_SIZE], struct err *err)
{
    char path[PATH_TEXT_MAX];
    if (!find_own(path))
        return err_set(err, ERR_UNSUPPORTED,
                       "no folder for this user's key in XDG_CONFIG_HOME or HOME");
    if (access(path, F_OK) != 0) {
        int rc = key_file_make(path, err);
        if (rc != OK && access(path, F_OK) != 0) /* nor made by another process meanwhile */
            return rc;
    }
    return key_file_read(path, out, err);
}
