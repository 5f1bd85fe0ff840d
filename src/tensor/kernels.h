/* Kernels: the arithmetic of layers, planned once and run many times.
 *
 * A kernel set (`ref`: plain C, the truth; `dnnl`: oneDNN) plans an `op` for given shapes; an op
 * owns its scratch and runs without allocating. One conformance suite (kernels_test.c) holds every
 * pair of sets together. Weights and their gradients are canonical (row-major, OIHW) in x and dx;
 * a blocked or reordered form stays inside an op.
 *
 * Activations have a layout. A set has one favourite for images; matrices are always plain. They
 * are floats, unless an op is planned for images of bf16: x, y, dy and dx then are, and sums are
 * still taken in float. */
#ifndef PL_TENSOR_KERNELS_H
#define PL_TENSOR_KERNELS_H

#include "base/arena.h"
#include "base/err.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

#include <stdbool.h>
#include <stdint.h>

enum layout {
    LAYOUT_PLAIN, /* NCHW, or any row-major matrix */
    LAYOUT_NHWC,
    LAYOUT_BLOCKS, /* (N, C / 16, H, W, 16) */
};

/* The arrays of an op in one call; an op uses the fields it needs. x, w, b are inputs, y the
 * output; dy is the incoming gradient, dx is overwritten, dw and db are added to. dx NULL: not
 * wanted; dw NULL, of conv and inner: neither dw nor db is wanted. Two calls, one of them for dx
 * alone, make the bits of one. Nothing may overlap, but that x = y and dx = dy are allowed where
 * `in_place` is set. */
struct op_args {
    const void *x; /* floats, or bf16, as are y, dy and dx */
    const float *w, *b;
    void *y;
    const void *dy;
    void *dx;
    float *dw, *db;
};

/* x, y, dy and dx of an op that knows floats alone. */
struct op_floats {
    const float *x;
    float *y;
    const float *dy;
    float *dx;
};

static inline struct op_floats op_floats(const struct op_args *args)
{
    return (struct op_floats){args->x, args->y, args->dy, args->dx};
}

/* The arrays that a pass reorders besides its arithmetic: images and their gradients; weights and
 * theirs. */
struct op_reorders {
    unsigned images, weights;
};

struct op {
    const struct op_ops *ops;
    enum layout x_layout, y_layout;
    bool in_place;
    size_t scratch_bytes; /* for the memory report; shared memory is not counted */
    const char *chosen;   /* the names of the kernels for each direction; NULL: there is only one */
    double seconds;       /* that the tuner saw them take, all together; 0: not all were timed */
    struct op_reorders forward, backward;
};

/* Memory shared by ops that never run at the same time, as those of one net. Each planned op raises
 * `bytes` to its need, and the planner provides `at` before the first op runs. */
struct op_scratch {
    size_t bytes;
    void *at;              /* aligned as the arena's */
    struct op_plan *plans; /* other state that the set's ops share */
};

struct tuner;

/* How an op is planned. */
struct plan_options {
    bool training;              /* there is a way back, */
    bool no_dx;                 /* dx of the op is never needed */
    bool no_db;                 /* nor db, which may stay as it is */
    struct arena *arena;        /* arena of the op's memory */
    struct op_scratch *scratch; /* NULL: the op has its own */
    struct tuner *tuner;        /* finds out which code is the fastest; NULL: a rule chooses */
};

struct op_ops {
    void (*forward)(struct op *op, const struct op_args *args);
    /* After the forward of the same batch, x (and y) unchanged since. NULL for inference-only. */
    void (*backward)(struct op *op, const struct op_args *args);
    void (*release)(struct op *op); /* (optional) frees memory that is not the arena's */
};

/* (N, C, H, W) * (O, C/groups, KH, KW) → (N, O, OH, OW), zero padding; cross-correlation as in
 * Caffe. Outputs depend on the inputs of their own group alone; taps lie `dilation` pixels apart.
 * With E = dilation · (K - 1) + 1, the extent of a kernel, OH = (H + 2 pad - E) / stride + 1,
 * rounded down.
 *
 * A deconvolution is the backward pass of the convolution from its y to its x: its weights are (C,
 * O/groups, KH, KW), and OH = stride · (H - 1) + E - 2 pad. */
struct conv_spec {
    struct shape x, y;
    size_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
    size_t dilation_h, dilation_w, groups; /* at least 1 */
    bool bias;
    bool blocks;      /* x and y are in blocks (layout_in_blocks), if the set has_blocks */
    enum dtype dtype; /* of x and y */
};

enum pool_kind { POOL_MAX, POOL_AVERAGE };

/* Caffe's pooling: windows may run past the far edge (output size rounds up); max ignores padding;
 * average divides by the window clipped to the padded image. */
struct pool_spec {
    enum pool_kind kind;
    struct shape x, y;
    size_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
    enum dtype dtype; /* of x and y */
};

/* Local response normalisation (Krizhevsky et al. 2012, section 3.3): y = x · s^-beta, where
 *
 *     across: s = k + alpha/size Σ x² over `size` channels around the own
 *     within: s = 1 + alpha/size² Σ x² over size × size pixels around the own
 *
 * Values outside count as 0; size is odd. dx = dy · s^-beta - 2 · beta · alpha/size^(1|2) · x · Σ
 * dy · y / s, summed over the same neighbours. */
enum lrn_region { LRN_ACROSS, LRN_WITHIN };

struct lrn_spec {
    struct shape x;
    enum lrn_region region;
    size_t size;
    float alpha, beta, k;
};

/* x flattened to (N, I); w (O, I); y (N, O). I counts in NCHW order whatever the layout of x. */
struct inner_spec {
    struct shape x, y;
    bool bias;
    size_t steps; /* rows of x that are one record's; 0: 1 */
};

struct relu_spec {
    struct shape x;
    float negative_slope;
    enum dtype dtype; /* of x and y */
};

/* One w, and one b, a channel: x is (N, C, ..). */
struct scale_spec {
    struct shape x;
    bool bias;
};

struct recurrence;
struct recurrence_spec;

struct kernels {
    const char *name;
    enum layout image_layout;
    bool has_bf16;   /* its conv, pool and relu take images of bf16, where bf16_check is OK */
    bool has_blocks; /* its conv takes floats in blocks of channels */
    /* Plan an op, of bf16 where has_bf16 alone. Memory is the arena's; op_release frees the rest.
     * ERR_UNSUPPORTED the set has no fast path for it (the caller reports it; there is no silent
     * slow one) ERR_NOMEM */
    int (*conv)(const struct conv_spec *spec, const struct plan_options *options, struct op **op,
                struct err *err);
    int (*deconv)(const struct conv_spec *spec, const struct plan_options *options, struct op **op,
                  struct err *err);
    int (*pool)(const struct pool_spec *spec, bool training, struct arena *arena, struct op **op,
                struct err *err); /* backward reads neither x nor y */
    int (*lrn)(const struct lrn_spec *spec, bool training, struct arena *arena, struct op **op,
               struct err *err); /* backward reads x and never y */
    int (*inner)(const struct inner_spec *spec, enum layout x_layout, bool training,
                 struct arena *arena, struct op **op, struct err *err);
    int (*relu)(const struct relu_spec *spec, enum layout layout, bool training,
                struct arena *arena, struct op **op, struct err *err);
    /* y = 1 / (1 + e^-x), element by element; backward reads y and never x. */
    int (*sigmoid)(const struct shape *x, enum layout layout, bool training, struct arena *arena,
                   struct op **op, struct err *err);
    /* y = w·x + b by channel. Backward reads x, so training is not in place. */
    int (*scale)(const struct scale_spec *spec, enum layout layout, bool training,
                 struct arena *arena, struct op **op, struct err *err);
    /* Softmax over the last axis of (N, C); forward only: the loss does its own gradient. */
    int (*softmax)(const struct shape *x, struct arena *arena, struct op **op, struct err *err);
    /* Recurrent layers (recurrence.h), over rows of floats. */
    int (*recurrence)(const struct recurrence_spec *spec, bool training, struct arena *arena,
                      struct recurrence **out, struct err *err);
};

extern const struct kernels kernels_ref;
extern const struct kernels kernels_dnnl;

enum { BLOCK_CHANNELS = 16 };

/* How an image of that shape lies where images lie in blocks of channels: of one block, or of one
 * pixel, it is the same memory as NHWC, and is called that; as are those that blocks do not divide.
 */
enum layout layout_in_blocks(const struct shape *shape);

/* The shape of an image in blocks, seen as NHWC with 16 channels and more records, for ops that
 * treat all channels alike. */
struct shape shape_of_blocks(const struct shape *shape);

/* Convert (N, C, H, W) between PLAIN and another layout. */
void kernels_reorder(const struct shape *shape, enum layout from, const float *x, enum layout to,
                     float *y);

/* Compute threads that ops and vec updates use when called from the calling thread. A call lasts
 * until the next on the same thread; other threads are not affected. Call it before planning: an op
 * may be planned for the number it will run on. */
void kernels_set_threads(int threads);
int kernels_threads(void); /* the number that was set, or OpenMP's default */

/* "avx512", "avx2", "sse2", ...: the widest instructions that kernels use here (isa_best). */
const char *kernels_isa(void);

static inline void op_release(struct op *op)
{
    if (op && op->ops->release)
        op->ops->release(op);
}

#endif
