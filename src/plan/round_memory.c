#include "coll/probe.h"
#include "plan/round_internal.h"
#include "world/world.h"

size_t round_exchange_vectors(const struct round_config *config)
{
    return config->codec == CODEC_F32 || config->keeps_inputs ? 3 : 5;
}

/* A node keeps the memory of messages for later ones, up to the credit of a peer (real/pool.h). The
 * probe's messages are there at the same time. */
uint64_t round_message_bytes(uint64_t received, bool probed)
{
    uint64_t kept = received < WORLD_CREDIT ? received : WORLD_CREDIT;
    return kept + (probed ? (uint64_t)PROBE_BYTES * (1 + PROBE_MESSAGES) : 0);
}

static uint64_t model_bytes(const struct round_model *model)
{
    return (model->x + model->s) * sizeof(float);
}

/* Vectors of the servers: the model and the optimizer's, and for each worker a vector as long, and
 * with a lossy codec its copy. */
static struct round_memory server_memory(const struct round_config *config,
                                         const struct round_model *model, size_t workers)
{
    uint64_t states = config->server_states * model->x * sizeof(float);
    uint64_t copies = config->codec != CODEC_F32 ? model->x * sizeof(float) : 0;
    return (struct round_memory){.model = model_bytes(model),
                                 .optimizer = states,
                                 .strategy = workers * (model_bytes(model) + states + copies)};
}

/* The first workers may each serve a part of the model. */
struct round_memory round_worker_memory(const struct round_config *config,
                                        const struct round_model *model, size_t workers,
                                        size_t worker)
{
    const struct round_memory served = server_memory(config, model, workers);
    uint64_t all = served.model + served.optimizer + served.strategy;
    return (struct round_memory){
        .model = model_bytes(model),
        .gradient = model->x * sizeof(float),
        .optimizer = config->server_rule ? 0 : model->states * model->x * sizeof(float),
        .strategy = config->kept * model_bytes(model) +
                    (worker < config->servers ? all / config->servers : 0),
        .workspace = model->workspace,
    };
}

/* A driver that takes part in exchanges holds the global model. */
struct round_memory round_driver_memory(const struct round_config *config,
                                        const struct round_model *model, size_t workers)
{
    bool serves = config->strategy == ROUND_EASGD_ASYNC || config->strategy == ROUND_PS ||
                  config->strategy == ROUND_DOWNPOUR;
    if (serves && config->servers == 0)
        return server_memory(config, model, workers);
    return round_has_driver(config)
               ? (struct round_memory){.model = model_bytes(model),
                                       .strategy = config->kept * model_bytes(model)}
               : (struct round_memory){0};
}
