/* Models that were not requested: from a stranger, from another member than the requested one, and
 * from one that stops in the middle. The driver and a joiner ignore them. */
#include "sim_cluster.h"
#include "train/model.h"
#include "wire/wire_send.h"

static const char four[] = "node { count: 4 } step_seconds: 0.05 link { mbit: 100 }\n"
                           "fault { at: 1 join: 2 }\n";

enum { STRANGER = 3 };

struct play {
    struct model_header header; /* a message from `from` to `to`, at that time, without a vector */
    uint32_t from, to;
    double at_s;
    bool sent;
    struct sim_train train;
};

/* The head of a model alone, as model.c writes it. */
static int send_head(struct world *world, const struct play *p)
{
    const struct model_header *header = &p->header;
    struct buf head = {0};
    progress_encode(&header->progress, &head);
    buf_put_u32(&head, header->use);
    buf_put_u8(&head, 0);
    buf_put_u8(&head, 0);
    buf_put_u8(&head, 0);
    buf_put_u64(&head, header->floats);
    buf_put_u64(&head, 0);
    buf_put_u32(&head, 0);
    buf_put_u32(&head, 0);
    buf_put_u32(&head, header->parts_in);
    if (header->parts_in)
        model_scores_encode(&header->scores, &head);
    uint32_t lane = header->use == MODEL_STREAMS; /* states of streams have a lane of their own */
    uint64_t tag = wire_tag(WIRE_MODEL, lane, header->progress.exchanges, WIRE_HEADER_PIECE);
    struct message *m = message_new(tag, 0, head.len);
    memcpy(m->data, head.data, head.len);
    buf_release(&head);
    int rc = world_send(world, p->to, m, CLASS_BULK);
    if (rc != OK)
        message_unref(m);
    return rc;
}

struct sender {
    struct play *play;
    struct world *world;
};

static int send_unasked(void *arg)
{
    struct sender *s = arg;
    int64_t at = (int64_t)(s->play->at_s * WORLD_SECOND);
    while (!s->play->sent) {
        if (world_sleep(s->world, at) != OK)
            return OK;
        s->play->sent = send_head(s->world, s->play) == OK;
        at += WORLD_SECOND / 1000;
    }
    return OK;
}

static bool begin_node(void *user, struct world *world)
{
    static struct sender sender;
    struct play *p = user;
    struct task *task;
    if (world->self == p->from) {
        sender = (struct sender){p, world};
        assert_int_equal(world_spawn(world, "unasked", send_unasked, &sender, &task), OK);
    }
    if (world->self == STRANGER)
        (void)world_sleep(world, 1000 * WORLD_SECOND);
    return world->self == STRANGER;
}

/* Two workers, a third that joins after a second, and a stranger. Returns the number of
 * exchanges. */
static int play_scene(struct tiny *t, struct play *p)
{
    struct ground ground;
    const char *set[] = {"strategy.allreduce={}", "stop.epochs=4", "workers=2",
                         "workers_min=2",         "workers_max=4", NULL};
    ground_open(&ground, t, set);
    p->train = (struct sim_train){
        .ground = &ground,
        .cluster = four,
        .begin = begin_node,
        .user = p,
        .options = {.elsewhere = true, .patience_s = 600},
        .limit_s = 4000,
    };
    sim_train_play(&p->train);
    if (p->train.rc != OK)
        fail_msg("%s\n%s", p->train.err.text, p->train.log);
    assert_string_equal(p->train.report.reason, "epochs");
    assert_int_equal(p->train.report.workers, 3);
    ground_close(&ground);
    return p->train.exchanges;
}

static void expect_ignored(struct tiny *t, struct play *p, const char *line)
{
    struct play quiet = {.from = WORLD_ANY};
    int undisturbed = play_scene(t, &quiet), exchanges = play_scene(t, p);
    assert_true(p->sent);
    if (!strstr(p->train.log, line))
        fail_msg("expected `%s` in:\n%s", line, p->train.log);
    assert_int_equal(exchanges, undisturbed);
}

static void test_driver_takes_no_model_of_a_stranger(void **state)
{
    struct play p = {.from = STRANGER, .to = WORLD_DRIVER, .at_s = 1.5};
    p.header.use = MODEL_FINAL;
    expect_ignored(*state, &p, "a model of worker 3, which was not requested, is dropped");
}

static void test_driver_takes_no_model_of_another_member(void **state)
{
    struct play p = {.from = 1, .to = WORLD_DRIVER, .at_s = 1.5};
    p.header.use = MODEL_FINAL | MODEL_CHECKPOINT;
    expect_ignored(*state, &p, "a model of worker 1, which was not requested, is dropped");
}

/* The model is in no slices, so that it could not be taken. */
static void test_driver_takes_no_offer_of_a_whole_model(void **state)
{
    struct play p = {.from = 1, .to = WORLD_DRIVER, .at_s = 1.5};
    p.header.use = MODEL_EVALUATE;
    p.header.parts_in = 1;
    expect_ignored(*state, &p, "an offer of worker 1's replica is dropped");
}

/* Nobody's streams carry a state in this run. */
static void test_driver_takes_no_states_of_streams(void **state)
{
    static const char *const lines[] = {
        "worker 1: the states of its streams are dropped: they have the wrong length",
        "worker 3: the states of its streams are dropped: it is no member",
    };
    for (uint32_t i = 0; i < 2; i++) {
        struct play p = {.from = i == 0 ? 1 : STRANGER, .to = WORLD_DRIVER, .at_s = 1.5};
        p.header.use = MODEL_STREAMS;
        p.header.floats = 1;
        p.header.progress.exchanges = UINT32_MAX;
        expect_ignored(*state, &p, lines[i]);
    }
}

static void test_joiner_takes_no_model_of_a_stranger(void **state)
{
    struct play p = {.from = STRANGER, .to = 2, .at_s = 1};
    p.header.floats = 1;
    expect_ignored(*state, &p, "a model of node 3, which is not this worker's donor");
}

static void test_joiner_waits_for_no_vectors_that_never_come(void **state)
{
    struct play p = {.from = 1, .to = 2, .at_s = 1};
    p.header.floats = 1;
    expect_ignored(*state, &p, "worker 1: its model is dropped: nothing more of it arrived");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_driver_takes_no_model_of_a_stranger),
        cmocka_unit_test(test_driver_takes_no_model_of_another_member),
        cmocka_unit_test(test_driver_takes_no_offer_of_a_whole_model),
        cmocka_unit_test(test_driver_takes_no_states_of_streams),
        cmocka_unit_test(test_joiner_takes_no_model_of_a_stranger),
        cmocka_unit_test(test_joiner_waits_for_no_vectors_that_never_come),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
