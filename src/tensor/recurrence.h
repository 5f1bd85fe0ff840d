/* Recurrent layers as ops: sequences of T steps in N records, (N, T, D), to outputs (N, T, H) of H
 * units. a_t are the products of a step with the input weights, W_x x_t + b_x + W_s s, with a
 * static input s if there is one; h_0, c_0 is the state before the first step; cont_t, (N, T),
 * is 0 where a sequence begins, else 1; h' = cont_t h_{t-1}.
 *
 *     LSTM   (i, f, o) = σ(a + W_h h'), g = tanh(a + W_h h'), gates in the order i, f, o, g;
 *            c_t = cont_t f c_{t-1} + i g; h_t = o tanh(c_t)        (Caffe's LSTM, no peepholes)
 *     tanh   h_t = tanh(a + W_h h'); output tanh(W_o h_t + b_o)     (Caffe's RNN)
 *     state  h_t = tanh(a + W_h h'), which is the output             (PyTorch's RNN)
 *     GRU    (r, z) = σ(a + W_h h' + b_h); n = tanh(a + r (W_h h' + b_h)), gates r, z, n;
 *            h_t = (1 - z) n + z h'                                 (PyTorch's GRU)
 *     reset  the same, but n = tanh(a + W_h (r h') + b_h)    (Cho's GRU, which ONNX has by default)
 *
 * The products of all steps with the inputs, and all gradients of weights, are one matrix product
 * each, by the kernel set's inner product; a step has that of its state alone. Where a set has
 * loops for that (`products`), W_h is packed once for all steps of a pass, and each thread takes
 * its records through all of them: no step waits for another thread. */
#ifndef PL_TENSOR_RECURRENCE_H
#define PL_TENSOR_RECURRENCE_H

#include "tensor/gate_loops.h"
#include "tensor/kernels.h"
#include "tensor/product_loops.h"
#include "tensor/vec.h"

enum recurrence_kind {
    RECURRENCE_TANH,
    RECURRENCE_STATE,
    RECURRENCE_LSTM,
    RECURRENCE_GRU,
    RECURRENCE_RESET
};

struct recurrence_spec {
    enum recurrence_kind kind;
    size_t N, T, D, S, H; /* S: values of a record's static input; 0: there is none */
    struct range own;     /* of the H units those that are computed: all, or a slice's (len U) */
    size_t kinds;         /* of rows of x: those of one number below this are equal, and those of
                             other numbers NaN; 0: rows need not repeat */
    bool reverse;         /* step t is at T - 1 - t of x, cont and y */
};

/* Vectors of H that a step hands to the next: h, and of an LSTM c. */
enum { RECURRENCE_STATES = 2 };
size_t recurrence_states(enum recurrence_kind kind);

/* Parameters, in the order of Caffe's blobs; a kind has some of them. With G gates: (GH, D), (GH),
 * (GH, S), (GH, H), (GH), (H, H), (H). */
enum recurrence_param {
    RECURRENCE_WX,
    RECURRENCE_BX,
    RECURRENCE_WS,
    RECURRENCE_WH,
    RECURRENCE_BH,
    RECURRENCE_WO,
    RECURRENCE_BO,
    RECURRENCE_PARAMS
};

/* The shape of a parameter; n = 0: there is none of these. */
struct shape recurrence_param_shape(const struct recurrence_spec *spec, enum recurrence_param k);

/* Multiply-adds of a forward pass's products. */
double recurrence_products(const struct recurrence_spec *spec);

struct recurrence_args {
    const float *w[RECURRENCE_PARAMS];
    const float *x, *fixed, *cont;         /* `fixed`: s, (N, S); cont NULL: all 1 */
    const float *numbers;                  /* of the rows of x, (N, T), where these have kinds */
    const float *first[RECURRENCE_STATES]; /* the state before the first step, of the first
                                              `first_records`; of others, and NULL: 0 */
    size_t first_row, first_records;       /* floats from one record to the next */
    float *y;
    float *last[RECURRENCE_STATES]; /* the state behind the last step, of the first `last_records`;
                                       NULL: not wanted; may be `first` */
    size_t last_row, last_records;
    /* backward alone; `w` to `y` are those of forward. NULL: zero, or not wanted. Where rows of x
     * have kinds, dx may have the sum over the rows of one number in one of them, and 0 in the
     * others: the layer that made the rows from the numbers adds them up. */
    const float *dy, *dlast[RECURRENCE_STATES]; /* dlast: rows without gaps */
    float *dx, *dfixed, *dfirst[RECURRENCE_STATES];
    float *dw[RECURRENCE_PARAMS]; /* added to */
};

/* Of GRUs whose reset gate is first: the product at gate n, of r h' (recurrence_reset.c). */
struct recurrence_reset {
    struct op *step_op, *state_op;
    float *reset, *inner;   /* r h', (N, H), and its products, (N, U); backward: the gradients */
    float *resets, *inners; /* training: r h' of all steps, and the gradients by the products */
};

/* Of each kind of rows, and last of those that have none (recurrence_rows.c). */
struct recurrence_rows {
    struct op *op;         /* x_op of these rows; NULL: rows have no kinds, or too many */
    float *x, *dx, *gates; /* rows of D, D and GU: of dx their sums; gates: products or gradients */
    size_t *first;         /* where the first one is; N·T: nowhere */
};

struct recurrence {
    struct op op; /* has no forward and backward of its own */
    struct recurrence_spec spec;
    const struct gate_loops *loops;
    size_t G, Z; /* gates, and those of them that are products of h' */
    struct op *x_op, *fixed_op, *step_op, *state_op, *out_op;
    struct recurrence_rows rows;
    struct recurrence_reset reset;
    const struct product_loops *products; /* NULL: products of the state are step_op's */
    float *there, *back; /* W_h packed, for forward and backward; one room for both */
    size_t parts;        /* of the records, which have a thread each */
    float *gates;        /* (N, T, GU): as in struct gate_row */
    float *hidden;       /* GRU, training: (N, T, ZU), as `gates`, of the state's products */
    float *dout;         /* of tanh units, (N, T, U): the gradient by the output's products, */
    float *dh_all;       /* and (N, T, H): that by their h; the room of the gates where U is H */
    float *before;       /* training: h', (N, T, H) */
    float *h;            /* of tanh units, (N, T, H), */
    float *y;            /* and (N, T, U): their outputs; NULL: y itself */
    float *c;            /* LSTM: (N, T, U) in training, else (N, U) */
    float *state;        /* (N, H) */
    float *c_first, *extra, *z, *dh, *dc; /* (N, U); extra: (N, GU); z: (N, ZU) */
};

struct recurrence_loops {
    const struct gate_loops *gates;
    const struct product_loops *products; /* NULL: none */
};

/* A set's planner: as those of kernels.h. */
int recurrence_plan(const struct recurrence_spec *spec, const struct kernels *kernels,
                    const struct recurrence_loops *loops, bool training, struct arena *arena,
                    struct recurrence **out, struct err *err);

void recurrence_forward(struct recurrence *r, const struct recurrence_args *args);

/* After the forward of the same batch: x, s, cont and weights unchanged since; of tanh units y. */
void recurrence_backward(struct recurrence *r, const struct recurrence_args *args);

static inline bool recurrence_is_slice(const struct recurrence *r)
{
    return r->spec.own.len < r->spec.H;
}

/* ---- the same of a slice of the units, part by part ----
 *
 * Weights are those of the own units, all gates of a unit together; vectors of units in args are
 * whole, but of c, dlast and dfirst only the own units' are read and written.
 *
 * Forward: begin; step for each step, behind which all slices gather r->state, for take_step; end,
 * behind which those of tanh units gather y. Backward: begin, behind which those of tanh units add
 * up r->dh_all; from the last step on, step, behind which all add up r->state, and finish_step, of
 * which the first step has no need without dfirst; end, behind which they add up dx and dfixed. It
 * may be called for dx alone, without any dw, and then for the others, without dx.
 *
 * Where the reset gate is first (recurrence_halves) each step has a half before it: forward behind
 * it the slices gather, and backward add up, r->reset.reset. */
bool recurrence_halves(const struct recurrence *r);
void recurrence_half_forward(struct recurrence *r, const struct recurrence_args *args, size_t t);
void recurrence_half_backward(struct recurrence *r, const struct recurrence_args *args, size_t t);
void recurrence_begin_forward(struct recurrence *r, const struct recurrence_args *args);
void recurrence_step_forward(struct recurrence *r, const struct recurrence_args *args, size_t t);
void recurrence_take_step(struct recurrence *r, const struct recurrence_args *args, size_t t);
void recurrence_end_forward(struct recurrence *r, const struct recurrence_args *args);
void recurrence_begin_backward(struct recurrence *r, const struct recurrence_args *args);
void recurrence_step_backward(struct recurrence *r, const struct recurrence_args *args, size_t t);
void recurrence_finish_step(struct recurrence *r, const struct recurrence_args *args, size_t t);
void recurrence_end_backward(struct recurrence *r, const struct recurrence_args *args);

#endif
