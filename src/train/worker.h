/* A worker's node, shared by its files. worker_open.c does the handshake and receives the initial
 * state; worker.c runs the strategy's loop and ends it. */
#ifndef PL_TRAIN_WORKER_H
#define PL_TRAIN_WORKER_H

#include "train/bootstrap.h"
#include "train/display.h"
#include "train/handshake_message.h"
#include "train/join_donor.h"
#include "train/lease_client.h"
#include "train/model.h"
#include "train/train.h"
#include "train/work_progress.h"
#include "train/worker_report.h"
#include "wire/catalogue.h"

struct worker {
    struct world *world;
    const struct train_host *host;
    struct arena arena;
    Paceline__Job *job;
    Paceline__Job *found; /* the job with this machine's data paths; NULL: those of `job` */
    bool busy_hosts, resumes, late, traces, checks;
    struct hello_records records; /* the driver's */
    struct progress start;        /* where the run resumes, or where this worker joined it */
    bool joined;                  /* it joined a run under way, with this join state of its donor */
    struct join_state admission;
    bool leaving, left; /* it has announced its leave; it has left */
    bool all_leave;     /* all other members leave at the same commit point */
    struct vec extra[STRATEGY_EXTRAS_MAX];
    bool has_extra; /* `extra` holds the strategy's vectors of a checkpoint */
    struct corpus own_corpus;
    struct workspace *own_ws;
    const struct corpus *corpus;
    struct workspace *ws;
    struct learner learner;
    struct group group;
    struct publisher publisher;
    struct bootstrap bootstrap;
    struct task *warming; /* touches the learner's memory while the model is received */
    struct member member;
    const struct strategy_ops *strategy;
    struct strategy_traits traits; /* of the strategy in this job */
    uint64_t evaluate_every;
    struct progress seen;                /* the previous commit point */
    struct lease_client lease_client;    /* asynchronous */
    uint64_t own_exchanges;              /* asynchronous: exchanges in all lanes */
    struct mean_loss mean;               /* alone: mean of the last steps' losses */
    uint64_t unreported, report_samples; /* asynchronous: samples not reported yet; how many make a
                                            report */
    double unreported_loss;              /* Σ over them */
    int64_t lone_reported;               /* alone: time of the last report */
    int64_t opening_reported;            /* time of the last opening report */
    int opening_ended;                   /* status that ends the opening; OK: it continues */
    size_t bad_reported;                 /* of the corpus' bad records, so many are reported */
    enum departure_stage stage;          /* the stage that a departure names */
    uint64_t round_steps;                /* steps since the last commit point */
    double round_loss;                   /* Σ over them */
    struct work_meter meter;             /* for this machine's user */
    struct err err;
};

/* Receive the welcome, open the data and plan the net. w->err has the message. */
int worker_open(struct worker *w);

/* Send the hello and wait for the first view that holds this worker. Then receive the initial
 * state, unless it is drawn from the seed; in a run under way, receive the donor's state. With
 * w->left, wait until it is to leave. ERR_DRIVER, ERR_CANCELLED, or w->err has the message. */
int worker_join(struct worker *w);

/* Is this worker to leave, or to pause? */
bool worker_is_to_leave(const struct worker *w);

/* Report the progress of opening to the driver, at most once a second. false: opening must end,
 * because this worker is to leave or its driver is gone; opening_ended has the status. It is the
 * progress function of an open_watch. */
bool worker_report_opening(void *worker, const char *stage, uint64_t done, uint64_t total);
/* Set w->err for opening_ended, and return that. */
int worker_report_ended(struct worker *w);
/* Send the first report of a stage. OK, or opening_ended */
int worker_begin_stage(struct worker *w, const char *stage);
/* In a simulation: wait for the time that opening takes. OK, opening_ended, ERR_CANCELLED */
int worker_pass_opening(struct worker *w);

/* Where this worker runs, for messages. */
void worker_find_location(const struct worker *w, struct worker_location *out);

/* Number of floats of a model with all optional vectors. */
size_t worker_floats_most(const struct worker *w);

int worker_report(struct worker *w, enum wire_kind kind, const struct buf *bytes);

/* Send a report that a recovered driver gets in another way, too: OK while there is no driver. */
int worker_report_if_connected(struct worker *w, enum wire_kind kind, const struct buf *bytes);

#endif
