/* Finds the scores by which a net classifies a record. */
#ifndef PL_MODEL_SCORES_H
#define PL_MODEL_SCORES_H

#include "base/err.h"
#include "job/caffe.pb-c.h"

enum scores_form {
    SCORES_PROBABILITIES, /* as they are */
    SCORES_SOFTMAX,       /* once they have been through a softmax along `axis` */
    SCORES_PLAIN,         /* numbers, of which the highest counts */
    SCORES_VALUES,        /* no scores: predictions of the targets */
};

struct scores {
    const char *blob; /* borrowed of the net */
    enum scores_form form;
    int axis;           /* of the softmax, as in its layer; negative: from the end */
    const char *target; /* of values: the data's top that they predict; borrowed */
};

/* Among the layers of the test phase, the first of these that exists:
 *
 *   a SoftmaxWithLoss     what it reads, through a softmax; of several the one with the largest
 *                         loss_weight, of equals the last
 *   a Softmax             what it makes; of several the last
 *   a HingeLoss, or else  what it reads, as it is
 *   an Accuracy
 *   an EuclideanLoss      that compares a blob with a target, a top of the data behind its first
 *                         that is not called "label": that blob
 *   one blob that no layer reads
 *
 * A loss that model_judge has added does not count.
 *
 * ERR_INPUT: none of these, or it ends in a loss without classes, by name */
int model_scores(const Caffe__NetParameter *net, struct scores *out, struct err *err);

#endif
