#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "group/members.h"

static void test_members_are_a_set(void **state)
{
    (void)state;
    struct members set = {{0}};
    assert_int_equal(members_count(&set), 0);
    static const uint32_t in[] = {0, 1, 63, 64, 65, 700, 1023};
    for (size_t i = 0; i < 7; i++) {
        members_add(&set, in[i]);
        members_add(&set, in[i]); /* twice is once */
        assert_int_equal(members_count(&set), i + 1);
    }
    for (uint32_t node = 0, k = 0; node < VIEW_MEMBERS_MAX; node++) {
        bool is = k < 7 && in[k] == node;
        assert_int_equal(members_has(&set, node), is);
        assert_int_equal(members_rank(&set, node), k);
        k += is;
    }
    assert_false(members_has(&set, VIEW_MEMBERS_MAX)); /* no wrapping round to node 0 */
    assert_false(members_has(&set, UINT32_MAX - 1));
}

static void test_members_round_trip(void **state)
{
    (void)state;
    struct members set = {{0}}, out;
    for (uint64_t i = 0; i < 100; i++)
        members_add(&set, (uint32_t)rng_below(1, 1, i, VIEW_MEMBERS_MAX));
    struct buf bytes = {0};
    members_encode(&set, &bytes);
    struct byte_reader in = {bytes.data, bytes.len, false};
    members_decode(&in, &out);
    assert_true(byte_reader_done(&in));
    assert_memory_equal(&set, &out, sizeof set);
    buf_release(&bytes);
}

/* Two pseudo-random sets, and the same as flags. */
struct pair {
    struct members a, b;
    bool in_a[VIEW_MEMBERS_MAX], in_b[VIEW_MEMBERS_MAX];
};

static void draw_pair(struct pair *p, uint64_t seed)
{
    *p = (struct pair){.a = {{0}}};
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++) {
        uint64_t bits = rng_below(seed, 2, node, 4 + seed % 30);
        if ((p->in_a[node] = bits & 1))
            members_add(&p->a, node);
        if ((p->in_b[node] = bits & 2))
            members_add(&p->b, node);
    }
}

static void test_members_operations_follow_their_elements(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct pair p;
        draw_pair(&p, seed);
        const struct members either = members_union(&p.a, &p.b);
        const struct members both = members_intersection(&p.a, &p.b);
        const struct members rest = members_without(&p.a, &p.b);
        for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++) {
            assert_int_equal(members_has(&either, node), p.in_a[node] || p.in_b[node]);
            assert_int_equal(members_has(&both, node), p.in_a[node] && p.in_b[node]);
            assert_int_equal(members_has(&rest, node), p.in_a[node] && !p.in_b[node]);
        }
        assert_true(members_within(&p.a, &either) && members_within(&both, &p.b));
        assert_int_equal(members_within(&p.a, &p.b), members_empty(&rest));
    }
}

static void test_members_each_visits_all_in_order(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct pair p;
        draw_pair(&p, seed);
        struct members left = p.a;
        uint32_t expected = 0;
        MEMBERS_EACH (node, &left) { /* the body may change the set */
            while (!p.in_a[expected])
                expected++;
            assert_int_equal(node, expected++);
            members_remove(&left, node);
        }
        assert_true(members_empty(&left));
    }
}

static void test_members_one(void **state)
{
    (void)state;
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node += 31) {
        struct members set = members_only(node);
        assert_int_equal(members_count(&set), 1);
        assert_int_equal(members_next(&set, 0), node);
        assert_int_equal(members_next(&set, node + 1), VIEW_MEMBERS_MAX);
        members_put(&set, node, false);
        assert_true(members_empty(&set));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members_are_a_set),
        cmocka_unit_test(test_members_operations_follow_their_elements),
        cmocka_unit_test(test_members_each_visits_all_in_order),
        cmocka_unit_test(test_members_one),
        cmocka_unit_test(test_members_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
