#include "data/pb.h"

#include "base/bytes.h"

enum { HEAD_MAX = 20 }; /* bytes of a tag and a number */

void pb_memory(struct pb *pb, const void *bytes, size_t len)
{
    pb->at = pb->from = 0;
    pb->end = pb->count = len;
    pb->have = bytes;
    pb->part = NULL;
}

void pb_part(struct pb *pb, const struct part_of *part)
{
    pb->at = pb->from = pb->count = 0;
    pb->end = part->len;
    pb->have = pb->window;
    pb->part = part;
}

/* Have the field's head at hand, or what there is of it. */
static int read_head(struct pb *pb)
{
    uint64_t want = pb->end - pb->at < HEAD_MAX ? pb->end - pb->at : HEAD_MAX;
    if (!pb->part || (pb->at >= pb->from && pb->at + want <= pb->from + pb->count))
        return OK;
    pb->from = pb->at;
    pb->count = part_left(pb->part, pb->at, sizeof pb->window);
    int rc = part_read(pb->part, pb->at, pb->window, (size_t)pb->count);
    if (rc != OK)
        pb->count = 0;
    return rc;
}

int pb_varint(struct pb *pb, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (pb->at == pb->end)
            return ERR_INPUT;
        uint8_t byte = pb->have[pb->at++ - pb->from];
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return OK;
        }
    }
    return ERR_INPUT;
}

static int read_fixed(struct pb *pb, size_t n, uint64_t *out)
{
    if (pb->end - pb->at < n)
        return ERR_INPUT;
    const uint8_t *at = pb->have + (pb->at - pb->from);
    *out = n == 4 ? bytes_le32(at) : bytes_le64(at);
    pb->at += n;
    return OK;
}

int pb_next(struct pb *pb, struct pb_field *field)
{
    if (pb->at == pb->end)
        return ERR_END;
    uint64_t tag;
    int rc = read_head(pb);
    if (rc == OK)
        rc = pb_varint(pb, &tag);
    if (rc != OK)
        return rc;
    if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return ERR_INPUT;
    field->number = (uint32_t)(tag >> 3);
    field->type = (enum pb_type)(tag & 7);
    switch (field->type) {
    case PB_VARINT: return pb_varint(pb, &field->value);
    case PB_FIXED64: return read_fixed(pb, 8, &field->value);
    case PB_FIXED32: return read_fixed(pb, 4, &field->value);
    case PB_BYTES:
        rc = pb_varint(pb, &field->value);
        if (rc == OK && field->value > pb->end - pb->at)
            rc = ERR_INPUT;
        field->at = pb->at;
        if (rc == OK)
            pb->at += field->value;
        return rc;
    default: return ERR_INPUT; /* groups are of the past */
    }
}
