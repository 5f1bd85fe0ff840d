/* An ONNX graph on its way to a net: what each of its values is, and what operators need to say.
 *
 * A value is a constant, with its numbers, or a blob of the net. The first axis of a blob has the
 * records, and stays so: operators that would move it are refused. Reshaping makes no layer of its
 * own until some layer needs the shape. */
#ifndef PL_MODEL_ONNX_GRAPH_H
#define PL_MODEL_ONNX_GRAPH_H

#include "base/arena.h"
#include "job/onnx.pb-c.h"
#include "model/build.h"
#include "tensor/shape.h"
#include "tensor/vec.h"

/* Stands for the number of records in the integers that describe a shape. */
#define ONNX_RECORDS INT64_MIN

struct onnx_value {
    const char *name;
    bool is_blob;
    struct shape shape; /* of a blob with the graph's own number of records */

    /* A constant: */
    const float *f;   /* its numbers, */
    const int64_t *i; /* or these; both are NULL before the first look at `tensor` */
    const Onnx__TensorProto *tensor;

    /* A blob: */
    const char *blob;        /* its name, */
    struct shape blob_shape; /* and its shape: another than `shape` where a Reshape is due */
    bool by_step;            /* axes 0 and 1 are the net's 1 and 0: a sequence of steps */
    bool directed;           /* and axes 1 and 2 are that of directions, and the net's 0 */
    size_t layer;            /* 1 + the number of the layer that makes it; 0: none, */
    const Onnx__NodeProto
        *made_by; /* and the node, or NULL; its first output may have another name */
};

/* Input k of a node is the value of that name. */
struct onnx_use {
    const char *name;
    const Onnx__NodeProto *node; /* NULL: it is an output of the graph */
    size_t k;
};

struct onnx_graph {
    const char *path;
    const Onnx__ModelProto *model;
    int64_t opset;
    struct arena arena;
    struct build build;
    struct onnx_value *value; /* n */
    size_t n;
    size_t *table; /* 1 + the number of a value, by the hash of its name; 0: none */
    size_t slots;
    struct onnx_use *use; /* uses, by name */
    size_t uses;
};

/* A node that is being read, and how it is called in messages. */
struct onnx_node {
    const Onnx__NodeProto *proto;
    const char *name; /* its own, or that of its first output: no other layer has it */
};

/* ---- messages: "PATH: node "NAME" (Conv, opset 13): ..." ---- */

/* Returns ERR_UNSUPPORTED. */
int onnx_refuse(const struct onnx_graph *g, const struct onnx_node *node, struct err *err,
                const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Returns ERR_INPUT. */
int onnx_broken(const struct onnx_graph *g, const struct onnx_node *node, struct err *err,
                const char *format, ...) __attribute__((format(printf, 4, 5)));
int onnx_no_memory(const struct onnx_graph *g, struct err *err);

/* ---- attributes; a fallback where the node lacks one ---- */

const Onnx__AttributeProto *onnx_attribute(const struct onnx_node *node, const char *name);
int64_t onnx_int(const struct onnx_node *node, const char *name, int64_t fallback);
float onnx_float(const struct onnx_node *node, const char *name, float fallback);
/* Is the attribute that text? `fallback`: the text of a node without it. */
bool onnx_text_is(const struct onnx_node *node, const char *name, const char *text,
                  const char *fallback);

/* `n` integers; false: there are others than n. Without the attribute `out` stays. */
bool onnx_ints(const struct onnx_node *node, const char *name, size_t n, int64_t *out);

/* ---- values ---- */

/* NULL: there is none of that name. */
struct onnx_value *onnx_find(const struct onnx_graph *g, const char *name);

/* A new value of that name. ERR_INPUT: there is one; ERR_NOMEM */
int onnx_add(struct onnx_graph *g, const char *name, struct onnx_value **out, struct err *err);

/* Does the node have input k, and is it not left out? */
bool onnx_has(const struct onnx_node *node, size_t k);
bool onnx_has_output(const struct onnx_node *node, size_t k);

/* Input k, which must be there. ERR_INPUT */
int onnx_input(struct onnx_graph *g, const struct onnx_node *node, size_t k,
               struct onnx_value **out, struct err *err);

/* Input k, which must be a blob; *blob has its shape: a Reshape is made where one is due.
 * ERR_INPUT, ERR_UNSUPPORTED: it is a constant, or a sequence by steps */
int onnx_blob(struct onnx_graph *g, const struct onnx_node *node, size_t k, struct onnx_value **out,
              struct err *err);

/* The same without the Reshape. */
int onnx_raw_blob(struct onnx_graph *g, const struct onnx_node *node, size_t k,
                  struct onnx_value **out, struct err *err);

/* Make the Reshape that a blob is due. */
int onnx_settle(struct onnx_graph *g, struct onnx_value *value, struct err *err);

/* Input k, which must be a constant of floats, or of integers; a number of either kind becomes the
 * other. ERR_INPUT, ERR_UNSUPPORTED: it is no constant */
int onnx_floats(struct onnx_graph *g, const struct onnx_node *node, size_t k,
                struct onnx_value **out, struct err *err);
int onnx_integers(struct onnx_graph *g, const struct onnx_node *node, size_t k,
                  struct onnx_value **out, struct err *err);

/* Read a constant's numbers, if that has not happened. */
int onnx_read(struct onnx_graph *g, struct onnx_value *value, struct err *err);

/* The bytes of a tensor that are in another file; the caller frees them. ERR_INPUT: the file is
 * outside of the model's folder, unreadable, or too short; ERR_NOMEM */
int onnx_external_read(const struct onnx_graph *g, const Onnx__TensorProto *tensor, size_t bytes,
                       uint8_t **out, struct err *err);

/* A tensor's shape; ERR_INPUT: it makes no sense. `where` is for messages. */
int onnx_tensor_shape(const struct onnx_graph *g, const Onnx__TensorProto *tensor,
                      struct shape *out, struct err *err);

/* Fill `use`, once. ERR_NOMEM */
int onnx_index_uses(struct onnx_graph *g, struct err *err);
/* All uses of that name, *n of them. */
const struct onnx_use *onnx_uses(const struct onnx_graph *g, const char *name, size_t *n);

/* How often is the value of that name read, by nodes and as an output of the graph? 2: twice or
 * more often */
unsigned onnx_readers(const struct onnx_graph *g, const char *name);
/* Is the value read as integers only: as numbers of rows by nodes Gather, as labels by losses? */
bool onnx_are_integers(const struct onnx_graph *g, const char *name);

/* ---- results ---- */

/* Output k of the node as a blob of that shape, by the layer that was added last. */
int onnx_result(struct onnx_graph *g, const struct onnx_node *node, size_t k,
                const struct shape *shape, struct err *err);

/* Output k as a constant: room for its floats, or integers. ERR_NOMEM */
int onnx_result_floats(struct onnx_graph *g, const struct onnx_node *node,
                       const struct shape *shape, float **at, struct err *err);
int onnx_result_integers(struct onnx_graph *g, const struct onnx_node *node,
                         const struct shape *shape, int64_t **at, struct err *err);

/* Output 0 is `value` with another shape of the same numbers. */
int onnx_result_like(struct onnx_graph *g, const struct onnx_node *node,
                     const struct onnx_value *value, const struct shape *shape, struct err *err);

/* ---- layers ---- */

/* A layer of the node's name from a blob to output 0; NULL: out of memory. */
Caffe__LayerParameter *onnx_layer(struct onnx_graph *g, const struct onnx_node *node,
                                  const char *type, const struct onnx_value *bottom);

/* The same from and to blobs of any names. `name` and `top` are copied. */
Caffe__LayerParameter *onnx_inner_layer(struct onnx_graph *g, const char *type, const char *name,
                                        const char *bottom, const char *top);

/* "NODE/suffix", the arena's. NULL: out of memory */
const char *onnx_name(struct onnx_graph *g, const struct onnx_node *node, const char *suffix);

/* Append a blob of numbers to the layer that was added last, which trains at the solver's rate. */
void onnx_weights(struct onnx_graph *g, const struct shape *shape, const float *at);
/* The same to a layer that there is. */
void onnx_weights_of(struct onnx_graph *g, Caffe__LayerParameter *layer, const struct shape *shape,
                     const float *at);
/* The same without a rate: state. */
void onnx_state(struct onnx_graph *g, const struct shape *shape, const float *at);

/* The values `part` of an axis of the blob x, some but not all, as a blob `top`, by a layer `name`.
 */
int onnx_take_part(struct onnx_graph *g, const char *name, const char *top,
                   const struct onnx_value *x, size_t axis, struct range part, struct err *err);

/* ---- operators, a file each kind (onnx_operators.c has the table) ---- */

typedef int onnx_operator(struct onnx_graph *g, const struct onnx_node *node, struct err *err);

onnx_operator onnx_conv, onnx_conv_transpose, onnx_max_pool, onnx_average_pool;
onnx_operator onnx_global_average, onnx_global_max, onnx_reduce_mean, onnx_reduce_max, onnx_pad;
onnx_operator onnx_gemm, onnx_matmul;
onnx_operator onnx_relu, onnx_leaky_relu, onnx_sigmoid, onnx_tanh, onnx_abs, onnx_elu, onnx_prelu;
onnx_operator onnx_exp, onnx_log, onnx_neg, onnx_sqrt, onnx_reciprocal, onnx_clip, onnx_pow;
onnx_operator onnx_softmax, onnx_log_softmax, onnx_lrn, onnx_dropout, onnx_batch_norm;
onnx_operator onnx_plus, onnx_minus, onnx_times, onnx_divide, onnx_sum, onnx_max, onnx_mean;
onnx_operator onnx_concat, onnx_concat_blobs, onnx_split, onnx_gather_blob;
onnx_operator onnx_flatten, onnx_reshape, onnx_squeeze, onnx_unsqueeze;
onnx_operator onnx_identity, onnx_cast, onnx_transpose;
onnx_operator onnx_constant, onnx_constant_of_shape, onnx_shape, onnx_gather, onnx_slice;
onnx_operator onnx_lstm, onnx_gru, onnx_rnn, onnx_embed, onnx_expand;
onnx_operator onnx_softmax_loss, onnx_likelihood_loss;

/* The axes that Squeeze and Unsqueeze name, sorted out into is[k] for `n` axes: an attribute, and
 * from opset 13 on an input. ERR_INPUT: none are named, or one is no axis */
int onnx_named_axes(struct onnx_graph *g, const struct onnx_node *node, size_t n,
                    bool is[SHAPE_DIMS_MAX], struct err *err);

/* The operator of a node; NULL: there is none, and `err` says so. */
onnx_operator *onnx_operator_of(const struct onnx_graph *g, const struct onnx_node *node,
                                struct err *err);

#endif
