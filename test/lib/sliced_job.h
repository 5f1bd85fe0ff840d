/* The tiny job with a fully connected net, which slices can share out. */
#ifndef PL_LIB_SLICED_JOB_H
#define PL_LIB_SLICED_JOB_H

#include "tiny_job.h"

#define SLICED_DATA "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
#define SLICED_INNER(name, bottom, top, outputs)                                          \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" bottom "' top: '" top "'\n" \
    "  inner_product_param { num_output: " #outputs " weight_filler { type: 'xavier' } } }\n"
#define SLICED_ENDS                                                                            \
    "layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy'\n" \
    "  include { phase: TEST } }\n"                                                            \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n"

/* 144 values, 24, 12 and 5 outputs. */
static const char sliced_net[] = SLICED_DATA SLICED_INNER(
    "one", "data", "one", 24) "layer { name: 's1' type: 'Sigmoid' bottom: 'one' top: 'one' "
                              "}\n" SLICED_INNER("two", "one", "two",
                                                 12) "layer { name: 's2' type: 'TanH' bottom: "
                                                     "'two' top: 'two' }\n"
                                                     "layer { name: 'drop' type: 'Dropout' bottom: "
                                                     "'two' top: 'two'\n"
                                                     "  dropout_param { dropout_ratio: 0.25 } "
                                                     "}\n" SLICED_INNER("ip", "two", "ip", 5)
                                                         SLICED_ENDS;

/* Its second layer has a fifth of all products, and sums of 120 values a record. */
static const char sliced_wide[] = SLICED_DATA SLICED_INNER("one", "data", "one", 120)
    SLICED_INNER("two", "one", "two", 120) SLICED_INNER("ip", "two", "ip", 5) SLICED_ENDS;

/* Two layers of one bottom, and their sum. */
static const char sliced_fork[] =
    SLICED_DATA SLICED_INNER("one", "data", "one", 120) SLICED_INNER("two", "one", "two", 120)
        SLICED_INNER("three", "one", "three",
                     120) "layer { name: 'sum' type: 'Eltwise' bottom: 'two' bottom: 'three' top: "
                          "'sum' }\n" SLICED_INNER("ip", "sum", "ip", 5) SLICED_ENDS;

/* One layer, whose input has no gradient. */
static const char sliced_one[] = SLICED_DATA SLICED_INNER("ip", "data", "ip", 5) SLICED_ENDS;

/* Weights that slices cannot share out. */
static const char sliced_deconv[] = SLICED_DATA
    "layer { name: 'p' type: 'Deconvolution' bottom: 'data' top: 'one'\n"
    "  convolution_param { num_output: 2 kernel_size: 2 } }\n" SLICED_INNER("ip", "one", "ip", 5)
        SLICED_ENDS;

/* Layers with a few parameters by channel behind a convolution of 6 maps. */
static const char sliced_channels[] = SLICED_DATA
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n"
    "  convolution_param { num_output: 6 kernel_size: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'norm' type: 'BatchNorm' bottom: 'conv' top: 'conv' }\n"
    "layer { name: 'scale' type: 'Scale' bottom: 'conv' top: 'conv'\n"
    "  scale_param { bias_term: true } }\n"
    "layer { name: 'slope' type: 'PReLU' bottom: 'conv' top: 'slope' }\n"
    "layer { name: 'bias' type: 'Bias' bottom: 'slope' top: 'bias' }\n"
    "layer { name: 'pool' type: 'Pooling' bottom: 'bias' top: 'pool'\n"
    "  pooling_param { pool: AVE kernel_size: 2 stride: 2 } }\n" SLICED_INNER("ip", "pool", "ip", 5)
        SLICED_ENDS;

/* A convolution of 6 groups, whose input has a gradient. */
static const char sliced_groups[] = SLICED_DATA
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n"
    "  convolution_param { num_output: 12 kernel_size: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'conv' top: 'conv' }\n"
    "layer { name: 'group' type: 'Convolution' bottom: 'conv' top: 'group'\n"
    "  convolution_param { num_output: 18 group: 6 kernel_size: 3 weight_filler { type: 'xavier' } "
    "} }\n" SLICED_INNER("ip", "group", "ip", 5) SLICED_ENDS;

/* The mixed scheme: a convolution and its Scale, whole on each slice for a part of the records;
 * layers that slices share out, from `one` to `two`; and a last one of few outputs. */
static const char sliced_mixed[] = SLICED_DATA
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n"
    "  convolution_param { num_output: 6 kernel_size: 3 stride: 2 weight_filler { type: 'xavier' } "
    "} }\n"
    "layer { name: 'scale' type: 'Scale' bottom: 'conv' top: 'conv'\n"
    "  scale_param { bias_term: true } }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'conv' top: 'conv' }\n" SLICED_INNER(
        "one", "conv", "one",
        24) "layer { name: 's1' type: 'Sigmoid' bottom: 'one' top: 'one' }\n" SLICED_INNER("two",
                                                                                           "one",
                                                                                           "two",
                                                                                           12)
        SLICED_INNER("ip", "two", "ip", 3) SLICED_ENDS;
/* Recurrent layers of each kind over the rows of an image: 8, 6 and 5 units. */
#define SLICED_UNITS(name, type, message, bottom, outputs)                                    \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" name "' " message \
    " {\n  num_output: " #outputs " weight_filler { type: 'xavier' } } }\n"
static const char sliced_sequence[] =
    SLICED_DATA "layer { name: 'rows' type: 'Reshape' bottom: 'data' top: 'rows'\n"
                "  reshape_param { shape { dim: 0 dim: 12 dim: 12 } } }\n" SLICED_UNITS(
                    "lstm", "LSTM", "recurrent_param", "rows", 8)
                    SLICED_UNITS("gru", "GRU", "gru_param", "lstm", 6)
                        SLICED_UNITS("rnn", "RNN", "recurrent_param", "gru", 5)
                            SLICED_INNER("ip", "rnn", "ip", 5) SLICED_ENDS;

/* Numbers below 16, which an Embed turns into vectors, and units that begin with learnt states and
 * hand theirs on to others, whose reset gate is first. */
#define SLICED_SHAPED(name, bottom, dims)                                             \
    "layer { name: '" name "' type: 'Reshape' bottom: '" bottom "' top: '" name "'\n" \
    "  reshape_param { shape { dim: 0 " dims " } } }\n"
#define SLICED_POWER(name, fields)                                              \
    "layer { name: '" name "' type: 'Power' bottom: 'values' top: '" name "'\n" \
    "  power_param { " fields " } }\n"
static const char sliced_states[] = SLICED_DATA
    "layer { name: 'pool' type: 'Pooling' bottom: 'data' top: 'pool'\n"
    "  pooling_param { pool: MAX kernel_size: 4 stride: 4 } }\n" SLICED_SHAPED("values", "pool",
                                                                               "dim: 9")
        SLICED_POWER("number", "scale: 15.5") SLICED_POWER(
            "cont",
            "scale: 0 shift: 0.5") "layer { name: 'embed' type: 'Embed' bottom: 'number' top: "
                                   "'embed'\n"
                                   "  embed_param { num_output: 6 input_dim: 16 weight_filler { "
                                   "type: 'gaussian' std: 0.5 } } "
                                   "}\n" SLICED_INNER("f", "data", "f",
                                                      8) SLICED_SHAPED("h", "f", "dim: 1 dim: 8")
                                       SLICED_INNER("g", "data", "g", 8) SLICED_SHAPED(
                                           "c", "g",
                                           "dim: 1 dim: 8") "layer { name: 'lstm' type: 'LSTM' "
                                                            "bottom: 'embed' bottom: 'cont' "
                                                            "bottom: 'h' bottom: 'c'\n"
                                                            "  top: 'lstm' top: 'hl' top: 'cl' "
                                                            "recurrent_param { num_output: 8 "
                                                            "expose_hidden: true\n"
                                                            "  weight_filler { type: 'xavier' } } "
                                                            "}\n"
                                                            "layer { name: 'gru' type: 'GRU' "
                                                            "bottom: 'lstm' bottom: 'cont' bottom: "
                                                            "'hl'\n"
                                                            "  top: 'gru' top: 'gl' gru_param { "
                                                            "num_output: 8 expose_hidden: true "
                                                            "reset_first: true\n"
                                                            "  weight_filler { type: 'xavier' } } "
                                                            "}\n"
                                                            "layer { name: 'ends' type: 'Concat' "
                                                            "bottom: 'gl' bottom: 'cl' top: 'ends' "
                                                            "}\n" SLICED_INNER("ip", "ends", "ip",
                                                                               5) SLICED_ENDS;

/* Two LSTMs, of which the second one has most of the products. */
static const char sliced_units[] =
    SLICED_DATA "layer { name: 'rows' type: 'Reshape' bottom: 'data' top: 'rows'\n"
                "  reshape_param { shape { dim: 0 dim: 12 dim: 12 } } }\n" SLICED_UNITS(
                    "one", "LSTM", "recurrent_param", "rows", 24)
                    SLICED_UNITS("two", "LSTM", "recurrent_param", "one", 64)
                        SLICED_INNER("ip", "two", "ip", 5) SLICED_ENDS;

/* Setup of a group of tests: net.prototxt is the net above, wide.prototxt the wide one,
 * fork.prototxt that of two branches, one.prototxt that of one layer, conv.prototxt the tiny job's
 * own, with a convolution, mixed.prototxt the mixed one, sequence.prototxt, states.prototxt and
 * units.prototxt those of recurrent layers. */
static inline int sliced_setup(void **state)
{
    tiny_setup(state);
    tiny_write(*state, "net.prototxt", sliced_net);
    tiny_write(*state, "wide.prototxt", sliced_wide);
    tiny_write(*state, "fork.prototxt", sliced_fork);
    tiny_write(*state, "one.prototxt", sliced_one);
    tiny_write(*state, "conv.prototxt", tiny_net);
    tiny_write(*state, "mixed.prototxt", sliced_mixed);
    tiny_write(*state, "sequence.prototxt", sliced_sequence);
    tiny_write(*state, "states.prototxt", sliced_states);
    tiny_write(*state, "units.prototxt", sliced_units);
    return 0;
}

#endif
