/* Workers that are workers on other people's machines: held to a rate, nice, paused and resumed. */
#include "machines.h"

#include <ctype.h>

/* A net of two megabytes, for images as the tiny job has them. */
static const char wide_net[] =
    "name: 'wide'\n"
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
    "layer { name: 'ip1' type: 'InnerProduct' bottom: 'data' top: 'ip1'\n"
    "  inner_product_param { num_output: 3500 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'ip1' top: 'ip1' }\n"
    "layer { name: 'ip2' type: 'InnerProduct' bottom: 'ip1' top: 'ip2'\n"
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip2' bottom: 'label' top: 'loss' }\n";

#define MBIT      10.0
#define HEADERS   (1514.0 / 1448)
#define REMOTE_S  20.0
#define MODEL_MB  ((3500 * 145 + 3 * 3501) * 4 / 1e6)
#define EXCHANGES 2 /* at least, of those that fit into that time */

/* Seconds of a process's computation, and the thread with most of it. */
struct use {
    double all, most;
    int nice;        /* of that thread */
    int nice_of[64]; /* of each */
    int threads;
};

static bool read_thread(const char *path, double *seconds, int *nice)
{
    char text[1024];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *after = strrchr(text, ')');
    unsigned long user, kernel;
    long prio, value;
    if (!after || sscanf(after + 1,
                         " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d "
                         "%ld %ld",
                         &user, &kernel, &prio, &value) != 4)
        return false;
    *seconds = (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
    *nice = (int)value;
    return true;
}

static struct use use_of(pid_t pid)
{
    struct use use = {.all = 0, .most = -1};
    char path[128];
    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    DIR *tasks = opendir(path);
    assert_non_null(tasks);
    for (const struct dirent *entry; (entry = readdir(tasks));) {
        double seconds;
        int nice;
        snprintf(path, sizeof path, "/proc/%ld/task/%.20s/stat", (long)pid, entry->d_name);
        if (!isdigit((unsigned char)entry->d_name[0]) || use.threads == 64 ||
            !read_thread(path, &seconds, &nice))
            continue;
        use.nice_of[use.threads++] = nice;
        use.all += seconds;
        if (seconds > use.most) {
            use.most = seconds;
            use.nice = nice;
        }
    }
    closedir(tasks);
    return use;
}

static int count_nice(const struct use *use, int nice)
{
    int n = 0;
    for (int i = 0; i < use->threads; i++)
        n += use->nice_of[i] == nice;
    return n;
}

/* All traffic of the four is limited to 10 Mbit/s each way, with the heartbeats of a fast LAN: none
 * is late. In a ring of four each sends three halves of the model, and waits for its input, so the
 * rate is not reached (real/real_pace_test.c measures where it is). */
static void test_a_rate_costs_no_worker_its_place(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    tiny_write(t, "wide.prototxt", wide_net);
    DRIVE(t, &m, "--set", "net={file: 'wide.prototxt'}", "--set", "workers=4", "--set",
          "heartbeat=lan", "--set", "stop.epochs=100000", "--set", "evaluate.every_exchanges=1000",
          "--set", "strategy.allreduce={bucket_kb:0}", "--set", "checkpoint.every_seconds=0");
    for (int i = 0; i < 4; i++)
        WORKER(&m, t->folder, "--max-mbit", "10", "--threads", "1");
    UNTIL(REAL_LIMIT_S, real_exchanges(&m.run) >= EXCHANGES);
    int first = real_exchanges(&m.run);
    double since = run_number(m.run.dir, "exchange", first - 1, "t");
    process_nap(REMOTE_S);
    int last = real_exchanges(&m.run);
    double took = run_number(m.run.dir, "exchange", last - 1, "t") - since;
    double bytes = run_number(m.run.dir, "exchange", last - 1, "bytes");
    /* `bytes` is the sum of bytes sent and received by all. */
    double mbit = (last - first) * bytes / 4 / 2 * 8 * HEADERS / 1e6 / took;
    print_message("    %d exchanges in %.2f s: %.2f Mbit/s each way of a worker, %.0f bytes\n",
                  last - first, took, mbit, bytes);
    assert_true(bytes > 4 * MODEL_MB * 1e6);
    assert_true(mbit < 1.05 * MBIT && mbit > 0.2 * MBIT);
    kill(m.run.p.pid, SIGINT);
    real_end(&m.run, 130, "interrupted");
    assert_int_equal(real_members(&m.run, "join"), 4);
    assert_int_equal(run_count(m.run.dir, "member", NULL, NULL), 4); /* and nothing else */
    machines_end(&m, 0);
    machines_release(&m);
}

static void test_what_computes_is_nice(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    DRIVE(t, &m, "--set", "workers=2", "--set", "stop.epochs=100000");
    struct process *nice = WORKER(&m, t->folder, "--nice", "7", "--threads", "2");
    struct process *plain = WORKER(&m, t->folder, "--threads", "1");
    UNTIL(REAL_LIMIT_S, real_exchanges(&m.run) >= 3 && use_of(nice->pid).most > 0.3);
    struct use use = use_of(nice->pid), other = use_of(plain->pid);
    print_message("    %d threads, %d of them nice\n", use.threads, count_nice(&use, 7));
    assert_int_equal(use.nice, other.nice + 7); /* the thread that does the work */
    /* The caller's own, the I/O thread, the listener and the heart. */
    assert_int_equal(count_nice(&use, 0), 4);
    int readers = count_nice(&use, 12); /* they read data ahead */
    assert_true(readers >= 1 && count_nice(&use, 7) >= 1);
    assert_int_equal(count_nice(&use, 7) + readers, use.threads - 4);
    assert_true(count_nice(&other, 5) >= 1);
    assert_int_equal(count_nice(&other, 0) + count_nice(&other, 5), other.threads);
    kill(m.run.p.pid, SIGINT);
    real_end(&m.run, 130, "interrupted");
    machines_end(&m, 0);
    machines_release(&m);
}

/* Twice, since the second time it is another incarnation; nothing is lost with it, and while it
 * waits it does nothing. */
static void test_a_pause(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    DRIVE(t, &m, "--set", "workers_min=2", "--set", "workers_max=3", "--set", "pace=0.01", "--set",
          "stop.epochs=100000");
    for (int i = 0; i < 3; i++)
        WORKER(&m, t->folder, "--threads", "1", "--nice", i == 1 ? "3" : "0");
    struct process *p = &m.worker[1];
    UNTIL(REAL_LIMIT_S, real_members(&m.run, "join") == 3 && real_exchanges(&m.run) >= 3);
    for (int i = 0; i < 2; i++) {
        kill(p->pid, SIGUSR1);
        UNTIL(REAL_LIMIT_S, real_members(&m.run, "leave") == i + 1);
        UNTIL(REAL_LIMIT_S, use_of(p->pid).threads == 1); /* it holds nothing any more */
        struct use before = use_of(p->pid);
        int then = real_exchanges(&m.run);
        process_nap(1);
        struct use after = use_of(p->pid);
        assert_true(after.all - before.all < 0.05);
        assert_true(real_exchanges(&m.run) > then); /* the others continue */
        assert_true(!process_poll(p));
        kill(p->pid, SIGUSR2);
        UNTIL(REAL_LIMIT_S, real_members(&m.run, "join") == 4 + i);
        then = real_exchanges(&m.run);
        UNTIL(REAL_LIMIT_S, real_exchanges(&m.run) > then + 3);
    }
    kill(p->pid, SIGUSR1);
    UNTIL(REAL_LIMIT_S, real_members(&m.run, "leave") == 3 && use_of(p->pid).threads == 1);
    kill(p->pid, SIGTERM); /* it may go for good from there */
    process_wait(p, REAL_LIMIT_S);
    assert_int_equal(p->code, 0);
    kill(m.run.p.pid, SIGINT);
    real_end(&m.run, 130, "interrupted");
    assert_int_equal(real_members(&m.run, "dead") + real_members(&m.run, "cut"), 0);
    assert_true(run_number(m.run.dir, "end", 0, "missed") == 0);
    machines_end(&m, 0);
    machines_release(&m);
}

/* A waiting worker, which was never a member, leaves on request. */
static void test_a_standby_pauses(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    DRIVE(t, &m, "--set", "workers_min=1", "--set", "workers_max=1", "--set", "pace=0.01", "--set",
          "stop.epochs=100000");
    WORKER(&m, t->folder, "--threads", "1");
    UNTIL(REAL_LIMIT_S, real_exchanges(&m.run) >= 1 || real_members(&m.run, "join") == 1);
    struct process *p = WORKER(&m, t->folder, "--threads", "1");
    UNTIL(REAL_LIMIT_S, machines_log(&m.run.p, "worker 1 is at"));
    kill(p->pid, SIGUSR1);
    UNTIL(REAL_LIMIT_S,
          machines_log(p, "waits until it is resumed") && use_of(p->pid).threads == 1);
    kill(p->pid, SIGUSR2);
    UNTIL(REAL_LIMIT_S, machines_log(&m.run.p, "worker 2 is at"));
    kill(p->pid, SIGTERM);
    process_wait(p, REAL_LIMIT_S);
    assert_int_equal(p->code, 0);
    kill(m.run.p.pid, SIGINT);
    real_end(&m.run, 130, "interrupted");
    machines_end(&m, 0);
    machines_release(&m);
}

static void want_workers(const struct tiny *t, const char *number)
{
    tiny_write((struct tiny *)(uintptr_t)t, "how-many", number);
}

/* A worker that the run does not need now waits, and joins again when it does. */
static void test_as_many_as_a_file_names(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    char path[128];
    snprintf(path, sizeof path, "%s/how-many", t->folder);
    DRIVE(t, &m, "--set", "workers_min=1", "--set", "workers_max=3", "--set", "pace=0.01", "--set",
          "stop.epochs=100000", "--workers-file", path);
    for (int i = 0; i < 3; i++)
        WORKER(&m, t->folder, "--threads", "1");
    UNTIL(REAL_LIMIT_S, real_members(&m.run, "join") == 3 && real_exchanges(&m.run) >= 3);
    want_workers(t, "1\n");
    UNTIL(REAL_LIMIT_S, real_members(&m.run, "leave") == 2);
    process_nap(1);
    assert_int_equal(real_members(&m.run, "join"), 3); /* they stand by */
    want_workers(t, "not a number\n");
    process_nap(1.5);
    assert_int_equal(real_members(&m.run, "join"), 3);
    want_workers(t, "2\n");
    UNTIL(REAL_LIMIT_S, real_members(&m.run, "join") == 4);
    process_nap(1);
    assert_int_equal(real_members(&m.run, "join"), 4);
    want_workers(t, "0\n"); /* as many as may be */
    UNTIL(REAL_LIMIT_S, real_members(&m.run, "join") == 5);
    kill(m.run.p.pid, SIGINT);
    real_end(&m.run, 130, "interrupted");
    assert_int_equal(run_count(m.run.dir, "member", NULL, NULL), 7);
    assert_true(run_number(m.run.dir, "end", 0, "missed") == 0);
    machines_end(&m, 0);
    machines_release(&m);
}

/* A step takes minutes, and nothing is exchanged meanwhile. */
static void test_workers_file_is_read_while_nothing_commits(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    char path[128];
    snprintf(path, sizeof path, "%s/how-many", t->folder);
    want_workers(t, "3\n");
    DRIVE(t, &m, "--set", "workers_min=1", "--set", "workers_max=3", "--set", "pace=300",
          "--workers-file", path);
    WORKER(&m, t->folder, "--threads", "1", "--retry", "0");
    UNTIL(REAL_LIMIT_S, machines_log(&m.run.p, "3 workers wanted from now on, of 1"));
    want_workers(t, "2\n");
    UNTIL(REAL_LIMIT_S, machines_log(&m.run.p, "2 workers wanted from now on, of 1"));
    assert_int_equal(real_exchanges(&m.run), 0);
    kill(m.run.p.pid, SIGKILL);
    kill(m.worker[0].pid, SIGKILL);
    process_wait(&m.run.p, REAL_LIMIT_S);
    process_wait(&m.worker[0], REAL_LIMIT_S);
    machines_release(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_computes_is_nice),
        cmocka_unit_test(test_a_pause),
        cmocka_unit_test(test_a_standby_pauses),
        cmocka_unit_test(test_as_many_as_a_file_names),
        cmocka_unit_test(test_workers_file_is_read_while_nothing_commits),
        cmocka_unit_test(test_a_rate_costs_no_worker_its_place),
    };
    return cmocka_run_group_tests(tests, tiny_setup_elastic, tiny_teardown);
}
