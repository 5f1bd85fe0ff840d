#include "data/raw.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void raw_floats(const struct raw *raw, float *x)
{
    size_t C = raw->C, HW = raw->H * raw->W;
    const uint8_t *bytes = raw->at;
    if (raw->form == RAW_FLOATS) {
        memcpy(x, raw->at, C * HW * sizeof *x);
    } else if (raw->form == RAW_PLANES) {
        for (size_t k = 0; k < C * HW; k++)
            x[k] = (float)bytes[k];
    } else {
        for (size_t c = 0; c < C; c++)
            for (size_t k = 0; k < HW; k++)
                x[c * HW + k] = (float)bytes[k * C + c];
    }
}

void *scratch_get(struct scratch *scratch, enum scratch_use use, size_t bytes)
{
    if (scratch->piece[use].bytes < bytes) {
        size_t room = bytes + bytes / 2; /* records vary: do not grow at each that is larger */
        free(scratch->piece[use].at);
        scratch->piece[use].at = malloc(room);
        scratch->piece[use].bytes = scratch->piece[use].at ? room : 0;
    }
    return scratch->piece[use].at;
}

void scratch_release(struct scratch *scratch)
{
    for (int use = 0; use < SCRATCH_USES; use++)
        free(scratch->piece[use].at);
    *scratch = (struct scratch){0};
}
