/* The driver's side of the group, as a pure step function: who is in, who is out, which view is
 * current, and what members of a new view adopt or redo in each lane. No clock, no messages: events
 * go in, orders come out, and any state can be built in a test.
 *
 * Every change takes one path (D5): a join, a leave, a death and a hang all end in a new view.
 *
 * A joiner of a run under way waits. The driver asks a member to be its donor. At its next commit
 * point, behind exchange n, the donor reports that it is ready and waits until the view with the
 * joiner arrives. So exchange n + 1 cannot complete without the joiner, which begins behind n with
 * the state that the donor sends. If the donor dies before the joiner has that state, the joiner is
 * fenced. Where members have no state of a run (a team), the driver admits joiners itself.
 *
 * A recovered driver makes no first view of its own. Members of the last view reconnect under their
 * numbers. The driver continues with those of the newest view that any of them has seen, or that it
 * made itself. It waits for them for a bounded time. Workers that were excluded meanwhile, or that
 * reconnect too late, must rejoin as new workers. */
#ifndef PL_GROUP_ROSTER_H
#define PL_GROUP_ROSTER_H

#include "group/view.h"

#include <stdbool.h>

enum { ROSTER_ORDERS_MAX = 5 * VIEW_MEMBERS_MAX };

#define ROSTER_DRIVER  (UINT32_MAX - 1) /* the driver's node number, as the world gives it, */
#define ROSTER_NO_NODE UINT32_MAX       /* and nobody's */

enum roster_event_kind {
    ROSTER_JOIN,      /* node, which listens at `address`, is ready */
    ROSTER_RECONNECT, /* node reconnects from `view` of `incarnation`, which held `members` */
    ROSTER_LEAVE, /* node leaves. The last member that holds a model stays: the driver requests the
                      model first */
    ROSTER_PEER_DOWN,     /* its connection is gone */
    ROSTER_HEARTBEAT,     /* node is alive; progress, busy */
    ROSTER_LANE_AT,       /* node reports `completed` of `lane` in `view` */
    ROSTER_LOST,          /* node has lost its link to `other` */
    ROSTER_JOIN_COMPLETE, /* node, a joiner, has all of its state */
    ROSTER_DONOR_READY,   /* node, a donor, waits at a commit point for the joiner `other` */
    ROSTER_WANT,          /* the run is to have `other` members */
    ROSTER_LINK_CHECK,    /* node asks for a check of the links, with replies within `grace` */
    ROSTER_LINK_REPORT,   /* node replies to a check: its link from `other` */
    ROSTER_CHECK_ENDS,    /* the time for replies to the check is over */
    ROSTER_LEAF_READY,    /* node, a leaf, has kept pace for one round */
    ROSTER_TICK,          /* time has passed */
};

struct roster_event {
    enum roster_event_kind kind;
    int64_t now;
    uint32_t node;
    const char *address; /* JOIN, RECONNECT; borrowed */
    uint32_t incarnation;
    const struct members *members, *elders; /* RECONNECT; borrowed */
    const uint32_t *seated; /* RECONNECT: as in group_return; borrowed. NULL: nobody has a seat */
    uint64_t progress;      /* HEARTBEAT: steps taken */
    bool busy;              /* HEARTBEAT: it computes, so progress is expected */
    bool paused;            /* HEARTBEAT: it waits where it can be a donor at any time */
    uint32_t other;         /* LOST, DONOR_READY: the other node; WANT: how many */
    int64_t pause;          /* TICK: ns for which the driver itself did not run */
    uint32_t view;          /* LANE_AT, RECONNECT, JOIN_COMPLETE: in which it got its state */
    uint32_t lane;          /* LANE_AT */
    uint64_t completed;     /* LANE_AT */
    int64_t grace;          /* LINK_CHECK: ns */
    int64_t round;          /* RECONNECT: ns in which it calls all of its addresses once */
    uint32_t check;         /* LINK_REPORT: of this check, */
    struct roster_link {    /* bytes that took `ns` to arrive, within `span` ns */
        uint32_t from;
        uint64_t bytes, ns, span;
    } link;
    bool joined;      /* LANE_AT: a joiner, which does not hold the result of `completed` */
    bool needs_sync;  /* LANE_AT: it does not know how far the lane is; LEAVE: it has no model */
    bool was_leaf;    /* LANE_AT: others may have repeated the exchange that it completed */
    uint32_t made_in; /* LANE_AT: the view whose participants have that result */
};

/* A member's report on a lane: it holds the result of the exchange that it completed; it has joined
 * behind that exchange and has no result; it does not know how far the lane is; or it was a leaf
 * meanwhile, so that others may have repeated that exchange with another result. */
enum lane_report { LANE_HELD, LANE_JOINED, LANE_UNKNOWN, LANE_WAS_LEAF };

/* The steps that all participants of a lane take in a new view before they exchange again. */
struct lane_go {
    uint32_t view, lane;
    uint64_t completed;     /* the exchange that counts; members that lack its result adopt it */
    uint32_t holder;        /* the node that sends the result */
    struct members lacking; /* workers that receive it */
    struct members synced;  /* those of them that receive the state kept with it, too */
    bool driver_lacks;
    bool driver_needs_sync; /* it has recovered, and lacks the state kept with the result, too */
};

void lane_go_encode(const struct lane_go *go, struct buf *out);
/* ERR_PROTOCOL */
int lane_go_decode(struct byte_reader *in, struct lane_go *out);

enum roster_order_kind {
    ORDER_VIEW,           /* send the roster's view to its members (and to the driver itself) */
    ORDER_MEMBER,         /* report to the run: `node` `what` (an event) */
    ORDER_LANE_GO,        /* send `go` to all that take part in the lane */
    ORDER_DROP,           /* close the connection to `node` */
    ORDER_ADMIT_JOINER,   /* ask `node`, a member or the driver, to admit `other` */
    ORDER_RELEASE_MEMBER, /* ask `node` to leave: there are more members than wanted */
    ORDER_CANCEL_JOIN,    /* tell `node`, a donor, that its joiner `other` is gone */
    ORDER_REJOIN,         /* tell `node` to discard its state and to join as a new worker */
    ORDER_LINK_CHECK,     /* ask all participants to report their links, for check `other` */
    ORDER_WANT,           /* request `other` more workers: so many have not reconnected */
};

struct roster_order {
    enum roster_order_kind kind;
    uint32_t node, other;
    const char *what; /* join back leave dead cut hung fenced leaf participates unseated seated */
    struct lane_go go;
};

struct roster_orders {
    size_t count;
    struct roster_order at[ROSTER_ORDERS_MAX];
};

struct roster_options {
    uint32_t workers;     /* the first view is made when so many have joined */
    uint32_t workers_max; /* later joiners are admitted while there are fewer; 0: never */
    uint32_t standby;     /* workers to request beyond those, which stand by */
    uint32_t slices;      /* above 1: members have seats (roster_seats.c) in replicas of so many */
    uint32_t incarnation;
    bool driver_takes_part; /* in every lane, as its root */
    bool driver_admits;     /* the driver is the donor of all joiners. A joiner has all of its state
                               when it is in, and no member depends on another one's */
    int64_t silence_max;    /* ns without a heartbeat: dead */
    int64_t stall_max;      /* ns busy without progress, and 8 times its longest step: hung; the
                               first step may take 20 times stall_max */
    /* Of a recovered driver: */
    bool recovers;
    uint32_t last_view, last_incarnation; /* of the newest view that it knows of; 0: none */
    struct members last;                  /* that view's members */
};

/* roster.c has the table of transitions. From JOINING on it is a member of the next view. */
enum member_state {
    MEMBER_OUT,      /* lost, fenced or left; or not decided yet */
    MEMBER_WAITS,    /* a joiner that is not admitted yet */
    MEMBER_RETURNED, /* reconnected to a recovered driver, which waits for the others */
    MEMBER_JOINING,  /* it may lack state from its donor */
    MEMBER_IN,
    MEMBER_LEAVING, /* the driver has asked it to leave */
    MEMBER_STATES,
};

struct roster_member {
    uint32_t node;
    enum member_state state;
    uint32_t donor;    /* of a joiner: a member or the driver; ROSTER_NO_NODE: not chosen yet */
    uint32_t joins_in; /* JOINING: the view in which it became a joiner of its seat */
    char address[NODE_ADDRESS_MAX];
    int64_t last_beat, last_progress; /* last heartbeat; last progress */
    uint64_t progress;
    int64_t longest; /* ns between two progresses, while busy */
    /* Links to others that it reports as broken: those that are decided on together, the first of
     * them at `lost_at`, and those that have been reported since. */
    struct members lost, lost_later;
    int64_t lost_at;
    uint32_t seat;    /* VIEW_NO_SEAT: none */
    uint32_t slice;   /* where there are seats: of its last one, or the one that it expects */
    bool wants_leave; /* it has asked to leave, and is still needed */
    int64_t wants_leave_at;
    bool leaf;
    bool paused;             /* by its last heartbeat */
    uint32_t leaf_times;     /* how often it became a leaf; */
    uint64_t leaf_rounds;    /* rounds that it has kept pace since, */
    uint32_t blamed;         /* slow links that it is an end of, in checks one after another */
    struct roster_link link; /* of the check under way */
};

static inline bool roster_is_in(const struct roster_member *m)
{
    return m->state >= MEMBER_JOINING;
}

struct roster_lane {
    bool decided; /* in the current view */
    bool driver_in;
    uint64_t driver_at;
    struct members in;                  /* members that have reported in the current view */
    struct members joined;              /* those of them that hold no result */
    struct members needs_sync;          /* those that do not know how far the lane is */
    struct members were_leaves;         /* those that were leaves when the others exchanged */
    bool driver_needs_sync;             /* nor does the driver */
    uint64_t at[VIEW_MEMBERS_MAX];      /* by rank in the current view, */
    uint32_t made_in[VIEW_MEMBERS_MAX]; /* and the view whose participants have that result */
};

/* A check of the links under way. */
struct roster_check {
    bool on;
    uint32_t number;
    int64_t until, grace;
    struct members reported;
};

/* The members that a recovered driver waits for. */
struct roster_recovery {
    bool on;
    int64_t until;              /* end of the wait; 0: it has not begun */
    int64_t round;              /* ns, the longest of roster_event.round */
    uint32_t view, incarnation; /* of the newest view that any node reports */
    struct members members;     /* its members */
    uint32_t highest;           /* view number reported by any node */
    struct roster_seating {     /* of the newest view that a returned member reports, which may be
                               older: its elders and seats */
        uint32_t view, incarnation;
        struct members elders;
        uint32_t seated[VIEW_MEMBERS_MAX]; /* by node: 1 more than its seat; 0: it has none, or */
    } seating;                             /* lacks the state of its slice */
};

struct roster {
    struct roster_options options;
    struct roster_recovery recovery;
    struct roster_check check;
    struct members departed; /* left, died or were fenced: never members again (V3) */
    struct view view;        /* number 0: not made yet */
    uint32_t wanted; /* target number of members; joiners are admitted below it; 0: workers_max */
    size_t count;
    struct roster_member member[VIEW_MEMBERS_MAX]; /* all that ever joined, in order of joining */
    struct roster_lane lane[ROSTER_LANES_MAX];
    /* When the leaves that are asked for the newest result of a lane must have reported, ns; 0:
     * none are asked. Until `no_leaf_until` no member becomes a leaf. */
    int64_t asked_until[ROSTER_LANES_MAX], no_leaf_until;
};

void roster_init(struct roster *roster, const struct roster_options *options);

/* Process one event. `out` is cleared and receives the orders. Events of unknown nodes and of old
 * views are ignored. */
void roster_step(struct roster *roster, const struct roster_event *event,
                 struct roster_orders *out);

#endif
