/* The reports of a run about its net while it trains: an error rate where there are scores and
 * labels, with an Accuracy layer or without; else its loss, which then decides which model is the
 * best. */
#include "real_run.h"
#include "refusal.h"

#define HEAD                                                                \
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"        \
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n" \
    "  convolution_param { num_output: 6 kernel_size: 3\n"                  \
    "    weight_filler { type: 'xavier' } } }\n"                            \
    "layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool'\n"     \
    "  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }\n"            \
    "layer { name: 'relu' type: 'ReLU' bottom: 'pool' top: 'pool' }\n"      \
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'\n"    \
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
#define SCORES_JUDGED                                                       \
    "layer { name: 'right' type: 'Accuracy' bottom: 'ip' bottom: 'label'\n" \
    "  top: 'right' include { phase: TEST } }\n"
#define LOSS \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n"

/* Pictures from three numbers each: there are no classes. */
#define PICTURES                                                                                   \
    HEAD "layer { name: 'back' type: 'InnerProduct' bottom: 'ip' top: 'back'\n"                    \
         "  inner_product_param { num_output: 144 weight_filler { type: 'xavier' } } }\n"          \
         "layer { name: 'flat' type: 'Flatten' bottom: 'data' top: 'flat' }\n"                     \
         "layer { name: 'apart' type: 'EuclideanLoss' bottom: 'back' bottom: 'flat' top: 'apart' " \
         "}\n"

/* `paceline train` or `paceline sim`, with two workers. */
static void play_run(struct tiny *t, const char *world, struct process *p, char dir[128],
                     const char *rate)
{
    bool sim = strcmp(world, "sim") == 0;
    const char *argv[] = {world,       t->job,  "--out", tiny_out(t, dir),         "--set",
                          "workers=2", "--set", rate,    sim ? "--cluster" : NULL, t->cluster,
                          NULL};
    process_start(p, t->folder, argv);
    process_wait(p, REAL_LIMIT_S);
    if (p->code != 0)
        fail_msg("code %d; it said:\n%s", p->code, p->err);
}

static double loss_of_test(const struct tiny *t, const char *dir, const char *key)
{
    char weights[160];
    struct process p;
    snprintf(weights, sizeof weights, "%s/final.safetensors", dir);
    const char *argv[] = {"test", "--job", t->job, "--weights", weights, "--json", NULL};
    process_start(&p, t->folder, argv);
    process_wait(&p, REAL_LIMIT_S);
    cJSON *text = cJSON_Parse(p.out);
    const cJSON *item = cJSON_GetObjectItem(text, key);
    double value = cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
    cJSON_Delete(text);
    process_release(&p);
    return value;
}

static void test_scores_are_judged_without_an_accuracy(void **state)
{
    static const char rate[] = "solver.base_lr=0.05";
    struct tiny *t = *state;
    struct process with, without, real;
    char a[128], b[128], c[128];
    tiny_cluster(t, "node { count: 2 } step_seconds: 0.004 link { mbit: 1000 }\n");
    tiny_write(t, "net.prototxt", HEAD SCORES_JUDGED LOSS);
    play_run(t, "sim", &with, a, rate);
    tiny_write(t, "net.prototxt", HEAD LOSS);
    play_run(t, "sim", &without, b, rate);
    int n = run_count(a, "eval", NULL, NULL);
    assert_true(n >= 6 && n == run_count(b, "eval", NULL, NULL));
    for (int i = 0; i < n; i++)
        assert_true(run_number(a, "eval", i, "error") == run_number(b, "eval", i, "error"));
    assert_true(run_same_bits(a, b, "best.safetensors"));
    play_run(t, "train", &real, c, rate);
    assert_true(run_number(c, "eval", 0, "error") > 0.3); /* as it was drawn */
    double error = run_number(c, "end", 0, "test_error");
    assert_true(error < 0.3);
    assert_true(fabs(loss_of_test(t, c, "accuracy") - (1 - error)) < 1e-6);
    assert_non_null(strstr(real.err, ": validation error "));
    assert_non_null(strstr(real.out, "validation  error "));
    assert_null(strstr(real.err, "no error rate"));
    struct real_run ends = real_new(t);
    /* The rule must end it: a busy machine evaluates late, so its epochs are many. */
    START(t, &ends, "--workers", "2", "--epochs", "400", "--set", "stop.validation_error=0.5");
    real_end(&ends, 0, "error");
    process_release(&ends.p);
    process_release(&with);
    process_release(&without);
    process_release(&real);
}

/* The step and the loss of the evaluation whose loss on the validation set was the lowest. */
static double lowest_loss(const char *dir, double *step)
{
    double best = (double)INFINITY;
    cJSON *event;
    for (int i = 0; (event = run_event(dir, "eval", "set", "validation", i)); i++) {
        double loss = cJSON_GetObjectItem(event, "loss")->valuedouble;
        if (loss < best) {
            best = loss;
            *step = cJSON_GetObjectItem(event, "step")->valuedouble;
        }
        cJSON_Delete(event);
    }
    return best;
}

static double of_best(const char *dir, const char *key)
{
    struct safetensors best;
    run_model(dir, "best.safetensors", &best);
    const char *text = safetensors_meta_get(&best, key);
    double value = text ? strtod(text, NULL) : (double)NAN;
    safetensors_release(&best);
    return value;
}

static void test_a_net_without_classes_has_a_loss(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char dir[128];
    double step = 0;
    tiny_write(t, "net.prototxt", PICTURES);
    play_run(t, "train", &p, dir, "solver.base_lr=0.001");
    for (int i = 0; i < run_count(dir, "eval", NULL, NULL); i++)
        assert_true(run_number(dir, "eval", i, "loss") > 0 &&
                    isnan(run_number(dir, "eval", i, "error")) &&
                    isnan(run_number(dir, "eval", i, "test_error")));
    assert_true(isnan(run_number(dir, "end", 0, "test_error")));
    assert_true(isnan(run_number(dir, "end", 0, "validation_error")));
    double loss = run_number(dir, "end", 0, "test_loss"), best = lowest_loss(dir, &step);
    assert_true(fabs(loss_of_test(t, dir, "loss") - loss) < 1e-5 * loss);
    assert_true(isnan(loss_of_test(t, dir, "accuracy")));
    assert_true(run_number(dir, "end", 0, "validation_loss") >= best);
    print_message("    loss %g, then %g\n", run_number(dir, "eval", 0, "loss"), best);
    assert_true(best < 0.8 * run_number(dir, "eval", 0, "loss"));
    assert_true(of_best(dir, "steps") == step);
    assert_true(fabs(of_best(dir, "best_error") - best) < 1e-6);
    assert_non_null(strstr(p.err, "the net has no error rate"));
    assert_non_null(strstr(p.err, ": validation loss "));
    assert_non_null(strstr(p.out, "validation  loss "));
    assert_non_null(strstr(p.out, "test        loss "));
    assert_null(strstr(p.out, "%"));
    assert_null(strstr(p.err, "%"));
    process_release(&p);
}

static void test_it_cannot_end_at_an_error_rate(void **state)
{
    struct tiny *t = *state;
    tiny_write(t, "net.prototxt", PICTURES);
    REFUSED(t, "stop.validation_error: the net has no error rate", "train", t->job, "--set",
            "stop.validation_error=0.1");
    REFUSED(t, "stop.test_error: the net has no error rate", "train", t->job, "--set",
            "stop.test_error=0.1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores_are_judged_without_an_accuracy),
        cmocka_unit_test(test_a_net_without_classes_has_a_loss),
        cmocka_unit_test(test_it_cannot_end_at_an_error_rate),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
