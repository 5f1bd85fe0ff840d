/* Relays without a world: the sum over all arrives at rank 0, rank 0's vector at all, and no link
 * carries more than another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "schedule_cluster.h"
#include "tensor/codec.h"

enum { N = 300 * CODEC_BLOCK };

/* Small whole numbers, so that sums are exact in any order. */
static float input_value(size_t rank, size_t i)
{
    return rank == 0 ? 1e6f : (float)((rank * 37 + i * 11) % 101) - 50.0f;
}

static void set_up(struct cluster *c, bool reduce)
{
    for (size_t r = 0; r < c->ranks; r++)
        assert_int_equal(reduce ? schedule_relay_reduce(&c->by[r], c->ranks, r, c->n)
                                : schedule_relay_broadcast(&c->by[r], c->ranks, r, c->n),
                         OK);
    cluster_make_room(c);
    for (size_t r = 0; r < c->ranks; r++)
        for (size_t i = 0; i < c->n; i++)
            c->x[r][i] = input_value(r, i);
    cluster_carry_out(c);
}

static const size_t sizes[] = {0, 1, 2, 7, 16, 63, 64, 100, 1000, 5000, 40000};

static void test_relay_sums_to_rank_0(void **state)
{
    (void)state;
    for (size_t ranks = 2; ranks <= RANKS_MAX; ranks++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            struct cluster c = {.ranks = ranks, .n = sizes[k]};
            set_up(&c, true);
            for (size_t i = 0; i < c.n; i++) {
                float sum = 0;
                for (size_t r = 1; r < ranks; r++)
                    sum += input_value(r, i);
                assert_true(c.x[0][i] == sum); /* rank 0's own vector is not in it */
            }
            cluster_tear_down(&c);
        }
}

static void test_relay_broadcasts_from_rank_0(void **state)
{
    (void)state;
    for (size_t ranks = 1; ranks <= RANKS_MAX; ranks++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            struct cluster c = {.ranks = ranks, .n = sizes[k]};
            set_up(&c, false);
            for (size_t r = 0; r < ranks; r++)
                for (size_t i = 0; i < c.n; i++)
                    assert_true(c.x[r][i] == 1e6f);
            cluster_tear_down(&c);
        }
}

/* Counts the floats that a rank receives by its schedule. */
static size_t count_received(const struct schedule *s)
{
    size_t sum = 0;
    for (size_t i = 0; i < s->count; i++)
        sum += s->step[i].kind == STEP_SEND ? 0 : s->step[i].len;
    return sum;
}

/* There and back 2 - 1/K of the vector for each of K ranks, and one vector for rank 0. */
static void test_relay_links_are_equally_busy(void **state)
{
    (void)state;
    for (size_t ranks = 2; ranks <= RANKS_MAX; ranks++) {
        size_t others = ranks - 1, slack = CODEC_BLOCK; /* parts are cut at its multiples */
        struct cluster there = {.ranks = ranks, .n = N}, back = there;
        set_up(&there, true), set_up(&back, false);
        for (size_t r = 0; r < ranks; r++) {
            size_t out = there.floats_sent[r] + back.floats_sent[r];
            size_t in = count_received(&there.by[r]) + count_received(&back.by[r]);
            size_t want = r == 0 ? N : 2 * N - N / others;
            assert_true(out <= want + slack && in <= want + slack);
            assert_true(out + slack >= want && in + slack >= want);
        }
        cluster_tear_down(&there), cluster_tear_down(&back);
    }
}

/* The first of what rank 0 is to have leaves every chain's end long before the last begins: among
 * the steps of a rank, rank 0 is sent to again and again. */
static void test_relay_keeps_rank_0_busy(void **state)
{
    (void)state;
    struct schedule s;
    size_t first = SIZE_MAX, times = 0;
    assert_int_equal(schedule_relay_reduce(&s, 9, 4, N), OK);
    for (size_t i = 0; i < s.count; i++) {
        if (s.step[i].kind != STEP_SEND || s.step[i].peer != 0)
            continue;
        first = i < first ? i : first;
        times++;
    }
    assert_int_equal(times, 8);
    assert_true(first < s.count / 6);
    schedule_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relay_sums_to_rank_0),
        cmocka_unit_test(test_relay_broadcasts_from_rank_0),
        cmocka_unit_test(test_relay_links_are_equally_busy),
        cmocka_unit_test(test_relay_keeps_rank_0_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
