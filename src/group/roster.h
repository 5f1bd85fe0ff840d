/* The driver's side of the group, as a pure step function: who is in, who is out, which view is
 * current, and what members of a new view adopt or redo in each lane. No clock, no messages: events
 * go in, orders come out, and any state can be built in a test.
 *
 * One path for every change (D5): whatever happened to a member, it ends in a new view.
 *
 * A joiner of a run under way waits. A member is asked to admit it: at its next commit point,
 * behind exchange n, or later on its way to the next, the donor says so and goes no further until
 * the view that holds the joiner is there. So exchange n + 1 cannot complete without the joiner,
 * which begins behind n with what the donor sends it. Should its donor die before it has that, it
 * is out again.
 *
 * A driver that returns after a death makes no first view of its own: members of the last view
 * return to it, under their numbers, and it continues with those of the newest that any of them has
 * seen, or that it knows to have made itself. It waits for them a while, not for ever. Workers that
 * have been left out meanwhile, or reconnect too late, are told to start over. */
#ifndef PL_GROUP_ROSTER_H
#define PL_GROUP_ROSTER_H

#include "group/view.h"

#include <stdbool.h>

enum { ROSTER_LANES_MAX = 32, ROSTER_ORDERS_MAX = 5 * VIEW_MEMBERS_MAX };

#define ROSTER_DRIVER  (UINT32_MAX - 1) /* the driver's node number, as the world gives it, */
#define ROSTER_NO_NODE UINT32_MAX       /* and nobody's */

enum roster_event_kind {
    ROSTER_JOIN,      /* node, with its address, is ready */
    ROSTER_RECONNECT, /* node returns from `view` of `incarnation`, which held `who` */
    ROSTER_LEAVE, /* node says goodbye; the last one that is in, and holds a model, is not let go:
                      the driver asks it for that first */
    ROSTER_PEER_DOWN,     /* its connection is gone */
    ROSTER_HEARTBEAT,     /* node is alive; progress, busy */
    ROSTER_LANE_AT,       /* node reports `completed` of `lane` in `view` */
    ROSTER_LOST,          /* node has lost its link to `other` */
    ROSTER_JOIN_COMPLETE, /* node, a joiner, has what its donor had for it */
    ROSTER_DONOR_READY,   /* node stands at a commit point for `other` to come in */
    ROSTER_WANT,          /* so many members there are to be: `other` */
    ROSTER_TICK,          /* time has passed */
};

struct roster_event {
    enum roster_event_kind kind;
    int64_t now;
    uint32_t node;
    const char *address; /* JOIN, RETURN; borrowed */
    uint32_t incarnation;
    const struct members *members; /* RETURN; borrowed */
    uint64_t progress;             /* HEARTBEAT: steps taken */
    bool busy;                     /* HEARTBEAT: computing, so progress is due */
    uint32_t other;                /* LOST, DONOR_READY: the other node; WANT: how many */
    int64_t pause;                 /* TICK: how long the driver itself stood still, ns */
    uint32_t view;                 /* LANE_AT, RETURN */
    uint32_t lane;                 /* LANE_AT */
    uint64_t completed;            /* LANE_AT */
    bool joined;     /* LANE_AT: it has come in there, and does not hold the result, */
    bool needs_sync; /* LANE_AT: nor knows how far the lane is; LEAVE: it has no model */
};

/* As members report it: with the result of the exchange that it has completed, without, or knowing
 * nothing. */
enum lane_report { LANE_HELD, LANE_JOINED, LANE_UNKNOWN };

/* The steps that all participants of a lane take in a new view before they exchange again. */
struct lane_go {
    uint32_t view, lane;
    uint64_t completed;     /* this exchange counts: who has not completed it adopts its result */
    uint32_t holder;        /* from this node */
    struct members lacking; /* workers that fetch it */
    bool driver_lacks;
    bool driver_needs_sync; /* it has returned, and lacks what else it held as well */
};

void lane_go_encode(const struct lane_go *go, struct buf *out);
/* ERR_PROTOCOL */
int lane_go_decode(struct byte_reader *in, struct lane_go *out);

enum roster_order_kind {
    ORDER_VIEW,           /* send the roster's view to its members (and to the driver itself) */
    ORDER_MEMBER,         /* tell the run: `node` `what` (an event) */
    ORDER_LANE_GO,        /* send `go` to all that take part in the lane */
    ORDER_DROP,           /* cut the connection to `node` */
    ORDER_ADMIT_JOINER,   /* ask `node` to admit `other` */
    ORDER_RELEASE_MEMBER, /* ask `node` to leave: there are more members than wanted */
    ORDER_CANCEL_JOIN,    /* tell `node`, which waits for `other` to come in, that it does not */
    ORDER_REJOIN,         /* tell `node` to forget what it has and to come again */
    ORDER_WANT,           /* ask for `other` workers more: so many have not return */
};

struct roster_order {
    enum roster_order_kind kind;
    uint32_t node, other;
    const char *what; /* join back leave dead cut hung fenced */
    struct lane_go go;
};

struct roster_orders {
    size_t count;
    struct roster_order at[ROSTER_ORDERS_MAX];
};

struct roster_options {
    uint32_t workers;     /* the first view is made when so many have joined */
    uint32_t workers_max; /* later joiners are admitted while there are fewer; 0: never */
    uint32_t standby;     /* so many more are to wait for a place, where workers are asked for */
    uint32_t incarnation;
    bool driver_takes_part; /* in every lane, as its root */
    int64_t silence_max;    /* ns without a heartbeat: dead */
    int64_t stall_max;      /* ns busy without progress, and 8 times its longest step: hung; a first
                               step may take 20 times stall_max */
    /* A driver that returns: */
    bool recovers;
    uint32_t last_view,
        last_incarnation; /* the newest it knows to have been; 0: it knows of none */
    struct members last;  /* which held these */
};

struct roster_member {
    uint32_t node;
    bool in;
    bool waits;        /* to come in */
    bool leaving;      /* has been asked to leave */
    bool reconnected;  /* has returned, and waits for the others */
    bool join_pending; /* has come in, and may lack what its donor has for it */
    uint32_t donor;    /* of one that waits or settles; ROSTER_NO_NODE: not yet */
    char address[NODE_ADDRESS_MAX];
    int64_t last_beat, last_progress; /* last heartbeat; last progress */
    uint64_t progress;
    int64_t longest; /* ns between two progresses, while busy */
    bool link_lost;  /* to `other`, at `lost_at` */
    uint32_t other;
    int64_t lost_at;
};

struct roster_lane {
    bool decided; /* in the current view */
    bool driver_in;
    uint64_t driver_at;
    struct members in;             /* whose report of the current view has come in */
    struct members joined;         /* who of them hold no result, */
    struct members needs_sync;     /* nor know how far the lane is */
    bool driver_needs_sync;        /* nor does the driver */
    uint64_t at[VIEW_MEMBERS_MAX]; /* by rank in the current view */
};

/* The members that a recovered driver waits for. */
struct roster_recovery {
    bool on;
    int64_t until;              /* 0: the clock does not run yet */
    uint32_t view, incarnation; /* the newest there was; it held: */
    struct members members;
    uint32_t highest; /* number of any view that was */
};

struct roster {
    struct roster_options options;
    struct roster_recovery recovery;
    struct members departed; /* left, died or were fenced: never members again (V3) */
    struct view view;        /* number 0: not formed yet */
    uint32_t wanted; /* members there are to be: joiners come in while there are fewer; 0: as many
                         as there may be */
    size_t count;
    struct roster_member member[VIEW_MEMBERS_MAX]; /* all that ever joined, by node number */
    struct roster_lane lane[ROSTER_LANES_MAX];
};

void roster_init(struct roster *roster, const struct roster_options *options);

/* Take one event in; what is to be done comes out in `out` (cleared first). Events that make no
 * sense (from strangers, of old views) are ignored. */
void roster_step(struct roster *roster, const struct roster_event *event,
                 struct roster_orders *out);

#endif
