/* For tests: records read that must be readable, each with memory of its own. */
#ifndef PL_DATA_READING_H
#define PL_DATA_READING_H

#include "data/dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Raw values of record i as floats, (C, H, W), and its label. */
static inline void read_raw(const struct source *source, size_t i, float *x, uint32_t *label)
{
    struct scratch scratch = {0};
    struct raw raw;
    struct err err;
    if (source->ops->read(source, i, &scratch, &raw, &err) != OK)
        fail_msg("%s", err.text);
    raw_floats(&raw, x);
    *label = source->ops->label(source, i);
    scratch_release(&scratch);
}

/* Record i through the dataset's maps, as it is evaluated. */
static inline void read_plain(const struct dataset *set, size_t i, float *x, uint32_t *label,
                              uint64_t *record)
{
    struct scratch scratch = {0};
    struct err err;
    if (dataset_read(set, i, NULL, &scratch, x, label, record, &err) != OK)
        fail_msg("%s", err.text);
    scratch_release(&scratch);
}

#endif
