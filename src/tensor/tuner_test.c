/* The tuner with a clock that the test sets: what is timed, what is kept, and the contents of
 * files. */
#include "tensor/tuner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/status.h"

enum { CANDIDATES = 3 };

/* Candidates that take so many ns; 0: cannot be run. */
struct bench {
    int64_t now, takes[CANDIDATES];
    size_t runs[CANDIDATES];
    size_t kept;
    struct tuner_news news;
};

static const char *const names[CANDIDATES] = {"direct", "jit:x winograd", "own"};

static int64_t clock_now(void *user)
{
    return ((struct bench *)user)->now;
}

static void on_keep(void *user, struct tuner *tuner, const struct tuner_news *news)
{
    struct bench *b = user;
    (void)tuner;
    b->kept++;
    b->news = *news;
}

static int run_candidate(void *user, size_t i)
{
    struct bench *b = user;
    assert_true(i < CANDIDATES);
    b->runs[i]++;
    /* The first run plans, and every fourth is disturbed: neither may decide. */
    bool odd = b->runs[i] == 1 || b->runs[i] % 4 == 0;
    b->now += odd ? 9 * b->takes[i] : b->takes[i];
    return b->takes[i] ? OK : ERR_UNSUPPORTED;
}

/* Other processes that want the processors: in so many runs of the fastest candidate threads wait
 * for one, and the run takes 40 ms longer. */
struct busy {
    struct bench bench;
    size_t disturbed;
    int64_t delay;
};

static int64_t delay_now(void *user)
{
    return ((struct busy *)user)->delay; /* the bench comes first */
}

static int run_busy(void *user, size_t i)
{
    struct busy *b = user;
    int rc = run_candidate(&b->bench, i);
    if (i == 1 && b->disturbed > 0) {
        b->disturbed--;
        b->delay += 40 * 1000 * 1000;
        b->bench.now += 40 * 1000 * 1000;
    }
    return rc;
}

static struct tuner *tuner_for_busy(struct busy *b)
{
    struct tuner *tuner = tuner_create(&(struct tuner_host){clock_now, on_keep, b, delay_now});
    assert_non_null(tuner);
    return tuner;
}

static struct tuner *tuner_for(struct bench *b)
{
    struct tuner *tuner =
        tuner_create(&(struct tuner_host){.now = clock_now, .keep = on_keep, .user = b});
    assert_non_null(tuner);
    return tuner;
}

static size_t choose_candidate(struct tuner *tuner, struct bench *b, const char *key)
{
    return tuner_choose(tuner, key, names, CANDIDATES, run_candidate, b);
}

static size_t runs_of(const struct bench *b)
{
    size_t sum = 0;
    for (size_t i = 0; i < CANDIDATES; i++)
        sum += b->runs[i];
    return sum;
}

static void test_the_fastest_is_taken_and_timed_no_more(void **state)
{
    (void)state;
    struct bench b = {.takes = {3000, 2000, 2900}};
    struct tuner *tuner = tuner_for(&b);
    assert_null(tuner_find(tuner, "a"));
    assert_int_equal(choose_candidate(tuner, &b, "a"), 1);
    assert_string_equal(tuner_find(tuner, "a"), "jit:x winograd");
    size_t runs = runs_of(&b);
    assert_true(b.runs[0] > 3 && b.runs[1] > 3 && b.runs[2] > 1);
    assert_int_equal(choose_candidate(tuner, &b, "a"), 1);
    assert_int_equal(runs_of(&b), runs);
    b.takes[2] = 1000; /* another shape is another question */
    assert_int_equal(choose_candidate(tuner, &b, "b"), 2);
    assert_true(runs_of(&b) > runs);
    tuner_free(tuner);
}

static void test_what_cannot_run_is_left_out(void **state)
{
    (void)state;
    struct bench b = {.takes = {0, 5000, 0}};
    struct tuner *tuner = tuner_for(&b);
    assert_int_equal(choose_candidate(tuner, &b, "a"), 1);
    memset(b.takes, 0, sizeof b.takes);
    assert_int_equal(choose_candidate(tuner, &b, "b"), CANDIDATES);
    assert_null(tuner_find(tuner, "b"));
    tuner_free(tuner);
}

/* Seconds of candidates that lose are not spent twice; a hair's breadth changes nothing. */
static void test_the_slow_are_dropped_and_equals_keep_their_order(void **state)
{
    (void)state;
    struct bench b = {.takes = {1000000, 990000, 400000000}};
    struct tuner *tuner = tuner_for(&b);
    assert_int_equal(choose_candidate(tuner, &b, "a"), 0);
    assert_int_equal(b.runs[2], 1);
    b.takes[2] = 2500000;
    b.runs[2] = 0;
    assert_int_equal(choose_candidate(tuner, &b, "b"), 0);
    assert_int_equal(b.runs[2], 2);
    tuner_free(tuner);
}

static void test_what_is_new_is_handed_on_once(void **state)
{
    (void)state;
    struct bench b = {.takes = {3000, 2000, 4000}};
    struct tuner *tuner = tuner_for(&b);
    tuner_finish(tuner);
    assert_int_equal(b.kept, 0);
    choose_candidate(tuner, &b, "a");
    choose_candidate(tuner, &b, "b");
    tuner_finish(tuner);
    assert_int_equal(b.kept, 1);
    assert_int_equal(b.news.timed, 2);
    assert_int_equal(b.news.left, 0);
    assert_true(b.news.seconds > 0 && b.news.seconds < 1e-3);
    choose_candidate(tuner, &b, "a");
    tuner_finish(tuner);
    assert_int_equal(b.kept, 1);
    tuner_free(tuner);
}

/* A choice that was timed in time is kept and known; another is no choice, and counted once. */
static void test_timing_ends_after_so_many_seconds(void **state)
{
    (void)state;
    struct bench b = {.takes = {100000000, 0, 0}};
    struct tuner *tuner = tuner_for(&b), *next = tuner_for(&b);
    struct buf text = {0};
    char key[8];
    size_t n = 0;
    for (; n < 1000; n++) {
        snprintf(key, sizeof key, "k%zu", n);
        if (!tuner_has_time(tuner, key))
            break;
        assert_int_equal(choose_candidate(tuner, &b, key), 0);
    }
    assert_in_range(b.now, 20 * INT64_C(1000000000), 23 * INT64_C(1000000000));
    assert_false(tuner_has_time(tuner, key));
    assert_false(tuner_has_time(tuner, "another"));
    assert_null(tuner_find(tuner, key));
    assert_string_equal(tuner_find(tuner, "k0"), "direct");
    tuner_finish(tuner);
    assert_int_equal(b.news.timed, n);
    assert_int_equal(b.news.left, 2);
    assert_int_equal(tuner_text(tuner, &text), OK);
    assert_int_equal(tuner_load(next, (char *)text.data, text.len), n);
    assert_true(tuner_has_time(next, key));
    b.kept = 0;
    assert_false(tuner_has_time(tuner, key));
    tuner_finish(tuner);
    assert_int_equal(b.kept, 0);
    const char *found = "paceline kernels 1\nanother | own | 5 ns\n"; /* by another process */
    assert_int_equal(tuner_load(tuner, found, strlen(found)), 1);
    assert_string_equal(tuner_find(tuner, "another"), "own");
    buf_release(&text);
    tuner_free(tuner), tuner_free(next);
}

static void test_tuner_text_round_trips(void **state)
{
    (void)state;
    struct bench b = {.takes = {3000, 2000, 4000}};
    struct tuner *one = tuner_for(&b), *two = tuner_for(&b);
    struct buf text = {0}, again = {0};
    choose_candidate(one, &b, "conv fwd f32 x=2x3 lib=one-2.6");
    b.takes[0] = 7;
    choose_candidate(one, &b, "conv data");
    assert_int_equal(tuner_text(one, &text), OK);
    const char *want = "paceline kernels 1\n"
                       "conv data | direct | 7 ns\n"
                       "conv fwd f32 x=2x3 lib=one-2.6 | jit:x winograd | 2000 ns\n";
    assert_int_equal(text.len, strlen(want));
    assert_memory_equal(text.data, want, text.len);
    assert_int_equal(tuner_load(two, want, strlen(want)), 2);
    assert_int_equal(tuner_text(two, &again), OK);
    assert_int_equal(again.len, text.len);
    assert_memory_equal(again.data, text.data, text.len);
    size_t runs = runs_of(&b);
    assert_int_equal(choose_candidate(two, &b, "conv data"), 0);
    assert_int_equal(runs_of(&b), runs);
    buf_release(&text), buf_release(&again);
    tuner_free(one), tuner_free(two);
}

static void test_own_choices_stay_when_a_file_is_merged(void **state)
{
    (void)state;
    struct bench b = {.takes = {3000, 2000, 4000}};
    struct tuner *tuner = tuner_for(&b);
    const char *text = "paceline kernels 1\na | own | 5 ns\nb | own | 6 ns\n";
    choose_candidate(tuner, &b, "a");
    assert_int_equal(tuner_load(tuner, text, strlen(text)), 1);
    assert_string_equal(tuner_find(tuner, "a"), "jit:x winograd");
    assert_string_equal(tuner_find(tuner, "b"), "own");
    tuner_finish(tuner);
    assert_int_equal(b.news.timed, 1);
    tuner_free(tuner);
}

/* A name of other days or other hands is not trusted: the candidates are timed. */
static void test_tuner_unknown_name_is_timed_again(void **state)
{
    (void)state;
    struct bench b = {.takes = {3000, 2000, 4000}};
    struct tuner *tuner = tuner_for(&b);
    const char *text = "paceline kernels 1\na | %s%n ../../etc | 1 ns\n";
    assert_int_equal(tuner_load(tuner, text, strlen(text)), 1);
    assert_int_equal(choose_candidate(tuner, &b, "a"), 1);
    assert_true(runs_of(&b) > 0);
    assert_string_equal(tuner_find(tuner, "a"), "jit:x winograd");
    tuner_free(tuner);
}

static void test_foreign_and_damaged_lines_count_for_nothing(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "\n",
        "paceline kernels 1",
        "paceline kernels 2\na | own | 5 ns\n",
        "a | own | 5 ns\n",
        "paceline kernels 1 \na | own | 5 ns\n",
        "paceline kernels 1\na | own | 5 ns", /* cut off */
        "paceline kernels 1\na | own | 5\n",
        "paceline kernels 1\na | own | -5 ns\n",
        "paceline kernels 1\na | own | 0 ns\n",
        "paceline kernels 1\na | own | 1e3 ns\n",
        "paceline kernels 1\na | own | 9999999999999999999999 ns\n",
        "paceline kernels 1\na | own | 5 ns more\n",
        "paceline kernels 1\na | own | x | 5 ns\n",
        "paceline kernels 1\na || 5 ns\n",
        "paceline kernels 1\n | own | 5 ns\n",
        "paceline kernels 1\na |own | 5 ns\n",
        "paceline kernels 1\na\x01 | own | 5 ns\n",
        "paceline kernels 1\na | \xc3\xa4 | 5 ns\n",
        "paceline kernels 1\n|\n|||\n | \n | | | \n",
    };
    struct bench b = {0};
    struct tuner *tuner = tuner_for(&b);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(tuner_load(tuner, texts[i], strlen(texts[i])), 0);
    char longest[2 * TUNER_KEY_MAX];
    struct buf line = {0};
    memset(longest, 'k', sizeof longest);
    buf_printf(&line, "paceline kernels 1\n%.*s | own | 5 ns\n%.*s | own | 5 ns\na | %.*s | 5 ns\n",
               TUNER_KEY_MAX + 1, longest, TUNER_KEY_MAX, longest, TUNER_NAME_MAX + 1, longest);
    assert_int_equal(tuner_load(tuner, (char *)line.data, line.len), 1);
    buf_release(&line);
    tuner_free(tuner);
}

/* Any bytes at all: what is taken over is written again as it was read. */
static void test_chance_does_not_break_it(void **state)
{
    (void)state;
    const char *good =
        "paceline kernels 1\nkey a | own | 51 ns\nkey b | direct | 7 ns\nc | d | 1 ns\n";
    size_t len = strlen(good);
    char *text = malloc(len);
    assert_non_null(text);
    for (uint64_t round = 0; round < 2000; round++) {
        struct bench b = {0};
        struct tuner *one = tuner_for(&b), *two = tuner_for(&b);
        struct buf out = {0};
        memcpy(text, good, len);
        for (uint64_t k = 0; k < 1 + round % 4; k++)
            text[rng_below(5, 1, 8 * round + k, len)] = (char)rng_below(5, 2, 8 * round + k, 256);
        size_t n = tuner_load(one, text, len - rng_below(5, 3, round, 9));
        assert_true(n <= 4);
        assert_int_equal(tuner_text(one, &out), OK);
        assert_int_equal(tuner_load(two, (char *)out.data, out.len), n);
        buf_release(&out);
        tuner_free(one), tuner_free(two);
    }
    free(text);
}

/* The choice is that of a machine that was never busy. */
static void test_tuner_repeats_runs_that_were_disturbed(void **state)
{
    (void)state;
    struct busy b = {.bench = {.takes = {3000, 2000, 2900}}, .disturbed = 9};
    struct tuner *tuner = tuner_for_busy(&b);
    assert_int_equal(tuner_choose(tuner, "a", names, CANDIDATES, run_busy, &b), 1);
    assert_int_equal(tuner_time(tuner, "a"), 2000);
    tuner_finish(tuner);
    assert_int_equal(b.bench.news.timed, 1);
    assert_int_equal(b.bench.news.disturbed, 0);
    tuner_free(tuner);
}

/* Nothing is kept, timing ends soon, and a later process that has the machine chooses rightly. */
static void test_tuner_keeps_nothing_of_a_busy_machine(void **state)
{
    (void)state;
    struct busy b = {.bench = {.takes = {3000, 2000, 2900}}, .disturbed = SIZE_MAX};
    struct tuner *tuner = tuner_for_busy(&b);
    static const char *const keys[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < 4; i++)
        if (tuner_has_time(tuner, keys[i]))
            assert_int_equal(tuner_choose(tuner, keys[i], names, CANDIDATES, run_busy, &b),
                             CANDIDATES);
    assert_true(runs_of(&b.bench) < 90);
    tuner_finish(tuner);
    assert_int_equal(b.bench.kept, 1);
    assert_int_equal(b.bench.news.timed, 0);
    assert_int_equal(b.bench.news.left, 0);
    assert_int_equal(b.bench.news.disturbed, 4);
    struct buf text = {0};
    assert_int_equal(tuner_text(tuner, &text), OK);
    struct busy later = {.bench = {.takes = {3000, 2000, 2900}}};
    struct tuner *quiet = tuner_for_busy(&later);
    assert_int_equal(tuner_load(quiet, (const char *)text.data, text.len), 0);
    for (size_t i = 0; i < 4; i++) {
        memset(later.bench.runs, 0, sizeof later.bench.runs); /* each key is planned again */
        assert_int_equal(tuner_choose(quiet, keys[i], names, CANDIDATES, run_busy, &later), 1);
    }
    buf_release(&text);
    tuner_free(tuner);
    tuner_free(quiet);
}

/* ---- choices that are checked ---- */

enum { KEYS = 6 };

static const char *const shapes[KEYS] = {"conv1", "conv2", "conv3", "conv4", "conv5", "conv6"};

/* A machine that many processes use, one after the other. */
struct machine {
    struct busy busy;   /* first: it is what the tuner's host is given */
    struct buf table;   /* as the last process left it */
    uint64_t runs;      /* all, for the noise */
    int64_t noise;      /* in 100 of a run */
    size_t disturbs_in; /* one run in so many is disturbed; 0: none */
};

static int run_noisy(void *user, size_t i)
{
    struct machine *m = user;
    int64_t ns = m->busy.bench.takes[i];
    m->busy.bench.runs[i]++;
    m->busy.bench.now += ns + ns * (int64_t)rng_below(3, 1, m->runs, 100) * m->noise / 10000;
    if (m->disturbs_in > 0 && m->runs % m->disturbs_in == 0) {
        m->busy.delay += 40 * 1000 * 1000;
        m->busy.bench.now += 40 * 1000 * 1000;
    }
    m->runs++;
    return OK;
}

/* One process loads the table, chooses for all shapes, and leaves what it has. Which names it took,
 * as bits of those that are `best`. */
static unsigned live_process(struct machine *m, uint64_t number, size_t best)
{
    struct tuner *tuner = tuner_for_busy(&m->busy);
    unsigned right = 0;
    tuner_load(tuner, (const char *)m->table.data, m->table.len);
    tuner_check(tuner, number);
    for (unsigned i = 0; i < KEYS; i++)
        if (tuner_choose(tuner, shapes[i], names, CANDIDATES, run_noisy, m) == best)
            right |= 1u << i;
    tuner_finish(tuner);
    buf_release(&m->table);
    m->table = (struct buf){0};
    assert_int_equal(tuner_text(tuner, &m->table), OK);
    tuner_free(tuner);
    return right;
}

static void fill_machine(struct machine *m, const char *name)
{
    buf_printf(&m->table, "paceline kernels 1\n");
    for (int i = 0; i < KEYS; i++)
        buf_printf(&m->table, "%s | %s | 2000000 ns\n", shapes[i], name);
}

/* Whatever was kept for them, all shapes have the fastest after so many processes, each of which
 * spends little on it. */
static void test_tuner_repairs_bad_choices_in_later_processes(void **state)
{
    (void)state;
    struct machine m = {.busy = {.bench = {.takes = {3000000, 2000000, 2900000}}}, .noise = 5};
    const unsigned all = (1u << KEYS) - 1;
    unsigned right = 0;
    uint64_t number = 0;
    fill_machine(&m, "own");
    for (; right != all && number < 64; number++) {
        int64_t before = m.busy.bench.now;
        right = live_process(&m, number, 1);
        assert_true(m.busy.bench.now - before < 200 * 1000 * 1000);
    }
    assert_int_equal(right, all);
    assert_true(number < 64);
    assert_true(m.busy.bench.news.mended > 0);
    assert_int_equal(live_process(&m, number, 1), all);
    buf_release(&m.table);
}

/* By a rival that is as fast, by noise, by others who take the processors. */
static void test_tuner_leaves_good_choices_alone(void **state)
{
    (void)state;
    struct machine m = {.busy = {.bench = {.takes = {2000000, 2000000, 2100000}}}, .noise = 30};
    fill_machine(&m, "direct");
    for (uint64_t number = 0; number < 400; number++) {
        m.disturbs_in = number % 2 ? 5 : 0;
        assert_int_equal(live_process(&m, number, 0), (1u << KEYS) - 1);
    }
    assert_int_equal(m.busy.bench.kept, 0);
    buf_release(&m.table);
}

static void test_tuner_checks_nothing_on_a_busy_machine(void **state)
{
    (void)state;
    struct machine m = {.busy = {.bench = {.takes = {3000000, 2000000, 2900000}}},
                        .disturbs_in = 1};
    fill_machine(&m, "own");
    for (uint64_t number = 0; number < 64; number++) {
        size_t before = runs_of(&m.busy.bench);
        assert_int_equal(live_process(&m, number, 2), (1u << KEYS) - 1);
        assert_true(runs_of(&m.busy.bench) - before <= 1);
    }
    assert_int_equal(m.busy.bench.kept, 0); /* and nothing is logged */
    buf_release(&m.table);
}

static void test_tuner_on_hold_counts_what_it_would_time(void **state)
{
    (void)state;
    struct bench b = {.takes = {3000, 2000, 2900}};
    struct tuner *tuner =
        tuner_create(&(struct tuner_host){.now = clock_now, .keep = on_keep, .user = &b});
    tuner_choose(tuner, "known", names, CANDIDATES, run_candidate, &b);
    tuner_finish(tuner);
    tuner_hold(tuner);
    assert_false(tuner_has_time(tuner, "a"));
    assert_false(tuner_has_time(tuner, "b"));
    assert_int_equal(tuner_continue(tuner), 2);
    assert_true(tuner_has_time(tuner, "a"));
    tuner_hold(tuner);
    assert_int_equal(tuner_continue(tuner), 0);
    tuner_finish(tuner);
    assert_int_equal(b.kept, 1); /* there was no news */
    tuner_free(tuner);
}

static bool count_to_five(void *user, const char *stage, uint64_t done, uint64_t total)
{
    (void)stage, (void)total;
    *(uint64_t *)user = done;
    return done < 5;
}

static void test_tuner_ends_when_its_watch_cancels(void **state)
{
    (void)state;
    struct bench b = {.takes = {3000, 2000, 2900}};
    struct tuner *tuner = tuner_create(&(struct tuner_host){.now = clock_now, .user = &b});
    uint64_t reported = 0;
    const struct open_watch watch = {&reported, count_to_five};
    tuner_set_watch(tuner, &watch);
    assert_int_equal(tuner_choose(tuner, "a", names, CANDIDATES, run_candidate, &b), CANDIDATES);
    assert_int_equal(reported, 5);
    assert_int_equal(b.runs[0] + b.runs[1] + b.runs[2], 4);
    assert_false(tuner_has_time(tuner, "b"));
    assert_null(tuner_find(tuner, "a"));
    tuner_set_watch(tuner, NULL);
    assert_int_equal(tuner_choose(tuner, "a", names, CANDIDATES, run_candidate, &b), 1);
    assert_int_equal(reported, 5);
    tuner_free(tuner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_fastest_is_taken_and_timed_no_more),
        cmocka_unit_test(test_what_cannot_run_is_left_out),
        cmocka_unit_test(test_the_slow_are_dropped_and_equals_keep_their_order),
        cmocka_unit_test(test_what_is_new_is_handed_on_once),
        cmocka_unit_test(test_timing_ends_after_so_many_seconds),
        cmocka_unit_test(test_tuner_text_round_trips),
        cmocka_unit_test(test_own_choices_stay_when_a_file_is_merged),
        cmocka_unit_test(test_tuner_unknown_name_is_timed_again),
        cmocka_unit_test(test_foreign_and_damaged_lines_count_for_nothing),
        cmocka_unit_test(test_chance_does_not_break_it),
        cmocka_unit_test(test_tuner_repeats_runs_that_were_disturbed),
        cmocka_unit_test(test_tuner_keeps_nothing_of_a_busy_machine),
        cmocka_unit_test(test_tuner_repairs_bad_choices_in_later_processes),
        cmocka_unit_test(test_tuner_leaves_good_choices_alone),
        cmocka_unit_test(test_tuner_checks_nothing_on_a_busy_machine),
        cmocka_unit_test(test_tuner_on_hold_counts_what_it_would_time),
        cmocka_unit_test(test_tuner_ends_when_its_watch_cancels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
