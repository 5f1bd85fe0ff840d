/* The units of a recurrent layer in one step of one record: from the sums at their gates to their
 * output, and back (recurrence.h). gate_loops.c compiles for each instruction set; the reference
 * set has loops of its own in double precision. */
#ifndef PL_TENSOR_GATE_LOOPS_H
#define PL_TENSOR_GATE_LOOPS_H

#include "tensor/isa_loops.h"

#include <stddef.h>

/* H units have G·H gates, gate by gate. A pointer that the kind does not use may be NULL. */
struct gate_row {
    size_t H;
    size_t next;         /* rows of the next record are so many rows further; 0: there is none */
    float cont;          /* factor of the state before */
    const float *sums;   /* forward: the input's products; may be `gates` */
    float *gates;        /* the gates; backward: then the gradient by the input's products */
    float *z;            /* forward: the state's products; backward: the gradient by them, where
                            an LSTM's may be NULL, for it is the one in `gates` */
    const float *extra;  /* forward: added to `sums`; NULL: 0 */
    const float *before; /* LSTM: the cells before; GRU: cont · the outputs before */
    float *inner;        /* GRU: the state's products at gate n, which backward reads; of a GRU
                            whose reset gate is first, backward: the gradient by them */
    float *reset;        /* of that GRU: r h'; finish: the gradient by it */
    float *c;            /* LSTM: the cells */
    float *h;            /* forward: the outputs; backward of tanh units reads them */
    const float *dy;     /* backward: added to `dh`; NULL: 0 */
    float *dh; /* backward: the gradient by h; then, of the outputs before, the part that does not
                  go through z */
    float *dc; /* LSTM, backward: the gradient by c; then that by the cells before */
};

typedef void gate_fn(const struct gate_row *row);

/* Of each kind of units, forward and backward. */
struct gate_loops {
    gate_fn *tanh_forward, *tanh_backward, *lstm_forward, *lstm_backward, *gru_forward,
        *gru_backward;
    /* Of a GRU whose reset gate is first: gates r and z, then n and h; back from h to n and z, then
     * to r. */
    gate_fn *reset_gates, *reset_forward, *reset_backward, *reset_finish;
};

ISA_DECLARE(struct gate_loops, gate_loops);

#endif
