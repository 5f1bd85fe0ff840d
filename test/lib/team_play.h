/* Teams of threads: each member has an engine of its own and plays its part, with CHECK; the test's
 * thread reports a thread's failures at its end. */
#ifndef PL_LIB_TEAM_PLAY_H
#define PL_LIB_TEAM_PLAY_H

#include "free_port.h"
#include "paceline/team.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { TEAM_PLAY_MAX = 8 };

#define CHECK(holds)                                                                  \
    do {                                                                              \
        if (!(holds)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #holds); \
            return __LINE__;                                                          \
        }                                                                             \
    } while (0)

struct team_member {
    uint32_t number, members; /* 0 coordinates; ranks are dealt in order of arrival */
    const char *rendezvous;
    int (*play)(struct team_member *m); /* 0, or the line that failed */
    void *arg;
    pl_engine *engine;
    pl_team *team;
    uint32_t rank;
    pthread_t thread;
    int line;
    pthread_barrier_t *opened; /* no member plays, or leaves, before all have seen the members */
};

static inline double team_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void team_nap(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

static inline int team_member_open(struct team_member *m)
{
    const pl_team_options options = {.size = sizeof options,
                                     .rendezvous = m->rendezvous,
                                     .members = m->number == 0 ? m->members : 0,
                                     .timeout_s = 60};
    CHECK(pl_engine_create(NULL, &m->engine) == PL_OK);
    int rc = pl_team_open(m->engine, &options, &m->team);
    if (rc != PL_OK)
        fprintf(stderr, "member %u: %s\n", m->number, pl_engine_error(m->engine));
    CHECK(rc == PL_OK);
    m->rank = pl_team_rank(m->team);
    CHECK(pl_team_size(m->team) == m->members && m->rank < m->members);
    return 0;
}

/* A member that leaves may interrupt the call of the others. So all end with a call whose result no
 * member needs: when it returns, or is interrupted, the earlier calls are over everywhere. */
static inline void team_last(struct team_member *m)
{
    float none = 0;
    pl_team_allreduce(m->team, &none, 1, NULL, NULL);
}

static inline void *team_member_run(void *arg)
{
    struct team_member *m = arg;
    m->line = team_member_open(m);
    pthread_barrier_wait(m->opened);
    if (m->line == 0)
        m->line = m->play(m);
    if (m->line == 0 && m->team)
        team_last(m);
    pl_team_close(m->team);
    pl_engine_destroy(m->engine);
    return NULL;
}

/* All members, until all have played. */
static inline void team_play(uint32_t members, int (*play)(struct team_member *), void *arg)
{
    struct team_member member[TEAM_PLAY_MAX];
    char rendezvous[32];
    int line = 0;
    pthread_barrier_t opened;
    assert_int_equal(pthread_barrier_init(&opened, NULL, members), 0);
    port_find(rendezvous);
    for (uint32_t i = 0; i < members; i++) {
        member[i] = (struct team_member){.number = i,
                                         .members = members,
                                         .rendezvous = rendezvous,
                                         .play = play,
                                         .arg = arg,
                                         .opened = &opened};
        assert_int_equal(pthread_create(&member[i].thread, NULL, team_member_run, &member[i]), 0);
    }
    for (uint32_t i = 0; i < members; i++) {
        pthread_join(member[i].thread, NULL);
        line = line ? line : member[i].line;
    }
    pthread_barrier_destroy(&opened);
    assert_int_equal(line, 0);
}

#endif
