/* Preloaded into a process, makes the n-th call of a kind fail, and prints at the process's end the
 * number of calls and the resources still held. Its settings are environment variables:
 *
 *   FAIL_IN      train or worker: only the process that runs this command; among several the first,
 *                which makes the file FAIL_CLAIM
 *   FAIL_KIND    memory: malloc and its kin, pthread_create
 *                file:   all calls on regular files and folders
 *                socket: all calls on sockets, epoll and shared memory
 *   FAIL_AT      n, from 1; 0: none, they are only counted
 *   FAIL_HOW     error: it fails; short: it transfers one byte; interrupted: EINTR, or EAGAIN of a
 *                socket that would block
 *   FAIL_ALWAYS  1: all calls from the n-th on
 *   FAIL_REPORT  file for the report
 *
 * Apart is what oneDNN, C++, OpenMP, OpenSSL and the loader take from the heap: what becomes of
 * them without memory is not ours to say. OpenSSL 3.0 crashes where its own start lacks memory. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FDS = 1024, APART = 64 };
enum kind { NO_KIND, MEMORY, FILES, SOCKETS };
enum death { ERROR, SHORT, INTERRUPTED };

/* The C library's own, by the names under which it offers them to a library that replaces
 * malloc. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *at, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *at);

static struct {
    pid_t process; /* that is watched; 0: none */
    enum kind kind;
    enum death setting;
    long at;
    bool always;
    atomic_long calls, failed, live;
    _Atomic uint8_t of[FDS]; /* enum kind of each descriptor */
    uintptr_t apart[APART][2];
    int aparts;
} fail;

/* One more call of that kind: does it fail? */
static bool must_fail(enum kind kind)
{
    if (kind != fail.kind || fail.process == 0 || (pid_t)syscall(SYS_getpid) != fail.process)
        return false;
    long n = atomic_fetch_add(&fail.calls, 1) + 1;
    bool now = fail.at > 0 && (fail.always ? n >= fail.at : n == fail.at);
    atomic_fetch_add(&fail.failed, now);
    return now;
}

static int set_errno(int code)
{
    errno = code;
    return -1;
}

/* ---- what is asked for ---- */

static int find_library(struct dl_phdr_info *info, size_t size, void *user)
{
    static const char *const apart[] = {"/libdnnl", "/libstdc++", "/libgomp", "/libcrypto",
                                        "/ld-linux"};
    (void)size, (void)user;
    for (size_t k = 0; k < sizeof apart / sizeof *apart; k++)
        for (int i = 0; strstr(info->dlpi_name, apart[k]) && i < info->dlpi_phnum; i++) {
            const ElfW(Phdr) *part = &info->dlpi_phdr[i];
            if (part->p_type != PT_LOAD || fail.aparts == APART)
                continue;
            uintptr_t from = info->dlpi_addr + part->p_vaddr;
            fail.apart[fail.aparts][0] = from;
            fail.apart[fail.aparts++][1] = from + part->p_memsz;
        }
    return 0;
}

static bool is_separate(const void *caller)
{
    for (int i = 0; i < fail.aparts; i++)
        if ((uintptr_t)caller - fail.apart[i][0] < fail.apart[i][1] - fail.apart[i][0])
            return true;
    return false;
}

/* Is this the process? By its own command line: `paceline COMMAND …`. */
static bool is_chosen(const char *command)
{
    char line[256] = "";
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    long n = syscall(SYS_read, fd, line, sizeof line - 1);
    syscall(SYS_close, fd);
    const char *second = n > 0 ? line + strlen(line) + 1 : line;
    if (!command || second >= line + n || strcmp(second, command) != 0)
        return false;
    const char *claim = getenv("FAIL_CLAIM");
    if (!claim)
        return true;
    fd = (int)syscall(SYS_openat, AT_FDCWD, claim, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        syscall(SYS_close, fd);
    return fd >= 0;
}

static const char *setting_of(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

__attribute__((constructor)) static void begin_counting(void)
{
    const char *kind = setting_of("FAIL_KIND"), *setting = setting_of("FAIL_HOW");
    if (!is_chosen(getenv("FAIL_IN")))
        return;
    dl_iterate_phdr(find_library, NULL);
    fail.kind = kind[0] == 'm' ? MEMORY : kind[0] == 'f' ? FILES : SOCKETS;
    fail.setting = setting[0] == 's' ? SHORT : setting[0] == 'i' ? INTERRUPTED : ERROR;
    fail.at = atol(setting_of("FAIL_AT"));
    fail.always = setting_of("FAIL_ALWAYS")[0] == '1';
    fail.process = (pid_t)syscall(SYS_getpid);
}

__attribute__((destructor)) static void report_count(void)
{
    const char *path = getenv("FAIL_REPORT");
    char text[128];
    int open_fds = 0;
    if (fail.process == 0 || (pid_t)syscall(SYS_getpid) != fail.process || !path)
        return;
    long live = fail.live;
    for (int fd = 3; fd < FDS; fd++)
        open_fds += syscall(SYS_fcntl, fd, F_GETFD, 0) >= 0;
    int n = snprintf(text, sizeof text, "calls %ld failed %ld live %ld fds %d\n", (long)fail.calls,
                     (long)fail.failed, live, open_fds);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (syscall(SYS_write, fd, text, n) != n)
        abort();
    syscall(SYS_close, fd);
}

/* ---- memory ---- */

static bool no_memory(const void *caller)
{
    if (is_separate(caller) || !must_fail(MEMORY))
        return false;
    errno = ENOMEM;
    return true;
}

static void *hold_buffer(void *at)
{
    if (at)
        atomic_fetch_add(&fail.live, 1);
    return at;
}

void *malloc(size_t size)
{
    return no_memory(__builtin_return_address(0)) ? NULL : hold_buffer(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return no_memory(__builtin_return_address(0)) ? NULL : hold_buffer(__libc_calloc(n, size));
}

void *realloc(void *at, size_t size)
{
    if (no_memory(__builtin_return_address(0)))
        return NULL;
    return at ? __libc_realloc(at, size) : hold_buffer(__libc_malloc(size));
}

void *memalign(size_t align, size_t size)
{
    return no_memory(__builtin_return_address(0)) ? NULL
                                                  : hold_buffer(__libc_memalign(align, size));
}

void *aligned_alloc(size_t align, size_t size)
{
    return no_memory(__builtin_return_address(0)) ? NULL
                                                  : hold_buffer(__libc_memalign(align, size));
}

int posix_memalign(void **out, size_t align, size_t size)
{
    void *at =
        no_memory(__builtin_return_address(0)) ? NULL : hold_buffer(__libc_memalign(align, size));
    if (at)
        *out = at;
    return at ? 0 : ENOMEM;
}

void free(void *at)
{
    if (at)
        atomic_fetch_sub(&fail.live, 1);
    __libc_free(at);
}

/* ---- the rest: NAME is what it is in the C library ---- */

#define REAL(name)                                                 \
    static __typeof__(name) *real;                                 \
    if (!real) {                                                   \
        void *found = dlsym(RTLD_NEXT, #name);                     \
        memcpy(&real, &found, sizeof real); /* no cast has this */ \
    }

int pthread_create(pthread_t *thread, const pthread_attr_t *setting, void *(*main)(void *),
                   void *arg)
{
    REAL(pthread_create)
    if (!is_separate(__builtin_return_address(0)) && must_fail(MEMORY))
        return EAGAIN;
    return real(thread, setting, main, arg);
}

static enum kind kind_of(int fd)
{
    return fd >= 0 && fd < FDS ? (enum kind)fail.of[fd] : NO_KIND;
}

static int count_fd(int fd, enum kind kind)
{
    if (fd >= 0 && fd < FDS)
        fail.of[fd] = (uint8_t)kind;
    return fd;
}

/* A call that has nothing to transfer: only `error` touches it. */
static bool must_break(enum kind kind)
{
    return fail.setting == ERROR && must_fail(kind);
}

/* For a call that transfers, *len may be reduced; otherwise returns the error; 0: none. */
static int shorten_call(enum kind kind, size_t *len, int code)
{
    if (kind == NO_KIND || *len == 0 || !must_fail(kind))
        return 0;
    if (fail.setting == SHORT)
        *len = 1;
    return fail.setting == ERROR   ? code
           : fail.setting == SHORT ? 0
           : kind == SOCKETS       ? EAGAIN
                                   : EINTR;
}

int open(const char *path, int setting, ...)
{
    REAL(open)
    va_list more;
    va_start(more, setting);
    mode_t mode = setting & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (must_break(FILES))
        return set_errno(setting & O_CREAT ? ENOSPC : EMFILE);
    return count_fd(real(path, setting, mode), FILES);
}

ssize_t read(int fd, void *into, size_t len)
{
    REAL(read)
    int code = shorten_call(kind_of(fd), &len, EIO);
    return code ? set_errno(code) : real(fd, into, len);
}

ssize_t pread(int fd, void *into, size_t len, off_t at)
{
    REAL(pread)
    int code = shorten_call(kind_of(fd), &len, EIO);
    return code ? set_errno(code) : real(fd, into, len, at);
}

ssize_t write(int fd, const void *from, size_t len)
{
    REAL(write)
    int code = shorten_call(kind_of(fd), &len, ENOSPC);
    return code ? set_errno(code) : real(fd, from, len);
}

int close(int fd)
{
    REAL(close)
    bool broken = kind_of(fd) == FILES && must_break(FILES);
    count_fd(fd, NO_KIND);
    int rc = real(fd);
    return broken ? set_errno(EIO) : rc;
}

#define FILE_CALL(type, none, name, parameters, arguments, code) \
    type name parameters                                         \
    {                                                            \
        REAL(name)                                               \
        if (must_break(FILES)) {                                 \
            errno = code;                                        \
            return none;                                         \
        }                                                        \
        return real arguments;                                   \
    }

FILE_CALL(int, -1, fsync, (int fd), (fd), EIO)
FILE_CALL(int, -1, rename, (const char *from, const char *to), (from, to), EIO)
FILE_CALL(int, -1, unlink, (const char *path), (path), EIO)
FILE_CALL(int, -1, mkdir, (const char *path, mode_t mode), (path, mode), ENOSPC)
FILE_CALL(int, -1, stat, (const char *path, struct stat *out), (path, out), EIO)
FILE_CALL(int, -1, lstat, (const char *path, struct stat *out), (path, out), EIO)
FILE_CALL(int, -1, fstat, (int fd, struct stat *out), (fd, out), EIO)
FILE_CALL(int, -1, statvfs, (const char *path, struct statvfs *out), (path, out), EIO)
FILE_CALL(DIR *, NULL, opendir, (const char *path), (path), EMFILE)
FILE_CALL(int, -1, scandir,
          (const char *path, struct dirent ***out, int (*keep)(const struct dirent *),
           int (*order)(const struct dirent **, const struct dirent **)),
          (path, out, keep, order), ENOMEM)
FILE_CALL(FILE *, NULL, fopen, (const char *path, const char *setting), (path, setting), EMFILE)
FILE_CALL(char *, NULL, getcwd, (char *into, size_t size), (into, size), ENOENT)

#define SOCKET_CALL(name, parameters, arguments, code)                 \
    int name parameters                                                \
    {                                                                  \
        REAL(name)                                                     \
        return must_break(SOCKETS) ? set_errno(code) : real arguments; \
    }

#define SOCKET_MAKER(name, parameters, arguments, code)                                   \
    int name parameters                                                                   \
    {                                                                                     \
        REAL(name)                                                                        \
        return must_break(SOCKETS) ? set_errno(code) : count_fd(real arguments, SOCKETS); \
    }

SOCKET_MAKER(socket, (int domain, int type, int protocol), (domain, type, protocol), EMFILE)
SOCKET_MAKER(accept4, (int fd, struct sockaddr *from, socklen_t *len, int setting),
             (fd, from, len, setting), EMFILE)
SOCKET_CALL(epoll_create1, (int setting), (setting), EMFILE)
SOCKET_CALL(eventfd, (unsigned value, int setting), (value, setting), EMFILE)
SOCKET_CALL(memfd_create, (const char *name, unsigned setting), (name, setting), ENOMEM)
SOCKET_CALL(ftruncate, (int fd, off_t len), (fd, len), ENOSPC)
SOCKET_CALL(bind, (int fd, const struct sockaddr *to, socklen_t len), (fd, to, len), EADDRINUSE)
SOCKET_CALL(listen, (int fd, int backlog), (fd, backlog), EADDRINUSE)
SOCKET_CALL(connect, (int fd, const struct sockaddr *to, socklen_t len), (fd, to, len),
            ECONNREFUSED)
SOCKET_CALL(getsockname, (int fd, struct sockaddr *out, socklen_t *len), (fd, out, len), ENOBUFS)
SOCKET_CALL(getpeername, (int fd, struct sockaddr *out, socklen_t *len), (fd, out, len), ENOTCONN)
SOCKET_CALL(setsockopt, (int fd, int level, int name, const void *value, socklen_t len),
            (fd, level, name, value, len), ENOBUFS)
SOCKET_CALL(getsockopt, (int fd, int level, int name, void *value, socklen_t *len),
            (fd, level, name, value, len), ENOBUFS)
SOCKET_CALL(epoll_ctl, (int fd, int what, int on, struct epoll_event *event), (fd, what, on, event),
            ENOMEM)

int epoll_wait(int fd, struct epoll_event *events, int count, int ms)
{
    REAL(epoll_wait)
    /* Not for ever: callers repeat an interrupted wait. */
    return fail.setting != SHORT && !fail.always && must_fail(SOCKETS)
               ? set_errno(EINTR)
               : real(fd, events, count, ms);
}

void *mmap(void *at, size_t len, int access, int setting, int fd, off_t offset)
{
    REAL(mmap)
    if (fd >= 0 && must_break(SOCKETS)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return real(at, len, access, setting, fd, offset);
}

ssize_t send(int fd, const void *from, size_t len, int setting)
{
    REAL(send)
    int code = shorten_call(SOCKETS, &len, ECONNRESET);
    return code ? set_errno(code) : real(fd, from, len, setting);
}

ssize_t recv(int fd, void *into, size_t len, int setting)
{
    REAL(recv)
    int code = shorten_call(SOCKETS, &len, ECONNRESET);
    return code ? set_errno(code) : real(fd, into, len, setting);
}

/* The message as a call of one byte sees it. */
static int shorten_message(struct msghdr *message, struct iovec *one)
{
    size_t i = 0, len = 0;
    while (i < message->msg_iovlen && message->msg_iov[i].iov_len == 0)
        i++;
    *one = i < message->msg_iovlen ? message->msg_iov[i] : (struct iovec){0};
    len = one->iov_len;
    int code = shorten_call(SOCKETS, &len, ECONNRESET);
    if (len < one->iov_len) {
        one->iov_len = len;
        message->msg_iov = one;
        message->msg_iovlen = 1;
    }
    return code;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int setting)
{
    REAL(sendmsg)
    struct msghdr less = *message;
    struct iovec one;
    int code = shorten_message(&less, &one);
    return code ? set_errno(code) : real(fd, &less, setting);
}

ssize_t recvmsg(int fd, struct msghdr *message, int setting)
{
    REAL(recvmsg)
    struct msghdr less = *message;
    struct iovec one;
    int code = shorten_message(&less, &one);
    ssize_t n = code ? set_errno(code) : real(fd, &less, setting);
    message->msg_flags = less.msg_flags;
    message->msg_controllen = less.msg_controllen;
    message->msg_namelen = less.msg_namelen;
    return n;
}
