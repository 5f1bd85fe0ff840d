/* A team whose members are engines of one process, each on a thread of its own. */
#ifndef PL_LIB_SHARED_TEAM_H
#define PL_LIB_SHARED_TEAM_H

#include "free_port.h"
#include "paceline/shared.h"
#include "process.h"

#include <pthread.h>

enum { MEMBERS = 3 };

struct member {
    pthread_t thread;
    uint32_t number, members;
    const char *rendezvous;
    int (*play)(struct member *m);
    pl_engine *engine;
    pl_team *team;
    void *arg;
    bool tcp; /* also within this host */
    int rc;
    char error[256];
};

static inline void *run_member(void *arg)
{
    struct member *m = arg;
    const pl_team_options options = {.size = sizeof options,
                                     .rendezvous = m->rendezvous,
                                     .members = m->number == 0 ? m->members : 0,
                                     .no_shared_memory = m->tcp,
                                     .timeout_s = 30};
    m->rc = pl_engine_create(NULL, &m->engine);
    if (m->rc == PL_OK)
        m->rc = pl_team_open(m->engine, &options, &m->team);
    if (m->rc == PL_OK)
        m->rc = m->play(m);
    if (m->engine)
        snprintf(m->error, sizeof m->error, "%s", pl_engine_error(m->engine));
    pl_team_close(m->team);
    pl_engine_destroy(m->engine);
    return NULL;
}

static inline void run_team_by(bool tcp, uint32_t members, int (*play)(struct member *m), void *arg)
{
    char rendezvous[32];
    struct member m[MEMBERS];
    port_find(rendezvous);
    for (uint32_t i = 0; i < members; i++) {
        m[i] = (struct member){.number = i,
                               .members = members,
                               .rendezvous = rendezvous,
                               .play = play,
                               .arg = arg,
                               .tcp = tcp};
        if (i > 0)
            assert_int_equal(pthread_create(&m[i].thread, NULL, run_member, &m[i]), 0);
    }
    run_member(&m[0]); /* here, where assertions may fail */
    for (uint32_t i = 1; i < members; i++)
        pthread_join(m[i].thread, NULL);
    for (uint32_t i = 0; i < members; i++)
        if (m[i].rc != PL_OK)
            fail_msg("member %u: %d, %s", i, m[i].rc, m[i].error);
}

static inline void run_team(uint32_t members, int (*play)(struct member *m), void *arg)
{
    run_team_by(false, members, play, arg);
}

#endif
