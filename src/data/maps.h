/* Maps: what becomes of a record on its way to the net. In this order: resize; pad and crop;
 * mirror; (raw - mean) * scale.
 *
 *   resize   the shorter edge to so many pixels, the longer in proportion, rounded down; or both
 *            edges to what is said. Sampled as in data/resize.h.
 *   crop     so many pixels high and wide; while training from anywhere, else from the middle
 *            (where that is half a pixel off, the upper and left of the two)
 *   pad      so many pixels on each side that crops may reach into; raw zeros
 *   mirror   left and right exchanged: while training half of the time, else never
 *   mean     one value, one a channel, or one a pixel of a record before it is cropped, subtracted
 *            from the pixel it belongs to, as in Caffe; what is padded has a mean of 0 then
 *
 * Random choices are a pure function of (seed, epoch, record). */
#ifndef PL_DATA_MAPS_H
#define PL_DATA_MAPS_H

#include "data/resize.h"
#include "data/source.h"

struct maps {
    float scale;
    size_t channels;
    float *mean;           /* one a channel, or one a pixel; owned */
    bool per_pixel;        /* the mean is (C, mean_H, mean_W) */
    size_t mean_H, mean_W; /* of records that are resized */
    uint64_t mean_hash;    /* hash of the mean file; 0: none */
    bool mirror;
    size_t pad, crop, resize, resize_H, resize_W; /* 0: not set */
};

/* While training: which record of which epoch is drawn for. */
struct maps_draw {
    uint64_t seed, epoch, record;
};

/* Does `spec` have maps that change a record? */
bool maps_are_given(const Paceline__Data *spec);

/* The maps of `spec`, which has passed job_check_data, for the records of `source`; `shape` is what
 * they make of each. Looks at the size of every record, where they differ.
 * ERR_INPUT  a mean or crop that does not fit, records that stay of different sizes: naming them
 * ERR_NOMEM */
int maps_init(struct maps *maps, const Paceline__Data *spec, const struct source *source,
              struct shape *shape, struct err *err);
int maps_copy(struct maps *to, const struct maps *from);
void maps_release(struct maps *maps);

/* The part of a record of H x W that maps_apply uses. A JPEG is decoded at 1/2, 1/4 or 1/8 of its
 * size where the resize that follows makes both sides that small or smaller: by sizes alone, so
 * that every machine and every cache has the same pixels. */
void maps_want(const struct maps *maps, size_t H, size_t W, const struct maps_draw *draw,
               struct raw_want *out);

/* Read so much of record i of the source. As source->ops->read */
int maps_read(const struct maps *maps, const struct source *source, size_t i,
              const struct maps_draw *draw, struct scratch *scratch, struct raw *raw,
              struct err *err);

/* x, of the shape that maps_init gave, from a record that maps_read has read. `draw` NULL: plain,
 * as for evaluation. ERR_NOMEM */
int maps_apply(const struct maps *maps, const struct raw *raw, const struct maps_draw *draw,
               struct scratch *scratch, float *x);

#endif
