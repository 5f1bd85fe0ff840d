/* A net that only scores (a deploy.prototxt), made fit to be judged. */
#ifndef PL_MODEL_JUDGE_NET_H
#define PL_MODEL_JUDGE_NET_H

#include "base/err.h"
#include "job/caffe.pb-c.h"
#include "nn/net.h"

#include <stdbool.h>

/* The loss that model_judge adds goes by this name. */
#define JUDGE_LOSS "judged_loss"

/* Give a net that lacks them what it is judged by in the test phase. Where no layer is a loss or an
 * accuracy, and one blob comes out, with a score for each class: labels with the data, unless they
 * are there, an Accuracy, and the loss of the Softmax that the net ends in, if it does. Where the
 * scores have a SoftmaxWithLoss: an Accuracy. `lossless`: the loss of the net says nothing.
 *
 * ERR_INPUT  no data enter, or several blobs come out, by name ERR_NOMEM  then `net` is only good
 * to be freed */
int model_judge(Caffe__NetParameter *net, bool *lossless, struct err *err);

/* Does the net have a loss in that phase? */
bool model_has_loss(const Caffe__NetParameter *net, enum phase phase);

#endif
