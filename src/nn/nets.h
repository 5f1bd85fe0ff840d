/* For tests: nets that between them have every type of layer, in the company that they keep.
 * Records are images of three channels; labels are below 4. */
#ifndef PL_NN_NETS_H
#define PL_NN_NETS_H

#define DATA "layer { name: 'd' type: 'Data' top: 'data' top: 'label' } "
#define LAYER(name, type, bottom, top, rest) \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " rest "} "
#define TWO(name, type, one, two, top, rest)                                                   \
    "layer { name: '" name "' type: '" type "' bottom: '" one "' bottom: '" two "' top: '" top \
    "' " rest "} "
#define CONV(name, bottom, top, n)                                                       \
    LAYER(name, "Convolution", bottom, top,                                              \
          "convolution_param { num_output: " n " kernel_size: 3 pad: 1 weight_filler { " \
          "type: 'xavier' } } ")
#define INNER(name, bottom, top, n)          \
    LAYER(name, "InnerProduct", bottom, top, \
          "inner_product_param { num_output: " n " weight_filler { type: 'xavier' } } ")
#define NORM(name, bottom, top)               \
    LAYER(name, "BatchNorm", bottom, top, "") \
    LAYER(name "s", "Scale", top, top, "scale_param { bias_term: true } ")
#define UNITS(message, fields) message " { " fields " weight_filler { type: 'xavier' } } "
#define RESHAPE(name, bottom, top, dims) \
    LAYER(name, "Reshape", bottom, top, "reshape_param { shape { dim: 0 " dims " } } ")
#define EXPOSED                 "num_output: 4 expose_hidden: true"
#define STATE                   "bottom: 'hr' top: 'bl' " UNITS("gru_param", EXPOSED)
#define STATIC                  "bottom: 'h' " UNITS("recurrent_param", "num_output: 4")
#define RELU(name, bottom, top) LAYER(name, "ReLU", bottom, top, "")
#define LOSS(bottom)            TWO("loss", "SoftmaxWithLoss", bottom, "label", "loss", "")
#define END(bottom) \
    INNER("ip", bottom, "ip", "4") LOSS("ip") TWO("acc", "Accuracy", "ip", "label", "acc", "")

static const char *const nets[] = {
    /* Chains on chains, of which not every one can be made again. */
    DATA CONV("c", "data", "c", "8") NORM("n", "c", "n") RELU("r", "n", "r") NORM("m", "r", "m")
        RELU("q", "m", "q") CONV("w", "q", "w", "8") NORM("k", "w", "k") RELU("j", "k", "j")
            CONV("v", "j", "v", "4") END("v"),
    DATA CONV("c", "data", "c", "8") LAYER("s", "Scale", "c", "s", "") RELU("r", "s", "r")
        LAYER("t", "Scale", "r", "t", "") RELU("u", "t", "u") LAYER("k", "Scale", "u", "k", "")
            RELU("j", "k", "j") CONV("w", "j", "w", "8") END("w"),
    /* A chain as in most nets, in place and not. */
    DATA CONV("c", "data", "c", "8") RELU("r", "c", "c")
        LAYER("p", "Pooling", "c", "p", "pooling_param { kernel_size: 2 stride: 2 } ")
            CONV("c2", "p", "c2", "8") RELU("r2", "c2", "r2")
                LAYER("n", "LRN", "r2", "n", "lrn_param { local_size: 3 alpha: 0.5 } ")
                    LAYER("q", "Pooling", "n", "q",
                          "pooling_param { pool: AVE kernel_size: 3 stride: 2 } ")
                        INNER("i", "q", "i", "9") LAYER("do", "Dropout", "i", "i2", "") END("i2"),
    /* Residual sums: over a bottom, through a shortcut of its own, and of three. */
    DATA CONV("a", "data", "a", "8") NORM("an", "a", "a") RELU("ar", "a", "a")
        CONV("b", "a", "b", "8") NORM("bn", "b", "b") RELU("br", "b", "b") CONV("c", "b", "c", "8")
            NORM("cn", "c", "c") TWO("e", "Eltwise", "c", "a", "e", "") RELU("er", "e", "e")
                CONV("f", "e", "f", "8") LAYER("g", "BatchNorm", "f", "g",
                                               "") RELU("gr", "g", "h") CONV("i", "e", "i", "8")
                    TWO("s", "Eltwise", "h", "i", "s",
                        "bottom: 'e' eltwise_param { coeff: 2 coeff: -1 coeff: 0.5 } ") END("s"),
    /* A shortcut that only the sum reads; the recomputed blob has three readers, one of them the
     * sum. */
    DATA CONV("z", "data", "z", "8") NORM("zn", "z", "z") RELU("zr", "z", "z")
        CONV("x", "z", "x", "8") NORM("xn", "x", "x") TWO("e", "Eltwise", "x", "z", "e", "") RELU(
            "er", "e", "e") CONV("y", "z", "y", "8") CONV("t", "e", "t", "8") NORM("tn", "t", "t")
            TWO("f", "Eltwise", "t", "y", "f", "") RELU("fr", "f", "f") NORM("fn", "f", "g")
                TWO("p", "Eltwise", "g", "g", "p", "eltwise_param { operation: PROD } ") END("p"),
    /* Branches that are joined, as Inception's, and a second loss. */
    DATA CONV("a", "data", "a", "8") RELU("ar", "a", "a") CONV("b", "a", "b", "4")
        RELU("br", "b", "b") CONV("c", "a", "c", "6") RELU("cr", "c", "c")
            TWO("j", "Concat", "b", "c", "j", "bottom: 'a' ")
                LAYER("p", "Pooling", "j", "p", "pooling_param { kernel_size: 3 stride: 2 } ")
                    INNER("x", "j", "x", "4") TWO("xl", "SoftmaxWithLoss", "x", "label", "xl",
                                                  "loss_weight: 0.3 ") END("p"),
    /* Functions of one element, each with another reader of its input, and each alone. */
    DATA INNER("a", "data", "a", "8") LAYER("p", "Power", "a", "p",
                                            "power_param { power: 2 scale: 0.5 shift: 0.1 } ")
        LAYER("e", "Exp", "p", "e", "exp_param { scale: 0.2 } ")
            LAYER("l", "Log", "e", "l", "log_param { shift: 1 } ") LAYER("t", "TanH", "l", "t", "")
                LAYER("k", "Clip", "t", "k", "clip_param { min: -0.9 max: 0.9 } ") LAYER(
                    "u", "ELU", "k", "u", "elu_param { alpha: 0.5 } ")
                    LAYER("s", "Sigmoid", "u", "s", "") LAYER("v", "AbsVal", "a", "v", "") LAYER(
                        "w", "Power", "v", "w", "power_param { scale: 2 shift: 1 } ")
                        TWO("m", "Eltwise", "s", "w", "m", "eltwise_param { operation: MAX } ") TWO(
                            "pr", "Eltwise", "m", "a", "pr", "eltwise_param { operation: PROD } ")
                            LAYER("z", "Power", "pr", "z", "power_param { power: 3 shift: 2 } ")
                                END("z"),
    DATA INNER("a", "data", "a", "8") LAYER("x", "ELU", "a", "x", "elu_param { alpha: -0.5 } ")
        LAYER("y", "ReLU", "x", "y", "relu_param { negative_slope: -0.1 } ")
            LAYER("z", "Softmax", "y", "z", "")
                LAYER("w", "Power", "z", "w", "power_param { scale: 3 } ") END("w"),
    /* Scales, biases, slopes; layers that only move values. */
    DATA CONV("a", "data", "a", "8") LAYER("b", "Bias", "a", "b", "bias_param { axis: 1 } ")
        LAYER("s", "Scale", "b", "s", "scale_param { axis: 1 num_axes: 2 } ") LAYER("p", "PReLU",
                                                                                    "s", "p", "")
            LAYER("l", "Slice", "p", "l", "top: 'm' slice_param { axis: 1 slice_point: 3 } ")
                LAYER("f", "Flatten", "l", "f", "")
                    LAYER("r", "Reshape", "m", "r", "reshape_param { shape { dim: 0 dim: -1 } } ")
                        TWO("c", "Concat", "f", "r", "c", "") LAYER("o", "Split", "c", "o",
                                                                    "top: 'o2' top: 'o3' ")
                            INNER("i", "o", "i", "5") INNER("k", "o2", "k", "5")
                                TWO("g", "Scale", "i", "k", "g", "scale_param { axis: 0 } ") TWO(
                                    "h", "Bias", "g", "k", "h",
                                    "bias_param { axis: 0 } ") "layer { name: 'si' type: 'Silence' "
                                                               "bottom: 'o3' } " END("h"),
    DATA LAYER("c", "Deconvolution", "data", "c",
               "convolution_param { num_output: 4 kernel_size: 2 stride: 2 weight_filler { type: "
               "'xavier' } } ") RELU("r", "c", "c")
        LAYER("b", "BatchNorm", "c", "b", "batch_norm_param { use_global_stats: true } ")
            RELU("q", "b", "q") END("q"),
    /* Each after and before a layer that reads nothing. */
    DATA CONV("c", "data", "c", "8")
        LAYER("p", "Pooling", "c", "p", "pooling_param { kernel_size: 2 } ")
            LAYER("n", "LRN", "p", "n", "lrn_param { local_size: 3 alpha: 0.5 } ")
                LAYER("q", "Pooling", "n", "q", "pooling_param { kernel_size: 2 } ")
                    LAYER("b", "BatchNorm", "q", "b", "")
                        LAYER("t", "Pooling", "b", "t", "pooling_param { kernel_size: 2 } ")
                            LAYER("r", "ReLU", "t", "r", "relu_param { negative_slope: -0.1 } ")
                                LAYER("u", "Pooling", "r", "u", "pooling_param { kernel_size: 2 } ")
                                    END("u"),
    /* Sequences of three steps; a state and a static input that are learnt. */
    DATA RESHAPE("x", "data", "x", "dim: 3 dim: -1")
        LAYER("s", "Slice", "x", "n", "top: 'v' slice_param { axis: 2 slice_point: 1 } ")
            RESHAPE("m", "n", "m", "dim: 3") LAYER("k", "Power", "m", "k",
                                                   "power_param { scale: 2 shift: 2.5 } ")
                LAYER("o", "Power", "m", "o", "power_param { scale: 0 shift: 0.5 } ") LAYER(
                    "e", "Embed", "k", "e", UNITS("embed_param", "input_dim: 5 num_output: 4"))
                    TWO("j", "Concat", "e", "v", "j", "concat_param { axis: 2 } ")
                        LAYER("a", "LSTM", "j", "a", UNITS("recurrent_param", "num_output: 5"))
                            INNER("h", "data", "h", "4") RESHAPE("hr", "h", "hr", "dim: 1 dim: 4")
                                TWO("b", "GRU", "a", "o", "b", STATE)
                                    TWO("c", "RNN", "b", "o", "c", STATIC) END("c"),
    /* The other losses. */
    DATA INNER("a", "data", "a", "5") INNER("b", "data", "b", "5")
        LAYER("t", "Sigmoid", "b", "t", "") TWO("e", "EuclideanLoss", "a", "b", "e", "")
            TWO("h", "HingeLoss", "a", "label", "h", "")
                TWO("s", "SigmoidCrossEntropyLoss", "a", "t", "s",
                    "propagate_down: true "
                    "propagate_down: false ")
                    LAYER("w", "Power", "a", "w", "power_param { power: 2 } loss_weight: 0.1 "),
};
enum { NETS = sizeof nets / sizeof *nets };

#endif
