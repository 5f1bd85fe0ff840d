#include "tensor/columns.h"

#include <string.h>

void columns_put(const struct columns *c, const float *part, float *whole)
{
    size_t n = c->own.len * c->each, width = c->units * c->each;
    for (size_t r = 0; r < c->rows; r++)
        memcpy(whole + r * width + c->own.from * c->each, part + r * n, n * sizeof *part);
}

void columns_get(const struct columns *c, const float *whole, float *part)
{
    size_t n = c->own.len * c->each, width = c->units * c->each;
    for (size_t r = 0; r < c->rows; r++)
        memcpy(part + r * n, whole + r * width + c->own.from * c->each, n * sizeof *part);
}
