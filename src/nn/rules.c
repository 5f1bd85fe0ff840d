#include "nn/rules.h"

bool rules_include(const Caffe__LayerParameter *layer, const Caffe__NetState *state,
                   enum phase phase)
{
    const struct net_state in = {
        .phase = phase == PHASE_TEST ? CAFFE__PHASE__TEST : CAFFE__PHASE__TRAIN,
        .level = state ? state->level : 0,
        .given = {state},
    };
    return net_rules_include(layer, &in);
}
