/* A batch: records side by side, ready for a net. Filling one is a pure function of its arguments,
 * so that it can be done ahead, on another thread, with the same result. */
#ifndef PL_DATA_BATCH_H
#define PL_DATA_BATCH_H

#include "base/arena.h"
#include "data/dataset.h"
#include "data/sampler.h"

#include <stddef.h>
#include <stdint.h>

struct batch {
    float *data;            /* cap x (C, H, W) */
    uint32_t *labels;       /* cap */
    uint64_t *records;      /* cap; numbers in the source */
    size_t count, cap;      /* filled, and room for */
    size_t record_floats;   /* C*H*W */
    uint64_t epoch;         /* of the first record */
    struct scratch scratch; /* memory for reading; not the arena's */
};

/* Room for `cap` (> 0) records of `record_floats` (> 0) floats, valid as long as `arena`.
 * ERR_NOMEM; `batch` is then unchanged. */
int batch_init(struct batch *batch, struct arena *arena, size_t cap, size_t record_floats);

/* Free what is not the arena's: the memory that reading from files took. */
void batch_release(struct batch *batch);

/* Fill with the places start .. start+count-1 of an endless stream of epochs: place p of the stream
 * is place p mod n of epoch p / n, so a batch may straddle two epochs or more. They are to be
 * trained on: crops and mirroring are drawn, by the sampler's seed and each record's own epoch.
 * count <= cap, and the sampler is over the dataset's records. Returns the status of dataset_read;
 * after an error the batch must not be used. */
int batch_fill(struct batch *batch, const struct dataset *set, const struct sampler *sampler,
               uint64_t start, size_t count, struct err *err);

/* The same in parts, from any threads at once: begin, then fill each of the places [first, first +
 * count) of the batch once. Each thread has a scratch of its own. */
void batch_begin(struct batch *batch, const struct dataset *set, const struct sampler *sampler,
                 uint64_t start, size_t count);
int batch_fill_part(struct batch *batch, const struct dataset *set, const struct sampler *sampler,
                    uint64_t start, size_t first, size_t count, struct scratch *scratch,
                    struct err *err);

/* A hint that these places will be filled soon: their files are read ahead. It does not wait. */
void batch_prefetch(const struct dataset *set, const struct sampler *sampler, uint64_t start,
                    size_t count);

/* Fill with the records first .. first+count-1 in the dataset's own order, for evaluation: nothing
 * is drawn. count <= cap, first + count <= set->count. As above. */
int batch_fill_plain(struct batch *batch, const struct dataset *set, size_t first, size_t count,
                     struct err *err);

/* The same, but of the batch's places only those in `own` are read; others have their labels. Not
 * of a set where others stand in for bad records, or that grows. */
int batch_fill_own(struct batch *batch, const struct dataset *set, size_t first, size_t count,
                   struct range own, struct err *err);
bool batch_may_fill_own(const struct dataset *set);

#endif
