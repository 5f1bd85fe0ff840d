/* The example of a worker confined by the kernel: it trains to the end of a run, and what an
 * intruder would do next is refused. */
#define _GNU_SOURCE /* fchmod */
#include "machines.h"

#include <sys/stat.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* their runtimes start processes and trace threads */
#else
#define SANITIZED 0
#endif

enum { NO_FILTER = 3 };

/* Skips the test where the kernel takes no filter. */
static void test_confined_worker_can_do_little(void **state)
{
    struct tiny *t = *state;
    struct process p;
    if (SANITIZED)
        skip();
    process_start_of(&p, "confined_worker", t->folder, (const char *const[]){"--try", NULL});
    process_wait(&p, REAL_LIMIT_S);
    int code = p.code;
    if (code != 0 && code != NO_FILTER)
        fail_msg("code %d: %s%s", code, p.out, p.err);
    if (code == 0)
        assert_string_equal(p.out, "start a program: refused\n"
                                   "start a process: refused\n"
                                   "trace a process: refused\n"
                                   "listen to raw packets: refused\n"
                                   "make a namespace: refused\n"
                                   "load a filter into the kernel: refused\n");
    process_release(&p);
    if (code == NO_FILTER)
        skip();
}

/* One worker is confined, one is not: both train to the end, with nothing missed. */
static void test_confined_worker_trains(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    char file[160];
    if (SANITIZED)
        skip();
    snprintf(file, sizeof file, "%s/key", t->folder);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs("0123456789abcdef0123456789abcdef\n", f);
    fchmod(fileno(f), S_IRUSR | S_IWUSR);
    fclose(f);
    DRIVE(t, &m, "--set", "workers=2", "--set", "stop.epochs=2", "--set", "strategy.allreduce={}",
          "--key", file);
    process_start_of(&m.worker[m.workers++], "confined_worker", t->folder,
                     (const char *const[]){m.join, t->folder, file, NULL});
    WORKER(&m, t->folder, "--key", file);
    process_wait(&m.worker[0], REAL_LIMIT_S);
    if (m.worker[0].code == NO_FILTER) {
        for (size_t i = 0; i < m.workers; i++)
            process_signal_all(&m.worker[i], SIGKILL);
        process_signal_all(&m.run.p, SIGKILL);
        machines_wait(&m);
        process_wait(&m.run.p, REAL_LIMIT_S);
        machines_release(&m);
        skip();
    }
    machines_end(&m, 0);
    real_end(&m.run, 0, "epochs");
    assert_true(run_number(m.run.dir, "end", 0, "missed") == 0);
    assert_true(run_number(m.run.dir, "end", 0, "workers") == 2);
    machines_release(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_confined_worker_can_do_little),
        cmocka_unit_test(test_confined_worker_trains),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
