#define _GNU_SOURCE
#include "cli/token.h"

#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKEN_TEXT_MIN = 16, RANDOM_BYTES = 16, PATH_TEXT_MAX = 4096 };

static int refuse_file(const char *command, const char *file, const char *why)
{
    fprintf(stderr, "paceline %s: token file %s: %s\n", command, file, why);
    return EXIT_BAD_INPUT;
}

int token_draw(const char *command, char out[TOKEN_TEXT_MAX])
{
    unsigned char bytes[RANDOM_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) {
        fprintf(stderr, "paceline %s: no random bytes for a token: %s\n", command, strerror(errno));
        return EXIT_FAILED;
    }
    for (int i = 0; i < RANDOM_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return -1;
}

/* A file that others can read is not secret; a pipe belongs to the processes that inherited it. */
static bool is_open_to_others(int fd)
{
    struct stat of;
    return fstat(fd, &of) != 0 || (S_ISREG(of.st_mode) && (of.st_mode & (S_IRWXG | S_IRWXO)) != 0);
}

static int read_line(const char *command, const char *file, int fd, char out[TOKEN_TEXT_MAX])
{
    char text[TOKEN_TEXT_MAX + 1];
    size_t n = 0;
    if (is_open_to_others(fd))
        return refuse_file(command, file, "other users can read it; chmod 600 it");
    for (ssize_t k; n < sizeof text - 1; n += (size_t)k)
        if ((k = read(fd, text + n, sizeof text - 1 - n)) <= 0)
            break;
    text[n] = '\0';
    text[strcspn(text, " \t\r\n")] = '\0';
    if (strlen(text) < TOKEN_TEXT_MIN || strlen(text) >= TOKEN_TEXT_MAX)
        return refuse_file(command, file,
                           "expected one line of 16 to 64 characters without spaces");
    memcpy(out, text, strlen(text) + 1);
    return -1;
}

/* Written under another name and linked: a concurrent reader sees the whole file or none. */
static int make_file(const char *command, const char *file)
{
    char reserve[PATH_TEXT_MAX], token[TOKEN_TEXT_MAX];
    int end = token_draw(command, token);
    if (end >= 0)
        return end;
    if ((size_t)snprintf(reserve, sizeof reserve, "%s.%ld", file, (long)getpid()) >= sizeof reserve)
        return refuse_file(command, file, "the path is too long");
    int fd = open(reserve, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    bool made = fd >= 0 && dprintf(fd, "%s\n", token) > 0 && fsync(fd) == 0 &&
                (link(reserve, file) == 0 || errno == EEXIST);
    int why = errno;
    if (fd >= 0) {
        close(fd);
        unlink(reserve);
    }
    return made ? -1 : refuse_file(command, file, strerror(why));
}

int token_read(const char *command, const char *file, bool makes, char out[TOKEN_TEXT_MAX])
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && makes) {
        int end = make_file(command, file);
        if (end >= 0)
            return end;
        fd = open(file, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0 && errno == ENOENT)
        return refuse_file(command, file, "it is not there; copy the driver's");
    if (fd < 0)
        return refuse_file(command, file, strerror(errno));
    int end = read_line(command, file, fd, out);
    close(fd);
    return end;
}

/* ~/.config/paceline/token, with its folders. */
static bool find_own(char path[PATH_TEXT_MAX])
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    bool given = config && config[0] == '/';
    if (!given && (!home || home[0] != '/'))
        return false;
    int n = snprintf(path, PATH_TEXT_MAX, given ? "%s" : "%s/.config", given ? config : home);
    if (n <= 0 || (size_t)n + sizeof "/paceline/token" >= PATH_TEXT_MAX)
        return false;
    (void)mkdir(path, S_IRWXU);
    memcpy(path + n, "/paceline", sizeof "/paceline");
    if (mkdir(path, S_IRWXU) != 0 && errno != EEXIST)
        return false;
    memcpy(path + n, "/paceline/token", sizeof "/paceline/token");
    return true;
}

int token_own(const char *command, char out[TOKEN_TEXT_MAX], const char **token)
{
    char path[PATH_TEXT_MAX];
    *token = NULL;
    if (!find_own(path)) {
        fprintf(stderr,
                "paceline %s: no folder for a token in XDG_CONFIG_HOME or HOME: every user of this "
                "machine can join; name a file with --token-file\n",
                command);
        return -1;
    }
    int end = token_read(command, path, true, out);
    if (end < 0)
        *token = out;
    return end;
}
