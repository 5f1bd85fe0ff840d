/* Rules that take the mean of the workers' models into a model, element by element: of a whole
 * vector or of any part of one. Each writes the vectors that are not const, which are equally
 * long. */
#ifndef PL_STRATEGY_MEAN_RULES_H
#define PL_STRATEGY_MEAN_RULES_H

#include "job/job.h"
#include "tensor/vec.h"

/* The outer step of `diloco` (Douillard et al. 2023; diloco.c). x is the mean, and becomes x̃; v is
 * the momentum; delta is the previous x̃, and becomes Δ. */
void diloco_step(const Paceline__DiLoCo *config, struct vec *x, struct vec *v, struct vec *delta);

/* `easgd` with mode: sync (MPCA §3.2; easgd.c): Eq. 2 of a worker's x, if it is not NULL, with the
 * previous centre x̃, and Eq. 8 of the centre. Of the workers of the view so many have a model in
 * the mean. */
struct easgd_round {
    size_t workers, contributors;
};

float easgd_alpha(const Paceline__Easgd *config, size_t workers);
void easgd_step(const Paceline__Easgd *config, const struct easgd_round *round, struct vec *x,
                struct vec *centre, const struct vec *mean);

#endif
