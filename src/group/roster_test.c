/* The roster: members, lost workers, and the exchanges of each lane. */
#include "group/roster_story.h"

/* ---- who is in ---- */

static void test_roster_forms_view_when_all_joined(void **state)
{
    struct story *s = *state;
    story_init(s, 3, true);
    assert_string_equal(joins(s, 2), "join 2");
    assert_string_equal(joins(s, 0), "join 0");
    assert_int_equal(s->roster.view.number, 0);
    assert_string_equal(joins(s, 1), "join 1; view 1: 0 1 2");
    assert_int_equal(s->roster.view.incarnation, 4);
    assert_string_equal(s->roster.view.address[0], "host0:7000"); /* sorted with their numbers */
    assert_string_equal(s->roster.view.address[1], "host1:7000");
    assert_string_equal(s->roster.view.address[2], "host2:7000");
}

static void test_roster_ignores_strangers(void **state)
{
    struct story *s = *state;
    form(s, 2, true);
    assert_string_equal(beats(s, 7, 1, true), "");
    assert_string_equal(leaves(s, 7), "");
    assert_string_equal(on_peer_down(s, 7), "");
    assert_string_equal(reports(s, 7, 1, 0, 99), "");
    assert_string_equal(ticks(s, 1 * MS), "");
    assert_string_equal(reports(s, 0, 1, 0, 3), "");
    assert_string_equal(reports(s, 1, 1, 0, 3), "");
    assert_string_equal(reports(s, ROSTER_DRIVER, 1, 0, 3), "go 0.1: 3 from driver");
}

static void test_roster_refuses_late_or_second_join(void **state)
{
    struct story *s = *state;
    story_init(s, 2, true);
    joins(s, 0);
    assert_string_equal(joins(s, 0), "drop 0");
    assert_string_equal(joins(s, VIEW_MEMBERS_MAX), "drop 1024"); /* no room in sets of members */
    assert_string_equal(joins(s, 1), "join 1; view 1: 0 1");
    assert_string_equal(joins(s, 2), "drop 2");
}

static void test_roster_death_before_first_view(void **state)
{
    struct story *s = *state;
    story_init(s, 2, true);
    joins(s, 0);
    assert_string_equal(on_peer_down(s, 0), "dead 0; drop 0");
    assert_string_equal(joins(s, 1), "join 1");
    assert_string_equal(joins(s, 0), "drop 0"); /* once out, never in again */
    assert_string_equal(joins(s, 2), "join 2; view 1: 1 2");
}

static void test_roster_every_loss_makes_a_view(void **state)
{
    struct story *s = *state;
    form(s, 4, true);
    assert_string_equal(on_peer_down(s, 2), "dead 2; drop 2; view 2: 0 1 3");
    assert_string_equal(on_peer_down(s, 2), "");
    assert_string_equal(leaves(s, 2), "");
    assert_string_equal(leaves(s, 0), "leave 0; drop 0; view 3: 1 3");
    assert_string_equal(on_peer_down(s, 0), "");
    assert_string_equal(joins(s, 2), "drop 2");
    assert_string_equal(on_peer_down(s, 3), "dead 3; drop 3; view 4: 1");
    assert_string_equal(on_peer_down(s, 1), "dead 1; drop 1; view 5:");
}

static const char *leaves_bare(struct story *s, uint32_t node)
{
    return step(s, (struct roster_event){.kind = ROSTER_LEAVE, .node = node, .needs_sync = true});
}

/* All may leave in the same view; with the last of them the model would be lost. */
static void test_roster_keeps_last_model_holder(void **state)
{
    struct story *s = *state;
    form(s, 3, true);
    assert_string_equal(leaves(s, 1), "leave 1; drop 1; view 2: 0 2");
    assert_string_equal(leaves(s, 0), "leave 0; drop 0; view 3: 2");
    assert_string_equal(leaves(s, 2), "");
    assert_string_equal(on_peer_down(s, 2), "dead 2; drop 2; view 4:");
    form(s, 2, true);
    assert_string_equal(leaves(s, 1), "leave 1; drop 1; view 2: 0");
    assert_string_equal(leaves_bare(s, 0), "leave 0; drop 0; view 3:");
}

static void test_roster_drops_silent_member(void **state)
{
    struct story *s = *state;
    form(s, 2, true);
    s->now = 600 * MS;
    beats(s, 1, 0, false);
    assert_string_equal(ticks(s, SILENCE), ""); /* not longer than allowed */
    assert_string_equal(ticks(s, SILENCE + 1), "cut 0; drop 0; view 2: 1");
    assert_string_equal(beats(s, 0, 5, true), ""); /* its message is too late now */
    assert_string_equal(ticks(s, SILENCE + 600 * MS), "");
    assert_string_equal(ticks(s, SILENCE + 600 * MS + 1), "cut 1; drop 1; view 3:");
}

static void test_roster_drops_two_in_one_tick(void **state)
{
    struct story *s = *state;
    form(s, 3, true);
    s->now = SILENCE;
    beats(s, 1, 0, false);
    ticks(s, SILENCE + 1);
    /* The orders speak of the last view, in which neither is; it goes out as often as it changed.
     */
    assert_string_equal(s->text, "cut 0; drop 0; view 3: 1; cut 2; drop 2; view 3: 1");
}

static void beat_for(struct story *s, uint32_t node, int64_t until, bool busy, uint64_t steps)
{
    for (uint64_t i = 0; s->now < until; i++) {
        s->now += 250 * MS;
        assert_string_equal(beats(s, node, 10 + (steps ? i / steps : 0), busy), "");
        assert_string_equal(ticks(s, s->now), "");
    }
}

static void test_roster_drops_hung_member(void **state)
{
    struct story *s = *state;
    form(s, 1, true);
    beat_for(s, 0, STALL + 250 * MS, true, 0); /* its tenth step begins at the first beat */
    s->now += 250 * MS;
    assert_string_equal(beats(s, 0, 10, true), "");
    assert_string_equal(ticks(s, s->now), "hung 0; drop 0; view 2:");
}

static void test_roster_keeps_slow_member(void **state)
{
    struct story *s = *state;
    form(s, 1, true);
    beat_for(s, 0, 20 * STALL, true, 119); /* a step in 29.75 s */
    assert_int_equal(s->roster.view.number, 1);
}

static void test_roster_keeps_waiting_member(void **state)
{
    struct story *s = *state;
    form(s, 1, true);
    beat_for(s, 0, 3 * STALL, false, 0);
    /* Busy from now on: the time for a step counts from here. */
    beat_for(s, 0, 4 * STALL, true, 0);
    s->now += 250 * MS;
    beats(s, 0, 10, true);
    assert_string_equal(ticks(s, s->now), "hung 0; drop 0; view 2:");
}

/* Memory is touched and code is compiled in it: a first step may take long. */
static void test_roster_first_step_may_take_longer(void **state)
{
    struct story *s = *state;
    form(s, 1, true);
    for (int i = 0; i < 20 * (int)(STALL / (250 * MS)); i++) {
        s->now += 250 * MS;
        beats(s, 0, 1, true);
        assert_string_equal(ticks(s, s->now), "");
    }
    s->now += 500 * MS;
    beats(s, 0, 1, true);
    assert_string_equal(ticks(s, s->now), "hung 0; drop 0; view 2:");
}

/* A worker with steps of a minute hangs after eight minutes, not after half a one. */
static void test_roster_stall_limit_follows_steps(void **state)
{
    struct story *s = *state;
    form(s, 1, true);
    beat_for(s, 0, 600 * 1000 * MS, true, 119); /* a step in 29.75 s */
    uint64_t at = 10 + (uint64_t)(s->now / (250 * MS) - 1) / 119;
    int64_t until = s->now + 7 * 29750 * MS;
    while (s->now < until) {
        s->now += 250 * MS;
        assert_string_equal(beats(s, 0, at, true), "");
        assert_string_equal(ticks(s, s->now), "");
    }
    s->now += 2 * 29750 * MS;
    beats(s, 0, at, true);
    assert_string_equal(ticks(s, s->now), "hung 0; drop 0; view 2:");
}

static const char *driver_paused(struct story *s, int64_t now, int64_t pause)
{
    s->now = now;
    return step(s, (struct roster_event){.kind = ROSTER_TICK, .node = UINT32_MAX, .pause = pause});
}

static void test_roster_driver_pause_drops_no_member(void **state)
{
    struct story *s = *state;
    form(s, 2, true);
    assert_string_equal(driver_paused(s, 10 * SILENCE, 10 * SILENCE), "");
    assert_string_equal(ticks(s, 11 * SILENCE + 1),
                        "cut 0; drop 0; view 3:; cut 1; drop 1; view 3:");
}

static const char *lose_link(struct story *s, uint32_t node, uint32_t other)
{
    return step(s, (struct roster_event){.kind = ROSTER_LOST, .node = node, .other = other});
}

static void test_roster_lost_link_drops_one(void **state)
{
    struct story *s = *state;
    form(s, 3, false);
    assert_string_equal(lose_link(s, 2, 1), "");
    assert_string_equal(lose_link(s, 1, 2), "");
    for (int i = 0; i < 4; i++) {
        s->now += SILENCE / 4;
        for (uint32_t node = 0; node < 3; node++)
            beats(s, node, 1, false);
        assert_string_equal(ticks(s, s->now), "");
    }
    assert_string_equal(ticks(s, s->now + 1), "cut 2; drop 2; view 2: 0 1");
    assert_string_equal(ticks(s, s->now + 2), ""); /* the one that 1 could not receive from is
                                                      lost */
}

/* A link that breaks later, and whose other end dies, does not make it forget the first one. */
static void test_roster_remembers_each_lost_link(void **state)
{
    struct story *s = *state;
    form(s, 4, false);
    assert_string_equal(lose_link(s, 1, 0), "");
    assert_string_equal(lose_link(s, 0, 1), "");
    s->now += SILENCE / 2;
    for (uint32_t node = 0; node < 4; node++)
        beats(s, node, 1, false);
    for (uint32_t node = 0; node < 3; node++)
        assert_string_equal(lose_link(s, node, 3), "");
    on_peer_down(s, 3);
    s->now += SILENCE / 2;
    for (uint32_t node = 0; node < 3; node++)
        beats(s, node, 1, false);
    assert_string_equal(ticks(s, s->now), "");
    assert_string_equal(ticks(s, s->now + 1), "cut 1; drop 1; view 3: 0 2");
    assert_string_equal(ticks(s, s->now + SILENCE / 2), "");
}

/* And the roster does not remove, one after another, those that could receive from all but it. */
static void test_roster_drops_unreachable_member(void **state)
{
    struct story *s = *state;
    form(s, 4, false);
    for (uint32_t node = 1; node < 4; node++) {
        assert_string_equal(lose_link(s, node, 0), "");
        assert_string_equal(lose_link(s, 0, node), "");
    }
    for (int i = 0; i < 4; i++) {
        s->now += SILENCE / 4;
        for (uint32_t node = 0; node < 4; node++)
            beats(s, node, 1, false);
        assert_string_equal(ticks(s, s->now), "");
    }
    assert_string_equal(ticks(s, s->now + 1), "cut 0; drop 0; view 2: 1 2 3");
    assert_string_equal(ticks(s, s->now + 2), "");
}

/* ---- lanes ---- */

static void test_lane_no_member_is_ahead(void **state)
{
    struct story *s = *state;
    form(s, 3, false);
    assert_string_equal(reports(s, 2, 1, 0, 5), "");
    assert_string_equal(reports(s, 0, 1, 0, 5), "");
    assert_string_equal(reports(s, 1, 1, 0, 5), "go 0.1: 5 from 0");
}

static void test_lane_one_member_is_ahead(void **state)
{
    struct story *s = *state;
    form(s, 4, false);
    on_peer_down(s, 1);
    reports(s, 0, 2, 0, 5);
    reports(s, 3, 2, 0, 5);
    assert_string_equal(reports(s, 2, 2, 0, 6), "go 0.2: 6 from 2 to 0 3");
}

static void test_lane_lowest_of_several_is_holder(void **state)
{
    struct story *s = *state;
    form(s, 4, true);
    reports(s, 3, 1, 0, 6);
    reports(s, 2, 1, 0, 6);
    reports(s, 1, 1, 0, 5);
    reports(s, 0, 1, 0, 5);
    assert_string_equal(reports(s, ROSTER_DRIVER, 1, 0, 5), "go 0.1: 6 from 2 to 0 1 driver");
}

static void test_lane_driver_is_ahead(void **state)
{
    struct story *s = *state;
    form(s, 3, true);
    reports(s, ROSTER_DRIVER, 1, 0, 8);
    reports(s, 0, 1, 0, 7);
    reports(s, 1, 1, 0, 8);
    assert_string_equal(reports(s, 2, 1, 0, 7), "go 0.1: 8 from driver to 0 2");
}

static void test_lane_without_the_driver(void **state)
{
    struct story *s = *state;
    form(s, 2, false);
    assert_string_equal(reports(s, ROSTER_DRIVER, 1, 0, 99), "");
    assert_string_equal(reports(s, 0, 1, 0, 1), "");
    assert_string_equal(reports(s, 1, 1, 0, 0), "go 0.1: 1 from 0 to 1");
}

static void test_lane_before_the_first_exchange(void **state)
{
    struct story *s = *state;
    form(s, 2, true);
    on_peer_down(s, 0);
    reports(s, 1, 2, 0, 0);
    assert_string_equal(reports(s, ROSTER_DRIVER, 2, 0, 0), "go 0.2: 0 from driver");
}

static void test_lane_duplicate_reports(void **state)
{
    struct story *s = *state;
    form(s, 2, false);
    assert_string_equal(reports(s, 0, 1, 0, 4), "");
    assert_string_equal(reports(s, 0, 1, 0, 4), "");
    assert_string_equal(reports(s, 1, 1, 0, 4), "go 0.1: 4 from 0");
    assert_string_equal(reports(s, 1, 1, 0, 4), ""); /* decided once */
    assert_string_equal(reports(s, 0, 1, 0, 5), "");
}

static void test_lane_death_restarts_reports(void **state)
{
    struct story *s = *state;
    form(s, 3, true);
    reports(s, ROSTER_DRIVER, 1, 0, 5);
    reports(s, 2, 1, 0, 6);
    assert_string_equal(on_peer_down(s, 2), "dead 2; drop 2; view 2: 0 1");
    assert_string_equal(reports(s, 0, 1, 0, 6), ""); /* of the old view: too late */
    assert_string_equal(reports(s, 1, 1, 0, 6), "");
    assert_string_equal(reports(s, ROSTER_DRIVER, 2, 0, 5), "");
    assert_string_equal(reports(s, 0, 2, 0, 5), "");
    assert_string_equal(reports(s, 2, 2, 0, 6), ""); /* reports of the dead do not count */
    assert_string_equal(reports(s, 1, 2, 0, 5), "go 0.2: 5 from driver");
}

static void test_lane_death_after_decision(void **state)
{
    struct story *s = *state;
    form(s, 3, false);
    reports(s, 0, 1, 0, 5);
    reports(s, 1, 1, 0, 6);
    assert_string_equal(reports(s, 2, 1, 0, 5), "go 0.1: 6 from 1 to 0 2");
    on_peer_down(s, 1); /* the holder, when 0 has adopted and 2 has not */
    assert_string_equal(reports(s, 0, 2, 0, 6), "");
    assert_string_equal(reports(s, 2, 2, 0, 5), "go 0.2: 6 from 0 to 2");
}

static void test_lanes_are_decided_separately(void **state)
{
    struct story *s = *state;
    form(s, 2, false);
    reports(s, 0, 1, 0, 3);
    reports(s, 0, 1, 7, 10);
    assert_string_equal(reports(s, 1, 1, 7, 11), "go 7.1: 11 from 1 to 0");
    assert_string_equal(reports(s, 1, 1, ROSTER_LANES_MAX, 1), "");
    assert_string_equal(reports(s, 1, 1, UINT32_MAX, 1), "");
    assert_string_equal(reports(s, 1, 1, 0, 3), "go 0.1: 3 from 0");
}

static void test_lane_go_round_trips(void **state)
{
    (void)state;
    struct lane_go go = {.view = 3, .lane = 2, .completed = UINT64_C(1) << 40, .holder = 9}, out;
    members_add(&go.lacking, 0);
    members_add(&go.lacking, 1000);
    go.driver_lacks = true;
    struct buf bytes = {0};
    lane_go_encode(&go, &bytes);
    struct byte_reader in = {bytes.data, bytes.len, false};
    assert_int_equal(lane_go_decode(&in, &out), OK);
    assert_true(out.view == 3 && out.lane == 2 && out.completed == UINT64_C(1) << 40);
    assert_true(out.holder == 9 && out.driver_lacks);
    assert_memory_equal(&out.lacking, &go.lacking, sizeof out.lacking);
    for (size_t len = 0; len < bytes.len; len++) {
        in = (struct byte_reader){bytes.data, len, false};
        assert_int_equal(lane_go_decode(&in, &out), ERR_PROTOCOL);
    }
    buf_put_u8(&bytes, 1);
    in = (struct byte_reader){bytes.data, bytes.len, false};
    assert_int_equal(lane_go_decode(&in, &out), ERR_PROTOCOL);
    buf_release(&bytes);
}

/* ---- whatever happens ---- */

enum { SEQUENCES = 10000, EVENTS = 100, NODES_MAX = 6, LANES = 2 };

/* The test's own model of the roster. */
struct witness {
    struct story s;
    uint64_t seed, draws;
    uint32_t nodes, view;
    bool driver_takes_part;
    bool in[NODES_MAX], out[NODES_MAX]; /* neither: not joined yet */
    bool reported[LANES][NODES_MAX + 1], decided[LANES];
    uint64_t at[LANES][NODES_MAX + 1]; /* [NODES_MAX]: the driver */
    size_t views, decisions;
};

static uint32_t draw_below(struct witness *w, uint32_t n)
{
    return (uint32_t)rng_below(w->seed, 1, w->draws++, n);
}

static bool takes_part(const struct witness *w, uint32_t i)
{
    return i < NODES_MAX ? w->in[i] : w->driver_takes_part;
}

static void see_view(struct witness *w)
{
    const struct view *view = &w->s.roster.view;
    assert_true(view->number >= w->view);
    if (view->number == w->view)
        return; /* repeated: two were lost at once */
    w->view = view->number;
    w->views++;
    size_t count = 0;
    for (uint32_t node = 0; node < NODES_MAX; node++) {
        int rank = view_rank(view, node);
        assert_int_equal(rank >= 0, w->in[node]);
        if (rank >= 0)
            assert_int_equal(rank, count++);
    }
    assert_int_equal(view->count, count);
    memset(w->reported, 0, sizeof w->reported);
    memset(w->decided, 0, sizeof w->decided);
}

static void see_go(struct witness *w, const struct lane_go *go)
{
    assert_true(go->lane < LANES && go->view == w->view && !w->decided[go->lane]);
    w->decided[go->lane] = true;
    w->decisions++;
    uint64_t most = 0;
    for (uint32_t i = 0; i <= NODES_MAX; i++)
        if (takes_part(w, i)) {
            assert_true(w->reported[go->lane][i]);
            most = w->at[go->lane][i] > most ? w->at[go->lane][i] : most;
        }
    assert_int_equal(go->completed, most);
    for (uint32_t i = 0; i <= NODES_MAX; i++) {
        bool lacks = takes_part(w, i) && w->at[go->lane][i] < most;
        bool driver = i == NODES_MAX;
        assert_int_equal(driver ? go->driver_lacks : members_has(&go->lacking, i), lacks);
        if (go->holder == (driver ? ROSTER_DRIVER : i))
            assert_true(takes_part(w, i) && !lacks);
    }
    assert_true(go->holder == ROSTER_DRIVER || go->holder < NODES_MAX);
}

/* First the members and removals, then the views and decisions that must agree with them. */
static void see_orders(struct witness *w)
{
    const struct roster_orders *orders = &w->s.orders;
    bool view = false;
    uint32_t before = w->view;
    for (size_t i = 0; i < orders->count; i++) {
        const struct roster_order *o = &orders->at[i];
        view |= o->kind == ORDER_VIEW;
        if (o->kind != ORDER_MEMBER)
            continue;
        assert_true(o->node < NODES_MAX);
        bool joined = strcmp(o->what, "join") == 0;
        assert_false(w->out[o->node]);
        assert_int_equal(w->in[o->node], !joined);
        w->in[o->node] = joined;
        w->out[o->node] = !joined;
    }
    if (view)
        see_view(w);
    assert_int_equal(w->s.roster.view.number, w->view); /* no view without an order to send it */
    assert_int_equal(view, w->view > before);
    for (size_t i = 0; i < orders->count; i++)
        if (orders->at[i].kind == ORDER_LANE_GO)
            see_go(w, &orders->at[i].go);
}

/* Complete reports must have been decided. */
static void see_decided(const struct witness *w)
{
    for (int lane = 0; lane < LANES; lane++) {
        size_t text = 0, all = 0;
        for (uint32_t i = 0; i <= NODES_MAX; i++) {
            all += takes_part(w, i);
            text += takes_part(w, i) && w->reported[lane][i];
        }
        if (w->view > 0 && text > 0)
            assert_int_equal(w->decided[lane], text == all);
    }
}

static void report_something(struct witness *w)
{
    uint32_t i = draw_below(w, NODES_MAX + 1), lane = draw_below(w, LANES);
    uint64_t completed = 3 + draw_below(w, 2);
    uint32_t view = w->view - (w->view > 0 && draw_below(w, 5) == 0);
    if (view == w->view && view > 0 && takes_part(w, i) && !w->decided[lane]) {
        w->reported[lane][i] = true;
        w->at[lane][i] = completed;
    }
    reports(&w->s, i == NODES_MAX ? ROSTER_DRIVER : i, view, lane, completed);
}

static void something_happens(struct witness *w)
{
    uint32_t node = draw_below(w, NODES_MAX), dice = draw_below(w, 100);
    if (dice < 15 || (w->view == 0 && dice < 50))
        joins(&w->s, node);
    else if (dice < 18)
        leaves(&w->s, node);
    else if (dice < 21)
        on_peer_down(&w->s, node);
    else if (dice < 40)
        beats(&w->s, node, draw_below(w, 3), draw_below(w, 2));
    else if (dice < 45)
        ticks(&w->s, w->s.now + 100 * MS * (int64_t)draw_below(w, 8));
    else
        report_something(w);
}

static void test_roster_random_histories(void **state)
{
    (void)state;
    struct witness *w = malloc(sizeof *w);
    assert_non_null(w);
    size_t views = 0, decisions = 0;
    for (uint64_t seed = 1; seed <= SEQUENCES; seed++) {
        memset((char *)w + sizeof w->s, 0, sizeof *w - sizeof w->s);
        w->seed = seed;
        w->nodes = 1 + draw_below(w, NODES_MAX - 1);
        w->driver_takes_part = draw_below(w, 2);
        story_init(&w->s, w->nodes, w->driver_takes_part);
        for (int i = 0; i < EVENTS; i++) {
            something_happens(w);
            see_orders(w);
            see_decided(w);
        }
        views += w->views;
        decisions += w->decisions;
    }
    print_message("%d histories: %zu views, %zu decisions\n", SEQUENCES, views, decisions);
    assert_true(views > 2 * SEQUENCES && decisions > SEQUENCES / 2);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roster_forms_view_when_all_joined),
        cmocka_unit_test(test_roster_ignores_strangers),
        cmocka_unit_test(test_roster_refuses_late_or_second_join),
        cmocka_unit_test(test_roster_death_before_first_view),
        cmocka_unit_test(test_roster_every_loss_makes_a_view),
        cmocka_unit_test(test_roster_keeps_last_model_holder),
        cmocka_unit_test(test_roster_drops_silent_member),
        cmocka_unit_test(test_roster_drops_two_in_one_tick),
        cmocka_unit_test(test_roster_drops_hung_member),
        cmocka_unit_test(test_roster_keeps_slow_member),
        cmocka_unit_test(test_roster_keeps_waiting_member),
        cmocka_unit_test(test_roster_first_step_may_take_longer),
        cmocka_unit_test(test_roster_stall_limit_follows_steps),
        cmocka_unit_test(test_roster_driver_pause_drops_no_member),
        cmocka_unit_test(test_roster_lost_link_drops_one),
        cmocka_unit_test(test_roster_remembers_each_lost_link),
        cmocka_unit_test(test_roster_drops_unreachable_member),
        cmocka_unit_test(test_lane_no_member_is_ahead),
        cmocka_unit_test(test_lane_one_member_is_ahead),
        cmocka_unit_test(test_lane_lowest_of_several_is_holder),
        cmocka_unit_test(test_lane_driver_is_ahead),
        cmocka_unit_test(test_lane_without_the_driver),
        cmocka_unit_test(test_lane_before_the_first_exchange),
        cmocka_unit_test(test_lane_duplicate_reports),
        cmocka_unit_test(test_lane_death_restarts_reports),
        cmocka_unit_test(test_lane_death_after_decision),
        cmocka_unit_test(test_lanes_are_decided_separately),
        cmocka_unit_test(test_lane_go_round_trips),
        cmocka_unit_test(test_roster_random_histories),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
