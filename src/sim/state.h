/* The simulated cluster's state, shared by the files of this folder and by nobody else.
 *
 *   sim.c     the clock, the loop, creation and end       node.c   nodes and peers come and go
 *   sim_task.c    tasks and the one place where they wait     mail.c   messages, receives, credit
 *   sim_net.c     flows through links                         send.c   sends posted
 *   script.c  the delays and faults of the cluster file   work.c   tasks share a node's cores
 *   delivery_hold.c    nodes that stand still, ways that are cut
 *
 * Nodes are kept by slot: workers by their number, then the driver. Whatever may happen in more
 * than one order happens in the order of slots or of a list's making, never of addresses. */
#ifndef PL_SIM_STATE_H
#define PL_SIM_STATE_H

#include "base/arena.h"
#include "sim/coroutine.h"
#include "sim/heap.h"
#include "sim/sim.h"

struct node;
struct route;
struct lane;

/* A message on its way to one node, and then in its mailbox. */
struct pending_message {
    struct event arrival;
    struct pending_message *next;
    struct message *m; /* a reference */
    struct send *send; /* posted and pending: the bytes are still in the caller's range; or NULL */
    struct lane *lane; /* the lane that it used, which gets its credit back when it is taken */
    int64_t first_byte, extra;
    bool
        charged; /* it has taken credit: a message when it was sent, a posted send when it begins */
    bool begun;  /* it flows, or has flowed */
};

struct message_queue {
    struct pending_message *head, **end;
};

/* One direction of a node's link to the network, and the flows that share it now, oldest first. */
struct link {
    double speed; /* bytes a nanosecond */
    struct lane *flows, *flows_last;
    bool dirty; /* flows were added or removed since the rates were computed */
    struct link *next;
    bool found;       /* scratch of settling: */
    double left;      /* capacity not assigned yet */
    uint32_t waiting; /* flows without a rate yet */
};

enum { HOP_UP, HOP_DOWN, HOPS };

/* The messages of one class from one node to another; the first one flows. */
struct lane {
    struct route *route;
    enum world_class class;
    size_t outstanding;                 /* bytes charged and not taken by the receiver */
    size_t begun;                       /* those of them that wait for nothing but the receiver */
    struct message_queue queue, flight; /* not sent completely; sent and not arrived */
    int64_t last_arrival;
    /* The flow: */
    bool flowing;
    double left, rate; /* bytes, bytes a nanosecond since `since` */
    int64_t since;
    struct event sent;
    struct {
        struct link *link;
        struct lane *prev, *next;
    } hop[HOPS];
    struct lane *next; /* scratch of settling: */
    double share;
    bool found, settled;
};

struct route {
    struct node *from, *to;
    struct lane lane[CLASS_COUNT];
    bool closing; /* the sender has ended: peer down follows the last message */
    struct event close;
};

struct task {
    struct node *node;
    const char *name;
    uint64_t number; /* in its node */
    task_fn fn;
    void *arg;
    int result;
    bool cancelled, ended, parked;
    struct coroutine *co;
    struct event resume;
    struct task *prev, *next; /* of the node */
    /* A wait, and where it stands among the waits of the node: */
    bool waiting;
    const struct wait_for *set;
    int n;
    unsigned kinds; /* of its events, a bit each */
    int64_t deadline;
    struct task *wait_prev, *wait_next;
    /* Work, until the node has served each of its workers `work_end` nanoseconds. */
    bool working;
    double work_end;
    struct task *work_next;
};

enum node_state { NODE_ABSENT, NODE_RUNNING, NODE_ENDED };

enum peer_state { PEER_KNOWN, PEER_UP, PEER_DOWN };

struct node {
    struct world world; /* first: a world is its node */
    struct sim *sim;
    uint32_t slot;
    enum node_state state;
    bool broken;      /* killed before it started: it never will */
    bool joins_later; /* at a time of the script */
    bool connected;   /* other nodes know it */
    bool killed;      /* the driver; it may be started again */
    struct event start, up, gone;
    struct event dial; /* a worker's: its driver may be there again */

    struct task *main, *tasks, *waits, *waits_last;
    uint64_t spawned;
    uint64_t raised[WORLD_SIGNALS];

    struct message_queue mailbox;
    struct recv *posted;   /* in the order of posting */
    uint32_t oldest_view;  /* older views were aborted */
    struct route **routes; /* to each slot; NULL: not used yet */
    uint64_t sent;
    struct link link[HOPS];

    uint8_t *peer; /* peer_state of each slot */
    struct {
        uint32_t slot;
        bool up;
    } * changes; /* not reported yet: from `out` to `in` */
    size_t changes_in, changes_out, changes_room;

    int64_t clock_ahead;  /* of virtual time */
    int64_t stands_until; /* its tasks do nothing before, */
    bool halted;          /* and so its cores do nothing */
    int64_t *cut_until;   /* by slot: nothing that it sends there arrives before */
    double shuffle;       /* ns that a message of its own may be late */

    double speed, jitter, slow;
    double link_speed; /* of its link when nothing clogs it */
    uint32_t cores, active;
    struct task *works;
    double service; /* nanoseconds of speed-1 core time each of them has had */
    int64_t service_at;
    struct event work_done;
    uint64_t works_begun;
};

struct script; /* script.c's own */

struct sim {
    struct sim_options options;
    struct arena arena;
    struct heap heap;
    int64_t now;
    uint64_t trace;
    struct pending_message *spare; /* their memory is used again */
    const struct coroutine_ops *carry;
    struct coroutine_host *host;
    struct node *nodes;     /* by slot */
    uint32_t slots, wanted; /* nodes up to this one were requested */
    struct task *running;
    struct node *acted; /* node of the last event; NULL: none */
    int64_t latency;
    double loss;
    struct link *dirty, *dirty_last;
    struct script *script;
    bool ran, ending;
    unsigned coming; /* scheduled restarts of the driver */
    /* A task's fault is raised again on the stack of sim_run's caller, which can be unwound. */
    struct fault_sink sink, *outer;
    struct {
        const char *file, *what;
        int line;
    } fault;
};

/* sim.c */
enum { SIM_NAME_MAX = 24 };

enum trace_kind { TRACE_RESUME, TRACE_DELIVER, TRACE_PEER, TRACE_KILL, TRACE_SLOW, TRACE_HOLD };

void sim_record(struct sim *sim, enum trace_kind kind, const struct node *node, uint64_t tag,
                uint64_t len);
int64_t sim_span(double ns);                             /* rounded, and bounded */
int64_t sim_after(const struct sim *sim, double ns);     /* the time in `ns` nanoseconds */
struct node *sim_node(struct sim *sim, uint32_t number); /* NULL: there is none */
const char *sim_node_name(uint32_t number, char out[SIM_NAME_MAX]); /* "node 3", "the driver" */

/* sim_task.c */
extern const struct world_ops sim_world_ops;

int task_new(struct node *node, const char *name, task_fn fn, void *arg, struct task **out);
void task_free(struct task *task);
void task_fire(struct event *resume);
/* Stop running until task_ready. */
void task_yield(struct task *task);
/* Its clock leaps forward; tasks whose deadlines have passed then wake up. */
void clock_leap(struct node *node, int64_t ns);
void task_ready(struct task *task);
bool task_cancelled(const struct task *task);
/* The running task, which is one of the node's. */
struct task *task_running(const struct node *node);
/* Wake the waits of a node that wait for this: a letter, &signal, a recv, &peer, NULL, a task. */
void node_wake(struct node *node, enum wait_kind kind, const void *what);
/* "message 0x… from 2 in view 1 or signal 4, until 1.5 s" */
void task_describe(const struct task *task, char *out, size_t size);

/* mail.c */
int mail_send(struct world *w, uint32_t peer, struct message *m, enum world_class class);
/* A letter at the end of a lane, which has the reference from now on. ERR_NOMEM */
int mail_queue(struct lane *lane, struct message *m, struct pending_message **out);
/* Whether this is the message that the node is to die at. */
bool mail_dies(const struct node *node);
bool mail_aborted(const struct node *node, uint32_t view);
int mail_post(struct world *w, struct recv *recv);
void mail_unpost(struct world *w, struct recv *recv);
void mail_abort(struct world *w, uint32_t view);
bool mail_matches(const struct wait_for *want, const struct pending_message *pending);
/* Take the first letter that matches out of the mailbox. OK with *out NULL when there is none;
 * ERR_NOMEM */
int mail_take(struct node *node, const struct wait_for *want, struct message **out);
bool mail_credit(struct node *node, uint32_t peer);
void mail_arrive(struct event *arrival);
/* End posted receives from `from` (NULL: from anybody) with `status`. */
void mail_fail(struct node *node, const struct node *from, int status);
/* Drop the messages of `from` in the mailbox (NULL: of all nodes). */
void mail_discard(struct node *node, const struct node *from);

/* send.c */
int send_post(struct world *w, struct send *send);
void send_unpost(struct world *w, struct send *send);
/* The message is in transit; the caller owns its range again. */
void send_done(struct pending_message *pending);
/* The letter is lost. */
void send_lost(struct pending_message *pending, int status);
/* Take posted sends back: all, or those of aborted views. */
void send_recall(struct node *node, bool all, int status);
/* A post that points here has ended; NULL allowed. */
void ended_count(struct node *node, struct ended *ended);

/* sim_net.c */
void message_queue_put(struct message_queue *queue, struct pending_message *pending);
struct pending_message *message_queue_take(struct message_queue *queue);
/* Take `*at` out, which may be anywhere. */
struct pending_message *message_queue_unlink(struct message_queue *queue,
                                             struct pending_message **at);
/* All zero; NULL: out of memory. */
struct pending_message *pending_message_new(struct sim *sim);
void pending_message_free(struct pending_message *pending); /* and give its credit back */
void pending_messages_release(struct sim *sim);             /* all have been freed */
/* ERR_NOMEM */
int route_get(struct node *from, struct node *to, struct route **out);
bool route_empty(const struct route *route);
/* Drop all that has not arrived; sends end with `status`. */
void route_purge(struct route *route, int status);
void route_free(struct route *route);
/* Begin with the next letter, if one may. */
void lane_start(struct lane *lane);
/* A node's link carries `slow` times less than its own speed. */
void net_pace(struct node *node, double slow);
void net_settle(struct sim *sim);

/* node.c */
void node_init(struct sim *sim, uint32_t slot);
int node_start(struct node *node);
/* Cancel its tasks. Messages that it has sent still travel, unless it was killed. */
void node_end(struct node *node, bool killed);
/* Restart the killed driver as a new one without state. */
int node_restart(struct node *node);
void node_release(struct node *node);
void peer_down(struct node *node, struct node *peer);
int node_peer_add(struct world *w, uint32_t peer, const char *address);
void node_peer_drop(struct world *w, uint32_t peer);
void node_address(struct world *w, char *out, size_t size);
int node_want(struct world *w, uint32_t n);

/* work.c */
int work_do(struct world *w, const struct cost *cost);
void work_drop(struct task *task);
void work_pace(struct node *node, double slow);
void work_halt(struct node *node, bool halted);
void work_finish(struct event *done);

/* delivery_hold.c */
bool hold_stands(const struct node *node);
void hold_pause(struct node *node, int64_t until);
void hold_resume(struct node *node);
void hold_release(struct node *node);
/* Nothing gets from one to the other until then. */
void hold_cut_way(struct node *from, struct node *to, int64_t until);
bool hold_cut(const struct node *from, const struct node *to);
int64_t hold_opens(const struct node *from, const struct node *to);
/* Time at which both ends of a link cut now take the other for lost. */
int64_t hold_unanswered(const struct sim *sim);
/* Both see the other go down, and their messages in transit are lost. */
void hold_part(struct node *a, struct node *b);
/* The time at which a message due at `at` arrives. */
int64_t hold_arrival(const struct node *from, const struct node *to, int64_t arrival);
/* How much later than others the next message of a shuffled node is. */
int64_t hold_shuffle(const struct node *from);

/* script.c */
int script_read(struct sim *sim, struct err *err);
/* Number of workers in all, when `wanted` are requested. */
uint32_t script_workers(const Paceline__Cluster *cluster, uint32_t workers);
int64_t script_delay(struct sim *sim, const struct node *from, const struct node *to, uint64_t tag);

#endif
