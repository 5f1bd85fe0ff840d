/* Weights of torchvision's ResNets and VGGs, and of ResNets for CIFAR that are named like them,
 * in the zoo's nets of the same structure: conv1.weight, layer1.0.bn1.running_mean.
 *
 * A layer BatchNorm has sums and their divisor where PyTorch has means; a bias that only one of
 * both has is 0, or is subtracted from the mean of the normalisation behind it: the same result. */
#ifndef PL_MODEL_TORCH_NAMES_H
#define PL_MODEL_TORCH_NAMES_H

#include "base/arena.h"
#include "model/caffe_model.h"
#include "model/safetensors.h"

enum torch_family {
    TORCH_RESNET,       /* resnet-34, resnet-50-b */
    TORCH_RESNET_CIFAR, /* resnet-20 */
    TORCH_VGG_A,
    TORCH_VGG_16,
};

struct torch_map {
    enum torch_family family;
    unsigned blocks; /* of a stage, for CIFAR */
};

/* Does a net have the layers of one of these? `has` tells whether it has one of that name. */
bool torch_map_find(bool (*has)(void *user, const char *layer), void *user, struct torch_map *out);

/* Does a file have tensors of these names? */
bool torch_is_named(const struct safetensors *st);

/* Blob k of the layer out of the file: as it lies there, or in the arena. False: neither the file
 * nor the map has it, or memory ran out (*out has shape.n = SHAPE_DIMS_MAX + 1 then). */
bool torch_take(const struct torch_map *map, const struct safetensors *st, const char *layer,
                size_t k, struct arena *arena, struct caffe_tensor *out);

/* Write the net's numbers under these names as a safetensors file, whole or not at all. `path` has
 * a directory part. ERR_INPUT: a tensor is missing; ERR_IO, ERR_NOMEM */
int torch_write(const struct torch_map *map, const Caffe__NetParameter *net,
                const struct caffe_blobs *blobs, struct disk *disk, const char *path,
                struct err *err);

#endif
