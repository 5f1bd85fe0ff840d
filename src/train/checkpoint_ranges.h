/* A checkpoint, or a model alone, that stays on disk and is read range by range: where no node has
 * memory for the whole of it. A range is one of the floats that model_layout describes, as if all
 * of them lay in memory. */
#ifndef PL_TRAIN_CHECKPOINT_RANGES_H
#define PL_TRAIN_CHECKPOINT_RANGES_H

#include "model/safetensors.h"
#include "train/checkpoint.h"

struct checkpoint_ranges;

/* As checkpoint_load and checkpoint_load_model, without reading the vectors. The tables of
 * the layout are borrowed until checkpoint_close. */
int checkpoint_open(const struct rundir *dir, const struct logger *log, struct model_layout *layout,
                    struct checkpoint_ranges **out, struct checkpoint_header *header,
                    struct err *err);
int checkpoint_open_model(const char *path, struct model_layout *layout,
                          struct checkpoint_ranges **out, struct checkpoint_header *header,
                          struct err *err);

/* The same of a file of weights, which has all of x and s. layout->has_state and the
 * like become false.
 * ERR_INPUT: it lacks some, or has another format; ERR_IO, ERR_NOT_FOUND, ERR_NOMEM */
int checkpoint_open_weights(const char *path, struct model_layout *layout,
                            struct checkpoint_ranges **out, struct err *err);

void checkpoint_close(struct checkpoint_ranges *r); /* NULL allowed */

/* Floats [from, from + n) of the layout; padding is 0. ERR_INPUT: the file cannot be read any more
 */
int checkpoint_range(const struct checkpoint_ranges *r, size_t from, size_t n, float *into,
                     struct err *err);

/* The same as a source of a file to be written. */
struct model_source checkpoint_ranges_source(struct checkpoint_ranges *r);

/* Does the file hold the layout's vectors? has_state: the optimizer's, too; has_extra: the
 * strategy's; has_carried: the states of streams. ERR_INPUT (checkpoint_load.c) */
int checkpoint_check_tensors(const struct safetensors *st, const char *path,
                             struct model_layout *layout, struct err *err);

/* Of a file that has been checked, which it takes over, also after an error. ERR_NOMEM */
int checkpoint_ranges_make(struct safetensors_file *file, const struct model_layout *layout,
                           struct checkpoint_ranges **out, struct err *err);

#endif
