/* Fields of a message in protobuf's wire form, one after another, from memory or from a part of a
 * file of which no more is read than the fields' heads. For messages whose bulk is to be passed
 * over, or checked before memory is taken for it; memory is constant. */
#ifndef PL_DATA_PB_H
#define PL_DATA_PB_H

#include "base/status.h"
#include "data/part.h"

enum { PB_WINDOW = 4096 };

enum pb_type { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

struct pb {
    uint64_t at, end;    /* where it stands; where input ends */
    const uint8_t *have; /* bytes [from, from + count) of the input */
    uint64_t from, count;
    const struct part_of *part; /* NULL: all is in memory */
    uint8_t window[PB_WINDOW];
};

struct pb_field {
    uint32_t number;
    enum pb_type type;
    uint64_t value; /* of a number: its bits; of bytes: how many */
    uint64_t at;    /* of bytes: where they begin */
};

void pb_memory(struct pb *pb, const void *bytes, size_t len);
void pb_part(struct pb *pb, const struct part_of *part);

/* The next field, and past it. ERR_END: there is none; ERR_INPUT: no message of protobuf's, which
 * broke off or went wrong at pb->at; ERR_IO */
int pb_next(struct pb *pb, struct pb_field *field);

/* The next number of a packed field in memory. ERR_INPUT */
int pb_varint(struct pb *pb, uint64_t *out);

#endif
