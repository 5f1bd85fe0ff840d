/* Which code a convolution's direction gets: by rule, or the one that the tuner finds fastest.
 * Private to the dnnl set. */
#ifndef PL_TENSOR_KERNELS_DNNL_CHOOSE_H
#define PL_TENSOR_KERNELS_DNNL_CHOOSE_H

#include "tensor/kernels_dnnl_code.h"

/* The tuner's key of the choice: the direction and all of the shape, the threads, the processor,
 * and the versions of our codes and of the library. */
void conv_key(const struct conv_site *site, char out[TUNER_KEY_MAX + 1]);

/* dnnl_unimplemented as conv_rule. Candidates are timed on a batch that is large enough to show
 * their speed, with arrays of their own, which are freed. *seconds: the time of the chosen one for
 * the whole batch; 0: not timed. */
dnnl_status_t conv_choose(const struct conv_site *site, struct tuner *tuner,
                          struct conv_candidate *out, double *seconds);

#endif
