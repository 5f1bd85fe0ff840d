/* Workers started by Open MPI's mpirun. One of four is killed: with --enable-recovery the others
 * train on; without it mpirun ends them all, so docs/several-machines.md requires it. */
#include "machines.h"

static bool has_mpirun(void)
{
    if (system("mpirun --version 2>/dev/null | grep -q 'Open MPI'") == 0)
        return true;
    print_message("    skipped: no mpirun of Open MPI here (apt-get install openmpi-bin)\n");
    return false;
}

/* mpirun with four workers as its ranks. */
static void start_ranks(const struct tiny *t, struct process *p, const char *join, bool recovers,
                        pid_t rank[PROCESS_CHILDREN_MAX])
{
    char command[512];
    snprintf(command, sizeof command,
             "cd '%s' && exec mpirun %s --oversubscribe %s -n 4 %s/paceline worker --join %s "
             "--threads 1 --retry 1",
             t->folder, getuid() == 0 ? "--allow-run-as-root" : "",
             recovers ? "--enable-recovery" : "", TEST_BUILD, join);
    *p = (struct process){.out_fd = process_capture(), .err_fd = process_capture()};
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0) {
        setpgid(0, 0);
        if (dup2(p->out_fd, STDOUT_FILENO) >= 0 && dup2(p->err_fd, STDERR_FILENO) >= 0)
            execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(126);
    }
    setpgid(p->pid, p->pid);
    UNTIL(REAL_LIMIT_S, process_poll(p) || process_children(p->pid, rank) == 4);
    if (p->ended)
        fail_msg("mpirun has ended: %s", p->err);
}

static void test_one_rank_of_four_dies(void **state)
{
    struct tiny *t = *state;
    if (!has_mpirun())
        skip();
    for (int recovers = 0; recovers < 2; recovers++) {
        struct machines m;
        struct process mpi;
        pid_t rank[PROCESS_CHILDREN_MAX];
        DRIVE(t, &m, "--set", "workers=4", "--set", "pace=0.01", "--set", "stop.epochs=60", "--set",
              "patience_seconds=3");
        start_ranks(t, &mpi, m.join, recovers == 1, rank);
        UNTIL(REAL_LIMIT_S, real_exchanges(&m.run) >= 5);
        kill(rank[2], SIGKILL);
        UNTIL(REAL_LIMIT_S, real_members(&m.run, "dead") >= 1);
        if (recovers)
            real_end(&m.run, 0, "epochs");
        else
            process_wait(&m.run.p, REAL_LIMIT_S);
        process_wait(&mpi, REAL_LIMIT_S);
        int gone = run_count(m.run.dir, "member", NULL, NULL) - 4;
        print_message("    %s: %d workers lost, driver %d, mpirun %d\n",
                      recovers ? "--enable-recovery" : "without it", gone, m.run.p.code, mpi.code);
        /* Without it mpirun asks the others to end: some leave in order, or all together. */
        assert_true(recovers ? gone == 1 && mpi.code == 0 : gone >= 1 && gone <= 4);
        assert_true(recovers || (m.run.p.code == 1 && strstr(m.run.p.err, "waits for others")));
        process_release(&mpi);
        machines_release(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_rank_of_four_dies)};
    return cmocka_run_group_tests(tests, tiny_setup_elastic, tiny_teardown);
}
