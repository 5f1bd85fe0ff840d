/* Weights with torchvision's names in the zoo's nets: the scores are PyTorch's (torch_names.golden,
 * by torch_names.py, whose weights are a function of their names, as here), and the weights come
 * back as they were.
 *
 *   golden_torch_names_test [NET…]   by default all */
#include "base/file.h"
#include "model/caffe_convert.h"
#include "model/load.h"
#include "model/weights.h"
#include "model/zoo.h"
#include "nn/net.h"
#include "real/disk.h"
#include "tensor/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCORES = 10, NAME_BYTES = 128 };

static struct folder folder;
static bool choice[8];

/* ---- weights by their names ---- */

static float *make_floats(size_t n)
{
    float *at = aligned_alloc(64, (n + 16) / 16 * 64);
    assert_non_null(at);
    memset(at, 0, n * sizeof *at);
    return at;
}

/* -1 to 1: a hash of the name, mixed with the place. */
static void fill_numbers(const char *name, float *at, size_t n)
{
    uint32_t seed = 2166136261u;
    for (const char *c = name; *c; c++)
        seed = (seed ^ (uint8_t)*c) * 16777619u;
    for (size_t i = 0; i < n; i++) {
        uint32_t x = seed ^ (uint32_t)i * 0x9E3779B9u;
        x = (x ^ x >> 16) * 0x85EBCA6Bu;
        x = (x ^ x >> 13) * 0xC2B2AE35u;
        x ^= x >> 16;
        at[i] = (float)(int32_t)x * 0x1p-31f;
    }
}

struct file {
    struct safetensors_writer w;
    float *at[1024];
    size_t n;
};

static void put_tensor(struct file *f, const char *layer, const char *what,
                       const struct shape *shape)
{
    char name[NAME_BYTES];
    size_t n = shape_count(shape);
    float *at = f->at[f->n++] = make_floats(n), scale = 0.25f, shift = 0;
    snprintf(name, sizeof name, "%s.%s", layer, what);
    if (strcmp(what, "running_var") == 0) {
        scale = 0.5f;
        shift = 1.5f;
    } else if (shape->n > 1) {
        scale = sqrtf(4.5f / (float)shape_count_from(shape, 1));
    } else if (strcmp(what, "weight") == 0) {
        shift = 0.75f;
    }
    fill_numbers(name, at, n);
    for (size_t i = 0; i < n; i++)
        at[i] = shift + scale * at[i];
    safetensors_tensor(&f->w, name, shape, at);
}

static void put_conv(struct file *f, const char *layer, size_t O, size_t I, size_t k, bool bias)
{
    put_tensor(f, layer, "weight", &(struct shape){4, {O, I, k, k}});
    if (bias)
        put_tensor(f, layer, "bias", &(struct shape){1, {O}});
}

static void put_norm(struct file *f, const char *layer, size_t C)
{
    static const char *const what[] = {"weight", "bias", "running_mean", "running_var"};
    for (size_t k = 0; k < 4; k++)
        put_tensor(f, layer, what[k], &(struct shape){1, {C}});
}

static void put_linear(struct file *f, const char *layer, size_t O, size_t I)
{
    put_tensor(f, layer, "weight", &(struct shape){2, {O, I}});
    put_tensor(f, layer, "bias", &(struct shape){1, {O}});
}

/* A block of `convs` convolutions; `inputs` of the first. */
static void put_block(struct file *f, const char *block, size_t inputs, size_t maps, size_t convs,
                      bool down)
{
    char name[NAME_BYTES];
    size_t outputs = convs == 3 ? 4 * maps : maps, in = inputs;
    for (size_t c = 1; c <= convs; c++) {
        size_t out = c == convs ? outputs : maps, kernel = convs == 3 && c != 2 ? 1 : 3;
        snprintf(name, sizeof name, "%s.conv%zu", block, c);
        put_conv(f, name, out, in, kernel, false);
        snprintf(name, sizeof name, "%s.bn%zu", block, c);
        put_norm(f, name, out);
        in = out;
    }
    if (!down)
        return;
    snprintf(name, sizeof name, "%s.downsample.0", block);
    put_conv(f, name, outputs, inputs, 1, false);
    snprintf(name, sizeof name, "%s.downsample.1", block);
    put_norm(f, name, outputs);
}

static void put_resnet(struct file *f, const unsigned *blocks, size_t stages, size_t maps,
                       size_t stem, size_t convs, size_t classes)
{
    char name[NAME_BYTES];
    size_t in = maps;
    put_conv(f, "conv1", maps, 3, stem, false);
    put_norm(f, "bn1", maps);
    for (size_t stage = 0; stage < stages; stage++, maps *= 2)
        for (size_t k = 0; k < blocks[stage]; k++) {
            size_t out = convs == 3 ? 4 * maps : maps;
            snprintf(name, sizeof name, "layer%zu.%zu", stage + 1, k);
            put_block(f, name, in, maps, convs, k == 0 && (stage > 0 || convs == 3));
            in = out;
        }
    put_linear(f, "fc", classes, in);
}

/* 0: a pooling. */
static void put_vgg(struct file *f, const unsigned *outputs, size_t n)
{
    char name[NAME_BYTES];
    size_t in = 3, at = 0;
    for (size_t i = 0; i < n; i++) {
        if (outputs[i] == 0) {
            at++;
            continue;
        }
        snprintf(name, sizeof name, "features.%zu", at);
        put_conv(f, name, outputs[i], in, 3, true);
        in = outputs[i];
        at += 2;
    }
    put_linear(f, "classifier.0", 4096, 512 * 49);
    put_linear(f, "classifier.3", 4096, 4096);
    put_linear(f, "classifier.6", 1000, 4096);
}

static void put_net(struct file *f, const char *net)
{
    static const unsigned of_20[] = {3, 3, 3}, of_18[] = {2, 2, 2, 2}, of_50[] = {3, 4, 6, 3};
    static const unsigned vgg_a[] = {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0};
    static const unsigned vgg_16[] = {64, 64,  0,   128, 128, 0,   256, 256, 256,
                                      0,  512, 512, 512, 0,   512, 512, 512, 0};
    if (strcmp(net, "resnet-20") == 0)
        put_resnet(f, of_20, 3, 16, 3, 2, 10);
    else if (strcmp(net, "resnet-18-b") == 0)
        put_resnet(f, of_18, 4, 64, 7, 2, 1000);
    else if (strcmp(net, "resnet-50-b") == 0)
        put_resnet(f, of_50, 4, 64, 7, 3, 1000);
    else if (strcmp(net, "vgg-a") == 0)
        put_vgg(f, vgg_a, sizeof vgg_a / sizeof *vgg_a);
    else
        put_vgg(f, vgg_16, sizeof vgg_16 / sizeof *vgg_16);
}

static void write_file(const char *net, const char *path)
{
    struct file *f = calloc(1, sizeof *f);
    struct buf image = {0};
    struct err err = {0};
    assert_non_null(f);
    safetensors_begin(&f->w);
    put_net(f, net);
    assert_int_equal(safetensors_image(&f->w, &image, &err), OK);
    safetensors_end(&f->w);
    for (size_t i = 0; i < f->n; i++)
        free(f->at[i]);
    free(f);
    assert_int_equal(disk_replace(real_disk(), path, image.data, image.len, &err), OK);
    buf_release(&image);
}

/* ---- what is expected ---- */

static void read_scores(const char *net, double out[SCORES])
{
    struct file_bytes golden;
    struct err err = {0};
    char key[64];
    if (file_read(TEST_ROOT "/test/golden/torch_names.golden", 1 << 16, &golden, &err) != OK)
        fail_msg("%s", err.text);
    snprintf(key, sizeof key, "%s ", net);
    char *line = strstr((char *)golden.data, key);
    assert_non_null(line);
    line += strlen(key);
    for (size_t i = 0; i < SCORES; i++)
        out[i] = strtod(line, &line);
    file_release(&golden);
}

static const char *scores_of(const Caffe__NetParameter *param)
{
    for (size_t i = param->n_layer; i-- > 0;)
        if (strcmp(param->layer[i]->type, "SoftmaxWithLoss") == 0)
            return param->layer[i]->bottom[0];
    return "";
}

static void compare_scores(const char *name, const Caffe__NetParameter *param, const char *path)
{
    struct err err = {0};
    const struct shape record = zoo_record(name);
    const struct net_options options = {.phase = PHASE_TEST,
                                        .batch = 1,
                                        .input = record,
                                        .kernels = &kernels_dnnl,
                                        .keep = scores_of(param)};
    struct net *net;
    if (net_create(param, &options, &net, &err) != OK)
        fail_msg("%s", err.text);
    struct vec x = {.n = net_segments(net)->total}, s = {.n = net_state_segments(net)->total};
    x.at = make_floats(x.n);
    s.at = make_floats(s.n);
    const struct weights_into into = {net_segments(net), net_state_segments(net), x.at, s.at};
    if (model_weights_load(path, WEIGHTS_ALL, &into, NULL, &err) != OK)
        fail_msg("%s", err.text);
    float *data = make_floats(shape_count(&record)), *got = make_floats(2000);
    double want[SCORES], most = 0;
    fill_numbers("input", data, shape_count(&record));
    const uint32_t label = 0;
    const struct net_batch batch = {.data = data, .labels = &label, .count = 1};
    struct net_result result;
    struct shape shape;
    net_forward(net, &x, &s, &batch, &result);
    assert_true(net_blob(net, scores_of(param), got, 2000, &shape) >= SCORES);
    read_scores(name, want);
    for (size_t i = 0; i < SCORES; i++)
        most = fmax(most, fabs(want[i]));
    for (size_t i = 0; i < SCORES; i++)
        if (!(fabs((double)got[i] - want[i]) <= 1e-4 * most))
            fail_msg("%s: score %zu is %.7g, in PyTorch %.7g", name, i, (double)got[i], want[i]);
    net_free(net);
    free(x.at);
    free(s.at);
    free(data);
    free(got);
}

/* Our names and back: every bit. */
static void compare_names(const Caffe__NetParameter *param, const char *path)
{
    char ours[256], back[256];
    struct err err = {0};
    struct convert_options options = {.net = param};
    struct file_bytes a, b;
    struct safetensors there, here;
    folder_file(&folder, "ours.safetensors", ours);
    folder_file(&folder, "back.safetensors", back);
    if (caffe_convert(path, ours, &options, real_disk(), NULL, &err) != OK)
        fail_msg("%s", err.text);
    options.net = NULL; /* ours brings it along */
    options.torch = true;
    if (caffe_convert(ours, back, &options, real_disk(), NULL, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(file_read(path, (size_t)1 << 32, &a, &err), OK);
    assert_int_equal(file_read(back, (size_t)1 << 32, &b, &err), OK);
    assert_int_equal(safetensors_look("a", a.data, a.len, false, &there, &err), OK);
    assert_int_equal(safetensors_look("b", b.data, b.len, false, &here, &err), OK);
    assert_int_equal(there.n, here.n);
    for (size_t i = 0; i < there.n; i++) {
        struct shape shape = {0};
        const float *at = safetensors_find(&here, there.item[i].name, &shape);
        if (!at || !shape_equal(&shape, &there.item[i].shape) ||
            memcmp(at, there.item[i].data, there.item[i].count * sizeof *at) != 0)
            fail_msg("%s is another one when it is written again", there.item[i].name);
    }
    safetensors_release(&there);
    safetensors_release(&here);
    file_release(&a);
    file_release(&b);
}

static const char *const nets[] = {"resnet-20", "resnet-18-b", "resnet-50-b", "vgg-a", "vgg-16"};
enum { NETS = sizeof nets / sizeof *nets };

static void test_scores_are_those_of_pytorch(void **state)
{
    (void)state;
    for (size_t i = 0; i < NETS; i++) {
        Caffe__NetParameter *param;
        struct err err = {0};
        char path[256];
        if (!choice[i])
            continue;
        assert_int_equal(zoo_net(nets[i], &param, &err), OK);
        write_file(nets[i], folder_file(&folder, "torch.safetensors", path));
        compare_scores(nets[i], param, path);
        compare_names(param, path);
        caffe__net_parameter__free_unpacked(param, NULL);
        print_message("    %s\n", nets[i]);
    }
}

/* The file has the names of a ResNet. */
static void test_other_nets_are_refused(void **state)
{
    (void)state;
    char path[256], out[256];
    Caffe__NetParameter *param;
    struct err err = {0};
    struct convert_options options = {0};
    write_file("resnet-20", folder_file(&folder, "torch.safetensors", path));
    folder_file(&folder, "out.safetensors", out);
    assert_int_equal(caffe_convert(path, out, &options, real_disk(), NULL, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "brings no net along"));
    assert_int_equal(zoo_net("lenet", &param, &err), OK);
    options.net = param;
    assert_int_equal(caffe_convert(path, out, &options, real_disk(), NULL, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "only the zoo's ResNets and VGGs"));
    caffe__net_parameter__free_unpacked(param, NULL);
    assert_int_equal(zoo_net("resnet-32", &param, &err), OK);
    options.net = param;
    assert_int_equal(caffe_convert(path, out, &options, real_disk(), NULL, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "has no tensor for the net's layer \"Convolution8\""));
    caffe__net_parameter__free_unpacked(param, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores_are_those_of_pytorch),
        cmocka_unit_test(test_other_nets_are_refused),
    };
    for (size_t i = 0; i < NETS; i++) {
        choice[i] = argc == 1;
        for (int k = 1; k < argc; k++)
            choice[i] |= strcmp(argv[k], nets[i]) == 0;
    }
    folder_make(&folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    folder_remove(&folder);
    return failed;
}
