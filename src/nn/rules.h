/* Which layers of a NetParameter take part in a phase (job/net_rules.h), by the net's own state:
 * the phase is the caller's, whatever the message's state is; level (0 if not set) and stages are
 * those of the message. */
#ifndef PL_NN_RULES_H
#define PL_NN_RULES_H

#include "job/net_rules.h"
#include "nn/net.h"

/* `state` may be NULL. */
bool rules_include(const Caffe__LayerParameter *layer, const Caffe__NetState *state,
                   enum phase phase);

#endif
