/* The likeliest classes of records, kept and printed. */
#ifndef PL_CLI_PREDICT_OUTPUT_H
#define PL_CLI_PREDICT_OUTPUT_H

#include "paceline/data.h"
#include "paceline/predict.h"

struct predictions {
    pl_net_classes classes;
    size_t records, top; /* number of records, and of classes printed for each step of each */
    const pl_data *data; /* the records */
    pl_names *names;     /* of the classes; NULL: those of the data, if `named` */
    bool named;
    uint32_t *at;    /* records x steps x top classes, the likeliest first, */
    float *score;    /* and their scores */
    uint32_t *known; /* records x steps: the classes that the data has for the steps of sequences;
                        NULL: none */
};

/* Make room for p->records, with names for p->classes: from the file `names`, or from a job's data
 * (further outputs of a net have no names), or from the data. `names` and `job` may be NULL.
 * `targets`: the records have the class of each step. A status; or, after a message, an exit code:
 * the file's number of names is not that of the classes; out of memory. */
int predictions_begin(struct predictions *p, pl_engine *engine, size_t top, const pl_data *data,
                      const char *names, const pl_job *job, bool targets);
void predictions_end(struct predictions *p);

/* Take the score of each class for step i of all records' steps, whose number is 1 unless records
 * are sequences. Among equal scores the class with the lower number is first. */
void predictions_take(struct predictions *p, size_t i, const float *score);

/* All of them on stdout: a row a class, or an object a record, or a step of it. */
int predictions_table(const struct predictions *p);
int predictions_json(const struct predictions *p);

#endif
