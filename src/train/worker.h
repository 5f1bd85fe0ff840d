/* A worker's node, as its files share it: worker_open.c meets the driver and brings the worker to
 * where its strategy's loop begins, worker.c runs that and ends it. */
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
    Paceline__Job *found; /* the same with its data where it is here; NULL: as `job` says */
    bool busy_hosts, resumes, late, traces, checks;
    struct hello_records records; /* the driver's */
    struct progress start;        /* where the run resumes from, or this worker came to it */
    bool joined;                  /* it is under way, and this is what its donor said: */
    struct join_state admission;
    bool leaving, left; /* has no share of the records any more; and has gone */
    bool all_leave;     /* so have all others, at the same commit point */
    struct vec extra[STRATEGY_EXTRAS_MAX];
    bool has_extra; /* `extra` holds a checkpoint's */
    struct corpus own_corpus;
    struct workspace *own_ws;
    const struct corpus *corpus;
    struct workspace *ws;
    struct learner learner;
    struct group group;
    struct publisher publisher;
    struct bootstrap bootstrap;
    struct task *warming; /* touches the learner's memory, while its model is on its way */
    struct member member;
    const struct strategy_ops *strategy;
    uint64_t evaluate_every;
    struct progress seen;                /* the commit point before */
    struct lease_client lease_client;    /* asynchronous */
    uint64_t own_exchanges;              /* asynchronous: in all lanes */
    struct mean_loss mean;               /* alone: of the last steps' losses */
    uint64_t unreported, report_samples; /* asynchronous: taken and not told; told when so many */
    double unreported_loss;              /* Σ over them */
    int64_t lone_reported;               /* alone: when, last */
    int64_t opening_reported;            /* when, last */
    int opening_ended;                   /* why opening is not to continue; OK: it is */
    size_t bad_reported;                 /* of the corpus' broken records */
    enum departure_stage stage;          /* that it is in, should it have to leave */
    uint64_t round_steps;                /* taken since the last commit point, */
    double round_loss;                   /* Σ over them */
    struct work_meter meter;             /* for its own user */
    struct err err;
};

/* Be welcomed, open the data, and plan the net. w->err has the message. */
int worker_open(struct worker *w);

/* Say hello, and wait for the first view that holds this worker; then for what it begins with, if
 * it does not draw that, or, in a run under way, for what its donor sends; or, with w->left, until
 * it is to leave. ERR_DRIVER, ERR_CANCELLED, or w->err has the message */
int worker_join(struct worker *w);

/* Is this worker to leave, or to stand aside? */
bool worker_is_to_leave(const struct worker *w);

/* How far opening is, for the driver: sent at most once a second. false: it is not to continue,
 * since this worker is to leave or its driver is gone; opening_ended has the status. An
 * open_watch's progress. */
bool worker_report_opening(void *worker, const char *stage, uint64_t done, uint64_t total);
/* Opening is not to continue: w->err with opening_ended, which is returned. */
int worker_report_ended(struct worker *w);
/* Its first report of a stage. OK, or opening_ended */
int worker_begin_stage(struct worker *w, const char *stage);
/* In a simulation: let the time pass that opening takes. OK, opening_ended, ERR_CANCELLED */
int worker_pass_opening(struct worker *w);

/* Where this worker runs, for messages. */
void worker_find_location(const struct worker *w, struct worker_location *out);

/* Of a model that brings all that it may. */
size_t worker_floats_most(const struct worker *w);

int worker_report(struct worker *w, enum wire_kind kind, const struct buf *bytes);

/* The same for what a driver that returns learns otherwise: OK, too, while there is none. */
int worker_report_if_connected(struct worker *w, enum wire_kind kind, const struct buf *bytes);

#endif
