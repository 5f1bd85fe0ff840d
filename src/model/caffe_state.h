/* A .solverstate: the state that a run of Caffe writes with its weights to resume from. */
#ifndef PL_MODEL_CAFFE_STATE_H
#define PL_MODEL_CAFFE_STATE_H

#include "base/err.h"
#include "base/file.h"
#include "job/caffe.pb-c.h"
#include "model/caffe_proto.h"
#include "tensor/segment.h"

struct caffe_state {
    struct file_bytes bytes;    /* the bytes that the views point into */
    const char *path;           /* borrowed */
    int32_t iter;               /* steps taken, */
    int32_t current_step;       /* and rates stepped down, under lr_policy "multistep" or "step" */
    char *learned_net;          /* owned: the caffemodel's path as the run named it; NULL: none */
    struct caffe_blob *history; /* owned */
    size_t n;
};

/* Read a file of untrusted bytes. `path` is borrowed until caffe_state_release; `out` is written
 * only on success. ERR_INPUT with the byte that is wrong; ERR_NOMEM */
int caffe_state_read(const char *path, struct caffe_state *out, struct err *err);
void caffe_state_release(struct caffe_state *state);

/* The history holds one vector of the optimizer's after another, each a blob for every parameter in
 * the order of the net's layers, those of BatchNorm among them: SGD and Nesterov the momentum,
 * AdaGrad and RMSProp the squares, AdaDelta squares of gradients, then of updates, Adam first and
 * second moments. Their number for this net, which is caffe_upgrade's result; `x` and `s` are its
 * tables. ERR_INPUT naming the blob that is missing, too many, or of another shape. */
int caffe_state_vectors(const struct caffe_state *state, const Caffe__NetParameter *net,
                        const struct segments *x, const struct segments *s, size_t *vectors,
                        struct err *err);

/* Copy vector `k` of them into the floats of x; padding is left alone. Momenta are as Caffe has
 * them, of the step itself: v ← momentum·v + rate·gradient. */
void caffe_state_take(const struct caffe_state *state, const Caffe__NetParameter *net,
                      const struct segments *x, const struct segments *s, size_t k, float *into);

#endif
