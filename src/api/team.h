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
    _Atomic(struct pl_shared *) shared; /* all handles, owned */
    _Atomic(struct pl_kv *) kvs;
};

/* Frees the shared variables when the team ends. */
void api_shared_free(pl_team *team);
void api_kv_free(pl_team *team);

#endif
