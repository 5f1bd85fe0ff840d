/* A ring between two threads that sleep when there is nothing to do, and with another side that
 * writes whatever it likes. */
#include "real/byte_ring.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 1 << 16, ALL = 8 << 20, STEP_MAX = 3 * SIZE };

static struct ring_ends *ends;
static uint8_t *bytes;
static int bell[2][2]; /* pipes: for the reader, for the writer */

static struct ring a_ring(void)
{
    return (struct ring){.ends = ends, .bytes = bytes, .size = SIZE};
}

static int setup(void **state)
{
    (void)state;
    ends = aligned_alloc(64, sizeof *ends);
    bytes = malloc(SIZE); /* exactly: the sanitizer sees the byte after it */
    assert_true(ends && bytes);
    memset(ends, 0, sizeof *ends);
    memset(bytes, 0, SIZE);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(ends);
    free(bytes);
    return 0;
}

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 11 + (i >> 9) + (i >> 17));
}

static void wake_end(int which)
{
    assert_int_equal(write(bell[which][1], "", 1), 1);
}

/* false: nobody woke us. */
static bool sleep_at(int which)
{
    struct pollfd p = {.fd = bell[which][0], .events = POLLIN};
    char one;
    return poll(&p, 1, 10000) == 1 && read(bell[which][0], &one, 1) == 1;
}

static void *writes_all(void *arg)
{
    struct ring r = a_ring();
    uint8_t *from = malloc(STEP_MAX);
    for (size_t at = 0, k = 0; from && at < ALL; k++) {
        size_t n = rng_u64(1, 1, k) % STEP_MAX;
        n = n < ALL - at ? n : ALL - at;
        for (size_t i = 0; i < n; i++)
            from[i] = byte_at(at + i);
        for (size_t done = 0; done < n;) {
            size_t half = (n - done) / 2;
            const struct iovec part[2] = {{from + done, half},
                                          {from + done + half, n - done - half}};
            bool awake = false;
            ptrdiff_t put = ring_put(&r, part, 2, &awake);
            if (put < 0)
                goto out;
            if (awake)
                wake_end(0);
            done += (size_t)put;
            if (put > 0)
                continue;
            ring_want_room(&r);
            if (!ring_has_room(&r) && !sleep_at(1))
                goto out;
        }
        at += n;
    }
    arg = NULL;
out:
    free(from);
    return arg;
}

static void test_all_arrive(void **state)
{
    (void)state;
    pthread_t writer;
    void *failed;
    struct ring r = a_ring();
    const uint8_t *in;
    assert_int_equal(pipe(bell[0]) | pipe(bell[1]), 0);
    assert_int_equal(pthread_create(&writer, NULL, writes_all, &r), 0);
    for (size_t at = 0, k = 0; at < ALL; k++) {
        ptrdiff_t n = ring_peek(&r, &in);
        assert_in_range(n, 0, SIZE);
        if (n == 0) {
            ring_want_bytes(&r);
            assert_true(ring_has_bytes(&r) || sleep_at(0));
            continue;
        }
        size_t take = 1 + rng_u64(1, 2, k) % (size_t)n;
        for (size_t i = 0; i < take; i++)
            if (in[i] != byte_at(at + i))
                fail_msg("byte %zu", at + i);
        if (ring_consume(&r, (uint32_t)take))
            wake_end(1);
        at += take;
    }
    pthread_join(writer, &failed);
    assert_null(failed);
    for (int i = 0; i < 4; i++)
        close(bell[i / 2][i % 2]);
}

/* Whatever the other side says it has done: nothing is touched beyond the ring. */
static void test_garbage(void **state)
{
    (void)state;
    struct ring in = a_ring(), out = a_ring();
    static uint8_t from[2 * SIZE];
    const struct iovec all = {from, sizeof from};
    const uint8_t *at;
    bool awake;
    int refused = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t r = rng_u64(2, 1, i);
        uint32_t place = r & 1 ? (uint32_t)(r >> 32) : in.at + (uint32_t)(r >> 32) % (2 * SIZE);
        atomic_store(&ends->written, place);
        ptrdiff_t n = ring_peek(&in, &at);
        assert_true(n == -1 || (n >= 0 && at >= bytes && at + n <= bytes + SIZE));
        refused += n < 0;
        if (n > 0)
            ring_consume(&in, (uint32_t)n);
        place = r & 2 ? (uint32_t)(r >> 30) : out.at - (uint32_t)(r >> 40) % (2 * SIZE);
        atomic_store(&ends->read, place);
        n = ring_put(&out, &all, 1, &awake);
        assert_in_range(n + 1, 0, SIZE + 1);
        refused += n < 0;
    }
    assert_in_range(refused, 1000, 39000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_arrive, setup, teardown),
        cmocka_unit_test_setup_teardown(test_garbage, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
