#include "plan/server_script.h"

#include "base/fault.h"

static void add_action(struct script *s, enum action_kind kind, uint64_t steps)
{
    PL_ASSERT(s->count < SCRIPT_ACTIONS_MAX);
    s->at[s->count++] = (struct action){kind, steps};
}

/* Pushes and copies at their steps, from one step with both to the next. */
static void write_downpour(struct script *s, const struct round_config *config)
{
    uint64_t t = 0, push = config->tau, copy = config->fetch;
    do {
        uint64_t next_push = (t / push + 1) * push, next_copy = (t / copy + 1) * copy;
        uint64_t next = next_push < next_copy ? next_push : next_copy;
        add_action(s, COMPUTE, next - t);
        t = next;
        if (t % push == 0) {
            add_action(s, AWAIT_PUSH, 0);
            add_action(s, PUSH, 0);
        }
        if (t % copy == 0)
            add_action(s, COPY, 0);
    } while (t % push != 0 || t % copy != 0);
}

void server_script_write(struct script *s, const struct round_config *config)
{
    s->count = 0;
    switch (config->strategy) {
    case ROUND_EASGD_ASYNC:
        add_action(s, COMPUTE, config->tau);
        add_action(s, AWAIT_PUSH, 0);
        add_action(s, COPY, 0);
        add_action(s, PUSH, 0);
        return;
    case ROUND_PS:
        add_action(s, COMPUTE, 1);
        add_action(s, PUSH, 0);
        add_action(s, AWAIT_OK, 0);
        add_action(s, COPY, 0);
        return;
    default: PL_ASSERT(config->strategy == ROUND_DOWNPOUR); write_downpour(s, config);
    }
}

double server_vector_bytes(const struct round_config *config, size_t x, size_t s)
{
    return (double)codec_bytes(config->codec, x) + (double)(s * sizeof(float));
}

double server_state_bytes(const struct round_config *config, size_t x, size_t s, size_t workers)
{
    return (double)((x * (1 + config->server_states) + s + 2 * workers) * sizeof(float));
}

bool server_copy_is_whole(const struct round_config *config, uint64_t copies, uint64_t uncontained)
{
    bool apart =
        config->server_states > 0 || config->codec != CODEC_F32; /* ps_client.states_apart */
    return !apart || copies == 1 || uncontained + 1 >= config->kept_pushes;
}
