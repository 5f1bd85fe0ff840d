/* A Datum, the record of Caffe's databases (proto/caffe.proto): the shape, then bytes (C, H, W), or
 * floats, or the file of a picture; and a label. Read without trust and without copies. */
#ifndef PL_DATA_DATUM_H
#define PL_DATA_DATUM_H

#include "base/err.h"
#include "data/pb.h"

enum datum_form { DATUM_BYTES, DATUM_FLOATS, DATUM_PICTURE };

struct datum {
    enum datum_form form;
    size_t C, H, W; /* of a picture: 0 */
    uint32_t label;
    uint64_t at, len; /* of its bytes or its picture: where they lie in the input */
};

/* Read to the end of `pb`, which was just set. ERR_INPUT: no Datum, or its shape and values do not
 * fit together; ERR_IO. Messages do not name it. */
int datum_read(struct pb *pb, struct datum *out, struct err *err);

/* The values of a Datum of floats, C·H·W of them, whose bytes have passed datum_read. */
void datum_floats(const uint8_t *bytes, size_t len, float *x);

#endif
