/* Code that losses have in common: the divisor of a sum, and the scale of its gradient.
 *
 * Caffe divides the sum over a batch's places by one number d: `normalization`, and where a loss
 * has no such field, the records. Most d are in proportion to the records: the loss is a mean over
 * them, its gradient that of the mean, and workers that share a batch get what one would have. Two
 * are not. With ignored labels VALID divides by what is left in this batch, so that each label of a
 * batch with few of them weighs more: cut among workers it is the mean of the workers' means. NONE
 * divides by 1: cut among K workers, whose gradients are averaged, it is 1/K of the whole sum (as
 * it is with Caffe's own parallel training). */
#ifndef PL_NN_LOSS_H
#define PL_NN_LOSS_H

#include "nn/rows.h"

typedef Caffe__LossParameter__NormalizationMode loss_mode;

/* loss_param's mode: `normalization`, else by the older `normalize` VALID or BATCH_SIZE, else
 * `fallback`. `param` may be NULL. ERR_INPUT where it is none. */
int loss_read_mode(const Caffe__LossParameter *param, loss_mode fallback, loss_mode *out,
                   struct err *err);

/* d, at least 1: of all places FULL, of those not ignored VALID, of Caffe's outer_num_ (that is
 * axes before the one of the classes) BATCH_SIZE, 1 NONE. */
double loss_divisor(loss_mode mode, size_t positions, size_t valid, size_t outer);

/* ERR_INPUT unless both bottoms have records of one size. */
int loss_check_pair(const struct layer *layer, struct err *err);

/* Write scale · g to dx, of the blob that `rows` are of; both are rows. 0 after the first `used`.
 */
void loss_spread(const struct rows *rows, const float *g, size_t used, float scale, float *dx);

#endif
