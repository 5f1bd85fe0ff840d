/* Restores the net of a caffemodel to the form of the file from which it was made. */
#ifndef PL_MODEL_CAFFE_SNAPSHOT_H
#define PL_MODEL_CAFFE_SNAPSHOT_H

#include "base/err.h"
#include "job/caffe.pb-c.h"

#include <stdbool.h>

/* Caffe writes the net of its training phase as it runs: rules of phases have done their work,
 * layers have the phase, and where several read one blob a Split stands between. Take all that
 * back, in place. `spent`: the rules have done their work even where no layer has a phase, as in
 * files of the V1 syntax; nets that still have both phases stay as they are. ERR_NOMEM */
int caffe_snapshot_finish(Caffe__NetParameter *net, bool spent, struct err *err);

#endif
