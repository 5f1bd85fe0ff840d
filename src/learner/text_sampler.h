/* Draws a text from a recurrent net over text: each unit by the net's scores behind the unit
 * before, with the state that the layers carry from one to the next.
 *
 * It has a net of its own, planned for one record of one unit, whose parameters are those of the
 * nets for windows. A unit costs a forward pass over one step of one record, on one thread. Slices
 * of a model draw a text together: each draws all units, by scores that they gather. */
#ifndef PL_LEARNER_TEXT_SAMPLER_H
#define PL_LEARNER_TEXT_SAMPLER_H

#include "data/text_units.h"
#include "learner/workspace.h"

struct text_sampler;

/* `net` as the job has it, in its test phase, with the parameters, the kernels and the slice of the
 * workspace; `units` are taken, also on failure. *out is released by text_sampler_free.
 *
 * ERR_INPUT        the net has no scores, or not one for each unit
 * ERR_UNSUPPORTED  it carries no state, a layer reads backwards, it cannot be planned for one unit,
 *                  or has other parameters then
 * ERR_NOMEM */
int text_sampler_create(const Paceline__Net *net, const struct workspace *ws,
                        struct text_units *units, struct text_sampler **out, struct err *err);
void text_sampler_free(struct text_sampler *sampler);

/* The points of a slice's net for texts have numbers below it, behind those of the workspace's. */
size_t text_sampler_points(const struct text_sampler *sampler);

struct text_request {
    const char *prime;  /* the text that is continued; NULL or "": a line end or, where the
                           vocabulary has none, its first unit */
    uint64_t length;    /* units to draw */
    double temperature; /* 0: the most probable unit, of equal ones the first. Else unit i is drawn
                           with a probability ∝ p_i^(1/temperature); finite */
    uint64_t seed;      /* of stream RNG_TEXT */
};

/* ERR_INPUT: the prime has a unit that is none of the text's. */
int text_sampler_check(const struct text_sampler *sampler, const char *prime, struct err *err);

/* Append the units that are drawn, without the prime, to `text`. The prime has been checked. (x, s)
 * as net_forward takes them. `meeting` of a slice, else NULL.
 * Scores without a softmax are taken as logarithms of probabilities, up to a constant.
 * ERR_DIVERGED  the scores are not finite
 * ERR_NOMEM
 * The errors of `meeting`, which writes its own message. */
int text_sampler_draw(struct text_sampler *sampler, const struct vec *x, struct vec *s,
                      const struct text_request *request, const struct slice_meeting *meeting,
                      struct buf *text, struct err *err);

#endif
