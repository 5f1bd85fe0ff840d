/* The driver's node, shared by its files.
 *
 * driver_open.c sets it up. driver_initial_state.c finds the initial state. driver_handshake.c does
 * the workers' handshakes. driver_start.c begins the run. driver_term.c claims the run for this
 * driver, and driver_recovery.c takes up the counts of returned workers; driver_last_reports.c does
 * so with the files of workers that have ended. driver_first_view.c waits for workers and receives
 * their reasons for leaving. driver_opening.c follows their opening reports. driver_arrivals.c
 * replies to workers while the driver itself still opens. driver.c is the main task. */
#ifndef PL_TRAIN_DRIVER_H
#define PL_TRAIN_DRIVER_H

#include "group/group_server.h"
#include "train/bad_record_log.h"
#include "train/bootstrap.h"
#include "train/chance.h"
#include "train/connectivity.h"
#include "train/display.h"
#include "train/driver_term_file.h"
#include "train/handshake_message.h"
#include "train/holdings.h"
#include "train/lease_server.h"
#include "train/ledger.h"
#include "train/model_writer.h"
#include "train/progress.h"
#include "train/progress_meter.h"
#include "train/recovery_report.h"
#include "train/train.h"
#include "train/triggers.h"
#include "train/worker_report.h"

/* A worker that has connected and is not a member yet. */
struct joiner {
    bool here;
    struct opening_report report; /* the last one; stage 0: none yet */
    int64_t moved, reported_at;   /* when it last progressed, and when that was last logged */
    int64_t left;                 /* when a worker of this number last gave its reason */
};

/* LOST: a worker that had joined. The log line says how it was lost, unless the worker gave its own
 * reason. */
enum joiner_event { JOINER_CONNECTED, JOINER_JOINED, JOINER_LEFT, JOINER_LOST };

/* The claim of this driver on the run directory (driver_term.c). */
struct run_claim {
    struct driver_term term;      /* of this driver */
    struct driver_term last_term; /* of the previous driver; view 0: there was none */
    bool has_lock;                /* it locked the run directory before opening */
    bool claimed;                 /* no other driver has this incarnation */
    bool unwritten;               /* the term file could not be written yet */
    int64_t retry_at;             /* when to try again; both are the server task's */
    double next_look;             /* when to check for a later driver; seconds */
    atomic_bool outranked;        /* a later driver has taken the run over */
};

/* Workers that connect, join and leave: driver_handshake.c, driver_opening.c, driver_arrivals.c,
 * driver_first_view.c. */
struct membership {
    struct hello own;                          /* a worker's hello must agree with it */
    struct buf welcome, welcome_late;          /* the latter for joiners of a run under way */
    struct connectivity_checker *connectivity; /* NULL: addresses are not checked */
    struct task *arrivals; /* the task that receives workers until the driver is ready */
    struct members arrived;
    int64_t opening_reported;
    struct joiner joiner[VIEW_MEMBERS_MAX];
    size_t joiners;                                    /* connected joiners */
    struct worker_location location[VIEW_MEMBERS_MAX]; /* the server task's: machines of workers
                                                          that sent a hello */
    struct hello_machine machine[VIEW_MEMBERS_MAX];    /* likewise */
    struct hello_records *records[VIEW_MEMBERS_MAX];   /* likewise, with local_data: of such a
                                                          worker's hello; NULL: out of memory */
    _Atomic int64_t stirred;   /* before the first view: when a worker last arrived */
    _Atomic uint32_t started;  /* workers requested from the host */
    uint32_t first;            /* the server task's: workers of the first view */
    uint32_t last;             /* workers in the newest view that was not empty */
    uint32_t target;           /* requested number of workers; 0: none requested */
    uint32_t followed;         /* number that follows the batch (driver_follow.c); 0: none yet */
    double followed_at;        /* time of that decision, s */
    struct run_model measured; /* for it, where the job gives no model */
    _Atomic uint32_t missing;  /* lost workers that were not replaced */
    double replacing_since;
    uint32_t replaced;    /* replaced since replacing_since */
    struct members done;  /* workers whose loops have ended */
    struct members ended; /* that were told to end, since their contributions are refused */
    struct departures departures;
    struct err lost; /* the last reason that a worker gave, and its time */
    int64_t lost_at;
};

/* The reports of the returned workers of a recovered run (driver_recovery.c). */
struct recovery {
    struct recovery_report report[VIEW_MEMBERS_MAX]; /* by node */
    struct progress early[VIEW_MEMBERS_MAX]; /* by node: reported before all had reconnected */
    uint64_t join_state[JOIN_STATE_WORDS];   /* of the member that was furthest */
    bool has_join_state;
    uint64_t untaken; /* samples that no worker has taken */
};

/* The state with which the run begins or resumes (driver_initial_state.c). */
struct run_start {
    struct vec both, x, s;       /* x, then s, in one vector; and its two parts */
    struct global_model initial; /* these two vectors */
    struct checkpoint_header
        resumed;               /* the resumed position; progress.exchanges 0: the beginning */
    bool resumes;              /* `resumed` is from a checkpoint or a run of Caffe */
    float *floats;             /* for the workers; NULL: each draws it from the seed */
    struct global_model model; /* vectors in `floats`; x NULL: there are none */
    struct vec state[OPTIM_STATE_MAX], extra[STRATEGY_EXTRAS_MAX];
    struct checkpoint_ranges *ranges; /* of a model in slices, instead of `floats`; owned */
    bool merges; /* files of weights are read whole, and completed by values of the seed */
    struct bootstrap_server server; /* of either */
};

/* Requests of copies of the global model (driver_commits.c; checkpoints: driver.c). */
struct model_requests {
    uint64_t evaluate_every;
    _Atomic uint32_t uses;        /* uses of the driver part's next copy of the model */
    struct progress last_commit;  /* the driver part's previous commit point */
    struct trigger_counts before; /* in asynchronous strategies */
    _Atomic uint64_t sample_offset, steps, exchanges; /* at the last request */
    bool counts_from_here;                            /* to the next checkpoint, from these two */
    double checkpoint_at;                             /* seconds */
    uint64_t checkpoint_exchanges;
    bool awaits_checkpoint; /* a checkpoint's model was requested from worker checkpoint_of */
    _Atomic uint32_t checkpoint_of; /* WORLD_DRIVER: the driver part; WORLD_ANY: none yet */
    uint64_t taken_before;          /* models that the model writer had taken at that request */
    _Atomic uint32_t final_of; /* the worker whose final model was requested; WORLD_ANY: none yet */
    uint32_t left_out;         /* departed models that the model writer had skipped then */
};

/* How far the run is (driver_commits.c, driver_stop.c). */
struct run_counts {
    bool begun;    /* reports are counted from now on */
    bool complete; /* asynchronous workers have taken all samples of the run */
    _Atomic uint64_t sample_offset, steps, exchanges; /* sums over all asynchronous workers */
    uint64_t commits; /* exchanges that were reported, or steps where there are none */
    int64_t commit_at, commit_every; /* time of the newest, and the mean ns between two */
    int64_t first_exchange_at;       /* when the first exchange is expected; 0: unknown */
};

/* Reports to the host and its user: progress, loss, bad records, traces. */
struct run_reports {
    struct progress_meter meter;
    struct display display;
    double next_loss;       /* when a `loss` event is due; seconds */
    uint64_t evaluations;   /* evaluations of the model writer at the last loss event */
    struct chance chance;   /* compares the loss with chance */
    uint64_t chance_offset; /* sample offset up to which it was compared */
    struct bad_record_log bad;
    size_t bad_own, bad_emitted, bad_logged; /* bad records: of the driver; emitted; logged */
    int64_t next_bad_log;
    struct tracer tracer;
    _Atomic int64_t joined_at[VIEW_MEMBERS_MAX]; /* the tracer's: when a joiner was admitted */
};

/* The run has fewer workers than pause_below (driver_pause.c). */
struct run_pause {
    bool on;
    double since; /* seconds */
    double asked; /* when a member was last asked for the checkpoint */
};

/* The end of the run (driver_stop.c, driver_end.c). */
struct run_ending {
    _Atomic(const char *) reason; /* reason for an early end; NULL: none */
    bool over;                    /* the resumed run is already complete */
    bool stop_reported;           /* reported to the caller of the stop how soon the run can stop */
    uint32_t stop_sent;           /* view whose members have received `stop`; 0: none */
    atomic_bool handing_over; /* all loops have ended; the driver part hands the final model to the
                                 model writer */
    atomic_bool counted;      /* and its books of samples are complete (local_data) */
    bool kept;                /* the model writer has taken the final model */
    bool released;            /* workers have received `bye` */
    bool resumable;           /* all workers are lost, and the run can be resumed */
    bool deserted;            /* all workers have left in good order */
    bool unseen;              /* all are lost, and none gave a reason */
};

/* The strategy's part on the driver, in a task of its own (driver_start.c). */
struct run_part {
    struct driver_part driver;
    struct publisher publisher; /* of its models, to the model writer */
    struct task *task;
};

struct run_data {
    const struct corpus *corpus;
    struct workspace *ws;
    struct corpus own_corpus; /* unless the host lends them */
    struct workspace *own_ws;
    size_t epoch_records; /* samples of an epoch of the run */
};

struct driver {
    struct world *world;
    const struct train_host *host;
    const struct train_options *options;
    const Paceline__Job *job;
    const struct strategy_ops *strategy;
    struct strategy_traits traits; /* of the strategy in this job */
    const struct progress_ops *progress;
    struct arena arena;
    struct run_data data;
    struct optim optim; /* for its layout; the driver takes no step */
    struct model_layout layout;
    struct events events;
    struct ledger ledger;
    struct lease_server leases; /* in strategies with leases */
    struct holdings holdings;   /* with local_data */
    struct group group;
    struct server server;
    struct run_claim claim;
    struct membership membership;
    struct recovery recovery;
    struct run_start start;
    struct run_counts counts;
    struct model_requests requests;
    struct model_writer model_writer;
    struct run_part part;
    struct run_reports reports;
    struct run_pause pause;
    struct run_ending ending;
    struct err *err;
};

/* Load job, net, data and, to resume, the newest checkpoint. Start the group and request workers.
 * d->err has the message. */
int driver_open(struct driver *d);

/* Loads the initial state into start_model and `resumed`, and the lease table. */
int driver_find_start(struct driver *d);

/* Does the driver have no model in memory, since it is in slices? It has one to begin with where
 * files of weights give values to some of its tensors alone: driver_check_weights finds out. */
bool driver_reads_ranges(const struct driver *d);

/* Are the states of several workers' streams kept (stream_parts.h)? */
bool driver_keeps_streams(const struct driver *d);
void driver_check_weights(struct driver *d, const struct net *net);

/* Resume from what the last driver's workers left in the run directory, if that is further than
 * `newest`, its newest model or checkpoint (`kept`: there is a checkpoint). ERR_NOT_FOUND: nothing
 * was left, or a line in the log says why it is passed over; ERR_INPUT, ERR_NOMEM */
int driver_resume_from_reports(struct driver *d, const struct checkpoint_header *newest, bool kept);

/* Encodes the welcome; then starts the group, and requests workers. */
int driver_write_welcome(struct driver *d);
int driver_start_group(struct driver *d);

/* Sets the counters to the run's beginning, or to where it resumes. */
void driver_open_counts(struct driver *d);

/* Take the counts of a recovered run from the workers' recovery reports. `view` is this driver's
 * first view. */
void driver_resume_with(struct driver *d, const struct view *view);

/* Wait for the first view, and emit events meanwhile. d->err has the message. */
int driver_form(struct driver *d);

/* While the driver opens its data, reply to arriving workers that it is alive. ERR_NOMEM */
int driver_await_arrivals(struct driver *d);
void driver_end_arrivals(struct driver *d);
/* Sends the welcomes; from now on the server's task receives connections. */
void driver_welcome_arrivals(struct driver *d);
void driver_welcome(struct driver *d, uint32_t node);

/* From the server's task to the main one. */
void driver_report_joiner(struct driver *d, uint32_t node, enum joiner_event news,
                          const char *line);

void driver_set_joiner(struct driver *d, uint32_t node, bool here);

/* A report of a worker that opens its data, or of the server's task about it. */
void driver_on_opening(struct driver *d, const struct message *m);

/* When a worker that opens last made progress; 0: there is none. */
int64_t driver_last_moved(const struct driver *d);

/* Disconnect joiners that made no progress for `patience` ns. */
void driver_check_joiners(struct driver *d, int64_t patience);

/* ns to wait for workers without progress. */
int64_t driver_patience(const struct driver *d);

/* A joiner or former member has given its reason for leaving. */
void driver_take_departure(struct driver *d, uint32_t node, const struct departure *departure);

/* A worker's loop has ended, or it cannot continue. */
int driver_on_done(struct driver *d, const struct message *m);

/* No member is left: end the run with a message. */
int driver_lose_all(struct driver *d);

/* Where the model is in slices: is each slice in the view, as long as the final model is not
 * written? If not, the run ends with a message. ERR_PEER */
int driver_check_slices(struct driver *d, const struct view *view);

/* The number of workers for the batch of the next step (job.follow_batch); 0: the job does not say.
 * A change is an event. */
uint32_t driver_follow_batch(struct driver *d, const struct view *view);

/* Do the strategy's exchanges happen during its steps? */
bool driver_overlaps(const struct driver *d);

/* With pause_below: report when the run pauses and when it continues, and have a checkpoint written
 * in between. ERR_PEER: it has paused too long */
int driver_check_pause(struct driver *d, const struct view *view);

/* The driver part's exchange is repeated in a new view: if the run pauses there, the model is sent
 * to be written. */
void driver_on_part_view(void *driver);

/* Request `n` more workers from the host. Errors as world_want_nodes. */
int driver_request_workers(struct driver *d, uint32_t n);

/* Emit events that have arrived, or that follow one another within `patience` ns. */
void driver_drain_events(struct driver *d, int64_t patience);

/* With local_data: process a new view, and tell its members their shares of the records.
 * ERR_NOMEM */
int driver_check_shares(struct driver *d, const struct view *view);

/* With local_data: take what a worker reports of its records. */
void driver_take_holdings(struct driver *d, uint32_t node, const struct committed *report);

/* An event for each holding, and a log line for those that nobody has. */
void driver_report_holdings(struct driver *d);

/* Wait once, and handle one message or event. */
int driver_turn(struct driver *d);

/* ERR_FENCED: another driver has taken the run over. */
int driver_check_replaced(struct driver *d);

/* The first view exists: start the model writer and the driver part. */
int driver_start(struct driver *d, const struct view *view);

/* Claim the run under an incarnation above all earlier ones, and write the term file. */
void driver_take_over(struct driver *d);
void driver_write_term(struct driver *d);
/* Write the term file again, if that had failed. */
void driver_retry_term(struct driver *d);

/* Has a later driver taken the run over? Looks into the run directory. From any task. */
bool driver_replaced(struct driver *d);

/* The run has ended: record in the term file that no worker will reconnect. */
void driver_leave(struct driver *d);

/* A member has reported an exchange or steps. Report the run's progress to the host. */
void driver_on_committed(struct driver *d, const struct message *m);

/* A server reports a push that did not count; a member has reported an exchange. End workers whose
 * contributions are refused one after another. */
void driver_on_rejected(struct driver *d, const struct message *m);
void driver_check_refused(struct driver *d);

/* The run's progress, to the host. */
void driver_report_progress(struct driver *d);

/* Emit a `loss` event: once a second at most, at every evaluation, and at once if `now`. */
void driver_report_loss(struct driver *d, bool now);

/* Samples of the next step of all workers, where they share a batch out; else 0. */
uint64_t driver_batch(const struct driver *d);

/* Number of trainable parameters. */
uint64_t driver_parameters(const struct driver *d);

/* Request a copy of the model for these uses, from the driver part or from the first worker. */
void driver_request_model(struct driver *d, uint32_t uses);
/* The same, from worker `node`. */
void driver_request_model_of(struct driver *d, uint32_t node, uint32_t uses);

/* Copy the books of samples for the next checkpoint, or for the final one. A run resumed from a
 * checkpoint without the lease table would take every granted sample for used. */
void driver_snapshot_books(struct driver *d, bool final);

/* Updates the departed totals that every heartbeat carries. */
void driver_report_departed(struct driver *d);

/* Request an early end. The first reason is kept. From any task. */
void driver_request_stop(struct driver *d, const char *reason);

/* Updates the sample counts that checkpoints contain. */
void driver_update_model_writer(struct driver *d);

/* A control message to a node; `bytes` may be NULL. ERR_FULL, ERR_PEER, ERR_NOMEM */
int driver_send(struct driver *d, uint32_t node, enum wire_kind kind, const struct buf *bytes);

#endif
