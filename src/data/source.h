/* Data is random access (D9): a source is a numbered set of records, each an image (C, H, W) and a
 * label, read by index, from any thread, in any order. */
#ifndef PL_DATA_SOURCE_H
#define PL_DATA_SOURCE_H

#include "base/err.h"
#include "job/job.pb-c.h"
#include "tensor/shape.h"

#include <stdint.h>

struct source {
    const struct source_ops *ops;
    size_t count;       /* records, > 0 */
    struct shape shape; /* of a record: (C, H, W) */
    uint32_t classes;   /* labels are below it */
    uint64_t hash;      /* of all raw bytes: identity of the data, compared between nodes */
};

struct source_ops {
    const char *kind;
    /* Raw values of record i, widened to float, and its label. i < count. Cannot fail: a source
     * checks its bytes when it is opened. Called from several threads at once. */
    void (*read)(const struct source *source, size_t i, float *x, uint32_t *label);
    uint32_t (*label)(const struct source *source, size_t i);
    void (*close)(struct source *source);
};

/* Open what `spec` names; paths in it are absolute or relative to the working directory.
 * ERR_INPUT   missing, truncated, oversized, not that format; labels and images that do not fit
 * ERR_NOMEM */
int source_open(const Paceline__Data *spec, struct source **out, struct err *err);
void source_close(struct source *source);

#endif
