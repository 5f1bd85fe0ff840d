/* Tables from end to end: what the driver finds in the training data is in the run's job, and test
 * data, workers, a continued run and `predict` read their tables by it. */
#include "paceline/net.h"
#include "refusal.h"
#include "run_files.h"

static const char net[] =
    "name: 'table'\n"
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
    "layer { name: 'ip1' type: 'InnerProduct' bottom: 'data' top: 'ip1'\n"
    "  inner_product_param { num_output: 16 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'ip1' top: 'ip1' }\n"
    "layer { name: 'ip2' type: 'InnerProduct' bottom: 'ip1' top: 'ip2'\n"
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip2' bottom: 'label' top: 'accuracy'\n"
    "  include { phase: TEST } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip2' bottom: 'label' top: 'loss' }\n";

static const char job[] =
    "name: 'table'\n"
    "net { file: 'net.prototxt' }\n"
    "train_data { csv { path: 'train.csv' label: 'size' ignore: 'id' missing: 9.5 "
    "standardize: true } }\n"
    "test_data { csv { path: 'test.tsv' label: 'size' } }\n"
    "batch: 20 threads: 1 kernels: ref\n"
    "solver { base_lr: 0.1 momentum: 0.9 lr_policy: 'fixed' }\n"
    "strategy { sync { tau: 5 } }\n"
    "workers: 2\n"
    "stop { epochs: 10 }\n";

/* The label follows from width times height, and from the shape, which halves it. */
static void write_table(const struct tiny *t, const char *name, uint64_t set, int rows)
{
    bool tabs = strstr(name, ".tsv");
    FILE *f = tiny_open(t, name);
    fputs(tabs ? "height\tsize\tshape\twidth\n" : "id,shape,width,height,size\r\n", f);
    for (int i = 0; i < rows; i++) {
        double width = 1 + (double)rng_below(3, set, (uint64_t)i * 3, 900) / 100;
        double height = 1 + (double)rng_below(3, set, (uint64_t)i * 3 + 1, 900) / 100;
        bool round = tabs ? i % 5 < 2 : rng_below(3, set, (uint64_t)i * 3 + 2, 2);
        double area = width + height - (round ? 4 : 0);
        const char *size = area < 7 ? "small" : area < 12 ? "middle" : "large";
        if (tabs)
            fprintf(f, "%.2f\t%s\t%s\t%.2f\n", height, size, round ? "round, \"soft\"" : "square",
                    width);
        else
            fprintf(f, "n%d,%s,%.2f,%.2f,%s\r\n", i, round ? "\"round, \"\"soft\"\"\"" : "square",
                    width, height, size);
    }
    fclose(f);
}

static void read_whole(const struct tiny *t, const char *name, char *out, size_t room)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", t->folder, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    out[fread(out, 1, room - 1, f)] = '\0';
    fclose(f);
}

static void test_a_run_on_tables(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char text[8192], run[128];
    RUN(t, &p, "train", "table.job", "--out", "run");
    process_release(&p);
    snprintf(run, sizeof run, "%s/run", t->folder);
    double error = run_number(run, "end", 0, "test_error");
    if (!(error < 0.1))
        fail_msg("test error %g", error);
    read_whole(t, "run/job.prototxt", text, sizeof text);
    const char *test = strstr(text, "test_data");
    assert_non_null(test);
    assert_non_null(strstr(test, "all_listed: true"));
    assert_non_null(strstr(test, "categories: \"round, \\\"soft\\\"\""));
    assert_null(strstr(text, "name: \"id\""));
}

/* The job's file still has no columns; they are the run's, whatever the training data has now. */
static void test_a_run_is_continued(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char before[8192], after[8192];
    read_whole(t, "run/job.prototxt", before, sizeof before);
    RUN(t, &p, "train", "table.job", "--out", "run", "--resume", "--set", "stop.epochs=11");
    process_release(&p);
    read_whole(t, "run/job.prototxt", after, sizeof after);
    char *from = strstr(before, "train_data"), *to = strstr(after, "train_data");
    size_t n = (size_t)(strstr(from, "batch:") - from);
    assert_memory_equal(from, to, n);
}

static void test_predictions(void **state)
{
    struct tiny *t = *state;
    struct process p;
    tiny_write(t, "new.csv",
               "size,width,height,shape\nlarge,9.5,9.5,square\n"
               "small,1.5,2,\"round, \"\"soft\"\"\"\n"
               "large,,9.5,square\n");
    RUN(t, &p, "predict", "run", "csv:new.csv,size", "--json");
    if (!strstr(p.out, "\"large\"") || !strstr(p.out, "\"small\""))
        fail_msg("no names in:\n%s", p.out);
    process_release(&p);
}

/* The validation data has one shape only, and yet the inputs of the training data. */
static void test_a_net_on_tables(void **state)
{
    struct tiny *t = *state;
    char path[128], train[256], test[256];
    pl_engine *engine = NULL;
    pl_net_spec *spec;
    pl_net *made;
    tiny_write(t, "one.csv", "size,width,height,shape\nlarge,9.5,9.5,square\n");
    snprintf(path, sizeof path, "%s/net.prototxt", t->folder);
    snprintf(train, sizeof train, "csv:%s/train.csv,size?ignore=id", t->folder);
    snprintf(test, sizeof test, "csv:%s/one.csv,size", t->folder);
    assert_int_equal(pl_engine_create(NULL, &engine), PL_OK);
    assert_int_equal(pl_net_spec_load(engine, path, &spec), PL_OK);
    const pl_net_options options = {.size = sizeof options,
                                    .batch = 4,
                                    .solver = "base_lr: 0.05 lr_policy: 'fixed'",
                                    .threads = 1,
                                    .kernels = "ref"};
    assert_int_equal(pl_net_create(engine, spec, &options, &made), PL_OK);
    if (pl_net_set_training_data(made, train, 0, 1) != PL_OK ||
        pl_net_set_validation_data(made, test, 0, 1) != PL_OK)
        fail_msg("%s", pl_engine_error(engine));
    assert_int_equal(pl_net_validation_records(made), 1);
    pl_net_free(made);
    pl_net_spec_free(spec);
    pl_engine_destroy(engine);
}

static void test_unknown_categories_of_test_data(void **state)
{
    struct tiny *t = *state;
    tiny_write(t, "bad.csv", "size,width,height,shape\nlarge,9.5,9.5,oval\n");
    REFUSED(t, "bad.csv: line 2, column 4 (shape): `oval` is none of its categories", "train",
            "table.job", "--set", "test_data.csv.path=bad.csv");
}

static int setup(void **state)
{
    tiny_setup(state);
    struct tiny *t = *state;
    write_table(t, "train.csv", 1, 600);
    write_table(t, "test.tsv", 2, 200);
    tiny_write(t, "net.prototxt", net);
    tiny_write(t, "table.job", job);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_on_tables),
        cmocka_unit_test(test_a_run_is_continued),
        cmocka_unit_test(test_predictions),
        cmocka_unit_test(test_a_net_on_tables),
        cmocka_unit_test(test_unknown_categories_of_test_data),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
