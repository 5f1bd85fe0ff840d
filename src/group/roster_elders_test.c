/* The elders of views, as stories (roster_story.h). */
#include "group/roster_story.h"

static void expect_elders(const struct story *s, const char *expected)
{
    char text[256] = "";
    MEMBERS_EACH (node, &s->roster.view.elders) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%u", used ? " " : "", node);
    }
    assert_string_equal(text, expected);
}

static void form_elastic(struct story *s, uint32_t n)
{
    story_init(s, n, false);
    s->roster.options.workers_max = 8;
    while (n > 0)
        joins(s, --n);
    assert_int_equal(s->roster.view.number, 1);
}

/* The member with the lowest number donates. */
static void add_member(struct story *s, uint32_t node)
{
    joins(s, node);
    step(s, (struct roster_event){
                .kind = ROSTER_DONOR_READY, .node = s->roster.view.node[0], .other = node});
    assert_true(view_rank(&s->roster.view, node) >= 0);
    step(s, (struct roster_event){
                .kind = ROSTER_JOIN_COMPLETE, .node = node, .view = s->roster.view.number});
}

static void test_elders_are_those_that_began(void **state)
{
    struct story *s = *state;
    form_elastic(s, 3);
    expect_elders(s, "0 1 2");
    add_member(s, 4);
    expect_elders(s, "0 1 2");
    on_peer_down(s, 1);
    expect_elders(s, "0 2");
    add_member(s, 5);
    leaves(s, 0);
    expect_elders(s, "2");
}

/* A joiner is none, even with a lower number, before all of the set are gone. */
static void test_elders_follow_when_all_have_gone(void **state)
{
    struct story *s = *state;
    form_elastic(s, 2);
    add_member(s, 5);
    add_member(s, 6);
    leaves(s, 0);
    expect_elders(s, "1");
    on_peer_down(s, 1);
    expect_elders(s, "5 6");
    add_member(s, 3);
    expect_elders(s, "5 6");
    on_peer_down(s, 5);
    expect_elders(s, "6");
    add_member(s, 4);
    leaves(s, 6);
    expect_elders(s, "3 4");
}

/* With the last elder goes the joiner whose donor it was. */
static void test_an_orphan_is_no_elder(void **state)
{
    struct story *s = *state;
    form_elastic(s, 1);
    add_member(s, 3);
    joins(s, 4);
    step(s, (struct roster_event){.kind = ROSTER_DONOR_READY, .node = 0, .other = 4});
    assert_string_equal(on_peer_down(s, 0), "dead 0; drop 0; fenced 4; drop 4; view 4: 3");
    expect_elders(s, "3");
}

/* ---- a driver that has recovered ---- */

static struct members set_of(const char *nodes)
{
    struct members set = {{0}};
    for (; *nodes; nodes++)
        members_add(&set, (uint32_t)(*nodes - '0'));
    return set;
}

/* It knows of that view of driver 3. */
static void restart_driver(struct story *s, uint32_t view, const char *members)
{
    const struct roster_options options = {.workers = 2,
                                           .workers_max = 8,
                                           .incarnation = 5,
                                           .silence_max = SILENCE,
                                           .stall_max = STALL,
                                           .recovers = true,
                                           .last_view = view,
                                           .last_incarnation = view ? 3 : 0,
                                           .last = set_of(members)};
    memset(s, 0, sizeof *s);
    roster_init(&s->roster, &options);
}

static void returns_from(struct story *s, uint32_t node, uint32_t incarnation, uint32_t view,
                         const char *members, const char *elders)
{
    const struct members all = set_of(members), old = set_of(elders);
    step(s, (struct roster_event){.kind = ROSTER_RECONNECT,
                                  .node = node,
                                  .address = "host:1",
                                  .view = view,
                                  .incarnation = incarnation,
                                  .members = &all,
                                  .elders = &old});
}

static void test_elders_outlive_the_driver(void **state)
{
    struct story *s = *state;
    restart_driver(s, 7, "1256");
    returns_from(s, 1, 3, 7, "1256", "56");
    returns_from(s, 2, 3, 7, "1256", "56");
    returns_from(s, 6, 3, 7, "1256", "56");
    returns_from(s, 5, 3, 7, "1256", "56");
    assert_int_equal(s->roster.view.number, 8);
    expect_elders(s, "5 6");
    on_peer_down(s, 5);
    expect_elders(s, "6");
}

/* The newest view that is reported counts, in whatever order the reports come; and a view of a
 * later driver is newer than one with a higher number. */
static void test_elders_of_the_newest_view_count(void **state)
{
    struct story *s = *state;
    restart_driver(s, 0, "");
    returns_from(s, 4, 3, 7, "0456", "0");
    returns_from(s, 6, 3, 8, "456", "456");
    returns_from(s, 5, 3, 8, "456", "456");
    expect_elders(s, "4 5 6");
    restart_driver(s, 0, "");
    returns_from(s, 6, 3, 8, "46", "6");
    returns_from(s, 4, 4, 6, "46", "4");
    expect_elders(s, "4");
}

/* No member has received the view that the driver knows: its elders are those that stay of the view
 * before. */
static void test_elders_of_a_view_that_none_received(void **state)
{
    struct story *s = *state;
    restart_driver(s, 8, "456");
    returns_from(s, 4, 3, 7, "0456", "06");
    returns_from(s, 5, 3, 7, "0456", "06");
    returns_from(s, 6, 3, 7, "0456", "06");
    assert_int_equal(s->roster.view.number, 9);
    expect_elders(s, "6");
    restart_driver(s, 8, "456");
    returns_from(s, 4, 3, 7, "0456", "0");
    returns_from(s, 5, 3, 7, "0456", "0");
    returns_from(s, 6, 3, 7, "0456", "0");
    expect_elders(s, "4 5 6");
}

static void test_elders_that_do_not_return_are_succeeded(void **state)
{
    struct story *s = *state;
    restart_driver(s, 7, "1256");
    returns_from(s, 1, 3, 7, "1256", "56");
    returns_from(s, 2, 3, 7, "1256", "56");
    assert_int_equal(s->roster.view.number, 0);
    ticks(s, s->now + SILENCE);
    assert_int_equal(s->roster.view.number, 8);
    expect_elders(s, "1 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elders_are_those_that_began),
        cmocka_unit_test(test_elders_follow_when_all_have_gone),
        cmocka_unit_test(test_an_orphan_is_no_elder),
        cmocka_unit_test(test_elders_outlive_the_driver),
        cmocka_unit_test(test_elders_of_the_newest_view_count),
        cmocka_unit_test(test_elders_of_a_view_that_none_received),
        cmocka_unit_test(test_elders_that_do_not_return_are_succeeded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
