/* A net that only scores (a deploy.prototxt), made fit to be judged. */
#ifndef PL_MODEL_JUDGE_NET_H
#define PL_MODEL_JUDGE_NET_H

#include "base/err.h"
#include "job/caffe.pb-c.h"
#include "nn/net.h"

#include <stdbool.h>

/* The name of the loss that model_judge adds. */
#define JUDGE_LOSS "judged_loss"

/* Add the layers that measure a net in the test phase, if it lacks them. If no layer is a loss or
 * an accuracy, and the only output has a score for each class, these are labels with the data,
 * unless it has them, an Accuracy, and the loss of the net's final Softmax, if there is one. If the
 * scores have a SoftmaxWithLoss alone, it is an Accuracy. `lossless`: the loss of the net is
 * meaningless.
 *
 * ERR_INPUT  there is no input, or several outputs, by name ERR_NOMEM  then `net` is only good
 * to be freed */
int model_judge(Caffe__NetParameter *net, bool *lossless, struct err *err);

/* Does the net have a loss in that phase? */
bool model_has_loss(const Caffe__NetParameter *net, enum phase phase);

#endif
