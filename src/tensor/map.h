/* Functions of one element. To them a blob is a row of floats: layouts make no difference. One
 * implementation for all kernel sets.
 *
 * Functions other than arithmetic are libm's in double, whose last bit differs between CPUs: as a
 * float it is the same. */
#ifndef PL_TENSOR_MAP_H
#define PL_TENSOR_MAP_H

#include "tensor/kernels.h"

/* y = f(x), with f one of
 *
 *     POWER  (a·x + b)^c        EXP   e^(a·x + b)      LOG  c · ln(a·x + b)
 *     ABS    |x|                TANH  tanh x           ELU  x where x > 0, else a · (e^x − 1)
 *     CLIP   a where x < a, b where x > b, else x */
enum map_kind { MAP_POWER, MAP_EXP, MAP_LOG, MAP_ABS, MAP_TANH, MAP_ELU, MAP_CLIP };

struct map_spec {
    enum map_kind kind;
    size_t n; /* floats */
    double a, b, c;
};

/* An op of x, y, dy, dx. Backward of EXP, TANH and ELU reads y, that of all but EXP and TANH x: it
 * works in place if it does not need an x that cannot be computed from y. ERR_NOMEM */
int map_plan(const struct map_spec *spec, bool training, struct arena *arena, struct op **op,
             struct err *err);

/* Whether backward of an op that map_plan made reads x. */
bool map_reads_x(const struct op *op);

#endif
