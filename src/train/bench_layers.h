/* Measures where the time of a training step goes: reads the clock when layers begin and end, and
 * between them. */
#ifndef PL_TRAIN_BENCH_LAYERS_H
#define PL_TRAIN_BENCH_LAYERS_H

#include "base/arena.h"
#include "nn/profile.h"
#include "nn/summary.h"
#include "world/world.h"

/* Medians over the steps. */
struct bench_layer {
    const char *name, *type; /* the arena's, as is `chosen` */
    struct shape top;
    double forward_ms, backward_ms;
    double gflops;      /* of its products, forward and backward; 0 where it has none */
    const char *chosen; /* the code of each direction (summary.h); "": there was no choice */
};

/* The phases of a step outside of its layers: waiting for records, zeroing dx, the optimizer's
 * update, and the rest, which is mostly the clock itself; and the whole step. */
enum bench_phase {
    BENCH_LOADING,
    BENCH_CLEARING,
    BENCH_UPDATE,
    BENCH_OTHER,
    BENCH_WHOLE_STEP,
    BENCH_PHASES
};

struct bench_layers {
    struct world *world;
    struct net_probe probe;
    size_t layers, steps, step; /* steps there is room for; the one under way */
    int passes;                 /* passes that have begun */
    double *ms;                 /* [forward, then backward, of each layer; then parts][step] */
    double known;               /* milliseconds that are assigned to rows */
    int64_t begun, moment;      /* start of the step; start of the present layer or gap */
};

/* Allocate for so many steps of the net. ERR_NOMEM */
int bench_layers_init(struct bench_layers *b, struct world *world, const struct net *net,
                      size_t steps, struct arena *arena);

/* Around each step, which is one batch: its gradient between `begin` and `update`, then its update.
 */
void bench_layers_begin(struct bench_layers *b);
void bench_layers_update(struct bench_layers *b);
void bench_layers_end(struct bench_layers *b);

/* The medians of those steps that have ended, at least one: a row for each layer of the net, from
 * `arena`, and the parts, in milliseconds. ERR_NOMEM */
int bench_layers_sum(struct bench_layers *b, const struct net *net, struct arena *arena,
                     struct bench_layer **out, double part_ms[BENCH_PHASES]);

/* Sort in place, ascending. */
void bench_ascending(double *values, size_t n);

#endif
