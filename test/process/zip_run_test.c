/* A run on a zip that its job names, of NumPy arrays: two inputs and a label for each of four
 * places. It has the bits of a run on the zip that a program makes of the same files. */
#include "engine_workers.h"
#include "npy_file.h"
#include "paceline/data.h"
#include "process.h"
#include "run_files.h"
#include "tiny_job.h"

enum { LIMIT_S = 120, NUMBERS = 6, PLACES = 4 };

static uint8_t images[TINY_TRAIN][TINY_SIDE][TINY_SIDE];
static float numbers[TINY_TRAIN][NUMBERS];
static int64_t kinds[TINY_TRAIN][PLACES];

static const char net[] =
    "layer { name: 'data' type: 'Data' top: 'image' top: 'numbers' top: 'kinds' }\n"
    "layer { name: 'a' type: 'InnerProduct' bottom: 'image' top: 'a'\n"
    "  inner_product_param { num_output: 24 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'b' type: 'InnerProduct' bottom: 'numbers' top: 'b'\n"
    "  inner_product_param { num_output: 24 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'ab' type: 'Concat' bottom: 'a' bottom: 'b' top: 'ab' }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'ab' top: 'ab' }\n"
    "layer { name: 'c' type: 'InnerProduct' bottom: 'ab' top: 'c'\n"
    "  inner_product_param { num_output: 12 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'places' type: 'Reshape' bottom: 'c' top: 'places'\n"
    "  reshape_param { shape { dim: 0 dim: 3 dim: 4 } } }\n"
    "layer { name: 'accuracy' type: 'Accuracy' bottom: 'places' bottom: 'kinds' top: 'accuracy'\n"
    "  include { phase: TEST } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'places' bottom: 'kinds' }\n";

static const char zip[] =
    "{ zip { field { name: 'image' data { npy { values: 'images.npy' } scale: 0.00390625 crop: 10\n"
    "      mirror: true } }\n"
    "  field { name: 'numbers' data { npy { values: 'numbers.npy' } } }\n"
    "  field { name: 'kinds' data { npy { values: 'kinds.npy' } } } } }\n";

/* `train` and `test` are values of fields of a job. */
static void write_job(struct tiny *t, const char *name, const char *train, const char *test)
{
    char text[2048];
    snprintf(
        text, sizeof text,
        "name: 'zip' net { file: 'zip.prototxt' } train_data %s test_data %s\n"
        "batch: 16 solver { base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed' }\n"
        "strategy { sync { tau: 4 } } workers: 2 threads: 1 kernels: ref stop { epochs: 20 }\n",
        train, test);
    tiny_write(t, name, text);
}

static int setup(void **state)
{
    tiny_setup(state);
    struct tiny *t = *state;
    for (uint32_t i = 0; i < TINY_TRAIN; i++) {
        for (int k = 0; k < TINY_SIDE * TINY_SIDE; k++)
            images[i][k / TINY_SIDE][k % TINY_SIDE] =
                tiny_pixel(1, i, i % TINY_CLASSES, k / TINY_SIDE, k % TINY_SIDE);
        for (uint32_t k = 0; k < NUMBERS; k++)
            numbers[i][k] = rng_normal(9, i, k);
        for (uint32_t k = 0; k < PLACES; k++)
            kinds[i][k] = (numbers[i][k] > 0) + (numbers[i][k + 2] > 0);
    }
    npy_write(t->folder, "images.npy", "|u1", "(600, 12, 12)", images, sizeof images);
    npy_write(t->folder, "numbers.npy", "<f4", "(600, 6)", numbers, sizeof numbers);
    npy_write(t->folder, "kinds.npy", "<i8", "(600, 4)", kinds, sizeof kinds);
    tiny_write(t, "zip.prototxt", net);
    write_job(t, "zip.job", zip, zip);
    write_job(t, "bound.job", "{ memory { name: 'both' } }", "{ memory { name: 'both' } }");
    return 0;
}

static void bind_zip(pl_engine *engine, const void *arg)
{
    const struct tiny *t = arg;
    char spec[3][256];
    snprintf(spec[0], sizeof spec[0], "npy:%s/images.npy?scale=0.00390625&crop=10&mirror=true",
             t->folder);
    snprintf(spec[1], sizeof spec[1], "npy:%s/numbers.npy", t->folder);
    snprintf(spec[2], sizeof spec[2], "npy:%s/kinds.npy", t->folder);
    const pl_field fields[] = {{.spec = spec[0], .name = "image"},
                               {.spec = spec[1], .name = "numbers"},
                               {.spec = spec[2], .name = "kinds"}};
    if (pl_data_zip(engine, "both", fields, 3) != PL_OK)
        fail_msg("%s", pl_engine_error(engine));
}

static void run_bound(struct tiny *t, const char *out)
{
    const struct engine_worker binds = {.prepare = bind_zip, .arg = t};
    struct engine_workers workers = {.at = {binds, binds}};
    pl_engine *engine = NULL;
    pl_job *job = NULL;
    pl_run_report report;
    char path[128];
    snprintf(path, sizeof path, "%s/bound.job", t->folder);
    assert_int_equal(pl_engine_create(NULL, &engine), PL_OK);
    bind_zip(engine, t);
    assert_int_equal(pl_job_load(engine, path, &job), PL_OK);
    const pl_run_options options = {.size = sizeof options,
                                    .out = out,
                                    .start_workers = engine_workers_start,
                                    .user = &workers,
                                    .patience_s = 20};
    int rc = pl_run(engine, job, &options, &report);
    engine_workers_end(&workers);
    if (rc != PL_OK)
        fail_msg("%s", pl_engine_error(engine));
    pl_job_free(job);
    pl_engine_destroy(engine);
}

/* Run the job with processes, and with so much of a cache as `options` say. */
static void run_named(struct tiny *t, const char *out, const char *budget)
{
    struct process p;
    process_start(&p, t->folder,
                  (const char *const[]){"train", "zip.job", "--out", out, "--quiet",
                                        budget ? "--set" : NULL, budget, NULL});
    process_wait(&p, LIMIT_S);
    if (p.code != 0)
        fail_msg("code %d:\n%s\n%s", p.code, p.out, p.err);
    process_release(&p);
}

static void expect_test(struct tiny *t, const char *run, double error)
{
    struct process p;
    double tested = 1;
    process_start(&p, t->folder, (const char *const[]){"test", run, "--json", NULL});
    process_wait(&p, LIMIT_S);
    const char *at = strstr(p.out, "\"error\":");
    if (p.code != 0 || !at || sscanf(at, "\"error\":%lf", &tested) != 1)
        fail_msg("code %d:\n%s\n%s", p.code, p.out, p.err);
    assert_true(tested > error - 1e-5 && tested < error + 1e-5);
    process_release(&p);
}

static void test_a_run_on_a_zip_is_that_of_the_programs(void **state)
{
    struct tiny *t = *state;
    char a[128], b[128], c[128];
    run_named(t, tiny_out(t, a), NULL);
    run_bound(t, tiny_out(t, b));
    run_named(t, tiny_out(t, c), "memory_budget='1GiB'");
    double error = run_number(a, "end", 0, "test_error");
    print_message("    error %.3f\n", error);
    assert_true(error < 0.2);
    assert_true(run_number(b, "end", 0, "test_error") == error);
    assert_true(run_same_bits(a, b, "final.safetensors"));
    assert_true(run_same_bits(a, c, "final.safetensors"));
    expect_test(t, a, error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_on_a_zip_is_that_of_the_programs),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
