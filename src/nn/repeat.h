/* Layers whose second operand, learnt or a second bottom, is repeated over the axes of the first
 * that it lacks (tensor/broadcast.h): Bias, Scale. */
#ifndef PL_NN_REPEAT_H
#define PL_NN_REPEAT_H

#include "nn/layer.h"
#include "tensor/broadcast.h"

/* The fields that the two messages have alike. */
struct repeat_fields {
    const char *message;
    int32_t axis, num_axes;
    bool has_num_axes;
    const Caffe__FillerParameter *filler; /* NULL: not given */
    float begin;                          /* initial value of a parameter without a filler */
};

/* Check the links, set the top, and read the repeated operand into spec->w, spec->w_layout and
 * spec->axis, in addition to spec->x and spec->layout. Learnt, it is declared: num_axes 0 is one
 * number, -1 all axes from `axis` on. A second bottom has the records first, unless it is one
 * number; its num_axes, if given, must be its own, and there must be no filler. */
int repeat_read(struct layer *layer, const struct setup *setup, const struct repeat_fields *fields,
                struct broadcast_spec *spec, struct err *err);

/* forward and backward by layer->op, whose w is the second bottom or the first parameter, and whose
 * b is the next. */
void repeat_forward(struct layer *layer, const struct pass *pass);
void repeat_backward(struct layer *layer, const struct pass *pass);

#endif
