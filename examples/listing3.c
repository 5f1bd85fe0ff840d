/* SparkNet's Listing 3 (Moritz et al., 2016): data in partitions, one network a partition, and a
 * loop in which each takes 50 steps of its own from the same weights, and the weights become the
 * mean of the results.
 *
 *     listing3 [FOLDER [ROUNDS]]
 *
 * FOLDER holds the four files of MNIST or Fashion-MNIST. Here one process does the work of a Spark
 * cluster, one network after the other: the arithmetic is the same. */
#include "paceline/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTITIONS = 4, TAU = 50, BATCH = 64 };

/* SparkNet's Listing 2. */
static pl_net_spec *net_params(pl_engine *engine)
{
    pl_net_spec *net = NULL;
    if (pl_net_spec_create(engine, "listing2", &net) != PL_OK)
        return NULL;
    pl_spec_input(net, "data", "label", 1, 28, 28);
    pl_spec_convolution(net, "conv1", "data", 20, 5, NULL);
    pl_spec_pooling(net, "pool1", "conv1", PL_POOL_MAX, 2, 2);
    pl_spec_convolution(net, "conv2", "pool1", 50, 5, NULL);
    pl_spec_pooling(net, "pool2", "conv2", PL_POOL_MAX, 2, 2);
    pl_spec_inner_product(net, "ip1", "pool2", 500, NULL);
    pl_spec_relu(net, "relu1", "ip1");
    pl_spec_inner_product(net, "ip2", "relu1", 10, NULL);
    pl_spec_softmax_loss(net, "loss", "ip2", "label");
    pl_spec_accuracy(net, "accuracy", "ip2", "label");
    return net;
}

/* KIND:PATH, with the pixels scaled to 0 … 1. */
static const char *data_spec(char spec[4096], const char *folder, const char *set)
{
    snprintf(spec, 4096,
             "idx:%s/%s-images-idx3-ubyte.gz,%s/%s-labels-idx1-ubyte.gz?scale=0.00390625", folder,
             set, folder, set);
    return spec;
}

/* var nets = trainData.foreachPartition(data => { var net = Net(netParams); ... }) */
static int make_nets(pl_engine *engine, const char *folder, pl_net *nets[PARTITIONS])
{
    const pl_net_options options = {
        .size = sizeof options,
        .batch = BATCH,
        .solver = "base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: 'fixed'",
    };
    char spec[4096];
    pl_net_spec *params = net_params(engine);
    int rc = params ? PL_OK : PL_ERR_NOMEM;
    for (uint32_t i = 0; rc == PL_OK && i < PARTITIONS; i++) {
        rc = pl_net_create(engine, params, &options, &nets[i]);
        if (rc == PL_OK)
            rc = pl_net_set_training_data(nets[i], data_spec(spec, folder, "train"), i, PARTITIONS);
    }
    if (rc == PL_OK)
        rc = pl_net_set_validation_data(nets[0], data_spec(spec, folder, "t10k"), 0, 1);
    pl_net_spec_free(params);
    return rc;
}

/* One iteration of the loop, and a test of its weights. */
static int round_of(pl_net *nets[PARTITIONS], float *weights, size_t n, pl_test_result *result)
{
    float *x, *mean = calloc(n, sizeof *mean);
    int rc = mean ? PL_OK : PL_ERR_NOMEM;
    for (int k = 0; rc == PL_OK && k < PARTITIONS; k++) {
        pl_net_all_weights(nets[k], &x, &n);
        memcpy(x, weights, n * sizeof *x);     /* net.setWeights(broadcastWeights.value) */
        rc = pl_net_train(nets[k], TAU, NULL); /* net.train(50) */
        for (size_t i = 0; i < n; i++)         /* net.getWeights() }).mean() */
            mean[i] += x[i] / PARTITIONS;
    }
    if (rc == PL_OK) {
        memcpy(weights, mean, n * sizeof *mean);
        pl_net_all_weights(nets[0], &x, &n);
        memcpy(x, weights, n * sizeof *x);
        rc = pl_net_test(nets[0], 0, result);
    }
    free(mean);
    return rc;
}

static int run_rounds(pl_engine *engine, const char *folder, int rounds, pl_net *nets[PARTITIONS])
{
    float *x, *weights = NULL;
    size_t n = 0;
    int rc = make_nets(engine, folder, nets);
    if (rc == PL_OK)
        rc = pl_net_all_weights(nets[0], &x, &n); /* initialWeights(...): one seed, so all agree */
    if (rc == PL_OK && !(weights = malloc(n * sizeof *weights)))
        rc = PL_ERR_NOMEM;
    if (rc == PL_OK)
        memcpy(weights, x, n * sizeof *weights);
    for (int i = 1; rc == PL_OK && i <= rounds; i++) {
        pl_test_result result;
        rc = round_of(nets, weights, n, &result);
        if (rc == PL_OK)
            printf("round %3d  test error %5.2f %%  loss %.4f\n", i, 100 * result.error,
                   result.loss);
        fflush(stdout);
    }
    free(weights);
    return rc;
}

int main(int argc, char **argv)
{
    pl_engine *engine;
    pl_net *nets[PARTITIONS] = {NULL};
    if (pl_engine_create(NULL, &engine) != PL_OK)
        return 1;
    int rc = run_rounds(engine, argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist",
                        argc > 2 ? atoi(argv[2]) : 20, nets);
    if (rc != PL_OK)
        fprintf(stderr, "listing3: %s\n", pl_engine_error(engine));
    for (int i = 0; i < PARTITIONS; i++)
        pl_net_free(nets[i]);
    pl_engine_destroy(engine);
    return rc == PL_OK ? 0 : rc == PL_ERR_INPUT ? 2 : 1;
}
