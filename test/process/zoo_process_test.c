/* Nets of the zoo by the command: `paceline model` prints them, and they learn: the result of a
 * short run of one worker on Fashion-MNIST. */
#include "fashion.h"
#include "real_run.h"
#include "refusal.h"

#include <math.h>

#define CHANCE 0.9 /* the error of a guess among ten classes */

static void expect_learning(struct tiny *t, const char *zoo, const char *steps, const char *rate,
                            double bound)
{
    char dir[128];
    struct process p;
    const char *const argv[] = {"train", FASHION_JOB, "--out",     tiny_out(t, dir),
                                "--set", zoo,         "--set",     steps,
                                "--set", rate,        "--set",     "strategy.single={}",
                                "--set", "workers=1", "--threads", "1",
                                NULL};
    process_start(&p, t->folder, argv);
    process_wait(&p, REAL_LIMIT_S);
    if (p.code != 0)
        fail_msg("%s: code %d; it said:\n%s", zoo, p.code, p.err);
    process_release(&p);
    double error = run_number(dir, "end", 0, "test_error");
    print_message("    %s, %s: error %.3f, by chance %.1f\n", zoo, steps, error, CHANCE);
    assert_true(error <= bound);
}

static void test_fc_480_160(void **state)
{
    if (!fashion_installed()) {
        print_message("    Fashion-MNIST is not installed\n");
        skip();
    }
    expect_learning(*state, "net.zoo=fc-480-160", "stop.steps=800", "solver.base_lr=0.1",
                    CHANCE / 3);
}

/* Three layers of sigmoids start slowly: 2,000 batches of 64 are two epochs. */
static void test_cnn_6_12_12(void **state)
{
    if (!fashion_installed()) {
        print_message("    Fashion-MNIST is not installed\n");
        skip();
    }
    expect_learning(*state, "net.zoo=cnn-6-12-12", "stop.steps=2000", "solver.base_lr=0.1",
                    CHANCE / 2);
}

/* ---- paceline model ---- */

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
}

/* Multiply-adds of a forward pass from the papers: He et al. 2015, Table 1; 15.5 G for Simonyan and
 * Zisserman's D; 1.5 G in Szegedy et al. 2014 (§5). */
static void test_the_list(void **state)
{
    static const struct {
        const char *name;
        double parameters, giga;
    } known[] = {{"lenet", 431080, 0.0023},      {"googlenet", 13378280, 1.59},
                 {"vgg-16", 138357544, 15.5},    {"resnet-34", 21797672, 3.6},
                 {"resnet-50", 25557096, 3.8},   {"resnet-152", 60192808, 11.3},
                 {"fc-480-160", 455370, 0.00045}};
    struct process p;
    RUN(*state, &p, "model", "--json");
    cJSON *list = cJSON_Parse(p.out);
    assert_int_equal(cJSON_GetArraySize(list), 23);
    size_t found = 0;
    const cJSON *net;
    cJSON_ArrayForEach(net, list)
    {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(net, "net"));
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            if (strcmp(name, known[i].name) != 0)
                continue;
            found++;
            assert_true(number_of(net, "parameters") == known[i].parameters);
            double giga = number_of(net, "multiply_adds") * 1e-9;
            if (fabs(giga / known[i].giga - 1) > 0.03)
                fail_msg("%s: %g G multiply-adds", name, giga);
        }
    }
    assert_int_equal(found, sizeof known / sizeof *known);
    cJSON_Delete(list);
    process_release(&p);
    RUN(*state, &p, "model");
    assert_non_null(strstr(p.out, "\nresnet-20      3x32x32          273258 "));
    process_release(&p);
}

/* The printed net is a file that the command reads, and the same net. */
static void test_a_prototxt(void **state)
{
    static const char *const names[] = {"lenet", "resnet-20", "googlenet?classes=5"};
    struct tiny *t = *state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct process p, again;
        RUN(t, &p, "model", names[i]);
        tiny_write(t, "printed.prototxt", p.out);
        RUN(t, &again, "model", "printed.prototxt");
        assert_string_equal(p.out, again.out);
        process_release(&p);
        process_release(&again);
    }
    struct process p, again;
    RUN(t, &p, "model", "googlenet?classes=5", "--params", "--input", "3x224x224");
    RUN(t, &again, "model", "printed.prototxt", "--params", "--input", "3x224x224");
    assert_string_equal(p.out, again.out);
    assert_non_null(strstr(p.out, "\nloss3/classifier "));
    process_release(&p);
    process_release(&again);
    RUN(t, &p, "model", "net.prototxt", "--input", "1x12x12", "--json");
    cJSON *net = cJSON_Parse(p.out);
    assert_true(number_of(net, "parameters") == 6 * 9 + 6 + 3 * 150 + 3);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(net, "layers")), 6);
    cJSON_Delete(net);
    process_release(&p);
}

static void test_what_is_refused(void **state)
{
    struct tiny *t = *state;
    REFUSED(t, "the zoo has no net \"lenot\"; it has: lenet, ", "model", "lenot");
    REFUSED(t, "N from 2 to 1000000", "model", "lenet?classes=0");
    REFUSED(t, "none.prototxt", "model", "none.prototxt");
    REFUSED(t, "shape of its records is unknown", "model", "net.prototxt", "--params");
    REFUSED(t, "--input must be channels, rows and columns", "model", "lenet", "--input", "28x28");
    REFUSED(t, "--input must be channels, rows and columns", "model", "lenet", "--input", "1x0x28");
    REFUSED(t, "layer \"conv2\"", "model", "lenet", "--params", "--input", "1x8x8");
    REFUSED(t, "unexpected argument", "model", "lenet", "alexnet");
    REFUSED(t, "label 2 is out of range: the net has 2 classes", "train", t->job, "--out", "run",
            "--set", "net.zoo=fc-480-160?classes=2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fc_480_160),      cmocka_unit_test(test_cnn_6_12_12),
        cmocka_unit_test(test_the_list),        cmocka_unit_test(test_a_prototxt),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
