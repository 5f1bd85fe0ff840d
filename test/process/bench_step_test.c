/* `paceline bench step --net`: a training step of any net on random records; its result about the
 * net, memory, threads and each layer; that steps do not allocate; and its refusals. */
#include "bf16_needed.h"
#include "folder.h"
#include "process.h"

#include <cJSON.h>
#include <sys/resource.h>

enum { LIMIT_S = 120, TUNING_TRIES = 5 };

/* Other processes took the processors while kernels were timed: nothing was kept. */
static const char too_busy_to_tune[] = "this machine is busy";

/* Not the tuner's file of another test. */
static int use_choices_of(const struct folder *f)
{
    char path[128];
    snprintf(path, sizeof path, "%s/kernels.txt", f->path);
    return setenv("PACELINE_TUNER", path, 1);
}

static const char *const keys[] = {
    "median_ms",     "p10_ms",   "p90_ms",          "gflops",     "peak_percent",
    "samples_per_s", "peak_mb",  "batch",           "threads",    "reorders",
    "isa",           "kernels",  "precision",       "parameters", "state",
    "bytes",         "begin_mb", "faults",          "census",     "first_step_s",
    "tuning_s",      "casts",    "weight_reorders", "layout"};
static const char *const purposes[] = {"parameters", "state",       "gradients",
                                       "optimizer",  "activations", "activation_gradients",
                                       "scratch",    "testing",     "records"};

enum { KEYS = sizeof keys / sizeof *keys, PURPOSES = sizeof purposes / sizeof *purposes };

static void run_command(struct process *p, const char *folder, const char *const *argv)
{
    process_start(p, folder, argv);
    process_wait(p, LIMIT_S);
}

#define RUN(p, folder, ...) \
    run_command((p), (folder), (const char *const[]){"bench", "step", __VA_ARGS__, NULL})

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);
    if (!cJSON_IsNumber(item))
        fail_msg("%s is not a number", key);
    return item->valuedouble;
}

/* The single line of a result, with all its keys and the requested ones of `more`. */
static cJSON *result_in(struct process *p, int more, const char *precision)
{
    if (p->code != 0)
        fail_msg("code %d:\n%s", p->code, p->err);
    cJSON *line = cJSON_Parse(p->out);
    if (!line)
        fail_msg("no JSON: %s", p->out);
    const cJSON *bytes = cJSON_GetObjectItem(line, "bytes");
    assert_int_equal(cJSON_GetArraySize(line), KEYS + more);
    for (int i = 0; i < KEYS; i++)
        if (!cJSON_HasObjectItem(line, keys[i]))
            fail_msg("no %s in %s", keys[i], p->out);
    assert_int_equal(cJSON_GetArraySize(bytes), PURPOSES);
    for (int i = 0; i < PURPOSES; i++)
        assert_true(number_of(bytes, purposes[i]) >= 0);
    assert_true(number_of(line, "median_ms") >= number_of(line, "p10_ms"));
    assert_true(number_of(line, "p90_ms") >= number_of(line, "median_ms"));
    assert_true(number_of(line, "p10_ms") > 0 && number_of(line, "gflops") >= 0);
    assert_true(number_of(line, "first_step_s") > 0 && number_of(line, "first_step_s") < LIMIT_S);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(line, "precision")), precision);
    process_release(p);
    return line;
}

static cJSON *result_of(struct process *p, int more)
{
    return result_in(p, more, "f32");
}

/* LeNet for 1×28×28: 431,080 parameters; conv1 20·24², pool1 20·12², conv2 50·8², pool2 50·4², ip1
 * 500 and ip2 10 values a record. The inputs of products in backward, pool1, pool2 and ip1, must be
 * kept; the rest may share. */
static void test_a_net_of_the_zoo(void **state)
{
    enum {
        BATCH = 256,
        WEIGHTS = 431080,
        KEPT = 2880 + 800 + 500,
        VALUES = KEPT + 11520 + 3200 + 10
    };
    (void)state;
    struct process p;
    struct rusage usage;
    RUN(&p, "/", "--net", "lenet", "--batch", "256", "--steps", "2", "--threads", "1", "--json");
    cJSON *line = result_of(&p, 0);
    const cJSON *bytes = cJSON_GetObjectItem(line, "bytes");
    assert_true(number_of(line, "parameters") == WEIGHTS);
    assert_true(number_of(line, "state") == 0);
    assert_true(number_of(line, "batch") == BATCH);
    assert_true(number_of(line, "threads") == 1);
    double vector = number_of(bytes, "parameters"), activations = number_of(bytes, "activations");
    assert_true(vector >= 4 * WEIGHTS && vector < 4 * WEIGHTS * 1.01);
    assert_true(number_of(bytes, "gradients") == vector);
    assert_true(number_of(bytes, "optimizer") == vector); /* SGD has a momentum */
    assert_true(activations >= 4.0 * BATCH * KEPT && activations < 4.4 * BATCH * VALUES);
    /* the batch in use and sixteen ahead */
    assert_true(number_of(bytes, "records") == 17.0 * 4 * BATCH * 28 * 28);
    double sum = 0, peak = number_of(line, "peak_mb") * 1e6;
    for (int i = 0; i < PURPOSES; i++)
        sum += number_of(bytes, purposes[i]);
    /* The kernel knows best, of this child, which is the largest so far. */
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &usage), 0);
    double most = (double)usage.ru_maxrss * 1024;
    assert_true(peak <= 1.01 * most && peak >= 0.95 * most);
    assert_true(peak > sum);
    assert_true(number_of(line, "begin_mb") > 0 && number_of(line, "begin_mb") * 1e6 < peak - sum);
    cJSON_Delete(line);
}

/* The same in half the memory, except for values in floats: ip1's 500 and ip2's 10 values, what ip1
 * reads of pool2, and its gradient. That copy is the only cast, in both directions. */
static void test_in_bf16(void **state)
{
    (void)state;
    bf16_needed();
    cJSON *line[2];
    for (int i = 0; i < 2; i++) {
        struct process p;
        const char *precision = i ? "bf16" : "f32";
        RUN(&p, "/", "--net", "lenet", "--batch", "64", "--steps", "2", "--threads", "1", "--json",
            "--precision", precision);
        line[i] = result_in(&p, 0, precision);
        assert_true(number_of(line[i], "casts") == 2 * i);
    }
    const cJSON *wide = cJSON_GetObjectItem(line[0], "bytes");
    const cJSON *half = cJSON_GetObjectItem(line[1], "bytes");
    double part = number_of(half, "activations") / number_of(wide, "activations");
    assert_true(part > 0.5 && part < 0.65);
    assert_true(number_of(half, "parameters") == number_of(wide, "parameters"));
    assert_true(number_of(half, "records") == number_of(wide, "records"));
    cJSON_Delete(line[0]), cJSON_Delete(line[1]);
}

/* ---- where the time goes ---- */

/* Multiply-adds of LeNet's products in millions, for a batch of 64, and those of a step: × 2, and ×
 * 3 for forward and both products of backward, × 2 for the first layer. */
static const struct {
    const char *name, *type, *shape;
    double gflop;
} lenet[] = {
    {"data", "Input", "64 1 28 28", 0},
    {"conv1", "Convolution", "64 20 24 24", 64 * 20 * 24 * 24 * 25 * 2e-9 * 2},
    {"pool1", "Pooling", "64 20 12 12", 0},
    {"conv2", "Convolution", "64 50 8 8", 64.0 * 50 * 8 * 8 * 20 * 25 * 2e-9 * 3},
    {"pool2", "Pooling", "64 50 4 4", 0},
    {"ip1", "InnerProduct", "64 500", 64 * 500 * 800 * 2e-9 * 3},
    {"relu1", "ReLU", "64 500", 0},
    {"ip2", "InnerProduct", "64 10", 64 * 10 * 500 * 2e-9 * 3},
    {"loss", "SoftmaxWithLoss", "", 0},
};

enum { LAYERS = sizeof lenet / sizeof *lenet };

static const char *text_of(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItem(object, key));
}

static void shape_is(const cJSON *layer, const char *expected)
{
    char found[64] = "";
    const cJSON *dim, *shape = cJSON_GetObjectItem(layer, "shape");
    cJSON_ArrayForEach(dim, shape)
    {
        size_t used = strlen(found);
        snprintf(found + used, sizeof found - used, used ? " %.0f" : "%.0f", dim->valuedouble);
    }
    assert_string_equal(found, expected);
}

static void test_by_layer(void **state)
{
    (void)state;
    struct process p;
    RUN(&p, "/", "--net", "lenet", "--steps", "40", "--threads", "1", "--json", "--by-layer");
    cJSON *line = result_of(&p, 6);
    const cJSON *layers = cJSON_GetObjectItem(line, "layers");
    double step = number_of(line, "probed_ms"), known = 0, share = 0;
    static const char *const parts[] = {"loading_ms", "clearing_ms", "update_ms", "rest_ms"};
    assert_int_equal(cJSON_GetArraySize(layers), LAYERS);
    for (int i = 0; i < LAYERS; i++) {
        const cJSON *layer = cJSON_GetArrayItem(layers, i);
        double forward = number_of(layer, "forward_ms"), backward = number_of(layer, "backward_ms");
        assert_string_equal(text_of(layer, "name"), lenet[i].name);
        assert_string_equal(text_of(layer, "type"), lenet[i].type);
        shape_is(layer, lenet[i].shape);
        assert_true(forward > 0 && (i == 0 ? backward == 0 : backward > 0));
        double gflop = number_of(layer, "gflops") * (forward + backward) * 1e-3;
        assert_true(gflop >= 0.999 * lenet[i].gflop && gflop <= 1.001 * lenet[i].gflop);
        known += forward + backward;
        share += number_of(layer, "share");
    }
    assert_true(share * step >= 0.999 * known && share * step <= 1.001 * known);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        assert_true(number_of(line, parts[i]) > 0);
        known += number_of(line, parts[i]);
    }
    /* Medians do not add up, least of all where others have the processor now and then. */
    assert_true(known > 0.2 * step && known < 1.5 * step);
    cJSON_Delete(line);
}

static void test_each_step(void **state)
{
    enum { STEPS = 21 };
    (void)state;
    struct process p;
    RUN(&p, "/", "--net", "lenet", "--batch", "8", "--steps", "21", "--json", "--each");
    cJSON *line = result_of(&p, 1);
    const cJSON *ms, *all = cJSON_GetObjectItem(line, "ms");
    double median = number_of(line, "median_ms");
    int below = 0, above = 0;
    assert_int_equal(cJSON_GetArraySize(all), STEPS);
    cJSON_ArrayForEach(ms, all)
    {
        below += ms->valuedouble < median;
        above += ms->valuedouble > median;
    }
    assert_true(below <= STEPS / 2 && above <= STEPS / 2);
    cJSON_Delete(line);
}

/* ---- what takes it ---- */

/* Of the process's threads T compute; the others wait, except for loading. */
static void test_threads(void **state)
{
    (void)state;
    for (int T = 1; T <= 2; T++) {
        struct process p;
        RUN(&p, "/", "--net", "cifar10-quick", "--input", "3x32x32", "--batch", "16", "--steps",
            "12", "--threads", T == 1 ? "1" : "2", "--json");
        cJSON *line = result_of(&p, 0);
        const cJSON *census = cJSON_GetObjectItem(line, "census"),
                    *busy = cJSON_GetObjectItem(census, "busy");
        assert_int_equal(cJSON_GetArraySize(busy), number_of(census, "process"));
        assert_int_equal(number_of(census, "computing"), T);
        assert_true(number_of(census, "process") > T); /* there is a loader */
        for (int i = 0; i < cJSON_GetArraySize(busy); i++) {
            double part = cJSON_GetArrayItem(busy, i)->valuedouble;
            assert_true(part >= 0 && part <= 1);
            assert_true(i == 0 || part <= cJSON_GetArrayItem(busy, i - 1)->valuedouble);
        }
        cJSON_Delete(line);
    }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static void test_steps_allocate_nothing(void **state)
{
    (void)state;
    skip(); /* the sanitizer has malloc to itself */
}

static void test_steps_in_bf16_allocate_nothing(void **state)
{
    test_steps_allocate_nothing(state);
}
#else
/* Allocations of a whole process for a number of steps, with its threads and libraries, except
 * those of oneDNN and OpenMP (count_malloc.c). */
static long count_allocations(const struct folder *f, const char *precision, const char *const *net,
                              const char *threads, const char *steps, bool *is_busy)
{
    struct process p;
    setenv("LD_PRELOAD", TEST_BUILD "/libcount_malloc.so", 1);
    RUN(&p, f->path, "--net", net[0], "--input", net[1], "--batch", "8", "--threads", threads,
        "--steps", steps, "--precision", precision);
    unsetenv("LD_PRELOAD");
    const char *found = strstr(p.err, "allocations: ");
    if (p.code != 0 || !found)
        fail_msg("code %d:\n%s", p.code, p.err);
    long n = strtol(found + strlen("allocations: "), NULL, 10);
    *is_busy = strstr(p.err, too_busy_to_tune);
    process_release(&p);
    return n;
}

static void steps_allocate_nothing(const struct folder *f, const char *precision)
{
    static const char *const nets[][2] = {
        {"lenet", "1x28x28"}, {"resnet-20", "3x32x32"}, {"alexnet-small", "3x32x32"}};
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
        for (int T = 1; T <= 2; T++) {
            const char *threads = T == 1 ? "1" : "2";
            bool is_busy = true, any;
            for (int try = 0; is_busy && try < TUNING_TRIES; try++) /* the tuner's, too */
                count_allocations(f, precision, nets[i], threads, "1", &is_busy);
            if (is_busy) /* every process would time kernels again: go by the rule */
                setenv("PACELINE_TUNER", "off", 1);
            /* On a busy machine a process may time a kept choice again and take another, which
             * allocates differently when it is set up: compare again. Allocations of steps
             * would make a difference of ten or more, and every time. */
            enum { MORE = 10 };
            long few = 0, many = MORE;
            for (int try = 0; labs(many - few) >= MORE && try < TUNING_TRIES; try++) {
                few = count_allocations(f, precision, nets[i], threads, "3", &any);
                many = count_allocations(f, precision, nets[i], threads, "13", &any);
            }
            use_choices_of(f);
            assert_true(few > 100); /* they are counted */
            if (labs(many - few) >= MORE)
                fail_msg("%s, %s, %d threads: %d steps more, %ld allocations more", nets[i][0],
                         precision, T, MORE, many - few);
        }
}

static void test_steps_allocate_nothing(void **state)
{
    steps_allocate_nothing(*state, "f32");
}

static void test_steps_in_bf16_allocate_nothing(void **state)
{
    bf16_needed();
    steps_allocate_nothing(*state, "bf16");
}
#endif

/* A process finds the choices of the one before, unless that could not time them. */
static void test_choices_are_kept(void **state)
{
    (void)state;
    bool was_busy = true;
    for (int i = 0; i < 2 * TUNING_TRIES; i++) {
        struct process p;
        RUN(&p, "/", "--net", "cifar10-quick", "--input", "3x32x32", "--batch", "6", "--steps", "1",
            "--threads", "1", "--json");
        bool is_busy = strstr(p.err, too_busy_to_tune);
        cJSON *line = result_of(&p, 0);
        double tuning = number_of(line, "tuning_s");
        assert_true(tuning < number_of(line, "first_step_s"));
        assert_true(was_busy ? tuning > 0 : tuning == 0);
        cJSON_Delete(line);
        if (!was_busy)
            return;
        was_busy = is_busy;
    }
    assert_true(was_busy);
    print_message("    this machine is too busy to time kernels\n");
}

/* ---- nets that only score ---- */

/* V1, and a shape of its own: 4·3·3·3 + 4, and 10·(4·6·6) + 10 parameters. */
static const char old_deploy[] =
    "name: 'old' input: 'data' input_dim: 7 input_dim: 3 input_dim: 8 input_dim: 8\n"
    "layers { name: 'conv' type: CONVOLUTION bottom: 'data' top: 'conv'\n"
    "  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'xavier' } } }\n"
    "layers { name: 'relu' type: RELU bottom: 'conv' top: 'conv' }\n"
    "layers { name: 'ip' type: INNER_PRODUCT bottom: 'conv' top: 'ip'\n"
    "  inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }\n"
    "layers { name: 'prob' type: SOFTMAX bottom: 'ip' top: 'prob' }\n";

/* Statistics that stay as they are, a mean, a variance and a factor: 2·4 + 1; and a shape that the
 * data must bring. */
static const char normalized[] =
    "layer { name: 'data' type: 'Data' top: 'data' }\n"
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n"
    "  convolution_param { num_output: 4 kernel_size: 3 bias_term: false } }\n"
    "layer { name: 'bn' type: 'BatchNorm' bottom: 'conv' top: 'conv'\n"
    "  batch_norm_param { use_global_stats: true } }\n"
    "layer { name: 'scale' type: 'Scale' bottom: 'conv' top: 'conv'\n"
    "  scale_param { bias_term: true } }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'conv' top: 'ip'\n"
    "  inner_product_param { num_output: 10 } }\n";

static const char two_results[] =
    "layer { name: 'data' type: 'Input' top: 'data' input_param { shape { dim: 1 dim: 6 } } }\n"
    "layer { name: 'a' type: 'InnerProduct' bottom: 'data' top: 'a'\n"
    "  inner_product_param { num_output: 2 } }\n"
    "layer { name: 'b' type: 'InnerProduct' bottom: 'data' top: 'b'\n"
    "  inner_product_param { num_output: 2 } }\n";

static void put_file(const struct folder *f, const char *name, const char *text)
{
    folder_put(f, name, text, strlen(text));
}

static void test_a_deploy_prototxt(void **state)
{
    const struct folder *f = *state;
    struct process p;
    put_file(f, "old.prototxt", old_deploy);
    RUN(&p, f->path, "--net", "old.prototxt", "--batch", "5", "--steps", "1", "--threads", "1",
        "--json");
    cJSON *line = result_of(&p, 0);
    assert_true(number_of(line, "parameters") == 4 * 27 + 4 + 1440 + 10);
    assert_true(number_of(line, "batch") == 5);
    cJSON_Delete(line);
    put_file(f, "normalized.prototxt", normalized);
    RUN(&p, f->path, "--net", "normalized.prototxt", "--input", "3x8x8", "--batch", "5", "--steps",
        "1", "--kernels", "ref", "--json");
    line = result_of(&p, 0);
    assert_true(number_of(line, "parameters") == 4 * 27 + 2 * 4 + 1440 + 10);
    assert_true(number_of(line, "state") == 2 * 4 + 1);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(line, "kernels")), "ref");
    cJSON_Delete(line);
}

static void expect_refusal(struct process *p, const char *why)
{
    if (p->code != 2 || !strstr(p->err, why))
        fail_msg("expected code 2 and \"%s\"; code %d, and it said:\n%s", why, p->code, p->err);
    assert_string_equal(p->out, "");
    process_release(p);
}

static void test_refusals(void **state)
{
    const struct folder *f = *state;
    struct process p;
    put_file(f, "old.prototxt", old_deploy);
    put_file(f, "normalized.prototxt", normalized);
    put_file(f, "two.prototxt", two_results);
    RUN(&p, f->path, "--net", "nonet");
    expect_refusal(&p, "nonet");
    RUN(&p, f->path, "--net", "normalized.prototxt", "--steps", "1");
    expect_refusal(&p, "the shape of its records is unknown");
    RUN(&p, f->path, "--net", "old.prototxt", "--input", "1x28x28", "--steps", "1");
    expect_refusal(&p, "3x8x8");
    RUN(&p, f->path, "--net", "two.prototxt", "--steps", "1");
    expect_refusal(&p, "it is not known which to judge");
    RUN(&p, f->path, "--net", "lenet", "--input", "1x28");
    expect_refusal(&p, "--input");
    RUN(&p, f->path, "--net", "lenet", "my.job");
    expect_refusal(&p, "without a job");
    RUN(&p, f->path, "--net", "lenet", "--set", "batch=3");
    expect_refusal(&p, "--set");
    RUN(&p, f->path, "--net", "lenet", "--batch", "0");
    expect_refusal(&p, "--batch");
    RUN(&p, f->path, "--net", "lenet", "--batch", "70000");
    expect_refusal(&p, "batch");
    RUN(&p, f->path, "--net", "lenet", "--precision", "bf16", "--kernels", "ref");
    expect_refusal(&p, "bf16");
    RUN(&p, f->path, "--net", "lenet", "--precision", "f16");
    expect_refusal(&p, "f16");
    RUN(&p, f->path, "--net", "lenet", "--steps", "0");
    expect_refusal(&p, "--steps");
    RUN(&p, f->path, "--input", "1x28x28", "my.job");
    expect_refusal(&p, "--input is for --net");
    RUN(&p, f->path, "--steps", "1");
    expect_refusal(&p, "a job file is missing");
}

static int setup(void **state)
{
    static struct folder folder;
    folder_make(&folder);
    *state = &folder;
    return use_choices_of(&folder);
}

static int teardown(void **state)
{
    folder_remove(*state);
    return unsetenv("PACELINE_TUNER");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_net_of_the_zoo),
        cmocka_unit_test(test_by_layer),
        cmocka_unit_test(test_each_step),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_in_bf16),
        cmocka_unit_test(test_steps_allocate_nothing),
        cmocka_unit_test(test_steps_in_bf16_allocate_nothing),
        cmocka_unit_test(test_choices_are_kept),
        cmocka_unit_test(test_a_deploy_prototxt),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
