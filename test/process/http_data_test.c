/* Records over HTTP, as a user reads and trains on them: those of the same files. */
#include "engine_workers.h"
#include "http_server.h"
#include "pictures.h"
#include "refusal.h"
#include "run_files.h"
#include "tar_archive.h"

static struct http_server server;

static void expect_text(const struct process *p, const char *text)
{
    if (!strstr(p->out, text))
        fail_msg("expected `%s` in:\n%s", text, p->out);
}

/* KIND:http://…/MODE/NAME */
static const char *spec_of(const char *kind, const char *mode, const char *name, char out[300])
{
    char url[256];
    snprintf(out, 300, "%s:%s", kind, http_server_url(&server, mode, name, url));
    return out;
}

/* The records of the tiny job in shards, two of the training set. */
static int setup(void **state)
{
    struct process p;
    tiny_setup(state);
    struct tiny *t = *state;
    RUN(t, &p, "data", "pack", "idx:train-images,train-labels", "train", "--shard-bytes", "70000");
    expect_text(&p, "SPEC       shards:train-{00000..00001}.shard\n");
    process_release(&p);
    RUN(t, &p, "data", "pack", "idx:test-images,test-labels", "test");
    process_release(&p);
    http_server_start(&server, t->folder, NULL);
    return 0;
}

static int teardown(void **state)
{
    http_server_stop(&server);
    return tiny_teardown(state);
}

/* Both SPECs give the same report of their records. */
static void expect_same_report(struct tiny *t, const char *report, const char *a, const char *b)
{
    struct process p, q;
    RUN(t, &p, "data", report, a, "--json");
    RUN(t, &q, "data", report, b, "--json");
    assert_string_equal(p.out, q.out);
    process_release(&p);
    process_release(&q);
}

static void test_shards_are_those_of_the_files(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char spec[300];
    static const char local[] = "shards:train-{00000..00001}.shard";
    static const char *const modes[] = {"ok", "moved", "chunked"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        spec_of("shards", modes[i], "train-{00000..00001}.shard", spec);
        expect_same_report(t, "info", local, spec);
        expect_same_report(t, "stats", local, spec);
    }
    spec_of("shards", "reset", "train-{00000..00001}.shard", spec);
    RUN(t, &p, "data", "verify", spec);
    expect_text(&p, "verified   600 records, 0 broken\n");
    process_release(&p);
    spec_of("shards", "ok", "test-00000.shard", spec);
    RUN(t, &p, "data", "pack", spec, "copy");
    process_release(&p);
    struct file_bytes a, b;
    char path[256];
    snprintf(path, sizeof path, "%s/test-00000.shard", t->folder);
    assert_int_equal(file_read(path, 1 << 20, &a, NULL), OK);
    snprintf(path, sizeof path, "%s/copy-00000.shard", t->folder);
    assert_int_equal(file_read(path, 1 << 20, &b, NULL), OK);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    file_release(&a);
    file_release(&b);
}

static void test_archives_are_those_of_the_files(void **state)
{
    struct tiny *t = *state;
    static struct archive a;
    static uint8_t rows[12 * 9 * 3], bytes[FOLDER_BYTES_MAX];
    struct folder f;
    char spec[300], name[64];
    snprintf(f.path, sizeof f.path, "%s", t->folder);
    for (unsigned r = 0; r < 6; r++) {
        for (size_t i = 0; i < sizeof rows; i++)
            rows[i] = (uint8_t)(i * (r + 1));
        picture_put_png(&f, "picture", rows, 12, 9, PNG_COLOR_TYPE_RGB, 8, 27, false);
        snprintf(name, sizeof name, "r%u.png", r);
        archive_put(&a, name, '0', bytes, folder_get(&f, "picture", bytes));
        snprintf(name, sizeof name, "r%u.cls", r);
        archive_text(&a, name, r % 2 ? "1" : "0");
    }
    archive_end(&a);
    folder_put(&f, "a.tar", a.bytes, a.n);
    spec_of("webdataset", "ok", "a.tar", spec);
    expect_same_report(t, "info", "webdataset:a.tar", spec);
    expect_same_report(t, "head", "webdataset:a.tar", spec);
    expect_same_report(t, "stats", "webdataset:a.tar", spec);
}

static void test_urls_that_are_refused(void **state)
{
    struct tiny *t = *state;
    char spec[300];
    spec_of("shards", "404", "test-00000.shard", spec);
    REFUSED(t, "/404/test-00000.shard: cannot be opened: the server answers 404", "data", "info",
            spec);
    spec_of("shards", "etag", "train-00000.shard", spec);
    REFUSED(t, "/etag/train-00000.shard: has changed since it was opened", "data", "info", spec);
    spec_of("shards", "ok", "tiny.job", spec);
    REFUSED(t, "/ok/tiny.job: ", "data", "info", spec);
    spec_of("lmdb", "ok", "x", spec);
    REFUSED(t, "only shards and webdataset are read from URLs", "data", "info", spec);
}

/* Two workers, on shards over HTTP or, without `mode`, in the folder. */
static int run_tiny(struct tiny *t, const char *mode, const char *out,
                    struct engine_workers *workers, char error[512])
{
    char value[2048], train[256], test[256];
    pl_engine *engine = NULL;
    pl_job *job = NULL;
    pl_run_report report;
    snprintf(train, sizeof train, "%s/train-{00000..00001}.shard", t->folder);
    snprintf(test, sizeof test, "%s/test-00000.shard", t->folder);
    if (mode) {
        http_server_url(&server, mode, "train-{00000..00001}.shard", train);
        http_server_url(&server, mode, "test-00000.shard", test);
    }
    assert_int_equal(pl_engine_create(NULL, &engine), PL_OK);
    assert_int_equal(pl_job_load(engine, t->job, &job), PL_OK);
    assert_int_equal(pl_job_set(job, "workers=2"), PL_OK);
    snprintf(value, sizeof value, "net={define {%s}}", tiny_net); /* workers need no file of it */
    assert_int_equal(pl_job_set(job, value), PL_OK);
    snprintf(value, sizeof value, "train_data={shards {shards: '%s'} scale: 0.00390625}", train);
    assert_int_equal(pl_job_set(job, value), PL_OK);
    snprintf(value, sizeof value, "test_data={shards {shards: '%s'} scale: 0.00390625}", test);
    assert_int_equal(pl_job_set(job, value), PL_OK);
    const pl_run_options options = {.size = sizeof options,
                                    .out = out,
                                    .start_workers = engine_workers_start,
                                    .user = workers,
                                    .patience_s = 10};
    int rc = pl_run(engine, job, &options, &report);
    engine_workers_end(workers);
    snprintf(error, 512, "%s", pl_engine_error(engine));
    pl_job_free(job);
    pl_engine_destroy(engine);
    return rc;
}

static void test_a_run_is_that_of_the_files(void **state)
{
    struct tiny *t = *state;
    struct engine_workers near = {.started = 0}, far = {.started = 0};
    char a[128], b[128], error[512];
    int rc = run_tiny(t, NULL, tiny_out(t, a), &near, error);
    if (rc != PL_OK)
        fail_msg("%d: %s", rc, error);
    rc = run_tiny(t, "ok", tiny_out(t, b), &far, error);
    if (rc != PL_OK)
        fail_msg("%d: %s", rc, error);
    assert_true(run_same_bits(a, b, "final.safetensors"));
}

/* A driver must not choose what such a worker fetches. */
static void test_workers_with_a_root_open_only_their_urls(void **state)
{
    struct tiny *t = *state;
    char urls[256], out[128], error[512];
    http_server_url(&server, "ok", "", urls);
    const struct engine_worker far = {.data_root = t->folder, .data_urls = urls};
    struct engine_workers allowed = {.at = {far, far}};
    int rc = run_tiny(t, "ok", tiny_out(t, out), &allowed, error);
    if (rc != PL_OK)
        fail_msg("%d: %s", rc, error);
    const struct engine_worker local = {.data_root = t->folder};
    struct engine_workers refused = {.at = {far, local}};
    assert_int_not_equal(run_tiny(t, "moved", tiny_out(t, out), &refused, error), PL_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(refused.at[i].rc, PL_ERR_INPUT);
        assert_non_null(strstr(refused.at[i].error, "opens no URL that its driver names"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards_are_those_of_the_files),
        cmocka_unit_test(test_archives_are_those_of_the_files),
        cmocka_unit_test(test_urls_that_are_refused),
        cmocka_unit_test(test_a_run_is_that_of_the_files),
        cmocka_unit_test(test_workers_with_a_root_open_only_their_urls),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
