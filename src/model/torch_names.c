#include "model/torch_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 128, STAGES = 5 };

/* The divisor of a BatchNorm's sums: see add_statistics in onnx_units.c. The zoo's ResNets keep 0.9
 * of a running mean, as PyTorch does. */
static const float STATISTICS = 8.0f;

static const unsigned convolutions_a[STAGES] = {1, 1, 2, 2, 2};
static const unsigned convolutions_16[STAGES] = {2, 2, 3, 3, 3};

/* ---- names ---- */

/* The kind of a layer in PyTorch: a convolution or product, or a half of a normalisation. */
enum torch_kind { TORCH_PLAIN, TORCH_STATISTICS, TORCH_FACTORS };

struct torch_layer {
    enum torch_kind kind;
    char name[NAME_BYTES];   /* "layer1.0.bn1" */
    char before[NAME_BYTES]; /* of a normalisation: ours of the convolution before it */
};

/* Convolution number i, from 1, of a ResNet for CIFAR: two a block, and ahead of them one that
 * changes the size. */
static bool name_cifar(const struct torch_map *map, unsigned i, bool norm, char out[NAME_BYTES])
{
    const char *what = norm ? "bn" : "conv";
    if (i == 1)
        return snprintf(out, NAME_BYTES, "%s1", what) > 0;
    unsigned at = 2;
    for (unsigned stage = 0; stage < 3; stage++)
        for (unsigned k = 0; k < map->blocks; k++) {
            if (stage > 0 && k == 0 && at++ == i)
                return snprintf(out, NAME_BYTES, "layer%u.0.downsample.%d", stage + 1, norm) > 0;
            for (unsigned c = 1; c <= 2; c++)
                if (at++ == i)
                    return snprintf(out, NAME_BYTES, "layer%u.%u.%s%u", stage + 1, k, what, c) > 0;
        }
    return false;
}

static bool find_cifar(const struct torch_map *map, const char *layer, struct torch_layer *out)
{
    static const struct {
        const char *prefix;
        enum torch_kind kind;
    } kinds[] = {
        {"Convolution", TORCH_PLAIN}, {"BatchNorm", TORCH_STATISTICS}, {"Scale", TORCH_FACTORS}};
    if (strcmp(layer, "InnerProduct1") == 0) {
        snprintf(out->name, NAME_BYTES, "fc");
        return true;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].prefix);
        if (strncmp(layer, kinds[i].prefix, n) != 0)
            continue;
        unsigned long number = strtoul(layer + n, NULL, 10);
        if (number < 1 || number > 100000)
            return false;
        out->kind = kinds[i].kind;
        snprintf(out->before, NAME_BYTES, "Convolution%lu", number);
        return name_cifar(map, (unsigned)number, out->kind != TORCH_PLAIN, out->name);
    }
    return false;
}

/* "2a_branch2b", "3b7_branch1" */
static bool name_branch(const char *text, bool norm, char out[NAME_BYTES])
{
    char *end;
    unsigned long stage = strtoul(text, &end, 10), k = 0;
    if (end == text || stage < 2 || stage > 5 || *end < 'a' || *end > 'z')
        return false;
    k = (unsigned long)(*end - 'a');
    if (end[1] >= '0' && end[1] <= '9')
        k = strtoul(end + 1, &end, 10);
    else
        end++;
    if (strcmp(end, "_branch1") == 0)
        return snprintf(out, NAME_BYTES, "layer%lu.%lu.downsample.%d", stage - 1, k, norm) > 0;
    if (strncmp(end, "_branch2", 8) != 0 || end[8] < 'a' || end[8] > 'c' || end[9])
        return false;
    return snprintf(out, NAME_BYTES, "layer%lu.%lu.%s%d", stage - 1, k, norm ? "bn" : "conv",
                    end[8] - 'a' + 1) > 0;
}

static bool find_resnet(const char *layer, struct torch_layer *out)
{
    if (strcmp(layer, "conv1") == 0)
        return snprintf(out->name, NAME_BYTES, "conv1") > 0;
    if (strncmp(layer, "fc", 2) == 0)
        return snprintf(out->name, NAME_BYTES, "fc") > 0;
    if (strncmp(layer, "res", 3) == 0)
        return name_branch(layer + 3, false, out->name);
    bool bn = strncmp(layer, "bn", 2) == 0;
    if (!bn && strncmp(layer, "scale", 5) != 0)
        return false;
    const char *rest = layer + (bn ? 2 : 5);
    out->kind = bn ? TORCH_STATISTICS : TORCH_FACTORS;
    if (strcmp(rest, "_conv1") == 0) {
        snprintf(out->before, NAME_BYTES, "conv1");
        return snprintf(out->name, NAME_BYTES, "bn1") > 0;
    }
    snprintf(out->before, NAME_BYTES, "res%.100s", rest);
    return name_branch(rest, true, out->name);
}

/* Convolution k, from 0, of a stage: each has a ReLU behind it, and a stage a pooling. */
static bool name_feature(const unsigned convolutions[STAGES], unsigned stage, unsigned k,
                         char out[NAME_BYTES])
{
    unsigned at = 2 * k;
    if (stage >= STAGES || k >= convolutions[stage])
        return false;
    for (unsigned i = 0; i < stage; i++)
        at += 2 * convolutions[i] + 1;
    return snprintf(out, NAME_BYTES, "features.%u", at) > 0;
}

static bool find_vgg(const struct torch_map *map, const char *layer, struct torch_layer *out)
{
    char *end;
    if (strlen(layer) == 3 && strncmp(layer, "fc", 2) == 0 && layer[2] >= '6' && layer[2] <= '8')
        return snprintf(out->name, NAME_BYTES, "classifier.%d", 3 * (layer[2] - '6')) > 0;
    if (strncmp(layer, "conv", 4) != 0)
        return false;
    unsigned long i = strtoul(layer + 4, &end, 10);
    if (map->family == TORCH_VGG_16) {
        unsigned long k = *end == '_' ? strtoul(end + 1, &end, 10) : 0;
        return i >= 1 && k >= 1 && i <= STAGES && !*end &&
               name_feature(convolutions_16, (unsigned)i - 1, (unsigned)k - 1, out->name);
    }
    if (strcmp(end, "/3x3_s1") != 0 || i < 1)
        return false;
    unsigned long k = i - 1;
    for (unsigned stage = 0; stage < STAGES; k -= convolutions_a[stage++])
        if (k < convolutions_a[stage])
            return name_feature(convolutions_a, stage, (unsigned)k, out->name);
    return false;
}

static bool find_layer(const struct torch_map *map, const char *layer, struct torch_layer *out)
{
    *out = (struct torch_layer){.kind = TORCH_PLAIN};
    switch (map->family) {
    case TORCH_RESNET: return find_resnet(layer, out);
    case TORCH_RESNET_CIFAR: return find_cifar(map, layer, out);
    default: return find_vgg(map, layer, out);
    }
}

bool torch_map_find(bool (*has)(void *user, const char *layer), void *user, struct torch_map *out)
{
    char name[NAME_BYTES];
    unsigned n = 0;
    *out = (struct torch_map){.family = TORCH_RESNET};
    if (has(user, "res2a_branch2a") && has(user, "bn_conv1"))
        return true;
    out->family = TORCH_VGG_16;
    if (has(user, "conv1_1") && has(user, "conv5_3") && has(user, "fc8"))
        return true;
    out->family = TORCH_VGG_A;
    if (has(user, "conv1/3x3_s1") && has(user, "conv8/3x3_s1") && has(user, "fc8"))
        return true;
    do
        snprintf(name, sizeof name, "Convolution%u", ++n);
    while (n < 100000 && has(user, name));
    n--; /* 6 n + 3 of them */
    out->family = TORCH_RESNET_CIFAR;
    out->blocks = n / 6;
    return n >= 9 && n % 6 == 3 && has(user, "BatchNorm1") && has(user, "InnerProduct1");
}

bool torch_is_named(const struct safetensors *st)
{
    return safetensors_item(st, "conv1.weight") || safetensors_item(st, "features.0.weight");
}

/* ---- from there ---- */

static const char *suffix_of(enum torch_kind kind, size_t k)
{
    if (kind == TORCH_STATISTICS)
        return k == 0 ? "running_mean" : "running_var";
    return k == 0 ? "weight" : "bias";
}

static const float *find_named(const struct safetensors *st, const char *name, const char *suffix,
                               struct shape *shape)
{
    char full[2 * NAME_BYTES];
    snprintf(full, sizeof full, "%s.%s", name, suffix);
    return safetensors_find(st, full, shape);
}

static bool give_numbers(struct arena *arena, size_t n, const float *from, float scale,
                         struct caffe_tensor *out)
{
    float *at = arena_array(arena, n, float);
    for (size_t i = 0; at && i < n; i++)
        at[i] = from ? scale * from[i] : scale;
    out->data = at;
    return at != NULL;
}

bool torch_take(const struct torch_map *map, const struct safetensors *st, const char *layer,
                size_t k, struct arena *arena, struct caffe_tensor *out)
{
    struct torch_layer there;
    struct shape shape;
    *out = (struct caffe_tensor){.data = NULL};
    if (!find_layer(map, layer, &there) || k > (there.kind == TORCH_STATISTICS ? 2 : 1))
        return false;
    if (there.kind == TORCH_STATISTICS && k == 2) {
        out->shape = (struct shape){1, {1}};
        return give_numbers(arena, 1, NULL, STATISTICS, out);
    }
    out->data = find_named(st, there.name, suffix_of(there.kind, k), &out->shape);
    if (out->data && there.kind == TORCH_STATISTICS)
        return give_numbers(arena, shape_count(&out->shape), out->data, STATISTICS, out);
    if (out->data || k == 0 || there.kind != TORCH_PLAIN)
        return out->data != NULL;
    /* A convolution has no bias where a normalisation follows. */
    if (!find_named(st, there.name, "weight", &shape) || shape.n != 4)
        return false;
    out->shape = (struct shape){1, {shape.dim[0]}};
    return give_numbers(arena, shape.dim[0], NULL, 0.0f, out);
}

/* ---- to there ---- */

static size_t find_number(const Caffe__NetParameter *net, const char *layer)
{
    for (size_t i = 0; i < net->n_layer; i++)
        if (net->layer[i]->name && strcmp(net->layer[i]->name, layer) == 0)
            return i;
    return net->n_layer;
}

static int get_blob(const Caffe__NetParameter *net, const struct caffe_blobs *blobs, size_t i,
                    size_t k, struct caffe_tensor *out, const char *path, struct err *err)
{
    return blobs->get(blobs->user, i, k, out)
               ? OK
               : err_set(err, ERR_INPUT, "%.200s: layer \"%.100s\" has no weights %zu", path,
                         net->layer[i]->name, k);
}

/* Means, without the bias of the convolution before them, or variances. */
static int put_statistics(const Caffe__NetParameter *net, const struct caffe_blobs *blobs, size_t i,
                          size_t k, const char *before, struct arena *arena,
                          struct caffe_tensor *out, const char *path, struct err *err)
{
    struct caffe_tensor sums, count, bias = {.data = NULL};
    int rc = get_blob(net, blobs, i, k, &sums, path, err);
    if (rc == OK)
        rc = get_blob(net, blobs, i, 2, &count, path, err);
    if (rc != OK)
        return rc;
    size_t C = shape_count(&sums.shape), conv = find_number(net, before);
    float *at = arena_array(arena, C, float);
    if (!at)
        return err_set(err, ERR_NOMEM, "%.200s: out of memory", path);
    if (k == 0 && conv < net->n_layer && blobs->get(blobs->user, conv, 1, &bias) &&
        shape_count(&bias.shape) != C)
        bias.data = NULL;
    double scale = count.data[0] != 0.0f ? 1.0 / (double)count.data[0] : 0.0;
    for (size_t c = 0; c < C; c++)
        at[c] = (float)(scale * (double)sums.data[c] - (bias.data ? (double)bias.data[c] : 0.0));
    *out = (struct caffe_tensor){.shape = {1, {C}}, .data = at};
    return OK;
}

/* Is the layer's bias in the means of the normalisation behind it? */
static bool is_normalised(const struct torch_map *map, const struct torch_layer *there)
{
    bool resnet = map->family == TORCH_RESNET || map->family == TORCH_RESNET_CIFAR;
    return resnet && there->kind == TORCH_PLAIN && strcmp(there->name, "fc") != 0;
}

static int put_layer(struct safetensors_writer *w, const struct torch_map *map,
                     const Caffe__NetParameter *net, const struct caffe_blobs *blobs, size_t i,
                     struct arena *arena, const char *path, struct err *err)
{
    struct torch_layer there;
    struct caffe_tensor tensor;
    if (!net->layer[i]->name || !find_layer(map, net->layer[i]->name, &there))
        return OK;
    for (size_t k = 0; k < 2; k++) {
        if (!blobs->get(blobs->user, i, k, &tensor) || (k == 1 && is_normalised(map, &there)))
            continue;
        int rc = there.kind == TORCH_STATISTICS
                     ? put_statistics(net, blobs, i, k, there.before, arena, &tensor, path, err)
                     : OK;
        char name[2 * NAME_BYTES];
        if (rc != OK)
            return rc;
        snprintf(name, sizeof name, "%s.%s", there.name, suffix_of(there.kind, k));
        safetensors_tensor(w, name, &tensor.shape, tensor.data);
    }
    return OK;
}

int torch_write(const struct torch_map *map, const Caffe__NetParameter *net,
                const struct caffe_blobs *blobs, struct disk *disk, const char *path,
                struct err *err)
{
    struct safetensors_writer w;
    struct arena arena;
    struct buf image = {0};
    int rc = OK;
    arena_init(&arena);
    safetensors_begin(&w);
    safetensors_meta(&w, "format", "pt");
    for (size_t i = 0; i < net->n_layer && rc == OK; i++)
        rc = put_layer(&w, map, net, blobs, i, &arena, path, err);
    if (rc == OK)
        rc = safetensors_image(&w, &image, err);
    safetensors_end(&w);
    arena_release(&arena);
    if (rc == OK)
        rc = disk_replace(disk, path, image.data, image.len, err);
    buf_release(&image);
    return rc;
}
