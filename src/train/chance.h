/* Does a net learn anything? One that guesses among C classes has a loss of ln C: a loss that stays
 * within 1 % of that and does not fall is worth a warning, once, and so is one that is ten times as
 * high. Nets that learn may stand at chance for an epoch before they begin to. */
#ifndef PL_TRAIN_CHANCE_H
#define PL_TRAIN_CHANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum chance_news {
    CHANCE_NOTHING,
    CHANCE_STUCK, /* at ln C for eight stretches */
    CHANCE_HIGH,  /* above ten times ln C for twenty steps */
};

struct chance {
    double guess;             /* ln C; 0: nothing is watched */
    uint64_t step;            /* records of one */
    uint64_t window, records; /* of a stretch; of the one under way */
    double sum, before;       /* of losses over it; the mean loss of the one before, 0: none */
    unsigned stuck;           /* stretches in a row that were at chance, and fell nowhere */
    bool left;                /* the loss has left chance, or that was reported: no further check */
    uint64_t high;            /* records in a row with a loss far above chance; UINT64_MAX:
                                 reported */
};

/* A stretch is a quarter of the training set, of 100 to 1,000 steps of `step` records. `classes` 0:
 * nothing is watched. */
void chance_init(struct chance *c, size_t classes, uint64_t set, uint64_t step);

/* Add `records` records with this mean loss. Each kind of news is returned once. */
enum chance_news chance_add(struct chance *c, uint64_t records, double loss);

/* The run ends. CHANCE_STUCK: it has never been elsewhere, for half a stretch at least;
 * CHANCE_HIGH: that is where it is. */
enum chance_news chance_end(const struct chance *c);

#endif
