/* Parts that the files of rounds share. Private to plan. */
#ifndef PL_PLAN_ROUND_INTERNAL_H
#define PL_PLAN_ROUND_INTERNAL_H

#include "plan/round.h"

enum { ROUND_RANKS_MAX = VIEW_MEMBERS_MAX + 1, ROUND_VECTORS_MAX = 64 };

/* The ranks of the round's exchanges, and their links without and with the codec. */
struct round_ranks {
    size_t first; /* node of rank 0: the driver, or the first worker */
    struct cost_links raw, coded;
    double rate[2 * ROUND_RANKS_MAX];
};

void round_gather(const struct round_config *config, const struct round_cluster *cluster,
                  struct round_ranks *r);

/* Add the bytes that a rank sends and receives by this schedule; the last `exact` floats travel as
 * they are. ERR_NOMEM */
int round_count_steps(struct schedule *s, enum codec codec, size_t exact, struct round_node *node);

/* Vectors that an exchange keeps: its input, two results, and two residuals of a lossy codec. */
size_t round_exchange_vectors(const struct round_config *config);

/* Does the driver take part in the exchanges? */
static inline bool round_has_driver(const struct round_config *config)
{
    return config->strategy == ROUND_SYNC || config->strategy == ROUND_EASGD ||
           (config->strategy == ROUND_PHASED && !config->symmetric);
}

/* Memory of messages, of a node that receives so many bytes in a round; `probed`: it measures the
 * links first. */
uint64_t round_message_bytes(uint64_t received, bool probed);

/* Memory of a worker and of the driver, but for exchanges that all take part in. */
struct round_memory round_worker_memory(const struct round_config *config,
                                        const struct round_model *model, size_t workers,
                                        size_t worker);
struct round_memory round_driver_memory(const struct round_config *config,
                                        const struct round_model *model, size_t workers);

#endif
