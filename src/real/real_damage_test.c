/* Damaged bytes: they are not delivered, and the peer is lost. */
#include "real/real_test_kit.h"

#include <stdatomic.h>

enum { DAMAGED = 16 };

/* Where the data was to go. */
enum where { INTO_MEMORY, INTO_A_SUM, TO_A_TASK, WHERES };

static struct {
    struct world *world;
    int fd;
    uint32_t number;
    enum where where;
    size_t bit; /* to change, of a frame of DAMAGED with its sum */
    atomic_int named;
} story;

static void land_sum(void *user, void *at, const void *bytes, size_t n)
{
    (void)user;
    float *x = at;
    const float *y = bytes;
    for (size_t i = 0; i < n / sizeof *x; i++)
        x[i] += y[i];
}

static void on_log(void *user, enum log_level level, const char *line)
{
    (void)user;
    if (level == LOG_WARN && strstr(line, "worker 0, at 127.0.0.1:") && strstr(line, "corrupted"))
        atomic_fetch_add(&story.named, 1);
}

static bool put_damaged(const float *x)
{
    uint8_t bytes[FRAME_SIZE + DAMAGED * sizeof *x + FRAME_TAIL];
    frame_encode(&(struct frame){DAMAGED * sizeof *x, FRAME_DATA, CLASS_BULK, 1, 5}, bytes);
    memcpy(bytes + FRAME_SIZE, x, DAMAGED * sizeof *x);
    bytes_put_le64(bytes + FRAME_SIZE + DAMAGED * sizeof *x, hash_bytes(x, DAMAGED * sizeof *x));
    bytes[story.bit / 8] ^= (uint8_t)(1u << story.bit % 8);
    return kit_put(story.fd, bytes, sizeof bytes);
}

static int receive_damage(struct world *w)
{
    float x[DAMAGED] = {0}, y[DAMAGED] = {1, 2, 3};
    struct recv recv = {.from = story.number, .view = 1, .tag = 5, .into = x, .len = sizeof x};
    recv.land = story.where == INTO_A_SUM ? land_sum : NULL;
    CHECK(suite_peer_is(w, story.number, true) == OK);
    CHECK(story.where == TO_A_TASK || world_post_recv(w, &recv) == OK);
    CHECK(kit_put_frame(story.fd, &(struct frame){4, FRAME_DATA, CLASS_BULK, 0, 6}, y, 4));
    CHECK(put_damaged(y));
    CHECK(suite_peer_is(w, story.number, false) == OK);
    struct wait_for done = {.kind = WAIT_RECV, .recv = &recv};
    struct wait_for message = {.kind = WAIT_MESSAGE, .from = story.number};
    struct wake wake;
    if (story.where != TO_A_TASK)
        CHECK(world_wait(w, &done, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
    CHECK(story.where == TO_A_TASK || recv.status == ERR_PEER);
    CHECK(world_wait(w, &message, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
    CHECK(wake.msg->tag == 6); /* what came before is whole, */
    message_unref(wake.msg);
    CHECK(world_wait(w, &message, 1, world_now(w), &wake) == ERR_TIMEOUT); /* and alone */
    return OK;
}

/* Of the header, the data, and the sum; the header's length included, which would otherwise have us
 * wait for more. */
static void test_damage(void **state)
{
    static const size_t at[] = {0, 1, 4, 8, 14, 20, 23, 24, 50, 87, 88, 95};
    (void)state;
    for (story.where = 0; story.where < WHERES; story.where++) {
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            const struct logger log = {.write = on_log, .level = LOG_WARN};
            const struct node_limits limits = {.hello = WORLD_SECOND, .flush = WORLD_SECOND};
            struct hello answer;
            struct err err = {0};
            const struct real_options options = {.seed = 7, .log = &log};
            assert_int_equal(node_open(&options, &limits, &story.world, &err), OK);
            story.fd = kit_join(story.world, &answer);
            story.number = answer.peer;
            story.bit = 8 * at[i] + i % 8;
            atomic_store(&story.named, 0);
            kit_check(story.world, receive_damage);
            assert_int_equal(atomic_load(&story.named), 1);
            close(story.fd);
            real_close(story.world);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
