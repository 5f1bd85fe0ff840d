#define _GNU_SOURCE
/* A run on a machine where another user has processes, too. These learn nothing of it, cannot join
 * it, and cannot disturb it. */
#include "machines.h"
#include "own_network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <grp.h>
#include <netinet/in.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

enum { OWNER = 64001, STRANGER = 64002, PORTS_MAX = 16, IDLE = 100 };

enum probe {
    READS_KEY = 1,
    SEES_FILES = 2,
    READS_ENVIRONMENT = 4,
    READS_MEMORY = 8,
    TRACES = 16,
    SIGNALS = 32,
    OPENS_SHARED = 64,
};

static bool possible;            /* to be two other users, in a network of their own */
static char stranger_folder[64]; /* of the user who is not the run's */
static const char *run_folder;   /* with the job, and the directory of the run */

/* ---- to be another user ---- */

/* Run `fn` in a process of that user, and return its value. */
static int call_as(uid_t user, int (*fn)(const void *), const void *arg)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(process_become(user) ? fn(arg) : 255);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 255);
    return WEXITSTATUS(status);
}

static int try_command(const void *arg)
{
    (void)arg;
    return access(TEST_BUILD "/paceline", X_OK) == 0;
}

/* ---- what a process can learn of another, and do to it ---- */

struct target {
    pid_t pid;
    char key[160];
};

static bool opens_file(pid_t pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, name);
    int fd = open(path, O_RDONLY);
    char byte;
    bool opened = fd >= 0 && (strcmp(name, "environ") != 0 || read(fd, &byte, 1) >= 0);
    if (fd >= 0)
        close(fd);
    return opened;
}

static int opened;

static int open_shared(const char *path, const struct stat *of, int kind, struct FTW *at)
{
    (void)at;
    opened += kind == FTW_F && of->st_uid == OWNER && !strstr(path, run_folder) &&
              access(path, R_OK) == 0;
    return 0;
}

/* Shared memory that has a name, except for the test's own folder. */
static bool opens_shared(void)
{
    char line[512];
    int fields[8];
    opened = 0;
    nftw("/dev/shm", open_shared, 8, FTW_PHYS);
    FILE *f = fopen("/proc/sysvipc/shm", "r");
    while (f && fgets(line, sizeof line, f))
        opened += sscanf(line, "%d %d %o %d %d %d %d %d", &fields[0], &fields[1], &fields[2],
                         &fields[3], &fields[4], &fields[5], &fields[6], &fields[7]) == 8 &&
                  fields[7] == OWNER;
    if (f)
        fclose(f);
    return opened > 0;
}

/* All that succeeds, as bits of enum probe. */
static int probe_process(const void *arg)
{
    const struct target *target = arg;
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)0x1000, 1};
    int found = 0;
    if (access(target->key, R_OK) == 0)
        found |= READS_KEY;
    if (opens_file(target->pid, "fd"))
        found |= SEES_FILES;
    if (opens_file(target->pid, "environ"))
        found |= READS_ENVIRONMENT;
    if (opens_file(target->pid, "mem") ||
        (process_vm_readv(target->pid, &here, 1, &there, 1, 0) < 0 && errno != EPERM))
        found |= READS_MEMORY;
    if (ptrace(PTRACE_SEIZE, target->pid, 0, 0) == 0)
        found |= TRACES;
    if (kill(target->pid, 0) == 0)
        found |= SIGNALS;
    if (opens_shared())
        found |= OPENS_SHARED;
    return found;
}

/* Sockets of this network that have a name. */
static int count_named_sockets(void)
{
    char line[512], path[128];
    int named = 0;
    FILE *f = fopen("/proc/net/unix", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        named += sscanf(line, "%*x: %*x %*x %*x %*x %*x %*u %127s", path) == 1;
    fclose(f);
    return named;
}

/* ---- the run ---- */

static void use_keys_of(const char *folder)
{
    setenv("XDG_CONFIG_HOME", folder, 1);
}

static void skip_if_impossible(void)
{
    if (possible)
        return;
    print_message("this test can be no other user here\n");
    skip();
}

/* With the key of its user, which is asked for where none is named. */
static void start_run(struct tiny *t, struct machines *m, const char *epochs)
{
    char stop[32];
    snprintf(stop, sizeof stop, "stop.epochs=%s", epochs);
    use_keys_of(t->folder);
    process_user = OWNER;
    DRIVE(t, m, "--set", "workers=2", "--set", "pace=0.005", "--set", stop);
    for (int i = 0; i < 2; i++)
        WORKER(m, t->folder, NULL);
    process_user = 0;
    UNTIL(REAL_LIMIT_S, process_poll(&m->run.p) || real_exchanges(&m->run) >= 2);
}

static void expect_refused(const struct machines *m, const char *key, const char *why)
{
    struct process p;
    use_keys_of(stranger_folder);
    process_user = STRANGER;
    process_start(
        &p, stranger_folder,
        (const char *const[]){"worker", "--join", m->join, key ? "--key" : NULL, key, NULL});
    process_user = 0;
    process_wait(&p, REAL_LIMIT_S);
    if (p.code != 2 || !strstr(p.err, why))
        fail_msg("code %d; it said:\n%s", p.code, p.err);
    process_release(&p);
}

static void test_another_user_learns_nothing_and_cannot_join(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    struct target target;
    skip_if_impossible();
    start_run(t, &m, "100000");
    snprintf(target.key, sizeof target.key, "%s/paceline/key", t->folder);
    for (size_t i = 0; i <= m.workers; i++) {
        target.pid = i < m.workers ? m.worker[i].pid : m.run.p.pid;
        assert_int_equal(call_as(STRANGER, probe_process, &target), 0);
        int own = call_as(OWNER, probe_process, &target); /* so the probes can succeed */
        assert_int_equal(own & (READS_KEY | SEES_FILES | READS_ENVIRONMENT | SIGNALS),
                         READS_KEY | SEES_FILES | READS_ENVIRONMENT | SIGNALS);
    }
    assert_int_equal(count_named_sockets(), 0);
    expect_refused(&m, NULL, "it refuses this worker: its run has key ");
    expect_refused(&m, target.key, "Permission denied");
    assert_int_equal(real_members(&m.run, "join"), 2);
    process_signal_all(&m.run.p, SIGINT);
    real_end(&m.run, 130, "interrupted");
    machines_wait(&m);
    machines_release(&m);
}

/* ---- strangers at each port ---- */

static int find_ports(uint16_t port[PORTS_MAX])
{
    char line[512];
    unsigned at, state;
    int n = 0;
    FILE *f = fopen("/proc/net/tcp", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%*d: %*x:%x %*x:%*x %x", &at, &state) == 2 && state == 0x0a &&
            n < PORTS_MAX)
            port[n++] = (uint16_t)at;
    fclose(f);
    return n;
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Connections that say nothing, and others with noise, until this process is killed. */
static _Noreturn void disturb_ports(void)
{
    uint16_t port[PORTS_MAX];
    uint8_t noise[4096];
    int ports = find_ports(port);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)(i * 2654435761u >> 11);
    for (int i = 0; i < ports * IDLE; i++)
        (void)connect_to(port[i % ports]); /* each stays open */
    for (int i = 0;; i++) {
        int fd = connect_to(port[i % ports]);
        if (fd >= 0)
            (void)!send(fd, noise, sizeof noise, MSG_NOSIGNAL);
        close(fd);
        process_nap(0.002);
    }
}

static void test_another_user_disturbs_nothing(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    uint16_t port[PORTS_MAX];
    skip_if_impossible();
    start_run(t, &m, "8");
    assert_int_equal(find_ports(port), 3);
    pid_t stranger = fork();
    assert_true(stranger >= 0);
    if (stranger == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (process_become(STRANGER))
            disturb_ports();
        _exit(255);
    }
    process_nap(0.3);
    int before = real_exchanges(&m.run);
    real_end(&m.run, 0, "epochs");
    assert_true(real_exchanges(&m.run) > before + 2); /* with the stranger there */
    assert_true(process_is_alive(stranger));
    kill(stranger, SIGKILL);
    waitpid(stranger, NULL, 0);
    machines_end(&m, 0);
    assert_int_equal(run_count(m.run.dir, "member", NULL, NULL), real_members(&m.run, "join"));
    if (!strstr(m.run.p.err, "a connection from 127.0.0.1"))
        fail_msg("the driver does not mention the stranger: %s", m.run.p.err);
    machines_release(&m);
}

static int be_two_users(void **state)
{
    char command[256];
    tiny_setup(state);
    const struct tiny *t = *state;
    run_folder = t->folder;
    if (geteuid() != 0 || setgroups(0, NULL) != 0 ||
        !folder_create("paceline-stranger", stranger_folder))
        return 0;
    snprintf(command, sizeof command, "chown -R %d:%d '%s' && chmod 755 '%s'", OWNER, OWNER,
             t->folder, t->folder);
    possible = system(command) == 0 && chown(stranger_folder, STRANGER, STRANGER) == 0 &&
               network_enter() && call_as(STRANGER, try_command, NULL) == 1;
    return 0;
}

static int be_one_user(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", stranger_folder);
    if (stranger_folder[0] && system(command) != 0)
        abort();
    return tiny_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_user_learns_nothing_and_cannot_join),
        cmocka_unit_test(test_another_user_disturbs_nothing),
    };
    return cmocka_run_group_tests(tests, be_two_users, be_one_user);
}
