/* A dataset: a choice of records of a source, seen through maps. Record i of the dataset is a pure
 * function of (source, maps, choice, i), and while training of (seed, epoch), too. */
#ifndef PL_DATA_DATASET_H
#define PL_DATA_DATASET_H

#include "data/maps.h"
#include "data/sampler.h"

struct dataset {
    const struct source *source; /* borrowed */
    struct maps maps;
    struct shape shape; /* of a record through the maps: (C, H, W) */
    uint32_t *choice;   /* record numbers in the source, ascending, owned; NULL: all */
    size_t count;
    size_t streams;          /* data.streams: the order of training; 0: drawn */
    struct bad_records *bad; /* borrowed; NULL: a broken record is an error */
    enum bad_source of;
};

/* All records of the source through the maps of `spec`. ERR_INPUT when the maps do not fit the
 * source; ERR_NOMEM. */
int dataset_init(struct dataset *set, const struct source *source, const Paceline__Data *spec,
                 struct err *err);
void dataset_release(struct dataset *set);

/* The order in which all its records are trained on. */
struct sampler dataset_sampler(const struct dataset *set, uint64_t seed);

/* Hash of the records and of the maps' own data. */
uint64_t dataset_hash(const struct dataset *set);

/* Hash of what the records of two sets must have in common, so that one net takes both: their shape
 * through the maps, the names, shapes and kinds of their fields, and the maps' own data. */
uint64_t dataset_schema(const struct dataset *set);

/* Move `held` records of `set` to `validation`, as near as can be equally many of each class
 * (MPCA §6.2 holds out 500 a class): a pure function of (seed, labels); of streams the last ones.
 * `set` must hold all records. held = 0 leaves `validation` empty. ERR_INPUT when a class has too
 * few records. */
int dataset_split(struct dataset *set, uint32_t held, uint64_t seed, struct dataset *validation,
                  struct err *err);

/* Another set of the same records. ERR_NOMEM */
int dataset_copy(const struct dataset *set, struct dataset *out, struct err *err);

/* Record i mapped, (C, H, W) floats of set->shape, its label, and its number in the source. From
 * any thread, with a scratch of its own. Where set->bad is there, a broken record (ERR_INPUT) is
 * counted in it, and the next readable one of the set stands in, behind the last one the first.
 * Returns the status of source->ops->read, or ERR_NOMEM; ERR_INPUT when too many records are
 * bad. */
int dataset_read(const struct dataset *set, size_t i, const struct dataset_draw *draw,
                 struct scratch *scratch, float *x, uint32_t *label, uint64_t *record,
                 struct err *err);

/* The label and number that dataset_read gives for record i, where no other stands in for it. */
void dataset_label(const struct dataset *set, size_t i, uint32_t *label, uint64_t *record);

/* A hint that record i will be read soon. It does not wait. Any thread */
void dataset_prefetch(const struct dataset *set, size_t i);

#endif
