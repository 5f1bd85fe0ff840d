/* A process with a failed assertion: the command ends with 70 and names the place; a worker leaves
 * its group, and the run continues without it. */
#include "paceline/run.h"
#include "tiny_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

enum { WORKERS = 3 };

struct stage {
    struct tiny tiny;
    pid_t pid[WORKERS];
    int dead; /* members that the driver saw die; at the end of a run it may see more that leave */
    int ended;
};

static const char command[] = TEST_BUILD "/paceline_breaks";

/* Run the command; `said` gets its stderr. The exit status, -1 when it did not exit. */
static int run_command(const struct tiny *t, const char *arguments, char text[2000])
{
    char line[1000], path[128];
    snprintf(path, sizeof path, "%s/said", t->folder);
    snprintf(line, sizeof line, "%s %s >/dev/null 2>%s", command, arguments, path);
    int status = system(line);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, 1999, f)] = '\0';
    fclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_the_command_ends_with_70(void **state)
{
    struct stage *s = *state;
    struct tiny *t = &s->tiny;
    char arguments[500], out[128], text[2000];
    tiny_cluster(t, "node { count: 4 } step_seconds: 0.004");
    snprintf(arguments, sizeof arguments, "bench step %s --steps 20", t->job);
    assert_int_equal(run_command(t, arguments, text), 70);
    assert_non_null(strstr(text, "breaks.c:"));
    assert_non_null(strstr(text, "!breaks does not hold"));
    assert_int_equal(run_command(t, arguments, text), 0); /* the file exists: no process is
                                                             chosen */
    unlink(getenv("PACELINE_BREAKS"));
    snprintf(arguments, sizeof arguments, "sim %s --cluster %s --out %s", t->job, t->cluster,
             tiny_out(t, out));
    assert_int_equal(run_command(t, arguments, text), 70);
    assert_non_null(strstr(text, "!breaks does not hold"));
}

static int start_workers(void *user, uint32_t count, const char *address)
{
    struct stage *s = user;
    for (uint32_t i = 0; i < count && i < WORKERS; i++) {
        s->pid[i] = fork();
        if (s->pid[i] < 0)
            return -1;
        if (s->pid[i] == 0) {
            execl(command, "paceline", "worker", "--join", address, (char *)NULL);
            _exit(127);
        }
    }
    return 0;
}

static void on_event(void *user, const char *line)
{
    struct stage *s = user;
    s->dead += strstr(line, "\"member\"") && strstr(line, "\"dead\"");
    s->ended += strstr(line, "\"end\"") != NULL;
}

/* The exit status of a worker; -1 when it was ended by a signal, or has to be. */
static int exit_status(pid_t pid)
{
    int status = -1;
    for (int i = 0; i < 1000 && waitpid(pid, &status, WNOHANG) == 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_a_run_survives_a_workers_mistake(void **state)
{
    struct stage *s = *state;
    pl_engine *engine;
    pl_job *job;
    pl_run_report report;
    char out[128];
    const pl_run_options options = {.size = sizeof options,
                                    .out = tiny_out(&s->tiny, out),
                                    .event = on_event,
                                    .user = s,
                                    .start_workers = start_workers};
    assert_int_equal(pl_engine_create(NULL, &engine), PL_OK);
    assert_int_equal(pl_job_load(engine, s->tiny.job, &job), PL_OK);
    assert_int_equal(pl_job_set(job, "workers=3"), PL_OK);
    int rc = pl_run(engine, job, &options, &report);
    if (rc != PL_OK)
        print_error("%s\n", pl_engine_error(engine));
    int with_bug = 0, done = 0;
    for (int i = 0; i < WORKERS; i++) {
        int status = exit_status(s->pid[i]);
        with_bug += status == 70;
        done += status == 0;
    }
    assert_int_equal(rc, PL_OK);
    assert_true(s->dead >= 1);
    assert_int_equal(s->ended, 1);
    assert_true(report.epochs >= 3);
    assert_int_equal(with_bug, 1);
    assert_int_equal(done, WORKERS - 1);
    pl_job_free(job);
    pl_engine_destroy(engine);
}

static int setup(void **state)
{
    static struct stage stage;
    char path[128];
    tiny_create(&stage.tiny);
    snprintf(path, sizeof path, "%s/broken", stage.tiny.folder);
    *state = &stage;
    return setenv("PACELINE_BREAKS", path, 1);
}

static int forget_break(void **state)
{
    (void)state;
    unlink(getenv("PACELINE_BREAKS"));
    return 0;
}

static int teardown(void **state)
{
    struct stage *s = *state;
    tiny_remove(&s->tiny);
    return 0;
}

int main(void)
{
    /* The memory of an unwound call is leaked, and reported: under the address sanitizer the
     * commands that this starts must not end with that status instead of 70. */
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_the_command_ends_with_70, forget_break),
        cmocka_unit_test_setup(test_a_run_survives_a_workers_mistake, forget_break),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
