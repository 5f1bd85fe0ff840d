#include "job/net_rules.h"

#include <string.h>

int net_rules_check(const Caffe__LayerParameter *layer, struct err *err)
{
    if (layer->n_include > 0 && layer->n_exclude > 0)
        return err_set(err, ERR_INPUT, "include and exclude cannot both be given");
    return OK;
}

static bool has_stage(const struct net_state *state, const char *stage)
{
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; state->given[i] && k < state->given[i]->n_stage; k++)
            if (strcmp(state->given[i]->stage[k], stage) == 0)
                return true;
    return false;
}

/* A rule holds when all its conditions hold. */
static bool rule_holds(const Caffe__NetStateRule *rule, const struct net_state *state)
{
    if ((rule->has_phase && rule->phase != state->phase) ||
        (rule->has_min_level && state->level < rule->min_level) ||
        (rule->has_max_level && state->level > rule->max_level))
        return false;
    for (size_t i = 0; i < rule->n_stage; i++)
        if (!has_stage(state, rule->stage[i]))
            return false;
    for (size_t i = 0; i < rule->n_not_stage; i++)
        if (has_stage(state, rule->not_stage[i]))
            return false;
    return true;
}

bool net_rules_include(const Caffe__LayerParameter *layer, const struct net_state *state)
{
    for (size_t i = 0; i < layer->n_exclude; i++)
        if (rule_holds(layer->exclude[i], state))
            return false;
    for (size_t i = 0; i < layer->n_include; i++)
        if (rule_holds(layer->include[i], state))
            return true;
    return layer->n_include == 0;
}
