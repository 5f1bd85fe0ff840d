/* oneDNN's handles, kept so that running an op is setting pointers and executing. Private to the
 * dnnl set. The differences between oneDNN 2 and 3 are in kernels_onednn_desc.c.
 *
 * oneDNN plans for the number of threads the planning thread is set to (kernels_set_threads). */
#ifndef PL_TENSOR_KERNELS_ONEDNN_H
#define PL_TENSOR_KERNELS_ONEDNN_H

#include "base/arena.h"
#include "base/err.h"
#include "tensor/kernels.h"

#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t onednn_desc;
#else
typedef const dnnl_memory_desc_t *onednn_desc;
#endif

enum { ONEDNN_MEMORIES_MAX = 48, ONEDNN_STEPS_MAX = 12, ONEDNN_ARGS_MAX = 6 };

/* One primitive with its arguments. */
struct onednn_step {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[ONEDNN_ARGS_MAX];
    int n_args;
};

/* The objects of oneDNN that one op holds. Zeroed is empty; release may be called at any stage of
 * set-up. */
struct onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* scratch is ours */
    dnnl_memory_t memories[ONEDNN_MEMORIES_MAX];
    size_t n_memories;
    struct onednn_step steps[ONEDNN_STEPS_MAX];
    size_t n_steps;
    dnnl_memory_t scratch[ONEDNN_STEPS_MAX]; /* each step's view of the one scratch buffer */
    size_t scratch_bytes;                    /* the largest any step asked for */
};

/* Limit oneDNN to the instructions that isa_best allows, if PACELINE_ISA is narrower than the
 * processor: for the whole process, before its first primitive or product; a later call is refused
 * and changes nothing. onednn_init does it. */
void onednn_limit_isa(void);

/* Between the two calls (the second follows if the first was OK), oneDNN caches no primitives of
 * this process, since most candidates lose. Calls of several threads may overlap; a thread that
 * plans meanwhile makes primitives that it might have shared. */
dnnl_status_t onednn_keep_no_primitives(void);
void onednn_keep_primitives(void);

int onednn_init(struct onednn *dnn, struct err *err);
void onednn_release(struct onednn *dnn);

/* Release the steps and memories after the first `steps` and `memories`: those of a plan that
 * failed. */
void onednn_cut(struct onednn *dnn, size_t steps, size_t memories);

/* Turn a failure of oneDNN's into ours. `what` names the op and its shape; `slow`, unless NULL, the
 * code that was turned down. */
int onednn_fail(dnnl_status_t status, const char *slow, const char *what, struct err *err);

/* A memory of the form `desc`, bound to `data` (NULL: onednn_bind comes later). */
dnnl_status_t onednn_memory(struct onednn *dnn, onednn_desc desc, void *data, dnnl_memory_t *out);

/* A memory of an image of the convolution, as it lies; of the canonical weights (O, C/groups, KH,
 * KW), floats. To be bound later. */
dnnl_status_t onednn_memory_image(struct onednn *dnn, const struct conv_spec *spec,
                                  const struct shape *image, dnnl_memory_t *out);
dnnl_status_t onednn_memory_weights(struct onednn *dnn, const struct conv_spec *spec,
                                    dnnl_memory_t *out);

/* Another memory of the form that `like` has, to be bound later. */
dnnl_status_t onednn_memory_like(struct onednn *dnn, dnnl_memory_t like, dnnl_memory_t *out);

/* Whether the memory is laid out as `desc` says. */
bool onednn_has_form(dnnl_memory_t memory, onednn_desc desc);

/* A memory of the form `desc` with room of its own; *bytes grows by what it took. */
dnnl_status_t onednn_memory_own(struct onednn *dnn, onednn_desc desc, struct arena *arena,
                                size_t *bytes, dnnl_memory_t *out, void **data);

/* A step of what `pd` describes; its arguments follow by onednn_step_arg. */
dnnl_status_t onednn_step(struct onednn *dnn, const_dnnl_primitive_desc_t pd,
                          struct onednn_step **out);
void onednn_step_arg(struct onednn_step *step, int arg, dnnl_memory_t memory);

/* A step that copies `from` to `to`, or adds it, whatever the two forms. */
dnnl_status_t onednn_step_reorder(struct onednn *dnn, dnnl_memory_t from, dnnl_memory_t to,
                                  bool add, struct onednn_step **out);

/* After the last step: one scratch buffer for all. ERR_NOMEM */
int onednn_plan_scratch(struct onednn *dnn, struct arena *arena, struct err *err);

/* In place of that, for the steps from `first` on: the bytes of scratch they need, and where it is
 * to be. */
size_t onednn_scratch_of(const struct onednn *dnn, size_t first);
void onednn_scratch_bind(struct onednn *dnn, size_t first, size_t end, void *at);

void onednn_bind(dnnl_memory_t memory, const void *data);
void onednn_run(const struct onednn *dnn, const struct onednn_step *step);

/* The name that oneDNN gives the code it has chosen. */
const char *onednn_name(const_dnnl_primitive_desc_t pd);

/* That name if it is one of oneDNN's last resorts, some 80 times slower than the rest; or NULL. */
const char *onednn_slow(const_dnnl_primitive_desc_t pd);

enum onednn_pass {
    ONEDNN_FORWARD,
    ONEDNN_BACKWARD_DATA,
    ONEDNN_BACKWARD_WEIGHTS,
    ONEDNN_PASSES,
};

/* One pass of a convolution, by weights in any form, and of bf16 where its images are; the gradient
 * of weights is float. */
struct onednn_conv {
    const struct conv_spec *spec;
    enum onednn_pass pass;
    bool training; /* of the forward pass alone: it has one back */
    bool winograd; /* else direct */
    bool any_form; /* images too lie in any form; else as the spec says */
};

/* Takes a code by saying true. */
typedef bool (*onednn_see)(void *user, const_dnnl_primitive_desc_t pd);

/* Show oneDNN's codes for it, in its own order of preference, until one is taken: the caller
 * destroys *out. dnnl_unimplemented: none was. */
dnnl_status_t onednn_conv_find(struct onednn *dnn, const struct onednn_conv *conv, onednn_see see,
                               void *user, dnnl_primitive_desc_t *out);

/* The descriptor of the logistic function of n floats; its backward is given y for x. `hint` is the
 * forward's, NULL for the forward itself. The caller destroys *out. */
dnnl_status_t onednn_logistic_desc(struct onednn *dnn, size_t n, bool training,
                                   enum onednn_pass pass, const_dnnl_primitive_desc_t hint,
                                   dnnl_primitive_desc_t *out);

#endif
