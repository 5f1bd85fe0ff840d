/* Predictions of a net for regression: a number for each target of a record. */
#ifndef PL_CLI_PREDICT_VALUES_H
#define PL_CLI_PREDICT_VALUES_H

#include "paceline/predict.h"

struct predict_values {
    pl_net *net;
    pl_data *data;
    const pl_job *job; /* of a run; or NULL */
    pl_net_classes classes;
    size_t records, batch;
    bool json;
};

/* Predict the first p->records records, and print a row a target, or an object a record, on stdout;
 * where the data has the targets, also these, and at the end the mean squared error of each. A
 * status; or, after a message, an exit code. */
int predict_values(const struct predict_values *p);

#endif
