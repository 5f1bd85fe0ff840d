/* Which layers of a NetParameter take part: Caffe's include and exclude rules against the net's
 * state. The phase is the caller's, whatever the message's state says; level (0 if not set) and
 * stages are those of the message's state. */
#ifndef PL_NN_RULES_H
#define PL_NN_RULES_H

#include "base/err.h"
#include "job/caffe.pb-c.h"
#include "nn/net.h"

/* ERR_INPUT where a layer has rules of both kinds. */
int rules_check(const Caffe__LayerParameter *layer, struct err *err);

/* A layer with include rules takes part if one of them holds, any other unless one of its exclude
 * rules does. `state` may be NULL. */
bool rules_include(const Caffe__LayerParameter *layer, const Caffe__NetState *state,
                   enum phase phase);

#endif
