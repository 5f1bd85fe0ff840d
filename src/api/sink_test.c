/* Reports of events that cannot be written. */
#include "api/api.h"

#include "faulty_disk.h"
#include "folder.h"
#include "real/disk.h"

struct scene {
    struct folder folder;
    struct faulty_disk disk;
    struct api_sink sink;
    struct train_options train;
    char logged[2048];
};

static void on_log(void *user, enum log_level level, const char *line)
{
    struct scene *s = user;
    size_t n = strlen(s->logged);
    snprintf(s->logged + n, sizeof s->logged - n, "%s%s\n",
             level == LOG_ERROR  ? "error: "
             : level == LOG_WARN ? "warning: "
                                 : "",
             line);
}

static void play_line(struct scene *s, const char *line, bool broken)
{
    s->disk.for_good = true;
    s->disk.fail_at = broken ? s->disk.calls + 1 : 0;
    s->train.line(s->train.user, line);
}

/* A run continues without its log, reports it once, and writes it later; lines missing at its end
 * are counted. */
static void test_events_that_cannot_be_written_are_reported(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    static const pl_run_options options;
    const struct logger log = {on_log, s, LOG_DEBUG};
    Paceline__Job job = PACELINE__JOB__INIT;
    struct err err = {0};
    char path[512], name[] = "net", want[1200];
    (void)state;
    assert_non_null(s);
    folder_make(&s->folder);
    faulty_init(&s->disk);
    job.name = name;
    s->train.job = &job;
    assert_int_equal(api_sink_open(&s->sink, NULL, &options, &s->train, &log, &err), OK);
    snprintf(s->sink.dir.path, sizeof s->sink.dir.path, "%s", s->folder.path);
    folder_file(&s->folder, "events.jsonl", path);
    assert_int_equal(event_log_open(&s->sink.dir.events, &s->disk.disk, path, &err), OK);
    play_line(s, "{\"t\":1}", false);
    play_line(s, "{\"t\":2}", true);
    play_line(s, "{\"t\":3}", true);
    play_line(s, "{\"t\":4}", false);
    play_line(s, "{\"t\":5}", true);
    play_line(s, "{\"t\":6}", true);
    api_sink_close(&s->sink);
    snprintf(want, sizeof want,
             "warning: the disk: cannot write; events are kept and written later\n"
             "%s/events.jsonl is written again\n"
             "warning: the disk: cannot write; events are kept and written later\n"
             "error: %s/events.jsonl lacks its last 2 lines: the disk: cannot write\n",
             s->folder.path, s->folder.path);
    assert_string_equal(s->logged, want);
    folder_remove(&s->folder);
    free(s);
}

/* The final model is written to a disk rather than to memory. */
static void test_places_are_disks_first(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    static const pl_run_options options;
    Paceline__Job job = PACELINE__JOB__INIT;
    struct err err = {0};
    char name[] = "net";
    size_t n = 0, memory = 0;
    (void)state;
    assert_non_null(s);
    if (!real_disk_in_memory("/dev/shm")) {
        free(s);
        skip();
    }
    setenv("TMPDIR", "/dev/shm", 1);
    job.name = name;
    s->train.job = &job;
    assert_int_equal(api_sink_open(&s->sink, NULL, &options, &s->train, NULL, &err), OK);
    for (const struct rundir_fallback *at = s->train.fallbacks; at->folder; at++, n++) {
        assert_int_equal(at->folder[0], '/');
        assert_true(at->in_memory || memory == 0);
        assert_true(at->in_memory == real_disk_in_memory(at->folder));
        memory += at->in_memory;
    }
    assert_int_equal(n, API_PLACES);
    assert_true(memory >= 1);
    api_sink_close(&s->sink);
    unsetenv("TMPDIR");
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places_are_disks_first),
        cmocka_unit_test(test_events_that_cannot_be_written_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
