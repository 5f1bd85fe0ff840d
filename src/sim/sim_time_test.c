/* Facts of virtual time, worked by hand: a gigabit link carries 125,000 bytes a millisecond, its
 * latency is 100 µs unless a cluster says otherwise. */
#include "sim/scene.h"

#define LATENCY (100 * US)

/* The sender, the receiver and the bytes, all at BEGIN; the sheet's time is the arrival. */
struct transfer {
    uint32_t from, to;
    size_t bytes;
    int64_t expected_ns; /* from BEGIN to the last byte sent */
};

struct transfers {
    struct scene scene;
    const struct transfer *list;
    size_t n;
};

static int transfer_worker(struct scene *s, struct world *w)
{
    const struct transfers *t = (struct transfers *)s;
    for (size_t i = 0; i < t->n; i++)
        if (t->list[i].from == w->self &&
            scene_send(w, t->list[i].to, i, t->list[i].bytes, CLASS_BULK) != OK)
            return ERR_PEER;
    /* They come in any order: take whichever does. */
    for (size_t left = t->n; left > 0; left--) {
        struct wait_for any = {.kind = WAIT_MESSAGE, .from = WORLD_ANY};
        struct wake wake;
        if (world_wait(w, &any, 1, BEGIN + WORLD_SECOND, &wake) != OK)
            break;
        s->time[wake.msg->tag] = world_now(w);
        message_unref(wake.msg);
    }
    return world_sleep(w, BEGIN + 2 * WORLD_SECOND);
}

static void expect_transfers(const char *cluster, const struct transfer *list, size_t n)
{
    struct transfers t = {.scene = {.cluster = cluster, .workers = 5, .worker = transfer_worker},
                          .list = list,
                          .n = n};
    assert_int_equal(scene_play(&t.scene), OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(t.scene.time[i], BEGIN + list[i].expected_ns + LATENCY);
}

#define EXPECT_TRANSFERS(cluster, ...)                                \
    expect_transfers(cluster, (const struct transfer[]){__VA_ARGS__}, \
                     sizeof((const struct transfer[]){__VA_ARGS__}) / sizeof(struct transfer))

static void test_one_message_takes_its_bytes_and_a_latency(void **state)
{
    (void)state;
    EXPECT_TRANSFERS("node { count: 5 }", {0, 1, 1000000, 8 * MS});
    EXPECT_TRANSFERS("node { count: 5 }", {0, 1, OVERHEAD, 320}); /* nothing but the header */
    EXPECT_TRANSFERS("node { count: 5 } link { mbit: 100 }", {0, 1, 1000000, 80 * MS});
    EXPECT_TRANSFERS("node { count: 5 }", {2, 2, 1000000, 1 * US - LATENCY}); /* to oneself */
}

static void test_flows_share_links(void **state)
{
    (void)state;
    const char *c = "node { count: 5 }";
    /* Into one node, out of one node: half each. */
    EXPECT_TRANSFERS(c, {0, 2, 1000000, 16 * MS}, {1, 2, 1000000, 16 * MS});
    EXPECT_TRANSFERS(c, {0, 1, 1000000, 16 * MS}, {0, 2, 1000000, 16 * MS});
    /* Full duplex, and strangers: no matter to one another. */
    EXPECT_TRANSFERS(c, {0, 1, 1000000, 8 * MS}, {1, 0, 1000000, 8 * MS}, {2, 3, 1000000, 8 * MS});
    /* From one to one: behind each other. */
    EXPECT_TRANSFERS(c, {0, 1, 1000000, 8 * MS}, {0, 1, 500000, 12 * MS});
    /* When the shorter has gone the longer has all. */
    EXPECT_TRANSFERS(c, {0, 2, 1000000, 16 * MS}, {1, 2, 2000000, 24 * MS});
}

static void test_sharing_is_max_min_fair(void **state)
{
    (void)state;
    const char *c = "node { count: 5 }";
    /* 0 → 2 ends first, but 1 → 2 cannot use what it leaves: 1's own link is shared. */
    EXPECT_TRANSFERS(c, {0, 2, 500000, 8 * MS}, {1, 2, 1000000, 16 * MS}, {1, 3, 1000000, 16 * MS});
    /* A third each into 3; so 2 → 4 has two thirds of 2's link. 3/4 of these are whole numbers. */
    EXPECT_TRANSFERS(c, {0, 3, 1000000, 24 * MS}, {1, 3, 1000000, 24 * MS},
                     {2, 3, 1000000, 24 * MS}, {2, 4, 2000000, 24 * MS});
}

/* first_byte: a wait before it was for the sender. */
static int first_byte_worker(struct scene *s, struct world *w)
{
    if (w->self == 0) {
        int rc = scene_send(w, 1, 1, 1000000, CLASS_BULK);
        return rc == OK ? scene_send(w, 1, 2, 1000000, CLASS_BULK) : rc;
    }
    int rc = scene_receive(w, 0, 1, WORLD_FOREVER, &s->time[0], &s->time[1]);
    return rc == OK ? scene_receive(w, 0, 2, WORLD_FOREVER, &s->time[2], &s->time[3]) : rc;
}

static void test_first_byte(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 2 }", .workers = 2, .worker = first_byte_worker};
    assert_int_equal(scene_play(&s), OK);
    assert_int_equal(s.time[1], BEGIN + LATENCY);
    assert_int_equal(s.time[0], BEGIN + LATENCY + 8 * MS);
    assert_int_equal(s.time[3], BEGIN + LATENCY + 8 * MS);
    assert_int_equal(s.time[2], BEGIN + LATENCY + 16 * MS);
}

/* Tasks that work: each starts `start` after BEGIN and costs `seconds`; done after `expected`. */
struct job {
    double start, seconds, expected;
};

struct jobs {
    struct scene scene;
    const struct job *list;
    size_t n;
};

struct job_task {
    struct world *w;
    const struct job *job;
    int64_t done;
};

static int64_t ns_of(double seconds)
{
    return (int64_t)(seconds * 1e9 + 0.5);
}

static int job_task(void *arg)
{
    struct job_task *t = arg;
    int rc = world_sleep(t->w, BEGIN + ns_of(t->job->start));
    if (rc == OK)
        rc = world_work(t->w, &(struct cost){t->job->seconds});
    t->done = world_now(t->w);
    return rc;
}

static int job_worker(struct scene *s, struct world *w)
{
    const struct jobs *jobs = (struct jobs *)s;
    struct job_task task[8];
    struct task *handle[8];
    for (size_t i = 0; i < jobs->n; i++) {
        task[i] = (struct job_task){w, &jobs->list[i], 0};
        if (world_spawn(w, "job", job_task, &task[i], &handle[i]) != OK)
            return ERR_NOMEM;
    }
    for (size_t i = 0; i < jobs->n; i++) {
        world_join(w, handle[i], WORLD_FOREVER, &s->rc[i]);
        s->time[i] = task[i].done;
    }
    return OK;
}

static void expect_jobs(const char *cluster, const struct job *list, size_t n)
{
    struct jobs j = {
        .scene = {.cluster = cluster, .workers = 1, .worker = job_worker}, .list = list, .n = n};
    assert_int_equal(scene_play(&j.scene), OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(j.scene.rc[i], OK);
        assert_int_equal(j.scene.time[i], BEGIN + ns_of(list[i].expected));
    }
}

#define EXPECT_JOBS(cluster, ...)                           \
    expect_jobs(cluster, (const struct job[]){__VA_ARGS__}, \
                sizeof((const struct job[]){__VA_ARGS__}) / sizeof(struct job))

static void test_work_shares_cores(void **state)
{
    (void)state;
    EXPECT_JOBS("node {}", {0, 1.5, 1.5}, {2, 0, 2});
    EXPECT_JOBS("node {}", {0, 1, 2}, {0, 1, 2});
    EXPECT_JOBS("node { cores: 2 }", {0, 1, 1}, {0, 1, 1});
    EXPECT_JOBS("node { cores: 2 }", {0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {0, 1, 2});
    EXPECT_JOBS("node { cores: 2 }", {0, 1, 1}); /* one task has one core */
    EXPECT_JOBS("node { speed: 0.5 }", {0, 1, 2});
    EXPECT_JOBS("node {}", {0, 2, 2.5}, {1, 0.5, 2});
}

static void test_slow_faults_reach_work_in_progress(void **state)
{
    (void)state;
    /* A second at full pace, half a second's worth in two, and the rest. */
    EXPECT_JOBS("node {} fault { at: 11 slow: 0 factor: 4 for: 2 }", {0, 2, 3.5}, {5, 1, 6});
    EXPECT_JOBS("node {} fault { at: 11 slow: 0 factor: 4 }", {0, 2, 5}, {10, 1, 14});
    /* Two at once: 2, then 2 × 4, then 4 times slower. */
    EXPECT_JOBS("node {} fault { at: 10 slow: 0 factor: 2 for: 2 }"
                "fault { at: 11 slow: 0 factor: 4 for: 2 }",
                {0, 1.875, 4});
    EXPECT_JOBS("node { count: 2 } fault { at: 1 slow: 1 factor: 4 }", {0, 1, 1}); /* another's */
}

enum { JITTERED = 60 };

static int jitter_worker(struct scene *s, struct world *w)
{
    for (int i = 0; i < JITTERED; i++) {
        int64_t start = world_now(w);
        int rc = world_work(w, &(struct cost){1});
        if (rc != OK)
            return rc;
        s->time[i] = world_now(w) - start;
    }
    return OK;
}

static void test_jitter_is_uniform_and_seeded(void **state)
{
    (void)state;
    struct scene a = {
        .cluster = "node { jitter: 0.1 }", .workers = 1, .worker = jitter_worker, .seed = 5};
    struct scene b = a, c = a;
    c.seed = 6;
    assert_int_equal(scene_play(&a), OK);
    assert_int_equal(scene_play(&b), OK);
    assert_int_equal(scene_play(&c), OK);
    double sum = 0;
    int64_t least = a.time[0], most = a.time[0];
    for (int i = 0; i < JITTERED; i++) {
        assert_in_range(a.time[i], 900 * MS, 1100 * MS);
        least = a.time[i] < least ? a.time[i] : least;
        most = a.time[i] > most ? a.time[i] : most;
        sum += world_seconds(a.time[i]);
    }
    assert_true(least < 920 * MS && most > 1080 * MS);
    assert_true(sum / JITTERED > 0.96 && sum / JITTERED < 1.04); /* five sigma: 0.037 */
    assert_memory_equal(a.time, b.time, sizeof a.time);
    assert_memory_not_equal(a.time, c.time, sizeof a.time);
}

/* Three messages of kind 7 and one of another class; the second of kind 7 is late. */
static int delay_worker(struct scene *s, struct world *w)
{
    const uint64_t seven = UINT64_C(7) << 56;
    if (w->self == 0) {
        for (uint64_t i = 0; i < 3; i++)
            if (scene_send(w, 1, seven | i, OVERHEAD + 960, CLASS_BULK) != OK)
                return ERR_PEER;
        return scene_send(w, 1, 3, OVERHEAD + 960, CLASS_CONTROL);
    }
    int rc = scene_receive(w, 0, 3, WORLD_FOREVER, &s->time[3], NULL);
    for (uint64_t i = 0; rc == OK && i < 3; i++)
        rc = scene_receive(w, 0, seven | i, WORLD_FOREVER, &s->time[i], &s->time[4 + i]);
    return rc;
}

static void test_delay_moves_one_message(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 2 }", .workers = 2, .worker = delay_worker};
    assert_int_equal(scene_play(&s), OK);
    struct scene late = s;
    late.cluster = "node { count: 2 }"
                   "delay { from: 0 to: 1 tag: \"seven\" seconds: 0.5 nth: 2 }"
                   "delay { from: 1 to: 0 seconds: 9 }";
    assert_int_equal(scene_play(&late), OK);
    assert_int_equal(late.time[3], s.time[3]);
    assert_true(late.time[0] <= s.time[3]); /* read after it, but long there */
    assert_int_equal(late.time[5], s.time[5] + 500 * MS);
    assert_int_equal(s.time[5], BEGIN + 16 * US + LATENCY); /* behind the first, at half speed */
    assert_int_equal(late.time[1], late.time[5] + 8 * US);
    assert_int_equal(late.time[2], late.time[1]); /* not overtaken: it waits behind */
    assert_int_equal(late.time[6], late.time[1]);
}

static void test_delay_of_each_message(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 2 } delay { to: 1 seconds: 2 }",
                      .workers = 2,
                      .worker = first_byte_worker};
    assert_int_equal(scene_play(&s), OK);
    assert_int_equal(s.time[0], BEGIN + LATENCY + 8 * MS + 2 * WORLD_SECOND);
    assert_int_equal(s.time[2], BEGIN + LATENCY + 16 * MS + 2 * WORLD_SECOND);
}

/* One message a second; a lost one comes 200 ms later. */
static int loss_worker(struct scene *s, struct world *w)
{
    for (int i = 0; i < SHEET; i++) {
        int64_t at = BEGIN + i * WORLD_SECOND;
        int rc = world_sleep(w, at);
        if (rc == OK)
            rc = w->self == 0 ? scene_send(w, 1, 1, 1000, CLASS_BULK)
                              : scene_receive(w, 0, 1, WORLD_FOREVER, &s->time[i], NULL);
        if (rc != OK)
            return rc;
        s->time[i] -= w->self == 0 ? 0 : at;
    }
    return OK;
}

static void test_loss_costs_a_retransmission(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 2 } link { loss: 0.5 }",
                      .workers = 2,
                      .worker = loss_worker,
                      .seed = 3};
    assert_int_equal(scene_play(&s), OK);
    int lost = 0;
    for (int i = 0; i < SHEET; i++) {
        bool late = s.time[i] > 200 * MS;
        assert_int_equal(s.time[i], 8 * US + LATENCY + (late ? 200 * MS : 0));
        lost += late;
    }
    assert_in_range(lost, SHEET / 4, SHEET * 3 / 4); /* four sigma */
}

/* Cancelled work ends at once, and its share of the core goes to the others. */
static int cancelled_worker(struct scene *s, struct world *w)
{
    static const struct job job[] = {{0, 5, 0}, {0, 2, 0}};
    struct job_task task[] = {{w, &job[0], 0}, {w, &job[1], 0}};
    struct task *handle[2];
    for (int i = 0; i < 2; i++)
        if (world_spawn(w, "job", job_task, &task[i], &handle[i]) != OK)
            return ERR_NOMEM;
    int rc = world_sleep(w, BEGIN + WORLD_SECOND);
    world_cancel(w, handle[0]);
    for (int i = 0; i < 2; i++) {
        world_join(w, handle[i], WORLD_FOREVER, &s->rc[i]);
        s->time[i] = task[i].done;
    }
    return rc;
}

static void test_cancelled_work_frees_its_core(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node {}", .workers = 1, .worker = cancelled_worker};
    assert_int_equal(scene_play(&s), OK);
    assert_int_equal(s.rc[0], ERR_CANCELLED);
    assert_int_equal(s.time[0], BEGIN + WORLD_SECOND);
    assert_int_equal(s.rc[1], OK);
    assert_int_equal(s.time[1], BEGIN + ns_of(2.5));
}

/* Four megabytes are half way when the view ends. Phantoms end a receive and write nothing. */
static int abort_worker(struct scene *s, struct world *w)
{
    if (w->self == 0) {
        struct message *m = message_new(1, 1, WORLD_MESSAGE_MAX);
        if (!m)
            return ERR_NOMEM;
        memset(m->data, 1, m->len);
        int rc = world_send(w, 1, m, CLASS_BULK);
        struct message *phantom = message_phantom(1, 2, 16);
        if (!phantom)
            return ERR_NOMEM;
        return rc == OK ? world_send(w, 1, phantom, CLASS_BULK) : rc;
    }
    char *x = calloc(1, WORLD_MESSAGE_MAX);
    if (!x)
        return ERR_NOMEM;
    struct recv old = {.from = 0, .view = 1, .tag = 1, .into = x, .len = WORLD_MESSAGE_MAX};
    struct recv now = {.from = 0, .view = 2, .tag = 1, .into = x, .len = 16};
    struct wait_for done = {.kind = WAIT_RECV, .recv = &now};
    struct wake wake;
    int rc = world_post_recv(w, &old);
    if (rc == OK)
        rc = world_sleep(w, BEGIN + 17 * MS);
    world_abort(w, 2);
    s->rc[0] = old.status;
    if (rc == OK)
        rc = world_post_recv(w, &now);
    if (rc == OK)
        rc = world_wait(w, &done, 1, WORLD_FOREVER, &wake);
    s->time[0] = world_now(w);
    s->rc[1] = now.status;
    for (size_t i = 0; i < WORLD_MESSAGE_MAX; i++)
        s->rc[2] += x[i];
    free(x);
    return rc;
}

static void test_abort_half_way(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 2 }", .workers = 2, .worker = abort_worker};
    assert_int_equal(scene_play(&s), OK);
    assert_int_equal(s.rc[0], ERR_VIEW);
    assert_int_equal(s.rc[1], OK);
    assert_int_equal(s.rc[2], 0);
    assert_int_equal(s.time[0],
                     BEGIN + (WORLD_MESSAGE_MAX + 16 + 2 * OVERHEAD) * INT64_C(8) + LATENCY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_message_takes_its_bytes_and_a_latency),
        cmocka_unit_test(test_flows_share_links),
        cmocka_unit_test(test_sharing_is_max_min_fair),
        cmocka_unit_test(test_first_byte),
        cmocka_unit_test(test_work_shares_cores),
        cmocka_unit_test(test_slow_faults_reach_work_in_progress),
        cmocka_unit_test(test_jitter_is_uniform_and_seeded),
        cmocka_unit_test(test_delay_moves_one_message),
        cmocka_unit_test(test_delay_of_each_message),
        cmocka_unit_test(test_loss_costs_a_retransmission),
        cmocka_unit_test(test_abort_half_way),
        cmocka_unit_test(test_cancelled_work_frees_its_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
