/* The bytes that a terminal receives: a child prints to one, by a pair of pseudo terminals, and the
 * test checks the bytes that come out. */
#define _GNU_SOURCE /* posix_openpt */
#include "cli/output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OUTPUT_MAX = 1 << 20 };

static char output[OUTPUT_MAX];
static double took; /* s, of the last message: on a busy machine longer than its sleeps */

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The number of lines of a kind that is printed at most once in `period` s, and once more at the
 * end. */
static unsigned most_of(double period)
{
    return (unsigned)(took / period) + 2;
}

/* Returns the bytes that `story` prints to a terminal of so many columns; 0: to a pipe. */
static const char *print_story(unsigned columns, void (*story)(void))
{
    int ends[2];
    size_t n = 0;
    setenv("TERM", "xterm", 1);
    if (columns > 0) {
        ends[0] = posix_openpt(O_RDWR | O_NOCTTY);
        assert_true(ends[0] >= 0 && grantpt(ends[0]) == 0 && unlockpt(ends[0]) == 0);
        ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY);
        assert_true(ends[1] >= 0);
        const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
        assert_int_equal(ioctl(ends[1], TIOCSWINSZ, &size), 0);
    } else {
        assert_int_equal(pipe(ends), 0);
    }
    double begun = seconds_now();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        story();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got;
         n + 1 < OUTPUT_MAX && (got = read(ends[0], output + n, OUTPUT_MAX - 1 - n)) > 0;)
        n += (size_t)got;
    output[n] = '\0';
    close(ends[0]);
    waitpid(child, NULL, 0);
    took = seconds_now() - begun;
    return output;
}

static size_t count_of(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        n++;
    return n;
}

/* The bytes of an order to the terminal that clears to the end of a row or gives a colour; 0: none
 * is here. */
static size_t measure_order(const char *text)
{
    size_t n = strncmp(text, "\033[", 2) == 0 ? 2 + strspn(text + 2, "0123456789") : 0;
    return n > 0 && (text[n] == 'K' || text[n] == 'm') ? n + 1 : 0;
}

/* Of the rows between `\r` and `\n`, the longest, without orders. */
static size_t widest_row(const char *text)
{
    size_t widest = 0, row = 0;
    for (; *text; text++) {
        size_t order = measure_order(text);
        if (order > 0)
            text += order - 1;
        else
            row = *text == '\r' || *text == '\n' ? 0 : row + 1;
        widest = row > widest ? row : widest;
    }
    return widest;
}

static void show_progress(int i)
{
    struct progress_field field[3] = {{.rank = 1}, {.rank = 0}, {.rank = 2}};
    snprintf(field[0].text, sizeof field[0].text, "%50d s", i);
    snprintf(field[1].text, sizeof field[1].text, "epoch %d.00/9", i);
    snprintf(field[2].text, sizeof field[2].text, "exchange 12.3 ms");
    output_progress(field, 3);
}

static void story_often(void)
{
    for (int i = 0; i < 100; i++) {
        show_progress(i);
        sleep_ms(10);
    }
    output_finish();
}

static void test_progress_is_drawn_four_times_a_second_and_never_wraps(void **state)
{
    (void)state;
    for (unsigned columns = 20; columns <= 80; columns += 20) {
        const char *text = print_story(columns, story_often);
        assert_true(widest_row(text) < columns);
        assert_in_range(count_of(text, "\rep") + count_of(text, "\r  "), 3, most_of(0.25));
        assert_int_equal(count_of(text, "\n"), 1);      /* when it is finished */
        assert_non_null(strstr(text, "epoch 99.00/9")); /* with the newest */
    }
}

static void warn_during_progress(void)
{
    show_progress(1);
    output_log(NULL, PL_LOG_WARN, "the disk is slow");
    output_finish();
}

static void test_warning_stands_on_a_line_of_its_own(void **state)
{
    (void)state;
    assert_non_null(strstr(print_story(40, warn_during_progress),
                           "\r\033[K\033[33mwarning: the disk is slow\033[0m\r\n\repoch"));
}

static void story_flood(void)
{
    for (int i = 0; i < 130; i++) {
        char line[80];
        snprintf(line, sizeof line, "shard %d: nothing new for 0.%03d s", i % 4, i);
        output_log(NULL, PL_LOG_WARN, line);
        snprintf(line, sizeof line, "worker %d left: no heartbeat for 1.%02d s", i % 2, i);
        output_log(NULL, PL_LOG_WARN, line);
        sleep_ms(10);
    }
    output_finish();
}

static void test_warnings_of_a_kind_come_once_a_second_and_are_counted(void **state)
{
    (void)state;
    const char *text = print_story(0, story_flood);
    assert_in_range(count_of(text, "shard"), 3, most_of(1));
    assert_in_range(count_of(text, "worker 0 left"), 3, most_of(1));
    assert_in_range(count_of(text, "worker 1 left"), 3, most_of(1));
    assert_int_equal(strncmp(text, "warning: shard 0: nothing new for 0.000 s\n", 42), 0);
    assert_non_null(strstr(text, " more like it in "));
}

/* Two machines that fail alike, and nothing else happens for a while. */
static void fail_alike(void)
{
    for (int i = 0; i < 4; i++) {
        char line[120];
        snprintf(line, sizeof line, "worker on node%d (10.0.0.%d:%d): cannot read /data/%d.lmdb",
                 i % 2 + 1, i % 2 + 1, 4000 + i, i);
        output_log(NULL, PL_LOG_WARN, line);
    }
    output_line("waits");
    for (int i = 0; i < 13; i++) {
        sleep_ms(100);
        output_tick();
    }
    output_line("resumes");
}

static void test_warnings_name_each_machine_while_nothing_moves(void **state)
{
    (void)state;
    const char *text = print_story(0, fail_alike);
    const char *waits = strstr(text, "waits\n"), *on = strstr(text, "resumes\n");
    assert_true(waits && on);
    assert_int_equal(count_of(text, "node1 (10.0.0.1:"), 2);
    assert_int_equal(count_of(text, "node2 (10.0.0.2:"), 2);
    assert_true(strstr(text, "node2") < waits);      /* one kind for each of them, */
    assert_true(strstr(waits, "/data/2.lmdb") < on); /* and the rest before another line */
    assert_true(strstr(waits, "/data/3.lmdb") < on);
}

static void be_quiet(void)
{
    output_configure(&(struct output_options){.quiet = true});
    show_progress(1);
    output_line("news");
    output_log(NULL, PL_LOG_INFO, "more news");
    output_log(NULL, PL_LOG_WARN, "trouble");
    output_best("better");
    output_relay("worker 1 is at work");
    output_relay("warning: trouble of another process");
    output_error("the end");
    output_finish();
}

static void test_quiet_leaves_warnings_alone(void **state)
{
    (void)state;
    const char *text = print_story(0, be_quiet);
    assert_string_equal(text, "warning: trouble\nwarning: trouble of another process\nthe end\n");
}

static void story_plain(void)
{
    output_configure(&(struct output_options){.progress_s = 0.2});
    for (int i = 0; i < 100; i++) {
        show_progress(i);
        sleep_ms(10);
    }
}

static void test_lines_off_a_terminal_come_as_often_as_asked(void **state)
{
    (void)state;
    const char *text = print_story(0, story_plain);
    assert_in_range(count_of(text, "\n"), 3, most_of(0.2));
    assert_null(strchr(text, '\r'));
    assert_non_null(strstr(text, "exchange 12.3 ms\n"));
}

static void *print_lines(void *arg)
{
    for (int i = 0; i < 500; i++) {
        output_line("line of %s, %03d", (const char *)arg, i);
        show_progress(i);
    }
    return NULL;
}

static void speak_long(void)
{
    output_line("strategy    sync: tau 4, and so on, up to a line that no terminal has room for");
    output_warning("suspicious: a step takes 601 records, and there are 600 of them to train on");
}

static void test_long_lines_are_broken_at_words_on_a_terminal_alone(void **state)
{
    (void)state;
    const char *text = print_story(40, speak_long);
    assert_true(widest_row(text) < 40);
    assert_non_null(strstr(text, "\n            to a line"));
    assert_int_equal(count_of(print_story(0, speak_long), "\n"), 2);
}

static void speak_in_colors(void)
{
    output_line("news");
    output_best("the best error");
    output_log(NULL, PL_LOG_WARN, "trouble");
    output_relay("paceline: no data");
    output_error("paceline: %s", "the end");
}

static void speak_without_colors(void)
{
    setenv("NO_COLOR", "1", 1);
    speak_in_colors();
}

static void speak_with_empty_no_color(void)
{
    setenv("NO_COLOR", "", 1);
    speak_in_colors();
}

static void speak_on_a_dumb_terminal(void)
{
    setenv("TERM", "dumb", 1);
    speak_in_colors();
}

static void test_colors_are_for_terminals_that_want_them(void **state)
{
    static const char colored[] = "news\r\n\033[1mthe best error\033[0m\r\n"
                                  "\033[33mwarning: trouble\033[0m\r\n"
                                  "\033[31mpaceline: no data\033[0m\r\n"
                                  "\033[31mpaceline: the end\033[0m\r\n",
                      plain[] = "news\r\nthe best error\r\nwarning: trouble\r\n"
                                "paceline: no data\r\npaceline: the end\r\n",
                      piped[] = "news\nthe best error\nwarning: trouble\n"
                                "paceline: no data\npaceline: the end\n";
    (void)state;
    assert_string_equal(print_story(80, speak_in_colors), colored);
    assert_string_equal(print_story(80, speak_with_empty_no_color), colored);
    assert_string_equal(print_story(80, speak_without_colors), plain);
    assert_string_equal(print_story(80, speak_on_a_dumb_terminal), plain);
    assert_string_equal(print_story(0, speak_in_colors), piped);
}

static void from_threads(void)
{
    pthread_t thread[4];
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, print_lines, (void *)(uintptr_t)names[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    output_finish();
}

static void test_lines_of_threads_do_not_mix(void **state)
{
    (void)state;
    const char *text = print_story(80, from_threads);
    assert_int_equal(count_of(text, "line of "), 2000);
    for (const char *at = strstr(text, "line of "); at; at = strstr(at + 1, "line of "))
        assert_int_equal(strncmp(at + strlen("line of a, 000"), "\r\n", 2), 0);
}

int main(void)
{
    unsetenv("NO_COLOR");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_progress_is_drawn_four_times_a_second_and_never_wraps),
        cmocka_unit_test(test_warning_stands_on_a_line_of_its_own),
        cmocka_unit_test(test_warnings_of_a_kind_come_once_a_second_and_are_counted),
        cmocka_unit_test(test_warnings_name_each_machine_while_nothing_moves),
        cmocka_unit_test(test_quiet_leaves_warnings_alone),
        cmocka_unit_test(test_lines_off_a_terminal_come_as_often_as_asked),
        cmocka_unit_test(test_long_lines_are_broken_at_words_on_a_terminal_alone),
        cmocka_unit_test(test_colors_are_for_terminals_that_want_them),
        cmocka_unit_test(test_lines_of_threads_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
