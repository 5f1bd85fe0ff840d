/* `paceline bench allreduce` and `bench wire` from scripts: their output, as children of one
 * command and as ranks started by another program, and the end of the ranks when one of them or the
 * command is killed. */
#include "process.h"
#include "team_play.h"

#include <cJSON.h>

#define LIMIT_S 120.0
#define GONE_S  3.0

enum { RANKS = 3 };

static const char *const result_keys[] = {"floats",       "median_ms",   "p90_ms",   "bus_gbps",
                                          "link_percent", "cpu_percent", "algorithm"};
static const char *const wire_keys[] = {"latency_us",
                                        "stream_mbytes_per_s",
                                        "copy_ns_per_byte",
                                        "reduce_ns_per_byte",
                                        "bf16_encode_ns_per_byte",
                                        "bf16_decode_ns_per_byte",
                                        "int8_encode_ns_per_byte",
                                        "int8_decode_ns_per_byte"};

enum { RESULT_KEYS = 7, WIRE_KEYS = 8 };

#define START(p, ...) process_start((p), "/", (const char *const[]){"bench", __VA_ARGS__, NULL})

/* Runs to its end, which is a good one. */
#define RUN(p, ...)                                        \
    do {                                                   \
        START(p, __VA_ARGS__);                             \
        process_wait((p), LIMIT_S);                        \
        if ((p)->code != 0)                                \
            fail_msg("code %d:\n%s", (p)->code, (p)->err); \
    } while (0)

/* The next line of JSON, which has exactly these keys. */
static cJSON *next_line(const char **text, const char *const *keys, int count)
{
    const char *end = strchr(*text, '\n');
    if (!end)
        fail_msg("no more lines");
    cJSON *line = cJSON_ParseWithLength(*text, (size_t)(end - *text));
    if (!line)
        fail_msg("no JSON: %s", *text);
    assert_int_equal(cJSON_GetArraySize(line), count);
    for (int i = 0; i < count; i++)
        if (!cJSON_HasObjectItem(line, keys[i]))
            fail_msg("no %s in %s", keys[i], *text);
    *text = end + 1;
    return line;
}

static double number_of(const cJSON *line, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(line, key);
    if (!cJSON_IsNumber(item))
        fail_msg("%s is not a number", key);
    return item->valuedouble;
}

/* A result for n floats; its algorithm, if that is known. */
static void expect_result(const char **text, double floats, const char *algorithm)
{
    cJSON *line = next_line(text, result_keys, RESULT_KEYS);
    assert_true(number_of(line, "floats") == floats);
    assert_true(number_of(line, "median_ms") > 0);
    assert_true(number_of(line, "p90_ms") >= number_of(line, "median_ms"));
    assert_true(number_of(line, "bus_gbps") > 0);
    assert_true(number_of(line, "cpu_percent") >= 0);
    const char *took = cJSON_GetStringValue(cJSON_GetObjectItem(line, "algorithm"));
    assert_non_null(took);
    if (algorithm)
        assert_string_equal(took, algorithm);
    cJSON_Delete(line);
}

static void test_children(void **state)
{
    (void)state;
    struct process p;
    RUN(&p, "allreduce", "--ranks", "3", "--floats", "1,1e3,70000", "--reps", "3", "--json");
    const char *text = p.out;
    expect_result(&text, 1, NULL);
    expect_result(&text, 1000, NULL);
    expect_result(&text, 70000, NULL);
    assert_string_equal(text, "");
    process_release(&p);
}

static void test_algorithms_and_wires(void **state)
{
    (void)state;
    static const char *const algorithms[] = {"tree",         "butterfly",        "ring",
                                             "chunked_ring", "halving_doubling", "scatter_gather"};
    struct process p;
    for (size_t i = 0; i < 6; i++) {
        RUN(&p, "allreduce", "--ranks", "3", "--floats", "5000", "--reps", "2", "--json",
            "--algorithm", algorithms[i], "--stripes", "2", "--chunk-kb", "4");
        const char *text = p.out;
        expect_result(&text, 5000, algorithms[i]);
        process_release(&p);
    }
    RUN(&p, "allreduce", "--ranks", "3", "--floats", "5000", "--reps", "2", "--json", "--wire",
        "bf16", "--broadcast", "--spin=20", "--warmup", "0");
    const char *text = p.out;
    expect_result(&text, 5000, NULL);
    assert_string_equal(text, "");
    process_release(&p);
}

static void test_a_link_that_is_known(void **state)
{
    (void)state;
    struct process p;
    RUN(&p, "allreduce", "--ranks", "2", "--floats", "10000", "--reps", "3", "--json",
        "--link-mbit", "1000");
    const char *text = p.out;
    cJSON *line = next_line(&text, result_keys, RESULT_KEYS);
    double carried = number_of(line, "bus_gbps") / (1448.0 / 1514.0) * 100;
    assert_true(number_of(line, "link_percent") > 0.98 * carried - 0.1);
    assert_true(number_of(line, "link_percent") < 1.02 * carried + 0.1);
    cJSON_Delete(line);
    process_release(&p);
    RUN(&p, "allreduce", "--ranks", "2", "--floats", "10000", "--reps", "3", "--each");
    int lines = 0;
    for (const char *at = p.out; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, 4); /* each repetition and the summary */
    assert_non_null(strstr(p.out, "median"));
    process_release(&p);
}

static void test_one_rank(void **state)
{
    (void)state;
    struct process p;
    RUN(&p, "allreduce", "--ranks", "1", "--floats", "1,1000", "--reps", "2", "--json");
    process_release(&p);
}

/* Ranks of mpirun or srun: one process each, with its rank in the environment. */
static void start_ranks(struct process p[], uint32_t count, const char *const *argv)
{
    char rendezvous[32], text[16];
    port_find(rendezvous);
    setenv("PACELINE_RENDEZVOUS", rendezvous, 1);
    snprintf(text, sizeof text, "%u", count);
    setenv("PACELINE_RANKS", text, 1);
    for (uint32_t rank = 0; rank < count; rank++) {
        snprintf(text, sizeof text, "%u", rank);
        setenv("PACELINE_RANK", text, 1);
        process_start(&p[rank], "/", argv);
    }
    unsetenv("PACELINE_RENDEZVOUS");
    unsetenv("PACELINE_RANKS");
    unsetenv("PACELINE_RANK");
}

#define START_RANKS(p, count, ...) \
    start_ranks((p), (count), (const char *const[]){"bench", __VA_ARGS__, NULL})

static void test_ranks_of_the_environment(void **state)
{
    (void)state;
    struct process p[RANKS];
    START_RANKS(p, RANKS, "allreduce", "--floats", "1,1000", "--reps", "3", "--json");
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        process_wait(&p[rank], LIMIT_S);
        if (p[rank].code != 0)
            fail_msg("rank %u: code %d:\n%s", rank, p[rank].code, p[rank].err);
    }
    const char *text = p[0].out;
    expect_result(&text, 1, NULL);
    expect_result(&text, 1000, NULL);
    assert_string_equal(text, "");
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (rank > 0)
            assert_string_equal(p[rank].out, "");
        process_release(&p[rank]);
    }
}

static void expect_wire(const char *text)
{
    cJSON *line = next_line(&text, wire_keys, WIRE_KEYS);
    for (int i = 0; i < WIRE_KEYS; i++)
        assert_true(number_of(line, wire_keys[i]) > 0);
    assert_string_equal(text, "");
    cJSON_Delete(line);
}

static void test_wire(void **state)
{
    (void)state;
    struct process p[2];
    RUN(&p[0], "wire", "--json", "--stripes", "2", "--spin", "10");
    expect_wire(p[0].out);
    process_release(&p[0]);
    START_RANKS(p, 2, "wire", "--json");
    for (uint32_t rank = 0; rank < 2; rank++) {
        process_wait(&p[rank], LIMIT_S);
        assert_int_equal(p[rank].code, 0);
    }
    expect_wire(p[0].out);
    assert_string_equal(p[1].out, "");
    process_release(&p[0]);
    process_release(&p[1]);
}

static void test_help(void **state)
{
    (void)state;
    struct process p;
    RUN(&p, "--help");
    assert_non_null(strstr(p.out, "allreduce"));
    assert_non_null(strstr(p.out, "wire"));
    assert_non_null(strstr(p.out, "step"));
    process_release(&p);
    RUN(&p, "allreduce", "--help");
    assert_non_null(strstr(p.out, "usage: paceline bench allreduce"));
    assert_non_null(strstr(p.out, "--link-mbit"));
    process_release(&p);
    RUN(&p, "wire", "--help");
    assert_non_null(strstr(p.out, "--spin"));
    process_release(&p);
}

/* ---- ends before the end ---- */

static void start_long(struct process *p, pid_t child[PROCESS_CHILDREN_MAX])
{
    double until = process_now() + LIMIT_S;
    START(p, "allreduce", "--ranks", "3", "--floats", "100000", "--reps", "10000");
    while (process_children(p->pid, child) < RANKS) {
        assert_true(process_now() < until);
        process_nap(0.005);
    }
}

static void expect_ended(const pid_t child[PROCESS_CHILDREN_MAX])
{
    double until = process_now() + GONE_S;
    for (int i = 0; i < RANKS; i++)
        while (process_is_alive(child[i])) {
            if (process_now() > until)
                fail_msg("rank %d is still there after %g s", i, GONE_S);
            process_nap(0.005);
        }
}

/* While they find each other, and in mid-loop. */
static void test_a_rank_is_killed(void **state)
{
    (void)state;
    static const double after[] = {0, 0.1, 0.3};
    for (uint32_t i = 0; i < 3; i++) {
        struct process p;
        pid_t child[PROCESS_CHILDREN_MAX];
        start_long(&p, child);
        process_nap(after[i]);
        assert_false(process_poll(&p));
        kill(child[i], SIGKILL);
        process_wait(&p, LIMIT_S);
        assert_int_equal(p.code, 1);
        assert_string_equal(p.out, "");
        expect_ended(child);
        process_release(&p);
    }
}

static void test_the_command_is_ended(void **state)
{
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM, SIGKILL};
    for (int i = 0; i < 3; i++) {
        struct process p;
        pid_t child[PROCESS_CHILDREN_MAX];
        start_long(&p, child);
        process_nap(0.1);
        kill(p.pid, numbers[i]);
        process_wait(&p, LIMIT_S);
        assert_int_equal(p.code, 128 + numbers[i]);
        expect_ended(child);
        process_release(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_children),
        cmocka_unit_test(test_algorithms_and_wires),
        cmocka_unit_test(test_a_link_that_is_known),
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_ranks_of_the_environment),
        cmocka_unit_test(test_wire),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_a_rank_is_killed),
        cmocka_unit_test(test_the_command_is_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
