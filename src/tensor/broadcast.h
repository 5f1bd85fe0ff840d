/* Ops in which each element of x meets its own entry of a smaller array w, repeated over the axes
 * of x that w lacks: scales, biases, slopes. Any axes, either layout, nothing reordered. One
 * implementation for all kernel sets: it is memory that bounds it. The bits are the same for any
 * number of threads; sums over records go by slices (slices.h). */
#ifndef PL_TENSOR_BROADCAST_H
#define PL_TENSOR_BROADCAST_H

#include "tensor/kernels.h"

enum broadcast_kind {
    BROADCAST_SCALE, /* y = w·x + b (b, if any, lies as w does): dx = w·dy, dw = Σ dy·x, db = Σ dy
                      */
    BROADCAST_BIAS, /* y = x + w: dx = dy, dw = Σ dy */
    BROADCAST_SLOPE, /* y = x where x > 0, else w·x: dx = dy or w·dy, dw = Σ dy·x where not x > 0 */
};

/* w has the axes [axis, axis + w.n) of x; none at all is one number. Axis 0 has the records: a w
 * with that axis has other entries for each of them. */
struct broadcast_spec {
    enum broadcast_kind kind;
    struct shape x, w;
    size_t axis;
    enum layout layout, w_layout;
    bool bias;
};

/* An op of x, w, b, y and their gradients, of which those that are NULL are not wanted. ERR_NOMEM
 */
int broadcast_plan(const struct broadcast_spec *spec, bool training, struct arena *arena,
                   struct op **op, struct err *err);

#endif
