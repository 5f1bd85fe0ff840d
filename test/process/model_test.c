/* `paceline test`: it gives the run's own result for a run's model, and refuses what it cannot
 * test. */
#include "refusal.h"
#include "run_files.h"

static const char test_spec[] = "idx:test-images,test-labels?scale=0.00390625";

static double number_of(const struct process *p, const char *key)
{
    cJSON *result = cJSON_Parse(p->out);
    const cJSON *item = cJSON_GetObjectItem(result, key);
    double value = cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
    cJSON_Delete(result);
    return value;
}

static void test_it_repeats_the_runs_results(void **state)
{
    struct tiny *t = *state;
    struct process trained, p;
    RUN(t, &trained, "sim", t->job, "--cluster", t->cluster, "--out", "run", "--json");
    double error = number_of(&trained, "test_error"), loss = number_of(&trained, "test_loss");
    assert_true(error < 0.2);
    RUN(t, &p, "test", "--net", "net.prototxt", "--weights", "run/final.safetensors", "--data",
        test_spec, "--kernels", "ref", "--json");
    assert_true(fabs(number_of(&p, "accuracy") - (1 - error)) < 1e-6);
    assert_true(fabs(number_of(&p, "loss") - loss) < 1e-6);
    assert_true(number_of(&p, "samples") == TINY_TEST);
    char *first = strdup(p.out);
    process_release(&p);
    RUN(t, &p, "test", "--net", "net.prototxt", "--weights", "run/final.safetensors", "--data",
        "idx:test-images,test-labels", "--scale", "0.00390625", "--kernels", "ref", "--json");
    assert_string_equal(p.out, first);
    process_release(&p);
    RUN(t, &p, "test", "--job", t->job, "--weights", "run/final.safetensors", "--kernels", "ref",
        "--json");
    assert_string_equal(p.out, first);
    process_release(&p);
    free(first);
    RUN(t, &p, "test", "--job", t->job, "--weights", "run/best.safetensors");
    assert_non_null(strstr(p.out, "samples     120\n"));
    process_release(&p);
    process_release(&trained);
}

/* It scores as the run's model does, and training continues from it. */
static void test_a_model_in_onnx(void **state)
{
    struct tiny *t = *state;
    struct process trained, p;
    RUN(t, &trained, "sim", t->job, "--cluster", t->cluster, "--out", "onnx", "--json");
    double error = number_of(&trained, "test_error"), loss = number_of(&trained, "test_loss");
    process_release(&trained);
    REFUSED(t, "the shape of the net's records is unknown; give it (--input)", "convert",
            "onnx/final.safetensors", "a.onnx", "--net", "net.prototxt");
    RUN(t, &p, "convert", "onnx/final.safetensors", "a.onnx", "--net", "net.prototxt", "--input",
        "1x12x12");
    process_release(&p);
    RUN(t, &p, "test", "--model", "a.onnx", "--data", test_spec, "--kernels", "ref", "--json");
    assert_true(fabs(number_of(&p, "accuracy") - (1 - error)) < 1e-6);
    assert_true(fabs(number_of(&p, "loss") - loss) < 1e-6);
    process_release(&p);
    RUN(t, &p, "train", t->job, "--out", "tuned", "--set", "net.file=a.onnx", "--weights", "a.onnx",
        "--workers", "1", "--steps", "20", "--json");
    assert_true(number_of(&p, "test_error") < 0.2);
    process_release(&p);
}

static void test_bad_input_is_refused(void **state)
{
    struct tiny *t = *state;
    tiny_write(
        t, "other.prototxt",
        "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
        "layer { name: 'ip9' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
        "  inner_product_param { num_output: 3 } }\n"
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'l' }\n");
    tiny_write_changed(t, "wide.prototxt", tiny_net, "num_output: 3", "num_output: 4");
    tiny_write_changed(t, "bad.prototxt", tiny_net, "InnerProduct", "InnerProdukt");
    struct process made;
    RUN(t, &made, "sim", t->job, "--cluster", t->cluster, "--out", "model");
    process_release(&made);
#define FINAL "model/final.safetensors"
    REFUSED(t, "give a run's directory, --net, --job or --model", "test", "--data", test_spec);
    REFUSED(t, "--data or --job", "test", "--net", "lenet");
    REFUSED(t, "the zoo has no net \"lenot\"", "test", "--net", "lenot", "--data", test_spec);
    REFUSED(t, "none.prototxt", "test", "--net", "none.prototxt", "--data", test_spec);
    REFUSED(t, "InnerProdukt", "test", "--net", "bad.prototxt", "--data", test_spec);
    REFUSED(t, "layer \"conv2\"", "test", "--net", "lenet", "--data", test_spec);
    REFUSED(t, "no kind of data", "test", "--net", "net.prototxt", "--data", "tape:a");
    REFUSED(t, "nothing", "test", "--net", "net.prototxt", "--data", "idx:nothing,test-labels");
    REFUSED(t, "scale", "test", "--net", "net.prototxt", "--data", test_spec, "--scale", "2");
    REFUSED(t, "scale", "test", "--job", t->job, "--scale", "big");
    REFUSED(t, "--batch", "test", "--job", t->job, "--batch", "0");
    REFUSED(t, "--threads", "test", "--job", t->job, "--threads", "x");
    REFUSED(t, "kernels", "test", "--job", t->job, "--kernels", "x");
    REFUSED(t, "none.safetensors", "test", "--job", t->job, "--weights", "none.safetensors");
    REFUSED(t, "train-labels", "test", "--job", t->job, "--weights", "train-labels");
    REFUSED(t, "has no tensor joint/ip9.0", "test", "--net", "other.prototxt", "--data", test_spec,
            "--weights", FINAL);
    REFUSED(t, "joint/ip.0 is 3x150, the net has 4x150", "test", "--net", "wide.prototxt", "--data",
            test_spec, "--weights", FINAL);
    REFUSED(t, "no such run or model", "test", "lenet");
}

static int setup(void **state)
{
    static struct tiny tiny;
    tiny_create(&tiny);
    tiny_cluster(&tiny, "node { count: 4 } step_seconds: 0.004\n");
    *state = &tiny;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_repeats_the_runs_results),
        cmocka_unit_test(test_a_model_in_onnx),
        cmocka_unit_test(test_bad_input_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
