/* A trace as bytes of a file: exactly, and when the disk does not do as it should. */
#include "api/trace_file.h"
#include "faulty_disk.h"
#include "folder.h"
#include "real/disk.h"

#include <cjson/cJSON.h>

struct place {
    struct folder folder;
    char path[256];
    char text[1024]; /* the log's last line */
};

static void keep_log(void *user, enum log_level level, const char *line)
{
    struct place *p = user;
    assert_int_equal(level, LOG_WARN);
    snprintf(p->text, sizeof p->text, "%s", line);
}

static int setup(void **state)
{
    static struct place place;
    place = (struct place){0};
    folder_make(&place.folder);
    folder_file(&place.folder, "t.json", place.path);
    *state = &place;
    return 0;
}

static int teardown(void **state)
{
    folder_remove(&((struct place *)*state)->folder);
    return 0;
}

/* Written by hand after the format's description: an array of complete events ("X") with times in
 * microseconds, and names ("M") before what they name. */
static const char whole[] =
    "[\n"
    "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":2,\"tid\":0,"
    "\"args\":{\"name\":\"worker 0\"}},\n"
    "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":2,\"tid\":1,\"args\":{\"name\":\"steps\"}},\n"
    "{\"name\":\"compute\",\"cat\":\"compute\",\"ph\":\"X\",\"ts\":0.007,\"dur\":4000.000,"
    "\"pid\":2,\"tid\":1,\"cname\":\"rail_response\",\"args\":{\"step\":1,\"records\":64}},\n"
    "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":2,\"tid\":521,"
    "\"args\":{\"name\":\"lane 1 to driver\"}},\n"
    "{\"name\":\"send\",\"cat\":\"send\",\"ph\":\"X\",\"ts\":4000.010,\"dur\":1234567.890,"
    "\"pid\":2,\"tid\":521,\"cname\":\"rail_load\","
    "\"args\":{\"exchange\":3,\"bytes\":1724320,\"sends\":7,\"peer\":\"driver\"}},\n"
    "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"driver\"}},\n"
    "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":8,\"args\":{\"name\":\"lane 0\"}},\n"
    "{\"name\":\"wait\",\"cat\":\"wait\",\"ph\":\"X\",\"ts\":1.000,\"dur\":2.000,"
    "\"pid\":1,\"tid\":8,\"cname\":\"grey\",\"args\":{\"exchange\":4,\"peer\":\"worker 0\"}},\n"
    "{\"name\":\"wait\",\"cat\":\"wait\",\"ph\":\"X\",\"ts\":5.000,\"dur\":0.001,"
    "\"pid\":1,\"tid\":8,\"cname\":\"grey\",\"args\":{\"exchange\":5,\"peer\":\"anybody\"}}\n"
    "]\n";

static const struct trace_span of_worker[] = {
    {SPAN_COMPUTE, TRACE_STEPS, 0, 0, 1, 64, 7, 4000007},
    {SPAN_SEND, 1, 7, WORLD_DRIVER, 3, 1724320, 4000010, 1238567900},
};
static const struct trace_span of_driver[] = {
    {SPAN_WAIT, 0, 0, 0, 4, 0, 1000, 3000},
    {SPAN_WAIT, 0, 0, WORLD_ANY, 5, 0, 5000, 5001},
};

static void test_the_file_is_what_the_viewers_read(void **state)
{
    struct place *p = *state;
    struct trace_file f;
    const struct logger log = {keep_log, p, LOG_INFO};
    assert_int_equal(trace_file_open(&f, real_disk(), p->path, NULL), OK);
    trace_file_spans(&f, 0, of_worker, 2);
    trace_file_spans(&f, WORLD_DRIVER, of_driver, 2);
    trace_file_close(&f, &log);
    folder_expect(&p->folder, "t.json", whole);
    assert_string_equal(p->text, "");
}

static void test_an_empty_trace_is_an_array_too(void **state)
{
    struct place *p = *state;
    struct trace_file f;
    assert_int_equal(trace_file_open(&f, real_disk(), p->path, NULL), OK);
    trace_file_close(&f, NULL);
    folder_expect(&p->folder, "t.json", "[\n]\n");
    trace_file_close(&f, NULL); /* there is nothing left to close */
}

/* Every row has one name, however many there are. */
static void test_each_row_is_named_once(void **state)
{
    enum { NODES = 40, PEERS = 60 };
    struct place *p = *state;
    struct trace_file f;
    assert_int_equal(trace_file_open(&f, real_disk(), p->path, NULL), OK);
    for (int round = 0; round < 2; round++)
        for (uint32_t node = 0; node < NODES; node++)
            for (uint32_t peer = 0; peer < PEERS; peer++) {
                const struct trace_span span = {SPAN_SEND, 0, 1, peer, 1, 1, 1, 2};
                trace_file_spans(&f, node, &span, 1);
            }
    trace_file_close(&f, NULL);
    size_t size = (size_t)4 << 20, n;
    char *text = malloc(size);
    assert_non_null(text);
    FILE *file = fopen(p->path, "rb");
    assert_non_null(file);
    n = fread(text, 1, size - 1, file);
    fclose(file);
    text[n] = '\0';
    cJSON *all = cJSON_Parse(text);
    assert_non_null(all);
    static int seen[NODES + 2][PEERS];
    int processes = 0, spans = 0;
    for (const cJSON *e = all->child; e; e = e->next) {
        const char *name = cJSON_GetObjectItem(e, "name")->valuestring;
        const char *given =
            cJSON_GetStringValue(cJSON_GetObjectItem(cJSON_GetObjectItem(e, "args"), "name"));
        int pid = cJSON_GetObjectItem(e, "pid")->valueint, peer;
        processes += strcmp(name, "process_name") == 0;
        spans += strcmp(name, "send") == 0;
        if (strcmp(name, "thread_name") == 0) {
            assert_int_equal(sscanf(given, "lane 0 to worker %d", &peer), 1);
            assert_int_equal(seen[pid][peer]++, 0);
        }
    }
    assert_int_equal(processes, NODES);
    assert_int_equal(spans, 2 * NODES * PEERS);
    for (int node = 0; node < NODES; node++)
        for (int peer = 0; peer < PEERS; peer++)
            assert_int_equal(seen[node + 2][peer], 1);
    cJSON_Delete(all);
    free(text);
}

static void test_a_path_that_cannot_be_is_the_callers(void **state)
{
    struct place *p = *state;
    struct trace_file f;
    struct err err;
    char path[256];
    folder_put(&p->folder, "plain", "mine", 4);
    static const char *const bad[] = {"plain", "plain/t.json", "missing/t.json", "."};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(
            trace_file_open(&f, real_disk(), folder_file(&p->folder, bad[i], path), &err),
            ERR_USAGE);
        assert_non_null(strstr(err.text, path));
    }
    folder_expect(&p->folder, "plain", "mine");
}

static void test_what_is_discarded_is_gone(void **state)
{
    struct place *p = *state;
    struct trace_file f;
    assert_int_equal(trace_file_open(&f, real_disk(), p->path, NULL), OK);
    trace_file_discard(&f);
    assert_false(folder_has(&p->folder, "t.json"));
    trace_file_discard(&f);
}

/* A failing disk is reported once, at the end, without other effects. */
static void test_a_full_disk_is_reported(void **state)
{
    struct place *p = *state;
    const struct logger log = {keep_log, p, LOG_INFO};
    struct faulty_disk disk;
    faulty_init(&disk);
    disk.fail_at = 3; /* open, write, write */
    struct trace_file f;
    assert_int_equal(trace_file_open(&f, &disk.disk, p->path, NULL), OK);
    for (int i = 0; i < 5; i++)
        trace_file_spans(&f, 0, of_worker, 2);
    trace_file_close(&f, &log);
    assert_string_equal(p->text, "the trace is not whole: the disk: cannot write");
    assert_string_equal(disk.reported, "open write write close ");
}

static void test_a_close_that_fails_is_reported(void **state)
{
    struct place *p = *state;
    const struct logger log = {keep_log, p, LOG_INFO};
    struct faulty_disk disk;
    faulty_init(&disk);
    disk.fail_at = 3; /* open, write, close */
    struct trace_file f;
    assert_int_equal(trace_file_open(&f, &disk.disk, p->path, NULL), OK);
    trace_file_close(&f, &log);
    assert_string_equal(p->text, "the trace is not whole: the disk: cannot close");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_file_is_what_the_viewers_read),
        TEST(test_an_empty_trace_is_an_array_too),
        TEST(test_each_row_is_named_once),
        TEST(test_a_path_that_cannot_be_is_the_callers),
        TEST(test_what_is_discarded_is_gone),
        TEST(test_a_full_disk_is_reported),
        TEST(test_a_close_that_fails_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
