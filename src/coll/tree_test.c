#include "coll/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "group/view.h"

static size_t depth_of(size_t rank)
{
    size_t depth = 0;
    for (; rank > 0; depth++) {
        size_t parent = tree_parent(rank);
        assert_true(parent < rank);
        rank = parent;
    }
    return depth;
}

static size_t rounds_of(size_t count)
{
    size_t rounds = 0;
    while ((size_t)1 << rounds < count)
        rounds++;
    return rounds;
}

static void test_tree_parents_and_children(void **state)
{
    (void)state;
    for (size_t count = 1; count <= 64; count++) {
        size_t edges = 0;
        for (size_t rank = 0; rank < count; rank++) {
            size_t child[TREE_CHILDREN_MAX], n = tree_children(rank, count, child);
            assert_true(n <= rounds_of(count));
            assert_true(depth_of(rank) <= rounds_of(count));
            for (size_t i = 0; i < n; i++) {
                assert_true(child[i] < count && tree_parent(child[i]) == rank);
                assert_true(i == 0 || child[i] > child[i - 1]); /* nearest first, none twice */
            }
            edges += n;
        }
        assert_int_equal(edges, count - 1); /* so every rank > 0 is a child */
    }
}

/* Worked by hand: 11 ranks. */
static void test_tree_of_eleven_ranks(void **state)
{
    (void)state;
    size_t child[TREE_CHILDREN_MAX];
    assert_int_equal(tree_children(0, 11, child), 4);
    assert_true(child[0] == 1 && child[1] == 2 && child[2] == 4 && child[3] == 8);
    assert_int_equal(tree_children(4, 11, child), 2);
    assert_true(child[0] == 5 && child[1] == 6);
    assert_int_equal(tree_children(8, 11, child), 2);
    assert_true(child[0] == 9 && child[1] == 10);
    assert_int_equal(tree_children(7, 11, child), 0);
    assert_true(tree_parent(7) == 6 && tree_parent(10) == 8 && tree_parent(6) == 4);
}

static void test_tree_largest_fits(void **state)
{
    (void)state;
    size_t child[TREE_CHILDREN_MAX];
    assert_int_equal(tree_children(0, VIEW_MEMBERS_MAX + 1, child), TREE_CHILDREN_MAX);
    assert_int_equal(tree_children(0, (size_t)1 << TREE_CHILDREN_MAX, child), TREE_CHILDREN_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree_parents_and_children),
        cmocka_unit_test(test_tree_of_eleven_ranks),
        cmocka_unit_test(test_tree_largest_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
