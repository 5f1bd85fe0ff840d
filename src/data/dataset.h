/* A dataset: a choice of records of a source, seen through maps. Record i of the dataset is a pure
 * function of (source, maps, choice, i). */
#ifndef PL_DATA_DATASET_H
#define PL_DATA_DATASET_H

#include "data/source.h"

struct dataset {
    const struct source *source; /* borrowed */
    float scale;
    float *mean;      /* one a channel, owned */
    uint32_t *choice; /* record numbers in the source, ascending, owned; NULL: all */
    size_t count;
};

/* All records of the source through the maps of `spec`. ERR_INPUT when the maps do not fit the
 * source; ERR_NOMEM. */
int dataset_init(struct dataset *set, const struct source *source, const Paceline__Data *spec,
                 struct err *err);
void dataset_release(struct dataset *set);

/* Move `held` records of `set` to `validation`, as near as can be equally many of each class
 * (MPCA §6.2 holds out 500 a class): a pure function of (seed, labels). `set` must hold all
 * records. held = 0 leaves `validation` empty. ERR_INPUT when a class has too few records. */
int dataset_split(struct dataset *set, uint32_t held, uint64_t seed, struct dataset *validation,
                  struct err *err);

/* Record i mapped, (C, H, W) floats, its label, and its number in the source. */
void dataset_read(const struct dataset *set, size_t i, float *x, uint32_t *label, uint64_t *record);

#endif
