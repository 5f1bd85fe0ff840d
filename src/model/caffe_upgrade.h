/* Converts nets of older versions of Caffe to the present syntax. */
#ifndef PL_MODEL_CAFFE_UPGRADE_H
#define PL_MODEL_CAFFE_UPGRADE_H

#include "base/err.h"
#include "job/caffe.pb-c.h"

/* Change `net` in place, so that only `layer` is left of `layers` (V1): types are words, blobs_lr,
 * weight_decay, param and blob_share_mode are ParamSpecs, and the fields of data_param or
 * image_data_param about values (scale, mean_file, crop_size, mirror) move to transform_param.
 * Unknown types keep Caffe's name. A net without `layers` is not changed, nor are `input` and
 * `input_dim`, which the graph builder reads.
 *
 * ERR_INPUT        layers of both syntaxes; old enum values in a layer of the new syntax, where
 *                  Caffe ignores them ERR_UNSUPPORTED  a layer of the oldest syntax, V0 ERR_NOMEM
 *                  then
 * `net` is only good to be freed */
int caffe_upgrade(Caffe__NetParameter *net, struct err *err);

/* Caffe's name for a type of the V1 syntax: "Convolution". "" for NONE, NULL where there is none.
 */
const char *caffe_upgrade_type(uint64_t number);

#endif
