#include "model/zoo.h"

#include "model/zoo_nets.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define NETS(X)                                                     \
    X("lenet",          zoo_lenet,             5,  1,  28,   10)    \
    X("cifar10-quick",  zoo_cifar10_quick,     5,  3,  32,   10)    \
    X("cifar10-full",   zoo_cifar10_full,      4,  3,  32,   10)    \
    X("alexnet",        zoo_alexnet,           8,  3, 227, 1000)    \
    X("alexnet-small",  zoo_alexnet_small,     5,  3,  32,   10)    \
    X("googlenet",      zoo_googlenet,        22,  3, 224, 1000)    \
    X("vgg-a",          zoo_vgg_a,            11,  3, 224, 1000)    \
    X("vgg-16",         zoo_vgg_16,           16,  3, 224, 1000)    \
    X("resnet-20",      zoo_resnet_cifar,     20,  3,  32,   10)    \
    X("resnet-32",      zoo_resnet_cifar,     32,  3,  32,   10)    \
    X("resnet-56",      zoo_resnet_cifar,     56,  3,  32,   10)    \
    X("resnet-110",     zoo_resnet_cifar,    110,  3,  32,   10)    \
    X("resnet-34",      zoo_resnet_imagenet,  34,  3, 224, 1000)    \
    X("resnet-50",      zoo_resnet_imagenet,  50,  3, 224, 1000)    \
    X("resnet-152",     zoo_resnet_imagenet, 152,  3, 224, 1000)    \
    X("resnet-18-b",     zoo_resnet_b,         18,  3, 224, 1000)    \
    X("resnet-34-b",     zoo_resnet_b,         34,  3, 224, 1000)    \
    X("resnet-50-b",     zoo_resnet_b,         50,  3, 224, 1000)    \
    X("resnet-101-b",    zoo_resnet_b,        101,  3, 224, 1000)    \
    X("resnet-152-b",    zoo_resnet_b,        152,  3, 224, 1000)    \
    X("inception-v3",   zoo_inception_v3,     48,  3, 299, 1000)    \
    X("cnn-6-12-12",    zoo_cnn_6_12_12,       4,  1,  28,   10)    \
    X("fc-480-160",     zoo_fc_480_160,        3,  1,  28,   10)
/* clang-format on */

struct zoo_entry {
    zoo_family *make;
    unsigned depth;
    size_t channels, side; /* of the records it was published for */
    uint32_t classes;
};

#define NAME(name, make, depth, channels, side, classes)  name,
#define ENTRY(name, make, depth, channels, side, classes) {make, depth, channels, side, classes},

static const char *const names[] = {NETS(NAME) NULL};
static const struct zoo_entry entries[] = {NETS(ENTRY)};

enum { COUNT = sizeof entries / sizeof *entries, CLASSES_MAX = 1000000 };

const char *const *zoo_names(void)
{
    return names;
}

/* The net of that name, without the options after it; NULL: none. */
static const struct zoo_entry *find_net(const char *name, size_t len)
{
    for (size_t i = 0; i < COUNT; i++)
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return &entries[i];
    return NULL;
}

struct shape zoo_record(const char *name)
{
    const struct zoo_entry *entry = find_net(name, strcspn(name, "?"));
    return entry ? (struct shape){3, {entry->channels, entry->side, entry->side}}
                 : (struct shape){0};
}

static int refuse_unknown(const char *name, struct err *err)
{
    char known[512];
    size_t used = 0;
    for (size_t i = 0; i < COUNT && used < sizeof known; i++)
        used +=
            (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", names[i]);
    return err_set(err, ERR_INPUT, "the zoo has no net \"%.64s\"; it has: %s", name, known);
}

/* "?classes=N", or nothing. */
static int read_classes(const char *name, const char *text, uint32_t *classes, struct err *err)
{
    static const char key[] = "?classes=";
    if (!*text)
        return OK;
    const char *digits = text + strlen(key);
    char *end = NULL;
    unsigned long value = 0;
    bool is = strncmp(text, key, strlen(key)) == 0 && *digits >= '0' && *digits <= '9';
    if (is)
        value = strtoul(digits, &end, 10);
    if (!is || *end || value < 2 || value > CLASSES_MAX)
        return err_set(err, ERR_INPUT,
                       "net \"%.64s\": only ?classes=N may follow the name, N from 2 to %d", name,
                       CLASSES_MAX);
    *classes = (uint32_t)value;
    return OK;
}

int zoo_net(const char *name, Caffe__NetParameter **out, struct err *err)
{
    size_t len = strcspn(name, "?");
    const struct zoo_entry *entry = find_net(name, len);
    if (!entry)
        return refuse_unknown(name, err);
    struct zoo_plan plan = {entry->depth, entry->classes};
    int rc = read_classes(name, name + len, &plan.classes, err);
    if (rc != OK)
        return rc;
    struct build b;
    build_begin(&b, names[entry - entries]);
    entry->make(&b, &plan);
    return build_end(&b, out, err);
}

/* ---- what families share ---- */

void zoo_begin(struct build *b)
{
    build_input(b, "data", "label");
}

void zoo_end(struct build *b, const char *scores, bool top_5)
{
    build_accuracy(b, "accuracy", scores, "label", 1);
    if (top_5)
        build_accuracy(b, "accuracy5", scores, "label", 5);
    build_softmax_loss(b, "loss", scores, "label");
}

struct build_weights zoo_weights(const char *filler, float std, float bias_value)
{
    struct build_weights weights = build_weights_default;
    weights.filler = filler;
    weights.std = std;
    weights.bias_value = bias_value;
    weights.bias_decay = 0.0f;
    return weights;
}

struct zoo_name zoo_name(const char *format, ...)
{
    struct zoo_name name;
    va_list args;
    va_start(args, format);
    vsnprintf(name.text, sizeof name.text, format, args);
    va_end(args);
    return name;
}
