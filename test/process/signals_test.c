/* Signals that end a run, or one worker's part in it, as a terminal, a service manager or another
 * program sends them: no model is lost, and the messages are true. */
#include "machines.h"

static bool has_file(const struct real_run *r, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    return access(path, F_OK) == 0;
}

/* systemd and Slurm send SIGTERM to the driver and all of its workers. */
static void test_sigterm_to_all_keeps_the_model(void **state)
{
    struct tiny *t = *state;
    static const char *const strategies[] = {
        "strategy.ps={consistency:asp}",
        "strategy.gossip={p:0.3}",
        "strategy.mpca={}",
        "strategy.easgd={tau:4}",
        "strategy.sync={tau:4}",
        "strategy.allreduce={}",
        "strategy.pace={}",
    };
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        struct real_run r = real_new(t);
        START(t, &r, "--set", strategies[i], "--set", "solver.momentum=0", "--set",
              "stop.epochs=1000000", "--set", "heartbeat=lan");
        UNTIL(REAL_LIMIT_S, process_poll(&r.p) || run_count(r.dir, "loss", NULL, NULL) >= 1);
        process_signal_all(&r.p, SIGTERM);
        process_wait(&r.p, REAL_LIMIT_S);
        if (r.p.code != 130)
            fail_msg("%s: code %d; it said:\n%s", strategies[i], r.p.code, r.p.err);
        if (!has_file(&r, "final.safetensors"))
            fail_msg("%s: no model is kept; it said:\n%s", strategies[i], r.p.err);
        assert_int_equal(run_count(r.dir, "end", "reason", "interrupted"), 1);
        assert_int_equal(real_members(&r, "dead") + real_members(&r, "cut"), 0);
        process_release(&r.p);
    }
}

/* The only worker of a driver sends its model and leaves; the driver waits for another, which
 * resumes from it. */
static void test_the_only_worker_leaves(void **state)
{
    struct tiny *t = *state;
    static const char *const strategies[] = {"strategy.sync={tau:4}", "strategy.gossip={p:0.3}",
                                             "strategy.single={}"};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        struct machines m;
        DRIVE(t, &m, "--set", strategies[i], "--set", "workers=1", "--set", "pace=0.002", "--set",
              "stop.epochs=1000000");
        struct process *p = WORKER(&m, t->folder, NULL);
        UNTIL(REAL_LIMIT_S, run_count(m.run.dir, "loss", NULL, NULL) >= 1);
        kill(p->pid, SIGINT);
        process_wait(p, REAL_LIMIT_S);
        if (p->code != 0)
            fail_msg("%s: %s", strategies[i], p->err);
        assert_true(machines_log(p, "joined the run "));
        assert_true(machines_log(p, "leaving at the next commit point; again: at once"));
        assert_true(machines_log(p, "left the run "));
        UNTIL(REAL_LIMIT_S, machines_log(&m.run.p, "all workers have left: the run waits for"));
        UNTIL(REAL_LIMIT_S, run_count(m.run.dir, "checkpoint", NULL, NULL) == 1);
        int before = run_count(m.run.dir, "loss", NULL, NULL);
        p = WORKER(&m, t->folder, NULL);
        UNTIL(REAL_LIMIT_S, run_count(m.run.dir, "loss", NULL, NULL) > before);
        kill(m.run.p.pid, SIGINT);
        real_end(&m.run, 130, "interrupted");
        assert_int_equal(run_count(m.run.dir, "end", NULL, NULL), 1);
        assert_true(run_number(m.run.dir, "end", 0, "missed") == 0);
        process_wait(p, REAL_LIMIT_S);
        assert_true(machines_log(p, "is over after "));
        assert_true(machines_log(p, ": it was interrupted"));
        machines_release(&m);
    }
}

/* A run of rounds that last for minutes: Ctrl-C reports the state that is or will be saved; the
 * second one ends the run, with or without --quiet, and the command prints how to continue. */
static void test_messages_at_ctrl_c(void **state)
{
    struct tiny *t = *state;
    for (int quiet = 0; quiet < 2; quiet++) {
        struct real_run r = real_new(t);
        START(t, &r, "--set", "strategy.sync.tau=100000", "--set", "pace=0.01", "--set",
              "stop.epochs=100000", quiet ? "--quiet" : "--progress", quiet ? NULL : "1");
        UNTIL(REAL_LIMIT_S, process_poll(&r.p) || real_members(&r, "join") == 4);
        process_nap(0.5);
        process_signal_all(&r.p, SIGINT);
        UNTIL(REAL_LIMIT_S, machines_log(&r.p, "stopping at the next commit point"));
        assert_true(machines_log(&r.p, "again: stop now, keep the initial model"));
        process_nap(0.4); /* else both are taken for one wish */
        process_signal_all(&r.p, SIGINT);
        real_end(&r, 130, "interrupted");
        const char *now = strstr(r.p.err, "stopping now\n");
        assert_true(now && strstr(now, "kept the initial model, since no exchange had been made"));
        assert_true(quiet || strstr(now, "resume with: paceline resume "));
        assert_null(strstr(r.p.err, "state of exchange"));
        process_release(&r.p);
    }
}

/* timeout(1) sends its signal to the command, and at once to the command's group. */
static void test_signals_that_come_together_are_one_wish(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    START(t, &r, "--set", "strategy.sync={tau:40}", "--set", "pace=0.01", "--set",
          "stop.epochs=100000");
    UNTIL(REAL_LIMIT_S, process_poll(&r.p) || real_exchanges(&r) >= 1);
    kill(r.p.pid, SIGTERM);
    process_nap(0.03);
    kill(r.p.pid, SIGTERM);
    real_end(&r, 130, "interrupted");
    assert_null(strstr(r.p.err, "stopping now"));
    assert_true(has_file(&r, "final.safetensors"));
    process_release(&r.p);
}

/* All workers die at once: the model that the driver holds is kept, and the run can be continued
 * with. */
static void test_death_of_all_keeps_what_the_driver_has(void **state)
{
    struct tiny *t = *state;
    static const char *const strategies[] = {"strategy.sync={tau:5}", "strategy.mpca={}",
                                             "strategy.pace={}"};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        struct real_run r = real_new(t);
        pid_t worker[PROCESS_CHILDREN_MAX];
        char path[3][512];
        START(t, &r, "--set", strategies[i], "--set", "pace=0.001", "--set", "stop.epochs=1000000");
        real_workers(&r, 4, worker);
        UNTIL(REAL_LIMIT_S, process_poll(&r.p) || run_count(r.dir, "loss", NULL, NULL) >= 1);
        for (int k = 0; k < 4; k++)
            kill(worker[k], SIGKILL);
        process_wait(&r.p, REAL_LIMIT_S);
        assert_int_equal(r.p.code, 1);
        if (run_checkpoints(r.dir, path) != 1 || !strstr(r.p.err, "resume with: paceline resume "))
            fail_msg("%s: nothing is kept; it said:\n%s", strategies[i], r.p.err);
        assert_int_equal(run_count(r.dir, "end", "reason", "failed"), 1);
        process_release(&r.p);
    }
}

/* Started as by nohup, or by a script with `&`: those signals are ignored. */
static void test_signals_ignored_at_the_start_stay_so(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    START(t, &r, "--set", "pace=0.005");
    signal(SIGHUP, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    UNTIL(REAL_LIMIT_S, process_poll(&r.p) || real_exchanges(&r) >= 1);
    process_signal_all(&r.p, SIGHUP);
    process_signal_all(&r.p, SIGINT);
    real_end(&r, 0, "epochs");
    process_release(&r.p);
}

/* Its output has no reader any more: the run continues to its end. */
static void test_stderr_without_a_reader(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    int end[2];
    char command[1024];
    assert_int_equal(pipe(end), 0);
    snprintf(command, sizeof command,
             "exec '%s/paceline' train '%s' --out '%s' --progress 0.05 >/dev/null 2>&%d",
             TEST_BUILD, t->job, r.dir, end[1]);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(end[0]);
        if (chdir(t->folder) == 0)
            execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(126);
    }
    close(end[0]);
    close(end[1]);
    int status;
    assert_true(waitpid(pid, &status, 0) == pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(run_count(r.dir, "end", "reason", "epochs"), 1);
}

/* A file of the run must not get the number of a closed standard stream. */
static void test_closed_standard_streams(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    char command[1024];
    snprintf(command, sizeof command, "cd '%s' && '%s/paceline' train '%s' --out '%s' <&- >&- 2>&-",
             t->folder, TEST_BUILD, t->job, r.dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(run_count(r.dir, "end", "reason", "epochs"), 1);
}

/* A worker that waits for a driver has no commit point; Ctrl-C still ends it. */
static void test_a_worker_without_a_driver_leaves(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char address[32];
    port_find(address);
    process_start(&p, t->folder, (const char *const[]){"worker", "--join", address, NULL});
    UNTIL(REAL_LIMIT_S, machines_log(&p, "it tries again"));
    kill(p.pid, SIGHUP);
    process_wait(&p, REAL_LIMIT_S);
    assert_int_equal(p.code, 0);
    assert_true(machines_log(&p, "leaving; again: at once"));
    assert_false(machines_log(&p, "commit point"));
    process_release(&p);
}

/* The driver waits for workers after some have trained: an interrupt saves the state. */
static void test_interrupt_while_it_waits_for_others(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    DRIVE(t, &m, "--set", "workers=2", "--set", "pace=0.002", "--set", "stop.epochs=1000000");
    for (int i = 0; i < 2; i++)
        WORKER(&m, t->folder, NULL);
    UNTIL(REAL_LIMIT_S, run_count(m.run.dir, "loss", NULL, NULL) >= 1);
    for (int i = 0; i < 2; i++)
        kill(m.worker[i].pid, SIGKILL);
    UNTIL(REAL_LIMIT_S, machines_log(&m.run.p, "the run waits for others"));
    UNTIL(REAL_LIMIT_S, run_count(m.run.dir, "start", NULL, NULL) == 2);
    kill(m.run.p.pid, SIGINT);
    process_wait(&m.run.p, REAL_LIMIT_S);
    assert_int_equal(m.run.p.code, 130);
    assert_true(machines_log(&m.run.p, "interrupted before training continued; the state of"));
    assert_true(machines_log(&m.run.p, "resume with: paceline resume "));
    assert_int_equal(run_count(m.run.dir, "end", "reason", "interrupted"), 1);
    machines_release(&m);
}

/* Does a process have a handler for that signal? */
static bool catches_signal(pid_t pid, int number)
{
    char path[64], line[256];
    unsigned long long caught = 0;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "SigCgt:", 7) == 0)
            caught = strtoull(line + 7, NULL, 16);
    if (f)
        fclose(f);
    return caught >> (number - 1) & 1;
}

/* As soon as it hears of signals, which is long before the first step: it ends as interrupted, and
 * no worker complains. On a busy machine a worker may start when the driver has ended already, and
 * says that it tries again. */
static void test_interrupt_while_it_opens(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    START(t, &r, "--set", "stop.epochs=1000000");
    UNTIL(REAL_LIMIT_S, process_poll(&r.p) || catches_signal(r.p.pid, SIGINT));
    kill(r.p.pid, SIGINT);
    process_wait(&r.p, REAL_LIMIT_S);
    assert_int_equal(r.p.code, 130);
    if (strstr(r.p.err, "warning") && !strstr(r.p.err, "tries again"))
        fail_msg("it said:\n%s", r.p.err);
    assert_non_null(strstr(r.p.err, "interrupted"));
    process_release(&r.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sigterm_to_all_keeps_the_model),
        cmocka_unit_test(test_the_only_worker_leaves),
        cmocka_unit_test(test_messages_at_ctrl_c),
        cmocka_unit_test(test_signals_that_come_together_are_one_wish),
        cmocka_unit_test(test_death_of_all_keeps_what_the_driver_has),
        cmocka_unit_test(test_signals_ignored_at_the_start_stay_so),
        cmocka_unit_test(test_stderr_without_a_reader),
        cmocka_unit_test(test_closed_standard_streams),
        cmocka_unit_test(test_a_worker_without_a_driver_leaves),
        cmocka_unit_test(test_interrupt_while_it_opens),
        cmocka_unit_test(test_interrupt_while_it_waits_for_others),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
