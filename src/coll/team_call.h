/* A team: nodes that found each other to do collectives, without a training run around them. One
 * coordinates, as the driver; the others, and usually one on the same machine, are its members.
 *
 * Collectives run on channels. Each channel carries one after another, the same ones in the same
 * order on every member; different channels carry theirs at the same time. When a member is lost or
 * joins, calls under way end with ERR_VIEW on all members of the old view, some of which may have
 * their result already; the next call is one of the members of the new view. Calls are numbered
 * from 1 in each view, so a joiner needs no number of earlier ones. */
#ifndef PL_COLL_TEAM_CALL_H
#define PL_COLL_TEAM_CALL_H

#include "coll/auto.h"
#include "coll/coll_run.h"
#include "coll/shared_vars.h"
#include "group/group_server.h"

/* Tags of channels lie beyond those of shared variables' lanes. */
enum { TEAM_CHANNELS = 8, TEAM_LANES = TASKS_LANES };

/* ---- the coordinator ---- */

struct team_host {
    struct group group;
    struct server server;
    struct shared_host shared;
};

/* Start to admit members; the first view is made when `members` of them have joined. Later ones
 * join when no round of a shared variable is being reduced, while there are fewer than
 * `members_max`; others wait. `host` is large. ERR_NOMEM */
int team_host_start(struct team_host *host, struct world *world, const struct logger *log,
                    const struct group_timing *timing, uint32_t members, uint32_t members_max);
/* Send the members `bye`, and stop. */
void team_host_stop(struct team_host *host);

/* ---- a member ---- */

/* The preparation of a call, kept for the next call of the same kind. */
struct team_plan {
    int kind; /* enum team_kind */
    enum coll_algorithm algorithm;
    size_t root, floats;
    struct coll_config config;
    struct coll_plan plan;
};

struct team_channel {
    atomic_bool busy;
    uint32_t view;     /* the view in which n counts; 0: none yet */
    uint32_t reported; /* a view that the caller knows of, by ERR_VIEW */
    uint64_t n;
    enum coll_algorithm algorithm; /* of the last all-reduce */
    /* The last two, the latest first: a loop often alternates a short call and a long one, and a
     * mean always does. */
    struct team_plan plan[2];
    struct coll_auto automatic;
    double took; /* s, the last long vector, of took_floats; 0: none */
    size_t took_floats;
};

struct team {
    struct world *world;
    struct group group;
    struct team_channel channel[TEAM_CHANNELS];
    struct shared shared;
};

/* Join the team whose coordinator the world is connected to, and wait until it is complete, or, for
 * a later one, until it holds this node.
 * ERR_TIMEOUT, ERR_DRIVER (refused, or the coordinator is gone), ERR_NOMEM */
int team_join(struct team *team, struct world *world, const struct logger *log,
              const struct group_timing *timing, int64_t deadline);
/* Leave it; no call is under way. */
void team_leave(struct team *team);

/* This member's rank in the current view, and (returned) the number of members; 0 when the team is
 * over. */
size_t team_size(const struct team *team, size_t *rank);

enum team_kind {
    TEAM_ALLREDUCE,
    TEAM_BROADCAST,
    TEAM_REDUCE,
    TEAM_GATHER,
    TEAM_ALL_GATHER,
    TEAM_REDUCE_SCATTER,
};

struct team_call {
    enum team_kind kind;
    uint32_t channel;
    float *x;
    size_t n;
    uint32_t view;                 /* the only one to run in, or ERR_VIEW; 0: any */
    size_t root;                   /* broadcast, reduce, gather: a rank */
    enum coll_algorithm algorithm; /* allreduce */
    bool pinned;                   /* COLL_AUTO chooses by its rule alone and measures no links */
    struct coll_config config;
    uint32_t stripes;         /* connections to each peer */
    bool stripes_given;       /* else COLL_AUTO, where it measures, uses them or one */
    float *residual;          /* (optional) of a lossy codec; n floats */
    struct coll_waits *waits; /* (optional) receives the waits and the bytes moved */
};

/* One collective. ERR_VIEW (a member was lost or has joined), ERR_DRIVER (the team is over),
 * ERR_USAGE (the channel is in use, a root is no rank). An error of this member alone, ERR_NOMEM,
 * ERR_UNSUPPORTED (a vector too long for its algorithm) or ERR_PROTOCOL (others make another call),
 * ends its membership, because the others wait for it. */
int team_run(struct team *team, const struct team_call *call);

#endif
