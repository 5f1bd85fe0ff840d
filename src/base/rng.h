/* Random numbers as a pure function of (seed, stream, counter): Philox 4x32-10 (Salmon et al.,
 * "Parallel random numbers: as easy as 1, 2, 3", 2011). No state, so any element of any stream can
 * be drawn anywhere, by anyone, in any order, with the same result. */
#ifndef PL_BASE_RNG_H
#define PL_BASE_RNG_H

#include <stdint.h>

/* Streams of one seed that must not overlap. A user of more numbers splits with rng_u64. */
enum rng_stream {
    RNG_INIT = 1, /* initial weights; counter = (parameter index, element) */
    RNG_ORDER,    /* order of records */
    RNG_SPLIT,    /* choice of validation records */
    RNG_DROPOUT,  /* dropout masks, keyed by record */
    RNG_MAP,      /* data augmentation */
    RNG_SIM,      /* the simulator's jitter and loss */
    RNG_NODE,     /* world_random */
    RNG_BENCH,    /* records that are made up to measure with */
    RNG_SAMPLE,   /* records of a sample */
    RNG_TEXT,     /* units of a text that a net draws */
};

/* The four 32-bit words of block `counter` of the stream. */
void rng_block(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]);

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t counter);

/* Uniform in [0, n), n > 0, without bias beyond 2^-64. */
uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t n);

/* Uniform in [0, 1), a multiple of 2^-24, so exact as a float. */
float rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter);

/* Standard normal by Box and Muller, computed in double and rounded to float (D8). */
float rng_normal(uint64_t seed, uint64_t stream, uint64_t counter);

#endif
