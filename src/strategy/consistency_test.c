/* Consistency as drawn timelines, which are both the input and what is expected of it: a row a
 * worker, a column a moment, in which
 *
 *   o  it pushes, and gets OK at once           .  it computes
 *   w  it pushes, and has to wait               -  it waits
 *   r  it waited, and gets OK now               j  it joins    x  it dies
 *
 * and in rows named after it, after each moment: t its pushes, d its lead over the slowest, r its
 * credit. Then random schedules, and a race of two workers that shows what the rules are worth.
 *
 * Every event of all three goes through one judge with books of its own (struct server). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "strategy/consistency.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS   INT64_C(1000000)
#define HOUR (3600 * 1000 * MS)
#define DAY  (24 * HOUR)

enum { WORKERS = 8 };

#define CONFIG(...) ((struct consistency_config){__VA_ARGS__})
#define BSP         CONFIG(.kind = CONSISTENCY_BSP)
#define ASP         CONFIG(.kind = CONSISTENCY_ASP)
#define SSP(s)      CONFIG(.kind = CONSISTENCY_SSP, .staleness = (s))
#define DSSP(s_L, most, word)                                           \
    CONFIG(.kind = CONSISTENCY_DSSP, .s_lower = (s_L), .r_max = (most), \
           .credit = CONSISTENCY_##word)
#define HARD(s_L, most, word)                                           \
    CONFIG(.kind = CONSISTENCY_DSSP, .s_lower = (s_L), .r_max = (most), \
           .credit = CONSISTENCY_##word, .hard_bound = true)

struct roster_state {
    bool in, waiting, ok; /* ok: sent in the latest event */
    uint64_t t, staleness;
};

struct server {
    struct consistency c;
    struct roster_state book[WORKERS];
    uint32_t stride; /* worker i is node i * stride */
    const char *what;
    uint64_t seed;
    int64_t now;
};

static void server_init(struct server *s, const struct consistency_config *config, const char *what)
{
    memset(s, 0, sizeof *s);
    consistency_init(&s->c, config);
    s->stride = 1;
    s->what = what;
}

static void check_worker(const struct server *s, bool good, size_t i, const char *what)
{
    if (!good)
        fail_msg("%s, seed %llu, %.6f ms: worker %zu %s", s->what, (unsigned long long)s->seed,
                 (double)s->now / MS, i, what);
}

static struct members nodes_of(const struct server *s, const bool members[WORKERS])
{
    struct members set = {{0}};
    for (uint32_t i = 0; i < WORKERS; i++)
        if (members[i])
            members_add(&set, i * s->stride);
    return set;
}

static uint64_t t_slowest(const struct server *s)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < WORKERS; i++)
        if (s->book[i].in && s->book[i].t < least)
            least = s->book[i].t;
    return least == UINT64_MAX ? 0 : least;
}

static uint64_t lead_of(const struct server *s, size_t i)
{
    return s->book[i].t - t_slowest(s);
}

/* The leads that never need to wait, and those at which OK must never be sent. */
static uint64_t free_lead(const struct consistency_config *config)
{
    const uint64_t lead[] = {0, UINT64_MAX, config->staleness, config->s_lower};
    return lead[config->kind];
}

static uint64_t most_lead(const struct consistency_config *config)
{
    if (config->kind != CONSISTENCY_DSSP)
        return free_lead(config);
    return config->hard_bound ? config->s_lower + config->r_max : UINT64_MAX;
}

/* OK is sent only to workers that are due one, within the bound on staleness; waiting workers have
 * a reason to wait. In particular the slowest never waits. */
static void judge_server(struct server *s, const struct members *ok)
{
    size_t sent = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct roster_state *b = &s->book[i];
        b->ok = members_has(ok, i * s->stride);
        sent += b->ok;
        if (b->ok) {
            check_worker(s, b->in && b->waiting, i, "gets OK and is due none");
            check_worker(s, lead_of(s, i) <= most_lead(&s->c.config), i,
                         "gets OK beyond the bound");
            b->waiting = false;
            if (lead_of(s, i) > b->staleness)
                b->staleness = lead_of(s, i);
        }
        check_worker(s, !b->waiting || lead_of(s, i) > free_lead(&s->c.config), i,
                     "waits without cause");
        check_worker(s, consistency_expects(&s->c, i * s->stride) == (b->in && !b->waiting), i,
                     "is expected to push, or is not, against the books");
        const struct consistency_worker *w = &s->c.worker[i * s->stride];
        check_worker(s, w->t == b->t && w->staleness == b->staleness, i, "is not as in the books");
    }
    assert_int_equal(members_count(ok), sent);
}

static void push_from(struct server *s, const bool members[WORKERS])
{
    struct members set = nodes_of(s, members), ok;
    for (size_t i = 0; i < WORKERS; i++)
        if (members[i]) {
            s->book[i].t++;
            s->book[i].waiting = true;
        }
    consistency_push(&s->c, &set, s->now, &ok);
    judge_server(s, &ok);
}

static void remove_nodes(struct server *s, const bool members[WORKERS])
{
    struct members set = nodes_of(s, members), ok;
    for (size_t i = 0; i < WORKERS; i++)
        if (members[i])
            s->book[i].in = s->book[i].waiting = false;
    consistency_leave(&s->c, &set, &ok);
    judge_server(s, &ok);
}

static void join_nodes(struct server *s, const bool members[WORKERS])
{
    struct members set = nodes_of(s, members);
    uint64_t t = t_slowest(s);
    for (size_t i = 0; i < WORKERS; i++)
        if (members[i])
            s->book[i] = (struct roster_state){.in = true, .t = t};
    consistency_join(&s->c, &set);
    judge_server(s, &(struct members){{0}});
}

/* Drawn timelines. */

enum { ROWS = 8, LABEL = 4, MOMENTS = 24 };

struct drawing {
    size_t moments;
    char row[ROWS][LABEL + MOMENTS + 1]; /* filled up with blanks */
};

static void read_drawing(struct drawing *d, const char *text)
{
    memset(d, 0, sizeof *d);
    for (char *row = d->row[0]; *text; row += sizeof d->row[0], text += strcspn(text, "\n") + 1) {
        size_t n = strcspn(text, "\n");
        assert_true(row <= d->row[ROWS - 1] && n >= LABEL && n <= LABEL + MOMENTS);
        memset(row, ' ', LABEL + MOMENTS);
        memcpy(row, text, n);
        if (n - LABEL > d->moments)
            d->moments = n - LABEL;
    }
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Workers whose mark of the moment is one of these. */
static bool is_marked(const struct drawing *d, size_t moment, const char *marks,
                      bool members[WORKERS])
{
    bool any = false;
    memset(members, 0, WORKERS * sizeof *members);
    for (size_t i = 0; i < ROWS; i++)
        if (is_digit(d->row[i][0]) && strchr(marks, d->row[i][LABEL + moment]))
            any = members[d->row[i][0] - '0'] = true;
    return any;
}

/* The row's mark as it should be after this moment. */
static char mark_of(const struct server *s, const char *row, const bool pushed[WORKERS], char mark)
{
    size_t i = (size_t)(is_digit(row[0]) ? row[0] : row[1]) - '0';
    const struct roster_state *b = &s->book[i];
    switch (row[0]) {
    case 't': return (char)('0' + s->c.worker[i].t);
    case 'd': return (char)('0' + lead_of(s, i));
    case 'r': return (char)('0' + s->c.worker[i].r);
    default: break;
    }
    if (!b->in)
        return mark == 'x' ? mark : ' ';
    if (mark == 'j')
        return mark;
    if (b->ok)
        return pushed[i] ? 'o' : 'r';
    if (b->waiting)
        return pushed[i] ? 'w' : '-';
    return '.';
}

static void compare_drawing(const struct server *s, const struct drawing *d, size_t moment,
                            const bool pushed[WORKERS])
{
    for (size_t i = 0; i < ROWS; i++) {
        const char *row = d->row[i];
        char mark = row[0] ? row[LABEL + moment] : ' ';
        if (mark == ' ' || row[0] == ' ')
            continue;
        char is = mark_of(s, row, pushed, mark);
        if (is != mark)
            fail_msg("%s: moment %zu: row '%.2s' is '%c', drawn '%c'", s->what, moment + 1, row, is,
                     mark);
    }
}

static void play_drawing(const char *what, struct consistency_config config, const char *text)
{
    struct drawing d;
    struct server s;
    bool members[WORKERS];
    read_drawing(&d, text);
    server_init(&s, &config, what);
    is_marked(&d, 0, "owx.", members);
    join_nodes(&s, members);
    for (size_t m = 0; m < d.moments; m++) {
        s.now = (int64_t)(m + 1) * MS;
        for (size_t i = 0; i < WORKERS; i++)
            s.book[i].ok = false;
        if (is_marked(&d, m, "x", members))
            remove_nodes(&s, members);
        if (is_marked(&d, m, "j", members))
            join_nodes(&s, members);
        if (is_marked(&d, m, "ow", members))
            push_from(&s, members);
        compare_drawing(&s, &d, m, members);
    }
}

static void test_consistency_bsp_ssp_asp(void **state)
{
    (void)state;
    play_drawing("bsp: all wait for the last; if all come together, none", BSP,
                 "    123456789012\n"
                 "0   w-rw-rw-r..o\n"
                 "1   .wr.wr.wr..o\n"
                 "2   ..o..o..o..o\n");
    play_drawing("asp: nobody waits, leads grow", ASP,
                 "    123456789\n"
                 "0   ooooooooo\n"
                 "1   .o.o.o.o.\n"
                 "2   ..o..o..o\n"
                 "d0  122344566\n");
    play_drawing("ssp, s = 2: OK at a lead of 2, not of 3", SSP(2),
                 "    123456789012\n"
                 "0   oowrw--rw--r\n"
                 "1   ...o...o...o\n"
                 "d0  123233323332\n");
}

/* The first push beyond s_L at which both workers have an interval is that at 11. There worker 0's
 * is 5, for it had to wait: Sim_p = 11 16 21 26, Sim_slow = 15 20 25 30, and r = 1, 2, 3 all miss
 * by 1: the smallest. At 13, with an interval of 1, Sim_p = 13 14 15 16 meets 15.
 *
 * In the second, worker 2 at 7 is the fastest and the slowest, worker 1, has an interval of 2; but
 * worker 2 has none. */
static void test_consistency_credit_needs_two_pushes(void **state)
{
    (void)state;
    play_drawing("s_L = 1, r_max = 3", DSSP(1, 3, LETTER),
                 "    123456789012345\n"
                 "0   ow--rw---rooooo\n"
                 "1   ....o....o....o\n"
                 "d0  122212222123455\n"
                 "r0  000000000010210\n");
    play_drawing("s_L = 0, r_max = 4", DSSP(0, 4, LETTER),
                 "    12345678\n"
                 "0   wrwrw--r\n"
                 "1   .o.o...o\n"
                 "2       j.wr\n");
}

/* s_L = 4, r_max = 2, so s_U = 6. At 7 worker 0 leads by 5: Sim_p = 7 8 9 meets Sim_slow = 9 12 15
 * at r* = 2. The letter judges it again at its 3rd push from there (10: 10 11 12 meets 12), the
 * text at its 2nd (9: 9 10 11 comes next to 12; 11: 11 12 meets 12). Both get beyond s_U = 6.
 *
 * With hard_bound, credit at 7 is cut to 6 - 5 = 1, and at a lead of 6 to none: worker 0 waits till
 * its lead is s_L. After that, at 13, the text has Sim_p = 13 18 23, Sim_slow = 15 18 21: r* =
 * 1. */
static void test_consistency_value_of_credit(void **state)
{
    (void)state;
    play_drawing("by the letter", DSSP(4, 2, LETTER),
                 "    123456789012\n"
                 "0   oooooooooooo\n"
                 "1   ..o..o..o..o\n"
                 "d0  122344566788\n"
                 "r0  000000210210\n");
    play_drawing("by the text", DSSP(4, 2, TEXT),
                 "    123456789012\n"
                 "0   oooooooooooo\n"
                 "1   ..o..o..o..o\n"
                 "d0  122344566788\n"
                 "r0  000000101001\n");
    play_drawing("letter, hard_bound", HARD(4, 2, LETTER),
                 "    123456789012345\n"
                 "0   oooooooow-----r\n"
                 "1   ..o..o..o..o..o\n"
                 "d0  122344566665554\n"
                 "r0  000000100000000\n");
    play_drawing("text, hard_bound", HARD(4, 2, TEXT),
                 "    123456789012345678\n"
                 "0   ooooooow---row---r\n"
                 "1   ..o..o..o..o..o..o\n"
                 "r0  000000000000000000\n");
}

/* At 8 workers 1 and 2 have two pushes each. Of worker 1, the older, 6 + 3 = 9 is expected, which
 * r = 1 meets; of worker 2, 7 + 5 = 12, which r = 4 would. */
static void test_consistency_first_push_wins_a_tie(void **state)
{
    (void)state;
    play_drawing("s_L = 5, r_max = 6", DSSP(5, 6, LETTER),
                 "    12345678\n"
                 "0   oooooooo\n"
                 "1   ..o..o..\n"
                 "2   .o....o.\n"
                 "r0  00000001\n");
}

/* At 11 worker 1 leads by 3, and its Sim_p = 11 14 would meet Sim_slow = 14 at r = 1; but worker 0
 * is further. */
static void test_only_the_fastest_gets_credit(void **state)
{
    (void)state;
    play_drawing("s_L = 2, r_max = 4", DSSP(2, 4, LETTER),
                 "    123456789012\n"
                 "0   oooooooooooo\n"
                 "1   .o.o.o.o..wr\n"
                 "2   .o.o.......o\n"
                 "r0  000010101010\n"
                 "r1  000000000000\n");
}

/* Both fastest get credit at 7; it is spent although all leads are 0 once worker 1 is gone. */
static void test_credit_is_spent_first(void **state)
{
    (void)state;
    play_drawing("s_L = 4, r_max = 2", DSSP(4, 2, LETTER),
                 "    1234567890\n"
                 "0   oooooooooo\n"
                 "1   ..o..o.x\n"
                 "2   oooooooooo\n"
                 "d0  1223445000\n"
                 "r0  0000002100\n"
                 "r2  0000002100\n");
}

/* At 5 the slowest pushes, too. Counted together, worker 0 leads by 2 and needs no credit; one
 * after the other, it leads by 3 and gets some: Sim_p = 5 6 meets Sim_slow = 6. */
static void test_those_that_arrive_together_are_counted_first(void **state)
{
    (void)state;
    const struct consistency_config config = DSSP(2, 4, LETTER);
    play_drawing("together, s_L = 2, r_max = 4", config,
                 "    12345\n"
                 "0   ooooo\n"
                 "1   .o.oo\n"
                 "r0  00000\n");
    const bool first[WORKERS] = {true}, second[WORKERS] = {false, true},
               both[WORKERS] = {true, true};
    struct server s;
    server_init(&s, &config, "one after the other");
    join_nodes(&s, both);
    for (s.now = 1; s.now < 5; s.now++)
        push_from(&s, s.now % 2 ? first : both);
    push_from(&s, first);
    assert_int_equal(s.c.worker[0].r, 1);
    push_from(&s, second);
    assert_int_equal(s.c.worker[0].r, 1);
}

static void test_the_dead_are_not_waited_for(void **state)
{
    (void)state;
    play_drawing("the slowest dies", SSP(1),
                 "    1234567\n"
                 "0   ow---ro\n"
                 "1   .o.w-r.\n"
                 "2   .....x\n");
    play_drawing("one of two slowest dies, and one that waits for them", SSP(1),
                 "    1234\n"
                 "0   ow-r\n"
                 "1   ...o\n"
                 "2   ..x\n"
                 "3   owx\n");
    play_drawing("all but one that waits", BSP,
                 "    1234\n"
                 "0   w-ro\n"
                 "1   ..x\n");
}

/* From 0 it would have kept all others waiting for four pushes. Under dssp worker 0 would get
 * credit at 7 by worker 1's intervals, but the joiner is the slowest with the same t, and its pace
 * is unknown. */
static void test_a_joiner_starts_with_the_slowest(void **state)
{
    (void)state;
    play_drawing("a joiner, ssp, s = 1", SSP(1),
                 "    123456789\n"
                 "0   ooooowrwr\n"
                 "1   ooooowrwr\n"
                 "2       j.o.o\n"
                 "t2      44556\n");
    play_drawing("a joiner, s_L = 2, r_max = 4", DSSP(2, 4, LETTER),
                 "    1234567890123\n"
                 "0   oooooow-----r\n"
                 "1   .o.o.o.o.o.o.\n"
                 "2         j..o..o\n"
                 "t2        3334445\n"
                 "r0  0000100000000\n");
    play_drawing("a joiner alone", SSP(1),
                 "    12345\n"
                 "0   oox\n"
                 "1      jo\n"
                 "t1     01\n");
}

/* By hand; k, too, has its smallest place of several, but nothing ever shows it. */
static void test_the_controller(void **state)
{
    (void)state;
    static const struct {
        int64_t A_p[2], A_slow[2];
        uint32_t r_max, r;
    } row[] = {
        {{10, 9}, {9, 5}, 4, 3},      /* 13 meets 13: three more, as in the paper's Figure 2 */
        {{10, 6}, {3, -2}, 2, 2},     /* 10 14 18 and 8 13 18: the last meets the last */
        {{10, 6}, {5, -2}, 3, 2},     /* 10 14 18 22 and 12 19 26 33: 18 is next to 19 */
        {{100, 98}, {97, 93}, 2, 0},  /* 100 102 104 and 101 105 109: all miss by 1 */
        {{10, 8}, {9, 7}, 12, 0},     /* of one pace: waiting more often gains nothing */
        {{20, 19}, {0, -5}, 2, 0},    /* 5 10 15: overdue, so it will come at once */
        {{20, 19}, {0, -5}, 5, 0},    /* 20 meets 20 */
        {{21, 20}, {0, -5}, 5, 4},    /* 25 meets 25 */
        {{110, 109}, {100, 0}, 3, 3}, /* as far as it goes towards 200 */
        {{10, 9}, {9, 5}, 0, 0},      /* nothing to grant */
        {{10, 10}, {9, 5}, 12, 0},    /* an interval of 0 leads nowhere */
        {{DAY, DAY - HOUR}, {DAY - HOUR / 2, DAY - 7 * HOUR / 2}, CONSISTENCY_R_MAX, 2},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        assert_int_equal(consistency_controller(row[i].A_p, row[i].A_slow, row[i].r_max), row[i].r);
}

/* Races: workers that compute, push, and compute again when they get OK. */

struct race {
    struct server s;
    double step[WORKERS];  /* ns */
    double jitter;         /* a step takes step * (1 ± jitter), evenly spread */
    int64_t quantum;       /* in multiples of so many ns */
    int64_t next[WORKERS]; /* push; INT64_MAX: computes nothing */
    uint64_t drawn, pushes;
};

static uint64_t draw_below(struct race *r, uint64_t n)
{
    return rng_below(r->s.seed, RNG_SIM, r->drawn++, n);
}

static void race_init(struct race *r, const struct consistency_config *config, const char *what,
                      uint64_t seed)
{
    memset(r, 0, sizeof *r);
    server_init(&r->s, config, what);
    r->s.seed = seed;
    r->quantum = 1;
    for (size_t i = 0; i < WORKERS; i++)
        r->next[i] = INT64_MAX;
}

static void set_off(struct race *r, size_t i)
{
    double u = rng_uniform(r->s.seed, RNG_SIM, r->drawn++);
    double ns = r->step[i] * (1 + r->jitter * (2 * u - 1));
    r->next[i] = r->s.now + (int64_t)ceil(ns / (double)r->quantum) * r->quantum;
}

static void set_off_those_with_ok(struct race *r)
{
    for (size_t i = 0; i < WORKERS; i++)
        if (r->s.book[i].ok)
            set_off(r, i);
}

static void race_join(struct race *r, const bool members[WORKERS])
{
    join_nodes(&r->s, members);
    for (size_t i = 0; i < WORKERS; i++)
        if (members[i])
            set_off(r, i);
}

/* The next push, and all others at the same time. */
static void race_moment(struct race *r)
{
    bool members[WORKERS];
    int64_t first = INT64_MAX;
    for (size_t i = 0; i < WORKERS; i++)
        if (r->next[i] < first)
            first = r->next[i];
    check_worker(&r->s, first != INT64_MAX, 0, "and all others wait for ever");
    r->s.now = first;
    for (size_t i = 0; i < WORKERS; i++) {
        members[i] = r->next[i] == first;
        r->pushes += members[i];
        if (members[i])
            r->next[i] = INT64_MAX;
    }
    push_from(&r->s, members);
    set_off_those_with_ok(r);
}

/* One or two of the members, but not all. */
static void some_die(struct race *r)
{
    bool members[WORKERS] = {false};
    size_t left = 0;
    for (size_t i = 0; i < WORKERS; i++)
        left += r->s.book[i].in;
    for (size_t n = 1 + draw_below(r, 2); n > 0; n--) {
        size_t i = draw_below(r, WORKERS);
        if (!r->s.book[i].in || members[i] || left == 1)
            continue;
        members[i] = true;
        left--;
        r->next[i] = INT64_MAX;
    }
    remove_nodes(&r->s, members);
    set_off_those_with_ok(r);
}

static void some_join(struct race *r)
{
    bool members[WORKERS];
    for (size_t i = 0; i < WORKERS; i++)
        members[i] = !r->s.book[i].in && draw_below(r, 3) == 0;
    race_join(r, members);
}

/* There are no further deaths, and all keep pushing: each of them continues again. */
static void all_go_on(struct race *r)
{
    bool went[WORKERS] = {false};
    for (size_t n = 0; n < 200000; n++) {
        size_t still = 0;
        race_moment(r);
        for (size_t i = 0; i < WORKERS; i++) {
            went[i] |= r->s.book[i].ok;
            still += r->s.book[i].in && !went[i];
        }
        if (still == 0)
            return;
    }
    for (size_t i = 0; i < WORKERS; i++)
        check_worker(&r->s, !r->s.book[i].in || went[i], i, "does not continue");
}

/* A schedule by chance: the rule, workers, paces, ties, deaths, joins. The judge does the rest. */
static void run_storm(struct race *r, uint64_t seed)
{
    race_init(r, &BSP, "storm", seed);
    const struct consistency_config config = {
        .kind = (enum consistency_kind)draw_below(r, 4),
        .staleness = (uint32_t)draw_below(r, 6),
        .s_lower = (uint32_t)draw_below(r, 5),
        .r_max = (uint32_t)draw_below(r, 13),
        .credit = (enum consistency_credit)draw_below(r, 2),
        .hard_bound = draw_below(r, 2),
    };
    consistency_init(&r->s.c, &config);
    r->s.stride = draw_below(r, 2) ? 1 : (VIEW_MEMBERS_MAX - 1) / (WORKERS - 1);
    r->jitter = (double)draw_below(r, 3) * 0.2;
    r->quantum = draw_below(r, 2) ? MS : 1;
    bool members[WORKERS] = {true};
    for (size_t i = 0; i < WORKERS; i++) {
        r->step[i] = (double)(1 + draw_below(r, 12)) * MS;
        members[i] |= draw_below(r, 2);
    }
    race_join(r, members);
    for (size_t n = 0; n < 120; n++) {
        if (draw_below(r, 24) == 0)
            some_die(r);
        if (draw_below(r, 24) == 0)
            some_join(r);
        race_moment(r);
    }
    all_go_on(r);
}

/* Whatever happens, the judge finds every OK within its bound and nobody waiting without cause; and
 * without hard_bound the bound that Theorem 2 needs, s_U, is not kept in either reading. */
static void test_consistency_storms(void **state)
{
    (void)state;
    static struct race r;
    size_t beyond[2] = {0};
    for (uint64_t seed = 1; seed <= 12000; seed++) {
        run_storm(&r, seed);
        const struct consistency_config *config = &r.s.c.config;
        if (config->kind != CONSISTENCY_DSSP || config->hard_bound)
            continue;
        bool more = false;
        for (size_t i = 0; i < WORKERS; i++)
            more |= r.s.book[i].staleness > config->s_lower + config->r_max;
        beyond[config->credit] += more;
    }
    print_message("    beyond s_U: %zu storms by the letter, %zu by the text\n",
                  beyond[CONSISTENCY_LETTER], beyond[CONSISTENCY_TEXT]);
    assert_true(beyond[CONSISTENCY_LETTER] > 0 && beyond[CONSISTENCY_TEXT] > 0);
}

/* Pushes in the time of 10,000 steps of the faster of two workers whose speeds are as 3.1 to 1. */
static double pace_of(const struct consistency_config *config, double jitter, uint64_t seed)
{
    static struct race r;
    race_init(&r, config, "pace", seed);
    r.jitter = jitter;
    r.step[0] = 10.0 * MS;
    r.step[1] = 31.0 * MS;
    race_join(&r, (const bool[WORKERS]){true, true});
    while (r.s.now < 10000 * 10 * MS)
        race_moment(&r);
    return (double)r.pushes;
}

/* How much faster than bsp, on average. */
static double gain_of(struct consistency_config config, double jitter)
{
    enum { RUNS = 20 };
    const struct consistency_config bsp = BSP;
    double sum = 0;
    for (uint64_t seed = 1; seed <= RUNS; seed++)
        sum += pace_of(&config, jitter, seed) / pace_of(&bsp, jitter, seed);
    return sum / RUNS;
}

/* The cliff. Without waiting the two make 1 + 1/3.1 pushes a fast step, in rounds 2/3.1: 2.05 times
 * fewer. Any bound on the lead makes it 2/3.1 in the long run, too. By the letter, the fast worker
 * runs away as long as each prediction finds an r > 0. When one finds 0, at a lead of L, it stands
 * still for the L steps that the slow worker lacks, and over run and stall the mean is that of bsp.
 * The more jitter, the sooner.
 *
 * An independent simulation of the listing gave 2.05 to 2 % jitter, 1.05 to 1.61 at 3 %, 1.01 to
 * 1.09 at 5 %, 1.00 to 1.02 at 10 %; how soon a 0 is found is chance, hence the room. */
static void test_the_cliff(void **state)
{
    (void)state;
    const struct {
        struct consistency_config config;
        double jitter, least, most;
    } row[] = {
        {ASP, 0.1, 2.03, 2.07},
        {SSP(15), 0, 1, 1.01},
        {HARD(3, 12, LETTER), 0, 1, 1.01},
        {DSSP(3, 12, LETTER), 0, 2.03, 2.07},
        {DSSP(3, 12, LETTER), 0.01, 2.03, 2.07},
        {DSSP(3, 12, LETTER), 0.02, 1.95, 2.07},
        {DSSP(3, 12, LETTER), 0.03, 1.05, 1.61},
        {DSSP(3, 12, LETTER), 0.05, 1, 1.12},
        {DSSP(3, 12, LETTER), 0.1, 0.99, 1.06},
    };
    static const char *const name[] = {"bsp", "asp", "ssp", "dssp"};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        double found = gain_of(row[i].config, row[i].jitter);
        print_message("    %-4s%s, jitter %2.0f %%: %.3f of bsp\n", name[row[i].config.kind],
                      row[i].config.hard_bound ? ", hard_bound" : "", 100 * row[i].jitter, found);
        assert_true(found >= row[i].least && found <= row[i].most);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_consistency_bsp_ssp_asp),
        cmocka_unit_test(test_consistency_credit_needs_two_pushes),
        cmocka_unit_test(test_consistency_value_of_credit),
        cmocka_unit_test(test_consistency_first_push_wins_a_tie),
        cmocka_unit_test(test_only_the_fastest_gets_credit),
        cmocka_unit_test(test_credit_is_spent_first),
        cmocka_unit_test(test_those_that_arrive_together_are_counted_first),
        cmocka_unit_test(test_the_dead_are_not_waited_for),
        cmocka_unit_test(test_a_joiner_starts_with_the_slowest),
        cmocka_unit_test(test_the_controller),
        cmocka_unit_test(test_consistency_storms),
        cmocka_unit_test(test_the_cliff),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
