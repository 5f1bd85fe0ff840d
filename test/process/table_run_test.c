/* Runs on tables: a net that learns a number, and records without labels. */
#include "folder.h"
#include "process.h"

#include <math.h>

enum { LIMIT_S = 120, ROWS = 400 };

static const char net[] =
    "name: 'line'\n"
    "layer { name: 'rows' type: 'Data' top: 'data' top: 'target' }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
    "  inner_product_param { num_output: 1 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'ip' bottom: 'target' top: 'loss' }\n";

static const char job[] =
    "name: 'line' net { file: 'net.prototxt' }\n"
    "train_data { csv { path: 'line.csv' target: 'y' ignore: 'id' } }\n"
    "test_data { csv { path: 'line.csv' target: 'y' } }\n"
    "batch: 16 solver { base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed' } stop { epochs: 30 }\n";

static const char two_job[] =
    "net { file: 'two.prototxt' }\n"
    "train_data { csv { path: 'line.csv' target: 'y' target: 'b' ignore: 'id' } }\n"
    "test_data { csv { path: 'line.csv' target: 'y' target: 'b' } }\n"
    "batch: 16 solver { base_lr: 0.05 lr_policy: 'fixed' } stop { epochs: 1 }\n";

/* y = 2 a - 3 b + 1 */
static void write_table(const struct folder *f)
{
    static char text[1 << 15];
    int n = snprintf(text, sizeof text, "id,a,y,b\n");
    for (int i = 0; i < ROWS; i++) {
        double a = (i * 37 % 101) / 50.0 - 1, b = (i * 61 % 97) / 48.0 - 1;
        n += snprintf(text + n, sizeof text - (size_t)n, "%d,%.4f,%.4f,%.4f\n", i, a,
                      2 * a - 3 * b + 1, b);
    }
    folder_put(f, "line.csv", text, (size_t)n);
}

static int setup(void **state)
{
    static struct folder f;
    folder_make(&f);
    write_table(&f);
    folder_put(&f, "net.prototxt", net, strlen(net));
    folder_put(&f, "line.job", job, strlen(job));
    char two[sizeof net];
    memcpy(two, net, sizeof net);
    *(strstr(two, "num_output: ") + 12) = '2';
    folder_put(&f, "two.prototxt", two, strlen(two));
    folder_put(&f, "two.job", two_job, strlen(two_job));
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    folder_remove(*state);
    return 0;
}

static void run_to_end(const struct folder *f, struct process *p, const char *const *argv)
{
    process_start(p, f->path, argv);
    process_wait(p, LIMIT_S);
    if (p->code != 0)
        fail_msg("%s: code %d:\n%s\n%s", argv[0], p->code, p->out, p->err);
}

static void test_a_net_learns_a_number(void **state)
{
    const struct folder *f = *state;
    struct process p;
    double loss = 1;
    run_to_end(f, &p,
               (const char *const[]){"train", "line.job", "--out", "run", "--workers", "2",
                                     "--json", NULL});
    const char *at = strstr(p.out, "\"test_loss\":");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "\"test_loss\": %lf", &loss), 1);
    print_message("    loss %g\n", loss);
    assert_true(loss < 1e-4);
    process_release(&p);
    run_to_end(f, &p, (const char *const[]){"data", "head", "csv:line.csv", "--first", "1", NULL});
    assert_non_null(strstr(p.out, "       0       -"));
    process_release(&p);
}

/* The number after `key` in what the process has printed. */
static double number_after(const struct process *p, const char *key)
{
    const char *at = strstr(p->out, key);
    double value = NAN;
    if (!at || sscanf(at + strlen(key), "%lf", &value) != 1)
        fail_msg("no %s in:\n%s\n%s", key, p->out, p->err);
    return value;
}

/* The run of the first test: y = 2 a - 3 b + 1 */
static void test_a_number_is_predicted(void **state)
{
    const struct folder *f = *state;
    struct process p;
    run_to_end(f, &p,
               (const char *const[]){"predict", "run", "csv:line.csv?target=y", "--json", NULL});
    assert_true(fabs(number_after(&p, "\"predicted\":") - 2) < 0.02); /* a = b = -1 */
    assert_true(number_after(&p, "\"known\":") == 2);
    assert_true(number_after(&p, "{\"records\":") == ROWS);
    double error = number_after(&p, "\"mean_squared_error\":{\"y\":");
    process_release(&p);
    run_to_end(f, &p, (const char *const[]){"test", "run", "--json", NULL});
    assert_true(fabs(number_after(&p, "\"loss\":") - error / 2) < 1e-6); /* EuclideanLoss */
    process_release(&p);
    folder_put(f, "new.csv", "b,a\n0,0\n1,0.5\n", 14);
    run_to_end(f, &p, (const char *const[]){"predict", "run", "csv:new.csv", NULL});
    assert_null(strstr(p.out, "known"));
    assert_null(strstr(p.out, "mean squared error"));
    assert_true(fabs(number_after(&p, "0           y") - 1) < 0.02);
    assert_true(fabs(number_after(&p, "1           y") + 1) < 0.02);
    process_release(&p);
    run_to_end(f, &p, (const char *const[]){"predict", "run", "--first", "2", NULL});
    assert_non_null(strstr(p.out, "mean squared error of y: "));
    process_release(&p);
    process_start(&p, f->path,
                  (const char *const[]){"predict", "run", "csv:new.csv", "--top", "1", NULL});
    process_wait(&p, LIMIT_S);
    assert_int_equal(p.code, 2);
    assert_non_null(strstr(p.err, "the net predicts values"));
    process_release(&p);
}

/* Two targets, which further records lack. */
static void test_two_numbers_are_predicted(void **state)
{
    const struct folder *f = *state;
    struct process p;
    run_to_end(f, &p,
               (const char *const[]){"train", "two.job", "--out", "two", "--workers", "1", NULL});
    process_release(&p);
    run_to_end(f, &p, (const char *const[]){"predict", "two", "--first", "3", NULL});
    (void)number_after(&p, "mean squared error of y: ");
    (void)number_after(&p, "mean squared error of b: ");
    process_release(&p);
    folder_put(f, "new.csv", "a\n0.5\n", 6);
    run_to_end(f, &p, (const char *const[]){"predict", "two", "csv:new.csv", "--json", NULL});
    (void)number_after(&p, "{\"name\":\"y\",\"predicted\":");
    (void)number_after(&p, "{\"name\":\"b\",\"predicted\":");
    process_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_net_learns_a_number),
        cmocka_unit_test(test_a_number_is_predicted),
        cmocka_unit_test(test_two_numbers_are_predicted),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
