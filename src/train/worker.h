/* A worker's node, shared by its files. worker_open.c opens the data and plans the net;
 * worker_join.c says hello and receives the initial state; worker.c runs the strategy's loop and
 * ends it. */
#ifndef PL_TRAIN_WORKER_H
#define PL_TRAIN_WORKER_H

#include "train/bootstrap.h"
#include "train/display.h"
#include "train/handshake_message.h"
#include "train/join_donor.h"
#include "train/lease_client.h"
#include "train/model.h"
#include "train/objectives.h"
#include "train/progress.h"
#include "train/train.h"
#include "train/work_progress.h"
#include "train/worker_cache.h"
#include "train/worker_report.h"
#include "train/worker_share.h"
#include "wire/catalogue.h"

/* The announcements of the welcome, and the reports of opening. */
struct worker_opening {
    bool busy_hosts, resumes, late, traces, checks;
    struct hello_records records; /* the driver's */
    int64_t reported;             /* time of the last report */
    int ended;                    /* status that ends the opening; OK: it continues */
};

struct worker_data {
    const struct corpus *corpus;
    struct workspace *ws;
    struct corpus own_corpus;  /* unless the host lends them */
    struct worker_cache cache; /* of its records */
    struct workspace *own_ws;
};

/* A joiner of a run under way, with the join state of its donor. */
struct worker_join {
    bool joined;
    struct join_state state;
};

struct worker_leave {
    bool announced; /* the previous exchange has announced it */
    bool left;
    bool all; /* all other members leave at the same commit point */
};

/* The strategy's vectors of a checkpoint. */
struct worker_extras {
    struct vec at[STRATEGY_EXTRAS_MAX];
    bool here;
};

/* Counts for reports and triggers (progress_sync.c, progress_async.c). */
struct worker_counts {
    uint64_t evaluate_every;
    struct progress seen;                /* the previous commit point */
    uint64_t committed_steps;            /* synchronous: the learner's at the newest commit point */
    uint64_t own_exchanges;              /* asynchronous: exchanges in all lanes */
    uint64_t unreported, report_samples; /* asynchronous: samples not reported yet; how many make a
                                            report */
    double unreported_loss;              /* Σ over them */
    struct mean_loss mean;               /* alone: mean of the last steps' losses */
    int64_t lone_reported;               /* alone: time of the last report */
    uint64_t round_steps;                /* steps since the last commit point */
    double round_loss;                   /* Σ over them */
    size_t bad_reported;                 /* bad records of the corpus that are reported */
};

struct worker {
    struct world *world;
    const struct train_host *host;
    struct arena arena;
    Paceline__Job *job;
    Paceline__Job *found; /* the job with this machine's data paths; NULL: those of `job` */
    const struct strategy_ops *strategy;
    struct strategy_traits traits; /* of the strategy in this job */
    const struct progress_ops *progress;
    struct worker_opening opening;
    struct worker_data data;
    struct learner learner;
    struct task *warming;         /* touches the learner's memory while the model is received */
    struct task *serving;         /* sends a slice's part of the model, behind the loop */
    struct objectives objectives; /* of a slice, which during the loop evaluates with others: */
    struct slice_meeting meeting;
    struct group group;
    struct publisher publisher;
    struct bootstrap bootstrap;
    struct progress start; /* where the run resumes, or where this worker joined it */
    struct worker_join join;
    struct worker_extras extras;
    struct member member;
    struct worker_counts counts;
    struct lease_client lease_client; /* asynchronous */
    struct worker_share share;        /* with local_data */
    struct worker_leave leave;
    enum departure_stage stage; /* the stage that a departure names */
    struct work_meter meter;    /* for this machine's user */
    struct err err;
};

/* Receive the welcome, open the data and plan the net. w->err has the message. */
int worker_open(struct worker *w);

/* Send the hello and wait for the first view that holds this worker. Then receive the initial
 * state, unless it is drawn from the seed; in a run under way, receive the donor's state. With
 * w->left, wait until it is to leave. ERR_DRIVER, ERR_CANCELLED, or w->err has the message. */
int worker_join(struct worker *w);

/* Where the model is in slices: have the slice of this worker's seat in the current view, whatever
 * slice it has opened; the state is then a peer's, or in the first view the initial one. Any other
 * view's seat may be yet another slice's. The errors of worker_open. */
int worker_take_seat(struct worker *w);

/* Wait until the task that touches the learner's memory has ended, if there is one.
 * ERR_CANCELLED */
int worker_end_warming(struct worker *w);

/* Room for the strategy's vectors of a checkpoint, zeroed, from the arena. ERR_NOMEM */
int worker_open_extras(struct worker *w);

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

/* The vectors that a header announces, in the order of a checkpoint; of the whole model, where this
 * worker has a slice of it. */
struct model_layout worker_layout(const struct worker *w, const struct model_header *vectors);

int worker_report(struct worker *w, enum wire_kind kind, const struct buf *bytes);

/* Send a report of training. OK while there is no driver: a recovered one gets the recovery report.
 */
int worker_send_report(struct worker *w, struct committed *report);

/* Does this joiner begin without the model? Its strategy calls group_joined when it has it. */
bool worker_lacks_model(const struct worker *w);

/* Store the recovery report as of this moment: a recovered driver continues from it. */
void worker_record_recovery_report(struct worker *w);

/* The global model as of now, as this worker has it. */
struct global_model worker_model(struct worker *w);

/* If the driver has named a joiner for this donor, send it the state, and wait until it is in. */
int worker_admit_joiner(struct worker *w);

/* A step has ended: show it, let the cache grow, and take a new share of the records. ERR_PROTOCOL,
 * ERR_CANCELLED */
int worker_end_step(struct worker *w);

/* Between two steps: publish the model for the uses that are due. `e`: the exchange that has just
 * completed, or NULL. */
void worker_publish_if_requested(struct worker *w, const struct progress *progress,
                                 const struct exchange *e);

/* Publish the model for these uses. While the previous copy is still being sent, a copy for an
 * evaluation is skipped and any other is sent later. While a joiner's state is being sent, nothing
 * is skipped. */
void worker_publish(struct worker *w, const struct progress *progress, uint32_t use);

/* The states of this worker's streams (worker_streams.c). Before the loop: are they kept? Behind a
 * commit point: those that this worker continues; send them to the driver, if nothing else is on
 * its way there; or, behind the run's last commit point, when that has arrived. ERR_CANCELLED */
void worker_begin_streams(struct worker *w);
struct carried_selection worker_streams(const struct worker *w);
void worker_send_streams(struct worker *w);
int worker_hand_over_streams(struct worker *w);

/* Within a round: send the model for a stop at once, if it is that of the last commit point. */
void worker_publish_urgent(struct worker *w);

/* Keep the lanes in line with new views. A lane with a task of its own is drained by that task. */
int worker_drain_lanes(struct worker *w);

/* Send a report that a recovered driver gets in another way, too: OK while there is no driver. */
int worker_report_if_connected(struct worker *w, enum wire_kind kind, const struct buf *bytes);

#endif
