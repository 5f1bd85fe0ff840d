/* Restores the net of a caffemodel to the form of the file from which it was made. */
#ifndef PL_MODEL_CAFFE_SNAPSHOT_H
#define PL_MODEL_CAFFE_SNAPSHOT_H

#include "base/err.h"
#include "job/caffe.pb-c.h"

#include <stdbool.h>

/* Caffe writes the net of its training phase as it runs: phase rules are applied, layers have the
 * phase, and a Split is inserted where several layers read one blob. Undo that, in place. `spent`:
 * the rules are applied even if no layer has a phase, as in files of the V1 syntax; nets that still
 * have both phases are not changed. ERR_NOMEM */
int caffe_snapshot_finish(Caffe__NetParameter *net, bool spent, struct err *err);

#endif
