/* Events of nodes and runs: kills, joins, deadlocks, traces, a crowd. */
#include "base/fault.h"
#include "sim/scene.h"

#include <time.h>

#define LATENCY (100 * US)

/* Node 1 is killed at BEGIN + 1 s, in the middle of a message to 0, with a task in every wait. */
struct victim {
    struct scene *s;
    struct world *w;
    int kind;
};

static int victim_task(void *arg)
{
    struct victim *v = arg;
    struct wait_for want = {.kind = WAIT_SIGNAL, .signal = 1};
    struct wake wake;
    char *memory = malloc(100); /* must be freed by ordinary unwinding */
    int rc = v->kind == 0   ? world_work(v->w, &(struct cost){50})
             : v->kind == 1 ? world_wait(v->w, &want, 1, WORLD_FOREVER, &wake)
                            : world_sleep(v->w, WORLD_FOREVER);
    v->s->time[10 + v->kind] = world_now(v->w);
    v->s->rc[10 + v->kind] = rc;
    v->s->rc[13] = scene_send(v->w, 0, 99, 1000, CLASS_CONTROL);
    v->s->rc[14] = world_want_nodes(v->w, 1);
    free(memory);
    return rc;
}

static int victim_main(struct scene *s, struct world *w)
{
    struct victim v[3];
    struct task *task[3];
    int result[3] = {0};
    float x;
    struct recv recv = {.from = 0, .tag = 7, .into = &x, .len = sizeof x};
    for (int i = 0; i < 3; i++) {
        v[i] = (struct victim){s, w, i};
        if (world_spawn(w, "victim", victim_task, &v[i], &task[i]) != OK)
            return ERR_NOMEM;
    }
    int rc = world_post_recv(w, &recv);
    if (rc == OK)
        rc = scene_send(w, 0, 1, 1000, CLASS_BULK);
    if (rc == OK)
        rc = world_sleep(w, BEGIN + WORLD_SECOND - 4 * MS);
    if (rc == OK)
        rc = scene_send(w, 0, 2, 1000000, CLASS_BULK); /* half of it is out when the end comes */
    if (rc == OK)
        rc = scene_send(w, 0, 3, 1000, CLASS_BULK);
    for (int i = 0; i < 3; i++)
        world_join(w, task[i], WORLD_FOREVER, &result[i]); /* continues in a dead node */
    s->rc[15] = recv.status;
    s->rc[16] = world_post_recv(w, &recv);
    return rc;
}

static int witness_main(struct scene *s, struct world *w)
{
    float x;
    struct recv recv = {.from = 1, .tag = 55, .into = &x, .len = sizeof x};
    int rc = world_post_recv(w, &recv);
    if (rc == OK)
        rc = scene_receive(w, 1, 1, WORLD_FOREVER, &s->time[0], NULL);
    if (rc == OK)
        rc = world_sleep(w, BEGIN + WORLD_SECOND + 1);
    if (rc != OK)
        return rc;
    s->rc[0] = scene_send(w, 1, 5, 1000, CLASS_CONTROL); /* no node knows yet */
    struct wait_for set[] = {{.kind = WAIT_RECV, .recv = &recv},
                             {.kind = WAIT_MESSAGE, .from = WORLD_ANY}};
    struct wake wake;
    s->rc[1] = world_wait(w, set, 2, WORLD_FOREVER, &wake);
    s->rc[2] = wake.which;
    s->rc[3] = recv.status;
    s->time[1] = world_now(w);
    s->rc[4] = scene_send(w, 1, 5, 1000, CLASS_CONTROL);
    s->rc[5] = scene_receive(w, WORLD_ANY, 2, BEGIN + 5 * WORLD_SECOND, &s->time[2], NULL);
    return OK;
}

static int kill_worker(struct scene *s, struct world *w)
{
    return w->self == 1 ? victim_main(s, w) : witness_main(s, w);
}

static void test_kill(void **state)
{
    (void)state;
    const int64_t death = BEGIN + WORLD_SECOND;
    struct scene s = {.cluster = "node { count: 2 } fault { at: 11 kill: 1 }",
                      .workers = 2,
                      .worker = kill_worker};
    assert_int_equal(scene_play(&s), OK);
    for (int i = 0; i < 3; i++) { /* all of it unwound at that very moment */
        assert_int_equal(s.rc[10 + i], ERR_CANCELLED);
        assert_int_equal(s.time[10 + i], death);
    }
    assert_int_equal(s.rc[13], ERR_CANCELLED);
    assert_int_equal(s.rc[14], ERR_CANCELLED);
    assert_int_equal(s.rc[15], ERR_CANCELLED);
    assert_int_equal(s.rc[16], ERR_CANCELLED);
    assert_int_equal(s.rc[0], OK);
    assert_int_equal(s.rc[1], OK);
    assert_int_equal(s.rc[2], 0);
    assert_int_equal(s.rc[3], ERR_PEER);
    assert_int_equal(s.time[1], death + LATENCY);
    assert_int_equal(s.rc[4], ERR_PEER);
    assert_int_equal(s.rc[5], ERR_TIMEOUT); /* what was in flight is lost */
    assert_string_equal(s.log, "kill 1\n");
}

/* A drop closes both ways: at once here, a latency later there, and what was under way is lost. */
static int drop_worker(struct scene *s, struct world *w)
{
    struct wake wake;
    if (w->self == 0) {
        int rc = scene_send(w, 1, 1, 1000000, CLASS_BULK);
        if (rc == OK)
            rc = scene_send(w, 0, 7, 1000, CLASS_BULK);
        if (rc == OK)
            rc = world_sleep(w, BEGIN + 4 * MS);
        world_peer_drop(w, 1);
        s->rc[0] = scene_send(w, 1, 2, 1000, CLASS_BULK);
        struct wait_for change = {.kind = WAIT_MESSAGE, .from = 1};
        s->rc[1] = world_wait(w, &change, 1, BEGIN + 20 * MS, &wake);
        s->rc[2] = scene_receive(w, 0, 7, BEGIN + 20 * MS, &s->time[0], NULL);
        return rc;
    }
    int rc = scene_send(w, 0, 3, 1000000, CLASS_BULK);
    for (bool up = true; rc == OK && up; up = wake.up || wake.peer != 0) {
        struct wait_for set[] = {{.kind = WAIT_MESSAGE, .from = 0}, {.kind = WAIT_PEER}};
        rc = world_wait(w, set, 2, WORLD_FOREVER, &wake);
        s->rc[3] += rc == OK && wake.which == 0;
    }
    s->time[1] = world_now(w);
    s->rc[4] = scene_send(w, 0, 4, 1000, CLASS_BULK);
    return rc;
}

static void test_drop(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 2 }", .workers = 2, .worker = drop_worker};
    assert_int_equal(scene_play(&s), OK);
    assert_int_equal(s.rc[0], ERR_PEER);
    assert_int_equal(s.rc[1], ERR_TIMEOUT);
    assert_int_equal(s.rc[2], OK); /* others' mail stays */
    assert_int_equal(s.rc[3], 0);
    assert_int_equal(s.time[1], BEGIN + 4 * MS + LATENCY);
    assert_int_equal(s.rc[4], ERR_PEER);
}

/* A ring of three, each passing a number on a few times; when any is killed at any message, the
 * others end by their deadlines. */
static int ring_worker(struct scene *s, struct world *w)
{
    uint32_t next = (w->self + 1) % s->workers, before = (w->self + s->workers - 1) % s->workers;
    for (uint64_t i = 0; i < 4; i++) {
        struct message *m = message_new(i, 0, 1000);
        if (!m)
            return ERR_NOMEM;
        memset(m->data, 1, m->len);
        int rc = world_send(w, next, m, CLASS_BULK);
        if (rc == OK)
            rc = scene_receive(w, before, i, world_now(w) + WORLD_SECOND, &s->time[w->self], NULL);
        if (rc == OK)
            rc = world_work(w, &(struct cost){0.01});
        s->rc[w->self] = rc;
        if (rc != OK)
            return rc;
    }
    return OK;
}

static void test_kill_at_every_send(void **state)
{
    (void)state;
    struct scene whole = {.cluster = "node { count: 3 jitter: 0.3 } link { loss: 0.2 }",
                          .workers = 3,
                          .worker = ring_worker,
                          .kill_node = 1};
    assert_int_equal(scene_play(&whole), OK);
    assert_int_equal(whole.sent, 4);
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

/* The trace depends on the seed alone: neither on the back end, nor on deaths. */
static void test_trace_is_the_seeds(void **state)
{
    (void)state;
    struct scene a = {.cluster = "node { count: 6 jitter: 0.3 } link { loss: 0.2 }",
                      .workers = 6,
                      .worker = ring_worker,
                      .seed = 11};
    struct scene b = a, c = a;
    c.seed = 12;
    assert_int_equal(scene_play(&a), OK);
    assert_int_equal(scene_play(&b), OK);
    assert_int_equal(scene_play(&c), OK);
    assert_true(a.trace == b.trace && a.end == b.end);
    assert_true(a.trace != c.trace);
    for (uint64_t seed = 100; seed < 160; seed++) {
        struct scene s = a;
        s.seed = seed;
        s.kill_node = (uint32_t)(seed % 6);
        s.kill_send = seed % 4;
        assert_int_equal(scene_play(&s), OK); /* with both, and compares */
        assert_true(s.trace != a.trace);
    }
}

static int stuck_worker(struct scene *s, struct world *w)
{
    (void)s;
    struct wait_for set[] = {
        {.kind = WAIT_MESSAGE, .from = 1 - w->self, .view = 3, .tag = 0x77, .mask = UINT64_MAX},
        {.kind = WAIT_SIGNAL, .signal = 9}};
    struct wake wake;
    return world_wait(w, set, 2, WORLD_FOREVER, &wake);
}

static void test_a_deadlock_is_named(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 2 }", .workers = 2, .worker = stuck_worker};
    assert_int_equal(scene_play(&s), ERR_TIMEOUT);
    assert_int_equal(s.end, BEGIN);
    assert_non_null(strstr(s.log, "nothing will ever happen"));
    assert_non_null(strstr(s.log, "node 1, task main: waits for message 0x77 in view 3 from node 0 "
                                  "or signal 9, for ever"));
    assert_non_null(strstr(s.log, "the driver, task main: waits for a peer, for ever"));
}

static int patient_worker(struct scene *s, struct world *w)
{
    (void)s;
    return world_sleep(w, BEGIN + 10 * WORLD_SECOND);
}

static void test_virtual_time_has_a_limit(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 2 }",
                      .workers = 2,
                      .worker = patient_worker,
                      .limit = BEGIN + 3 * WORLD_SECOND + 1};
    assert_int_equal(scene_play(&s), ERR_TIMEOUT);
    assert_int_equal(s.end, BEGIN + 3 * WORLD_SECOND + 1);
    assert_non_null(strstr(s.log, "out of virtual time"));
}

/* A deadline that is no longer waited for does not drag time forward. */
static int early_worker(struct scene *s, struct world *w)
{
    return scene_receive(w, w->self, 1, BEGIN + 1000 * WORLD_SECOND, &s->time[0], NULL);
}

static int early_sender(struct scene *s, struct world *w)
{
    int rc = scene_send(w, w->self, 1, 1000, CLASS_CONTROL);
    return rc == OK ? early_worker(s, w) : rc;
}

static void test_old_deadlines_are_forgotten(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node {}", .workers = 1, .worker = early_sender};
    assert_int_equal(scene_play(&s), OK);
    assert_int_equal(s.time[0], BEGIN + 1 * US);
    assert_int_equal(s.end, BEGIN + 1 * US + LATENCY);
}

/* Nodes connect when they are requested, and a broken machine never does. */
static int joining_driver(struct scene *s, struct world *w)
{
    s->rc[0] = world_want_nodes(w, 1);
    s->rc[1] = world_want_nodes(w, 3);
    int rc = world_sleep(w, WORLD_SECOND);
    s->rc[2] = world_want_nodes(w, 2);
    s->rc[3] = world_want_nodes(w, 1);
    for (int i = 0; rc == OK && i < 4; i++) {
        struct wait_for change = {.kind = WAIT_PEER};
        struct wake wake;
        rc = world_wait(w, &change, 1, 100 * WORLD_SECOND, &wake);
        s->time[i] = rc == OK ? (int64_t)wake.peer * 10 + wake.up : -1;
    }
    s->rc[4] = scene_send(w, 1, 1, 1000, CLASS_CONTROL); /* for when it comes */
    return rc;
}

static int short_worker(struct scene *s, struct world *w)
{
    s->time[10 + w->self] = world_now(w);
    return OK;
}

static void test_nodes_come_when_wanted(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 3 } fault { at: 0.5 kill: 1 }",
                      .workers = 3,
                      .worker = short_worker,
                      .driver = joining_driver};
    assert_int_equal(scene_play(&s), OK);
    assert_int_equal(s.rc[0], OK);
    assert_int_equal(s.rc[1], ERR_NOT_FOUND);
    assert_int_equal(s.rc[2], OK);
    assert_int_equal(s.rc[3], ERR_NOT_FOUND);
    assert_int_equal(s.rc[4], OK);
    const int64_t expected[] = {1, 21, 0, 20};
    assert_memory_equal(s.time, expected, sizeof expected);
    assert_int_equal(s.time[11], 0);
    assert_int_equal(s.time[12], BEGIN);
}

static void test_bad_clusters(void **state)
{
    (void)state;
    struct scene few = {.cluster = "node { count: 2 }", .workers = 3, .worker = short_worker};
    assert_int_equal(scene_play(&few), ERR_INPUT);
    assert_non_null(strstr(few.log, "has 2 nodes, the run needs 3"));
    struct scene kind = {.cluster = "node {} delay { tag: \"eight\" seconds: 1 }",
                         .workers = 1,
                         .worker = short_worker};
    assert_int_equal(scene_play(&kind), ERR_INPUT);
    assert_non_null(strstr(kind.log, "delay[0].tag: no kind of message is called \"eight\""));
    struct scene others = {.cluster = "node { count: 3 } fault { at: 1 kill: 2 }"
                                      "delay { to: 2 seconds: 5 }",
                           .workers = 1,
                           .worker = short_worker}; /* of nodes that this run leaves out */
    assert_int_equal(scene_play(&others), OK);
    assert_string_equal(others.log, "");
}

/* Our own mistakes in a task reach the caller of sim_run, on its own stack. */
struct catcher {
    struct fault_sink sink;
    jmp_buf back;
    const char *what;
};

static void catch_fault(struct fault_sink *sink, const char *file, int line, const char *what)
{
    (void)file, (void)line;
    struct catcher *c = (struct catcher *)sink;
    c->what = what;
    longjmp(c->back, 1);
}

static int faulty_main(void *arg, struct world *w)
{
    (void)arg;
    PL_ASSERT(w->self == 77);
    return OK;
}

static void run_faulty(struct sim *sim, struct catcher *c)
{
    if (setjmp(c->back) == 0)
        sim_run(sim, WORLD_SECOND);
}

static void fault_reaches_the_caller(enum sim_backend backend)
{
    Paceline__Cluster *cluster = NULL;
    struct sim *sim = NULL;
    assert_int_equal(cluster_parse("test", "node {}", 7, &cluster, NULL), OK);
    assert_int_equal(cluster_finish(cluster, NULL), OK);
    struct sim_options options = {.cluster = cluster, .backend = backend, .node_main = faulty_main};
    assert_int_equal(sim_create(&options, &sim, NULL), OK);
    struct catcher c = {.sink.fail = catch_fault};
    fault_bind(&c.sink);
    run_faulty(sim, &c);
    assert_ptr_equal(fault_bind(NULL), &c.sink);
    assert_string_equal(c.what, "w->self == 77");
    sim_free(sim);
    cluster_free(cluster);
}

static void test_faults_reach_the_caller(void **state)
{
    (void)state;
    fault_reaches_the_caller(SIM_FIBRES);
    fault_reaches_the_caller(SIM_BATON);
}

/* A thousand nodes report to the driver, which replies to each, ten times; and forward a
 * message. */
enum { CROWD = 1000, ROUNDS = 10 };

static int crowd_worker(struct scene *s, struct world *w)
{
    int64_t at;
    int rc = OK;
    for (uint64_t i = 0; rc == OK && i < ROUNDS; i++) {
        rc = scene_send(w, WORLD_DRIVER, i, 100, CLASS_CONTROL);
        if (rc == OK)
            rc = scene_send(w, (w->self + 1) % CROWD, i, 1000, CLASS_BULK);
        if (rc == OK)
            rc = scene_receive(w, (w->self + CROWD - 1) % CROWD, i, WORLD_FOREVER, &at, NULL);
        if (rc == OK)
            rc = scene_receive(w, WORLD_DRIVER, i, WORLD_FOREVER, &at, NULL);
    }
    s->rc[0] += rc == OK;
    return rc;
}

static int crowd_driver(struct scene *s, struct world *w)
{
    int rc = world_want_nodes(w, CROWD);
    for (int i = 0; rc == OK && i < CROWD * ROUNDS; i++) {
        struct wait_for any = {.kind = WAIT_MESSAGE, .from = WORLD_ANY};
        struct wake wake;
        rc = world_wait(w, &any, 1, WORLD_FOREVER, &wake);
        if (rc == OK)
            rc = scene_send(w, wake.msg->from, wake.msg->tag, 100, CLASS_CONTROL);
        if (rc == OK)
            message_unref(wake.msg);
    }
    (void)s;
    return rc == OK ? world_sleep(w, world_now(w) + 10 * WORLD_SECOND) : rc;
}

static void test_a_thousand_nodes(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 1000 }",
                      .workers = CROWD,
                      .worker = crowd_worker,
                      .driver = crowd_driver};
    struct scene threads = s;
    clock_t start = clock();
    assert_int_equal(scene_play_on(&s, SIM_FIBRES), OK);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    assert_int_equal(scene_play_on(&threads, SIM_BATON), OK);
    assert_true(s.trace == threads.trace);
    assert_int_equal(s.rc[0], CROWD);
    print_message("%d nodes, %d messages: %.2f s\n", CROWD, 3 * CROWD * ROUNDS, seconds);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    assert_true(seconds < 2);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_drop),
        cmocka_unit_test(test_kill_at_every_send),
        cmocka_unit_test(test_trace_is_the_seeds),
        cmocka_unit_test(test_a_deadlock_is_named),
        cmocka_unit_test(test_virtual_time_has_a_limit),
        cmocka_unit_test(test_old_deadlines_are_forgotten),
        cmocka_unit_test(test_nodes_come_when_wanted),
        cmocka_unit_test(test_bad_clusters),
        cmocka_unit_test(test_faults_reach_the_caller),
        cmocka_unit_test(test_a_thousand_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
