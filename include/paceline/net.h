/* One network under the program's control: describe it, give it data, train it for some steps, read
 * and change its weights. Runs use the same parts. A program can so write the training loop itself:
 * SparkNet's training on several machines takes a dozen lines (examples/listing3.c).
 *
 * A net belongs to its engine, costs memory for two plans (training and testing) of one batch each
 * and three vectors of its weights, and computes on the thread that calls it. Several nets of an
 * engine take turns; nets with the same data share its bytes. */
#ifndef PACELINE_NET_H
#define PACELINE_NET_H

#include "paceline/job.h"
#include "paceline/team.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what a net is to be ----
 *
 * A specification is read from a file, taken from the zoo, or built layer by layer:
 *
 *     pl_spec_input(spec, "data", "label", 1, 28, 28);
 *     pl_spec_convolution(spec, "conv1", "data", 20, 5, NULL);
 *     pl_spec_pooling(spec, "pool1", "conv1", PL_POOL_MAX, 2, 2);
 *     pl_spec_inner_product(spec, "ip1", "pool1", 10, NULL);
 *     pl_spec_softmax_loss(spec, "loss", "ip1", "label");
 *
 * The building calls return nothing. The first error of these calls is kept and reported by
 * pl_net_create or pl_job_set_net with the name of the layer, and so is a layer that does not fit
 * its neighbours. */

/* An empty one, to be built. PL_ERR_NOMEM */
int pl_net_spec_create(pl_engine *engine, const char *name, pl_net_spec **out);

/* From a Caffe prototxt, or from the net of a .caffemodel or of a .safetensors that was converted
 * from one. PL_ERR_INPUT with file:line:column; PL_ERR_UNSUPPORTED; PL_ERR_NOMEM */
int pl_net_spec_load(pl_engine *engine, const char *path, pl_net_spec **out);

/* By its name in the zoo: "resnet-50"; or "resnet-110?classes=100" for data with another number of
 * classes than it was published for. Records may be of any shape that its layers can take.
 * PL_ERR_INPUT listing those there are; PL_ERR_NOMEM */
int pl_net_spec_zoo(pl_engine *engine, const char *name, pl_net_spec **out);

/* The names of the zoo, NULL at the end. */
const char *const *pl_zoo_names(void);

/* That of a job. PL_ERR_INPUT; PL_ERR_NOMEM */
int pl_net_spec_job(const pl_job *job, pl_net_spec **out);

/* Add to a net the layers that pl_net_test needs. If its test phase has neither a loss nor an
 * accuracy, as in a deploy.prototxt, and one output, that output (or the input of its final
 * softmax) is compared with the labels. If it has only a softmax loss, an accuracy is added. Any
 * other net is not changed. *lossless: it has no meaningful loss. PL_ERR_INPUT: it has no output to
 * compare; PL_ERR_NOMEM */
int pl_net_spec_judge(pl_net_spec *spec, bool *lossless);

/* Nets and jobs made from it do not need it any more. NULL is allowed. */
void pl_net_spec_free(pl_net_spec *spec);

/* The specification as a Caffe prototxt, which reads back as the same net. Valid until the next
 * call with the specification. PL_ERR_NOMEM, or the first error of the building calls */
int pl_net_spec_text(pl_net_spec *spec, const char **text);

/* A layer of a net, as it trains. */
typedef struct pl_layer {
    const char *name, *type;
    size_t dims, shape[8]; /* of its result (the first, if it has several), for a batch of one */
    size_t parameters;     /* trainable floats; shared ones count at their first layer */
    size_t state;          /* floats learnt without a gradient, such as running means */
    double multiply_adds;  /* of its matrix product, forward, for one record */
} pl_layer;

/* The layers' shapes and parameters for records of the given shape; three zeros: the shape that the
 * specification states, or that a net of the zoo was published for. In the order of the file; valid
 * until the next call with the specification. Plans a net, but makes no weights. As pl_net_create;
 * PL_ERR_USAGE: the shape is unknown */
int pl_net_spec_layers(pl_net_spec *spec, uint32_t channels, uint32_t height, uint32_t width,
                       const pl_layer **layers, size_t *count);

/* The building calls. Each adds one layer; its result is a blob that has the layer's name, and by
 * that name later layers read it (`bottom`). Texts are copied. Where `options` is NULL, the
 * defaults hold, which are Caffe's where it has any. */

/* Records enter here, as the blob `data`, and their labels as the blob `label`. `channels`,
 * `height`, `width` are a record's; three zeros leave them to the data. */
void pl_spec_input(pl_net_spec *spec, const char *data, const char *label, uint32_t channels,
                   uint32_t height, uint32_t width);

/* The initial values of weights and biases, and their learning rates. */
typedef struct pl_weight_options {
    size_t size;        /* sizeof this struct */
    const char *filler; /* "xavier", "msra", "gaussian", "constant" */
    float std;          /* of "gaussian": its standard deviation; for others 0 */
    float value;        /* of "constant"; for others 0 */
    bool bias;          /* there is a bias for each output, */
    float bias_value;   /* which starts from this */
    float rate, decay;  /* of the weights: times the solver's learning rate and weight decay */
    float bias_rate, bias_decay;
} pl_weight_options;

/* Set those fields that are to differ: pl_weight_options o = PL_WEIGHT_DEFAULTS; o.bias = false; */
#define PL_WEIGHT_DEFAULTS                                             \
    {                                                                  \
        sizeof(pl_weight_options), "xavier", 0, 0, true, 0, 1, 1, 2, 1 \
    }

typedef struct pl_convolution_options {
    size_t size; /* sizeof this struct */
    uint32_t stride, pad;
    uint32_t kernel_w, pad_w; /* across, where that differs from down; kernel_w 0: it does not */
    uint32_t group; /* parts that inputs and outputs are cut into: part i sees part i only; 0: 1 */
    uint32_t dilation;                /* pixels from one that the window sees to the next; 0: 1 */
    const pl_weight_options *weights; /* NULL: the defaults */
} pl_convolution_options;

#define PL_CONVOLUTION_DEFAULTS                                \
    {                                                          \
        sizeof(pl_convolution_options), 1, 0, 0, 0, 1, 1, NULL \
    }

/* The window is kernel × kernel. */
void pl_spec_convolution(pl_net_spec *spec, const char *name, const char *bottom, uint32_t outputs,
                         uint32_t kernel, const pl_convolution_options *options);

/* The way back of a convolution with these options: a stride enlarges the image. */
void pl_spec_deconvolution(pl_net_spec *spec, const char *name, const char *bottom,
                           uint32_t outputs, uint32_t kernel,
                           const pl_convolution_options *options);

typedef enum pl_pooling { PL_POOL_MAX, PL_POOL_AVERAGE } pl_pooling;

/* Windows that stick out at the lower and right edge are cut there, as Caffe's are. */
void pl_spec_pooling(pl_net_spec *spec, const char *name, const char *bottom, pl_pooling method,
                     uint32_t kernel, uint32_t stride);
void pl_spec_pooling_padded(pl_net_spec *spec, const char *name, const char *bottom,
                            pl_pooling method, uint32_t kernel, uint32_t stride, uint32_t pad);

/* Each channel to one number. */
void pl_spec_pooling_global(pl_net_spec *spec, const char *name, const char *bottom,
                            pl_pooling method);

void pl_spec_inner_product(pl_net_spec *spec, const char *name, const char *bottom,
                           uint32_t outputs, const pl_weight_options *options);

void pl_spec_relu(pl_net_spec *spec, const char *name, const char *bottom);
void pl_spec_sigmoid(pl_net_spec *spec, const char *name, const char *bottom);

/* In training each element is zero with probability `ratio`. */
void pl_spec_dropout(pl_net_spec *spec, const char *name, const char *bottom, float ratio);

/* Each value over (k + alpha · m)^beta, where m is the mean square of `local_size` channels around
 * it or, within its channel, of as many by as many pixels; it is odd. */
typedef struct pl_lrn_options {
    size_t size; /* sizeof this struct */
    uint32_t local_size;
    float alpha, beta, k;
    bool within_channel;
} pl_lrn_options;

#define PL_LRN_DEFAULTS                               \
    {                                                 \
        sizeof(pl_lrn_options), 5, 1, 0.75f, 1, false \
    }

void pl_spec_lrn(pl_net_spec *spec, const char *name, const char *bottom,
                 const pl_lrn_options *options);

/* To mean 0 and variance 1 in each channel: the batch's in training, running ones in testing. A
 * scale with a bias usually follows. */
typedef struct pl_batch_norm_options {
    size_t size;    /* sizeof this struct */
    float eps;      /* added to the variance; 0: Caffe's, 1e-5 */
    float fraction; /* of the running sums that stays when a batch is added; 0: Caffe's, 0.999 */
} pl_batch_norm_options;

#define PL_BATCH_NORM_DEFAULTS              \
    {                                       \
        sizeof(pl_batch_norm_options), 0, 0 \
    }

void pl_spec_batch_norm(pl_net_spec *spec, const char *name, const char *bottom,
                        const pl_batch_norm_options *options);

/* Each channel times a weight, from 1 on, and with `bias` plus a bias, from 0 on. */
void pl_spec_scale(pl_net_spec *spec, const char *name, const char *bottom, bool bias);

/* The channels of n blobs after one another. */
void pl_spec_concat(pl_net_spec *spec, const char *name, const char *const *bottoms, size_t n);

typedef enum pl_eltwise { PL_ELTWISE_SUM, PL_ELTWISE_PRODUCT, PL_ELTWISE_MAX } pl_eltwise;

/* n blobs of one shape, element by element. `factors`: the n factors of a sum; NULL: 1. */
void pl_spec_eltwise(pl_net_spec *spec, const char *name, pl_eltwise operation,
                     const char *const *bottoms, size_t n, const float *factors);

/* The training loss: the softmax of the scores against the labels. */
void pl_spec_softmax_loss(pl_net_spec *spec, const char *name, const char *scores,
                          const char *label);

/* The loss that was added last counts so often in the sum that is trained on. */
void pl_spec_loss_weight(pl_net_spec *spec, float weight);

/* Counts, in the test phase only, the records whose highest score is that of their label: the
 * source of pl_net_test's error. */
void pl_spec_accuracy(pl_net_spec *spec, const char *name, const char *scores, const char *label);

/* Any layer there is, as a prototxt describes it, without the `layer { }` around. */
void pl_spec_layer(pl_net_spec *spec, const char *text);

/* ---- a net ---- */

typedef struct pl_net pl_net;

/* Zero or NULL stands for the default. */
typedef struct pl_net_options {
    size_t size;    /* sizeof this struct */
    uint32_t batch; /* records a step; 64 */
    /* Protobuf text of a caffe.SolverParameter, as in a solver.prototxt:
     * "base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: 'fixed'". */
    const char *solver;
    uint64_t seed;       /* of initial weights, order of records, dropout; 1 */
    uint32_t threads;    /* that compute; the machine's cores */
    const char *kernels; /* "ref", "dnnl" or "auto"; "auto" */
    /* "f32" or "bf16": of images and their gradients in training; "f32". Weights, updates,
     * statistics, losses and tests are f32. */
    const char *precision;
    bool inference; /* it will not be trained, and its weights are 0 until they are loaded */
    /* With `inference`: the members of this team have the model in slices, by rank, as a job's
     * `slices` cuts it, so that none of them holds all of it. They make the same calls in the same
     * order: pl_net_load_weights reads this member's part of a .safetensors as a run leaves it, and
     * each member gets the scores of all records. Calls that need the whole model are refused with
     * PL_ERR_UNSUPPORTED; pl_net_weights and the like give the member's part. A pass fails with
     * PL_ERR_PEER if a member is lost, and so do all later ones; a member whose call fails alone is
     * to close its team, since the others wait for it. The team is borrowed until pl_net_free, and
     * the net uses its channel 0, as one net at a time may. NULL, or a team of one: the model is
     * whole. */
    pl_team *team;
} pl_net_options;

/* A net with its initial weights. `options` may be NULL.
 *
 * When the specification leaves the shape of records to the data, the net is built, and its errors
 * are found, when it first receives data. Until then it has no weights.
 *
 * PL_ERR_INPUT        a layer, the solver or a value is wrong, by name
 * PL_ERR_UNSUPPORTED  there is no such layer, filler, or optimizer; bf16 where the processor, or
 *                     the kernels "ref" do not support it; a layer that slices cannot share out
 * PL_ERR_USAGE        wrong kernels, or precision; a team without `inference`
 * PL_ERR_NOMEM */
int pl_net_create(pl_engine *engine, const pl_net_spec *spec, const pl_net_options *options,
                  pl_net **out);

/* NULL is allowed. */
void pl_net_free(pl_net *net);

/* Train on, or test with, part `part` (from 0) of `parts` of the data of a SPEC,
 * KIND:PATH[?scale=…&mean=…]: of n records [part·n/parts, (part+1)·n/parts). Part 0 of 1 is the
 * whole. Parts do not overlap and cover all records.
 *
 * The data replaces the net's former data, and training begins with a first epoch. On an error the
 * net keeps its former data.
 *
 * PL_ERR_USAGE  not a SPEC, no such part
 * PL_ERR_INPUT  the data is missing or broken, does not fit the net, or the part is empty
 * PL_ERR_NOMEM and the errors of pl_net_create, if this call builds the net */
int pl_net_set_training_data(pl_net *net, const char *spec, uint32_t part, uint32_t parts);
int pl_net_set_validation_data(pl_net *net, const char *spec, uint32_t part, uint32_t parts);

/* Test with a job's test data, all of it. As above; PL_ERR_INPUT when it has none. */
int pl_net_set_validation_data_of(pl_net *net, const pl_job *job);

/* Records to train on and to test with; 0 before they are set. */
size_t pl_net_training_records(const pl_net *net);
size_t pl_net_validation_records(const pl_net *net);

/* Take `steps` steps of one batch each, from where the last call ended. The net keeps the
 * optimizer's state and its position in the schedule from call to call, whatever happens to the
 * weights in between. *mean_loss, which may be NULL: over these steps.
 *
 * PL_ERR_USAGE     no training data; it was made for inference
 * PL_ERR_DIVERGED  a loss was not finite; the weights are those from before that step */
int pl_net_train(pl_net *net, uint64_t steps, double *mean_loss);

typedef struct pl_test_result {
    double
        error; /* share of records that were wrong; < 0: no accuracy layer, no loss over classes */
    double loss;    /* mean */
    uint64_t count; /* of records */
} pl_test_result;

/* Test on the first `steps` batches of the validation data, or on all of it: steps 0, or more than
 * it has. PL_ERR_USAGE: no validation data */
int pl_net_test(pl_net *net, uint64_t steps, pl_test_result *result);

/* The value of the blob `blob` ("ip2", for LeNet's scores) for the given records after a forward
 * pass in the test phase.
 *
 * records  count of them, one after the other, each channels × height × width floats, scaled as
 *          the training data is; borrowed until return
 * out      room for `room` floats; the blob's for each record, in the records' order
 * each     the blob's floats for one record
 *
 * A net keeps only the requested blobs: the first call for an inner blob plans the net again, and
 * the last bits of its values may differ from those of a call for other blobs.
 *
 * PL_ERR_INPUT  a value that is not finite
 * PL_ERR_USAGE  no such blob, or one without a part for each record; too little room (*each is then
 *               written), or the net has no form yet
 * PL_ERR_NOMEM */
int pl_net_forward(pl_net *net, const float *records, size_t count, const char *blob, float *out,
                   size_t room, size_t *each);

/* ---- its weights ----
 *
 * Weights are views into the net, not copies: valid until pl_net_free, free to be read and written
 * between two calls with the net, and always what it computes with next. */

typedef struct pl_weights {
    const char *layer; /* its name; valid until pl_net_free */
    uint32_t index;    /* 0: the weights, 1: the biases */
    float *at;
    size_t count;    /* floats: the product of the dimensions */
    size_t dims;     /* how many there are */
    size_t shape[8]; /* outermost first: outputs, inputs, rows, columns of a convolution */
} pl_weights;

/* Those of a layer. PL_ERR_NOT_FOUND: no such layer, or it has no such weights; PL_ERR_USAGE: the
 * net has no form yet */
int pl_net_weights(pl_net *net, const char *layer, uint32_t index, pl_weights *out);

/* How many there are in all, 0 while the net has no form; and number i of them, in the order of the
 * layers. PL_ERR_NOT_FOUND: i is too high */
size_t pl_net_weights_count(const pl_net *net);
int pl_net_weights_at(pl_net *net, size_t i, pl_weights *out);

/* All weights as one vector of n floats, the same in every net of one specification: to be
 * averaged, sent, kept. Each layer's begin at a multiple of 16 floats; the floats between are
 * padding, are zero, and must stay zero, as they do under any linear arithmetic on whole vectors.
 * PL_ERR_USAGE: the net has no form yet */
int pl_net_all_weights(pl_net *net, float **x, size_t *n);

/* The same for what a net learns without a gradient, such as running means; often empty: n 0. */
int pl_net_all_state(pl_net *net, float **s, size_t *n);

/* Take weights (and state) from a file: safetensors such as a run leaves behind (final.safetensors,
 * best.safetensors, or a checkpoint: tensors joint/LAYER.INDEX and s/LAYER.INDEX), or a caffemodel,
 * by the names of layers. Shapes may differ by 1s before them. If the file does not fit, the net
 * keeps its weights. Other tensors of the file are ignored, and the log names them.
 *
 * PL_ERR_INPUT  the file is missing or broken, a tensor is missing or of another shape, a layer has
 *               another number of them, a value is no finite number, by name
 * PL_ERR_UNSUPPORTED
 * PL_ERR_USAGE  the net has no form yet */
int pl_net_load_weights(pl_net *net, const char *path);

/* The same for a file that agrees with the net in part: tensors that are missing or of another
 * shape keep their values, and a log line names each. PL_ERR_INPUT: not one tensor fits */
int pl_net_load_some_weights(pl_net *net, const char *path);

/* Write such a file, a caffemodel if its name ends so, else safetensors. It replaces an existing
 * file whole or not at all. PL_ERR_IO; PL_ERR_USAGE: the net has no form yet */
int pl_net_save_weights(const pl_net *net, const char *path);

#ifdef __cplusplus
}
#endif
#endif
