/* The driver's node, as its files share it: driver_open.c sets it up, driver_initial_state.c finds
 * what the run starts from, driver_handshake.c meets the workers, driver_start.c begins the run;
 * driver_term.c knows which driver it is, driver_recovery.c what one that has returned does
 * instead; driver_first_view.c waits for workers and hears why they leave, driver_opening.c how far
 * they are, driver_arrivals.c that it is alive while it is not ready itself; driver.c is its main
 * task. */
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
#include "train/lease_server.h"
#include "train/ledger.h"
#include "train/model_writer.h"
#include "train/progress_meter.h"
#include "train/recovery_report.h"
#include "train/train.h"
#include "train/triggers.h"
#include "train/worker_report.h"

/* A worker that has connected and is no member yet. */
struct joiner {
    bool here;
    struct opening_report report; /* the last; no stage: none yet */
    int64_t moved, reported_at;   /* when it last moved, and was last logged */
    int64_t left;                 /* when one of this number last said why it leaves */
};

/* LOST: one that had joined; the line says how, and is for who has not said why itself. */
enum joiner_event { JOINER_CONNECTED, JOINER_JOINED, JOINER_LEFT, JOINER_LOST };

struct driver {
    struct world *world;
    const struct train_host *host;
    const struct train_options *options;
    const Paceline__Job *job;
    const struct strategy_ops *strategy;
    struct arena arena;
    struct corpus own_corpus;
    struct workspace *own_ws;
    const struct corpus *corpus;
    struct workspace *ws;
    struct events events;
    struct ledger ledger;
    struct lease_server leases; /* in asynchronous strategies */
    struct progress_meter meter;
    struct tracer tracer;
    _Atomic int64_t joined_at[VIEW_MEMBERS_MAX]; /* the tracer's: who came to a run under way */
    struct connectivity_checker *connectivity;   /* NULL: nobody is asked */
    struct group group;
    struct server server;
    struct hello own;                 /* what a worker's hello must agree with */
    struct buf welcome, welcome_late; /* the latter for joiners of a run under way */
    struct optim optim;               /* for its layout; the driver takes no step */
    struct model_layout layout;
    struct vec x, s;                  /* what the run starts from */
    struct global_model initial;      /* these two */
    struct checkpoint_header resumed; /* where; progress.exchanges 0: at the beginning */
    bool resumed_run;                 /* from there: a checkpoint, or a run of Caffe */
    bool over;                        /* and there is nothing left to be done */
    struct driver_term term;          /* this driver's; and what the one before has left: */
    struct driver_term last_term;     /* view 0: nothing */
    bool claimed;                     /* its incarnation is nobody else's */
    bool term_unwritten;              /* the file could not be written, and is to be */
    int64_t term_retry_at;            /* at that time; both of the server's task */
    struct recovery_report recovery[VIEW_MEMBERS_MAX]; /* of workers that have returned: */

    struct progress early; /* as they have reported it before all were back */
    atomic_bool outranked; /* a later driver has taken the run over */
    bool begun;            /* what is reported is counted */
    uint64_t recovery_join_state[JOIN_STATE_WORDS]; /* of the one that was furthest */
    uint64_t untaken;                               /* records that none of them has taken */
    bool recovery_reported;
    float *start_model;        /* for the workers; NULL: they draw it themselves */
    struct global_model start; /* of it; x NULL: there is none */
    struct vec start_state[OPTIM_STATE_MAX], start_extra[STRATEGY_EXTRAS_MAX];
    struct model_writer model_writer;
    struct driver_part driver_part;
    struct publisher to_model_writer;         /* the leader's */
    struct bootstrap_server bootstrap_server; /* of start_model */
    uint64_t evaluate_every;
    _Atomic uint32_t model_uses; /* uses that the leader's next copy of the model is for */
    struct trigger_counts triggers_before; /* in asynchronous strategies */
    struct progress last_commit;           /* the leader's commit point before */
    struct display display;
    struct chance chance;                             /* of the loss; */
    uint64_t chance_offset;                           /* as far as it has been looked at */
    _Atomic uint64_t sample_offset, steps, exchanges; /* of all together; in asynchronous
                                                         strategies */
    _Atomic uint64_t requested_offset, requested_steps,
        requested_exchanges; /* when a model was last asked for */
    double next_checkpoint;  /* seconds */
    bool awaits_checkpoint;  /* a model for one has been asked for, of worker checkpoint_of */
    _Atomic uint32_t checkpoint_of;  /* (WORLD_DRIVER: of the driver's part; WORLD_ANY: nobody yet)
                                        when the model writer had taken */
    uint64_t taken_before;           /* so many */
    double next_look;                /* for a later driver; seconds */
    bool stop_reported;              /* the caller of the stop knows how soon the run can stop */
    uint64_t commits;                /* exchanges that have been reported, or steps where there */
    int64_t commit_at, commit_every; /* are none: when the newest, and how long each takes */
    int64_t first_exchange_at;       /* when that is about to come; 0: unknown */
    bool released;                   /* the run is over for workers */
    struct task *driver_part_task;
    _Atomic(const char *) reason;  /* why it ends before its time; NULL: it does not */
    bool complete;                 /* asynchronous workers have taken all that the run asks for */
    uint32_t stop_sent;            /* to the members of this view; 0: not yet */
    bool kept;                     /* the model writer has taken the final model */
    atomic_bool handing_over;      /* all is exchanged; the leader gives the model writer the final
                                 model */
    uint32_t target_workers;       /* workers there are to be; 0: nobody has said */
    uint32_t first_workers;        /* of the server's task: who belongs to the first view */
    _Atomic int64_t stirred;       /* before the first view: when a worker last came */
    _Atomic uint32_t lost_workers; /* workers that were lost and have not been replaced */
    double replacing_since;
    uint32_t replaced;     /* since then */
    uint32_t last_workers; /* of the newest view that had any */
    double next_loss;      /* when a `loss` event is due; seconds */
    uint64_t evaluations;  /* of the model writer's, when the last was */
    struct members done;
    struct err lost; /* why the last worker left that said so, and when */
    int64_t lost_at;
    struct task *arrivals; /* until the driver is ready: who has come meanwhile */
    struct members arrived;
    bool has_lock; /* of the run directory, since before it opens */
    int64_t opening_reported;
    struct departures departures;
    struct bad_record_log bad;
    size_t bad_own, bad_emitted, bad_logged; /* the driver's that are in it; of all in it */
    int64_t next_bad_log;
    struct joiner joiner[VIEW_MEMBERS_MAX];
    size_t joiners; /* that are here */
    struct worker_location
        worker_location[VIEW_MEMBERS_MAX]; /* of the server's task: who said hello */
    _Atomic uint32_t started;              /* workers that the host has been asked for */
    bool ends_resumable;       /* all are lost, and others are to continue with the run */
    bool deserted;             /* and they have left in good order */
    bool unseen;               /* all are lost, and none said why */
    _Atomic uint32_t model_of; /* for its model, at the end; WORLD_ANY: nobody yet; */
    uint32_t departed_seen;    /* when the model writer had left so many aside */
    struct err *err;
};

/* Load job, net, data and, to continue, the newest checkpoint; start the group and ask for workers.
 * d->err has the message. */
int driver_open(struct driver *d);

/* Loads the initial state into start_model and `resumed`, and the lease table. */
int driver_find_start(struct driver *d);

/* Encodes the welcome; then starts the group, and requests workers. */
int driver_write_welcome(struct driver *d);
int driver_start_group(struct driver *d);

/* Sets the counters to the run's beginning, or to where it resumes. */
void driver_open_counts(struct driver *d);

/* Workers have continued without a driver, and this is the first view of those that are back: it is
 * where they are that the run resumes from. */
void driver_resume_with(struct driver *d, const struct view *view);

/* Wait for the first view, with events going out meanwhile; d->err has the message. */
int driver_form(struct driver *d);

/* While the driver opens: workers that come are told that it is alive. ERR_NOMEM */
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

/* Those without progress for so long lose their places. */
void driver_check_joiners(struct driver *d, int64_t patience);

/* How long to wait for workers while nothing moves. */
int64_t driver_patience(const struct driver *d);

/* A worker that is to be a member, or was one, cannot continue. */
void driver_take_departure(struct driver *d, uint32_t node, const struct departure *departure);

/* A worker's loop has ended, or it cannot continue. */
int driver_on_done(struct driver *d, const struct message *m);

/* No member is left: the end of the run, with its message. */
int driver_lose_all(struct driver *d);

/* Ask the host for `n` workers more. As world_want_nodes */
int driver_request_workers(struct driver *d, uint32_t n);

/* Those that are here, or come within so many ns of one another. */
void driver_drain_events(struct driver *d, int64_t patience);

/* One wait of the main task, and one thing done. */
int driver_turn(struct driver *d);

/* ERR_FENCED: another driver has taken the run up at the same moment, or since. */
int driver_check_replaced(struct driver *d);

/* The first view has formed: start the model writer and the strategy's part. */
int driver_start(struct driver *d, const struct view *view);

/* Outrank all that have been here before; and leave word of this driver. */
void driver_take_over(struct driver *d);
void driver_write_term(struct driver *d);
/* Once more, if that could not be written. */
void driver_retry_term(struct driver *d);

/* Has a later driver taken the run over? Looks into the run directory. From any task. */
bool driver_replaced(struct driver *d);

/* The run has ended here: nobody waits for its workers when it is continued with. */
void driver_leave(struct driver *d);

/* A member has reported what it has done; the host hears how far all are. */
void driver_on_committed(struct driver *d, const struct message *m);
void driver_report_progress(struct driver *d);

/* An event with the training loss, once a second at most; `now`: at once; and where the model is
 * evaluated. */
void driver_report_loss(struct driver *d, bool now);

/* Numbers that are learnt. */
uint64_t driver_parameters(const struct driver *d);

/* A copy of the model, for those uses: from the strategy's part here, or from the first worker. */
void driver_request_model(struct driver *d, uint32_t uses);
/* Where workers have it: from that one. */
void driver_request_model_of(struct driver *d, uint32_t node, uint32_t uses);

/* The book of leases as it stands, for the checkpoint that is asked for, or the final one. One that
 * lacks it would be resumed from as if all that was handed out had been done. */
void driver_snapshot_leases(struct driver *d, bool final);

/* Updates the departed totals that every heartbeat carries. */
void driver_report_departed(struct driver *d);

/* Why the run is to end before its time; the first reason stands. From any task. */
void driver_request_stop(struct driver *d, const char *reason);

/* Updates the sample counts that checkpoints contain. */
void driver_update_model_writer(struct driver *d);

/* A control message to a node; `bytes` may be NULL. ERR_FULL, ERR_PEER, ERR_NOMEM */
int driver_send(struct driver *d, uint32_t node, enum wire_kind kind, const struct buf *bytes);

#endif
