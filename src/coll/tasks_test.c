/* The task table, event by event. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "coll/tasks.h"

#include <string.h>

struct scene {
    struct task_table table;
    struct tasks_orders out;
};

static int setup(void **state)
{
    static struct scene scene;
    task_table_init(&scene.table);
    *state = &scene;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    task_table_release(&s->table);
    return 0;
}

static void step_table(struct scene *s, struct tasks_event event)
{
    assert_int_equal(task_table_step(&s->table, &event, &s->out), OK);
}

/* Members as bits. */
static void set_members(struct scene *s, uint64_t bits)
{
    struct members in = {{bits}};
    step_table(s, (struct tasks_event){.kind = TASKS_MEMBERS, .members = &in});
}

static void init_var(struct scene *s, uint32_t node, const char *key, uint32_t tasks, uint32_t op)
{
    struct tasks_spec spec = {.n = 10, .tasks = tasks, .op = op};
    strcpy(spec.key, key);
    step_table(s,
               (struct tasks_event){.kind = TASKS_INIT, .node = node, .request = 7, .spec = &spec});
}

/* Members, and a variable "w" of two tasks. */
static void begin_story(struct scene *s, uint64_t members)
{
    set_members(s, members);
    init_var(s, 0, "w", 2, TASKS_SUM);
}

static void commit_task(struct scene *s, uint32_t node, uint32_t var, uint64_t round, uint32_t task)
{
    step_table(s,
               (struct tasks_event){
                   .kind = TASKS_COMMIT, .node = node, .var = var, .round = round, .task = task});
}

/* Both tasks of a round, by these two members. */
static void commit_round(struct scene *s, uint32_t first, uint32_t second, uint32_t var,
                         uint64_t round)
{
    commit_task(s, first, var, round, 0);
    commit_task(s, second, var, round, 1);
}

static void end_round(struct scene *s, uint32_t node, uint32_t var, uint64_t round, uint64_t number,
                      bool whole)
{
    step_table(s, (struct tasks_event){.kind = TASKS_ENDED,
                                       .node = node,
                                       .var = var,
                                       .round = round,
                                       .number = number,
                                       .whole = whole});
}

static void leave_node(struct scene *s, uint32_t node)
{
    step_table(s, (struct tasks_event){.kind = TASKS_LEAVE, .node = node});
}

static void join_node(struct scene *s, enum tasks_event_kind kind, uint32_t node)
{
    step_table(s, (struct tasks_event){.kind = kind, .node = node});
}

static void expect_nothing(const struct scene *s)
{
    assert_int_equal(s->out.count, 0);
}

static void expect_node(const struct scene *s, enum tasks_order_kind kind, uint32_t node)
{
    assert_int_equal(s->out.count, 1);
    assert_int_equal(s->out.at[0].kind, kind);
    assert_int_equal(s->out.at[0].node, node);
}

/* The only order is to start this round, as exchange `number`, with tasks 0 and 1 theirs. */
static void expect_start(const struct scene *s, uint32_t var, uint64_t round, uint64_t number,
                         uint32_t first, uint32_t second)
{
    assert_int_equal(s->out.count, 1);
    assert_int_equal(s->out.at[0].kind, TASKS_START);
    assert_int_equal(s->out.at[0].var, var);
    assert_int_equal(s->out.at[0].round, round);
    const struct tasks_round *r = &s->table.var[var]->round[round % TASKS_ROUNDS];
    assert_int_equal(r->number, number);
    assert_int_equal(r->node[0], first);
    assert_int_equal(r->node[1], second);
}

static void test_tasks_round_starts_when_all_committed(void **state)
{
    struct scene *s = *state;
    begin_story(s, 7);
    assert_int_equal(s->out.at[0].kind, TASKS_REPLY);
    assert_int_equal(s->out.at[0].request, 7);
    commit_task(s, 2, 0, 0, 1);
    expect_nothing(s);
    commit_task(s, 2, 0, 0, 1); /* twice */
    commit_task(s, 1, 0, 0, 1); /* again, elsewhere */
    expect_nothing(s);
    commit_task(s, 1, 0, 0, 0);
    expect_start(s, 0, 0, 1, 1, 2);
    commit_task(s, 0, 0, 0, 0); /* too late to matter */
    expect_nothing(s);
    for (uint32_t node = 0; node < 3; node++)
        end_round(s, node, 0, 0, 1, true);
    expect_nothing(s);
    assert_int_equal(s->table.var[0]->done, 1);
    commit_task(s, 0, 0, 0, 0); /* of a round that is done */
    expect_nothing(s);
    assert_null(s->table.var[0]->round[0].node);
}

static void test_tasks_next_round_waits(void **state)
{
    struct scene *s = *state;
    begin_story(s, 3);
    for (uint64_t round = 2; round-- > 0;)
        commit_round(s, 0, 1, 0, round);
    expect_start(s, 0, 0, 1, 0, 1); /* round 1 was complete before */
    end_round(s, 0, 0, 0, 1, true);
    end_round(s, 0, 0, 0, 1, true);
    expect_nothing(s);
    end_round(s, 1, 0, 0, 9, true); /* not this exchange */
    expect_nothing(s);
    end_round(s, 1, 0, 0, 1, true);
    expect_start(s, 0, 1, 2, 0, 1);
}

static void test_tasks_of_lost_members_move_to_spares(void **state)
{
    struct scene *s = *state;
    begin_story(s, 7);
    commit_task(s, 2, 0, 0, 0);
    commit_task(s, 1, 0, 0, 0);
    set_members(s, 3); /* task 0 is node 1's now */
    commit_task(s, 0, 0, 0, 1);
    expect_start(s, 0, 0, 1, 1, 0);

    init_var(s, 0, "v", 2, TASKS_SUM);
    commit_task(s, 1, 1, 0, 0);
    set_members(s, 1); /* node 1 dies: in the exchange of w, before that of v */
    expect_nothing(s);
    commit_task(s, 0, 1, 0, 1);
    expect_nothing(s);
    commit_task(s, 1, 1, 0, 0); /* from the dead */
    expect_nothing(s);
    commit_task(s, 0, 1, 0, 0);
    expect_start(s, 1, 0, 1, 0, 0);  /* another lane, another count */
    end_round(s, 0, 0, 0, 1, false); /* w is void: it lacked task 0, which no member has */
    expect_nothing(s);
    commit_task(s, 0, 0, 0, 0);
    expect_start(s, 0, 0, 2, 0, 0);
}

static void test_tasks_spare_restarts_void_round(void **state)
{
    struct scene *s = *state;
    begin_story(s, 7);
    commit_task(s, 2, 0, 0, 0);
    commit_round(s, 0, 1, 0, 0);
    expect_start(s, 0, 0, 1, 2, 1);
    end_round(s, 2, 0, 0, 1, true); /* it had all; then it dies, and no other member has them */
    set_members(s, 3);
    end_round(s, 0, 0, 0, 1, false);
    expect_nothing(s);
    end_round(s, 1, 0, 0, 1, false);
    expect_start(s, 0, 0, 2, 0, 1);
}

static void test_tasks_last_awaited_member_dies(void **state)
{
    struct scene *s = *state;
    begin_story(s, 7);
    commit_round(s, 0, 1, 0, 0);
    commit_round(s, 0, 1, 0, 1);
    end_round(s, 0, 0, 0, 1, true);
    end_round(s, 1, 0, 0, 1, true);
    expect_nothing(s);
    set_members(s, 3);
    expect_start(s, 0, 1, 2, 0, 1);
}

static void test_tasks_user_function_waits_for_all(void **state)
{
    struct scene *s = *state;
    set_members(s, 7);
    init_var(s, 0, "w", 2, TASKS_USER);
    commit_round(s, 0, 0, 0, 0);
    expect_nothing(s);
    init_var(s, 1, "w", 2, TASKS_USER);
    assert_int_equal(s->out.count, 1);
    set_members(s, 3); /* node 2 never made it, and is lost */
    expect_start(s, 0, 0, 1, 0, 0);
}

static void test_tasks_leaver_waits_for_its_rounds(void **state)
{
    struct scene *s = *state;
    begin_story(s, 7);
    leave_node(s, 2); /* nothing runs */
    expect_node(s, TASKS_MAY_LEAVE, 2);
    commit_task(s, 2, 0, 0, 0); /* it gets no task any more */
    commit_round(s, 0, 1, 0, 0);
    expect_nothing(s); /* the round would be interrupted when it goes */
    set_members(s, 3);
    expect_start(s, 0, 0, 1, 0, 1);
    commit_task(s, 0, 0, 1, 0);
    commit_round(s, 1, 1, 0, 1);
    leave_node(s, 0);
    expect_nothing(s); /* round 0 runs, and its vector for round 1 is lost */
    assert_int_equal(s->table.var[0]->round[1].node[0], 1);
    end_round(s, 0, 0, 0, 1, true);
    expect_nothing(s);
    end_round(s, 1, 0, 0, 1, true);
    expect_node(s, TASKS_MAY_LEAVE, 0); /* and round 1 waits */
    set_members(s, 2);
    expect_start(s, 0, 1, 2, 1, 1);
}

static void test_tasks_joiner_waits_for_running_rounds(void **state)
{
    struct scene *s = *state;
    begin_story(s, 3);
    init_var(s, 0, "v", 2, TASKS_SUM);
    commit_round(s, 0, 0, 0, 0);
    expect_start(s, 0, 0, 1, 0, 0);
    join_node(s, TASKS_JOIN, 2);
    commit_round(s, 1, 1, 1, 0);
    expect_nothing(s); /* v would be interrupted by the view that holds the joiner */
    commit_task(s, 2, 0, 1, 0);
    assert_null(s->table.var[0]->round[1].node); /* it is no member yet */
    end_round(s, 0, 0, 0, 1, true);
    expect_nothing(s);
    end_round(s, 1, 0, 0, 1, true);
    expect_node(s, TASKS_ADMIT, 2);
    commit_task(s, 1, 0, 1, 0);
    expect_nothing(s); /* once */
    set_members(s, 7);
    expect_start(s, 1, 0, 1, 1, 1);
    commit_task(s, 2, 0, 1, 1);
    expect_start(s, 0, 1, 2, 1, 2);
    end_round(s, 0, 0, 1, 2, true);
    end_round(s, 1, 0, 1, 2, true);
    expect_nothing(s);
    assert_int_equal(s->table.var[0]->done, 1); /* the joiner has a part in it */
    end_round(s, 2, 0, 1, 2, true);
    assert_int_equal(s->table.var[0]->done, 2);
}

static void test_tasks_rounds_continue_without_a_lost_joiner(void **state)
{
    struct scene *s = *state;
    begin_story(s, 1);
    join_node(s, TASKS_JOIN, 1);
    expect_node(s, TASKS_ADMIT, 1); /* nothing runs */
    join_node(s, TASKS_JOIN, 2);    /* 1 is lost, and 2 takes its turn */
    expect_node(s, TASKS_ADMIT, 2);
    commit_round(s, 0, 0, 0, 0);
    join_node(s, TASKS_NO_JOIN, 1);
    expect_nothing(s); /* 2 waits */
    join_node(s, TASKS_NO_JOIN, 2);
    expect_start(s, 0, 0, 1, 0, 0);
    join_node(s, TASKS_JOIN, 0);
    expect_nothing(s); /* a member */
    leave_node(s, 0);
    join_node(s, TASKS_JOIN, 3);
    expect_nothing(s);
    end_round(s, 0, 0, 0, 1, false);
    assert_int_equal(s->out.count, 2);
    assert_int_equal(s->out.at[0].kind, TASKS_MAY_LEAVE);
    assert_int_equal(s->out.at[1].kind, TASKS_ADMIT);
    set_members(s, 9);
    expect_nothing(s);
    set_members(s, 8);
    commit_round(s, 3, 3, 0, 0);
    expect_start(s, 0, 0, 2, 3, 3); /* the void round, by the joiner alone */
}

/* It was a member, and is dead, before the views could be looked at: only the later one is seen. */
static void test_tasks_rounds_continue_without_a_joiner_never_seen(void **state)
{
    struct scene *s = *state;
    begin_story(s, 1);
    join_node(s, TASKS_JOIN, 1);
    expect_node(s, TASKS_ADMIT, 1);
    commit_round(s, 0, 0, 0, 0);
    set_members(s, 1);
    expect_nothing(s); /* the view may be older than the joiner's */
    join_node(s, TASKS_NO_JOIN, 1);
    expect_start(s, 0, 0, 1, 0, 0);
}

static void test_tasks_mismatch_is_refused_by_name(void **state)
{
    struct scene *s = *state;
    begin_story(s, 1);
    init_var(s, 0, "w", 3, TASKS_SUM);
    assert_int_equal(s->out.at[0].kind, TASKS_REFUSE);
    assert_non_null(strstr(s->out.refusal.text, "'w': num_tasks is 2 elsewhere, 3 here"));
    init_var(s, 0, "w", 2, TASKS_MEAN);
    assert_int_equal(s->out.at[0].kind, TASKS_REFUSE);
    init_var(s, 0, "v", 0, TASKS_SUM);
    assert_int_equal(s->out.at[0].kind, TASKS_REFUSE);
    init_var(s, 5, "u", 2, TASKS_SUM); /* a stranger */
    expect_nothing(s);
    for (uint32_t v = 1; v <= TASKS_VARS_MAX; v++) {
        char key[8] = {'k', (char)('a' + v / 26), (char)('a' + v % 26)};
        init_var(s, 0, key, 1, TASKS_SUM);
        assert_int_equal(s->out.at[0].kind, v < TASKS_VARS_MAX ? TASKS_REPLY : TASKS_REFUSE);
    }
}

static void test_tasks_spec_round_trips(void **state)
{
    (void)state;
    struct tasks_spec spec = {"weights", 25000000, 12, TASKS_USER, -1.5f}, back;
    struct buf bytes = {0};
    tasks_spec_encode(&spec, &bytes);
    struct byte_reader in = {bytes.data, bytes.len, false};
    tasks_spec_decode(&in, &back);
    assert_true(byte_reader_done(&in));
    assert_string_equal(back.key, spec.key);
    assert_int_equal(back.n, spec.n);
    assert_int_equal(back.tasks, spec.tasks);
    assert_int_equal(back.op, spec.op);
    assert_true(back.identity == spec.identity);
    buf_release(&bytes);
}

/* For any events, in any order: each task is one living member's when a round starts, and
 * rounds start in order. */
static void test_tasks_random_events(void **state)
{
    struct scene *s = *state;
    enum { EVENTS = 20000, NODES = 5, TASKS = 2, ROUNDS = 4 };
    uint64_t in = 31, started = 0;
    set_members(s, in);
    for (uint32_t v = 0; v < 2; v++)
        init_var(s, 0, v ? "v" : "w", TASKS, TASKS_SUM);
    for (uint64_t i = 0; i < EVENTS; i++) {
        uint32_t node = (uint32_t)rng_below(3, 1, i, NODES);
        uint32_t v = (uint32_t)rng_below(3, 2, i, 3);
        uint64_t done = s->table.var[v % 2]->done, kind = rng_below(3, 3, i, 4000);
        uint64_t round = done + rng_below(3, 4, i, ROUNDS) - (i % 2 && done > 0);
        if (kind == 0 && (in & (in - 1)))
            set_members(s, in &= ~(UINT64_C(1) << node));
        else if (kind < 2000)
            commit_task(s, node, v, round, (uint32_t)rng_below(3, 5, i, TASKS + 1));
        else
            end_round(s, node, v, round, s->table.var[v % 2]->round[done % TASKS_ROUNDS].number,
                      kind < 3900);
        for (size_t o = 0; o < s->out.count; o++) {
            const struct tasks_order *at = &s->out.at[o];
            const struct tasks_var *var = s->table.var[at->var];
            assert_int_equal(at->kind, TASKS_START);
            assert_int_equal(at->round, var->done);
            for (uint32_t t = 0; t < TASKS; t++)
                assert_true(in >> var->round[at->round % TASKS_ROUNDS].node[t] & 1);
            started++;
        }
    }
    print_message("%u events, %u starts\n", EVENTS, (unsigned)started);
    assert_true(started > 100);
}

#define STORY(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(test_tasks_round_starts_when_all_committed),
        STORY(test_tasks_next_round_waits),
        STORY(test_tasks_of_lost_members_move_to_spares),
        STORY(test_tasks_spare_restarts_void_round),
        STORY(test_tasks_last_awaited_member_dies),
        STORY(test_tasks_user_function_waits_for_all),
        STORY(test_tasks_leaver_waits_for_its_rounds),
        STORY(test_tasks_joiner_waits_for_running_rounds),
        STORY(test_tasks_rounds_continue_without_a_lost_joiner),
        STORY(test_tasks_rounds_continue_without_a_joiner_never_seen),
        STORY(test_tasks_mismatch_is_refused_by_name),
        STORY(test_tasks_spec_round_trips),
        STORY(test_tasks_random_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
