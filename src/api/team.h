/* A team as the library holds it. */
#ifndef PL_API_TEAM_H
#define PL_API_TEAM_H

#include "api/api.h"
#include "coll/team_call.h"
#include "kv/client.h"
#include "kv/kv_server.h"
#include "paceline/team.h"

struct pl_team {
    pl_engine *engine;
    struct world *world, *host_world; /* host_world: the coordinator's, where this process is it */
    bool joined, hosting;
    uint32_t members, members_max, stripes;
    uint64_t kv_bytes;
    int64_t deadline;
    struct team team;
    struct team_host host;
    struct kv kv;           /* started with the first handle */
    atomic_flag kv_opening; /* held while a thread checks whether it is open, or opens it */
    struct kv_server kv_server;
    struct err error[PL_TEAM_CHANNELS];
    struct inbox handles; /* on shared variables and the store; owned */
};

/* A program's handle on a service of its team; the first member of pl_shared and pl_kv. */
struct team_handle {
    struct inbox_item link;
    pl_team *team;
    atomic_flag locked; /* held while the message is written or read */
    struct err error;   /* of the last call that failed */
};

/* The team owns the handle from here on, and frees it with team_free_handles. */
void team_add_handle(pl_team *team, struct team_handle *handle);
void team_free_handles(pl_team *team);

void team_handle_report(struct team_handle *handle, const struct err *err);
void team_handle_error(struct team_handle *handle, char *text, size_t size);

/* When a call with this time limit must have ended; a negative or huge limit: never. */
int64_t team_deadline(const pl_team *team, double timeout_s);

#endif
