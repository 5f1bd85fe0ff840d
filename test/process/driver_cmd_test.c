/* `paceline driver`, and workers started by hand: together, before it, with their data in other
 * folders, and with settings that must be refused. */
#include "machines.h"
#include "refusal.h"

#include <fcntl.h>
#include <sys/stat.h>

static void test_workers_started_by_hand(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    pid_t child[PROCESS_CHILDREN_MAX];
    DRIVE(t, &m, "--set", "workers=4", "--set", "strategy.sync.tau=4", "--seed", "3");
    for (int i = 0; i < 4; i++) {
        char joined[64];
        WORKER(&m, t->folder, "--threads", "1");
        snprintf(joined, sizeof joined, "has joined; %d of 4 are here", i + 1);
        UNTIL(REAL_LIMIT_S, machines_log(&m.run.p, joined) || process_poll(&m.run.p));
        assert_int_equal(process_children(m.run.p.pid, child), 0);
    }
    real_end(&m.run, 0, "epochs");
    machines_end(&m, 0);
    assert_true(machines_log(&m.run.p, "worker 0 is at 127.0.0.1:"));
    double used = run_number(m.run.dir, "end", 0, "used");
    assert_true(used >= 3.0 * (TINY_TRAIN - 60) && run_number(m.run.dir, "end", 0, "missed") == 0);
    assert_int_equal((int)run_number(m.run.dir, "end", 0, "seed"), 3);
    machines_release(&m);
}

static void test_workers_come_before_their_driver(void **state)
{
    struct tiny *t = *state;
    struct machines m = {.workers = 0};
    struct process early[2];
    char address[32];
    port_find(address);
    for (int i = 0; i < 2; i++)
        process_start(&early[i], t->folder,
                      (const char *const[]){"worker", "--join", address, NULL});
    for (int i = 0; i < 2; i++)
        UNTIL(REAL_LIMIT_S, machines_log(&early[i], "it tries again"));
    assert_true(machines_log(&early[0], address));
    DRIVE(t, &m, "--listen", address, "--set", "workers=2");
    real_end(&m.run, 0, "epochs");
    for (int i = 0; i < 2; i++) {
        process_wait(&early[i], REAL_LIMIT_S);
        assert_int_equal(early[i].code, 0);
        process_release(&early[i]);
    }
    machines_release(&m);
}

/* `worker --join HOST` finds it; if another process has the port, the driver reports it. */
static void test_driver_listens_at_the_default_port(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char out[128];
    process_start(&p, t->folder,
                  (const char *const[]){"driver", t->job, "--out", tiny_out(t, out), NULL});
    UNTIL(REAL_LIMIT_S, process_poll(&p) || machines_log(&p, "paceline worker --join "));
    assert_true(machines_log(&p, "paceline worker --join 127.0.0.1:29500\n") ||
                machines_log(&p, "listen 127.0.0.1:29500: another process has that port"));
    kill(p.pid, SIGTERM);
    process_wait(&p, REAL_LIMIT_S);
    process_release(&p);
}

/* A connection that ends before its hello gives its number back after a while; a worker that had
 * the number does not. */
static void test_a_number_is_one_workers(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    DRIVE(t, &m, "--set", "workers=2");
    struct process *first = WORKER(&m, t->folder, NULL);
    UNTIL(REAL_LIMIT_S, machines_log(&m.run.p, "worker 0 has joined; 1 of 2 are here"));
    kill(first->pid, SIGKILL);
    process_wait(first, REAL_LIMIT_S);
    UNTIL(REAL_LIMIT_S, machines_log(&m.run.p, "is lost: its connection has ended; "
                                               "0 of 2 are here"));
    process_nap(5.5); /* longer than a number rests */
    WORKER(&m, t->folder, NULL);
    UNTIL(REAL_LIMIT_S, machines_log(&m.run.p, "worker 1 has joined; 1 of 2 are here"));
    WORKER(&m, t->folder, NULL);
    real_end(&m.run, 0, "epochs");
    const char *once = strstr(m.run.p.err, "worker 0 is at ");
    assert_true(once && !strstr(once + 1, "worker 0 is at "));
    machines_release(&m);
}

static void test_an_interrupt_ends_it_as_it_ends_train(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    DRIVE(t, &m, "--set", "workers=2", "--set", "stop.epochs=1000", "--set", "pace=0.005");
    WORKER(&m, t->folder, NULL);
    WORKER(&m, t->folder, NULL);
    UNTIL(REAL_LIMIT_S, real_exchanges(&m.run) >= 3);
    kill(m.run.p.pid, SIGINT);
    real_end(&m.run, 130, "interrupted");
    machines_end(&m, 0);
    machines_release(&m);
    DRIVE(t, &m, "--set", "workers=2");
    WORKER(&m, t->folder, NULL);
    UNTIL(REAL_LIMIT_S, machines_log(&m.run.p, "1 of 2 are here"));
    kill(m.run.p.pid, SIGINT);
    process_wait(&m.run.p, REAL_LIMIT_S);
    assert_int_equal(m.run.p.code, 130);
    assert_non_null(strstr(m.run.p.err, "interrupted before training began"));
    assert_int_equal(run_count(m.run.dir, "end", "reason", "interrupted"), 1);
    machines_release(&m);
}

static void test_who_does_not_come(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    DRIVE(t, &m, "--set", "workers=2", "--wait", "0.7");
    process_wait(&m.run.p, REAL_LIMIT_S);
    assert_int_equal(m.run.p.code, 1);
    assert_non_null(strstr(m.run.p.err, "not all of 2 workers arrived: no progress for 0.7 s"));
    machines_release(&m);
}

/* ---- refusals ---- */

static int listening_port(char address[32])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 1) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(address, 32, "127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

static void test_addresses_are_refused_by_name(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char address[32];
    int fd = listening_port(address);
    REFUSED(t, address, "driver", t->job, "--out", "no", "--listen", address);
    close(fd);
    REFUSED(t, "a key is required", "driver", t->job, "--out", "no", "--listen", "0.0.0.0:0");
    REFUSED(t, "no address is known of host no..such..host", "driver", t->job, "--listen",
            "no..such..host:1");
    REFUSED(t, "no address is known of host no..such..host", "worker", "--join",
            "no..such..host:1");
    REFUSED(t, "a key is required", "worker", "--join", "10.1.2.3:4000");
    REFUSED(t, "a key is required", "worker", "--join", "127.0.0.1:9,10.1.2.3:4000");
    REFUSED(t, "expected HOST:PORT", "worker", "--join", "127.0.0.1:9,");
    REFUSED(t, "no address is known of host no..such", "worker", "--join", "127.0.0.1:9,no..such");
    REFUSED(t, "10.1.2.3:29500: beyond this host", "worker", "--join", "10.1.2.3");
    REFUSED(t, "expected HOST:PORT, the port from 0 to 65535", "driver", t->job, "--listen",
            "127.0.0.1:99999");
    REFUSED(t, "10.1.2.3:29500: beyond this host", "driver", t->job, "--listen", "10.1.2.3");
    REFUSED(t, "10.1.2.3:29500: beyond this host", "train", t->job, "--listen", "10.1.2.3");
    REFUSED(t, "--join", "worker", "--data-root", ".");
    REFUSED(t, "there is no such folder", "worker", "--join", "127.0.0.1:1", "--data-root",
            "there is no such folder");
    REFUSED(t, "--threads", "worker", "--join", "127.0.0.1:1", "--threads", "0");
    REFUSED(t, "--wait", "driver", t->job, "--wait", "soon");
    port_find(address); /* there is no listener */
    process_start(&p, t->folder,
                  (const char *const[]){"worker", "--join", address, "--retry", "0.5", NULL});
    double since = process_now();
    process_wait(&p, REAL_LIMIT_S);
    assert_int_equal(p.code, 1);
    assert_true(process_now() - since > 0.4);
    assert_non_null(strstr(p.err, address));
    assert_non_null(strstr(p.err, "; it has tried for "));
    process_release(&p);
}

/* ---- data elsewhere ---- */

/* A folder next to the tiny job's, with a copy of its data in `sub`, or nothing. */
static void make_elsewhere(const struct tiny *t, char folder[96], const char *sub, bool data)
{
    char command[512];
    snprintf(folder, 96, "%s/elsewhere-XXXXXX", t->folder);
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "mkdir -p '%s/%s' && if %s; then cp '%s'/t*-* '%s/%s'; fi",
             folder, sub, data ? "true" : "false", t->folder, folder, sub);
    assert_int_equal(system(command), 0);
}

static void test_each_has_its_data_where_it_likes(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    char a[96], b[96];
    make_elsewhere(t, a, ".", true);
    make_elsewhere(t, b, "data", true);
    DRIVE(t, &m, "--set", "workers=3");
    WORKER(&m, "/", "--data-root", a); /* the net itself it is given by the driver */
    char inner[128];
    snprintf(inner, sizeof inner, "%s/data", b);
    WORKER(&m, b, "--data-root", "data");
    WORKER(&m, t->folder, "--threads", "2");
    real_end(&m.run, 0, "epochs");
    machines_end(&m, 0);
    machines_release(&m);
}

/* A worker whose data root is `root`, in a run of one: it leaves; both texts are in its message and
 * in the driver's, with its machine and the remedy; the run waits for another. */
static void expect_confined(struct tiny *t, const char *root, const char *phrase, const char *too,
                            const char *set)
{
    struct machines m;
    char node[160], host[64] = "";
    DRIVE(t, &m, "--set", "workers=1", "--set", "stop.epochs=1", "--set", set);
    struct process *p = WORKER(&m, "/", "--data-root", root);
    process_wait(p, REAL_LIMIT_S);
    print_message("    %s", strstr(p->err, "worker 0") ? strstr(p->err, "worker 0") : p->err);
    assert_int_equal(p->code, 2);
    assert_non_null(strstr(p->err, phrase));
    assert_non_null(strstr(p->err, too));
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    snprintf(node, sizeof node, "worker 0 (%s, 127.0.0.1:", host);
    UNTIL(REAL_LIMIT_S, machines_log(&m.run.p, "left while opening: "));
    assert_true(machines_log(&m.run.p, node) && machines_log(&m.run.p, phrase));
    assert_true(machines_log(&m.run.p, "or start the worker with another --data-root"));
    WORKER(&m, t->folder, NULL);
    real_end(&m.run, 0, "epochs");
    assert_int_equal(run_count(m.run.dir, "member", "what", "refused"), 1);
    machines_release(&m);
}

static void test_nothing_outside_of_the_root_is_opened(void **state)
{
    struct tiny *t = *state;
    char root[96], path[256], target[600], set[400];
    make_elsewhere(t, root, "in", true);
    static const char outside[] = "lies outside of the data root";
    /* An absolute path that exists, and is readable. */
    snprintf(path, sizeof path, "%s/elsewhere.labels", t->folder);
    snprintf(target, sizeof target, "cp '%s/train-labels' '%s'", t->folder, path);
    assert_int_equal(system(target), 0);
    char inner[128];
    snprintf(inner, sizeof inner, "%s/in", root);
    snprintf(set, sizeof set, "train_data.idx.labels=/etc/../%s", path);
    expect_confined(t, inner, outside, "train_data", set);
    /* Dots: the driver finds the file from its folder, the worker must not from its own. */
    snprintf(set, sizeof set, "train_data.idx.labels=../%s/train-labels", strrchr(t->folder, '/'));
    snprintf(target, sizeof target, "mkdir '%s%s' && cp '%s/train-labels' '%s%s'", root,
             strrchr(t->folder, '/'), t->folder, root, strrchr(t->folder, '/'));
    assert_int_equal(system(target), 0);
    expect_confined(t, inner, outside, "train-labels", set);
    /* A link that leads out. */
    snprintf(target, sizeof target, "%s/train-labels", inner);
    assert_int_equal(unlink(target), 0);
    assert_int_equal(symlink(path, target), 0);
    expect_confined(t, inner, outside, "train-labels", "seed=1");
}

/* A copy with as many records, of which one byte is another; and one with fewer records. */
static void test_other_data_is_refused_by_what_differs(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    char other[96], path[160];
    make_elsewhere(t, other, ".", true);
    snprintf(path, sizeof path, "%s/test-images", other);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0 && pwrite(fd, "\xff", 1, 4000) == 1);
    close(fd);
    DRIVE(t, &m, "--set", "workers=1", "--set", "stop.epochs=1");
    struct process *p = WORKER(&m, "/", "--data-root", other);
    process_wait(p, REAL_LIMIT_S);
    assert_int_equal(p->code, 2);
    print_message("    %s", p->err);
    assert_null(strstr(p->err, "peer lost")); /* the message ends with the cause */
    assert_non_null(strstr(p->err, "test_data has as many records on both sides, 120, with other "
                                   "contents"));
    assert_non_null(strstr(p->err, path)); /* both paths, and both ends */
    snprintf(path, sizeof path, "%s/test-images", t->folder);
    assert_non_null(strstr(p->err, path));
    UNTIL(REAL_LIMIT_S, machines_log(&m.run.p, "left while opening: other data: test_data has"));
    assert_true(machines_log(&m.run.p, ", 127.0.0.1:") && machines_log(&m.run.p, path));
    WORKER(&m, "/", "--data-root", t->folder); /* the run still waits for one that fits */
    real_end(&m.run, 0, "epochs");
    machines_release(&m);
}

/* ---- who can reach whom ---- */

static void test_a_worker_that_cannot_be_reached(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    char nowhere[32], both[256];
    port_find(nowhere);
    DRIVE(t, &m, "--set", "workers=2", "--set", "stop.epochs=1");
    double since = process_now();
    struct process *p = WORKER(&m, t->folder, "--advertise", nowhere);
    process_wait(p, REAL_LIMIT_S);
    print_message("    after %.2f s: %s", process_now() - since, p->err);
    assert_true(process_now() - since < 10);
    assert_int_not_equal(p->code, 0);
    snprintf(both, sizeof both,
             "the driver at %s cannot reach worker 0 at %s: cannot connect: ", m.join, nowhere);
    UNTIL(REAL_LIMIT_S, machines_log(&m.run.p, "left while opening: "));
    assert_true(machines_log(&m.run.p, both));
    assert_non_null(strstr(p->err, both));
    assert_non_null(strstr(p->err, "firewall"));
    assert_non_null(strstr(p->err, "--advertise"));
    WORKER(&m, t->folder, NULL); /* the run waits for others */
    WORKER(&m, t->folder, NULL);
    real_end(&m.run, 0, "epochs");
    machines_release(&m);
}

/* The driver takes workers of other machines, and one of its own has joined by loopback. */
static void test_a_worker_that_only_its_machine_reaches(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    char listen[32], near[32], any[32], key[160];
    tiny_key(t, key);
    port_find(near);
    snprintf(any, sizeof any, "0.0.0.0%s", strchr(near, ':'));
    DRIVE(t, &m, "--set", "workers=1", "--set", "stop.epochs=1", "--listen", any, "--key", key);
    snprintf(listen, sizeof listen, "%.31s", m.join);
    memcpy(m.join, near, sizeof near);
    struct process *p = WORKER(&m, t->folder, "--key", key);
    process_wait(p, REAL_LIMIT_S);
    print_message("    %s", p->err);
    assert_int_not_equal(p->code, 0);
    assert_non_null(strstr(p->err, "--join the driver's address on the network"));
    assert_non_null(strstr(p->err, any));
    memcpy(m.join, listen, sizeof listen);
    WORKER(&m, t->folder, "--key", key);
    real_end(&m.run, 0, "epochs");
    machines_release(&m);
}

/* One worker's data is missing and its service restarts it repeatedly: the run waits for another,
 * and ends, with the cause, if none comes; the cause is reported once. */
static void test_worker_that_reconnects_repeatedly(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    char empty[96];
    make_elsewhere(t, empty, ".", false);
    DRIVE(t, &m, "--set", "workers=1", "--wait", "3");
    for (int i = 0; i < 4; i++)
        process_wait(WORKER(&m, "/", "--data-root", empty), REAL_LIMIT_S);
    process_wait(&m.run.p, REAL_LIMIT_S);
    assert_int_equal(m.run.p.code, 1); /* not the driver's own input: started again, it may do */
    const char *once = strstr(m.run.p.err, "warning: worker ");
    assert_true(once && strstr(once, "No such file or directory"));
    assert_null(strstr(once + 1, "warning: worker "));
    assert_non_null(strstr(m.run.p.err, "no progress for 3 s: worker "));
    machines_release(&m);
}

/* All workers die: the driver waits for others, and the run resumes from its newest checkpoint. */
static void test_driver_that_has_lost_all_waits_for_others(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    DRIVE(t, &m, "--set", "workers=2", "--set", "stop.epochs=40", "--set",
          "checkpoint.every_seconds=0.2", "--set", "pace=0.005");
    for (int i = 0; i < 2; i++)
        WORKER(&m, t->folder, NULL);
    UNTIL(REAL_LIMIT_S, run_count(m.run.dir, "checkpoint", NULL, NULL) >= 2);
    for (int i = 0; i < 2; i++)
        kill(m.worker[i].pid, SIGKILL);
    UNTIL(REAL_LIMIT_S, machines_log(&m.run.p, "all workers are lost: the run waits for others"));
    assert_true(machines_log(&m.run.p, ") is lost: its connection has ended"));
    for (int i = 0; i < 2; i++)
        WORKER(&m, t->folder, NULL);
    real_end(&m.run, 0, "epochs");
    assert_int_equal(run_count(m.run.dir, "start", NULL, NULL), 2);
    assert_true(run_number(m.run.dir, "start", 1, "resumed_after") > 0);
    assert_int_equal(run_count(m.run.dir, "end", NULL, NULL), 1);
    machines_release(&m);
}

/* Something listens there, but it is none of ours. */
static void test_a_stranger_is_no_worker(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    char silent[32];
    int fd = listening_port(silent);
    DRIVE(t, &m, "--set", "workers=1");
    struct process *p = WORKER(&m, t->folder, "--advertise", silent);
    process_wait(p, REAL_LIMIT_S);
    assert_non_null(strstr(p->err, "connected, but no reply"));
    close(fd);
    machines_release(&m);
}

/* Without a connectivity check before the run (the stage does none), a member that others cannot
 * connect to is detected when they try, and removed; the others continue. */
static void test_a_member_that_others_cannot_reach(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    char nowhere[32];
    port_find(nowhere);
    machines_stage(
        t, &m,
        (const char *const[]){"workers=2", "pace=0.01", "strategy.allreduce={bucket_kb:1}", NULL});
    WORKER(&m, t->folder, "--advertise", nowhere, "--retry", "0");
    UNTIL(REAL_LIMIT_S, real_members(&m.run, "join") == 1);
    WORKER(&m, t->folder, "--retry", "0");
    UNTIL(20, real_members(&m.run, "cut") == 1);
    process_wait(&m.run.p, REAL_LIMIT_S);
    assert_int_equal(m.run.p.code, 0);
    assert_true(machines_log(&m.worker[1], nowhere));
    machines_release(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workers_started_by_hand),
        cmocka_unit_test(test_workers_come_before_their_driver),
        cmocka_unit_test(test_driver_listens_at_the_default_port),
        cmocka_unit_test(test_a_number_is_one_workers),
        cmocka_unit_test(test_an_interrupt_ends_it_as_it_ends_train),
        cmocka_unit_test(test_who_does_not_come),
        cmocka_unit_test(test_addresses_are_refused_by_name),
        cmocka_unit_test(test_each_has_its_data_where_it_likes),
        cmocka_unit_test(test_nothing_outside_of_the_root_is_opened),
        cmocka_unit_test(test_other_data_is_refused_by_what_differs),
        cmocka_unit_test(test_a_worker_that_cannot_be_reached),
        cmocka_unit_test(test_a_worker_that_only_its_machine_reaches),
        cmocka_unit_test(test_worker_that_reconnects_repeatedly),
        cmocka_unit_test(test_driver_that_has_lost_all_waits_for_others),
        cmocka_unit_test(test_a_stranger_is_no_worker),
        cmocka_unit_test(test_a_member_that_others_cannot_reach),
    };
    return cmocka_run_group_tests(tests, tiny_setup_elastic, tiny_teardown);
}
