#include "plan/phased_round.h"

#include "plan/jitter.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "base/status.h"
#include "coll/cost_timeline.h"
#include "coll/exchange.h"
#include "plan/round_internal.h"
#include "tensor/vec.h"

#include <math.h>

/* Workers that train for longer between two exchanges of a shard hardly work together: as many
 * steps as diloco takes. */
#define CYCLE_STEPS 100

/* Floats of a piece (coll/split.c). */
static size_t split_piece(const struct round_config *config, size_t n, size_t ranks)
{
    enum { LINK_PIECES = 16, PIECE_MIN = 2048 };
    size_t piece = n / ranks / LINK_PIECES;
    piece = piece > PIECE_MIN ? piece : PIECE_MIN;
    return piece < config->chunk ? piece : config->chunk;
}

/* Lanes wait for a contribution, for two typical steps at most; training waits for nothing. */
static double wait_for_steps(const struct round_cluster *cluster, size_t lanes, double cycle)
{
    double rates = 0;
    for (size_t i = 1; i <= cluster->workers; i++)
        rates += 1 / cluster->step[i];
    return jitter_cycle(cluster, lanes, cycle / (double)lanes,
                        2 * (double)cluster->workers / rates);
}

/* Count the bytes that each node sends and receives for all shards. */
static int count_shards(const struct round_config *config, const struct round_ranks *r,
                        const size_t *n, size_t s, struct round_node *node)
{
    int rc = OK;
    for (size_t rank = 0; rc == OK && rank < r->raw.ranks; rank++)
        for (size_t k = 0; rc == OK && k < config->fragments; k++)
            for (int half = 0; rc == OK && half < 2; half++) {
                struct schedule half_of;
                size_t ranks = r->raw.ranks;
                bool last = k + 1 == config->fragments;
                rc = half
                         ? schedule_split_broadcast(&half_of, !config->symmetric, ranks, rank, n[k])
                         : schedule_split_reduce(&half_of, config->codec, !config->symmetric, ranks,
                                                 rank, n[k]);
                if (rc == OK)
                    rc = round_count_steps(&half_of, config->codec, last ? s : 0,
                                           &node[r->first + rank]);
                schedule_release(&half_of);
            }
    return rc;
}

int phased_round_predict(const struct round_config *config, const struct round_cluster *cluster,
                         const struct round_model *model, struct round_cost *cost,
                         struct round_node *node)
{
    struct round_ranks r;
    size_t n[ROUND_VECTORS_MAX];
    double rates = 0;
    PL_ASSERT(config->fragments > 0 && config->fragments <= ROUND_VECTORS_MAX);
    round_gather(config, cluster, &r);
    for (size_t k = 0; k < config->fragments; k++)
        n[k] = range_shard(model->x, config->fragments, k).len +
               (k + 1 == config->fragments ? model->s : 0);
    const struct cost_pipeline pipeline = {
        .n = n,
        .shards = config->fragments,
        .chunk = split_piece(config, n[0], r.raw.ranks),
        .meta = sizeof(struct exchange_meta) / sizeof(float),
        .at_root = !config->symmetric,
        .phases = config->phases,
    };
    double cycle = cost_pipeline_cycle(&pipeline, &r.coded);
    if (!isfinite(cycle))
        return ERR_NOMEM;
    cycle = wait_for_steps(cluster, config->fragments, cycle);
    size_t vectors = round_exchange_vectors(config);
    for (size_t rank = 0; rank < r.raw.ranks; rank++)
        node[r.first + rank].memory.exchange = vectors * (model->x + model->s) * sizeof(float);
    for (size_t i = 1; i <= cluster->workers; i++) {
        node[i].pace = 1 / cycle;
        node[i].utilisation = 1;
        rates += 1 / cluster->step[i];
    }
    cost->seconds = cycle;
    cost->steps = cycle * rates / (double)cluster->workers;
    cost->carried = min_double(1, CYCLE_STEPS / cost->steps);
    int rc = count_shards(config, &r, n, model->s, node);
    for (size_t rank = 0; rank < r.raw.ranks; rank++)
        node[r.first + rank].memory.messages =
            round_message_bytes(node[r.first + rank].received, false);
    return rc;
}
