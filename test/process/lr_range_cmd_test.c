/* `paceline lr-range`: its series, range, files and end, an interrupt, and its refusals. */
#include "process.h"
#include "refusal.h"

#include <cjson/cJSON.h>
#include <math.h>

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);
    if (!cJSON_IsNumber(item))
        fail_msg("`%s` is not a number", key);
    return item->valuedouble;
}

static const char *text_of(const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(object, key));
    if (!text)
        fail_msg("no `%s`", key);
    return text;
}

static cJSON *range_of(const struct tiny *t, const char *const *argv)
{
    struct process p;
    run_command(t, &p, argv);
    cJSON *range = cJSON_Parse(p.out);
    if (!range)
        fail_msg("no JSON: %s", p.out);
    process_release(&p);
    return range;
}

#define RANGE(t, ...) \
    range_of(t, (const char *const[]){"lr-range", (t)->job, "-q", "--json", __VA_ARGS__, NULL})

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-5 * fabs(b);
}

/* The net learns within 80 steps, and the loss rises before a rate of 1000: the range lies between,
 * and the rate at which tests of other files train the job, 0.05, is in it. */
static void test_lr_range_finds_the_range(void **state)
{
    struct tiny *t = *state;
    cJSON *r = RANGE(t, "--from", "1e-4", "--to", "1000", "--steps", "140");
    const cJSON *steps = cJSON_GetObjectItem(r, "steps"), *first = cJSON_GetArrayItem(steps, 0);
    int count = cJSON_GetArraySize(steps);
    double low = number_of(r, "low"), high = number_of(r, "high");
    assert_true(strcmp(text_of(r, "end"), "diverged") == 0 ||
                strcmp(text_of(r, "end"), "not_finite") == 0);
    assert_true(count > 1 && count < 140);
    assert_true(low > 1e-4 && low < 0.05 && high > 0.05 && high < 100);
    assert_true(is_near(number_of(first, "rate"), 1e-4));
    assert_true(fabs(number_of(first, "loss") - log(3)) < 0.3); /* it begins as a guess */
    assert_true(is_near(number_of(cJSON_GetArrayItem(steps, 1), "rate") / number_of(first, "rate"),
                        pow(1e7, 1 / 139.0)));
    assert_string_equal(text_of(r, "accuracy_set"), "validation");
    assert_true(number_of(r, "accuracy_records") == 60 && number_of(r, "batch") == 16);
    double most = 0;
    const cJSON *step;
    cJSON_ArrayForEach(step, steps)
    {
        const cJSON *accuracy = cJSON_GetObjectItem(step, "accuracy");
        most = cJSON_IsNumber(accuracy) ? fmax(most, accuracy->valuedouble) : most;
    }
    assert_true(most > 0.6 && most <= 1); /* a third is guessed */
    cJSON_Delete(r);
}

/* At one rate a test is a run: the model after its last step gets as many of the held-out records
 * right as that of `train`. Its range is so narrow that float cannot tell its rates apart. */
static void test_lr_range_trains_as_a_run_does(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char path[128];
    for (int steps = 20; steps <= 40; steps += 10) {
        char count[16];
        snprintf(count, sizeof count, "%d", steps);
        cJSON *r = RANGE(t, "--from", "0.05", "--to", "0.0500000001", "--steps", count, "--linear");
        const cJSON *taken = cJSON_GetObjectItem(r, "steps");
        assert_string_equal(text_of(r, "growth"), "linear");
        assert_string_equal(text_of(r, "end"), "complete");
        assert_int_equal(cJSON_GetArraySize(taken), steps);
        double accuracy = number_of(cJSON_GetArrayItem(taken, steps - 1), "accuracy");
        RUN(t, &p, "train", t->job, "--workers", "1", "--strategy", "single", "--steps", count,
            "--set", "solver.lr_policy=fixed", "--out", tiny_out(t, path), "-q", "--json");
        cJSON *end = cJSON_Parse(p.out);
        process_release(&p);
        assert_true(fabs(accuracy - (1 - number_of(end, "validation_error"))) < 1e-6);
        cJSON_Delete(end);
        cJSON_Delete(r);
    }
}

static void test_lr_range_writes_its_files(void **state)
{
    struct tiny *t = *state;
    struct process p;
    for (int again = 0; again < 2; again++) { /* the second time it replaces them */
        RUN(t, &p, "lr-range", t->job, "-q", "--to", "1", "--steps", "40", "--csv", "a.csv",
            "--svg", "a.svg");
        assert_non_null(strstr(p.out, "all 40 steps were taken; a step has 16 records\n"));
        assert_non_null(strstr(p.out, "rates grow exponentially"));
        assert_non_null(strstr(p.out, "suggested range: "));
        process_release(&p);
    }
    char *csv = read_file_of(t, "a.csv"), *svg = read_file_of(t, "a.svg");
    int lines = 0;
    for (const char *at = csv; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, 41);
    assert_true(strncmp(csv, "step,rate,loss,smoothed,accuracy\n1,1e-05,", 41) == 0);
    assert_true(strncmp(svg, "<svg ", 5) == 0 && strstr(svg, "</svg>\n"));
    assert_non_null(strstr(svg, "tiny.job"));
    free(csv), free(svg);
}

/* With what there is: the steps before the signal, and their files. */
static void test_lr_range_ends_on_interrupt(void **state)
{
    struct tiny *t = *state;
    struct process p;
    const char *const argv[] = {"lr-range", t->job,  "--steps", "100000", "--progress",
                                "0.1",      "--csv", "cut.csv", NULL};
    process_start(&p, t->folder, argv);
    double until = process_now() + REFUSAL_LIMIT_S;
    for (bool begun = false; !begun && process_now() < until; process_nap(0.02)) {
        char *err = process_output(p.err_fd);
        begun = strstr(err, "step ");
        free(err);
    }
    process_signal_all(&p, SIGINT);
    process_wait(&p, REFUSAL_LIMIT_S);
    assert_int_equal(p.code, 130);
    assert_non_null(strstr(p.out, "interrupted after "));
    char *csv = read_file_of(t, "cut.csv");
    assert_non_null(strstr(csv, "\n1,1e-05,"));
    free(csv);
    process_release(&p);
}

static void test_lr_range_refuses_bad_input(void **state)
{
    struct tiny *t = *state;
    REFUSED(t, "a job file is missing", "lr-range");
    REFUSED(t, "none.job", "lr-range", "none.job");
    REFUSED(t, "--from: expected a number", "lr-range", t->job, "--from", "0");
    REFUSED(t, "to: must be above `from`", "lr-range", t->job, "--from", "20");
    REFUSED(t, "--steps: expected a number from 2", "lr-range", t->job, "--steps", "1");
    REFUSED(t, "--steps: expected a whole number", "lr-range", t->job, "--steps", "2.5");
    REFUSED(t, "--svg: net.prototxt exists", "lr-range", t->job, "--svg", "net.prototxt");
    tiny_write(t, "foreign.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>\n");
    REFUSED(t, "--svg: foreign.svg exists", "lr-range", t->job, "--svg", "foreign.svg");
    REFUSED(t, "--csv: none/a.csv: No such file", "lr-range", t->job, "--csv", "none/a.csv");
    REFUSED(t, "train-images", "lr-range", t->job, "--set",
            "train_data.idx.images=no/train-images");
    REFUSED(t, "solver.momentum", "lr-range", t->job, "--set", "solver.type=AdaGrad");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lr_range_finds_the_range),
        cmocka_unit_test(test_lr_range_trains_as_a_run_does),
        cmocka_unit_test(test_lr_range_writes_its_files),
        cmocka_unit_test(test_lr_range_ends_on_interrupt),
        cmocka_unit_test(test_lr_range_refuses_bad_input),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
