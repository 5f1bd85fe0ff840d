/* The reports of a run: the training loss for every strategy, one JSON object at the end, the best
 * model only where a set may choose it, and that a simulation is one. */
#include "real_run.h"

#define STRATEGIES 11

static const char *const ways[STRATEGIES][2] = {
    {"strategy.single={}", "workers=1"},    {"strategy.sync.tau=4", "workers=2"},
    {"strategy.allreduce={}", "workers=2"}, {"strategy.async_allreduce={}", "workers=2"},
    {"strategy.diloco.tau=8", "workers=2"}, {"strategy.easgd.tau=2", "workers=2"},
    {"strategy.gossip.p=0.5", "workers=2"}, {"strategy.mpca={}", "workers=2"},
    {"strategy.ps={}", "workers=2"},        {"strategy.downpour={}", "workers=2"},
    {"strategy.pace={}", "workers=2"},
};

static bool has_file(const char *dir, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static const char *text_of(const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(object, key));
    return text ? text : "";
}

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
}

static void test_every_strategy_records_its_training_loss(void **state)
{
    struct tiny *t = *state;
    for (size_t i = 0; i < STRATEGIES; i++) {
        struct real_run r = real_new(t);
        START(t, &r, "--set", ways[i][0], "--set", ways[i][1], "--set", "solver.momentum=0",
              "--set", "solver.lr_policy=\"fixed\"", "--set", "solver.base_lr=0.01", "--set",
              "stop.epochs=3");
        real_end(&r, 0, "epochs");
        int losses = run_count(r.dir, "loss", NULL, NULL);
        if (losses < 1)
            fail_msg("%s: no loss", ways[i][0]);
        double records = 0;
        for (int n = 0; n < losses; n++) {
            double loss = run_number(r.dir, "loss", n, "loss");
            assert_true(loss > 0 && loss < 5);
            assert_true(run_number(r.dir, "loss", n, "rate") == 0.01);
            records += run_number(r.dir, "loss", n, "samples");
        }
        assert_true(records >= 0.9 * run_number(r.dir, "end", 0, "used"));
        cJSON *end = cJSON_Parse(r.p.out);
        assert_string_equal(text_of(end, "directory"), r.dir);
        assert_string_equal(text_of(end, "net"), "net.prototxt");
        assert_non_null(strstr(text_of(end, "model"), "/final.safetensors"));
        assert_ptr_equal(strstr(strstr(r.p.out, "\"model\"") + 1, "\"model\""), NULL); /* once */
        assert_true(number_of(end, "train_loss") == run_number(r.dir, "loss", losses - 1, "loss"));
        assert_true(number_of(end, "parameters") == 6 * 9 + 6 + 3 * 150 + 3);
        assert_true(number_of(end, "samples_per_s") > 0 && number_of(end, "seed") == 1);
        double data_s = number_of(end, "data_s");
        assert_true(data_s > 0 && data_s < number_of(end, "session_s"));
        assert_true(number_of(end, "workers") == (i == 0 ? 1 : 2));
        assert_int_equal(
            strncmp(ways[i][0] + 9, text_of(end, "strategy"), strlen(text_of(end, "strategy"))), 0);
        cJSON_Delete(end);
        process_release(&r.p);
    }
}

static void test_test_set_chooses_no_best_model(void **state)
{
    struct tiny *t = *state;
    struct real_run with = real_new(t), without = real_new(t);
    START(t, &with, "--set", "stop.epochs=1");
    real_end(&with, 0, "epochs");
    assert_true(has_file(with.dir, "best.safetensors"));
    assert_null(strstr(with.p.err, "best.safetensors"));
    START(t, &without, "--set", "stop.epochs=1", "--set", "validation=0");
    real_end(&without, 0, "epochs");
    assert_false(has_file(without.dir, "best.safetensors"));
    assert_true(has_file(without.dir, "final.safetensors"));
    assert_true(run_number(without.dir, "end", 0, "test_loss") > 0);
    assert_non_null(strstr(without.p.err, "no best.safetensors: "));
    assert_non_null(strstr(without.p.err, "--set validation=N"));
    process_release(&with.p);
    process_release(&without.p);
}

static void test_simulation_is_labelled(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char dir[128];
    tiny_cluster(t, "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }\n");
    const char *argv[] = {"sim", t->job, "--cluster", t->cluster, NULL};
    process_start(&p, t->folder, argv);
    process_wait(&p, REAL_LIMIT_S);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, " simulated s\n"));
    assert_non_null(strstr(p.out, "samples/s, simulated\n"));
    assert_non_null(strstr(p.out, "training    loss "));
    assert_non_null(strstr(p.out, "runs/tiny-sim-001\n"));
    assert_non_null(strstr(p.err, "worker 0 is simulated: "));
    assert_null(strstr(p.err, "is at :"));
    assert_non_null(strstr(p.err, "simulated   times and speeds are those of the cluster file\n"));
    assert_non_null(strstr(p.err, " s  epoch 1."));
    for (const char *at = p.err; (at = strstr(at, " s  epoch ")); at++) { /* each of these lines */
        const char *line = at;
        while (line > p.err && line[-1] != '\n')
            line--;
        assert_int_equal(strncmp(line, "simulated ", strlen("simulated ")), 0);
    }
    snprintf(dir, sizeof dir, "%s/runs/tiny-sim-001", t->folder);
    assert_int_equal(run_count(dir, "start", NULL, NULL), 1);
    cJSON *start = run_event(dir, "start", NULL, NULL, 0),
          *end = run_event(dir, "end", NULL, NULL, 0);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(start, "simulated")));
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(end, "simulated")));
    assert_true(number_of(end, "virtual_s") == number_of(end, "wall_s"));
    cJSON_Delete(start);
    cJSON_Delete(end);
    static const char *const kinds[] = {"eval", "loss", "exchange", "member"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        cJSON *event = run_event(dir, kinds[i], NULL, NULL, 0);
        assert_true(cJSON_IsTrue(cJSON_GetObjectItem(event, "simulated")));
        cJSON_Delete(event);
    }
    process_release(&p);
}

/* A round of a hundred steps: the driver reports its progress before the exchange. */
static void test_driver_speaks_before_the_first_exchange(void **state)
{
    struct tiny *t = *state;
    static const char *const slow[] = {"strategy.sync.tau=100", "strategy.diloco.tau=100"};
    for (size_t i = 0; i < 2; i++) {
        struct real_run r = real_new(t);
        START(t, &r, "--set", slow[i], "--set", "pace=0.05", "--workers", "2", "--set",
              "heartbeat=lan", "--progress", "1", "--set", "stop.steps=100", "--unset",
              "stop.epochs");
        real_end(&r, 0, "steps");
        assert_non_null(strstr(r.p.err, "  first exchange in about "));
        assert_non_null(strstr(r.p.err, "  loss "));
        process_release(&r.p);
    }
}

/* One of a thing is not several. */
static void test_numbers_of_one_are_singular(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    START(t, &r, "--workers", "1", "--set", "strategy.single={}", "--batch", "540", "--epochs",
          "1");
    real_end(&r, 0, "epochs");
    assert_non_null(strstr(r.p.err, "540 records x 1 worker, 1 step an epoch\n"));
    assert_non_null(strstr(r.p.err, "ends        after 1 epoch\n"));
    assert_null(strstr(r.p.err, " 1 steps"));
    assert_null(strstr(r.p.err, " 1 workers"));
    process_release(&r.p);
}

static void test_quiet_run_prints_its_result_alone(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    const char *argv[] = {"train", t->job, "-q", "--out", r.dir, NULL};
    process_start(&r.p, t->folder, argv);
    process_wait(&r.p, REAL_LIMIT_S);
    assert_int_equal(r.p.code, 0);
    assert_string_equal(r.p.err, "");
    assert_non_null(strstr(r.p.out, "training    loss "));
    process_release(&r.p);
}

static int set_up(void **state)
{
    static struct tiny t;
    tiny_create(&t);
    *state = &t;
    return 0;
}

static int tear_down(void **state)
{
    tiny_remove(*state);
    return 0;
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_every_strategy_records_its_training_loss),
        TEST(test_test_set_chooses_no_best_model),
        TEST(test_simulation_is_labelled),
        TEST(test_driver_speaks_before_the_first_exchange),
        TEST(test_numbers_of_one_are_singular),
        TEST(test_quiet_run_prints_its_result_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
