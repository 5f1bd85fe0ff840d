/* Does a net learn anything? One that guesses among C classes has a loss of ln C; a loss that stays
 * within 1 % of that over two stretches of training is worth a warning, once. */
#ifndef PL_TRAIN_CHANCE_H
#define PL_TRAIN_CHANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chance {
    double guess;             /* ln C; 0: nothing is watched (any more) */
    uint64_t window, records; /* of a stretch; of the one under way */
    double sum;               /* of losses over it */
    unsigned stuck;           /* stretches in a row that were at chance */
};

/* A stretch is a quarter of the training set, and a hundred steps of `step` records at least.
 * `classes` 0: nothing is watched. */
void chance_init(struct chance *c, size_t classes, uint64_t set, uint64_t step);

/* `records` more, with that mean loss. true, once: the second stretch has ended at chance. */
bool chance_add(struct chance *c, uint64_t records, double loss);

/* The run ends. true: it has never been elsewhere, for half a stretch at least. */
bool chance_end(const struct chance *c);

#endif
