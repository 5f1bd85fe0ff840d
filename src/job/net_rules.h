/* Which layers of a NetParameter take part: Caffe's include and exclude rules against a state. */
#ifndef PL_JOB_NET_RULES_H
#define PL_JOB_NET_RULES_H

#include "base/err.h"
#include "job/caffe.pb-c.h"

#include <stdbool.h>

/* A net in one of its phases: the level, and the stages that any of two messages has. */
struct net_state {
    Caffe__Phase phase;
    int32_t level;
    const Caffe__NetState *given[2]; /* borrowed; NULL: not set */
};

/* ERR_INPUT where a layer has rules of both kinds. */
int net_rules_check(const Caffe__LayerParameter *layer, struct err *err);

/* A layer with include rules takes part if one of them holds, any other unless one of its exclude
 * rules does. */
bool net_rules_include(const Caffe__LayerParameter *layer, const struct net_state *state);

#endif
