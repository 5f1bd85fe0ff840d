/* Transfers in simulated clusters, with both back ends: the stories of all worlds, then those that
 * need virtual time: how long transfers take, and that a node that dies, at any message, leaves no
 * other waiting. */
#include "sim/scene.h"

#include "sweep_stride.h"
#include "transfer_stories.h"

#define NS_PER_BYTE 8 /* a gigabit */
#define LATENCY     (100 * US)

/* Not a multiple of the cycles of two and five that the seeds have. */
enum { STRIDE = SWEEP_STRIDE(7, 3) };

struct stage {
    struct scene scene;
    int (*main)(struct stage *stage, struct world *w);
    suite_main story;
    size_t n; /* floats */
    uint64_t seed;
    int status[8]; /* of transfers */
};

static int stage_worker(struct scene *s, struct world *w)
{
    struct stage *stage = (struct stage *)s;
    return s->rc[w->self] = stage->story ? stage->story(w) : stage->main(stage, w);
}

/* Plays it; nodes that are not killed must end well. */
static void play_cluster(struct stage *stage, const char *cluster, uint32_t workers)
{
    struct scene *s = &stage->scene;
    s->cluster = cluster;
    s->workers = workers;
    s->worker = stage_worker;
    s->seed = stage->seed;
    int rc = scene_play(s);
    for (uint32_t i = 0; i < workers; i++)
        if (s->rc[i] != OK && !(s->kill_send && s->kill_node == i))
            fail_msg("seed %u, message %u of node %u: node %u ends with %d: line %d",
                     (unsigned)stage->seed, (unsigned)s->kill_send, s->kill_node, i, s->rc[i],
                     s->rc[i] - SUITE_FAILED);
    if (rc != OK)
        fail_msg("%s", s->log);
}

static const char lan[] = "node { count: 8 } link { mbit: 1000 latency_us: 100 }";

static void play_story(suite_main story)
{
    static const char lossy[] =
        "node { count: 3 } link { mbit: 10000 latency_us: 2000 loss: 0.02 }";
    struct stage stage = {.story = story};
    play_cluster(&stage, lan, STORY_NODES);
    play_cluster(&stage, lossy, STORY_NODES);
}

static void test_transfer_all_lengths_both_ways(void **state)
{
    (void)state;
    play_story(story_lengths);
}

static void test_transfer_coded_values(void **state)
{
    (void)state;
    play_story(story_coded);
}

static void test_transfer_in_pieces_of_given_length(void **state)
{
    (void)state;
    play_story(story_pieces);
}

static void test_transfer_headers_alone(void **state)
{
    (void)state;
    play_story(story_notices);
}

static void test_transfer_sums_on_arrival(void **state)
{
    (void)state;
    play_story(story_add);
}

static void test_transfer_unaccepted_blocks_nothing(void **state)
{
    (void)state;
    play_story(story_held);
}

static void test_transfer_cancel_by_either_side(void **state)
{
    (void)state;
    play_story(story_cancel);
}

static void test_transfer_ends_with_its_view(void **state)
{
    (void)state;
    play_story(story_abort);
}

static void test_transfer_to_self(void **state)
{
    (void)state;
    play_story(story_self);
}

static void test_transfer_peer_that_leaves_is_noticed(void **state)
{
    (void)state;
    play_story(story_ended);
}

/* ---- storms ---- */

static int run_storm(struct stage *stage, struct world *w)
{
    return storm_play(w, stage->scene.workers, stage->seed);
}

static void test_transfer_storms(void **state)
{
    (void)state;
    static const char cluster[] =
        "node { count: 2 jitter: 0.5 } node { speed: 0.1 } node { count: 3 speed: 3 }"
        "link { mbit: 2000 latency_us: 700 loss: 0.01 } "
        "delay { from: 1 to: 0 seconds: 0.03 nth: 5 } fault { at: 10.02 clog: 1 factor: 9 }";
    for (uint64_t seed = 1; seed <= 20; seed += STRIDE)
        play_cluster(&(struct stage){.main = run_storm, .seed = seed}, seed % 2 ? cluster : lan,
                     2 + (uint32_t)seed % 5);
}

/* ---- time ---- */

/* From all others to node 0, `status[0]` at once from each; phantoms. */
static int to_one(struct stage *stage, struct world *w)
{
    struct scene *s = &stage->scene;
    size_t each = (size_t)stage->status[0];
    struct transfer p[16] = {0};
    struct transfers ps;
    size_t all = w->self ? each : each * (s->workers - 1);
    transfers_init(&ps, w, NULL, 0);
    for (size_t k = 0; w->self && k < each; k++)
        transfer_send(&p[k], &ps, &(struct transfer_out){.n = stage->n});
    for (size_t begun = 0, ended = 0; ended < all;) {
        struct transfer_wake got;
        CHECK(transfers_next(&ps, NULL, 0, WORLD_FOREVER, &got) == OK);
        CHECK(!got.ended || (++ended && got.ended->status == OK));
        if (got.header)
            transfer_accept(&p[begun++], &ps, got.header, &(struct transfer_in){.n = stage->n});
    }
    s->time[w->self] = world_now(w) - BEGIN;
    transfers_close(&ps);
    return OK;
}

static int64_t time_of(size_t n, uint32_t senders, size_t each)
{
    struct stage stage = {.main = to_one, .n = n, .status = {(int)each}};
    play_cluster(&stage, lan, senders + 1);
    return stage.scene.time[0];
}

static int64_t flow_ns(size_t bytes)
{
    return (int64_t)(bytes + OVERHEAD) * NS_PER_BYTE;
}

static void assert_takes(int64_t ns, int64_t expected, double within)
{
    double off = (double)(ns - expected) / (double)expected;
    if (off < -1e-9 || off > within)
        fail_msg("it takes %.6f s, not %.6f s", world_seconds(ns), world_seconds(expected));
}

/* After the header and the grant, the link is never idle. */
static void test_transfer_takes_round_trip_and_line_time(void **state)
{
    (void)state;
    static const size_t pieces[] = {1, 2, 7, 8, 9, 64, 501};
    int64_t there = flow_ns(TRANSFER_HEAD) + LATENCY, go = flow_ns(4) + LATENCY;
    assert_int_equal(time_of(0, 1, 1), there + go - LATENCY); /* the receiver: when it has left */
    assert_int_equal(time_of(1, 1, 1), there + go + flow_ns(4) + LATENCY);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        assert_int_equal(time_of(pieces[i] * PIECE, 1, 1),
                         there + go + LATENCY +
                             (int64_t)pieces[i] * flow_ns(PIECE * sizeof(float)));
}

static void test_transfer_several_share_a_link(void **state)
{
    (void)state;
    const size_t n = 100 * PIECE;
    const int64_t line = 100 * flow_ns(PIECE * sizeof(float));
    assert_takes(time_of(n, 1, 1), line, 0.01);
    assert_takes(time_of(n, 1, 2), 2 * line, 0.01);
    assert_takes(time_of(n, 2, 1), 2 * line, 0.01);
    assert_takes(time_of(n, 3, 2), 6 * line, 0.01);
}

/* Both directions of a link; and the ends of two transfers that share it fairly. */
static int both_ways(struct stage *stage, struct world *w)
{
    struct transfers ps;
    struct transfer out[2] = {0}, in[2] = {0};
    uint32_t other = 1 - w->self;
    transfers_init(&ps, w, NULL, 9);
    for (size_t k = 0; k < 2; k++)
        transfer_send(&out[k], &ps,
                      &(struct transfer_out){.to = other, .lane = 9, .n = stage->n / (1 + k)});
    for (size_t k = 0; k < 2; k++) {
        struct message *header;
        CHECK(transfers_await(&ps, other, WORLD_FOREVER, &header) == OK);
        transfer_accept(&in[k], &ps, header, &(struct transfer_in){.n = stage->n / (1 + k)});
    }
    for (size_t k = 2; k-- > 0;) {
        CHECK(transfer_finish(&in[k], WORLD_FOREVER) == OK);
        stage->scene.time[2 * w->self + k] = world_now(w) - BEGIN;
    }
    CHECK(transfer_finish(&out[0], WORLD_FOREVER) == OK);
    CHECK(transfer_finish(&out[1], WORLD_FOREVER) == OK);
    transfers_close(&ps);
    return OK;
}

static void test_transfer_each_direction_has_its_line(void **state)
{
    (void)state;
    struct stage stage = {.main = both_ways, .n = 100 * PIECE};
    const int64_t line = 100 * flow_ns(PIECE * sizeof(float));
    play_cluster(&stage, lan, 2);
    for (size_t node = 0; node < 2; node++) {
        assert_takes(stage.scene.time[2 * node], line + line / 2, 0.01);
        assert_takes(stage.scene.time[2 * node + 1], line, 0.1); /* half as long, half the time */
    }
}

/* ---- death ---- */

enum { SERVED = 2, SERVED_FLOATS = 11 * PIECE };

struct client {
    struct transfer in, out;
    struct range range;
    size_t served;
};

static int client_served(struct stage *stage, struct transfers *ps, struct client *c,
                         const struct transfer_wake *got)
{
    if (got->header) {
        CHECK(c->in.status != POST_PENDING && c->out.status != POST_PENDING);
        transfer_accept(&c->in, ps, got->header,
                        &(struct transfer_in){.x = c->range.x, .n = c->range.n});
    } else if (got->ended->status != OK) {
        CHECK(got->ended->status == ERR_PEER && stage->scene.kill_node == c->in.peer);
    } else if (got->ended == &c->in) {
        CHECK(range_is(&c->range, c->in.peer, c->served, 1));
        send_range(&c->out, ps, c->in.peer, 1, &c->range);
    } else {
        c->served++;
    }
    return OK;
}

/* A server sends back each vector it receives and does not wait for clients that are dead. */
static int serve_echo(struct stage *stage, struct transfers *ps, struct client *client)
{
    for (uint32_t live = stage->scene.workers - 1; live > 0;) {
        const struct wait_for peers = {.kind = WAIT_PEER};
        struct transfer_wake got;
        int rc = transfers_next(ps, &peers, 1, BEGIN + 9 * WORLD_SECOND, &got);
        if (rc != OK)
            return rc;
        if (got.which >= 0) {
            live -= !got.wake.up && client[got.wake.peer].served < SERVED;
            continue;
        }
        struct client *c = &client[got.header ? got.header->from : got.ended->peer];
        rc = client_served(stage, ps, c, &got);
        if (rc != OK)
            return rc;
        live -= got.ended == &c->out && got.ended->status == OK && c->served == SERVED;
    }
    return OK;
}

static int be_the_server(struct stage *stage, struct world *w)
{
    struct client client[3] = {0};
    struct transfers ps;
    transfers_init(&ps, w, NULL, 1);
    for (size_t i = 1; i < 3; i++)
        CHECK(range_new(&client[i].range, SERVED_FLOATS, 0) == OK);
    int rc = serve_echo(stage, &ps, client);
    transfers_close(&ps);
    for (size_t i = 1; i < 3; i++)
        ranges_free(&client[i].range, 1);
    return rc;
}

/* A client's part; how it ends when the server does not live. */
static int be_served(struct world *w, struct transfers *ps, struct range *x, struct range *back)
{
    struct transfer out = {0}, in = {0};
    int rc = OK;
    for (size_t k = 0; rc == OK && k < SERVED; k++) {
        struct message *header;
        range_fill(x, w->self, k);
        send_range(&out, ps, 0, 1, x);
        rc = transfer_finish(&out, BEGIN + 9 * WORLD_SECOND);
        if (rc == OK)
            rc = transfers_await(ps, 0, BEGIN + 9 * WORLD_SECOND, &header);
        if (rc != OK)
            break;
        transfer_accept(&in, ps, header, &(struct transfer_in){.x = back->x, .n = back->n});
        rc = transfer_finish(&in, BEGIN + 9 * WORLD_SECOND);
        CHECK(rc != OK || range_is(back, w->self, k, 1));
    }
    transfers_close(ps);
    return rc;
}

static int serve_and_die(struct stage *stage, struct world *w)
{
    struct transfers ps;
    struct range x, back;
    if (w->self == 0)
        return be_the_server(stage, w);
    transfers_init(&ps, w, NULL, 1);
    CHECK(range_new(&x, SERVED_FLOATS, 0) == OK && range_new(&back, SERVED_FLOATS, 0) == OK);
    int rc = be_served(w, &ps, &x, &back);
    ranges_free(&x, 1), ranges_free(&back, 1);
    stage->status[w->self] = rc;
    bool orphan = stage->scene.kill_send && stage->scene.kill_node == 0;
    return rc == ERR_PEER && orphan ? OK : rc;
}

static void test_transfer_death_at_every_message(void **state)
{
    (void)state;
    for (uint32_t victim = 0; victim < 3; victim++) {
        uint64_t last = 1;
        for (uint64_t k = 0; k <= last; k += k > 0 ? STRIDE : 1 + victim % STRIDE) {
            struct stage stage = {.main = serve_and_die};
            stage.scene.kill_node = victim;
            stage.scene.kill_send = k;
            play_cluster(&stage, lan, 3);
            if (k == 0)
                last = stage.scene.sent;
            for (uint32_t i = 1; victim && i < 3; i++)
                assert_true(i == victim || stage.status[i] == OK);
            if (stage.scene.end > BEGIN + WORLD_SECOND)
                fail_msg("victim %u, message %u: until %.3f s", victim, (unsigned)k,
                         world_seconds(stage.scene.end));
        }
        assert_true(last > 25); /* headers, grants, pieces */
    }
}

/* ---- waiting ---- */

/* Of the task's own events and transfers that are ready, the own events are returned first, and
 * both in the end. */
static int add_own_waits(struct stage *stage, struct world *w)
{
    struct transfers ps;
    struct transfer p = {0};
    struct transfer_wake got;
    const struct wait_for own[5] = {
        {.kind = WAIT_SIGNAL, .signal = 3},
        {.kind = WAIT_SIGNAL, .signal = 4},
        {.kind = WAIT_SIGNAL, .signal = 5},
        {.kind = WAIT_SIGNAL, .signal = 6},
        {.kind = WAIT_MESSAGE, .from = 1, .tag = 77, .mask = UINT64_MAX}};
    (void)stage;
    transfers_init(&ps, w, NULL, 1);
    if (w->self == 1) {
        transfer_send(&p, &ps, &(struct transfer_out){.lane = 1});
        CHECK(suite_send(w, 0, 0, 77, 5) == OK);
        CHECK(transfer_finish(&p, WORLD_FOREVER) == OK);
        transfers_close(&ps);
        return OK;
    }
    CHECK(transfers_next(&ps, own, 5, BEGIN + MS / 20, &got) == ERR_TIMEOUT);
    CHECK(world_sleep(w, BEGIN + MS) == OK);
    world_raise(w, 6);
    CHECK(transfers_next(&ps, own, 5, WORLD_FOREVER, &got) == OK);
    CHECK(got.which == 3 && got.wake.which == 3 && !got.header && !got.ended);
    CHECK(transfers_next(&ps, own + 4, 1, WORLD_FOREVER, &got) == OK);
    CHECK(got.which == 0 && got.wake.msg->tag == 77 && !got.header && !got.ended);
    message_unref(got.wake.msg);
    CHECK(transfers_next(&ps, own, 3, WORLD_FOREVER, &got) == OK && got.header);
    transfer_accept(&p, &ps, got.header, &(struct transfer_in){0});
    CHECK(transfers_next(&ps, own, 3, WORLD_FOREVER, &got) == OK);
    CHECK(got.ended == &p && p.status == OK && p.peer == 1);
    CHECK(transfers_next(&ps, own, 3, BEGIN + 9 * MS, &got) == ERR_TIMEOUT); /* reported once */
    transfers_close(&ps);
    return OK;
}

static void test_transfer_wait_with_own_events(void **state)
{
    (void)state;
    play_cluster(&(struct stage){.main = add_own_waits}, lan, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_all_lengths_both_ways),
        cmocka_unit_test(test_transfer_coded_values),
        cmocka_unit_test(test_transfer_in_pieces_of_given_length),
        cmocka_unit_test(test_transfer_headers_alone),
        cmocka_unit_test(test_transfer_sums_on_arrival),
        cmocka_unit_test(test_transfer_unaccepted_blocks_nothing),
        cmocka_unit_test(test_transfer_cancel_by_either_side),
        cmocka_unit_test(test_transfer_ends_with_its_view),
        cmocka_unit_test(test_transfer_to_self),
        cmocka_unit_test(test_transfer_peer_that_leaves_is_noticed),
        cmocka_unit_test(test_transfer_storms),
        cmocka_unit_test(test_transfer_takes_round_trip_and_line_time),
        cmocka_unit_test(test_transfer_several_share_a_link),
        cmocka_unit_test(test_transfer_each_direction_has_its_line),
        cmocka_unit_test(test_transfer_death_at_every_message),
        cmocka_unit_test(test_transfer_wait_with_own_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
