/* The families of the zoo, a file each: functions that append a net's layers, from an input of the
 * data's shape to the loss and the accuracy. Layers are named as in Caffe's own files where there
 * is one, so that weights trained elsewhere can be loaded. */
#ifndef PL_MODEL_ZOO_NETS_H
#define PL_MODEL_ZOO_NETS_H

#include "model/build.h"

/* The variations within a family. */
struct zoo_plan {
    unsigned depth; /* layers with weights, by the paper's count */
    uint32_t classes;
};

typedef void zoo_family(struct build *b, const struct zoo_plan *plan);

zoo_family zoo_lenet, zoo_fc_480_160, zoo_cnn_6_12_12;
zoo_family zoo_cifar10_quick, zoo_cifar10_full;
zoo_family zoo_alexnet, zoo_alexnet_small;
zoo_family zoo_googlenet;
zoo_family zoo_vgg_a, zoo_vgg_16;
zoo_family zoo_resnet_cifar, zoo_resnet_imagenet, zoo_resnet_b;
zoo_family zoo_inception_v3;

/* A window of k×k pixels, as an argument. */
#define SQUARE(k, step, border) \
    (&(const struct build_window){.kernel = (k), .stride = (step), .pad = (border)})

/* Records "data" and "label". */
void zoo_begin(struct build *b);

/* Append "loss" and "accuracy" of these scores, and "accuracy5" among the five highest if
 * requested. */
void zoo_end(struct build *b, const char *scores, bool top_5);

/* Caffe's usual multipliers: biases learn twice as fast and do not decay. */
struct build_weights zoo_weights(const char *filler, float std, float bias_value);

/* A name that lives until the end of the statement: build_relu(b, zoo_name("relu%d", i).text, ..)
 */
struct zoo_name {
    char text[64];
};
struct zoo_name zoo_name(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
