#include "train/bench_layers.h"

#include "base/fault.h"

#include <stdlib.h>

static double *row_of(const struct bench_layers *b, size_t i)
{
    return b->ms + i * b->steps;
}

static size_t layer_row(size_t layer, bool backward)
{
    return 2 * layer + (backward ? 1 : 0);
}

static size_t phase_row(const struct bench_layers *b, enum bench_phase part)
{
    return 2 * b->layers + (size_t)part;
}

/* Milliseconds since the moment before, which is now. */
static double take_lap(struct bench_layers *b)
{
    int64_t now = world_now(b->world), took = now - b->moment;
    b->moment = now;
    return world_seconds(took) * 1e3;
}

static void put_ms(struct bench_layers *b, size_t i, double ms)
{
    row_of(b, i)[b->step] += ms;
    b->known += ms;
}

/* Time before a pass belongs to no layer. */
static void begin_layer(void *user, size_t layer, bool backward)
{
    struct bench_layers *b = user;
    (void)layer;
    double gap = take_lap(b);
    if (b->passes == (backward ? 1 : 0)) {
        put_ms(b, phase_row(b, backward ? BENCH_CLEARING : BENCH_LOADING), gap);
        b->passes++;
    }
}

static void end_layer(void *user, size_t layer, bool backward)
{
    struct bench_layers *b = user;
    put_ms(b, layer_row(layer, backward), take_lap(b));
}

int bench_layers_init(struct bench_layers *b, struct world *world, const struct net *net,
                      size_t steps, struct arena *arena)
{
    *b = (struct bench_layers){
        .world = world,
        .probe = {begin_layer, end_layer, b},
        .layers = net_layer_count(net),
        .steps = steps,
    };
    b->ms = arena_array(arena, (2 * b->layers + BENCH_PHASES) * steps, double);
    return b->ms ? OK : ERR_NOMEM;
}

void bench_layers_begin(struct bench_layers *b)
{
    PL_ASSERT(b->step < b->steps);
    b->passes = 0;
    b->known = 0;
    b->begun = b->moment = world_now(b->world);
}

void bench_layers_update(struct bench_layers *b)
{
    b->moment = world_now(b->world);
}

void bench_layers_end(struct bench_layers *b)
{
    put_ms(b, phase_row(b, BENCH_UPDATE), take_lap(b));
    double step = world_seconds(b->moment - b->begun) * 1e3;
    put_ms(b, phase_row(b, BENCH_OTHER), step - b->known);
    put_ms(b, phase_row(b, BENCH_WHOLE_STEP), step);
    b->step++;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_ascending(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_doubles);
}

static double median_of(const struct bench_layers *b, size_t i)
{
    bench_ascending(row_of(b, i), b->step);
    return row_of(b, i)[b->step / 2];
}

static double gflops_of(const struct net *net, size_t layer, double ms)
{
    double flops = net_layer_flops(net, layer, false) + net_layer_flops(net, layer, true);
    return ms > 0 ? flops / ms * 1e-6 : 0;
}

int bench_layers_sum(struct bench_layers *b, const struct net *net, struct arena *arena,
                     struct bench_layer **out, double part_ms[BENCH_PHASES])
{
    PL_ASSERT(b->step > 0);
    struct bench_layer *layer = arena_array(arena, b->layers, struct bench_layer);
    if (!layer)
        return ERR_NOMEM;
    for (size_t i = 0; i < b->layers; i++) {
        struct layer_summary summary = net_layer_at(net, i);
        double forward = median_of(b, layer_row(i, false)),
               backward = median_of(b, layer_row(i, true));
        layer[i] = (struct bench_layer){
            .name = arena_strdup(arena, summary.name),
            .type = arena_strdup(arena, summary.type),
            .top = summary.top,
            .forward_ms = forward,
            .backward_ms = backward,
            .gflops = gflops_of(net, i, forward + backward),
            .chosen = arena_strdup(arena, summary.chosen ? summary.chosen : ""),
        };
        if (!layer[i].name || !layer[i].type || !layer[i].chosen)
            return ERR_NOMEM;
    }
    for (size_t part = 0; part < BENCH_PHASES; part++)
        part_ms[part] = median_of(b, phase_row(b, (enum bench_phase)part));
    *out = layer;
    return OK;
}
