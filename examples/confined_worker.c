/* A worker on a borrowed machine, confined by the kernel (seccomp): once it has begun, the process
 * may compute, read and write files, and speak over the network, and nothing else. It starts no
 * program, traces no process, mounts nothing, and loads nothing into the kernel, whatever a mistake
 * in a decoder of data or messages makes of it.
 *
 *     confined_worker HOST:PORT DATA KEY   works for the driver there, with the data of the folder
 *                                          DATA and the run's key in the file KEY
 *     confined_worker --try                shows what the kernel refuses
 *
 * Calls that are not in the list are refused with EPERM. A filter sees numbers alone, and so cannot
 * tell which files are opened: give the process a user of its own, or a unit of systemd
 * (examples/systemd) with ProtectSystem and ProtectHome. */
#define _GNU_SOURCE
#include "paceline/key.h"
#include "paceline/run.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#define ARCHITECTURE 0 /* none: the filter cannot be made */
#endif

static const int allowed[] = {
    /* files */
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_close,
    SYS_openat,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_fstatfs,
    SYS_statfs,
    SYS_fcntl,
    SYS_ioctl,
    SYS_dup,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_fsync,
    SYS_fdatasync,
    SYS_flock,
    SYS_getdents64,
    SYS_readlinkat,
    SYS_faccessat,
    SYS_unlinkat,
    SYS_renameat,
    SYS_mkdirat,
    SYS_memfd_create,
    SYS_fadvise64,
    SYS_getcwd,
    /* memory; compiled kernels are written and then executed */
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_mincore,
    /* threads and time */
    SYS_futex,
    SYS_set_robust_list,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_sched_setaffinity,
    SYS_sched_getparam,
    SYS_sched_getscheduler,
    SYS_getpriority,
    SYS_setpriority,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_exit,
    SYS_exit_group,
    SYS_restart_syscall,
    SYS_rseq,
    SYS_membarrier,
    SYS_set_tid_address,
    /* signals to itself, and facts about it and the machine */
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_tgkill,
    SYS_getpid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_uname,
    SYS_sysinfo,
    SYS_getrusage,
    SYS_prlimit64,
    SYS_getrandom,
    SYS_getcpu,
    SYS_prctl,
    /* the network */
    SYS_connect,
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_sendto,
    SYS_recvfrom,
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_sendmmsg,
    SYS_shutdown,
    SYS_getsockname,
    SYS_getpeername,
    SYS_setsockopt,
    SYS_getsockopt,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_eventfd2,
    SYS_ppoll,
    SYS_pipe2,
    SYS_timerfd_create,
    SYS_timerfd_settime,
#ifdef SYS_open /* older names, which not all processors have */
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_unlink,
    SYS_rename,
    SYS_mkdir,
    SYS_poll,
    SYS_epoll_wait,
    SYS_pipe,
    SYS_dup2,
    SYS_select,
    SYS_arch_prctl,
    SYS_time,
#endif
};

enum { CALLS = sizeof allowed / sizeof *allowed, ROOM = 2 * CALLS + 32 };

struct program {
    struct sock_filter at[ROOM];
    unsigned short n;
};

static void add_line(struct program *p, struct sock_filter line)
{
    p->at[p->n++] = line;
}

static void load_word(struct program *p, size_t offset)
{
    add_line(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset));
}

static void end_with(struct program *p, unsigned action)
{
    add_line(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

/* Where the loaded number is `value`: this verdict. */
static void end_if_equal(struct program *p, unsigned value, unsigned action)
{
    add_line(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
    end_with(p, action);
}

/* Of call `number`: only with this first argument, or, with `mask`, with these bits in it. */
static void allow_with(struct program *p, int number, unsigned argument, bool mask)
{
    unsigned short test = mask ? BPF_JSET : BPF_JEQ;
    add_line(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 4));
    load_word(p, offsetof(struct seccomp_data, args));
    add_line(p, (struct sock_filter)BPF_JUMP(BPF_JMP | test | BPF_K, argument, 0, 1));
    end_with(p, SECCOMP_RET_ALLOW);
    load_word(p, offsetof(struct seccomp_data, nr));
}

/* From now on, for all threads that this one starts. 0, or errno. */
static int confine_process(void)
{
    static struct program p;
    load_word(&p, offsetof(struct seccomp_data, arch));
    add_line(&p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
    end_with(&p, SECCOMP_RET_KILL_PROCESS); /* numbers of another kind of processor */
    load_word(&p, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < CALLS; i++)
        end_if_equal(&p, (unsigned)allowed[i], SECCOMP_RET_ALLOW);
    /* Threads, but no processes. The arguments of clone3 are in memory, which a filter cannot read:
     * without it the C library takes clone. */
    end_if_equal(&p, SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
    allow_with(&p, SYS_clone, CLONE_THREAD, true);
    allow_with(&p, SYS_socket, AF_INET, false);
    allow_with(&p, SYS_socket, AF_INET6, false);
    allow_with(&p, SYS_socket, AF_UNIX, false);
    allow_with(&p, SYS_socket, AF_NETLINK, false); /* the machine's own addresses */
    end_with(&p, SECCOMP_RET_ERRNO | EPERM);
    const struct sock_fprog filter = {p.n, p.at};
    if (ARCHITECTURE == 0)
        return ENOSYS;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        return errno;
    return 0;
}

static int show_result(const char *what, long result)
{
    bool refused = result < 0 && errno == EPERM;
    printf("%s: %s\n", what, refused ? "refused" : "ALLOWED");
    return !refused;
}

/* The next steps of an intruder. Returns how many succeed. */
static int try_all(void)
{
    char *const none[] = {NULL};
    int wrong = 0;
    errno = 0;
    wrong += show_result("start a program", execve("/bin/true", none, none));
    wrong += show_result("start a process", syscall(SYS_clone, 17 /* SIGCHLD */, 0, 0, 0, 0));
    wrong += show_result("trace a process", ptrace(PTRACE_TRACEME, 0, NULL, NULL));
    wrong += show_result("listen to raw packets", socket(AF_PACKET, SOCK_RAW, 0));
    wrong += show_result("make a namespace", unshare(CLONE_NEWUSER));
    wrong += show_result("load a filter into the kernel", syscall(SYS_bpf, 0, NULL, 0));
    return wrong;
}

int main(int argc, char **argv)
{
    pl_engine *engine = NULL;
    char key[PL_KEY_TEXT_SIZE] = "";
    bool tries = argc == 2 && strcmp(argv[1], "--try") == 0;
    if (argc != 4 && !tries) {
        fprintf(stderr, "usage: confined_worker HOST:PORT DATA KEY | --try\n");
        return 2;
    }
    int rc = pl_engine_create(NULL, &engine);
    if (rc == PL_OK && !tries)
        rc = pl_key_read(engine, argv[3], key);
    if (rc != PL_OK) {
        fprintf(stderr, "confined_worker: %s\n", engine ? pl_engine_error(engine) : "no memory");
        pl_engine_destroy(engine);
        return 2;
    }
    pl_engine_destroy(engine);
    engine = NULL;
    rc = confine_process();
    if (rc != 0) {
        fprintf(stderr, "confined_worker: this kernel takes no filter: %s\n", strerror(rc));
        return 3;
    }
    if (tries)
        return try_all() > 0;
    const pl_work_options options = {
        .size = sizeof options,
        .driver = argv[1],
        .data_root = argv[2],
        .key = key,
        .retry_s = 60,
    };
    rc = pl_engine_create(NULL, &engine);
    if (rc == PL_OK)
        rc = pl_work(engine, &options);
    if (rc != PL_OK)
        fprintf(stderr, "confined_worker: %s\n", engine ? pl_engine_error(engine) : "no memory");
    pl_engine_destroy(engine);
    return rc == PL_OK ? 0 : 1;
}
