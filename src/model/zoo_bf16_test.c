/* The zoo's nets in bf16: each can be planned, and computes with bf16 wherever there are products
 * of images; those for small images, and GoogLeNet with its three losses, take a step. */
#include "bf16_needed.h"
#include "model/zoo.h"
#include "nn/fixture.h"
#include "nn/graph.h"

/* Casts: one before the first InnerProduct, and what else is said. */
static const struct {
    const char *name;
    size_t casts;
} nets[] = {
    {"lenet", 1},
    {"cifar10-quick", 1},
    {"cifar10-full", 1 + 4}, /* LRN twice, there and back */
    {"alexnet", 1 + 4},
    {"alexnet-small", 1 + 4},
    {"googlenet", 3 + 5}, /* before each classifier; around two LRNs, of which one is read twice */
    {"vgg-a", 1},
    {"vgg-16", 1},
    {"resnet-20", 1},
    {"resnet-32", 1},
    {"resnet-56", 1},
    {"resnet-110", 1},
    {"resnet-34", 1},
    {"resnet-50", 1},
    {"resnet-152", 1},
    {"resnet-18-b", 1},
    {"resnet-34-b", 1},
    {"resnet-50-b", 1},
    {"resnet-101-b", 1},
    {"resnet-152-b", 1},
    {"inception-v3", 2},    /* before each classifier */
    {"cnn-6-12-12", 3 + 2}, /* three Sigmoids, the last before ip1 */
    {"fc-480-160", 1},
};
enum { NETS = sizeof nets / sizeof *nets };

static struct net *plan_net(const char *name, enum dtype dtype, size_t batch)
{
    Caffe__NetParameter *param = NULL;
    struct net *net = NULL;
    struct err err = {0};
    const struct net_options options = {
        .phase = PHASE_TRAIN,
        .batch = batch,
        .input = zoo_record(name),
        .kernels = &kernels_dnnl,
        .dtype = dtype,
    };
    if (zoo_net(name, &param, &err) != OK || net_create(param, &options, &net, &err) != OK)
        fail_msg("%s: %s", name, err.text);
    caffe__net_parameter__free_unpacked(param, NULL);
    return net;
}

static void check_dtypes(const char *name, const struct net *net, size_t casts)
{
    size_t found = 0;
    for (size_t i = 0; i < net->n_layers; i++) {
        const struct layer *layer = net->layer[i];
        bool cast = strcmp(layer->type, "Cast") == 0;
        bool conv = strcmp(layer->type, "Convolution") == 0;
        found += cast;
        if (conv &&
            (layer->top[0]->dtype != DTYPE_BF16 || layer->bottom[0].blob->dtype != DTYPE_BF16))
            fail_msg("%s: \"%s\" is not of bf16", name, layer->name);
    }
    for (size_t i = 0; i < net->n_blobs; i++)
        assert_true(net->blob[i]->shape.n == 4 || net->blob[i]->dtype == DTYPE_F32);
    if (found != casts)
        fail_msg("%s: %zu casts", name, found);
}

static void test_all_can_be_planned(void **state)
{
    (void)state;
    bf16_needed();
    const char *const *name = zoo_names();
    for (size_t i = 0; i < NETS; i++) {
        struct net *net = plan_net(nets[i].name, DTYPE_BF16, 1);
        assert_string_equal(*name++, nets[i].name);
        check_dtypes(nets[i].name, net, nets[i].casts);
        net_free(net);
    }
    assert_null(*name);
}

/* A step by the gradient, as long a one as would take a tenth off the loss. */
static void expect_learning(const char *name, size_t batch)
{
    struct fixture f;
    fixture_fill(&f, plan_net(name, DTYPE_BF16, batch), batch, zoo_record(name));
    double before = fixture_gradient(&f).loss, square = 0;
    for (size_t i = 0; i < f.dx.n; i++)
        square += (double)f.dx.at[i] * (double)f.dx.at[i];
    assert_true(isfinite(before) && isfinite(square) && square > 0);
    double rate = 0.1 * before / (double)batch / square;
    for (size_t i = 0; i < f.dx.n; i++)
        f.x.at[i] -= (float)rate * f.dx.at[i];
    double after = fixture_forward(&f).loss;
    print_message("    %s: %.3f, then %.3f\n", name, before / (double)batch, after / (double)batch);
    if (!(after < 0.99 * before))
        fail_msg("%s: the loss was %g and became %g", name, before, after);
    fixture_close(&f);
}

static void test_those_for_small_images_learn(void **state)
{
    (void)state;
    static const char *const small[] = {"cifar10-quick", "cifar10-full", "alexnet-small",
                                        "resnet-20",     "lenet",        "cnn-6-12-12",
                                        "fc-480-160"};
    bf16_needed();
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        expect_learning(small[i], 4);
}

static double vector_length(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* Of a gradient's length, for one record: of the classifiers', and of what comes before, where
 * values that change sides at a ReLU's zero add up over 22 layers. */
#define HEADS_APART 0.2
#define TRUNK_APART 0.5

/* The loss is loss3 and 0.3 of each of the others; each has a way back through the trunk. */
static void test_three_losses(void **state)
{
    (void)state;
    bf16_needed();
    struct fixture f[2];
    double loss[2], apart[2] = {0};
    for (int k = 0; k < 2; k++) {
        fixture_fill(&f[k], plan_net("googlenet", k ? DTYPE_BF16 : DTYPE_F32, 1), 1,
                     zoo_record("googlenet"));
        loss[k] = fixture_gradient(&f[k]).loss;
        float one = 0, two = 0, three = 0;
        assert_int_equal(net_blob(f[k].net, "loss1/loss", &one, 1, NULL), 1);
        assert_int_equal(net_blob(f[k].net, "loss2/loss", &two, 1, NULL), 1);
        assert_int_equal(net_blob(f[k].net, "loss", &three, 1, NULL), 1);
        double sum = 0.3 * (double)one + 0.3 * (double)two + (double)three;
        assert_true(fabs(loss[k] - sum) <= 1e-5 * sum);
    }
    const struct segments *table = net_segments(f[0].net);
    for (size_t k = 0; k < table->count; k++) {
        const struct segment *s = &table->at[k];
        bool heads = strncmp(s->name, "loss", 4) == 0;
        float *a = f[0].dx.at + s->offset, *b = f[1].dx.at + s->offset;
        for (size_t i = 0; i < s->len; i++)
            b[i] -= a[i];
        double part = vector_length(b, s->len) / vector_length(a, s->len);
        apart[heads] = fmax(apart[heads], part);
        if (!(part <= (heads ? HEADS_APART : TRUNK_APART)))
            fail_msg("%s: the gradient is off by %g of its length", s->name, part);
    }
    print_message("    losses %.4f and %.4f; gradients off by %.2g, before classifiers %.2g\n",
                  loss[0], loss[1], apart[true], apart[false]);
    assert_true(fabs(loss[0] - loss[1]) <= 0.01 * loss[0]);
    fixture_close(&f[0]), fixture_close(&f[1]);
}

int main(void)
{
    kernels_set_threads(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_can_be_planned),
        cmocka_unit_test(test_those_for_small_images_learn),
        cmocka_unit_test(test_three_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
