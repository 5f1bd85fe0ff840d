/* A contact sheet: records side by side in cells of a grid, on white, as a PNG. A picture that is
 * larger than its cell is reduced, in proportion; a smaller one is enlarged by the largest whole
 * factor that fits, pixel by pixel. */
#ifndef PL_DATA_SHEET_H
#define PL_DATA_SHEET_H

#include "base/bytes.h"
#include "data/source.h"

#include <stdbool.h>

enum { SHEET_SIDE_MIN = 8, SHEET_SIDE_MAX = 1024, SHEET_PIXELS_MAX = 1 << 26, SHEET_GAP = 2 };

struct sheet {
    size_t count;   /* of records */
    size_t columns; /* of cells; 0: as many as rows, or one more */
    size_t side;    /* of a cell, in pixels; between cells and around them are SHEET_GAP */
    bool coloured;  /* records of three channels, else their first one alone, in grey */
    bool bgr;       /* the first channel is blue, else red */
    /* Record i, until the next call; what it returns, if not OK. Values are 0 to 255, and cut off
     * there, but where `stretched` is set: then the record's least becomes 0 and its most 255. */
    int (*read)(void *user, size_t i, struct raw *raw, bool *stretched, struct err *err);
    void *user;
};

/* The sheet's PNG, appended to `png`. ERR_INPUT: over SHEET_PIXELS_MAX; ERR_NOMEM */
int sheet_png(const struct sheet *sheet, struct buf *png, struct err *err);

#endif
