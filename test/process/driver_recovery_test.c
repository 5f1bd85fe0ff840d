/* A real driver that is killed and restarted: its workers keep their state, and the run resumes
 * from it within two seconds. */
#include "machines.h"

#include <fcntl.h>

/* From the start of a driver to its first exchange. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RECOVERY_MAX_S 15.0
#else
#define RECOVERY_MAX_S 2.0
#endif

/* In which a worker calls four addresses, of which one never replies. */
#define ROUND_MAX_S 3.0

enum { WORKERS = 3, DEATHS = 4, LEASE_MAX = 11 * 16 /* samples: a share of an epoch */ };

struct cast {
    struct tiny *t;
    char at[32];
    struct machines m;
    bool saves; /* workers have the run's directory */
    int silent; /* workers that reported a lost driver */
};

enum death { FIRST, SECOND_RUN, TAKES_OVER };

static void start_driver(struct cast *c, const char *strategy, const char *epochs, enum death death)
{
    /* Asynchronous gradients with momentum 0.9 diverge here. Downpour takes plain steps, longer
     * ones: it has to learn within the few epochs. */
    bool plain = strstr(strategy, "downpour");
    const char *momentum = plain                     ? "solver.momentum=0"
                           : strstr(strategy, "ps=") ? "solver.momentum=0.5"
                                                     : "solver.momentum=0.9";
    const char *argv[] = {"driver",
                          c->t->job,
                          "--listen",
                          c->at,
                          "--out",
                          c->m.run.dir,
                          "--json",
                          "--set",
                          "workers=3",
                          "--set",
                          "pace=0.01",
                          "--set",
                          "heartbeat=lan",
                          "--set",
                          "checkpoint.every_seconds=0.3",
                          "--set",
                          momentum,
                          "--set",
                          plain ? "solver.base_lr=0.1" : "solver.base_lr=0.05",
                          "--set",
                          strategy,
                          "--set",
                          epochs,
                          death != FIRST ? "--resume" : NULL,
                          death == TAKES_OVER ? "--take-over" : NULL,
                          NULL};
    process_start(&c->m.run.p, c->t->folder, argv);
}

/* Workers connect to it at these addresses. */
static void begin_at(struct cast *c, const char *strategy, const char *epochs, const char *retry,
                     const char *places)
{
    start_driver(c, strategy, epochs, FIRST);
    snprintf(c->m.join, sizeof c->m.join, "%s", places);
    for (int i = 0; i < WORKERS && c->saves; i++)
        WORKER(&c->m, c->t->folder, "--retry", retry, "--run-directory", c->m.run.dir);
    for (int i = 0; i < WORKERS && !c->saves; i++)
        WORKER(&c->m, c->t->folder, "--retry", retry);
    UNTIL(REAL_LIMIT_S, process_poll(&c->m.run.p) || real_exchanges(&c->m.run) >= 5);
}

static void begin_cast(struct cast *c, struct tiny *t, const char *strategy, const char *epochs,
                       const char *retry)
{
    *c = (struct cast){.t = t, .m.run = real_new(t)};
    port_find(c->at);
    begin_at(c, strategy, epochs, retry, c->at);
}

static void kill_driver(struct cast *c)
{
    kill(c->m.run.p.pid, SIGKILL);
    process_wait(&c->m.run.p, REAL_LIMIT_S);
    process_release(&c->m.run.p);
}

static void all_end_well(struct cast *c)
{
    real_end(&c->m.run, 0, "epochs");
    machines_end(&c->m, 0);
    for (int i = 0; i < WORKERS; i++)
        c->silent += machines_log(&c->m.worker[i], "the driver is silent");
    machines_release(&c->m);
}

/* If the driver dies between two grants, and only the later one arrives, the samples of the earlier
 * one are missed (docs/KNOWN-ISSUES.md). Strategies without leases miss none. */
static bool has_leases(const char *strategy)
{
    static const char *const leased[] = {"mpca=", "pace=",    "easgd={tau",
                                         "ps={}", "downpour", "gossip"};
    for (size_t i = 0; i < sizeof leased / sizeof *leased; i++)
        if (strstr(strategy, leased[i]))
            return true;
    return false;
}

/* A worker that is a leaf when the driver dies, as on a busy machine, joins the next one as a new
 * worker. */
static bool has_leaves(const char *strategy)
{
    return strstr(strategy, "mpca=") || strstr(strategy, "pace=");
}

static int count_returned(const struct real_run *run)
{
    return real_members(run, "back") + real_members(run, "join") - WORKERS;
}

static void dies_and_recovers(struct tiny *t, const char *strategy)
{
    struct cast c;
    double longest = 0;
    begin_cast(&c, t, strategy, "stop.epochs=30", "30");
    for (int i = 0; i < DEATHS; i++) {
        int reported = real_exchanges(&c.m.run);
        UNTIL(REAL_LIMIT_S, real_exchanges(&c.m.run) >= reported + 3);
        kill_driver(&c);
        reported = real_exchanges(&c.m.run);
        process_nap(0.1);
        double started = process_now();
        start_driver(&c, strategy, "stop.epochs=30", SECOND_RUN);
        UNTIL(REAL_LIMIT_S, real_exchanges(&c.m.run) > reported);
        double took = process_now() - started;
        longest = took > longest ? took : longest;
        /* Asynchronous workers exchange before all are back. */
        UNTIL(REAL_LIMIT_S, count_returned(&c.m.run) >= WORKERS * (i + 1));
        assert_int_equal(count_returned(&c.m.run), WORKERS * (i + 1));
    }
    print_message("    %s: trains again after %.3f s at most\n", strategy, longest);
    assert_true(longest < RECOVERY_MAX_S);
    all_end_well(&c);
    assert_true(has_leaves(strategy) || real_members(&c.m.run, "join") == WORKERS);
    assert_true(has_leaves(strategy) || run_changes(c.m.run.dir) == WORKERS * (1 + DEATHS));
    double missed = run_number(c.m.run.dir, "end", 0, "missed");
    if (missed > (has_leases(strategy) ? DEATHS * LEASE_MAX : 0))
        fail_msg("%s: %g samples are missed (%s)", strategy, missed, c.m.run.dir);
    double place = run_number(c.m.run.dir, "end", 0, "epochs") * (TINY_TRAIN - 60);
    double used = run_number(c.m.run.dir, "end", 0, "used");
    double repeated = run_number(c.m.run.dir, "end", 0, "repeated");
    if (used > place + 0.5 || place > used + repeated + 0.5)
        fail_msg("%s: at %g, %g used, %g repeated (%s)", strategy, place, used, repeated,
                 c.m.run.dir);
    double error = run_number(c.m.run.dir, "end", 0, "test_error");
    if (error >= 0.3)
        fail_msg("%s: ends with an error of %g", strategy, error);
}

/* Two workers that cannot take part find the driver that has returned before those that it waits
 * for: their trouble is theirs, and the run continues. */
static void test_bad_workers_come_before_the_others_are_back(void **state)
{
    struct cast c;
    struct machines bad = {.workers = 0};
    char other[128], command[480];
    struct tiny *t = *state;
    begin_cast(&c, t, "strategy.allreduce={}", "stop.epochs=20", "30");
    snprintf(other, sizeof other, "%s/other", t->folder);
    snprintf(command, sizeof command, "mkdir -p '%s/none' && cp '%s'/t*-* '%s'", other, t->folder,
             other);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "%s/test-images", other);
    int fd = open(command, O_WRONLY);
    assert_true(fd >= 0 && pwrite(fd, "\xff", 1, 4000) == 1);
    close(fd);
    kill_driver(&c);
    for (int i = 0; i < WORKERS; i++)
        kill(c.m.worker[i].pid, SIGSTOP);
    char none[160];
    snprintf(none, sizeof none, "%s/none", other);
    memcpy(bad.join, c.at, sizeof c.at);
    WORKER(&bad, t->folder, "--data-root", none);
    WORKER(&bad, t->folder, "--data-root", other);
    start_driver(&c, "strategy.allreduce={}", "stop.epochs=20", SECOND_RUN);
    machines_end(&bad, 2);
    for (int i = 0; i < WORKERS; i++)
        kill(c.m.worker[i].pid, SIGCONT);
    all_end_well(&c);
    assert_int_equal(run_count(c.m.run.dir, "member", "what", "refused"), 2);
    assert_non_null(strstr(bad.worker[0].err, "No such file or directory"));
    assert_non_null(strstr(bad.worker[1].err, "other contents"));
    machines_release(&bad);
}

/* The driver restarts as on another machine, at another address that workers know, and then at the
 * first again. The last address has no listener. */
static void test_driver_returns_elsewhere(void **state)
{
    struct cast c = {.t = *state, .m.run = real_new(*state)};
    char places[2][PORT_TEXT], mute[PORT_TEXT], all[128];
    int silent = port_mute(mute);
    port_find(places[0]);
    port_find(places[1]);
    snprintf(all, sizeof all, "%s,%s,%s,127.0.0.1:9", places[0], mute, places[1]);
    memcpy(c.at, places[0], sizeof c.at);
    begin_at(&c, "strategy.sync={tau:4}", "stop.epochs=30", "30", all);
    for (int i = 0; i < DEATHS; i++) {
        kill_driver(&c);
        int reported = real_exchanges(&c.m.run);
        memcpy(c.at, places[(i + 1) % 2], sizeof c.at);
        double started = process_now();
        start_driver(&c, "strategy.sync={tau:4}", "stop.epochs=30", SECOND_RUN);
        UNTIL(REAL_LIMIT_S, real_exchanges(&c.m.run) > reported);
        assert_true(process_now() - started < ROUND_MAX_S + RECOVERY_MAX_S);
    }
    all_end_well(&c);
    assert_int_equal(real_members(&c.m.run, "join"), WORKERS);
    assert_int_equal(real_members(&c.m.run, "back"), WORKERS * DEATHS);
    close(silent);
}

static void test_driver_dies_and_returns(void **state)
{
    dies_and_recovers(*state, "strategy.sync={tau:4}");
    dies_and_recovers(*state, "strategy.allreduce={}");
    dies_and_recovers(*state, "strategy.diloco={tau:4}");
    dies_and_recovers(*state, "strategy.mpca={coordination:symmetric}");
    dies_and_recovers(*state, "strategy.mpca={}");
    dies_and_recovers(*state, "strategy.pace={coordination:symmetric}");
    dies_and_recovers(*state, "strategy.pace={}");
    dies_and_recovers(*state, "strategy.easgd={mode:sync tau:4}");
    dies_and_recovers(*state, "strategy.easgd={tau:4}");
    dies_and_recovers(*state, "strategy.ps={}");
    dies_and_recovers(*state, "strategy.ps={consistency:bsp}");
    dies_and_recovers(*state, "strategy.downpour={n_push:4 n_fetch:4}");
}

/* A driver that is stopped for a moment keeps its workers; workers of a silent one reconnect, and
 * succeed when it has been killed and restarted. */
static void test_it_stands_still(void **state)
{
    struct cast c;
    begin_cast(&c, *state, "strategy.allreduce={}", "stop.epochs=60", "30");
    kill(c.m.run.p.pid, SIGSTOP);
    process_nap(1.5);
    kill(c.m.run.p.pid, SIGCONT);
    int reported = real_exchanges(&c.m.run);
    UNTIL(REAL_LIMIT_S, real_exchanges(&c.m.run) > reported + 3);
    assert_int_equal(run_count(c.m.run.dir, "member", NULL, NULL), WORKERS);
    kill(c.m.run.p.pid, SIGSTOP);
    for (int i = 0; i < WORKERS; i++)
        UNTIL(REAL_LIMIT_S, machines_log(&c.m.worker[i], "the driver is silent"));
    kill_driver(&c);
    start_driver(&c, "strategy.allreduce={}", "stop.epochs=60", SECOND_RUN);
    all_end_well(&c);
    assert_int_equal(c.silent, WORKERS);
    assert_int_equal(real_members(&c.m.run, "back"), WORKERS);
    assert_true(run_number(c.m.run.dir, "end", 0, "missed") == 0);
}

/* No worker waits for ever. */
static void test_it_does_not_come_back(void **state)
{
    struct cast c;
    begin_cast(&c, *state, "strategy.allreduce={}", "stop.epochs=10000", "1");
    kill_driver(&c);
    double killed = process_now();
    machines_wait(&c.m);
    for (int i = 0; i < WORKERS; i++) {
        assert_int_not_equal(c.m.worker[i].code, 0);
        assert_non_null(strstr(c.m.worker[i].err, "it has not returned in 1 s"));
    }
    machines_release(&c.m);
    double took = process_now() - killed;
    print_message("    they ended after %.3f s\n", took);
    assert_true(took > 0.9 && took < 6);
}

static int logged_by_workers(const struct cast *c, const char *line)
{
    int n = 0;
    for (int k = 0; k < WORKERS; k++)
        n += machines_log(&c->m.worker[k], line);
    return n;
}

/* The driver dies, and its workers end: when it has not returned in time, or, where they leave,
 * when they are told. Returns the exchanges that it has reported. */
static int lose_driver(struct cast *c, struct tiny *t, const char *strategy, const char *epochs,
                       bool leave)
{
    *c = (struct cast){.t = t, .m.run = real_new(t), .saves = true};
    port_find(c->at);
    begin_at(c, strategy, epochs, leave ? "30" : "1", c->at);
    kill_driver(c);
    int reported = real_exchanges(&c->m.run);
    for (int k = 0; k < WORKERS && leave; k++)
        UNTIL(REAL_LIMIT_S, machines_log(&c->m.worker[k], "this worker resumes without it"));
    for (int k = 0; k < WORKERS && leave; k++)
        kill(c->m.worker[k].pid, SIGTERM);
    machines_wait(&c->m);
    return reported;
}

/* Another driver, with workers of its own, takes the run to its end. */
static void resume_without(struct cast *c, const char *strategy, const char *epochs)
{
    machines_release(&c->m);
    c->m.workers = 0;
    start_driver(c, strategy, epochs, SECOND_RUN);
    for (int k = 0; k < WORKERS; k++)
        WORKER(&c->m, c->t->folder, "--retry", "10");
    real_end(&c->m.run, 0, "epochs");
    machines_end(&c->m, 0);
    double error = run_number(c->m.run.dir, "end", 0, "test_error");
    if (error >= 0.3)
        fail_msg("%s: ends with an error of %g in %s", strategy, error, c->m.run.dir);
}

/* Workers whose driver does not return leave a checkpoint of what they have trained without it. */
static void test_workers_save_a_checkpoint(void **state)
{
    static const char *const strategies[] = {"strategy.allreduce={}", "strategy.sync={tau:4}",
                                             "strategy.diloco={tau:4}"};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        struct cast c;
        int before = lose_driver(&c, *state, strategies[i], "stop.epochs=30", false);
        int saved = logged_by_workers(&c, "the driver is lost: checkpoint of exchange");
        if (saved != 1)
            fail_msg("%s: %d checkpoints; %s", strategies[i], saved, c.m.worker[0].err);
        resume_without(&c, strategies[i], "stop.epochs=30");
        double from = run_number(c.m.run.dir, "start", 1, "resumed_after");
        print_message("    %s: exchange %d reported, resumed after %g\n", strategies[i], before,
                      from);
        bool needs_driver = strstr(strategies[i], "sync"); /* to exchange */
        assert_true(needs_driver ? from >= before : from > before + 5);
        assert_true(run_number(c.m.run.dir, "end", 0, "missed") == 0);
        double place = run_number(c.m.run.dir, "end", 0, "epochs") * (TINY_TRAIN - 60);
        assert_true(fabs(run_number(c.m.run.dir, "end", 0, "used") - place) < 0.5);
        machines_release(&c.m);
    }
}

#define FEW_EPOCHS "stop.epochs=15"

/* Of a strategy with leases each leaves its report, and one or more that are as far the model. */
static void leave_reports(struct cast *c, struct tiny *t, const char *strategy, bool leave)
{
    lose_driver(c, t, strategy, FEW_EPOCHS, leave);
    int reports = logged_by_workers(c, "the driver is lost: recovery report written to");
    int models = logged_by_workers(c, "the driver is lost: global model of version");
    if (reports != WORKERS || models < 1)
        fail_msg("%s: %d reports, %d models; %s", strategy, reports, models, c->m.worker[0].err);
}

/* Every sample that was trained on is used or repeated. Grants that were on their way when the
 * driver died are missed; `missed`: at most so many samples are. */
static void check_books(const struct cast *c, const char *strategy, double missed_max)
{
    double place = run_number(c->m.run.dir, "end", 0, "epochs") * (TINY_TRAIN - 60);
    double used = run_number(c->m.run.dir, "end", 0, "used");
    double repeated = run_number(c->m.run.dir, "end", 0, "repeated");
    double missed = run_number(c->m.run.dir, "end", 0, "missed");
    print_message("    %s: at %g, %g used, %g repeated, %g missed\n", strategy, place, used,
                  repeated, missed);
    if (used > place + 0.5 || place > used + repeated + 0.5 || missed > missed_max)
        fail_msg("%s: at %g, %g used, %g repeated, %g missed (%s)", strategy, place, used, repeated,
                 missed, c->m.run.dir);
}

static void resume_from_reports(struct tiny *t, const char *strategy, bool leave)
{
    struct cast c;
    leave_reports(&c, t, strategy, leave);
    int reported = real_exchanges(&c.m.run);
    resume_without(&c, strategy, FEW_EPOCHS);
    double from = run_number(c.m.run.dir, "start", 1, "resumed_after");
    print_message("    %s: %d exchanges reported, resumed after %g\n", strategy, reported, from);
    assert_true(from >= reported);
    check_books(&c, strategy, WORKERS * LEASE_MAX); /* a grant to each was on its way */
    machines_release(&c.m);
}

static void test_leased_workers_leave_their_reports(void **state)
{
    resume_from_reports(*state, "strategy.mpca={}", true);
    resume_from_reports(*state, "strategy.mpca={coordination:symmetric}", false);
    resume_from_reports(*state, "strategy.gossip={}", true);
    resume_from_reports(*state, "strategy.easgd={tau:4}", false);
    resume_from_reports(*state, "strategy.ps={consistency:bsp}", false);
    resume_from_reports(*state, "strategy.ps={colocated:true}", false);
    resume_from_reports(*state, "strategy.downpour={n_push:4 n_fetch:4}", false);
}

/* Cut these files of the workers to some bytes. */
static void cut_files(const struct cast *c, const char *pattern)
{
    char command[480];
    snprintf(command, sizeof command, "truncate -s 100 '%s'/recovery/%s", c->m.run.dir, pattern);
    assert_int_equal(system(command), 0);
}

/* A worker whose report can be damaged without the loss of the only model. */
static int worker_without_model(const struct cast *c)
{
    char path[256];
    for (int node = 0; node < WORKERS; node++) {
        snprintf(path, sizeof path, "%s/recovery/1-%d.safetensors", c->m.run.dir, node);
        if (access(path, F_OK) != 0)
            return node;
    }
    return 0;
}

/* A worker died with the driver, or its report is damaged: the others' reports are taken, and its
 * samples count as missed. Without any model the run goes back to the newest checkpoint. */
static void test_reports_are_missing(void **state)
{
    struct cast c;
    const char *strategy = "strategy.mpca={}";
    leave_reports(&c, *state, strategy, false);
    int reported = real_exchanges(&c.m.run), node = worker_without_model(&c);
    char report[16], damaged[64], missing[64];
    snprintf(report, sizeof report, "1-%d", node);
    snprintf(damaged, sizeof damaged, "recovery/%s: is no whole report of a worker", report);
    snprintf(missing, sizeof missing, "worker %d has left no report", node);
    cut_files(&c, report);
    resume_without(&c, strategy, FEW_EPOCHS);
    assert_non_null(strstr(c.m.run.p.err, damaged));
    assert_non_null(strstr(c.m.run.p.err, missing));
    assert_non_null(strstr(c.m.run.p.err, "2 of the last driver's 3 workers left their reports"));
    check_books(&c, strategy, 15 * (TINY_TRAIN - 60));
    machines_release(&c.m);

    leave_reports(&c, *state, strategy, false);
    reported = real_exchanges(&c.m.run);
    cut_files(&c, "*.safetensors");
    resume_without(&c, strategy, FEW_EPOCHS);
    assert_non_null(strstr(c.m.run.p.err, "left reports, but no model to resume from"));
    assert_true(real_exchanges(&c.m.run) > reported);
    check_books(&c, strategy, 0);
    machines_release(&c.m);
}

/* Two drivers on one run directory: the later one is the run's, and the other finds it out before
 * it writes again. */
static void test_a_driver_that_was_replaced_ends(void **state)
{
    struct cast c, later = {.t = *state};
    begin_cast(&c, *state, "strategy.allreduce={}", "stop.epochs=100000", "1");
    snprintf(later.m.run.dir, sizeof later.m.run.dir, "%s", c.m.run.dir);
    port_find(later.at);
    start_driver(&later, "strategy.allreduce={}", "stop.epochs=100000", TAKES_OVER);
    process_wait(&c.m.run.p, REAL_LIMIT_S);
    assert_int_not_equal(c.m.run.p.code, 0);
    assert_non_null(strstr(c.m.run.p.err, "a later driver has taken this run over"));
    assert_int_equal(run_count(c.m.run.dir, "end", NULL, NULL), 0); /* it continues */
    assert_null(strstr(c.m.run.p.err, "paceline resume"));
    process_release(&c.m.run.p);
    process_signal_all(&later.m.run.p, SIGKILL);
    process_wait(&later.m.run.p, REAL_LIMIT_S);
    process_release(&later.m.run.p);
    machines_wait(&c.m);
    machines_release(&c.m);
}

/* A recovered driver that is interrupted before all of its workers have returned releases none:
 * their state is newer than any checkpoint, and the next driver resumes from it. */
static void test_it_is_interrupted_before_all_are_back(void **state)
{
    struct cast c;
    begin_cast(&c, *state, "strategy.sync={tau:4}", "stop.epochs=100000", "30");
    kill_driver(&c);
    kill(c.m.worker[2].pid, SIGSTOP); /* it does not return for now */
    int reported = real_exchanges(&c.m.run);
    start_driver(&c, "strategy.sync={tau:4}", "stop.epochs=100000", SECOND_RUN);
    UNTIL(REAL_LIMIT_S, machines_log(&c.m.worker[0], "the driver is back") &&
                            machines_log(&c.m.worker[1], "the driver is back"));
    process_nap(0.1); /* their messages arrive */
    assert_int_equal(real_members(&c.m.run, "back"), 0);
    kill(c.m.run.p.pid, SIGINT);
    process_wait(&c.m.run.p, REAL_LIMIT_S);
    assert_int_equal(c.m.run.p.code, 130);
    process_release(&c.m.run.p);
    kill(c.m.worker[2].pid, SIGCONT);
    start_driver(&c, "strategy.sync={tau:4}", "stop.epochs=100000", SECOND_RUN);
    UNTIL(REAL_LIMIT_S, process_poll(&c.m.run.p) || real_exchanges(&c.m.run) > reported);
    assert_true(real_members(&c.m.run, "back") >= 2);
    kill(c.m.run.p.pid, SIGINT);
    real_end(&c.m.run, 130, "interrupted");
    machines_release(&c.m);
}

/* Two drivers take the run over at the same moment: one gets the run, and the other ends, with or
 * without workers. */
static void test_two_take_it_up(void **state)
{
    struct cast c, other = {.t = *state};
    begin_cast(&c, *state, "strategy.allreduce={}", "stop.epochs=100000", "1");
    kill_driver(&c);
    snprintf(other.m.run.dir, sizeof other.m.run.dir, "%s", c.m.run.dir);
    port_find(other.at);
    start_driver(&c, "strategy.allreduce={}", "stop.epochs=100000", TAKES_OVER);
    start_driver(&other, "strategy.allreduce={}", "stop.epochs=100000", TAKES_OVER);
    UNTIL(REAL_LIMIT_S, process_poll(&c.m.run.p) + process_poll(&other.m.run.p) > 0);
    process_nap(1.5);
    struct process *p[2] = {&c.m.run.p, &other.m.run.p};
    bool first = process_poll(p[0]);
    if (first == process_poll(p[1]))
        fail_msg("one said:\n%s\nthe other:\n%s", p[0]->err, p[1]->err);
    assert_int_not_equal(p[!first]->code, 0);
    assert_non_null(strstr(p[!first]->err, "a later driver has taken this run over"));
    process_signal_all(p[first], SIGKILL);
    process_wait(p[first], REAL_LIMIT_S);
    process_release(p[0]);
    process_release(p[1]);
    machines_wait(&c.m);
    machines_release(&c.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_driver_dies_and_returns),
        cmocka_unit_test(test_bad_workers_come_before_the_others_are_back),
        cmocka_unit_test(test_driver_returns_elsewhere),
        cmocka_unit_test(test_it_stands_still),
        cmocka_unit_test(test_it_does_not_come_back),
        cmocka_unit_test(test_workers_save_a_checkpoint),
        cmocka_unit_test(test_leased_workers_leave_their_reports),
        cmocka_unit_test(test_reports_are_missing),
        cmocka_unit_test(test_a_driver_that_was_replaced_ends),
        cmocka_unit_test(test_it_is_interrupted_before_all_are_back),
        cmocka_unit_test(test_two_take_it_up),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
