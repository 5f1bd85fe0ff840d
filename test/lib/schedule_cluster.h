/* Schedules without a world: executes the lists of all ranks in memory, with channels between ranks
 * for the messages. For tests of schedules, and for the expected results of others: the order of
 * every sum is the schedule's. */
#ifndef PL_LIB_SCHEDULE_CLUSTER_H
#define PL_LIB_SCHEDULE_CLUSTER_H

#include "coll/coll_schedule.h"
#include "tensor/reduce.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 17 };

/* Messages between two ranks, sent and not yet received. */
struct transfer {
    struct transfer *next;
    bool final;
    size_t len;
    float x[];
};

struct cluster {
    size_t ranks, n;
    struct reduction reduction; /* zeroed: the sum */
    struct schedule by[RANKS_MAX];
    size_t at[RANKS_MAX]; /* next step */
    float *x[RANKS_MAX];  /* the vector, then scratch */
    struct transfer *channel[RANKS_MAX][RANKS_MAX][2];
    size_t floats_sent[RANKS_MAX];
};

static void cluster_post(struct cluster *c, size_t me, const struct step *s)
{
    struct transfer *p = malloc(sizeof *p + s->len * sizeof(float));
    assert_non_null(p);
    *p = (struct transfer){.final = s->final, .len = s->len};
    memcpy(p->x, c->x[me] + s->at, s->len * sizeof(float));
    struct transfer **end = &c->channel[me][s->peer][s->final];
    while (*end)
        end = &(*end)->next;
    *end = p;
    c->floats_sent[me] += s->len;
}

static bool cluster_take(struct cluster *c, size_t me, const struct step *s)
{
    struct transfer **head = &c->channel[s->peer][me][s->final], *p = *head;
    if (!p)
        return false;
    *head = p->next;
    assert_int_equal(p->len, s->len);
    float *y = c->x[me] + s->at;
    if (s->kind == STEP_REDUCE)
        reduce_range(&c->reduction, y, p->x, s->len);
    else
        memcpy(y, p->x, s->len * sizeof *y);
    free(p);
    return true;
}

static bool cluster_step(struct cluster *c, size_t me)
{
    const struct step *s = &c->by[me].step[c->at[me]];
    float *x = c->x[me];
    assert_true(s->at + s->len <= c->n || s->at >= c->n); /* of the vector or of scratch */
    switch (s->kind) {
    case STEP_SEND: cluster_post(c, me, s); break;
    case STEP_RECV:
    case STEP_REDUCE:
        if (!cluster_take(c, me, s))
            return false;
        break;
    case STEP_FOLD: reduce_range(&c->reduction, x + s->at, x + s->source, s->len); break;
    case STEP_COPY: memcpy(x + s->at, x + s->source, s->len * sizeof *x); break;
    }
    c->at[me]++;
    return true;
}

/* Vectors of zeros, when the schedules are made. */
static inline void cluster_make_room(struct cluster *c)
{
    for (size_t r = 0; r < c->ranks; r++) {
        c->x[r] = calloc(c->n + c->by[r].scratch + 1, sizeof(float));
        assert_non_null(c->x[r]);
    }
}

/* Execute to the end, or until no rank can continue. */
static inline void cluster_carry_out(struct cluster *c)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t r = 0; r < c->ranks; r++)
            while (c->at[r] < c->by[r].count && cluster_step(c, r))
                moved = true;
    }
    for (size_t r = 0; r < c->ranks; r++) {
        assert_int_equal(c->at[r], c->by[r].count);
        for (size_t q = 0; q < c->ranks; q++)
            for (int final = 0; final < 2; final++)
                assert_null(c->channel[r][q][final]); /* nothing is left over */
    }
}

static inline void cluster_tear_down(struct cluster *c)
{
    for (size_t r = 0; r < c->ranks; r++) {
        schedule_release(&c->by[r]);
        free(c->x[r]);
    }
}

#endif
