/* The instruction set that this process uses, of those that loops are compiled for.
 *
 * A file of loops is compiled once for each (cmake/layers.cmake), every time with a table of its
 * own, and the widest that runs is used. The environment's PACELINE_ISA (sse2, avx2, avx512) limits
 * the choice, oneDNN's included, so that one machine can test the code of others. */
#ifndef PL_TENSOR_ISA_H
#define PL_TENSOR_ISA_H

#include "base/err.h"

#include <stdbool.h>

enum isa {
    ISA_PLAIN,  /* the baseline of the architecture: SSE2, NEON */
    ISA_AVX2,   /* and FMA */
    ISA_AVX512, /* F, VL, BW and DQ */
    ISAS,
};

/* The widest that this processor has, its system keeps, and PACELINE_ISA allows. Costs a load. */
enum isa isa_best(void);

/* Does PACELINE_ISA limit the instruction set below the processor's? */
bool isa_is_limited(void);

/* Whether isa_best's processor runs it, within the same limit. */
static inline bool isa_runs(enum isa isa)
{
    return isa <= isa_best();
}

/* "sse2" (or "plain" elsewhere), "avx2", "avx512". */
const char *isa_name(enum isa isa);

/* ERR_USAGE where PACELINE_ISA is none of the names; isa_best does not heed it then. Wider than
 * the processor is no error: there it limits nothing. */
int isa_check(struct err *err);

#endif
