/* Whole runs in simulation, through the public library: determinism by seed, and the effect of
 * faults and delays on the events. */
#include "sim_run.h"
#include "sweep_stride.h"

static const char calm[] = "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }\n";

static const char rough[] =
    "node { count: 3 } node { speed: 0.5 jitter: 0.1 } step_seconds: 0.004\n"
    "link { mbit: 100 latency_us: 200 loss: 0.001 }\n"
    "fault { at: 0.05 slow: 1 factor: 3 for: 0.1 }\n"
    "fault { at: 0.12 kill: 2 }\n";

/* Every event of a run, in one text. */
struct record {
    char *text;
    size_t len;
    FILE *stream;
    pl_run_report report;
};

static void on_event(void *user, const char *line)
{
    struct record *r = user;
    fprintf(r->stream, "%s\n", line);
}

static void simulate_on(bool threads, struct tiny *t, const char *cluster, const char *const *set,
                        struct record *r)
{
    *r = (struct record){0};
    r->stream = open_memstream(&r->text, &r->len);
    struct sim_run run = {.threads = threads, .run = {.event = on_event, .user = r}};
    sim_do(t, cluster, &run, set);
    r->report = run.report;
    fclose(r->stream);
}

static void simulate_job(struct tiny *t, const char *cluster, const char *const *set,
                         struct record *r)
{
    simulate_on(false, t, cluster, set, r);
}

static void forget_record(struct record *r)
{
    free(r->text);
}

/* How many events of a kind (with `key` equal to `value`, when given) there are. */
static int count_events(const struct record *r, const char *kind, const char *key,
                        const char *value)
{
    int n = 0;
    for (const char *line = r->text; *line; line = strchr(line, '\n') + 1) {
        cJSON *event = cJSON_Parse(line);
        const char *k = cJSON_GetStringValue(cJSON_GetObjectItem(event, "kind"));
        const char *v = key ? cJSON_GetStringValue(cJSON_GetObjectItem(event, key)) : NULL;
        n += strcmp(k, kind) == 0 && (!key || (v && strcmp(v, value) == 0));
        cJSON_Delete(event);
    }
    return n;
}

/* A number of exchange n's event. */
static double exchange_number(const struct record *r, int n, const char *key)
{
    double found = -100;
    for (const char *line = r->text; *line; line = strchr(line, '\n') + 1) {
        cJSON *event = cJSON_Parse(line);
        const char *k = cJSON_GetStringValue(cJSON_GetObjectItem(event, "kind"));
        const cJSON *at = cJSON_GetObjectItem(event, "n"), *value = cJSON_GetObjectItem(event, key);
        if (strcmp(k, "exchange") == 0 && (int)at->valuedouble == n && value)
            found = value->valuedouble;
        cJSON_Delete(event);
    }
    return found;
}

/* The progress line of a run, second by second. */
struct lines {
    int count, with_loss;
    double first_loss; /* when */
};

static void on_progress(void *user, const pl_progress *p)
{
    struct lines *lines = user;
    lines->count++;
    if (p->steps == 0)
        return;
    if (lines->with_loss++ == 0)
        lines->first_loss = p->t;
    assert_true(p->loss > 0);
}

/* Twenty steps of half a second take ten seconds: the user gets progress before. */
static void test_lone_worker_reports_long_steps_every_second(void **state)
{
    struct lines lines = {0};
    struct sim_run r = {.run = {.progress = on_progress, .user = &lines}};
    SIM(*state, "node { count: 1 } step_seconds: 0.5\n", &r, "strategy={single {}}", "workers=1",
        "stop={steps: 19}");
    assert_true(lines.with_loss >= 7 && lines.count <= 40);
    assert_true(lines.first_loss < 2.1);
}

static void test_a_seed_is_a_run(void **state)
{
    struct tiny *t = *state;
    static const char *const seed7[] = {"seed=7", NULL}, *const seed8[] = {"seed=8", NULL};
    struct record a, b, c;
    simulate_job(t, rough, seed7, &a);
    simulate_job(t, rough, seed7, &b);
    simulate_job(t, rough, seed8, &c);
    assert_string_equal(a.text, b.text);
    assert_true(a.report.test_error != c.report.test_error ||
                a.report.test_loss != c.report.test_loss);
    assert_true(a.report.test_error < 0.2);
    forget_record(&a);
    forget_record(&b);
    forget_record(&c);
}

/* Also for both that carry tasks: fibres, and threads of which one runs at a time. */
static void test_a_run_is_identical_for_both_back_ends(void **state)
{
    struct tiny *t = *state;
    static const char *const jobs[][4] = {
        {"seed=7", NULL},
        {"seed=8", "strategy.allreduce={}", "stop.epochs=1", NULL},
        {"seed=9", "threads=2", "stop.epochs=1", NULL},
        {"seed=9", "kernels=dnnl", "stop.epochs=1", NULL},
    };
    for (int j = 0; j < 4; j++) {
        struct record fibres, threads;
        simulate_on(false, t, rough, jobs[j], &fibres);
        simulate_on(true, t, rough, jobs[j], &threads);
        assert_string_equal(fibres.text, threads.text);
        assert_memory_equal(&fibres.report.test_loss, &threads.report.test_loss, sizeof(double));
        forget_record(&fibres);
        forget_record(&threads);
    }
}

/* The events after the first, which contains a worker's number of threads. */
static const char *after_start(const struct record *r)
{
    assert_int_equal(strncmp(r->text, "{\"t\":0,\"kind\":\"start\"", 21), 0);
    return strchr(r->text, '\n');
}

static void test_reference_kernels_do_not_see_threads(void **state)
{
    struct tiny *t = *state;
    static const char *const one[] = {"threads=1", NULL}, *const two[] = {"threads=2", NULL};
    struct record a, b;
    simulate_job(t, calm, one, &a);
    simulate_job(t, calm, two, &b);
    assert_string_equal(after_start(&a), after_start(&b));
    forget_record(&a);
    forget_record(&b);
}

static void test_every_fault_of_the_file_is_an_event(void **state)
{
    struct tiny *t = *state;
    static const char *const none[] = {NULL};
    struct record r;
    simulate_job(t, rough, none, &r);
    assert_int_equal(count_events(&r, "fault", "what", "slow"), 1);
    assert_int_equal(count_events(&r, "fault", "what", "slow ends"), 1);
    assert_int_equal(count_events(&r, "fault", "what", "kill"), 1);
    assert_int_equal(count_events(&r, "member", "what", "dead"), 1);
    assert_true(r.report.missed > 0);
    assert_true(r.report.epochs >= 3);
    forget_record(&r);
}

/* Four workers and the driver make a tree of five ranks: worker 1 forwards to worker 2, which has
 * no children, so the last piece on that path is the last message of the exchange for the worker
 * that has waited longest. */
static void test_a_delay_is_waited_for_exactly(void **state)
{
    struct tiny *t = *state;
    static const char *const none[] = {NULL};
    struct record without, with;
    simulate_job(t, calm, none, &without);
    uint64_t pieces = 3; /* of 560 floats, 256 each; with the header four messages an exchange */
    char text[512];
    snprintf(text, sizeof text,
             "%s delay { from: 1 to: 2 tag: 'broadcast' seconds: 0.25 nth: %llu }", calm,
             (unsigned long long)(2 * (pieces + 1) + pieces + 1));
    simulate_job(t, text, none, &with);
    for (int n = 1; n <= 2; n++)
        assert_true(exchange_number(&with, n, "waited_s") ==
                    exchange_number(&without, n, "waited_s"));
    double more = exchange_number(&with, 3, "waited_s") - exchange_number(&without, 3, "waited_s");
    assert_true(more > 0.25 - 1e-9 && more < 0.25 + 1e-9);
    assert_true(exchange_number(&with, 3, "waited_for") == 1);
    forget_record(&without);
    forget_record(&with);
}

/* Whenever a worker dies once the group has formed, in training, in an exchange or after its last:
 * the others end the run. */
static void test_a_death_at_any_moment_is_survived(void **state)
{
    enum { STRIDE = SWEEP_STRIDE(7, 7) }; /* not a multiple of the cycle of four */
    struct tiny *t = *state;
    static const char *const jobs[][5] = {
        {"stop.epochs=1", "evaluate.every_exchanges=2", NULL},
        {"stop.epochs=0.5", "evaluate.every_exchanges=3", "strategy.allreduce={}", NULL},
    };
    for (int j = 0; j < 2; j++) {
        struct record r;
        simulate_job(t, calm, jobs[j], &r);
        double end = r.report.wall_s;
        forget_record(&r);
        for (int i = 0; i < 40; i += STRIDE) {
            char text[256];
            snprintf(text, sizeof text, "%s fault { at: %.9f kill: %d }", calm, end * (2 + i) / 42,
                     i % 4);
            simulate_job(t, text, jobs[j], &r);
            assert_int_equal(count_events(&r, "end", NULL, NULL), 1);
            assert_true(r.report.wall_s < 3 * end);
            forget_record(&r);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lone_worker_reports_long_steps_every_second),
        cmocka_unit_test(test_a_seed_is_a_run),
        cmocka_unit_test(test_a_run_is_identical_for_both_back_ends),
        cmocka_unit_test(test_reference_kernels_do_not_see_threads),
        cmocka_unit_test(test_every_fault_of_the_file_is_an_event),
        cmocka_unit_test(test_a_delay_is_waited_for_exactly),
        cmocka_unit_test(test_a_death_at_any_moment_is_survived),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
