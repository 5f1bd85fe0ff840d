#include "data/datum.h"

#include "base/bytes.h"
#include "data/raw.h"

#include <inttypes.h>
#include <string.h>

enum field { CHANNELS = 1, HEIGHT, WIDTH, DATA, LABEL, FLOAT_DATA, ENCODED, FIELDS };

/* The fields in the order of their arrival. */
struct seen {
    uint64_t number[FIELDS]; /* of those that are numbers */
    uint64_t at, len;        /* data */
    uint64_t floats;         /* how many values of float_data */
};

static enum pb_type type_of(uint32_t field)
{
    return field == DATA ? PB_BYTES : field == FLOAT_DATA ? PB_FIXED32 : PB_VARINT;
}

static int take_field(struct seen *seen, const struct pb_field *f, struct err *err)
{
    if (f->number >= FIELDS)
        return OK;
    if (f->number == FLOAT_DATA && f->type == PB_BYTES && f->value % 4 == 0) {
        seen->floats += f->value / 4; /* packed */
        return OK;
    }
    if (f->type != type_of(f->number))
        return err_set(err, ERR_INPUT, "no Datum: field %" PRIu32 " is of another type", f->number);
    if (f->number == FLOAT_DATA) {
        seen->floats++;
    } else if (f->number == DATA) {
        seen->at = f->at;
        seen->len = f->value;
    } else {
        seen->number[f->number] = f->value;
    }
    return OK;
}

static int check_shape(const struct seen *seen, uint64_t values, const char *kind, struct err *err)
{
    uint64_t C = seen->number[CHANNELS], H = seen->number[HEIGHT], W = seen->number[WIDTH];
    if (C == 0 || H == 0 || W == 0 || C > SIDE_MAX || H > SIDE_MAX || W > SIDE_MAX ||
        C * H * W > RECORD_VALUES_MAX)
        return err_set(err, ERR_INPUT,
                       "Datum of %" PRId64 " x %" PRId64 " x %" PRId64 ", expected 1 to %d each "
                       "and at most %zu values",
                       (int64_t)C, (int64_t)H, (int64_t)W, SIDE_MAX, RECORD_VALUES_MAX);
    if (C * H * W != values)
        return err_set(err, ERR_INPUT,
                       "Datum of %" PRIu64 " x %" PRIu64 " x %" PRIu64 " has %" PRIu64 " %s", C, H,
                       W, values, kind);
    return OK;
}

int datum_read(struct pb *pb, struct datum *out, struct err *err)
{
    struct seen seen = {0};
    struct pb_field f;
    int rc;
    while ((rc = pb_next(pb, &f)) == OK)
        if (take_field(&seen, &f, err) != OK)
            return ERR_INPUT;
    if (rc != ERR_END)
        return err_set(
            err, rc, rc == ERR_IO ? "cannot be read" : "no Datum: wrong at byte %" PRIu64, pb->at);
    if (seen.number[LABEL] >= LABEL_MAX)
        return err_set(err, ERR_INPUT, "label %" PRId64 " is out of range 0 to %u",
                       (int64_t)seen.number[LABEL], LABEL_MAX - 1u);
    struct datum datum = {.label = (uint32_t)seen.number[LABEL], .at = seen.at, .len = seen.len};
    if (seen.number[ENCODED]) {
        datum.form = DATUM_PICTURE;
        *out = datum;
        return OK;
    }
    /* As in Caffe, bytes count where there are both. */
    bool bytes = seen.len > 0;
    rc = check_shape(&seen, bytes ? seen.len : seen.floats, bytes ? "bytes" : "floats", err);
    if (rc != OK)
        return rc;
    datum.form = bytes ? DATUM_BYTES : DATUM_FLOATS;
    datum.C = (size_t)seen.number[CHANNELS];
    datum.H = (size_t)seen.number[HEIGHT];
    datum.W = (size_t)seen.number[WIDTH];
    *out = datum;
    return OK;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void datum_floats(const uint8_t *bytes, size_t len, float *x)
{
    struct pb pb;
    struct pb_field f;
    pb_memory(&pb, bytes, len);
    while (pb_next(&pb, &f) == OK) {
        if (f.number != FLOAT_DATA)
            continue;
        if (f.type == PB_FIXED32)
            *x++ = float_of((uint32_t)f.value);
        for (uint64_t k = 0; f.type == PB_BYTES && k < f.value; k += 4)
            *x++ = float_of(bytes_le32(bytes + f.at + k));
    }
}
