/* Models to Caffe and back: Caffe's own reader gives the same scores for a model trained here. */
#include "base/file.h"
#include "paceline/convert.h"
#include "refusal.h"

#include <math.h>

static const char test_spec[] = "idx:test-images,test-labels?scale=0.00390625";

/* The tiny net as one that only scores. */
static const char deploy[] =
    "name: 'tiny' input: 'data' input_dim: 1 input_dim: 1 input_dim: 12 input_dim: 12\n"
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n"
    "  convolution_param { num_output: 6 kernel_size: 3 } }\n"
    "layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool'\n"
    "  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'pool' top: 'pool' }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'\n"
    "  inner_product_param { num_output: 3 } }\n"
    "layer { name: 'prob' type: 'Softmax' bottom: 'ip' top: 'prob' }\n";

static char *run_for_output(const struct tiny *t, const char *const *argv)
{
    struct process p;
    run_command(t, &p, argv);
    char *out = strdup(p.out);
    process_release(&p);
    return out;
}

#define OUTPUT(t, ...) run_for_output(t, (const char *const[]){__VA_ARGS__, NULL})

static void outputs_are_equal(const char *first, char *out)
{
    assert_string_equal(out, first);
    free(out);
}

static void test_it_tests_as_it_did(void **state)
{
    const struct tiny *t = *state;
    free(OUTPUT(t, "sim", t->job, "--cluster", t->cluster, "--out", "run"));
    char *first = OUTPUT(t, "test", "--net", "net.prototxt", "--weights", "run/final.safetensors",
                         "--data", test_spec, "--kernels", "ref", "--json");
    assert_non_null(strstr(first, "\"accuracy\":0.9")); /* it has learnt */
    free(OUTPUT(t, "convert", "run/final.safetensors", "a.caffemodel", "--net", "net.prototxt"));
    outputs_are_equal(first, OUTPUT(t, "test", "--net", "net.prototxt", "--weights", "a.caffemodel",
                                    "--data", test_spec, "--kernels", "ref", "--json"));
    outputs_are_equal(first, OUTPUT(t, "test", "--model", "a.caffemodel", "--data", test_spec,
                                    "--kernels", "ref", "--json"));
    free(OUTPUT(t, "convert", "a.caffemodel", "b.safetensors"));
    outputs_are_equal(first, OUTPUT(t, "test", "--model", "b.safetensors", "--data", test_spec,
                                    "--kernels", "ref", "--json"));
    free(OUTPUT(t, "convert", "b.safetensors", "c.caffemodel"));
    free(OUTPUT(t, "convert", "c.caffemodel", "d.safetensors"));
    char *models = OUTPUT(t, "test", "--net", "deploy.prototxt", "--weights", "d.safetensors",
                          "--data", test_spec, "--kernels", "ref", "--json");
    outputs_are_equal(first, models);
    free(first);
}

/* ---- against OpenCV's importer ---- */

static const char python[] = "/usr/bin/python3";

static const char script[] = "import cv2, numpy, sys\n"
                             "x = numpy.fromfile('in.f32', numpy.float32).reshape(-1, 1, 12, 12)\n"
                             "net = cv2.dnn.readNetFromCaffe('deploy.prototxt', sys.argv[1])\n"
                             "net.setInput(x)\n"
                             "net.forward().astype(numpy.float32).tofile('out.f32')\n";

static bool opencv_installed(void)
{
    char command[128];
    snprintf(command, sizeof command, "%s -c 'import cv2, numpy' 2>/dev/null", python);
    return system(command) == 0;
}

enum { RECORDS = 8, FLOATS = TINY_SIDE * TINY_SIDE };

static void make_records(const struct tiny *t, float *x)
{
    for (int i = 0; i < RECORDS * FLOATS; i++)
        x[i] = (float)rng_below(3, 1, (uint64_t)i, 1000) / 1000.0f;
    FILE *f = tiny_open(t, "in.f32");
    assert_int_equal(fwrite(x, sizeof *x, RECORDS * FLOATS, f), RECORDS * FLOATS);
    fclose(f);
}

static void score_by_opencv(const struct tiny *t, float *scores)
{
    char command[512], path[128];
    tiny_write((struct tiny *)(uintptr_t)t, "score.py", script);
    snprintf(command, sizeof command, "cd '%s' && %s score.py api.caffemodel", t->folder, python);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/out.f32", t->folder);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(scores, sizeof *scores, RECORDS * TINY_CLASSES, f),
                     RECORDS * TINY_CLASSES);
    fclose(f);
}

static void test_opencv_scores_alike(void **state)
{
    const struct tiny *t = *state;
    static float x[RECORDS * FLOATS];
    float ours[RECORDS * TINY_CLASSES], theirs[RECORDS * TINY_CLASSES];
    char path[128];
    size_t each;
    pl_engine *engine;
    pl_net_spec *spec;
    pl_net *net;
    bool lossless;
    if (!opencv_installed()) {
        print_message("    OpenCV for Python is not installed\n");
        skip();
    }
    make_records(t, x);
    assert_int_equal(pl_engine_create(NULL, &engine), PL_OK);
    snprintf(path, sizeof path, "%s/deploy.prototxt", t->folder);
    assert_int_equal(pl_net_spec_load(engine, path, &spec), PL_OK);
    assert_int_equal(pl_net_spec_judge(spec, &lossless), PL_OK);
    assert_int_equal(pl_net_create(engine, spec,
                                   &(pl_net_options){.size = sizeof(pl_net_options), .seed = 7},
                                   &net),
                     PL_OK);
    float *weights;
    size_t n;
    assert_int_equal(pl_net_all_weights(net, &weights, &n), PL_OK);
    for (size_t i = 0; i < pl_net_weights_count(net); i++) { /* its fillers are constants: 0 */
        pl_weights w;
        assert_int_equal(pl_net_weights_at(net, i, &w), PL_OK);
        for (size_t k = 0; k < w.count; k++)
            w.at[k] = (float)rng_below(4, i, k, 1000) / 2500.0f - 0.2f;
    }
    snprintf(path, sizeof path, "%s/api.caffemodel", t->folder);
    assert_int_equal(pl_net_save_weights(net, path), PL_OK);
    assert_int_equal(pl_net_forward(net, x, RECORDS, "prob", ours, RECORDS * TINY_CLASSES, &each),
                     PL_OK);
    score_by_opencv(t, theirs);
    float least = 1, most = 0;
    for (int i = 0; i < RECORDS * TINY_CLASSES; i++) {
        assert_true(fabsf(ours[i] - theirs[i]) < 1e-5f);
        least = fminf(least, ours[i]);
        most = fmaxf(most, ours[i]);
    }
    assert_true(most - least > 0.1f);
    pl_net_free(net);
    pl_net_spec_free(spec);
    pl_engine_destroy(engine);
}

/* ---- what is refused ---- */

static void test_bad_input_is_refused(void **state)
{
    struct tiny *t = *state;
    tiny_write(t, "old.prototxt",
               "layers { name: 'a' type: RELU }\nlayers {\n  layer { x: 1 }\n}\n");
    tiny_write(t, "bad.caffemodel", "\x0a\x7f");
    REFUSED(t, "which files?", "convert", "net.prototxt");
    REFUSED(t, "unexpected argument", "convert", "a", "b", "c");
    REFUSED(t, "none of .caffemodel, .safetensors, .onnx and .prototxt", "convert", "a", "b");
    REFUSED(t, "cannot open", "convert", "a", "new.safetensors");
    REFUSED(t, "old.prototxt:3:11: V0LayerParameter", "convert", "old.prototxt", "new.prototxt");
    REFUSED(t, "bad.caffemodel: byte 0: field 1 has 127 bytes, 0 are left", "convert",
            "bad.caffemodel", "new.safetensors");
    REFUSED(t, "bad.caffemodel: byte 0", "test", "--model", "bad.caffemodel", "--data", test_spec);
    REFUSED(t, "--net and --model", "test", "--net", "lenet", "--model", "bad.caffemodel", "--data",
            test_spec);
    REFUSED(t, "no.binaryproto", "test", "--net", "net.prototxt", "--data", test_spec, "--mean",
            "no.binaryproto");
}

static void file_has(const struct tiny *t, const char *name, const char *text)
{
    char path[256];
    struct file_bytes bytes;
    struct err err;
    snprintf(path, sizeof path, "%s/%s", t->folder, name);
    assert_int_equal(file_read(path, 1 << 20, &bytes, &err), OK);
    assert_non_null(strstr((const char *)bytes.data, text));
    file_release(&bytes);
}

/* REFUSED looks that all files stay as they are, the net's comment among them. */
static void test_file_that_exists_is_replaced_by_force_alone(void **state)
{
    struct tiny *t = *state;
    char link[256];
    tiny_write(t, "mine.prototxt", "# my notes\nname: 'tiny' input: 'data' input_dim: 1\n");
    tiny_write(t, "mine.prototxt.new", "notes, too");
    snprintf(link, sizeof link, "%s/link.prototxt", t->folder);
    assert_int_equal(symlink("mine.prototxt", link), 0);
    static const char *const out[] = {"mine.prototxt", "./mine.prototxt", "link.prototxt"};
    for (int i = 0; i < 3; i++) {
        char phrase[128];
        snprintf(phrase, sizeof phrase,
                 "%s: exists; give another name, or replace it with "
                 "--force",
                 out[i]);
        REFUSED(t, phrase, "convert", "deploy.prototxt", out[i]);
        REFUSED(t, phrase, "convert", "mine.prototxt", out[i]);
    }
    free(OUTPUT(t, "convert", "deploy.prototxt", "link.prototxt", "--force"));
    file_has(t, "mine.prototxt", "12");
    file_has(t, "mine.prototxt.new", "notes, too");
    assert_int_equal(file_type(link), FILE_IS_OTHER); /* it is a link as before */
    file_has(t, "link.prototxt", "12");
}

static int setup(void **state)
{
    static struct tiny tiny;
    tiny_create(&tiny);
    tiny_write(&tiny, "deploy.prototxt", deploy);
    tiny_cluster(&tiny, "node { count: 4 } step_seconds: 0.004\n");
    *state = &tiny;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_tests_as_it_did),
        cmocka_unit_test(test_opencv_scores_alike),
        cmocka_unit_test(test_bad_input_is_refused),
        cmocka_unit_test(test_file_that_exists_is_replaced_by_force_alone),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
