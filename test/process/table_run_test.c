/* Runs on tables: a net that learns a number, and records without labels. */
#include "folder.h"
#include "process.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_net_learns_a_number),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
