/* The collectives and the key-value store of a simulated team that grows and shrinks: after each
 * change all agree where to continue, a sum is that of one view's members at one step, and a joiner
 * reads the state from the store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kv/client.h"
#include "team_growth.h"

enum { STEPS = 60, FLOATS = 200, STATE = 5000 };

/* The contribution of a member to the sum of a step: one, its bit, the step. */
struct sum {
    float at[FLOATS];
};

static void fill_sum(struct sum *sum, uint32_t node, float step)
{
    for (size_t i = 0; i < FLOATS; i++)
        sum->at[i] = i == 0 ? 1 : i == 1 ? (float)(1 << node) : step * (float)(i % 5);
}

/* A sum of distinct members, this one among them, all at this step. */
static bool sum_is_right(const struct sum *sum, uint32_t node, float step)
{
    uint32_t members = (uint32_t)sum->at[1], count = 0;
    for (uint32_t bit = 0; bit < GROWTH_NODES; bit++)
        count += members >> bit & 1;
    bool right = count == (uint32_t)sum->at[0] && (members >> node & 1);
    for (size_t i = 2; i < FLOATS; i++)
        right &= sum->at[i] == (float)count * step * (float)(i % 5);
    return right;
}

static void fill_state(float *state, uint64_t step)
{
    for (size_t i = 0; i < STATE; i++)
        state[i] = (float)(step * 3 + i % 17);
}

struct player {
    struct growth *g;
    struct team *team;
    struct kv kv;
    float step;
    bool agreed;
    uint32_t calls;
};

static int call_team(struct player *p, enum team_kind kind, enum reduce_kind reduce, float *x,
                     size_t n)
{
    const struct team_call call = {
        .kind = kind,
        .channel = 1,
        .x = x,
        .n = n,
        .algorithm = p->g->algorithm,
        .pinned = true,
        .config = {.chunk = p->g->chunk, .reduction = {.kind = reduce}},
    };
    int rc = team_run(p->team, &call);
    if (rc == ERR_VIEW)
        p->agreed = false;
    return rc;
}

/* The members continue with the earliest step that one of them lacks. */
static int agree_on_step(struct player *p)
{
    float step = p->step;
    int rc = call_team(p, TEAM_ALLREDUCE, REDUCE_MIN, &step, 1);
    if (rc != OK)
        return rc;
    p->agreed = true;
    p->step = step;
    return OK;
}

/* The first rank publishes what follows from the step. A version that exists has the same bytes. */
static int publish_state(struct player *p)
{
    float state[STATE];
    size_t rank;
    uint64_t step = (uint64_t)p->step;
    fill_state(state, step + 1);
    if (team_size(p->team, &rank) == 0 || rank > 0)
        return OK;
    int rc = kv_update(&p->kv, "state", step, state, sizeof state, WORLD_FOREVER, NULL);
    return rc == ERR_USAGE ? OK : rc; /* it holds a newer one: the step is repeated */
}

/* The newest state that a member holds, if there is one yet. */
static int read_state(struct player *p)
{
    struct kv_value *value;
    float state[STATE];
    const struct kv_want want = {.key = "state",
                                 .version = KV_NEWEST,
                                 .deadline = world_now(p->team->world) + 5 * WORLD_SECOND};
    int rc = kv_get(&p->kv, &want, &value, NULL);
    if (rc != OK)
        return rc == ERR_NOT_FOUND ? OK : rc;
    p->g->from[p->team->world->self] = value->meta.version;
    fill_state(state, value->meta.version);
    p->g->wrong += memcmp(value->data, state, sizeof state) != 0;
    kv_value_unref(value);
    return OK;
}

static int take_step(struct player *p)
{
    uint32_t node = p->team->world->self;
    struct sum sum;
    fill_sum(&sum, node, p->step);
    int rc = call_team(p, TEAM_ALLREDUCE, REDUCE_SUM, sum.at, FLOATS);
    if (rc != OK)
        return rc;
    p->g->wrong += !sum_is_right(&sum, node, p->step);
    p->g->right[node]++;
    rc = publish_state(p);
    p->step++;
    return rc;
}

/* One member at a time has something for all. */
static int send_around(struct player *p)
{
    float x = p->step;
    size_t rank;
    if (team_size(p->team, &rank) == 0)
        return ERR_DRIVER;
    int rc = call_team(p, TEAM_BROADCAST, REDUCE_SUM, &x, 1);
    p->g->wrong += rc == OK && x != p->step;
    return rc;
}

static int play_steps(struct player *p)
{
    struct growth *g = p->g;
    struct world *w = p->team->world;
    bool late = group_first_view(&p->team->group)->number > 1;
    int rc = OK;
    p->agreed = !late;
    p->step = late ? 1e6f : 0;
    if (late)
        rc = read_state(p);
    while (rc == OK && (!p->agreed || p->step < (float)g->leave_in[w->self])) {
        size_t rank, size = team_size(p->team, &rank);
        g->most = size > g->most ? size : g->most;
        rc = world_sleep(w, world_now(w) + (int64_t)growth_draw(g, 20 + w->self, p->calls++, 2000) *
                                               (GROWTH_MS / 1000));
        if (rc == OK && !p->agreed)
            rc = agree_on_step(p);
        else if (rc == OK && (uint32_t)p->step % 4 == 3)
            rc = send_around(p);
        if (rc == OK && p->agreed)
            rc = take_step(p);
        if (rc == ERR_VIEW)
            rc = OK;
    }
    if (rc == OK && p->step >= STEPS) {
        size_t rank;
        g->last = team_size(p->team, &rank);
        /* A leaver interrupts the call of the others: this last one is needed by none. */
        float none = 0;
        int last = call_team(p, TEAM_ALLREDUCE, REDUCE_SUM, &none, 1);
        rc = last == ERR_CANCELLED ? last : OK;
    }
    return rc;
}

static int play_with_store(struct growth *g, struct team *team)
{
    struct player *p = calloc(1, sizeof *p);
    const struct kv_options options = {0};
    if (!p)
        return ERR_NOMEM;
    *p = (struct player){.g = g, .team = team};
    int rc = kv_start(&p->kv, &team->group, &options);
    if (rc == OK) {
        rc = play_steps(p);
        kv_stop(&p->kv);
    }
    free(p);
    return rc;
}

static struct growth growth_of(uint64_t seed)
{
    struct growth g = {
        .first = 3,
        .chunk = 8 + seed % 5 * 20,
        .algorithm = (enum coll_algorithm)(seed % COLL_ALGORITHMS),
        .seed = seed,
        .cluster = "node { count: 6 } link { mbit: 100 latency_us: 100 } ",
        .play = play_with_store,
    };
    growth_draw_change(&g, 20, STEPS);
    return g;
}

static void test_team_collectives_grow_and_shrink(void **state)
{
    (void)state;
    static const struct members no_members;
    uint32_t read = 0;
    for (uint64_t seed = 1; seed <= 100 / GROWTH_LESS; seed++) {
        struct growth g = growth_of(seed);
        growth_run(&g);
        growth_expect_end(&g, no_members);
        for (uint32_t node = 0; node < 3; node++) /* from the first step to its last */
            assert_true(g.right[node] >= (g.leave_in[node] < STEPS ? g.leave_in[node] : STEPS));
        for (uint32_t node = 3; node < GROWTH_NODES; node++)
            read += g.from[node] > 0;
        growth_expect_size(&g);
    }
    print_message("%u joiners read the state\n", read);
    assert_true(read > 150 / GROWTH_LESS);
}

static void test_team_members_die_while_it_grows(void **state)
{
    (void)state;
    enum { RUNS = 100 / GROWTH_LESS };
    uint32_t grew = 0;
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        char cluster[200];
        struct growth g = growth_of(seed);
        uint32_t a = growth_draw(&g, 6, 0, GROWTH_NODES);
        snprintf(cluster, sizeof cluster,
                 "node { count: 6 } link { mbit: 50 latency_us: 100 loss: %s } "
                 "fault { at: %.6f kill: %u }",
                 seed % 3 ? "0" : "0.02", 0.04 + 0.0001 * growth_draw(&g, 6, 2, 1000), a);
        g.cluster = cluster;
        growth_run(&g);
        growth_expect_end(&g, members_only(a));
        grew += g.most == 6;
    }
    print_message("%u runs, %u in which six were there\n", RUNS, grew);
    assert_true(grew > RUNS / 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_team_collectives_grow_and_shrink),
        cmocka_unit_test(test_team_members_die_while_it_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
