/* What NetTest expects of Java's nets: the same training by the library's C functions. Writes floats
 * to its standard output: the mean losses of two nets, the error and the loss of the mean of their
 * weights, the first record's scores, and that mean, tensor by tensor. */
#include "paceline/data.h"
#include "paceline/net.h"

#include <stdio.h>

enum { SIDE = 6, PIXELS = SIDE * SIDE, CLASSES = 3, RECORDS = 90, NETS = 2, STEPS = 40, BATCH = 8 };

static float values[NETS][RECORDS][PIXELS];
static uint32_t labels[NETS][RECORDS];

static void bind_records(pl_engine *engine)
{
    static const char *const names[NETS] = {"part-0", "part-1"};
    for (int k = 0; k < NETS; k++) {
        for (int i = 0; i < RECORDS; i++) {
            int number = k * RECORDS + i, label = number % CLASSES;
            labels[k][i] = (uint32_t)label;
            for (int p = 0; p < PIXELS; p++)
                values[k][i][p] =
                    (float)((number * 31 + p * 17) % 64) / 64 + (p % CLASSES == label ? 0.5f : 0);
        }
        pl_data_bind(engine, names[k],
                     &(pl_records){.size = sizeof(pl_records),
                                   .count = RECORDS,
                                   .channels = 1,
                                   .height = SIDE,
                                   .width = SIDE,
                                   .classes = CLASSES,
                                   .type = PL_F32,
                                   .values = values[k],
                                   .labels = labels[k]});
    }
}

static pl_net_spec *describe_net(pl_engine *engine)
{
    pl_net_spec *spec = NULL;
    if (pl_net_spec_create(engine, "tiny", &spec) != PL_OK)
        return NULL;
    pl_spec_input(spec, "data", "label", 1, SIDE, SIDE);
    pl_spec_convolution(spec, "conv1", "data", 4, 3, NULL);
    pl_spec_pooling(spec, "pool1", "conv1", PL_POOL_MAX, 2, 2);
    pl_spec_inner_product(spec, "ip1", "pool1", 8, NULL);
    pl_spec_relu(spec, "relu1", "ip1");
    pl_spec_inner_product(spec, "ip2", "relu1", CLASSES, NULL);
    pl_spec_softmax_loss(spec, "loss", "ip2", "label");
    pl_spec_accuracy(spec, "accuracy", "ip2", "label");
    return spec;
}

static int train_nets(pl_engine *engine, pl_net *nets[NETS], float loss[NETS])
{
    static const char *const specs[NETS] = {"memory:part-0", "memory:part-1"};
    const pl_net_options options = {.size = sizeof options,
                                    .batch = BATCH,
                                    .solver = "base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed'",
                                    .threads = 1,
                                    .kernels = "ref",
                                    .seed = 5};
    pl_net_spec *spec = describe_net(engine);
    int rc = spec ? PL_OK : PL_ERR_NOMEM;
    for (int k = 0; rc == PL_OK && k < NETS; k++) {
        double mean = 0;
        rc = pl_net_create(engine, spec, &options, &nets[k]);
        if (rc == PL_OK)
            rc = pl_net_set_training_data(nets[k], specs[k], 0, 1);
        if (rc == PL_OK)
            rc = pl_net_train(nets[k], STEPS, &mean);
        loss[k] = (float)mean;
    }
    if (rc == PL_OK)
        rc = pl_net_set_validation_data(nets[0], specs[1], 0, 1);
    pl_net_spec_free(spec);
    return rc;
}

/* The first net's weights become the mean. */
static int average_nets(pl_net *nets[NETS])
{
    float *x, *y;
    size_t n;
    int rc = pl_net_all_weights(nets[0], &x, &n);
    if (rc == PL_OK)
        rc = pl_net_all_weights(nets[1], &y, &n);
    for (size_t i = 0; rc == PL_OK && i < n; i++)
        x[i] = (x[i] + y[i]) / NETS;
    return rc;
}

static int write_results(pl_net *net, const float loss[NETS])
{
    pl_test_result result;
    float scores[CLASSES];
    size_t each;
    int rc = pl_net_test(net, 0, &result);
    if (rc == PL_OK)
        rc = pl_net_forward(net, values[0][0], 1, "ip2", scores, CLASSES, &each);
    if (rc != PL_OK)
        return rc;
    fwrite(loss, sizeof *loss, NETS, stdout);
    fwrite((const float[]){(float)result.error, (float)result.loss}, sizeof *loss, 2, stdout);
    fwrite(scores, sizeof *scores, CLASSES, stdout);
    for (size_t i = 0; rc == PL_OK && i < pl_net_weights_count(net); i++) {
        pl_weights weights;
        rc = pl_net_weights_at(net, i, &weights);
        if (rc == PL_OK)
            fwrite(weights.at, sizeof *weights.at, weights.count, stdout);
    }
    return rc;
}

int main(void)
{
    pl_engine *engine;
    pl_net *nets[NETS] = {NULL};
    float loss[NETS];
    if (pl_engine_create(NULL, &engine) != PL_OK)
        return 1;
    bind_records(engine);
    int rc = train_nets(engine, nets, loss);
    if (rc == PL_OK)
        rc = average_nets(nets);
    if (rc == PL_OK)
        rc = write_results(nets[0], loss);
    if (rc != PL_OK)
        fprintf(stderr, "sparknet_reference: %s\n", pl_engine_error(engine));
    for (int k = 0; k < NETS; k++)
        pl_net_free(nets[k]);
    pl_engine_destroy(engine);
    return rc == PL_OK ? 0 : 1;
}
