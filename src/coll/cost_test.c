#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/status.h"
#include "coll/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1024 * 1024 };

static bool is_near(double a, double b, double relative)
{
    return fabs(a - b) <= relative * fabs(b);
}

/* ---- closed forms ---- */

/* u = 1, v = 2, z = 3, g = 5, b = 10, blocks of 5, by hand. One stage of whole vectors, serial:
 * 1 + 20 + 60 + 50 = 131; on two cores 1 + 20 + 30 + 25 = 76. */
static void test_cost_of_eight_ranks_by_hand(void **state)
{
    (void)state;
    const struct cost_model m = {1, 2, 3, 5, 2};
    const double broadcast = 2 * (1 + 10 + 30);
    assert_true(is_near(cost_allreduce(COLL_TREE, &m, 8, 10, 5), 3 * 131 + broadcast, 1e-12));
    assert_true(is_near(cost_allreduce(COLL_BUTTERFLY, &m, 8, 10, 5), 3 * 76, 1e-12));
    assert_true(is_near(cost_allreduce(COLL_RING, &m, 8, 10, 5), 7 * 131, 1e-12));
    /* 7·(2 + 40/8 + 120/16 + 50/16) */
    assert_true(is_near(cost_allreduce(COLL_CHUNKED_RING, &m, 8, 10, 5), 123.375, 1e-12));
    assert_true(is_near(cost_allreduce(COLL_SCATTER_GATHER, &m, 8, 10, 5), 123.375, 1e-12));
    /* 6 + 14/8·(20 + 30) + 7/8·25 */
    assert_true(is_near(cost_allreduce(COLL_HALVING_DOUBLING, &m, 8, 10, 5), 115.375, 1e-12));
    /* and at 11 ranks 2 + 2·50 + 25 more */
    assert_true(is_near(cost_allreduce(COLL_HALVING_DOUBLING, &m, 11, 10, 5), 242.375, 1e-12));
}

static const struct cost_model models[] = {
    {1e-4, 8e-9, 0, 1e-10, 1},
    {0.04, 1e-9, 5e-9, 2e-9, 20},
    {1, 0, 0, 0, 4},
    {0, 1e-9, 0, 0, 1},
    {0, 0, 1e-9, 0, 3},
    {0, 0, 0, 1e-9, 2},
    {1e-6, 1e-10, 1e-9, 1e-10, 64},
};
enum { MODELS = sizeof models / sizeof *models };

static void test_cost_grows_with_bytes_and_ranks(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++)
        for (enum coll_algorithm a = COLL_TREE; a < COLL_ALGORITHMS; a++) {
            /* Ours steps down after each power of two, as its schedule does. */
            size_t stride = a == COLL_HALVING_DOUBLING ? 0 : 1;
            assert_true(cost_allreduce(a, &models[i], 1, 1e9, MIB) == 0);
            for (size_t p = 2; p <= 256; p = stride ? p + stride : 2 * p)
                for (double b = 1; b < 1e10; b *= 10) {
                    double here = cost_allreduce(a, &models[i], p, b, MIB);
                    size_t more = stride ? p + stride : 2 * p;
                    assert_true(here > 0);
                    assert_true(cost_allreduce(a, &models[i], p, 10 * b, MIB) >= here);
                    assert_true(cost_allreduce(a, &models[i], more, b, MIB) >= here);
                }
        }
}

static void test_cost_of_halving_doubling_bound(void **state)
{
    (void)state;
    for (size_t p = 2; p <= 256; p++) {
        struct folded f = schedule_folded(p, 0);
        double here = cost_allreduce(COLL_HALVING_DOUBLING, &models[0], p, 1e6, MIB);
        assert_true(here >= cost_allreduce(COLL_HALVING_DOUBLING, &models[0], f.power, 1e6, MIB));
    }
}

static void test_cost_equation_4_6_is_the_difference(void **state)
{
    (void)state;
    int above = 0, below = 0;
    for (int i = 0; i < MODELS; i++)
        for (size_t p = 2; p <= 256; p++)
            for (double b = 1; b < 1e10; b *= 10) {
                double ring = cost_allreduce(COLL_CHUNKED_RING, &models[i], p, b, MIB);
                double butterfly = cost_allreduce(COLL_BUTTERFLY, &models[i], p, b, MIB);
                double left = cost_equation_4_6(&models[i], (double)p, b);
                double off = left - (ring - butterfly);
                assert_true(fabs(off) <= 1e-12 * (ring + butterfly));
                if (fabs(left) <= 1e-12 * (ring + butterfly))
                    continue; /* rounding has the sign */
                assert_int_equal(left > 0, ring > butterfly);
                above += left > 0;
                below += left < 0;
            }
    assert_true(above > 100 && below > 100);
}

/* Table 4.1: where each coefficient is above 0. The row of u is sufficient only: it is so from
 * p > 1 on. No row of p ≥ 2 makes all three positive, so latency alone speaks for a butterfly. */
static void test_cost_table_4_1(void **state)
{
    (void)state;
    const struct cost_model u = {.u = 1, .cores = 1}, v = {.v = 1, .cores = 1};
    const struct cost_model z = {.z = 1, .cores = 1}, g = {.g = 1, .cores = 1};
    for (int i = 1; i < 4096; i++) {
        double p = i / 64.0, edge = 1e-12;
        double of_u = cost_equation_4_6(&u, p, 1), of_v = cost_equation_4_6(&v, p, 1);
        double of_z = cost_equation_4_6(&z, p, 1), of_g = cost_equation_4_6(&g, p, 1);
        assert_true(p <= 1 || of_u > 0);
        assert_int_equal(of_v > edge, p > 1 && p < 2);
        assert_int_equal(of_z > edge, p > 1 && p < 2);
        assert_int_equal(of_g > edge, p > 0.5 && p < 1);
    }
}

/* ---- real links ---- */

enum { RANKS_MAX = 64, KB256 = 64 * 1024 };
static const double gigabit = 125e6;

struct bench {
    double send[RANKS_MAX], recv[RANKS_MAX];
    size_t cut[RANKS_MAX + 1];
    struct cost_links links;
};

static void bench_init(struct bench *b, size_t ranks, double rate, double latency)
{
    for (size_t r = 0; r < ranks; r++)
        b->send[r] = b->recv[r] = rate;
    b->links = (struct cost_links){ranks, b->send, b->recv, latency, INFINITY, 0};
}

static struct cost_choice choose_any(struct bench *b, size_t n)
{
    return cost_choose(&b->links, n, COST_ANY, b->cut);
}

/* 1e7 floats are 0.32 s of a gigabit. A ring and halving-doubling move 1.5 of them; a tree's root
 * takes in, and gives out, two. */
static void test_cost_of_four_equal_ranks(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 4, gigabit, 1e-4);
    struct cost_choice c = choose_any(&b, 10000000);
    assert_int_equal(c.algorithm, COLL_HALVING_DOUBLING);
    assert_true(is_near(c.seconds, 0.48, 0.01));
    double ring = cost_predict(COLL_CHUNKED_RING, &b.links, 10000000, KB256, NULL);
    double tree = cost_predict(COLL_TREE, &b.links, 10000000, KB256, NULL);
    double whole = cost_predict(COLL_RING, &b.links, 10000000, KB256, NULL);
    assert_true(is_near(ring, 0.48, 0.01) && tree > 0.64 && is_near(whole, 0.96, 0.01));
    c = choose_any(&b, 10); /* two hops of 100 µs */
    assert_int_equal(c.algorithm, COLL_BUTTERFLY);
    assert_true(is_near(c.seconds, 2e-4, 0.01));
    double four_hops = cost_predict(COLL_TREE, &b.links, 10, KB256, NULL);
    assert_true(is_near(four_hops, 4e-4, 0.01));
}

/* In pieces of 10 floats at 1 s a float, latency 100: by hand. */
static void test_cost_of_two_ranks_by_hand(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 2, sizeof(float), 100);
    /* One hop of one piece. */
    assert_true(cost_predict(COLL_BUTTERFLY, &b.links, 10, 10, NULL) == 110);
    /* A thousand floats leave one after another; the last is under way for 100. */
    assert_true(cost_predict(COLL_BUTTERFLY, &b.links, 1000, 10, NULL) == 1100);
    /* Halves there and halves back, the first round's latency hidden by its length. */
    assert_true(cost_predict(COLL_HALVING_DOUBLING, &b.links, 1024, 16, NULL) == 1124);
    /* 1000 up and 1000 down at the same time; a piece goes up, and down. */
    assert_true(cost_predict(COLL_TREE, &b.links, 1000, 10, NULL) == 1210);
    /* Work of 6 s at either end of each of the 2·100 pieces a rank sees, and 1 s a float to add. */
    b.links.per_message = 6, b.links.reduce_rate = sizeof(float);
    assert_true(cost_predict(COLL_BUTTERFLY, &b.links, 1000, 10, NULL) == 2200);
    assert_true(cost_predict(COLL_BUTTERFLY, &b.links, 10, 10, NULL) == 10 + 100 + 12 + 10);
}

/* A slow rank has to send its vector and to get the result: 2·b/v at half the rate. A ring carries
 * half as much again over its link. */
static void test_cost_gives_a_slow_rank_no_share(void **state)
{
    (void)state;
    for (size_t slow = 0; slow < 4; slow++) {
        struct bench b;
        bench_init(&b, 4, gigabit, 1e-4);
        b.send[slow] = b.recv[slow] = gigabit / 2;
        struct cost_choice c = choose_any(&b, 10000000);
        assert_int_equal(c.algorithm, COLL_SCATTER_GATHER);
        assert_true(c.seconds >= 0.64 && is_near(c.seconds, 0.64, 0.02));
        assert_true(
            is_near(cost_predict(COLL_CHUNKED_RING, &b.links, 10000000, KB256, NULL), 0.96, 0.01));
        for (size_t r = 0; r < 4; r++) {
            double part = (double)(b.cut[r + 1] - b.cut[r]);
            assert_true(r == slow ? part == 0 : is_near(part, 1e7 / 3, 1e-4));
        }
    }
}

static void test_cost_of_equally_slow_ranks(void **state)
{
    (void)state;
    for (size_t ranks = 1; ranks <= 9; ranks++)
        for (size_t n = 1000000; n <= 10000000; n *= 10) {
            struct bench full, half;
            bench_init(&full, ranks, gigabit, 1e-4);
            bench_init(&half, ranks, gigabit / 2, 1e-4);
            struct cost_choice a = choose_any(&full, n), b = choose_any(&half, n);
            bool even = schedule_folded(ranks, 0).extra == 0;
            assert_int_equal(a.algorithm, even ? COLL_HALVING_DOUBLING : COLL_CHUNKED_RING);
            assert_int_equal(b.algorithm, a.algorithm);
            assert_memory_equal(full.cut, half.cut, (ranks + 1) * sizeof *full.cut);
        }
}

/* Whatever the rates, the busiest link of the parts is at the bound that no parts undercut. */
static void test_cost_shares_reach_their_bound(void **state)
{
    (void)state;
    const size_t n = 16000000;
    for (uint64_t i = 0; i < 200; i++) {
        size_t p = 2 + i % 15;
        struct bench b;
        double sum = 0, slowest = INFINITY, busiest = 0;
        bench_init(&b, p, gigabit, 0);
        for (size_t r = 0; r < p; r++) {
            b.send[r] *= 0.05 + (double)rng_uniform(1, i, 2 * r);
            b.recv[r] *= 0.05 + (double)rng_uniform(1, i, 2 * r + 1);
            sum += fmin(b.send[r], b.recv[r]);
            slowest = fmin(slowest, fmin(b.send[r], b.recv[r]));
        }
        cost_shares(&b.links, n, b.cut);
        assert_true(b.cut[0] == 0 && b.cut[p] == n);
        for (size_t r = 0; r < p; r++) {
            assert_true(b.cut[r] <= b.cut[r + 1]);
            double moved = (double)(p - 2) * (double)(b.cut[r + 1] - b.cut[r]) + (double)n;
            busiest = fmax(busiest, 4 * moved / fmin(b.send[r], b.recv[r]));
        }
        double bound = 4 * (double)n * fmax(1 / slowest, 2 * (double)(p - 1) / sum);
        assert_true(busiest >= bound * 0.999 && busiest <= bound * 1.001);
    }
}

/* A short vector's parts are whole floats, and some get none. */
static void test_cost_shares_of_few_floats(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 5, gigabit, 0);
    for (size_t n = 0; n < 200; n++) {
        cost_shares(&b.links, n, b.cut);
        for (size_t r = 0; r < 5; r++)
            assert_true(b.cut[r] <= b.cut[r + 1] && b.cut[r + 1] <= n);
        assert_true(b.cut[0] == 0 && b.cut[5] == n);
    }
}

static void test_cost_chooses_among_allowed(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 4, gigabit, 1e-4);
    for (enum coll_algorithm a = COLL_TREE; a < COLL_ALGORITHMS; a++)
        assert_int_equal(cost_choose(&b.links, 1000, 1u << a, b.cut).algorithm, a);
    unsigned lossy = COST_ANY & ~(1u << COLL_BUTTERFLY | 1u << COLL_RING);
    enum coll_algorithm a = cost_choose(&b.links, 10, lossy, b.cut).algorithm;
    assert_true(a != COLL_BUTTERFLY && a != COLL_RING);
}

/* Pieces cost work: with much of it they get large; with a long chain they get small. */
static void test_cost_chunks_fit_the_links(void **state)
{
    (void)state;
    struct bench work, chain;
    bench_init(&work, 4, gigabit, 1e-4);
    work.links.per_message = 1e-3;
    size_t large = choose_any(&work, 10000000).chunk;
    bench_init(&chain, 16, gigabit, 0);
    size_t small = cost_choose(&chain.links, 1000000, 1u << COLL_TREE, chain.cut).chunk;
    assert_true(large >= 128 * 1024 && small <= 8 * 1024);
}

/* ---- the chain of hops, from the schedules ---- */

enum { CELLS = 64, P_MAX = 17, ROOM = CELLS * (P_MAX + 1) };

struct chain {
    size_t ranks;
    struct schedule by[P_MAX];
    size_t next[P_MAX];
    unsigned depth[P_MAX][ROOM];            /* messages that an element has been through */
    unsigned sent[P_MAX][P_MAX][4 * P_MAX]; /* at most, of a message's elements */
    size_t first[P_MAX][P_MAX], last[P_MAX][P_MAX];
};

static unsigned deepest_of(const unsigned *depth, size_t len)
{
    unsigned most = 0;
    for (size_t i = 0; i < len; i++)
        most = depth[i] > most ? depth[i] : most;
    return most;
}

/* Whether rank r could do its next step. */
static bool take_step(struct chain *c, size_t r)
{
    if (c->next[r] == c->by[r].count)
        return false;
    const struct step *s = &c->by[r].step[c->next[r]];
    unsigned *at = c->depth[r] + s->at;
    if (s->kind == STEP_SEND) {
        c->sent[r][s->peer][c->last[r][s->peer]++] = deepest_of(at, s->len) + 1;
        c->next[r]++;
        return true;
    }
    bool receives = s->kind == STEP_RECV || s->kind == STEP_REDUCE;
    size_t *first = &c->first[s->peer][r];
    if (receives && *first == c->last[s->peer][r])
        return false;
    unsigned come = receives ? c->sent[s->peer][r][(*first)++] : 0;
    for (size_t i = 0; i < s->len; i++) {
        unsigned other = receives ? come : c->depth[r][s->source + i];
        bool adds = s->kind == STEP_REDUCE || s->kind == STEP_FOLD;
        at[i] = adds && at[i] > other ? at[i] : other;
    }
    c->next[r]++;
    return true;
}

static unsigned longest_chain(struct chain *c, enum coll_algorithm a, size_t ranks)
{
    memset(c, 0, sizeof *c);
    for (size_t r = 0; r < ranks; r++)
        assert_int_equal(schedule_allreduce(&c->by[r], a, ranks, r, CELLS, NULL), OK);
    bool moving = true;
    while (moving) {
        moving = false;
        for (size_t r = 0; r < ranks; r++)
            while (take_step(c, r))
                moving = true;
    }
    unsigned most = 0;
    for (size_t r = 0; r < ranks; r++) {
        assert_int_equal(c->next[r], c->by[r].count);
        unsigned here = deepest_of(c->depth[r], CELLS);
        most = here > most ? here : most;
        schedule_release(&c->by[r]);
    }
    return most;
}

/* Where bytes cost next to nothing and a message 1 s, a prediction is the chain. */
static void test_cost_latency_once_a_hop(void **state)
{
    (void)state;
    struct chain *c = malloc(sizeof *c);
    assert_non_null(c);
    for (enum coll_algorithm a = COLL_TREE; a < COLL_ALGORITHMS; a++)
        for (size_t p = 1; p <= P_MAX; p++) {
            struct bench b;
            bench_init(&b, p, 1e15, 1);
            double seconds = cost_predict(a, &b.links, CELLS, CELLS, NULL);
            assert_true(fabs(seconds - longest_chain(c, a, p)) < 1e-6);
        }
    free(c);
}

/* ---- drift ---- */

static void test_cost_noise_is_no_drift(void **state)
{
    (void)state;
    double measured[2000];
    for (uint64_t i = 0; i < 2000; i++) {
        measured[i] = 0.48 * (1 + 0.2 * ((double)rng_uniform(9, 1, i) - 0.5));
        assert_false(cost_drifted(0.48, measured, i + 1));
    }
    assert_false(cost_drifted(0.48, measured, 0));
}

static void test_cost_halved_link_shows_at_once(void **state)
{
    (void)state;
    const double sudden[] = {0.48, 0.47, 0.49, 0.96}, alone[] = {0.96};
    assert_false(cost_drifted(0.48, sudden, 3));
    assert_true(cost_drifted(0.48, sudden, 4));
    assert_true(cost_drifted(0.48, alone, 1));
}

static void test_cost_small_drift_needs_two_more(void **state)
{
    (void)state;
    const double slower[] = {1, 1, 1.28, 1.28, 1.28}, faster[] = {1, 1, 0.5, 0.5},
                 once[] = {1, 0.5, 1};
    assert_false(cost_drifted(1, slower, 3));
    assert_true(cost_drifted(1, slower, 4));
    assert_false(cost_drifted(1, faster, 3));
    assert_true(cost_drifted(1, faster, 4));
    assert_false(cost_drifted(1, once, 3));
}

/* ---- volume ---- */

/* The sends of all ranks' schedules. */
static struct cost_volume count_sends(size_t ranks, size_t n, int algorithm)
{
    struct cost_volume sum = {0, 0};
    for (size_t me = 0; me < ranks; me++) {
        struct schedule s;
        int rc = algorithm < 0
                     ? schedule_all_gather(&s, ranks, me, n, NULL)
                     : schedule_allreduce(&s, (enum coll_algorithm)algorithm, ranks, me, n, NULL);
        assert_int_equal(rc, OK);
        for (size_t i = 0; i < s.count; i++) {
            sum.messages += s.step[i].kind == STEP_SEND;
            sum.bytes += s.step[i].kind == STEP_SEND ? 4.0 * (double)s.step[i].len : 0;
        }
        schedule_release(&s);
    }
    return sum;
}

static void test_cost_volume_is_that_of_schedules(void **state)
{
    (void)state;
    static const size_t lengths[] = {64, 1000, 4099};
    for (size_t ranks = 1; ranks <= 9; ranks++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (int a = COLL_TREE; a < COLL_ALGORITHMS; a++) {
                size_t n = lengths[i];
                struct cost_volume sent = count_sends(ranks, n, a);
                struct cost_volume predicted = cost_sum_volume((enum coll_algorithm)a, ranks, n);
                struct cost_volume gathered = count_sends(ranks, n, -1);
                if (sent.messages != predicted.messages || sent.bytes != predicted.bytes)
                    fail_msg("%s, %zu ranks, %zu floats: %g messages of %g bytes, not %g of %g",
                             coll_algorithm_name((enum coll_algorithm)a), ranks, n, sent.messages,
                             sent.bytes, predicted.messages, predicted.bytes);
                predicted = cost_gather_volume(ranks, n);
                assert_true(gathered.messages == predicted.messages &&
                            gathered.bytes == predicted.bytes);
            }
}

/* Two replicas of two slices: gathers of 100 and a sum of 60 floats in each, and sums of 30 and 31
 * over two peers. */
static void test_cost_of_a_sliced_step_by_hand(void **state)
{
    (void)state;
    const struct cost_meeting meetings[] = {{false, 100}, {true, 60}};
    const size_t peers[] = {30, 31};
    const struct cost_sliced s = {2, 2, COLL_TREE, meetings, 2, peers};
    struct cost_volume v = cost_sliced_step(&s);
    assert_true(v.messages == 2 * (2 + 2) + 2 + 2);
    assert_true(v.bytes == 4 * (2 * (100 + 2 * 60) + 2 * 30 + 2 * 31));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cost_of_eight_ranks_by_hand),
        cmocka_unit_test(test_cost_grows_with_bytes_and_ranks),
        cmocka_unit_test(test_cost_of_halving_doubling_bound),
        cmocka_unit_test(test_cost_equation_4_6_is_the_difference),
        cmocka_unit_test(test_cost_table_4_1),
        cmocka_unit_test(test_cost_of_four_equal_ranks),
        cmocka_unit_test(test_cost_of_two_ranks_by_hand),
        cmocka_unit_test(test_cost_gives_a_slow_rank_no_share),
        cmocka_unit_test(test_cost_of_equally_slow_ranks),
        cmocka_unit_test(test_cost_shares_reach_their_bound),
        cmocka_unit_test(test_cost_shares_of_few_floats),
        cmocka_unit_test(test_cost_chooses_among_allowed),
        cmocka_unit_test(test_cost_chunks_fit_the_links),
        cmocka_unit_test(test_cost_latency_once_a_hop),
        cmocka_unit_test(test_cost_noise_is_no_drift),
        cmocka_unit_test(test_cost_halved_link_shows_at_once),
        cmocka_unit_test(test_cost_small_drift_needs_two_more),
        cmocka_unit_test(test_cost_volume_is_that_of_schedules),
        cmocka_unit_test(test_cost_of_a_sliced_step_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
