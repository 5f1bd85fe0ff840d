/* A node's membership: the current view, kept by a task that listens to the driver, and heartbeats
 * sent by another. Lanes and exchanges (coll/exchange.h) stand on it.
 *
 * A member whose driver is gone, or says nothing any more, continues in its view for as long as it
 * may (`retry`): exchanges that need no driver complete, others wait. Its listener calls the driver
 * until one answers whose incarnation is higher than that of any view before, and tells it what
 * this member has; the next view is that driver's. An older driver is never gone back to. */
#ifndef PL_GROUP_GROUP_H
#define PL_GROUP_GROUP_H

#include "base/logger.h"
#include "group/roster.h"
#include "world/world.h"

#include <stdatomic.h>

enum group_signal { SIGNAL_GROUP = 1 }; /* a new view, or the end of the group */

struct group_timing {
    int64_t heartbeat;   /* ns between two */
    int64_t silence_max; /* roster_options */
    int64_t stall_max;
    int64_t piece; /* longest a member waits for the next piece once an exchange flows */
};

/* Hosts of one LAN: 250 ms / 1 s. Hosts that are busy or shared: 1 s / 5 s. */
struct group_timing group_timing_lan(void);
struct group_timing group_timing_busy(void);

enum { GROUP_REPORT = 64, GROUP_TOTALS = 4 }; /* words */

/* The first message of a worker to a recovered driver. */
struct group_return {
    uint32_t view, incarnation; /* which it comes from, */
    struct members members;     /* and who was in it */
    const void *hello;
    size_t hello_len;
    uint64_t report[GROUP_REPORT];
};

/* ERR_PROTOCOL. out->hello points into `data`. */
int group_return_decode(const void *data, size_t len, struct group_return *out);

/* A driver has answered, and this is its welcome: who is it, and what does this worker say to it?
 * OK with its incarnation and a hello; else this worker has no part in its run. */
struct group_handshake {
    int (*handshake)(void *user, const struct message *welcome, uint32_t *incarnation,
                     struct buf *hello);
    void *user;
};

/* When the driver was last heard; pure. */
struct driver_liveness {
    int64_t last_beat, looked;
};

/* Has the driver been silent for too long? Looked at every so often (`period` ns): if much later,
 * this node itself has stood still, and heard nobody. */
bool driver_liveness_expired(struct driver_liveness *liveness, int64_t now, int64_t period,
                             int64_t silence_max);
struct exchange;

struct group {
    struct world *world;
    const struct logger *log;
    struct group_timing timing;
    _Atomic(const struct view *) view;  /* NULL before the first */
    _Atomic(const struct view *) first; /* what all members' progress begin with */
    _Atomic uint64_t progress;          /* steps taken, put into heartbeats */
    _Atomic double local_loss;          /* mean of those since the last commit point; likewise */
    atomic_bool busy;                   /* computing: progress is due */
    atomic_bool stop;                   /* the driver asks to end: vote so in the next exchange */
    _Atomic uint32_t model_requests;    /* a copy of the model, for these uses (the driver asks) */
    _Atomic uint32_t joiner;            /* whom to admit (roster.h); ROSTER_NO_NODE */
    atomic_bool leaving;                /* to take part in nothing more than it has to, and go */
    const atomic_int *leave, *pause;    /* the host sets one of them; or NULL */
    atomic_bool left;                   /* and goes now: the driver's answer is to hang up */
    atomic_bool asked_to_leave;         /* the driver has asked it to leave: it may stand by */
    char refusal[ERR_TEXT_MAX];         /* why, once `refused` is set: */
    atomic_bool refused;                /* the driver has said that it will not have this one */
    atomic_bool run_ended;              /* it is over because the run is, */
    char end_reason[24];                /* for this reason, as the driver says; set before */
    atomic_bool over;                   /* the run is over, or the driver is gone */
    _Atomic uint32_t collectives;       /* under way on this node, of all lanes */
    _Atomic uint64_t moved;             /* bytes that they have sent and received */
    /* A driver that is gone may return: */
    int64_t retry;              /* ns that are waited for it; 0: it is over at once */
    const char *const *drivers; /* where it may return, the address that it had first, and at last
                                   NULL; NULL: only there */
    struct group_handshake handshake;
    atomic_bool driver_missing;  /* there is no driver at the moment */
    atomic_bool given_up;        /* it is over because none has returned in time */
    _Atomic uint32_t reconnects; /* drivers that this member has returned to */
    struct members broken; /* links to others, by what the driver has been told; the listener's */
    _Atomic uint64_t report_version,
        report[GROUP_REPORT];                       /* odd: it is being written; 0: nothing yet */
    _Atomic uint64_t departed_totals[GROUP_TOTALS]; /* as the driver last said */
    struct exchange *lane[ROSTER_LANES_MAX]; /* this node's exchanges, for observers; NULL: not
                                                opened */
    struct task *listener, *heartbeat_task;
    struct view_node *views; /* all views of the run, owned */
};

/* Ready to take views, by group_set_view. */
void group_init(struct group *group, struct world *world, const struct logger *log,
                const struct group_timing *timing);

/* A worker's: start the tasks that listen to the driver and beat. ERR_NOMEM */
int group_listen(struct group *group);

/* End the tasks and free the views. No task may use the group any more. */
void group_release(struct group *group);

/* This member cannot continue, for that reason, and others would wait for it: it leaves, and the
 * group is over for it. Any task may call it, more than once. */
void group_quit(struct group *group, int why);

/* Make `view` current: older views are aborted in the world, tasks are woken. Copies it. */
int group_set_view(struct group *group, const struct view *view);

/* This member stands at a commit point: let the one in that it was asked to admit, and wait until
 * the view that holds it is there. OK with *in false: it has gone, or the driver. ERR_DRIVER,
 * ERR_CANCELLED */
int group_admit_joiner(struct group *group, uint32_t node, bool *in);

/* Stores what this member would send a recovered driver: called by one task, at its commit points;
 * without it the member would start over. `n` ≤ GROUP_REPORT. */
void group_set_recovery_report(struct group *group, const uint64_t *words, size_t n);

/* Is this member to leave? It says so in its next exchange, and goes after the one behind. */
bool group_is_leaving(struct group *group);

/* Say goodbye: the next view does not hold this member, and nobody suspects anything; unless it is
 * the last, and `holds` a model: the driver asks for that, and hangs up when it has it. */
void group_send_leave(struct group *group, bool holds_model);

/* The current view, or NULL. Valid until group_release. */
const struct view *group_view(const struct group *group);

/* The run's first view, or NULL: every member starts from it, however late it looks. */
const struct view *group_first_view(const struct group *group);

/* Wait until there is a view newer than `number`. ERR_TIMEOUT, ERR_CANCELLED, ERR_DRIVER */
int group_wait_view(struct group *group, uint32_t number, int64_t deadline);

#endif
