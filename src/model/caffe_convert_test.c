/* There and back: caffemodel → safetensors → caffemodel, bit by bit. */
#include "model/caffe_convert.h"

#include "base/file.h"
#include "caffe_bytes.h"
#include "folder.h"
#include "job/text.h"
#include "model/caffe_model.h"
#include "real/disk.h"

static const struct folder *folder;

/* Values that a conversion must keep: signed zeros, NaNs, the smallest numbers. */
static const uint32_t STRANGE[] = {0x80000000u, 0x7fc01234u, 0xff800000u,
                                   0x00000001u, 0x3f800000u, 0x7f7fffffu};

static char *path_of(const char *name)
{
    static char path[4][256];
    static int next;
    next = (next + 1) % 4;
    folder_file(folder, name, path[next]);
    return path[next];
}

static int convert_file(const char *in, const char *out, const Caffe__NetParameter *net,
                        struct err *err)
{
    const struct convert_options options = {.net = net};
    return caffe_convert(path_of(in), path_of(out), &options, real_disk(), NULL, err);
}

static void expect_conversion(const char *in, const char *out, const Caffe__NetParameter *net)
{
    struct err err = {0};
    if (convert_file(in, out, net, &err) != OK)
        fail_msg("%s → %s: %s", in, out, err.text);
}

static void expect_refusal(const char *in, const char *out, int status, const char *words)
{
    struct err err = {0};
    assert_int_equal(convert_file(in, out, NULL, &err), status);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" says nothing of \"%s\"", err.text, words);
}

static struct piece strange_blob(const uint64_t *dim, size_t dims, size_t n)
{
    float data[6];
    memcpy(data, STRANGE, sizeof data);
    return blob_new(dim, dims, data, n);
}

/* conv1 and bn1, as the writer orders fields. */
static struct piece model_new(void)
{
    const uint64_t four[] = {2, 1, 1, 3}, two[] = {2}, one[] = {1};
    struct piece net = {.n = 0}, conv = layer_new("conv1", "Convolution"), param = {.n = 0};
    struct piece bn = layer_new("bn1", "BatchNorm");
    const struct piece blobs[] = {strange_blob(four, 4, 6), strange_blob(two, 1, 2),
                                  strange_blob(one, 1, 1)};
    piece_text(&net, 1, "strange");
    piece_text(&conv, 3, "data");
    piece_text(&conv, 4, "conv1");
    piece_number(&param, 1, 2);
    piece_block(&conv, 106, param.at, param.n);
    piece_in(&conv, 7, &blobs[0]);
    piece_in(&conv, 7, &blobs[1]);
    piece_in(&bn, 7, &blobs[1]);
    piece_in(&bn, 7, &blobs[1]);
    piece_in(&bn, 7, &blobs[2]);
    piece_in(&net, 100, &conv);
    piece_in(&net, 100, &bn);
    return net;
}

/* The model that a file has to hold, tensor by tensor. */
static void expect_model(const char *name, size_t layers, const char *type)
{
    struct file_bytes bytes;
    struct caffe_model model;
    struct err err = {0};
    uint32_t bits[6];
    float data[6];
    assert_int_equal(file_read(path_of(name), 1 << 16, &bytes, &err), OK);
    if (caffe_model_parse(name, bytes.data, bytes.len, &model, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(model.n, layers);
    assert_string_equal(model.layer[0].type, type);
    for (size_t i = 0; i < model.n; i++)
        for (size_t k = 0; k < model.layer[i].n; k++) {
            caffe_blob_copy(&model.layer[i].blob[k], data);
            memcpy(bits, data, sizeof bits);
            assert_memory_equal(bits, STRANGE, model.layer[i].blob[k].count * sizeof *bits);
        }
    caffe_model_release(&model);
    file_release(&bytes);
}

/* ---- stories ---- */

static void test_there_and_back(void **state)
{
    (void)state;
    static uint8_t first[FOLDER_BYTES_MAX], second[FOLDER_BYTES_MAX];
    const struct piece net = model_new();
    struct file_bytes bytes;
    struct safetensors st;
    struct shape shape;
    struct err err = {0};
    folder_put(folder, "a.caffemodel", net.at, net.n);
    expect_conversion("a.caffemodel", "a.safetensors", NULL);
    assert_int_equal(file_read(path_of("a.safetensors"), 1 << 16, &bytes, &err), OK);
    assert_int_equal(safetensors_parse("a", bytes.data, bytes.len, true, &st, &err), OK);
    assert_int_equal(st.n, 5);
    const float *at = safetensors_find(&st, "joint/conv1.0", &shape);
    assert_memory_equal(at, STRANGE, sizeof STRANGE);
    assert_int_equal(shape.n, 4);
    assert_non_null(safetensors_find(&st, "joint/conv1.1", NULL));
    assert_memory_equal(safetensors_find(&st, "s/bn1.2", NULL), STRANGE, sizeof STRANGE[0]);
    safetensors_release(&st);
    file_release(&bytes);
    expect_conversion("a.safetensors", "b.caffemodel", NULL);
    expect_model("b.caffemodel", 2, "Convolution");
    expect_conversion("b.caffemodel", "b.safetensors", NULL);
    size_t n = folder_get(folder, "a.safetensors", first);
    assert_int_equal(folder_get(folder, "b.safetensors", second), n);
    assert_memory_equal(first, second, n);
    expect_conversion("b.safetensors", "c.caffemodel", NULL);
    n = folder_get(folder, "b.caffemodel", first);
    assert_int_equal(folder_get(folder, "c.caffemodel", second), n);
    assert_memory_equal(first, second, n);
}

/* Four dimensions stay as they were written, so that Caffe reads them as it did. */
static void test_old_blobs_stay_old(void **state)
{
    (void)state;
    const uint64_t tall[] = {1, 1, 2, 3};
    struct piece net = {.n = 0}, ip = layer_v1("ip1", 14);
    float data[6];
    memcpy(data, STRANGE, sizeof data);
    struct piece w = blob_old(tall, data, 6);
    piece_in(&ip, 6, &w);
    piece_in(&net, 2, &ip);
    folder_put(folder, "v1.caffemodel", net.at, net.n);
    expect_conversion("v1.caffemodel", "v1.safetensors", NULL);
    expect_conversion("v1.safetensors", "fresh.caffemodel", NULL);
    expect_model("fresh.caffemodel", 1, "InnerProduct");
    struct file_bytes bytes;
    struct caffe_model model;
    struct err err = {0};
    assert_int_equal(file_read(path_of("fresh.caffemodel"), 1 << 16, &bytes, &err), OK);
    assert_int_equal(caffe_model_parse("x", bytes.data, bytes.len, &model, &err), OK);
    assert_false(model.v1);
    assert_true(model.layer[0].blob[0].old);
    caffe_model_release(&model);
    file_release(&bytes);
}

static Caffe__NetParameter *net_of(const char *text)
{
    ProtobufCMessage *msg;
    struct err err = {0};
    if (text_parse(&caffe__net_parameter__descriptor, "net", text, strlen(text), &msg, &err) != OK)
        fail_msg("%s", err.text);
    return (Caffe__NetParameter *)msg;
}

static void put_tensors(const char *name, const char *const *tensors, size_t n)
{
    static float data[6];
    const struct shape shape = {2, {2, 3}};
    struct safetensors_writer w;
    struct buf image = {0};
    struct err err = {0};
    memcpy(data, STRANGE, sizeof data);
    safetensors_begin(&w);
    for (size_t i = 0; i < n; i++)
        safetensors_tensor(&w, tensors[i], &shape, data);
    assert_int_equal(safetensors_image(&w, &image, &err), OK);
    safetensors_end(&w);
    folder_put(folder, name, image.data, image.len);
    buf_release(&image);
}

/* A checkpoint and its net: the optimizer's vectors stay behind, shared weights are written twice.
 */
static void test_a_checkpoint_with_its_net(void **state)
{
    (void)state;
    static const char *const tensors[] = {"joint/ip1.0", "s/bn1.0", "momentum/ip1.0"};
    Caffe__NetParameter *net =
        net_of("layer { name: 'ip1' type: 'InnerProduct' param { name: 'w' } }"
               "layer { name: 'bn1' type: 'BatchNorm' }"
               "layer { name: 'ip2' type: 'InnerProduct' param { name: 'w' } }"
               "layer { name: 'relu' type: 'ReLU' }");
    put_tensors("run.safetensors", tensors, 3);
    expect_refusal("run.safetensors", "run.caffemodel", ERR_INPUT, "brings no net along");
    expect_conversion("run.safetensors", "run.caffemodel", net);
    expect_model("run.caffemodel", 4, "InnerProduct");
    struct file_bytes bytes;
    struct caffe_model model;
    struct err err = {0};
    assert_int_equal(file_read(path_of("run.caffemodel"), 1 << 16, &bytes, &err), OK);
    assert_int_equal(caffe_model_parse("x", bytes.data, bytes.len, &model, &err), OK);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(model.layer[i].n, 1);
    assert_int_equal(model.layer[3].n, 0);
    caffe_model_release(&model);
    file_release(&bytes);
    caffe__net_parameter__free_unpacked(net, NULL);
}

static void test_tensors_of_no_layer(void **state)
{
    (void)state;
    static const char *const other[] = {"joint/ip1.0", "joint/ip9.0"};
    static const char *const gap[] = {"joint/ip1.1"};
    static const char *const none[] = {"weight"};
    struct err err = {0};
    Caffe__NetParameter *net = net_of("layer { name: 'ip1' type: 'InnerProduct' }");
    put_tensors("other.safetensors", other, 2);
    assert_int_equal(convert_file("other.safetensors", "x.caffemodel", net, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "tensor joint/ip9.0: the net has no layer for it"));
    put_tensors("other.safetensors", gap, 1);
    assert_int_equal(convert_file("other.safetensors", "x.caffemodel", net, &err), ERR_INPUT);
    put_tensors("other.safetensors", none, 1);
    assert_int_equal(convert_file("other.safetensors", "x.caffemodel", net, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "no tensors joint/LAYER.INDEX"));
    assert_false(folder_has(folder, "x.caffemodel"));
    caffe__net_parameter__free_unpacked(net, NULL);
}

static void test_prototxt(void **state)
{
    (void)state;
    static const char old[] = "layers { name: 'ip1' type: INNER_PRODUCT blobs_lr: 2 }";
    const struct piece net = model_new();
    folder_put(folder, "old.prototxt", old, strlen(old));
    expect_conversion("old.prototxt", "new.prototxt", NULL);
    folder_expect(folder, "new.prototxt",
                  "layer {\n  name: \"ip1\"\n  type: \"InnerProduct\"\n"
                  "  param {\n    lr_mult: 2\n  }\n}\n");
    folder_put(folder, "a.caffemodel", net.at, net.n);
    expect_conversion("a.caffemodel", "net.prototxt", NULL);
    folder_expect(folder, "net.prototxt",
                  "name: \"strange\"\nlayer {\n  name: \"conv1\"\n  type: \"Convolution\"\n"
                  "  bottom: \"data\"\n  top: \"conv1\"\n"
                  "  convolution_param {\n    num_output: 2\n  }\n}\n"
                  "layer {\n  name: \"bn1\"\n  type: \"BatchNorm\"\n}\n");
    folder_put(folder, "old.prototxt", "layers {\n  x: 1\n}", 16);
    expect_refusal("old.prototxt", "new.prototxt", ERR_INPUT, "old.prototxt:2:3: ");
}

static void test_ways_there_are_not(void **state)
{
    (void)state;
    const struct piece net = model_new();
    folder_put(folder, "a.caffemodel", net.at, net.n);
    expect_refusal("a.caffemodel", "b.caffemodel", ERR_INPUT, "is a .caffemodel already; copy it");
    expect_refusal("a.caffemodel", "b.pt", ERR_INPUT, "none of .caffemodel");
    expect_refusal("nowhere.caffemodel", "nowhere.safetensors", ERR_INPUT,
                   "nowhere.caffemodel: cannot open");
    assert_false(folder_has(folder, "nowhere.safetensors"));
}

static int setup(void **state)
{
    static struct folder own;
    (void)state;
    folder_make(&own);
    folder = &own;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_old_blobs_stay_old),
        cmocka_unit_test(test_a_checkpoint_with_its_net),
        cmocka_unit_test(test_tensors_of_no_layer),
        cmocka_unit_test(test_prototxt),
        cmocka_unit_test(test_ways_there_are_not),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
