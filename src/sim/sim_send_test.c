/* Sends posted, in virtual time and worked by hand: a gigabit link carries 125,000 bytes a
 * millisecond, its latency is 100 µs. */
#include "base/fault.h"
#include "sim/scene.h"

#define LATENCY (100 * US)

enum { BYTES = 1000000 - OVERHEAD, BLOCK = WORLD_MESSAGE_MAX }; /* 8 ms; 33,554,752 ns */

#define BLOCK_NS ((BLOCK + OVERHEAD) * INT64_C(8))

/* Until `count` posts have ended; the sheet's time is when that was. */
static int await_ended(struct world *w, struct ended *ended, uint64_t count, int64_t *at)
{
    while (ended->times < count) {
        struct wait_for more = {.kind = WAIT_ENDED, .ended = ended, .seen = ended->times};
        struct wake wake;
        int rc = world_wait(w, &more, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
    *at = world_now(w);
    return OK;
}

/* Phantoms, from 0, of BYTES to each of `to`; when each ended, and when it was there. */
static int timed_sender(struct scene *s, struct world *w, const uint32_t *to, uint32_t n)
{
    struct send send[8];
    struct ended ended = {0};
    int rc = OK;
    for (uint32_t i = 0; rc == OK && i < n; i++) {
        send[i] = (struct send){.to = to[i], .tag = 1, .len = BYTES, .ended = &ended};
        rc = world_post_send(w, &send[i]);
    }
    for (uint32_t i = 0; rc == OK && i < n; i++)
        rc = await_ended(w, &ended, i + 1, &s->time[i]);
    for (uint32_t i = 0; i < n; i++)
        s->rc[i] = send[i].status;
    return rc;
}

static int one_worker(struct scene *s, struct world *w)
{
    if (w->self == 0)
        return timed_sender(s, w, (const uint32_t[]){1}, 1);
    struct ended ended = {0};
    struct recv recv = {.from = 0, .tag = 1, .len = BYTES, .ended = &ended}; /* into nothing */
    int rc = world_post_recv(w, &recv);
    if (rc == OK)
        rc = await_ended(w, &ended, 1, &s->time[10]);
    s->time[11] = recv.first_byte;
    s->time[12] = (int64_t)recv.landed;
    s->rc[10] = recv.status;
    return rc;
}

static void test_a_send_takes_its_bytes_and_arrives_a_latency_later(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 2 }", .workers = 2, .worker = one_worker};
    assert_int_equal(scene_play(&s), OK);
    assert_int_equal(s.rc[0], OK);
    assert_int_equal(s.rc[10], OK);
    assert_int_equal(s.time[0], BEGIN + 8 * MS);
    assert_int_equal(s.time[10], BEGIN + 8 * MS + LATENCY);
    assert_int_equal(s.time[11], BEGIN + LATENCY);
    assert_int_equal(s.time[12], BYTES);
    assert_int_equal(s.sent, 1);
}

/* A delay, or a loss, is the network's: the sender's end is where it was. */
static void test_delay_and_loss_reach_sends(void **state)
{
    (void)state;
    struct scene late = {.cluster = "node { count: 2 } delay { from: 0 to: 1 seconds: 0.5 }",
                         .workers = 2,
                         .worker = one_worker};
    assert_int_equal(scene_play(&late), OK);
    assert_int_equal(late.time[0], BEGIN + 8 * MS);
    assert_int_equal(late.time[10], BEGIN + 508 * MS + LATENCY);
    struct scene lost = late;
    lost.cluster = "node { count: 2 } link { loss: 0.999 }";
    assert_int_equal(scene_play(&lost), OK);
    assert_int_equal(lost.time[0], BEGIN + 8 * MS);
    assert_int_equal(lost.time[10], BEGIN + 208 * MS + LATENCY);
}

static int fair_worker(struct scene *s, struct world *w)
{
    if (w->self == 0)
        return timed_sender(s, w, (const uint32_t[]){1, 2}, 2);
    return scene_receive(w, 0, 1, WORLD_FOREVER, &s->time[10 + w->self], NULL);
}

static int line_worker(struct scene *s, struct world *w)
{
    if (w->self == 0)
        return timed_sender(s, w, (const uint32_t[]){1, 1}, 2);
    int rc = scene_receive(w, 0, 1, BEGIN + WORLD_SECOND, &s->time[11], NULL);
    return rc == OK ? scene_receive(w, 0, 1, BEGIN + WORLD_SECOND, &s->time[12], NULL) : rc;
}

static void test_sends_share_links(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 3 }", .workers = 3, .worker = fair_worker};
    assert_int_equal(scene_play(&s), OK); /* half each */
    assert_int_equal(s.time[0], BEGIN + 16 * MS);
    assert_int_equal(s.time[1], BEGIN + 16 * MS);
    assert_int_equal(s.time[11], BEGIN + 16 * MS + LATENCY);
    assert_int_equal(s.time[12], BEGIN + 16 * MS + LATENCY);
    struct scene line = {.cluster = "node { count: 2 }", .workers = 2, .worker = line_worker};
    assert_int_equal(scene_play(&line), OK); /* behind each other */
    assert_int_equal(line.time[0], BEGIN + 8 * MS);
    assert_int_equal(line.time[1], BEGIN + 16 * MS);
    assert_int_equal(line.time[11], BEGIN + 8 * MS + LATENCY);
    assert_int_equal(line.time[12], BEGIN + 16 * MS + LATENCY);
}

/* The range is read when the last byte leaves: what is written half way arrives, what is written
 * after the end does not. Taken back half way, it arrives as it was then. */
static int reading_sender(struct world *w, bool takes_back)
{
    unsigned char *range = calloc(1, BYTES);
    struct ended ended = {0};
    struct send send = {.to = 1, .tag = 1, .from = range, .len = BYTES, .ended = &ended};
    struct send next = send;
    if (!range)
        return ERR_NOMEM;
    int64_t at;
    int rc = world_post_send(w, &send);
    if (rc == OK && takes_back)
        rc = world_post_send(w, &next);
    if (rc == OK)
        rc = world_sleep(w, BEGIN + 4 * MS);
    if (takes_back) {
        world_unsend(w, &next);
        world_unsend(w, &send);
    }
    range[0] = 7;
    if (rc == OK && !takes_back)
        rc = await_ended(w, &ended, 1, &at);
    range[BYTES - 1] = 7;
    free(range);
    return rc;
}

static int reading_receiver(struct scene *s, struct world *w)
{
    struct wait_for want = {.kind = WAIT_MESSAGE, .from = 0, .tag = 1, .mask = UINT64_MAX};
    struct wake wake;
    int rc = world_wait(w, &want, 1, WORLD_FOREVER, &wake);
    if (rc != OK)
        return rc;
    s->time[0] = world_now(w);
    s->rc[0] = ((unsigned char *)wake.msg->data)[0];
    s->rc[1] = ((unsigned char *)wake.msg->data)[BYTES - 1];
    message_unref(wake.msg);
    s->rc[2] = world_wait(w, &want, 1, BEGIN + WORLD_SECOND, &wake);
    return OK;
}

static int reading_worker(struct scene *s, struct world *w)
{
    return w->self == 0 ? reading_sender(w, false) : reading_receiver(s, w);
}

static int regretting_worker(struct scene *s, struct world *w)
{
    return w->self == 0 ? reading_sender(w, true) : reading_receiver(s, w);
}

static void test_the_range_is_read_at_the_end(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 2 }", .workers = 2, .worker = reading_worker};
    assert_int_equal(scene_play(&s), OK);
    assert_int_equal(s.time[0], BEGIN + 8 * MS + LATENCY);
    assert_int_equal(s.rc[0], 7);
    assert_int_equal(s.rc[1], 0);
    s.worker = regretting_worker;
    assert_int_equal(scene_play(&s), OK);
    assert_int_equal(s.time[0], BEGIN + 8 * MS + LATENCY); /* its place on the wire was taken */
    assert_int_equal(s.rc[0], 0);
    assert_int_equal(s.rc[1], 0);
    assert_int_equal(s.rc[2], ERR_TIMEOUT); /* the second had not begun */
}

/* Two blocks fill the credit; the third begins when the first is taken, a message behind it when
 * there is room for that. */
static int credit_sender(struct scene *s, struct world *w)
{
    struct send send[3];
    struct ended ended = {0};
    int rc = OK;
    for (int i = 0; rc == OK && i < 3; i++) {
        send[i] = (struct send){.to = 1, .tag = 1, .len = BLOCK, .ended = &ended};
        rc = world_post_send(w, &send[i]);
    }
    if (rc == OK)
        rc = scene_send(w, 1, 2, 125000, CLASS_BULK); /* in time: the sends have no credit yet */
    if (rc == OK)
        rc = await_ended(w, &ended, 2, &s->time[0]);
    struct message *m = message_phantom(2, 0, 1000);
    s->rc[0] = m ? world_send(w, 1, m, CLASS_BULK) : ERR_NOMEM;
    if (s->rc[0] == ERR_FULL)
        message_unref(m);
    if (rc == OK)
        rc = await_ended(w, &ended, 3, &s->time[1]);
    return rc == OK ? world_sleep(w, BEGIN + 3 * WORLD_SECOND) : rc;
}

static int credit_worker(struct scene *s, struct world *w)
{
    if (w->self == 0)
        return credit_sender(s, w);
    int rc = world_sleep(w, BEGIN + WORLD_SECOND);
    if (rc == OK)
        rc = scene_receive(w, 0, 1, WORLD_FOREVER, &s->time[10], NULL);
    if (rc == OK)
        rc = world_sleep(w, BEGIN + 2 * WORLD_SECOND);
    for (int i = 0; rc == OK && i < 2; i++)
        rc = scene_receive(w, 0, 1, WORLD_FOREVER, &s->time[11 + i], NULL);
    return rc == OK ? scene_receive(w, 0, 2, WORLD_FOREVER, &s->time[13], NULL) : rc;
}

static void test_credit_is_taken_in_turn(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 2 }", .workers = 2, .worker = credit_worker};
    assert_int_equal(scene_play(&s), OK);
    assert_int_equal(s.rc[0], ERR_FULL);
    assert_int_equal(s.time[0], BEGIN + 2 * BLOCK_NS);
    assert_int_equal(s.time[1], BEGIN + WORLD_SECOND + BLOCK_NS);
    assert_int_equal(s.time[12], BEGIN + 2 * WORLD_SECOND);
    assert_int_equal(s.time[13], BEGIN + 2 * WORLD_SECOND + 1 * MS + LATENCY);
}

/* A node that ends takes back what is posted: what is half out continues, what has not begun is
 * dropped, and messages behind it no longer wait for room. */
struct departure {
    struct scene scene;
    struct send send[4]; /* they outlive the stack of their node's main */
};

static int leaving_sender(struct scene *s, struct world *w)
{
    struct send *send = ((struct departure *)s)->send;
    int rc = OK;
    for (int i = 0; rc == OK && i < 4; i++) {
        send[i] = (struct send){.to = 1, .tag = 1, .len = BLOCK};
        rc = world_post_send(w, &send[i]);
    }
    if (rc == OK)
        rc = scene_send(w, 1, 2, 125000, CLASS_BULK);
    return rc == OK ? world_sleep(w, BEGIN + BLOCK_NS + 1 * MS) : rc;
}

static int leaving_worker(struct scene *s, struct world *w)
{
    if (w->self == 0)
        return leaving_sender(s, w);
    int rc = OK;
    for (bool up = true; rc == OK && up;) {
        struct wait_for change = {.kind = WAIT_PEER};
        struct wake wake;
        rc = world_wait(w, &change, 1, WORLD_FOREVER, &wake);
        up = wake.up || wake.peer != 0;
    }
    s->time[0] = world_now(w);
    for (int i = 0; i < 3; i++)
        s->rc[i] = scene_receive(w, 0, 1, BEGIN + WORLD_SECOND, &s->time[1 + i], NULL);
    s->rc[3] = scene_receive(w, 0, 2, BEGIN + WORLD_SECOND, &s->time[4], NULL);
    return rc;
}

static void test_a_node_that_ends_takes_its_sends_back(void **state)
{
    (void)state;
    struct departure p = {
        .scene = {.cluster = "node { count: 2 }", .workers = 2, .worker = leaving_worker}};
    assert_int_equal(scene_play(&p.scene), OK);
    const int sent[] = {OK, ERR_CANCELLED, ERR_CANCELLED, ERR_CANCELLED};
    const int received_at[] = {OK, OK, ERR_TIMEOUT, OK};
    for (int i = 0; i < 4; i++)
        assert_int_equal(p.send[i].status, sent[i]);
    assert_memory_equal(p.scene.rc, received_at, sizeof received_at);
    assert_int_equal(p.scene.time[0], BEGIN + 2 * BLOCK_NS + 1 * MS + LATENCY);
}

/* Node 1 is killed 4 ms after BEGIN, when half of each direction's send is out. */
static int killed_worker(struct scene *s, struct world *w)
{
    struct ended ended = {0};
    uint32_t other = 1 - w->self;
    struct send send[2];
    int rc = OK;
    for (int i = 0; rc == OK && i < 2; i++) {
        send[i] = (struct send){.to = other, .tag = 1, .len = BYTES, .ended = &ended};
        rc = world_post_send(w, &send[i]);
    }
    struct recv recv = {.from = other, .tag = 1, .len = BYTES, .ended = &ended};
    if (rc == OK)
        rc = world_post_recv(w, &recv);
    rc = rc == OK ? await_ended(w, &ended, 3, &s->time[w->self]) : rc;
    s->rc[10 * w->self] = send[0].status;
    s->rc[10 * w->self + 1] = send[1].status;
    s->rc[10 * w->self + 2] = recv.status;
    s->rc[10 * w->self + 3] = (int)ended.times;
    s->rc[10 * w->self + 4] = rc;
    return rc;
}

static void test_a_kill_ends_sends_on_both_sides(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 2 } fault { at: 10.004 kill: 1 }",
                      .workers = 2,
                      .worker = killed_worker};
    assert_int_equal(scene_play(&s), OK);
    const int survivor[] = {ERR_PEER, ERR_PEER, ERR_PEER, 3, OK};
    const int victim[] = {ERR_CANCELLED, ERR_CANCELLED, ERR_CANCELLED, 3, ERR_CANCELLED};
    assert_memory_equal(s.rc, survivor, sizeof survivor);
    assert_memory_equal(s.rc + 10, victim, sizeof victim);
    assert_int_equal(s.time[0], BEGIN + 4 * MS + LATENCY);
}

/* A ring of three that posts what it passes on: killed at each of its sends, of either kind. */
enum { TURNS = 3, WORDS = 250 };

static int ring_turn(struct world *w, uint64_t i, uint32_t next, uint32_t before)
{
    uint32_t out[WORDS], in[WORDS] = {0};
    struct ended ended = {0};
    struct send send = {.to = next, .tag = i, .from = out, .len = sizeof out, .ended = &ended};
    struct recv recv = {.from = before, .tag = i, .into = in, .len = sizeof in, .ended = &ended};
    int64_t at;
    for (uint32_t k = 0; k < WORDS; k++)
        out[k] = (uint32_t)i * 1000 + k;
    int rc = world_post_recv(w, &recv);
    if (rc == OK)
        rc = world_post_send(w, &send);
    if (rc == OK)
        rc = scene_send(w, next, 100 + i, 1000, CLASS_BULK);
    if (rc == OK)
        rc = await_ended(w, &ended, 2, &at);
    if (rc == OK)
        rc = send.status != OK ? send.status : recv.status;
    if (rc == OK)
        rc = scene_receive(w, before, 100 + i, world_now(w) + WORLD_SECOND, &at, NULL);
    world_unsend(w, &send);
    world_unpost(w, &recv);
    if (rc == OK && memcmp(in, out, sizeof in) != 0)
        rc = ERR_PROTOCOL;
    return rc;
}

static int ring_worker(struct scene *s, struct world *w)
{
    uint32_t next = (w->self + 1) % s->workers, before = (w->self + s->workers - 1) % s->workers;
    int rc = OK;
    for (uint64_t i = 0; rc == OK && i < TURNS; i++)
        rc = ring_turn(w, i, next, before);
    return s->rc[w->self] = rc;
}

static void test_kill_at_every_post(void **state)
{
    (void)state;
    struct scene whole = {.cluster = "node { count: 3 } link { loss: 0.2 }",
                          .workers = 3,
                          .worker = ring_worker,
                          .kill_node = 1};
    assert_int_equal(scene_play(&whole), OK);
    assert_int_equal(whole.sent, 2 * TURNS);
    for (uint64_t at = 1; at <= whole.sent; at++) {
        struct scene s = whole;
        s.kill_send = at;
        assert_int_equal(scene_play(&s), OK);
        assert_int_equal(s.sent, at - 1);
        assert_int_equal(s.rc[1], ERR_CANCELLED);
        assert_true(s.rc[2] == ERR_TIMEOUT || s.rc[2] == ERR_PEER);
        assert_true(s.trace != whole.trace);
    }
}

/* A run that a fault stops with sends under way is freed, and they with it. */
struct catcher {
    struct fault_sink sink;
    jmp_buf back;
    int caught;
};

static void catch_fault(struct fault_sink *sink, const char *file, int line, const char *what)
{
    (void)file, (void)line, (void)what;
    struct catcher *c = (struct catcher *)sink;
    c->caught++;
    longjmp(c->back, 1);
}

static int faulty_main(void *arg, struct world *w)
{
    (void)arg;
    struct send send[3];
    if (w->self != WORLD_DRIVER)
        return world_sleep(w, WORLD_FOREVER);
    int rc = world_want_nodes(w, 1);
    for (int i = 0; rc == OK && i < 3; i++) {
        send[i] = (struct send){.to = 0, .tag = 1, .len = BLOCK};
        rc = world_post_send(w, &send[i]);
    }
    if (rc == OK)
        rc = world_sleep(w, 50 * MS);
    PL_ASSERT(send[0].status != OK || send[1].status != POST_PENDING); /* as it is by then */
    return rc;
}

static void run_faulty(struct sim *sim, struct catcher *c)
{
    if (setjmp(c->back) == 0)
        sim_run(sim, WORLD_SECOND);
}

static void free_after_a_fault(enum sim_backend backend)
{
    Paceline__Cluster *cluster = NULL;
    struct sim *sim = NULL;
    assert_int_equal(cluster_parse("test", "node {}", 7, &cluster, NULL), OK);
    assert_int_equal(cluster_finish(cluster, NULL), OK);
    struct sim_options options = {
        .cluster = cluster, .workers = 1, .backend = backend, .node_main = faulty_main};
    assert_int_equal(sim_create(&options, &sim, NULL), OK);
    struct catcher c = {.sink.fail = catch_fault};
    fault_bind(&c.sink);
    run_faulty(sim, &c);
    fault_bind(NULL);
    assert_int_equal(c.caught, 1);
    sim_free(sim);
    cluster_free(cluster);
}

static void test_a_fault_with_sends_under_way(void **state)
{
    (void)state;
    free_after_a_fault(SIM_FIBRES);
    free_after_a_fault(SIM_BATON);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_send_takes_its_bytes_and_arrives_a_latency_later),
        cmocka_unit_test(test_delay_and_loss_reach_sends),
        cmocka_unit_test(test_sends_share_links),
        cmocka_unit_test(test_the_range_is_read_at_the_end),
        cmocka_unit_test(test_credit_is_taken_in_turn),
        cmocka_unit_test(test_a_node_that_ends_takes_its_sends_back),
        cmocka_unit_test(test_a_kill_ends_sends_on_both_sides),
        cmocka_unit_test(test_kill_at_every_post),
        cmocka_unit_test(test_a_fault_with_sends_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
