/* Caffe's own files, in the folder caffe of PACELINE_DATA: each loads, infers its shapes, and has
 * as many parameters as is published; and what the zoo builds says what they say. Without the
 * variable the tests are skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/load.h"
#include "model/zoo.h"
#include "nn/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void path_of(const char *file, char path[512])
{
    const char *data = getenv("PACELINE_DATA");
    if (!data || !data[0]) {
        print_message("    PACELINE_DATA is not set\n");
        skip();
    }
    snprintf(path, 512, "%s/caffe/%s.prototxt", data, file);
}

static Caffe__NetParameter *load_net(const char *file)
{
    char path[512];
    Caffe__NetParameter *param = NULL;
    struct err err = {0};
    path_of(file, path);
    if (model_load_prototxt(path, &param, &err) != OK)
        fail_msg("%s", err.text);
    return param;
}

/* ---- they load ---- */

enum { TRAINS = 1 }; /* has a phase TRAIN: a loss and labels */

/* The counts are sums over the files' own layers, by a script that shares nothing with us, and what
 * papers and other programs' models have: AlexNet 61 M, CaffeNet the same, GoogLeNet 7 M and twice
 * that with its auxiliary classifiers, VGG A, D, E 133 M, 138 M, 144 M, ResNet-50, -101, -152 25.6
 * M, 44.5 M, 60.2 M, SqueezeNet 1.2 M, and the 6n + 2 layers for CIFAR-10 0.27 M, 0.85 M, 1.7 M. */
static const struct {
    const char *file;
    size_t channels, side, parameters;
    int trains;
} files[] = {
    {"lenet/lenet", 1, 28, 431080, 0},
    {"lenet/lenet_train_test", 1, 28, 431080, TRAINS},
    {"cifar10_quick/cifar10_quick", 3, 32, 145578, 0},
    {"cifar10_quick/cifar10_quick_train_test", 3, 32, 145578, TRAINS},
    {"cifar10_v1format/cifar10_quick", 3, 32, 145578, 0},
    {"cifar10_v1format/cifar10_quick_train_test", 3, 32, 145578, TRAINS},
    {"cifar10_full/cifar10_full", 3, 32, 89578, 0},
    {"cifar10_full/cifar10_full_train_test", 3, 32, 89578, TRAINS},
    {"cifar10_full/cifar10_full_sigmoid_train_test_bn", 3, 32, 89450, TRAINS},
    {"resnet_cifar10/res20_cifar_train_test", 3, 32, 273258, TRAINS},
    {"resnet_cifar10/res56_cifar_train_test", 3, 32, 857898, TRAINS},
    {"resnet_cifar10/res110_cifar_train_test", 3, 28, 1734858, TRAINS},
    {"alexnet/deploy", 3, 227, 60965224, 0},
    {"alexnet/train_val", 3, 227, 60965224, TRAINS},
    {"caffenet/deploy", 3, 227, 60965224, 0},
    {"caffenet/train_val", 3, 227, 60965224, TRAINS},
    {"squeezenet/squeezenet_v1.1_deploy", 3, 227, 1235496, 0},
    {"squeezenet/squeezenet_v1.1_train_val", 3, 227, 1235496, TRAINS},
    {"googlenet/deploy", 3, 224, 6998552, 0},
    {"googlenet/train_val", 3, 224, 13378280, TRAINS},
    {"vgg/vgg_a", 3, 224, 132863336, 0},
    {"vgg/vgg16_deploy", 3, 224, 138357544, 0},
    {"vgg/vgg16_train_val", 3, 224, 138357544, TRAINS},
    {"vgg/vgg19_deploy", 3, 224, 143667240, 0},
    {"resnet_imagenet/ResNet-50-deploy", 3, 224, 25557096, 0},
    {"resnet_imagenet/resnet50_train_val", 3, 224, 25557096, TRAINS},
    {"resnet_imagenet/ResNet-101-deploy", 3, 224, 44549160, 0},
    {"resnet_imagenet/ResNet-152-deploy", 3, 224, 60192808, 0},
};

static void test_files_have_published_parameters(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        Caffe__NetParameter *param = load_net(files[i].file);
        struct shape record = {3, {files[i].channels, files[i].side, files[i].side}};
        for (int phase = files[i].trains ? PHASE_TRAIN : PHASE_TEST; phase <= PHASE_TEST; phase++) {
            struct net_options options = {
                .phase = (enum phase)phase, .batch = 1, .input = record, .kernels = &kernels_ref};
            struct net *net;
            struct err err = {0};
            size_t sum = 0;
            if (net_create(param, &options, &net, &err) != OK)
                fail_msg("%s: %s", files[i].file, err.text);
            const struct segments *table = net_segments(net);
            for (size_t k = 0; k < table->count; k++)
                sum += table->at[k].len;
            if (sum != files[i].parameters)
                fail_msg("%s has %zu parameters", files[i].file, sum);
            net_free(net);
        }
        caffe__net_parameter__free_unpacked(param, NULL);
    }
}

/* ---- the zoo says what they say ---- */

static bool is_among(const char *word, const char *const *list)
{
    while (*list && strcmp(*list, word) != 0)
        list++;
    return *list != NULL;
}

static const void *field_at(const ProtobufCMessage *msg, unsigned offset)
{
    return (const char *)msg + offset;
}

/* The meaning of an empty list of numbers. */
static double list_default(const char *field)
{
    return strcmp(field, "pad") == 0 ? 0 : 1;
}

static double number_of(const ProtobufCFieldDescriptor *field, const void *list, size_t i, size_t n)
{
    if (i >= n)
        return list_default(field->name);
    return field->type == PROTOBUF_C_TYPE_FLOAT ? (double)((const float *)list)[i]
                                                : ((const uint32_t *)list)[i];
}

static bool same_message(const ProtobufCMessageDescriptor *type, const ProtobufCMessage *a,
                         const ProtobufCMessage *b, const char *const *unless, const char **where);

/* The blobs of the data layer are named otherwise in some files. */
static const char *blob_name(const char *name)
{
    return strcmp(name, "Data1") == 0 ? "data" : name;
}

static bool same_list(const ProtobufCFieldDescriptor *field, const ProtobufCMessage *a,
                      const ProtobufCMessage *b, const char *const *unless, const char **where)
{
    size_t n[2] = {*(const size_t *)field_at(a, field->quantifier_offset),
                   *(const size_t *)field_at(b, field->quantifier_offset)};
    const void *list[2] = {*(void *const *)field_at(a, field->offset),
                           *(void *const *)field_at(b, field->offset)};
    for (size_t i = 0; i < n[0] || i < n[1]; i++) {
        if (field->type == PROTOBUF_C_TYPE_STRING) {
            if (n[0] != n[1] || strcmp(blob_name(((char *const *)list[0])[i]),
                                       blob_name(((char *const *)list[1])[i])) != 0)
                return false;
        } else if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            const ProtobufCMessage *m[2];
            for (int k = 0; k < 2; k++)
                m[k] = i < n[k] ? ((ProtobufCMessage *const *)list[k])[i] : NULL;
            if (!same_message(field->descriptor, m[0], m[1], unless, where))
                return false;
        } else if (number_of(field, list[0], i, n[0]) != number_of(field, list[1], i, n[1])) {
            return false;
        }
    }
    return true;
}

static bool same_number(const ProtobufCFieldDescriptor *field, const ProtobufCMessage *a,
                        const ProtobufCMessage *b)
{
    bool wide = field->type == PROTOBUF_C_TYPE_INT64 || field->type == PROTOBUF_C_TYPE_DOUBLE;
    return memcmp(field_at(a, field->offset), field_at(b, field->offset), wide ? 8 : 4) == 0;
}

static bool same_field(const ProtobufCFieldDescriptor *field, const ProtobufCMessage *a,
                       const ProtobufCMessage *b, const char *const *unless, const char **where)
{
    const void *value[2] = {field_at(a, field->offset), field_at(b, field->offset)};
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return same_list(field, a, b, unless, where);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return same_message(field->descriptor, *(ProtobufCMessage *const *)value[0],
                            *(ProtobufCMessage *const *)value[1], unless, where);
    if (field->type != PROTOBUF_C_TYPE_STRING)
        return same_number(field, a, b);
    const char *text[2] = {*(char *const *)value[0], *(char *const *)value[1]};
    return strcmp(text[0] ? text[0] : "", text[1] ? text[1] : "") == 0;
}

/* Do they mean the same? A field that is not set has its default, and so has a message that is
 * absent. */
static bool same_message(const ProtobufCMessageDescriptor *type, const ProtobufCMessage *a,
                         const ProtobufCMessage *b, const char *const *unless, const char **where)
{
    ProtobufCMessage *none = calloc(1, type->sizeof_message);
    assert_non_null(none);
    protobuf_c_message_init(type, none);
    bool same = true;
    for (unsigned i = 0; i < type->n_fields && same; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        if (is_among(field->name, unless))
            continue;
        same = same_field(field, a ? a : none, b ? b : none, unless, where);
        if (!same && !*where)
            *where = field->name;
    }
    free(none);
    return same;
}

/* The next layer from *i on that is among those to compare. */
static const Caffe__LayerParameter *next_layer(const Caffe__NetParameter *net, size_t *i,
                                               bool trained)
{
    static const char *const ends[] = {"Data",    "Input",           "Accuracy",
                                       "Softmax", "SoftmaxWithLoss", NULL};
    static const char *const light[] = {"ReLU", "Dropout", NULL};
    while (*i < net->n_layer) {
        const Caffe__LayerParameter *layer = net->layer[(*i)++];
        if (!is_among(layer->type, ends) && (trained || !is_among(layer->type, light)))
            return layer;
    }
    return NULL;
}

/* Where a file is to train with, all counts; else what makes the shapes. */
static const char *const *unless_of(const Caffe__LayerParameter *layer, bool trained)
{
    static const char *const none[] = {NULL}, *const relu[] = {"name", NULL};
    /* Caffe's files say that its statistics do not learn, and leave the fraction at 0.999; the zoo
     * has 0.9 (zoo_resnet.c says why). */
    static const char *const norm[] = {"param", "moving_average_fraction", NULL};
    static const char *const no_bias[] = {"bias_filler", NULL};
    static const char *const shapes[] = {"param", "weight_filler", "bias_filler",
                                         "batch_norm_param", NULL};
    if (!trained)
        return shapes;
    if (strcmp(layer->type, "ReLU") == 0)
        return relu;
    if (strcmp(layer->type, "BatchNorm") == 0)
        return norm;
    return layer->convolution_param && !layer->convolution_param->bias_term ? no_bias : none;
}

/* loss_weight of all losses, in order. */
static size_t loss_weights(const Caffe__NetParameter *net, float weight[8])
{
    size_t n = 0;
    for (size_t i = 0; i < net->n_layer; i++) {
        const Caffe__LayerParameter *layer = net->layer[i];
        if (strcmp(layer->type, "SoftmaxWithLoss") != 0)
            continue;
        assert_true(n < 8);
        weight[n++] = layer->n_loss_weight ? layer->loss_weight[0] : 1.0f;
    }
    return n;
}

static void compare_nets(const char *name, const char *file, bool trained)
{
    Caffe__NetParameter *theirs = load_net(file), *ours = NULL;
    struct err err = {0};
    assert_int_equal(zoo_net(name, &ours, &err), OK);
    size_t i = 0, k = 0;
    const Caffe__LayerParameter *a, *b;
    do {
        const char *where = NULL;
        a = next_layer(ours, &i, trained);
        b = next_layer(theirs, &k, trained);
        if (!a != !b)
            fail_msg("%s ends with another layer than %s", name, file);
        if (a && !same_message(&caffe__layer_parameter__descriptor, &a->base, &b->base,
                               unless_of(a, trained), &where))
            fail_msg("%s: layer %s is not what layer %s of %s is: %s", name, a->name, b->name, file,
                     where);
    } while (a);
    float weight[2][8];
    size_t n = loss_weights(ours, weight[0]);
    if (trained) {
        assert_int_equal(loss_weights(theirs, weight[1]), n);
        assert_memory_equal(weight[0], weight[1], n * sizeof weight[0][0]);
    }
    caffe__net_parameter__free_unpacked(ours, NULL);
    caffe__net_parameter__free_unpacked(theirs, NULL);
}

static void test_the_zoo_equals_the_files(void **state)
{
    (void)state;
    compare_nets("lenet", "lenet/lenet_train_test", true);
    compare_nets("cifar10-quick", "cifar10_quick/cifar10_quick_train_test", true);
    compare_nets("cifar10-full", "cifar10_full/cifar10_full_train_test", true);
    compare_nets("alexnet", "alexnet/train_val", true);
    compare_nets("googlenet", "googlenet/train_val", true);
    compare_nets("vgg-a", "vgg/vgg_a", false);
    compare_nets("vgg-16", "vgg/vgg16_train_val", true);
    compare_nets("resnet-20", "resnet_cifar10/res20_cifar_train_test", true);
    compare_nets("resnet-56", "resnet_cifar10/res56_cifar_train_test", true);
    compare_nets("resnet-110", "resnet_cifar10/res110_cifar_train_test", true);
    compare_nets("resnet-50", "resnet_imagenet/resnet50_train_val", true);
    compare_nets("resnet-50", "resnet_imagenet/ResNet-50-deploy", false);
    compare_nets("resnet-152", "resnet_imagenet/ResNet-152-deploy", false);
}

/* The comparison can fail: one number, one name, one layer. */
static void test_a_difference_is_seen(void **state)
{
    (void)state;
    Caffe__NetParameter *a = NULL, *b = NULL;
    struct err err = {0};
    static const char *const none[] = {NULL};
    assert_int_equal(zoo_net("alexnet", &a, &err), OK);
    assert_int_equal(zoo_net("alexnet", &b, &err), OK);
    for (int change = 0; change < 5; change++) {
        const char *where = NULL;
        Caffe__LayerParameter *conv2 = b->layer[5], *norm2 = b->layer[7];
        switch (change) {
        case 1: conv2->convolution_param->group = 1; break;
        case 2: conv2->convolution_param->pad[0] = 1; break;
        case 3: conv2->param[1]->decay_mult = 1; break;
        case 4: norm2->lrn_param->alpha = 0.0002f; break;
        default: break;
        }
        bool same = true;
        for (size_t i = 0; i < a->n_layer; i++)
            same &= same_message(&caffe__layer_parameter__descriptor, &a->layer[i]->base,
                                 &b->layer[i]->base, none, &where);
        assert_int_equal(same, change == 0);
        static const char *const fields[] = {"", "group", "pad", "decay_mult", "alpha"};
        if (change)
            assert_string_equal(where, fields[change]);
        conv2->convolution_param->group = 2;
        conv2->convolution_param->pad[0] = 2;
        conv2->param[1]->decay_mult = 0;
    }
    caffe__net_parameter__free_unpacked(a, NULL);
    caffe__net_parameter__free_unpacked(b, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_have_published_parameters),
        cmocka_unit_test(test_the_zoo_equals_the_files),
        cmocka_unit_test(test_a_difference_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
