/* A node's membership. One task receives the driver's messages and keeps the current view; another
 * sends heartbeats. Lanes and exchanges (coll/exchange.h) build on it.
 *
 * A member that loses its driver, or receives nothing from it, continues in its view for `retry`:
 * exchanges that need no driver complete, others wait. Its listener calls the driver's addresses
 * until a driver replies whose incarnation is higher than that of any earlier view, and sends it
 * the recovery report. The next view is that driver's. A member never returns to an older driver.
 * */
#ifndef PL_GROUP_GROUP_H
#define PL_GROUP_GROUP_H

#include "base/logger.h"
#include "group/roster.h"
#include "wire/wire_rules.h"
#include "world/world.h"

#include <stdatomic.h>

enum group_signal { SIGNAL_GROUP = 1 }; /* a new view, or the end of the group */

struct group_timing {
    int64_t heartbeat;   /* ns between two heartbeats */
    int64_t silence_max; /* this and the next: as in roster_options */
    int64_t stall_max;
    int64_t piece; /* ns that a member waits for the next piece of an exchange under way */
};

/* Hosts of one LAN: 250 ms / 1 s. Hosts that are busy or shared: 1 s / 5 s. */
struct group_timing group_timing_lan(void);
struct group_timing group_timing_busy(void);

/* The first message of a worker to a recovered driver. */
struct group_return {
    uint32_t view, incarnation; /* of the worker's view */
    struct members members;     /* of that view, without its leaves; */
    struct members elders;      /* and its elders */
    /* By node, where a model is in slices: 1 more than its seat there, if it has the state of that
     * slice; else 0. */
    uint32_t seated[VIEW_MEMBERS_MAX];
    const void *hello;
    size_t hello_len;
    uint64_t report[GROUP_REPORT];
    int64_t round; /* ns in which the worker calls all of the driver's addresses once */
};

/* ERR_PROTOCOL. out->hello points into `data`. */
int group_return_decode(const void *data, size_t len, struct group_return *out);

/* Reads the welcome of a driver that has replied. OK: *incarnation is the driver's, and `hello` is
 * the worker's reply to it. An error: this worker has no part in that driver's run. */
struct group_handshake {
    int (*handshake)(void *user, const struct message *welcome, uint32_t *incarnation,
                     struct buf *hello);
    void *user;
};

/* When the last beat of the driver arrived, and when it was last checked. No clock of its own. */
struct driver_liveness {
    int64_t last_beat, looked;
};

/* Has the driver been silent for longer than `silence_max`? Called every `period` ns. A call that
 * comes more than a period late means that this node itself did not run; that time does not count.
 * */
bool driver_liveness_expired(struct driver_liveness *liveness, int64_t now, int64_t period,
                             int64_t silence_max);
/* This member's work, which its heartbeats carry; two fields of it as these bits. */
enum { BEAT_BUSY = 1, BEAT_PAUSED = 2 };

struct group_work {
    _Atomic uint64_t progress; /* steps taken */
    _Atomic double loss;       /* mean since the last commit point */
    atomic_bool busy;          /* it computes, so progress is expected */
    atomic_bool paused;        /* it waits between two steps, where it can be a donor at any time */
};

/* Values of the host's flag. LEAVE_FOR_GOOD: a driver that is lost does not return. */
enum { LEAVE_RUN = 1, LEAVE_FOR_GOOD = 2 };

/* This member's leave. */
struct group_leave {
    const atomic_int *flag, *pause; /* the host sets one of them; or NULL */
    atomic_bool begun;              /* it leaves after its next exchange */
    atomic_bool done;               /* it has left: the driver will close the connection */
    atomic_bool by_driver;          /* the driver asked: it may become a standby worker */
};

/* The end of the group on this node. */
struct group_end {
    char refusal[ERR_TEXT_MAX]; /* the driver's reason, valid once `refused` is set */
    atomic_bool refused;        /* the driver has refused this worker */
    char reason[24];            /* why the run has ended; set before run_ended */
    atomic_bool run_ended;      /* the driver has ended the run */
    atomic_bool given_up;       /* no driver has replied within `retry` */
    atomic_bool over;           /* the run has ended, or the driver is lost for good */
};

/* The member's driver, and its recovery. */
struct group_driver {
    int64_t retry; /* ns for which a member calls a lost driver; 0: it ends at once */
    const char *const *addresses; /* to call, the first one first, ending with NULL; NULL: only the
                                     address that it had */
    struct group_handshake handshake;
    atomic_bool missing;             /* there is no driver at the moment */
    _Atomic uint32_t reconnects;     /* times that this member has returned to a driver */
    _Atomic uint64_t report_version, /* odd: the report is being written; 0: there is none */
        report[GROUP_REPORT];
    _Atomic uint64_t departed_totals[GROUP_TOTALS]; /* from the driver's last beat */
    _Atomic uint32_t joined_in; /* the newest view in which this joiner has got all of its state */
};

/* The link from the member from which collectives receive last, since the last report to the
 * driver: bytes, and ns in which they arrived. */
struct group_link {
    _Atomic uint32_t from;
    _Atomic uint64_t bytes, ns;
    int64_t since; /* the listener's */
};

struct exchange;
struct ps_server;
struct ps_client;
struct vec;

/* Sees the exchanges and parameter servers of a node, in tests; in simulation, between two events.
 * They are valid until the node's state ends. A function that is NULL is not called. */
struct group_observer {
    void (*opened)(void *user, uint32_t node, const struct exchange *e);
    void *user;
    /* The server has carried out an order; or, recovered, it continues behind one. */
    void (*served)(void *user, const struct ps_server *server, bool recovered);
    /* A worker's client has begun a push, or fetched a state. */
    void (*pushed)(void *user, uint32_t node, const struct ps_client *client);
    /* A worker is about to contribute this vector to an exchange, or to push it. The observer may
     * change it, as a broken machine would. */
    void (*contributes)(void *user, uint32_t node, struct vec *contribution);
};

struct group {
    struct world *world;
    struct wire_guard guard;               /* of its messages, from group_init on */
    const struct group_observer *observer; /* NULL: none */
    const struct logger *log;
    struct group_timing timing;
    _Atomic(const struct view *) view;  /* NULL before the first */
    _Atomic(const struct view *) first; /* the run's first view */
    struct view_node *views;            /* all views of the run, owned */
    struct group_work work;
    struct group_leave leave;
    struct group_end end;
    struct group_driver driver;
    atomic_bool stop;                /* vote in the next exchange to end the run */
    _Atomic uint32_t model_requests; /* uses for which the driver requests the model */
    _Atomic uint32_t joiner;         /* this node is its donor (roster.h); ROSTER_NO_NODE */
    struct members broken;           /* links that it has reported as broken; the listener's */
    _Atomic uint32_t collectives;    /* under way on this node, in all lanes */
    _Atomic uint64_t moved;          /* bytes that they have sent and received */
    struct group_link link;
    struct task *listener, *heartbeat_task;
};

/* Prepare a group without a view; group_set_view sets one. */
void group_init(struct group *group, struct world *world, const struct logger *log,
                const struct group_timing *timing);

/* On a worker: start the listener and the heartbeat task. ERR_NOMEM */
int group_listen(struct group *group);

/* End the tasks and free the views. No task may use the group any more. */
void group_release(struct group *group);

/* End the group on this node for the status `why`, and drop the driver, so that the others do not
 * wait for this member. Any task may call it, more than once. */
void group_quit(struct group *group, int why);

/* Make a copy of `view` current: abort what is under way in older views, and wake all tasks. A view
 * that is not newer is ignored. ERR_NOMEM */
int group_set_view(struct group *group, const struct view *view);

/* Called by a donor at a commit point: report that it is ready for the joiner `node`, and wait
 * until a view holds that. OK with *in false: the joiner or the driver is gone. ERR_DRIVER,
 * ERR_CANCELLED */
int group_admit_joiner(struct group *group, uint32_t node, bool *in);

/* Store the recovery report that this member would send a recovered driver. One task calls it, at
 * its commit points; without a report the member would have to rejoin. `n` ≤ GROUP_REPORT. */
void group_set_recovery_report(struct group *group, const uint64_t *words, size_t n);

/* Is this member to leave? Its next exchange carries the fact, and it leaves after that one. */
bool group_is_leaving(struct group *group);

/* Announce the leave: the next view does not hold this member, and its leases return as sound. If
 * it is the last member and holds the model, the driver requests that first and then disconnects.
 * */
void group_send_leave(struct group *group, bool holds_model);

/* The current view, or NULL. Valid until group_release. */
const struct view *group_view(const struct group *group);

/* The run's first view, or NULL. */
const struct view *group_first_view(const struct group *group);

/* Has `node` been in any view of the run? */
bool group_was_member(const struct group *group, uint32_t node);

/* The seat of a node in the newest view that this node has of it; VIEW_NO_SEAT: it had none. */
uint32_t group_seat(const struct group *group, uint32_t node);

/* Is this node a leaf in the current view; has it been one in any view after number `after`? */
bool group_is_leaf(const struct group *group);
bool group_was_leaf(const struct group *group, uint32_t after);

/* Ask the driver to check the links of the members: one whose listener does not reply within
 * `grace` ns, or whose link is much slower than those of others, becomes a leaf. Members that
 * exchange in a ring or in chains call this. A leaf calls group_keeps_pace when its link has been
 * fast enough for a while. Both return OK without a driver; ERR_NOMEM */
int group_check_links(struct group *group, int64_t grace);
int group_keeps_pace(struct group *group);

/* This joiner of the view lacks nothing any more. OK without a driver; ERR_NOMEM */
int group_joined(struct group *group, const struct view *view);

/* Account for `bytes` that took `ns` to arrive from `node`. */
void group_link_received(struct group *group, uint32_t node, size_t bytes, int64_t ns);

/* Wait until `holds` returns true; other tasks raise `signal` or SIGNAL_GROUP after they have
 * changed what it reads. ERR_DRIVER (the group is over), ERR_TIMEOUT, ERR_CANCELLED */
int group_wait(struct group *group, uint32_t signal, bool (*holds)(void *arg), void *arg,
               int64_t deadline);

/* Wait until there is a view newer than `number`. ERR_TIMEOUT, ERR_CANCELLED, ERR_DRIVER */
int group_wait_view(struct group *group, uint32_t number, int64_t deadline);

#endif
