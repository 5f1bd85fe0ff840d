/* Predictions of a net for records: the probability of each class. */
#ifndef PACELINE_PREDICT_H
#define PACELINE_PREDICT_H

#include "paceline/data.h"
#include "paceline/net.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The job that a run leaves in its directory, from the path of its job.prototxt. Paths in it count
 * from where the run was started, not from that directory. As pl_job_load */
int pl_job_load_run(pl_engine *engine, const char *path, pl_job **out);

/* The number of processes to share a run's model out to (pl_net_options.team): as many as the job's
 * `slices`, if the file of weights is a model for which this process has no room, by the limits of
 * the machine, the process and the job's memory_budget; else 1. PL_ERR_INPUT */
int pl_job_slices_for(const pl_job *job, const char *weights, uint32_t *slices);

/* Channels, height and width of the records that a net is for: those that it states, or those of a
 * job's test (else training) data, which may be opened for it, or what a net of the zoo was
 * published for. `job` may be NULL. PL_ERR_NOT_FOUND: none of these states it; and the errors of
 * opening the data */
int pl_net_spec_record(const pl_net_spec *spec, const pl_job *job, uint32_t shape[3]);

/* Build a net whose specification leaves the shape of records open, without data. PL_ERR_USAGE: it
 * is built for records of another size; and as pl_net_create */
int pl_net_form(pl_net *net, uint32_t channels, uint32_t height, uint32_t width);

/* The same for records of these data, with their fields. Where the training table of `job` (or
 * NULL) has targets, records need not have them. */
int pl_net_form_data(pl_net *net, const pl_job *job, pl_data *data);

/* How a net scores the classes, in its test phase; or how many values it predicts. */
typedef struct pl_net_classes {
    char blob[128]; /* where the scores are */
    size_t count;   /* of classes, or of values */
    size_t steps;   /* of a record, a sequence that is scored at each of its steps; else 1 */
    bool
        probabilities; /* there is a softmax; else scores are numbers of which the highest counts */
    bool values;       /* the numbers are no scores: they predict */
    char target[64];   /* the field of records with this name */
} pl_net_classes;

/* If a net has a SoftmaxWithLoss, its scores are the softmax of that layer's input; of several such
 * layers, that with the largest loss_weight counts, among equals the last. Otherwise the scores are
 * the output of its Softmax, the input of its HingeLoss or Accuracy, or its only output. Before the
 * last, an EuclideanLoss that compares a blob with a target of the data has that blob's values. A
 * softmax along axis 2 of records x steps x classes is one for each step of a sequence.
 * PL_ERR_INPUT        none of these, or it ends in a loss without classes
 * PL_ERR_UNSUPPORTED  else several scores a class, as of a net that scores each position of a
 *                     picture
 * PL_ERR_USAGE        the net has no form yet */
int pl_net_classes_of(pl_net *net, pl_net_classes *out);

/* The scores of `count` records that are given here, as with pl_net_forward (after
 * pl_net_form_data as pl_data_read returns them): the classes' for each record, or for each step of
 * it, in `out`, which has room for `room` floats. A sequence begins with a state of 0.
 * PL_ERR_INPUT: a value that is not finite; PL_ERR_USAGE: too little room; and as pl_net_classes_of
 */
int pl_net_predict(pl_net *net, const float *records, size_t count, float *out, size_t room);

/* pl_data_read for pl_net_predict. Of a net in slices all members make the call with the same
 * records: each of them reads a part, and all get all. The errors of pl_data_read, for which the
 * data's engine has the message; PL_ERR_PEER: a slice of the net is lost */
int pl_net_read(pl_net *net, pl_data *data, size_t first, size_t count, float *out, size_t room);

/* Where in each record of the data, as pl_data_read returns it, a field lies. PL_ERR_NOT_FOUND: the
 * records have no such field; PL_ERR_INPUT: maps that do not fit */
int pl_data_field(pl_data *data, const char *name, size_t *from, size_t *count);

/* The name of the column that is target k of the table, according to the data, or else of the
 * job's training table (NULL: no job); NULL: unknown. Valid as long as both are open. */
const char *pl_data_target(const pl_data *data, const pl_job *job, size_t k);

#ifdef __cplusplus
}
#endif
#endif
