#include "nn/rules.h"

#include <string.h>

int rules_check(const Caffe__LayerParameter *layer, struct err *err)
{
    if (layer->n_include > 0 && layer->n_exclude > 0)
        return err_set(err, ERR_INPUT, "include and exclude cannot both be given");
    return OK;
}

static bool has_stage(const Caffe__NetState *state, const char *stage)
{
    for (size_t i = 0; i < state->n_stage; i++)
        if (strcmp(state->stage[i], stage) == 0)
            return true;
    return false;
}

/* A rule holds when all that it says does. */
static bool holds(const Caffe__NetStateRule *rule, const Caffe__NetState *state, enum phase phase)
{
    if (rule->has_phase && (rule->phase == CAFFE__PHASE__TEST) != (phase == PHASE_TEST))
        return false;
    if ((rule->has_min_level && state->level < rule->min_level) ||
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

bool rules_include(const Caffe__LayerParameter *layer, const Caffe__NetState *state,
                   enum phase phase)
{
    static const Caffe__NetState plain = CAFFE__NET_STATE__INIT;
    state = state ? state : &plain;
    for (size_t i = 0; i < layer->n_exclude; i++)
        if (holds(layer->exclude[i], state, phase))
            return false;
    for (size_t i = 0; i < layer->n_include; i++)
        if (holds(layer->include[i], state, phase))
            return true;
    return layer->n_include == 0;
}
