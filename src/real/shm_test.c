/* Shared memory with a malicious peer: admission, its possible damage, and cleanup. The other side
 * is a bare socket with a segment. */
#define _GNU_SOURCE
#include "base/rng.h"
#include "real/real_test_kit.h"
#include "real/shm.h"

#include <fcntl.h>
#include <sys/mman.h>

static struct {
    struct world *world;
    struct stream stream;
    struct segment *segment; /* what only this side should write to, and the rest */
    uint32_t number;
} other;

/* Join with shared memory, and look at all of it. */
static void begin_story(void)
{
    other.world = kit_driver(5 * WORLD_SECOND);
    other.stream = stream_tcp(kit_connect_to(other.world));
    struct hello hello = *kit_hello(0, WORLD_ANY, WORLD_DRIVER), answer;
    shm_offer(&other.stream, &hello);
    assert_true(hello.shm);
    other.segment =
        mmap(NULL, sizeof *other.segment, PROT_READ | PROT_WRITE, MAP_SHARED, (int)hello.file, 0);
    assert_true(other.segment != MAP_FAILED);
    kit_put_hello(other.stream.fd, &hello);
    assert_int_equal(kit_get_hello(other.stream.fd, &answer), OK);
    assert_true(answer.shm);
    assert_int_equal(shm_answered(&other.stream, &answer), OK);
    assert_ptr_equal(other.stream.ops, &transport_shm);
    other.number = answer.peer;
}

static void end_story(void)
{
    if (other.stream.fd >= 0)
        stream_close(&other.stream);
    munmap(other.segment, sizeof *other.segment);
    real_close(other.world);
}

/* `piece` bytes at a time. */
static bool put_bytes(const void *bytes, size_t n, size_t piece)
{
    for (size_t at = 0; at < n;) {
        size_t rest = n - at;
        struct iovec part = {(char *)(uintptr_t)bytes + at, rest < piece ? rest : piece};
        ssize_t k = other.stream.ops->send(&other.stream, &part, 1);
        if (k < 0)
            return false;
        at += (size_t)k;
    }
    return true;
}

static bool put_frame(const struct frame *frame, const void *data, size_t n, size_t piece)
{
    static const char zeros[8];
    uint8_t bytes[FRAME_SIZE];
    frame_encode(frame, bytes);
    return put_bytes(bytes, sizeof bytes, piece) && put_bytes(data, n, piece) &&
           put_bytes(zeros, -(FRAME_SIZE + n) & 7, piece);
}

/* ---- the offer ---- */

static void expect_reply(struct world *w, const struct hello *hello, bool taken)
{
    struct hello answer;
    int fd = kit_connect_to(w);
    kit_put_hello(fd, hello);
    assert_int_equal(kit_get_hello(fd, &answer), OK);
    assert_int_equal(answer.refusal, REFUSED_NOT);
    assert_int_equal(answer.shm, taken);
    close(fd);
}

static int a_file(size_t size, int seals)
{
    int file = memfd_create("paceline", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, (off_t)size), 0);
    assert_int_equal(fcntl(file, F_ADD_SEALS, seals), 0);
    return file;
}

/* Memory that could shrink, is too short, is another's, or is no memory at all, is not taken; the
 * connection is good without. */
static void test_offers(void **state)
{
    (void)state;
    const int sealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    struct world *w = kit_driver(5 * WORLD_SECOND);
    struct hello hello = *kit_hello(0, WORLD_ANY, WORLD_DRIVER);
    hello.shm = true;
    hello.process = (uint32_t)getpid();
    const int files[] = {
        a_file(sizeof(struct segment), sealed),
        a_file(sizeof(struct segment), F_SEAL_SEAL),
        a_file(sizeof(struct segment) - 1, sealed),
        a_file(0, sealed),
        open("/dev/null", O_RDWR),
        kit_connect_to(w),
        memfd_create("another", MFD_ALLOW_SEALING),
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        hello.file = (uint32_t)files[i];
        expect_reply(w, &hello, i == 0); /* whose nonce is all zeros, as is the hello's */
    }
    hello.file = (uint32_t)files[0];
    hello.nonce[3] = 1;
    expect_reply(w, &hello, false);
    hello.nonce[3] = 0;
    hello.file = 1 << 20;
    expect_reply(w, &hello, false);
    hello.file = (uint32_t)files[0];
    hello.process = UINT32_MAX;
    expect_reply(w, &hello, false);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        close(files[i]);
    real_close(w);
}

/* ---- bytes ---- */

enum { WORDS = 3000 };

static void land_sum(void *user, void *at, const void *bytes, size_t n)
{
    (void)user;
    assert_true((uintptr_t)bytes % 4 == 0 && n % 4 == 0);
    for (size_t i = 0; i < n / 4; i++)
        ((float *)at)[i] += ((const float *)bytes)[i];
}

/* Odd messages and sums, a few bytes at a time, and many times round the ring. */
static int receive_dribble(struct world *w)
{
    const size_t pieces[] = {1, 3, 20, 4096, 1 << 20};
    static float x[WORDS], sum[WORDS];
    for (int i = 0; i < WORDS; i++)
        x[i] = (float)i;
    CHECK(suite_peer_is(w, other.number, true) == OK);
    for (uint32_t i = 0; i < 400; i++) {
        struct wake wake;
        struct recv recv = {.from = other.number,
                            .view = 1,
                            .tag = i,
                            .into = sum,
                            .len = sizeof sum,
                            .land = land_sum};
        struct wait_for done = {.kind = WAIT_RECV, .recv = &recv};
        size_t piece = i < 20 ? pieces[i % 5] : pieces[3 + i % 2];
        memset(sum, 0, sizeof sum);
        CHECK(world_post_recv(w, &recv) == OK);
        CHECK(put_frame(&(struct frame){i % 9 + 1, FRAME_DATA, CLASS_BULK, 1, 1000}, "odd number",
                        i % 9 + 1, piece));
        CHECK(
            put_frame(&(struct frame){sizeof x, FRAME_DATA, CLASS_BULK, 1, i}, x, sizeof x, piece));
        CHECK(world_wait(w, &done, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
        CHECK(recv.status == OK && memcmp(sum, x, sizeof x) == 0);
        done = (struct wait_for){
            .kind = WAIT_MESSAGE, .from = WORLD_ANY, .view = 1, .tag = 1000, .mask = UINT64_MAX};
        CHECK(world_wait(w, &done, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
        CHECK(wake.msg->len == i % 9 + 1 && memcmp(wake.msg->data, "odd number", i % 9 + 1) == 0);
        message_unref(wake.msg);
    }
    return OK;
}

static void test_dribble(void **state)
{
    (void)state;
    begin_story();
    kit_check(other.world, receive_dribble);
    end_story();
}

/* ---- the end ---- */

/* Half a message, and then the connection is reset. */
static int is_reset(struct world *w)
{
    char x[1000] = "";
    struct recv recv = {.from = other.number, .view = 1, .tag = 5, .into = x, .len = sizeof x};
    struct wait_for done = {.kind = WAIT_RECV, .recv = &recv};
    struct wake wake;
    CHECK(suite_peer_is(w, other.number, true) == OK && world_post_recv(w, &recv) == OK);
    CHECK(put_frame(&(struct frame){1000, FRAME_DATA, CLASS_BULK, 1, 5}, x, 500, 4096));
    CHECK(world_wait(w, &done, 1, suite_until(w, KIT_MOMENT), &wake) == ERR_TIMEOUT);
    struct linger at_once = {.l_onoff = 1};
    setsockopt(other.stream.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    stream_close(&other.stream);
    other.stream.fd = -1;
    int64_t closed = world_now(w);
    CHECK(world_wait(w, &done, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
    CHECK(recv.status == ERR_PEER && suite_peer_is(w, other.number, false) == OK);
    CHECK(world_now(w) - closed < KIT_MOMENT);
    return OK;
}

static void test_reset(void **state)
{
    (void)state;
    begin_story();
    kit_check(other.world, is_reset);
    end_story();
}

/* Bytes that were put before an orderly end are read before it. */
static int receive_last_words(struct world *w)
{
    static char data[100 * 1000];
    CHECK(suite_peer_is(w, other.number, true) == OK);
    for (uint32_t i = 0; i < 9; i++)
        CHECK(put_frame(&(struct frame){sizeof data, FRAME_DATA, CLASS_BULK, 0, 7}, data,
                        sizeof data, 1 << 20));
    CHECK(other.stream.ops->shut(&other.stream) == OK);
    CHECK(suite_peer_is(w, other.number, false) == OK);
    for (uint32_t i = 0; i < 9; i++) {
        struct wait_for any = {.kind = WAIT_MESSAGE, .from = WORLD_ANY, .tag = 7, .mask = ~0ull};
        struct wake wake;
        CHECK(world_wait(w, &any, 1, suite_until(w, 0), &wake) == OK);
        message_unref(wake.msg);
    }
    return OK;
}

static void test_last_words(void **state)
{
    (void)state;
    begin_story();
    kit_check(other.world, receive_last_words);
    end_story();
}

/* ---- garbage ---- */

static void ring_bell(void)
{
    (void)!send(other.stream.fd, "", 1, MSG_NOSIGNAL);
}

/* Places where none are, and frames that are none: cut off, and others are served. */
static void spoil_ring(int damage)
{
    begin_story();
    struct segment *s = other.segment;
    uint8_t noise[64];
    memset(noise, 0xff, sizeof noise);
    if (damage == 0) {
        atomic_store(&s->ends[0].written, UINT32_MAX / 2);
    } else if (damage == 1) { /* it notices when it has something to say */
        atomic_store(&s->ends[1].read, UINT32_MAX / 2);
        put_frame(&(struct frame){4, FRAME_DATA, CLASS_CONTROL, 0, 1}, "word", 4, 64);
        world_send(other.world, other.number, message_new(1, 0, 4), CLASS_CONTROL);
    } else {
        put_bytes(noise, sizeof noise, sizeof noise);
    }
    ring_bell();
    bool closed = false;
    for (int64_t until = real_now() + 5 * WORLD_SECOND; !closed && real_now() < until;)
        closed = kit_closes(other.stream.fd, KIT_MOMENT); /* behind doorbells */
    assert_true(closed);
    real_close(kit_worker(other.world));
    end_story();
}

static void test_garbage(void **state)
{
    (void)state;
    for (int damage = 0; damage < 3; damage++)
        spoil_ring(damage);
}

/* All of it changes all the time while a node reads and writes there. */
static int survive_garbage(struct world *w)
{
    CHECK(suite_peer_is(w, other.number, true) == OK);
    for (uint64_t i = 0; i < 3000; i++) {
        uint32_t *words = (uint32_t *)other.segment;
        words[rng_u64(9, 1, i) % (sizeof(struct segment) / 4)] = (uint32_t)rng_u64(9, 2, i);
        if (i % 3 == 0)
            put_frame(&(struct frame){4, FRAME_DATA, CLASS_CONTROL, 0, 1}, "word", 4, 64);
        if (i % 50 == 0)
            atomic_store(&other.segment->ends[0].written, (uint32_t)(i * 977 % SHM_RING_BYTES));
        struct message *m = message_new(1, 0, 4);
        CHECK(m);
        memset(m->data, 0, 4);
        int rc = world_send(w, other.number, m, CLASS_CONTROL);
        if (rc == ERR_FULL)
            message_unref(m);
        ring_bell();
        if (rc == ERR_PEER)
            break;
    }
    return OK;
}

static void test_garbage_meanwhile(void **state)
{
    (void)state;
    begin_story();
    kit_check(other.world, survive_garbage);
    end_story();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offers),  cmocka_unit_test(test_dribble),
        cmocka_unit_test(test_reset),   cmocka_unit_test(test_last_words),
        cmocka_unit_test(test_garbage), cmocka_unit_test(test_garbage_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
