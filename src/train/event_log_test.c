/* The log of events on a disk that fails: every line that is in the file is whole. */
#include "train/event_log.h"

#include "faulty_disk.h"
#include "folder.h"

static int setup(void **state)
{
    static struct folder folder;
    folder_make(&folder);
    *state = &folder;
    return 0;
}

static int teardown(void **state)
{
    folder_remove(*state);
    return 0;
}

struct faulted {
    struct folder *folder;
    struct faulty_disk disk;
    struct event_log log;
};

static void open_log(struct faulted *f, void **state)
{
    char path[512];
    struct err err = {0};
    f->folder = *state;
    faulty_init(&f->disk);
    snprintf(path, sizeof path, "%s/events", f->folder->path);
    if (event_log_open(&f->log, &f->disk.disk, path, &err) != OK)
        fail_msg("%s", err.text);
}

/* Its calls fail until further notice. */
static void break_disk(struct faulted *f, bool broken)
{
    f->disk.fail_at = broken ? f->disk.calls + 1 : 0;
    f->disk.for_good = true;
}

/* Of a write that fails half is in the file: it is cut off again when the next one goes well. */
static void test_event_log_retries_failed_lines(void **state)
{
    struct faulted f;
    open_log(&f, state);
    assert_int_equal(event_log_line(&f.log, "{\"t\":1}"), OK);
    break_disk(&f, true);
    assert_int_equal(event_log_line(&f.log, "{\"t\":2,\"kind\":\"x\"}"), ERR_IO);
    assert_non_null(strstr(f.log.error.text, "write"));
    assert_int_equal(event_log_line(&f.log, "{\"t\":3}"), ERR_IO);
    assert_int_equal(event_log_flush(&f.log), 2);
    break_disk(&f, false);
    assert_int_equal(event_log_line(&f.log, "{\"t\":4}"), OK);
    event_log_close(&f.log);
    event_log_close(&f.log);
    folder_expect(f.folder, "events",
                  "{\"t\":1}\n{\"t\":2,\"kind\":\"x\"}\n{\"t\":3}\n{\"t\":4}\n");
}

/* At the run's end there is no next line. */
static void test_event_log_flush_writes_the_last_line(void **state)
{
    struct faulted f;
    open_log(&f, state);
    break_disk(&f, true);
    assert_int_equal(event_log_line(&f.log, "{\"end\":1}"), ERR_IO);
    break_disk(&f, false);
    assert_int_equal(event_log_flush(&f.log), 0);
    event_log_close(&f.log);
    folder_expect(f.folder, "events", "{\"end\":1}\n");
}

/* Where the half cannot be cut off the next line begins on a line of its own, and so do those after
 * it. */
static void test_event_log_appends_after_partial_line(void **state)
{
    struct faulted f;
    open_log(&f, state);
    f.disk.fail_at = f.disk.calls + 1;
    assert_int_equal(event_log_line(&f.log, "{\"t\":2}"), ERR_IO);
    f.disk.fail_at = f.disk.calls + 1; /* the cut */
    assert_int_equal(event_log_line(&f.log, "{\"t\":3}"), OK);
    f.disk.fail_at = f.disk.calls + 1;
    assert_int_equal(event_log_line(&f.log, "{\"t\":4}"), ERR_IO);
    assert_int_equal(event_log_line(&f.log, "{\"t\":5}"), OK);
    event_log_close(&f.log);
    folder_expect(f.folder, "events",
                  "{\"t\"\n{\"t\":2}\n{\"t\":3}\n{\"t\"\n{\"t\":4}\n{\"t\":5}\n");
}

/* Memory is bounded: of what does not fit the oldest goes, and a line says how many went. */
static void test_event_log_counts_dropped_lines(void **state)
{
    enum { LINES = 6 };
    static char line[EVENT_LOG_KEPT_MAX / 4], text[EVENT_LOG_KEPT_MAX * 2];
    struct faulted f;
    open_log(&f, state);
    break_disk(&f, true);
    for (int i = 0; i < LINES; i++) {
        memset(line, 'x', sizeof line - 1);
        int n = snprintf(line, sizeof line, "{\"t\":%d.5,\"kind\":\"", i);
        line[n] = 'x';
        assert_int_equal(event_log_line(&f.log, line), ERR_IO);
    }
    assert_true(f.log.kept.len <= EVENT_LOG_KEPT_MAX);
    assert_int_equal(f.log.kept_lines, 4);
    break_disk(&f, false);
    assert_int_equal(event_log_line(&f.log, "{\"t\":7}"), OK);
    event_log_close(&f.log);
    char path[512];
    snprintf(path, sizeof path, "%s/events", f.folder->path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    static const char first[] = "{\"t\":2.5,\"kind\":\"dropped\",\"lines\":3}\n{\"t\":3.5,";
    assert_memory_equal(text, first, sizeof first - 1);
    assert_non_null(strstr(text, "\n{\"t\":7}\n"));
}

/* A run that continues: what a power cut left of a line gets its end. */
static void test_event_log_ends_partial_line_of_a_crash(void **state)
{
    struct faulted f;
    folder_put(*state, "events", "{\"a\":1}\n{\"los", 13);
    open_log(&f, state);
    assert_int_equal(event_log_line(&f.log, "{\"b\":2}"), OK);
    break_disk(&f, true);
    assert_int_equal(event_log_line(&f.log, "{\"c\":3}"), ERR_IO);
    break_disk(&f, false);
    assert_int_equal(event_log_flush(&f.log), 0);
    event_log_close(&f.log);
    folder_expect(f.folder, "events", "{\"a\":1}\n{\"los\n{\"b\":2}\n{\"c\":3}\n");
}

static int open_hidden(struct disk *d, const char *path, bool append, struct disk_file **out,
                       struct err *err)
{
    char at[512];
    (void)d;
    snprintf(at, sizeof at, "%s.hidden", path); /* where it is not readable */
    return real_disk()->ops->open(real_disk(), at, append, out, err);
}

static int write_half(struct disk_file *f, const void *data, size_t len, struct err *err)
{
    real_disk()->ops->write(f, data, len / 2, err);
    return err_set(err, ERR_FULL, "no space left");
}

/* The file may be written and not read: its length is unknown, and older events stay. */
static void test_event_log_never_truncates_unreadable_file(void **state)
{
    struct disk_ops ops = *real_disk()->ops;
    struct disk disk = {&ops};
    struct event_log log;
    struct err err = {0};
    char path[512];
    ops.open = open_hidden;
    folder_put(*state, "events.hidden", "{\"a\":1}\n", 8);
    folder_file(*state, "events", path);
    assert_int_equal(event_log_open(&log, &disk, path, &err), OK);
    ops.write = write_half;
    assert_int_equal(event_log_line(&log, "{\"b\":2}"), ERR_FULL);
    ops.write = real_disk()->ops->write;
    assert_int_equal(event_log_line(&log, "{\"c\":3}"), OK);
    event_log_close(&log);
    folder_expect(*state, "events.hidden", "{\"a\":1}\n\n{\"b\"\n{\"b\":2}\n{\"c\":3}\n");
}

/* Also where the file is longer than what is read at a time. */
static void test_event_log_finds_the_newest_of_a_kind(void **state)
{
    enum { LINES = 30000 };
    char path[512];
    struct err err = {0};
    struct event_log log;
    folder_file(*state, "events", path);
    assert_null(event_log_newest(path, "end"));
    assert_int_equal(event_log_open(&log, real_disk(), path, &err), OK);
    for (int i = 0; i < LINES; i++) {
        char line[128];
        snprintf(line, sizeof line, "{\"t\":%d,\"kind\":\"%s\",\"why\":\"the end\"}", i,
                 i == 7 || i == 11 ? "end" : "exchange");
        buf_printf(&log.kept, "%s%s", line, i + 1 < LINES ? "\n" : "");
    }
    buf_put_u8(&log.kept, '\n');
    log.kept_lines = LINES;
    assert_true(log.kept.len > 1 << 20);
    assert_int_equal(event_log_flush(&log), 0);
    event_log_close(&log);
    cJSON *event = event_log_newest(path, "end");
    assert_true(cJSON_GetObjectItem(event, "t")->valuedouble == 11);
    cJSON_Delete(event);
    event = event_log_newest(path, "exchange");
    assert_true(cJSON_GetObjectItem(event, "t")->valuedouble == LINES - 1);
    cJSON_Delete(event);
    assert_null(event_log_newest(path, "start"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_event_log_retries_failed_lines),
        TEST(test_event_log_flush_writes_the_last_line),
        TEST(test_event_log_appends_after_partial_line),
        TEST(test_event_log_counts_dropped_lines),
        TEST(test_event_log_ends_partial_line_of_a_crash),
        TEST(test_event_log_never_truncates_unreadable_file),
        TEST(test_event_log_finds_the_newest_of_a_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
