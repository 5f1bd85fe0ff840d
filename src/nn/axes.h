/* How layers read Caffe's axes. Axis 0 has the records of a batch. Their number is the job's, so a
 * layer that would mix records, or weight one of them, is refused by name. */
#ifndef PL_NN_AXES_H
#define PL_NN_AXES_H

#include "nn/layer.h"

/* Caffe's `axis` of the first bottom, the records' apart. ERR_INPUT where there is none such,
 * ERR_UNSUPPORTED where it is that of the records. */
int axes_in_record(const struct layer *layer, const char *field, int32_t axis, size_t *at,
                   struct err *err);

/* Of a field `axis` and the unsigned one before it, `old`, of which one may be set: as above. */
struct axes_either {
    const char *axis_field, *old_field;
    int32_t axis;
    uint32_t old;
    bool has_axis, has_old;
};
int axes_in_record_either(const struct layer *layer, const struct axes_either *field, size_t *at,
                          struct err *err);

/* Layout of a top of that shape that follows none of its bottoms'. */
enum layout axes_layout(const struct setup *setup, const struct shape *shape);

/* Elements of the blob that hold the first `records` records; one without their axis is of all of
 * them. */
size_t axes_live(const struct blob *blob, size_t records);

/* Zero the part of `at`, an array of the blob's size, after `records` records. */
void axes_clear_rest(const struct blob *blob, size_t records, void *at);

#endif
