/* Code that losses have in common: the divisor of a sum, and the scale of its gradient.
 *
 * Caffe divides the sum over a batch's positions by one number d: by `normalization`, or, for a
 * loss without that field, the records. Most d are in proportion to the records: the loss is a mean
 * over them, its gradient that of the mean, and workers that share a batch get what one would have.
 * Two are not. With ignored labels VALID divides by the number of the other labels in this batch,
 * so that each label of a batch with few of them has more weight: split among workers, the loss is
 * the mean of the workers' means. NONE divides by 1: split among K workers, whose gradients are
 * averaged, it is 1/K of the whole sum (as it is with Caffe's own parallel training). */
#ifndef PL_NN_LOSS_H
#define PL_NN_LOSS_H

#include "nn/rows.h"

typedef Caffe__LossParameter__NormalizationMode loss_mode;

/* loss_param's mode: `normalization`, else by the older `normalize` VALID or BATCH_SIZE, else
 * `fallback`. `param` may be NULL. ERR_INPUT where it is none. */
int loss_read_mode(const Caffe__LossParameter *param, loss_mode fallback, loss_mode *out,
                   struct err *err);

/* d, at least 1: FULL: all positions; VALID: those not ignored; BATCH_SIZE: Caffe's outer_num_ (the
 * axes before that of the classes); NONE: 1. */
double loss_divisor(loss_mode mode, size_t positions, size_t valid, size_t outer);

/* ERR_INPUT unless both bottoms have records of one size. */
int loss_check_pair(const struct layer *layer, struct err *err);

/* Write scale · g to dx, of the blob that `rows` are of; both are rows. 0 after the first `used`.
 */
void loss_spread(const struct rows *rows, const float *g, size_t used, float scale, float *dx);

#endif
