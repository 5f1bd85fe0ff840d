/* Codes for one direction of a convolution over NHWC images, or images in blocks: forward, y from
 * x, w and b; the gradient dx from dy and w; the gradients dw and db from x and dy. Each is one
 * file's way of doing it: oneDNN's primitives, sums over slices of the batch, products of matrices,
 * our own Winograd. Private to the dnnl set. */
#ifndef PL_TENSOR_KERNELS_DNNL_CODE_H
#define PL_TENSOR_KERNELS_DNNL_CODE_H

#include "tensor/kernels_onednn.h"
#include "tensor/tuner.h"

/* One direction, planned: `run` reads and writes the arguments of that direction. dw
 * and db are added to. */
struct conv_code {
    void (*run)(struct conv_code *code, const struct op_args *args);
    struct library_code *library; /* oneDNN's, whose weights another direction may use; or NULL */
    struct op_reorders reorders;
};

/* The operation that a code is planned for, and its resources. */
struct conv_site {
    const struct conv_spec *spec;
    enum onednn_pass pass;
    bool training;
    bool cold;          /* its output is kept for long, in memory that is in no cache */
    struct onednn *dnn; /* oneDNN's objects of the code are released with it */
    struct arena *arena;
    struct op_scratch *scratch;
    size_t *bytes;           /* grows by the bytes of arrays taken from the arena */
    struct conv_code *first; /* has run before this one, on the same weights; NULL: none */
};

enum code_kind { CODE_LIBRARY, CODE_SLICES, CODE_PRODUCT, CODE_WINOGRAD };

struct conv_candidate {
    char name[TUNER_NAME_MAX + 1];
    enum code_kind kind;
    bool winograd, any_form, reordered; /* of the library's */
};

enum { CONV_CANDIDATES_MAX = 24 };

/* Increased with every change to the speed of Paceline's own kernels, to the list, or to the
 * timing, so that all are timed again. */
enum { CONV_CODES_VERSION = 4 };

/* All that may be fastest at the site's direction; how many. */
size_t conv_candidates(const struct conv_site *site, struct conv_candidate *out);

/* The choice without measurement: oneDNN's first over images in their layout, and for weights, over
 * NHWC, the sum over slices, whose bits do not depend on the split of the batch.
 * dnnl_unimplemented: there is none, or only oneDNN's last resort, whose name is then out->name. */
dnnl_status_t conv_rule(const struct conv_site *site, struct conv_candidate *out);

/* A plan that fails frees everything, and sets *out to NULL. */
dnnl_status_t conv_code_plan(const struct conv_site *site, const struct conv_candidate *candidate,
                             struct conv_code **out);

/* ---- for the files of codes ---- */

/* Takes the first of oneDNN's codes that the rule allows, for a `const struct onednn_conv *`. */
bool conv_see_allowed(void *conv, const_dnnl_primitive_desc_t pd);

dnnl_status_t code_plan_slices(const struct conv_site *site, struct conv_code **out);

/* Products of matrices, for windows of one pixel. */
bool code_product_fits(const struct conv_spec *spec);
dnnl_status_t code_plan_product(const struct conv_site *site, struct conv_code **out);

/* Our own Winograd, where winograd_fits. */
dnnl_status_t code_plan_winograd(const struct conv_site *site, struct conv_code **out);

#endif
