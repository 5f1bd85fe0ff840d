/* The book of tasks, event by event. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "coll/tasks.h"

#include <string.h>

struct scene {
    struct tasks_book book;
    struct tasks_orders out;
};

static int begin(void **state)
{
    static struct scene scene;
    tasks_book_init(&scene.book);
    *state = &scene;
    return 0;
}

static int end(void **state)
{
    struct scene *s = *state;
    tasks_book_release(&s->book);
    return 0;
}

static void step(struct scene *s, struct tasks_event event)
{
    assert_int_equal(tasks_book_step(&s->book, &event, &s->out), OK);
}

/* Members as bits. */
static void members(struct scene *s, uint64_t bits)
{
    struct members in = {{bits}};
    step(s, (struct tasks_event){.kind = TASKS_MEMBERS, .members = &in});
}

static void init(struct scene *s, uint32_t node, const char *key, uint32_t tasks, uint32_t op)
{
    struct tasks_spec spec = {.n = 10, .tasks = tasks, .op = op};
    strcpy(spec.key, key);
    step(s, (struct tasks_event){.kind = TASKS_INIT, .node = node, .request = 7, .spec = &spec});
}

static void commit(struct scene *s, uint32_t node, uint32_t var, uint64_t round, uint32_t task)
{
    step(s, (struct tasks_event){
                .kind = TASKS_COMMIT, .node = node, .var = var, .round = round, .task = task});
}

static void ended(struct scene *s, uint32_t node, uint32_t var, uint64_t round, uint64_t number,
                  bool whole)
{
    step(s, (struct tasks_event){.kind = TASKS_ENDED,
                                 .node = node,
                                 .var = var,
                                 .round = round,
                                 .number = number,
                                 .whole = whole});
}

static void part(struct scene *s, uint32_t node)
{
    step(s, (struct tasks_event){.kind = TASKS_PART, .node = node});
}

static void expect_nothing(const struct scene *s)
{
    assert_int_equal(s->out.count, 0);
}

/* The only order is to start this round, as exchange `number`, with tasks 0 and 1 theirs. */
static void expect_start(const struct scene *s, uint32_t var, uint64_t round, uint64_t number,
                         uint32_t first, uint32_t second)
{
    assert_int_equal(s->out.count, 1);
    assert_int_equal(s->out.at[0].kind, TASKS_START);
    assert_int_equal(s->out.at[0].var, var);
    assert_int_equal(s->out.at[0].round, round);
    const struct tasks_round *r = &s->book.var[var]->round[round % TASKS_ROUNDS];
    assert_int_equal(r->number, number);
    assert_int_equal(r->node[0], first);
    assert_int_equal(r->node[1], second);
}

static void a_round_starts_when_all_tasks_are_committed(void **state)
{
    struct scene *s = *state;
    members(s, 7);
    init(s, 0, "w", 2, TASKS_SUM);
    assert_int_equal(s->out.at[0].kind, TASKS_ANSWER);
    assert_int_equal(s->out.at[0].request, 7);
    commit(s, 2, 0, 0, 1);
    expect_nothing(s);
    commit(s, 2, 0, 0, 1); /* twice */
    commit(s, 1, 0, 0, 1); /* again, elsewhere */
    expect_nothing(s);
    commit(s, 1, 0, 0, 0);
    expect_start(s, 0, 0, 1, 1, 2);
    commit(s, 0, 0, 0, 0); /* too late to matter */
    expect_nothing(s);
    for (uint32_t node = 0; node < 3; node++)
        ended(s, node, 0, 0, 1, true);
    expect_nothing(s);
    assert_int_equal(s->book.var[0]->done, 1);
    commit(s, 0, 0, 0, 0); /* of a round that is done */
    expect_nothing(s);
    assert_null(s->book.var[0]->round[0].node);
}

static void the_next_round_waits_until_all_have_ended_this_one(void **state)
{
    struct scene *s = *state;
    members(s, 3);
    init(s, 0, "w", 2, TASKS_SUM);
    for (uint64_t round = 2; round-- > 0;)
        for (uint32_t task = 0; task < 2; task++)
            commit(s, task, 0, round, task);
    expect_start(s, 0, 0, 1, 0, 1); /* round 1 was complete before */
    ended(s, 0, 0, 0, 1, true);
    ended(s, 0, 0, 0, 1, true);
    expect_nothing(s);
    ended(s, 1, 0, 0, 9, true); /* not this exchange */
    expect_nothing(s);
    ended(s, 1, 0, 0, 1, true);
    expect_start(s, 0, 1, 2, 0, 1);
}

static void tasks_of_the_lost_go_to_spares_or_wait(void **state)
{
    struct scene *s = *state;
    members(s, 7);
    init(s, 0, "w", 2, TASKS_SUM);
    commit(s, 2, 0, 0, 0);
    commit(s, 1, 0, 0, 0);
    members(s, 3); /* task 0 is node 1's now */
    commit(s, 0, 0, 0, 1);
    expect_start(s, 0, 0, 1, 1, 0);

    init(s, 0, "v", 2, TASKS_SUM);
    commit(s, 1, 1, 0, 0);
    members(s, 1); /* node 1 dies: in the exchange of w, before that of v */
    expect_nothing(s);
    commit(s, 0, 1, 0, 1);
    expect_nothing(s);
    commit(s, 1, 1, 0, 0); /* from the dead */
    expect_nothing(s);
    commit(s, 0, 1, 0, 0);
    expect_start(s, 1, 0, 1, 0, 0); /* another lane, another count */
    ended(s, 0, 0, 0, 1, false);    /* w is void: it lacked task 0, and nobody has it */
    expect_nothing(s);
    commit(s, 0, 0, 0, 0);
    expect_start(s, 0, 0, 2, 0, 0);
}

static void a_spare_makes_a_void_round_start_at_once(void **state)
{
    struct scene *s = *state;
    members(s, 7);
    init(s, 0, "w", 2, TASKS_SUM);
    commit(s, 2, 0, 0, 0);
    commit(s, 0, 0, 0, 0);
    commit(s, 1, 0, 0, 1);
    expect_start(s, 0, 0, 1, 2, 1);
    ended(s, 2, 0, 0, 1, true); /* it had all; then it dies, and nobody else has */
    members(s, 3);
    ended(s, 0, 0, 0, 1, false);
    expect_nothing(s);
    ended(s, 1, 0, 0, 1, false);
    expect_start(s, 0, 0, 2, 0, 1);
}

static void the_last_to_be_waited_for_dies(void **state)
{
    struct scene *s = *state;
    members(s, 7);
    init(s, 0, "w", 2, TASKS_SUM);
    commit(s, 0, 0, 0, 0);
    commit(s, 1, 0, 0, 1);
    commit(s, 0, 0, 1, 0);
    commit(s, 1, 0, 1, 1);
    ended(s, 0, 0, 0, 1, true);
    ended(s, 1, 0, 0, 1, true);
    expect_nothing(s);
    members(s, 3);
    expect_start(s, 0, 1, 2, 0, 1);
}

static void a_function_of_the_users_waits_for_all(void **state)
{
    struct scene *s = *state;
    members(s, 7);
    init(s, 0, "w", 2, TASKS_USER);
    commit(s, 0, 0, 0, 0);
    commit(s, 0, 0, 0, 1);
    expect_nothing(s);
    init(s, 1, "w", 2, TASKS_USER);
    assert_int_equal(s->out.count, 1);
    members(s, 3); /* node 2 never made it, and is gone */
    expect_start(s, 0, 0, 1, 0, 0);
}

static void who_parts_is_let_go_when_what_holds_his_tasks_is_done(void **state)
{
    struct scene *s = *state;
    members(s, 7);
    init(s, 0, "w", 2, TASKS_SUM);
    part(s, 2); /* nothing runs */
    assert_int_equal(s->out.count, 1);
    assert_int_equal(s->out.at[0].kind, TASKS_PARTED);
    commit(s, 2, 0, 0, 0); /* it gets no task any more */
    commit(s, 0, 0, 0, 0);
    commit(s, 1, 0, 0, 1);
    expect_start(s, 0, 0, 1, 0, 1);
    commit(s, 0, 0, 1, 0);
    part(s, 0);
    expect_nothing(s); /* round 0 runs, and what it gave to round 1 is nobody's */
    assert_int_equal(s->book.var[0]->round[1].taken, 0);
    ended(s, 0, 0, 0, 1, true);
    ended(s, 1, 0, 0, 1, true);
    expect_nothing(s);
    ended(s, 2, 0, 0, 1, true);
    assert_int_equal(s->out.count, 1);
    assert_int_equal(s->out.at[0].kind, TASKS_PARTED);
    assert_int_equal(s->out.at[0].node, 0);
}

static void what_does_not_fit_is_refused_by_name(void **state)
{
    struct scene *s = *state;
    members(s, 1);
    init(s, 0, "w", 2, TASKS_SUM);
    init(s, 0, "w", 3, TASKS_SUM);
    assert_int_equal(s->out.at[0].kind, TASKS_REFUSE);
    assert_non_null(strstr(s->out.refusal.text, "'w': num_tasks is 2 elsewhere, 3 here"));
    init(s, 0, "w", 2, TASKS_MEAN);
    assert_int_equal(s->out.at[0].kind, TASKS_REFUSE);
    init(s, 0, "v", 0, TASKS_SUM);
    assert_int_equal(s->out.at[0].kind, TASKS_REFUSE);
    init(s, 5, "u", 2, TASKS_SUM); /* a stranger */
    expect_nothing(s);
    for (uint32_t v = 1; v <= TASKS_VARS_MAX; v++) {
        char key[8] = {'k', (char)('a' + v / 26), (char)('a' + v % 26)};
        init(s, 0, key, 1, TASKS_SUM);
        assert_int_equal(s->out.at[0].kind, v < TASKS_VARS_MAX ? TASKS_ANSWER : TASKS_REFUSE);
    }
}

static void a_spec_goes_over_the_wire(void **state)
{
    (void)state;
    struct tasks_spec spec = {"weights", 25000000, 12, TASKS_USER, -1.5f}, back;
    struct buf bytes = {0};
    tasks_spec_encode(&spec, &bytes);
    struct cut in = {bytes.data, bytes.len, false};
    tasks_spec_decode(&in, &back);
    assert_true(cut_done(&in));
    assert_string_equal(back.key, spec.key);
    assert_int_equal(back.n, spec.n);
    assert_int_equal(back.tasks, spec.tasks);
    assert_int_equal(back.op, spec.op);
    assert_true(back.identity == spec.identity);
    buf_release(&bytes);
}

/* Whatever comes, in whatever order: each task is one living member's when a round starts, and
 * rounds start in order. */
static void any_events_in_any_order(void **state)
{
    struct scene *s = *state;
    enum { EVENTS = 20000, NODES = 5, TASKS = 2, ROUNDS = 4 };
    uint64_t in = 31, started = 0;
    members(s, in);
    for (uint32_t v = 0; v < 2; v++)
        init(s, 0, v ? "v" : "w", TASKS, TASKS_SUM);
    for (uint64_t i = 0; i < EVENTS; i++) {
        uint32_t node = (uint32_t)rng_below(3, 1, i, NODES);
        uint32_t v = (uint32_t)rng_below(3, 2, i, 3);
        uint64_t done = s->book.var[v % 2]->done, kind = rng_below(3, 3, i, 4000);
        uint64_t round = done + rng_below(3, 4, i, ROUNDS) - (i % 2 && done > 0);
        if (kind == 0 && (in & (in - 1)))
            members(s, in &= ~(UINT64_C(1) << node));
        else if (kind < 2000)
            commit(s, node, v, round, (uint32_t)rng_below(3, 5, i, TASKS + 1));
        else
            ended(s, node, v, round, s->book.var[v % 2]->round[done % TASKS_ROUNDS].number,
                  kind < 3900);
        for (size_t o = 0; o < s->out.count; o++) {
            const struct tasks_order *at = &s->out.at[o];
            const struct tasks_var *var = s->book.var[at->var];
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

#define STORY(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(a_round_starts_when_all_tasks_are_committed),
        STORY(the_next_round_waits_until_all_have_ended_this_one),
        STORY(tasks_of_the_lost_go_to_spares_or_wait),
        STORY(a_spare_makes_a_void_round_start_at_once),
        STORY(the_last_to_be_waited_for_dies),
        STORY(a_function_of_the_users_waits_for_all),
        STORY(who_parts_is_let_go_when_what_holds_his_tasks_is_done),
        STORY(what_does_not_fit_is_refused_by_name),
        STORY(a_spec_goes_over_the_wire),
        STORY(any_events_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
