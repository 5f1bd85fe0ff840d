/* A mistake of ours ends the call and poisons its engine, whatever the call was doing, and nothing
 * else. Memory that such a call holds is lost, so each test runs in a process of its own. */
#include "api/guard.h"

#include "api/api.h"
#include "nn/net.h"
#include "paceline/bench.h"
#include "paceline/sim.h"
#include "tiny_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/wait.h>

#include <cmocka.h>

/* In a story: continue only if. */
#define CHECK(condition)     \
    do {                     \
        if (!(condition))    \
            return __LINE__; \
    } while (0)

/* The linker puts these around the begin of a training pass. */
void __real_net_begin_forward(struct net *net, const struct vec *x, struct vec *s,
                              const struct net_batch *batch);
void __wrap_net_begin_forward(struct net *net, const struct vec *x, struct vec *s,
                              const struct net_batch *batch);

static atomic_int good_passes = 1000000;

void __wrap_net_begin_forward(struct net *net, const struct vec *x, struct vec *s,
                              const struct net_batch *batch)
{
    PL_ASSERT(atomic_fetch_sub(&good_passes, 1) > 0);
    __real_net_begin_forward(net, x, s, batch);
}

struct stage {
    struct tiny tiny;
    pl_engine *engine, *other;
    pl_job *job;
    pl_cluster *cluster;
    atomic_int errors; /* lines logged as errors */
    int events, bad_event;
    bool elsewhere; /* the bad event's mistake is made on the other engine */
};

static void on_log(void *user, pl_log_level level, const char *line)
{
    struct stage *s = user;
    if (level == PL_LOG_ERROR && strstr(line, " does not hold"))
        atomic_fetch_add(&s->errors, 1);
}

static int set_stage(struct stage *s)
{
    const pl_engine_options options = {
        .size = sizeof options, .log = on_log, .user = s, .log_level = PL_LOG_INFO};
    tiny_cluster(&s->tiny, "node { count: 4 } step_seconds: 0.004");
    CHECK(pl_engine_create(&options, &s->engine) == PL_OK);
    CHECK(pl_engine_create(NULL, &s->other) == PL_OK);
    CHECK(pl_job_load(s->engine, s->tiny.job, &s->job) == PL_OK);
    CHECK(pl_job_set(s->job, "stop.epochs=0.5") == PL_OK);
    CHECK(pl_cluster_load(s->engine, s->tiny.cluster, &s->cluster) == PL_OK);
    return 0;
}

static bool message_has(const pl_engine *engine, const char *text)
{
    const char *error = pl_engine_error(engine);
    bool found = strstr(error, "guard_test.c:") && strstr(error, text);
    if (!found)
        print_error("%s\n", error);
    return found;
}

/* The engine returns the error at every call; another works; both can be destroyed. */
static int only_this_engine(struct stage *s, const char *text)
{
    pl_job *job = NULL;
    pl_run_report run;
    pl_bench_step_report bench;
    CHECK(atomic_load(&s->errors) == 1);
    CHECK(message_has(s->engine, text));
    atomic_store(&good_passes, 1000000);
    CHECK(pl_job_set(s->job, "no such field") == PL_ERR_BUG && message_has(s->engine, text));
    CHECK(pl_job_create(s->engine, &job) == PL_ERR_BUG && !job);
    CHECK(pl_bench_step(s->engine, s->job, NULL, &bench) == PL_ERR_BUG);
    CHECK(pl_sim(s->engine, s->job, s->cluster, NULL, &run) == PL_ERR_BUG);
    CHECK(pl_run(s->engine, s->job, NULL, &run) == PL_ERR_BUG);
    CHECK(pl_work(s->engine, &(pl_work_options){.size = sizeof(pl_work_options),
                                                .driver = "127.0.0.1:1"}) == PL_ERR_BUG);
    CHECK(message_has(s->engine, text) && atomic_load(&s->errors) == 1);
    pl_cluster_free(s->cluster);
    pl_job_free(s->job);
    pl_engine_destroy(s->engine);
    CHECK(pl_job_load(s->other, s->tiny.job, &job) == PL_OK);
    CHECK(pl_bench_step(s->other, job,
                        &(pl_bench_options){.size = sizeof(pl_bench_options), .steps = 10},
                        &bench) == PL_OK);
    pl_bench_step_release(&bench);
    pl_job_free(job);
    pl_engine_destroy(s->other);
    return 0;
}

static void are_distinct(int (*story)(struct stage *s))
{
    struct stage s = {0};
    tiny_create(&s.tiny);
    pid_t pid = fork();
    if (pid == 0) {
        int line = set_stage(&s);
        line = line ? line : story(&s);
        if (line)
            print_error("line %d\n", line);
        _exit(line != 0);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    tiny_remove(&s.tiny);
    assert_int_equal(status, 0);
}

/* ---- a call ---- */

static int five = 5;

static int wrong_sum(void)
{
    PL_ASSERT(2 + 2 == five);
    return PL_OK;
}

static int call_engine(pl_engine *engine)
{
    RETURN_GUARDED(engine, wrong_sum());
}

static int a_call(struct stage *s)
{
    struct fault_sink mine = {NULL};
    fault_bind(&mine);
    CHECK(call_engine(s->engine) == PL_ERR_BUG);
    CHECK(fault_bind(NULL) == &mine);
    return only_this_engine(s, "2 + 2 == five does not hold");
}

static void test_a_call_is_ended(void **state)
{
    (void)state;
    are_distinct(a_call);
}

static int bench_engine(struct stage *s)
{
    pl_bench_step_report report = {.median_ms = -1};
    atomic_store(&good_passes, 5);
    CHECK(pl_bench_step(s->engine, s->job, NULL, &report) == PL_ERR_BUG);
    CHECK(report.median_ms == -1);
    return only_this_engine(s, "good_passes");
}

static void test_a_measurement_is_ended(void **state)
{
    (void)state;
    are_distinct(bench_engine);
}

/* ---- a simulation and a run ---- */

static void on_event(void *user, const char *line)
{
    (void)line;
    struct stage *s = user;
    if (++s->events != s->bad_event)
        return;
    if (s->elsewhere)
        call_engine(s->other);
    else
        PL_ASSERT(s->events < s->bad_event);
}

static int simulate_engine(struct stage *s, bool threads)
{
    char out[128];
    pl_run_report report;
    const pl_sim_options options = {.size = sizeof options,
                                    .run = &(pl_run_options){.size = sizeof(pl_run_options),
                                                             .out = tiny_out(&s->tiny, out),
                                                             .event = on_event,
                                                             .user = s},
                                    .threads = threads};
    return pl_sim(s->engine, s->job, s->cluster, &options, &report);
}

static int sim_worker(struct stage *s)
{
    atomic_store(&good_passes, 10);
    CHECK(simulate_engine(s, false) == PL_ERR_BUG);
    return only_this_engine(s, "good_passes");
}

static int sim_worker_on_threads(struct stage *s)
{
    atomic_store(&good_passes, 10);
    CHECK(simulate_engine(s, true) == PL_ERR_BUG);
    return only_this_engine(s, "good_passes");
}

static int sim_driver(struct stage *s)
{
    s->bad_event = 3;
    CHECK(simulate_engine(s, false) == PL_ERR_BUG);
    return only_this_engine(s, "s->events < s->bad_event");
}

static void test_a_simulation_is_ended(void **state)
{
    (void)state;
    are_distinct(sim_worker);
    are_distinct(sim_worker_on_threads);
    are_distinct(sim_driver);
}

/* In a callback, on another engine: the simulation continues. */
static int another_engine(struct stage *s)
{
    pl_job *job;
    s->bad_event = 3;
    s->elsewhere = true;
    CHECK(simulate_engine(s, false) == PL_OK && s->events > 3);
    CHECK(pl_job_create(s->other, &job) == PL_ERR_BUG);
    CHECK(message_has(s->other, "2 + 2 == five"));
    CHECK(simulate_engine(s, true) == PL_OK);
    return 0;
}

static void test_engines_do_not_share_a_mistake(void **state)
{
    (void)state;
    are_distinct(another_engine);
}

static int run_engine(struct stage *s)
{
    char out[128];
    pl_run_report report;
    const pl_run_options options = {
        .size = sizeof options, .out = tiny_out(&s->tiny, out), .event = on_event, .user = s};
    s->bad_event = 1;
    CHECK(pl_run(s->engine, s->job, &options, &report) == PL_ERR_BUG);
    return only_this_engine(s, "s->events < s->bad_event");
}

static void test_a_run_is_ended(void **state)
{
    (void)state;
    are_distinct(run_engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_call_is_ended),
        cmocka_unit_test(test_a_measurement_is_ended),
        cmocka_unit_test(test_a_simulation_is_ended),
        cmocka_unit_test(test_engines_do_not_share_a_mistake),
        cmocka_unit_test(test_a_run_is_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
