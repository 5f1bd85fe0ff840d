/* Szegedy et al. 2014, "Going deeper with convolutions", Table 1, as Caffe's
 * models/bvlc_googlenet/train_val.prototxt has it: 6,998,552 parameters, and 13,378,280 with the
 * two auxiliary classifiers, whose losses count 0.3 each and which testing does not need. */
#include "model/zoo_nets.h"

static void add_conv(struct build *b, const char *module, const char *part, const char *bottom,
                     uint32_t outputs, const struct build_window *window)
{
    const struct build_weights weights = zoo_weights("xavier", 0, 0.2f);
    struct zoo_name top = zoo_name("%s/%s", module, part);
    build_convolution(b, top.text, bottom, outputs, window, &weights);
    build_relu(b, zoo_name("%s/relu_%s", module, part).text, top.text);
}

static void add_classifier(struct build *b, const char *top, const char *bottom, uint32_t classes)
{
    const struct build_weights weights = zoo_weights("xavier", 0, 0);
    build_inner_product(b, top, bottom, classes, &weights);
}

/* The columns of Table 1 */
struct module {
    const char *name, *bottom;
    uint32_t n1x1, reduce3x3, n3x3, reduce5x5, n5x5, pool_proj;
};

/* Four ways from the bottom, their channels put together. */
static void add_inception(struct build *b, const struct module *m)
{
    struct zoo_name reduce3 = zoo_name("%s/3x3_reduce", m->name),
                    reduce5 = zoo_name("%s/5x5_reduce", m->name),
                    pool = zoo_name("%s/pool", m->name);
    add_conv(b, m->name, "1x1", m->bottom, m->n1x1, SQUARE(1, 1, 0));
    add_conv(b, m->name, "3x3_reduce", m->bottom, m->reduce3x3, SQUARE(1, 1, 0));
    add_conv(b, m->name, "3x3", reduce3.text, m->n3x3, SQUARE(3, 1, 1));
    add_conv(b, m->name, "5x5_reduce", m->bottom, m->reduce5x5, SQUARE(1, 1, 0));
    add_conv(b, m->name, "5x5", reduce5.text, m->n5x5, SQUARE(5, 1, 2));
    build_pool(b, pool.text, m->bottom, CAFFE__POOLING_PARAMETER__POOL_METHOD__MAX,
               SQUARE(3, 1, 1));
    add_conv(b, m->name, "pool_proj", pool.text, m->pool_proj, SQUARE(1, 1, 0));
    build_concat(b, zoo_name("%s/output", m->name).text,
                 (const char *const[]){
                     zoo_name("%s/1x1", m->name).text, zoo_name("%s/3x3", m->name).text,
                     zoo_name("%s/5x5", m->name).text, zoo_name("%s/pool_proj", m->name).text},
                 4);
}

/* A classifier halfway (§5), from 14×14 pixels averaged to 4×4. */
static void add_auxiliary(struct build *b, const char *name, const char *bottom, uint32_t classes)
{
    const struct build_weights weights = zoo_weights("xavier", 0, 0.2f);
    struct zoo_name pool = zoo_name("%s/ave_pool", name), fc = zoo_name("%s/fc", name),
                    scores = zoo_name("%s/classifier", name);
    build_pool_average(b, pool.text, bottom, 5, 3);
    add_conv(b, name, "conv", pool.text, 128, SQUARE(1, 1, 0));
    build_inner_product(b, fc.text, zoo_name("%s/conv", name).text, 1024, &weights);
    build_relu(b, zoo_name("%s/relu_fc", name).text, fc.text);
    build_dropout(b, zoo_name("%s/drop_fc", name).text, fc.text, 0.7f);
    add_classifier(b, scores.text, fc.text, classes);
    build_softmax_loss(b, zoo_name("%s/loss", name).text, scores.text, "label");
    build_loss_weight(b, 0.3f);
}

static void add_stem(struct build *b)
{
    static const struct build_lrn lrn = {5, 0.0001f, 0.75f, 1.0f, .within_channel = false};
    add_conv(b, "conv1", "7x7_s2", "data", 64, SQUARE(7, 2, 3));
    build_pool_max(b, "pool1/3x3_s2", "conv1/7x7_s2", 3, 2);
    build_lrn(b, "pool1/norm1", "pool1/3x3_s2", &lrn);
    add_conv(b, "conv2", "3x3_reduce", "pool1/norm1", 64, SQUARE(1, 1, 0));
    add_conv(b, "conv2", "3x3", "conv2/3x3_reduce", 192, SQUARE(3, 1, 1));
    build_lrn(b, "conv2/norm2", "conv2/3x3", &lrn);
    build_pool_max(b, "pool2/3x3_s2", "conv2/norm2", 3, 2);
}

/* clang-format off */
static const struct module modules[] = {
    {"inception_3a", "pool2/3x3_s2",         64,  96, 128, 16,  32,  32},
    {"inception_3b", "inception_3a/output", 128, 128, 192, 32,  96,  64},
    {"inception_4a", "pool3/3x3_s2",        192,  96, 208, 16,  48,  64},
    {"inception_4b", "inception_4a/output", 160, 112, 224, 24,  64,  64},
    {"inception_4c", "inception_4b/output", 128, 128, 256, 24,  64,  64},
    {"inception_4d", "inception_4c/output", 112, 144, 288, 32,  64,  64},
    {"inception_4e", "inception_4d/output", 256, 160, 320, 32, 128, 128},
    {"inception_5a", "pool4/3x3_s2",        256, 160, 320, 32, 128, 128},
    {"inception_5b", "inception_5a/output", 384, 192, 384, 48, 128, 128},
};
/* clang-format on */

enum { M3A, M3B, M4A, M4B, M4C, M4D, M4E, M5A, M5B };

void zoo_googlenet(struct build *b, const struct zoo_plan *plan)
{
    zoo_begin(b);
    add_stem(b);
    add_inception(b, &modules[M3A]);
    add_inception(b, &modules[M3B]);
    build_pool_max(b, "pool3/3x3_s2", "inception_3b/output", 3, 2);
    add_inception(b, &modules[M4A]);
    add_auxiliary(b, "loss1", "inception_4a/output", plan->classes);
    add_inception(b, &modules[M4B]);
    add_inception(b, &modules[M4C]);
    add_inception(b, &modules[M4D]);
    add_auxiliary(b, "loss2", "inception_4d/output", plan->classes);
    add_inception(b, &modules[M4E]);
    build_pool_max(b, "pool4/3x3_s2", "inception_4e/output", 3, 2);
    add_inception(b, &modules[M5A]);
    add_inception(b, &modules[M5B]);
    build_pool_average(b, "pool5/7x7_s1", "inception_5b/output", 7, 1);
    build_dropout(b, "pool5/drop_7x7_s1", "pool5/7x7_s1", 0.4f);
    add_classifier(b, "loss3/classifier", "pool5/7x7_s1", plan->classes);
    zoo_end(b, "loss3/classifier", true);
}
