/* A team as the library holds it. */
#ifndef PL_API_TEAM_H
#define PL_API_TEAM_H

#include "api/api.h"
#include "coll/team.h"
#include "paceline/team.h"

struct pl_team {
    pl_engine *engine;
    struct world *world, *host_world; /* host_world: the coordinator's, where this process is it */
    bool joined, hosting;
    uint32_t members, stripes;
    int64_t deadline;
    struct team team;
    struct team_host host;
    struct err error[PL_TEAM_CHANNELS];
    _Atomic(struct pl_shared *) shared; /* all handles, owned */
};

/* What the team's end leaves of them. */
void api_shared_free(pl_team *team);

#endif
