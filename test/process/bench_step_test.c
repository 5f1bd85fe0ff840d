/* `paceline bench step --net`: a training step of any net on records that are made up, what its
 * result says of the net and of memory, and what it refuses. */
#include "folder.h"
#include "process.h"

#include <cJSON.h>
#include <sys/resource.h>

enum { LIMIT_S = 120 };

static const char *const keys[] = {"median_ms",    "p10_ms",        "p90_ms",  "gflops",
                                   "peak_percent", "samples_per_s", "peak_mb", "batch",
                                   "threads",      "reorders",      "isa",     "kernels",
                                   "precision",    "parameters",    "state",   "bytes"};
static const char *const purposes[] = {"parameters", "state",       "gradients",
                                       "optimizer",  "activations", "activation_gradients",
                                       "scratch",    "testing",     "records"};

enum { KEYS = sizeof keys / sizeof *keys, PURPOSES = sizeof purposes / sizeof *purposes };

static void run(struct process *p, const char *folder, const char *const *argv)
{
    process_start(p, folder, argv);
    process_wait(p, LIMIT_S);
}

#define RUN(p, folder, ...) \
    run((p), (folder), (const char *const[]){"bench", "step", __VA_ARGS__, NULL})

static double number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);
    if (!cJSON_IsNumber(item))
        fail_msg("%s is no number", key);
    return item->valuedouble;
}

/* The one line of a result, with all its keys and no more. */
static cJSON *result_of(struct process *p)
{
    if (p->code != 0)
        fail_msg("code %d:\n%s", p->code, p->err);
    cJSON *line = cJSON_Parse(p->out);
    if (!line)
        fail_msg("no JSON: %s", p->out);
    const cJSON *bytes = cJSON_GetObjectItem(line, "bytes");
    assert_int_equal(cJSON_GetArraySize(line), KEYS);
    for (int i = 0; i < KEYS; i++)
        if (!cJSON_HasObjectItem(line, keys[i]))
            fail_msg("no %s in %s", keys[i], p->out);
    assert_int_equal(cJSON_GetArraySize(bytes), PURPOSES);
    for (int i = 0; i < PURPOSES; i++)
        assert_true(number(bytes, purposes[i]) >= 0);
    assert_true(number(line, "median_ms") >= number(line, "p10_ms"));
    assert_true(number(line, "p90_ms") >= number(line, "median_ms"));
    assert_true(number(line, "p10_ms") > 0 && number(line, "gflops") >= 0);
    process_release(p);
    return line;
}

/* LeNet for 1×28×28: 431,080 parameters; conv1 20·24², pool1 20·12², conv2 50·8², pool2 50·4², ip1
 * 500 and ip2 10 values a record. */
static void test_a_net_of_the_zoo(void **state)
{
    enum { BATCH = 256, WEIGHTS = 431080, VALUES = 11520 + 2880 + 3200 + 800 + 500 + 10 };
    (void)state;
    struct process p;
    struct rusage usage;
    RUN(&p, "/", "--net", "lenet", "--batch", "256", "--steps", "2", "--threads", "1", "--json");
    cJSON *line = result_of(&p);
    const cJSON *bytes = cJSON_GetObjectItem(line, "bytes");
    assert_true(number(line, "parameters") == WEIGHTS);
    assert_true(number(line, "state") == 0);
    assert_true(number(line, "batch") == BATCH);
    assert_true(number(line, "threads") == 1);
    double vector = number(bytes, "parameters"), activations = number(bytes, "activations");
    assert_true(vector >= 4 * WEIGHTS && vector < 4 * WEIGHTS * 1.01);
    assert_true(number(bytes, "gradients") == vector);
    assert_true(number(bytes, "optimizer") == vector); /* SGD has a momentum */
    assert_true(activations >= 4.0 * BATCH * VALUES && activations < 4.4 * BATCH * VALUES);
    assert_true(number(bytes, "records") == 2.0 * 4 * BATCH * 28 * 28);
    double sum = 0, peak = number(line, "peak_mb") * 1e6;
    for (int i = 0; i < PURPOSES; i++)
        sum += number(bytes, purposes[i]);
    /* The kernel knows best, of this child, which is the largest so far. */
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &usage), 0);
    double most = (double)usage.ru_maxrss * 1024;
    assert_true(peak <= 1.01 * most && peak >= 0.95 * most);
    assert_true(peak > sum);
    cJSON_Delete(line);
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

static void put(const struct folder *f, const char *name, const char *text)
{
    folder_put(f, name, text, strlen(text));
}

static void test_a_deploy_prototxt(void **state)
{
    const struct folder *f = *state;
    struct process p;
    put(f, "old.prototxt", old_deploy);
    RUN(&p, f->path, "--net", "old.prototxt", "--batch", "5", "--steps", "1", "--threads", "1",
        "--json");
    cJSON *line = result_of(&p);
    assert_true(number(line, "parameters") == 4 * 27 + 4 + 1440 + 10);
    assert_true(number(line, "batch") == 5);
    cJSON_Delete(line);
    put(f, "normalized.prototxt", normalized);
    RUN(&p, f->path, "--net", "normalized.prototxt", "--input", "3x8x8", "--batch", "5", "--steps",
        "1", "--kernels", "ref", "--json");
    line = result_of(&p);
    assert_true(number(line, "parameters") == 4 * 27 + 2 * 4 + 1440 + 10);
    assert_true(number(line, "state") == 2 * 4 + 1);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(line, "kernels")), "ref");
    cJSON_Delete(line);
}

static void refused(struct process *p, const char *why)
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
    put(f, "old.prototxt", old_deploy);
    put(f, "normalized.prototxt", normalized);
    put(f, "two.prototxt", two_results);
    RUN(&p, f->path, "--net", "nonet");
    refused(&p, "nonet");
    RUN(&p, f->path, "--net", "normalized.prototxt", "--steps", "1");
    refused(&p, "the shape of its records is not known");
    RUN(&p, f->path, "--net", "old.prototxt", "--input", "1x28x28", "--steps", "1");
    refused(&p, "3x8x8");
    RUN(&p, f->path, "--net", "two.prototxt", "--steps", "1");
    refused(&p, "it is not known which to judge");
    RUN(&p, f->path, "--net", "lenet", "--input", "1x28");
    refused(&p, "--input");
    RUN(&p, f->path, "--net", "lenet", "my.job");
    refused(&p, "without a job");
    RUN(&p, f->path, "--net", "lenet", "--set", "batch=3");
    refused(&p, "--set");
    RUN(&p, f->path, "--net", "lenet", "--batch", "0");
    refused(&p, "--batch");
    RUN(&p, f->path, "--net", "lenet", "--batch", "70000");
    refused(&p, "batch");
    RUN(&p, f->path, "--net", "lenet", "--steps", "0");
    refused(&p, "--steps");
    RUN(&p, f->path, "--input", "1x28x28", "my.job");
    refused(&p, "--input is for --net");
    RUN(&p, f->path, "--steps", "1");
    refused(&p, "a job file is missing");
}

static int make(void **state)
{
    static struct folder folder;
    folder_make(&folder);
    *state = &folder;
    return 0;
}

static int clean(void **state)
{
    folder_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_net_of_the_zoo),
        cmocka_unit_test(test_a_deploy_prototxt),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
