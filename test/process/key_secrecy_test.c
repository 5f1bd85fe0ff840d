#define _GNU_SOURCE
/* Where the key of a run is, and where it is not: in no core dump of a process of the run, no
 * argument, no environment, no log and no file of the run directory. */
#include "machines.h"
#include "memory_scan.h"
#include "real/real_test_kit.h"
#include "real/run_key.h"
#include "real/seal.h"

#include <ftw.h>
#include <poll.h>
#include <sys/resource.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* their shadows are terabytes of memory to look through */
#else
#define SANITIZED 0
#endif

static char text[80]; /* the key */
static struct run_key derived;

static void take_key(struct tiny *t, char path[160])
{
    tiny_key(t, path);
    FILE *f = fopen(path, "r");
    assert_true(f && fscanf(f, "%79s", text) == 1 && strlen(text) == 64);
    fclose(f);
    assert_int_equal(run_key_derive(&derived, text), OK);
}

/* Wherever a key may be, half of it is enough to find it. */
static void expect_not_in(const void *bytes, size_t n, const char *where)
{
    if (memmem(bytes, n, text, 16) || memmem(bytes, n, derived.proof, 16) ||
        memmem(bytes, n, derived.session, 16))
        fail_msg("%s has the key", where);
}

static void expect_not_dumped(pid_t pid, const char *whose)
{
    int in_text = scan_memory(pid, text, 16, true),
        proof = scan_memory(pid, derived.proof, 16, true),
        session = scan_memory(pid, derived.session, 16, true);
    if (in_text + proof + session > 0)
        fail_msg("a dump of the %s has the key: %d times its text, %d its key for proofs, %d the "
                 "one for sessions",
                 whose, in_text, proof, session);
}

/* A driver and two workers on one host that encrypt what they send: a worker with a limit of its
 * rate shares no memory. */
static void start_machines(struct tiny *t, struct machines *m, const char *path)
{
    DRIVE(t, m, "--key", path, "--set", "workers=2", "--set", "pace=0.01", "--set",
          "stop.epochs=100000");
    for (int i = 0; i < 2; i++)
        WORKER(m, t->folder, "--key", path, "--max-mbit", "900");
    UNTIL(REAL_LIMIT_S, real_exchanges(&m->run) >= 2);
}

static void end_machines(struct machines *m)
{
    process_signal_all(&m->run.p, SIGINT);
    real_end(&m->run, 130, "interrupted");
    machines_wait(m);
    expect_not_in(m->run.p.err, strlen(m->run.p.err), "the driver's output");
    for (size_t i = 0; i < m->workers; i++)
        expect_not_in(m->worker[i].err, strlen(m->worker[i].err), "a worker's output");
    machines_release(m);
}

static void test_a_dump_has_no_key(void **state)
{
    if (SANITIZED)
        skip();
    struct tiny *t = *state;
    struct machines m;
    char path[160];
    take_key(t, path);
    start_machines(t, &m, path);
    expect_not_dumped(m.run.p.pid, "driver");
    for (size_t i = 0; i < m.workers; i++)
        expect_not_dumped(m.worker[i].pid, "worker");
    /* The search finds bytes in either kind of page. */
    assert_true(scan_memory(m.run.p.pid, m.run.dir, strlen(m.run.dir), true) > 0);
    for (size_t i = 0; i <= m.workers; i++) {
        pid_t pid = i < m.workers ? m.worker[i].pid : m.run.p.pid;
        assert_true(scan_memory(pid, text, 64, false) > 0);
        assert_true(scan_memory(pid, derived.session, RUN_KEY_SIZE, false) > 0);
    }
    end_machines(&m);
}

/* ---- the key of a session, which this process knows as the other side ---- */

static void transfer_bytes(int fd, void *bytes, size_t n, bool out)
{
    for (size_t done = 0; done < n;) {
        char *at = (char *)bytes + done;
        ssize_t k = out ? send(fd, at, n - done, MSG_NOSIGNAL) : recv(fd, at, n - done, 0);
        assert_true(k > 0);
        done += (size_t)k;
    }
}

static int connect_to(const char *address)
{
    struct address a;
    struct err err = {0};
    assert_int_equal(address_parse(address, &a, &err), OK);
    int fd = socket(a.u.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && connect(fd, &a.u.any, a.len) == 0);
    return fd;
}

/* Joins as a worker does, until TLS is open; the session's key is left in `key`. */
static struct stream open_session(struct seal_maker *maker, int fd, uint8_t key[RUN_KEY_SIZE])
{
    struct hellos hellos = {0};
    struct hello hello = {.version = PROTOCOL_VERSION,
                          .node = WORLD_ANY,
                          .peer = WORLD_DRIVER,
                          .port = 1},
                 reply;
    struct stream stream = stream_tcp(fd);
    transfer_bytes(fd, hellos.challenge, HELLO_SIZE, false);
    hello_encode(&hello, hellos.first);
    assert_int_equal(run_key_prove_first(&derived, &hellos), OK);
    transfer_bytes(fd, hellos.first, FIRST_SIZE, true);
    transfer_bytes(fd, hellos.reply, REPLY_SIZE, false);
    assert_int_equal(hello_decode(hellos.reply, &reply), OK);
    assert_int_equal(reply.refusal, REFUSED_NOT);
    assert_int_equal(run_key_session(&derived, &hellos, key), OK);
    assert_int_equal(seal_begin(maker, &stream, true, key), OK);
    int rc;
    while ((rc = seal_handshake(&stream)) == ERR_FULL) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        assert_true(poll(&ready, 1, 10000) == 1);
    }
    assert_int_equal(rc, OK);
    return stream;
}

static void test_a_dump_has_no_key_of_a_session(void **state)
{
    if (SANITIZED)
        skip();
    struct tiny *t = *state;
    struct machines m;
    char path[160];
    uint8_t key[RUN_KEY_SIZE];
    take_key(t, path);
    start_machines(t, &m, path);
    struct seal_maker *maker = seal_maker_create();
    assert_non_null(maker);
    int fd = connect_to(m.join);
    struct stream stream = open_session(maker, fd, key);
    UNTIL(10, scan_memory(m.run.p.pid, key, RUN_KEY_SIZE, false) > 0); /* OpenSSL's copy */
    assert_int_equal(scan_memory(m.run.p.pid, key, 16, true), 0);
    stream_close(&stream);
    seal_maker_free(maker);
    end_machines(&m);
}

/* ---- what others of this machine see, and what stays on the disk ---- */

static int search_file(const char *path, const struct stat *of, int kind, struct FTW *at)
{
    (void)at;
    if (kind != FTW_F || of->st_size == 0 || strstr(path, "tiny.key"))
        return 0;
    char *bytes = malloc((size_t)of->st_size);
    FILE *f = fopen(path, "r");
    assert_true(bytes && f);
    expect_not_in(bytes, fread(bytes, 1, (size_t)of->st_size, f), path);
    fclose(f);
    free(bytes);
    return 0;
}

/* `train` hands its workers the key through a pipe. */
static void test_key_is_in_no_arguments_and_no_files(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    char path[160], seen[64], bytes[65536];
    pid_t pid[PROCESS_CHILDREN_MAX + 1];
    take_key(t, path);
    START(t, &r, "--workers", "2", "--set", "pace=0.01", "--set", "stop.epochs=100000", "--key",
          path);
    real_workers(&r, 2, pid);
    pid[2] = r.p.pid;
    UNTIL(REAL_LIMIT_S, real_exchanges(&r) >= 2);
    for (int i = 0; i < 6; i++) {
        snprintf(seen, sizeof seen, "/proc/%ld/%s", (long)pid[i / 2],
                 i % 2 ? "environ" : "cmdline");
        FILE *f = fopen(seen, "r");
        assert_non_null(f);
        size_t n = fread(bytes, 1, sizeof bytes, f);
        fclose(f);
        assert_true(n > 10);
        expect_not_in(bytes, n, seen);
    }
    for (int i = 0; i < 3; i++)
        expect_not_dumped(pid[i], i < 2 ? "worker" : "driver");
    process_signal_all(&r.p, SIGINT);
    real_end(&r, 130, "interrupted");
    expect_not_in(r.p.err, strlen(r.p.err), "the output");
    assert_int_equal(nftw(t->folder, search_file, 8, FTW_PHYS), 0);
    process_release(&r.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_dump_has_no_key),
        cmocka_unit_test(test_a_dump_has_no_key_of_a_session),
        cmocka_unit_test(test_key_is_in_no_arguments_and_no_files),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
