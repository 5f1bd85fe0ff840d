/* Files over HTTP from servers that serve well, and from servers that do not: the right bytes, or
 * an error with URL, place and cause, in time. */
#include "real/http.h"

#include "folder.h"
#include "http_server.h"
#include "real/real.h"

#include <pthread.h>

enum { FILE_BYTES = 9 * (1 << 20) + 12345, READERS = 8, CACHE_BLOCKS = 32 };

#define IN_TIME 20 /* s; of a test whose deadlines are a second */

static struct scene {
    struct folder folder;
    struct http_server server;
    uint8_t *bytes; /* of the file `big`; `small` has the first 1,000, `none` has none */
    struct remote *remote;
} scene;

static int setup_group(void **state)
{
    char path[256];
    (void)state;
    folder_make(&scene.folder);
    scene.bytes = malloc(FILE_BYTES);
    assert_non_null(scene.bytes);
    uint32_t x = 1;
    for (size_t i = 0; i < FILE_BYTES; i++) {
        x = x * 1664525 + 1013904223;
        scene.bytes[i] = (uint8_t)(x >> 24);
    }
    FILE *f = fopen(folder_file(&scene.folder, "big", path), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(scene.bytes, 1, FILE_BYTES, f), FILE_BYTES);
    assert_int_equal(fclose(f), 0);
    folder_put(&scene.folder, "small", scene.bytes, 1000);
    folder_put(&scene.folder, "none", "", 0);
    http_server_start(&scene.server, scene.folder.path, NULL);
    return 0;
}

static int teardown_group(void **state)
{
    (void)state;
    http_server_stop(&scene.server);
    folder_remove(&scene.folder);
    free(scene.bytes);
    return 0;
}

static int setup(void **state)
{
    const struct http_options options = {.cache_bytes = CACHE_BLOCKS * HTTP_BLOCK,
                                         .connect = WORLD_SECOND,
                                         .stall = WORLD_SECOND,
                                         .pause = WORLD_SECOND / 100};
    scene.remote = http_create(&options);
    assert_non_null(scene.remote);
    *state = &scene;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    http_free(scene.remote);
    return 0;
}

/* ---- what is there ---- */

static int open_url(const char *url, struct remote_file **out, struct err *err)
{
    *err = (struct err){0};
    return scene.remote->ops->open(scene.remote, url, out, err);
}

static struct remote_file *must_open(const char *mode, const char *name)
{
    struct remote_file *file = NULL;
    struct err err;
    char url[256];
    if (open_url(http_server_url(&scene.server, mode, name, url), &file, &err) != OK)
        fail_msg("%s", err.text);
    return file;
}

static int read_part(struct remote_file *file, uint64_t offset, uint8_t *out, size_t n,
                     struct err *err)
{
    *err = (struct err){0};
    return file->ops->read(file, offset, out, n, err);
}

static void expect_part(struct remote_file *file, uint64_t offset, size_t n)
{
    uint8_t *bytes = malloc(n + 1);
    struct err err;
    assert_non_null(bytes);
    bytes[n] = 0xa5;
    if (read_part(file, offset, bytes, n, &err) != OK)
        fail_msg("%s", err.text);
    assert_memory_equal(bytes, scene.bytes + offset, n);
    assert_int_equal(bytes[n], 0xa5);
    free(bytes);
}

static void test_every_part_is_that_of_the_file(void **state)
{
    (void)state;
    static const struct {
        uint64_t offset;
        size_t n;
    } part[] = {
        {0, 16},
        {FILE_BYTES - 96, 96},
        {HTTP_BLOCK - 1, 2},
        {HTTP_BLOCK, HTTP_BLOCK},
        {FILE_BYTES, 0},
        {5, 3 * HTTP_BLOCK},
        {FILE_BYTES - 1, 1},
        {0, FILE_BYTES},
        {1, FILE_BYTES - 1},
        {4 * HTTP_BLOCK, 1000},
        {4 * HTTP_BLOCK, 1000},
    };
    struct remote_file *file = must_open("ok", "big");
    assert_int_equal(file->len, FILE_BYTES);
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        expect_part(file, part[i].offset, part[i].n);
    file->ops->close(file);
    file = must_open("plain", "small"); /* without ETag and Last-Modified */
    assert_int_equal(file->len, 1000);
    expect_part(file, 0, 1000);
    file->ops->close(file);
}

static void test_blocks_are_kept_and_memory_is_bounded(void **state)
{
    (void)state;
    struct remote_file *file = must_open("ok", "big");
    expect_part(file, 0, 100);
    struct http_counts before = http_counts(scene.remote);
    assert_int_equal(before.requests, 1); /* opening has fetched them */
    expect_part(file, 20 * HTTP_BLOCK, 3 * HTTP_BLOCK);
    assert_int_equal(http_counts(scene.remote).requests, 2); /* one for all three */
    struct remote_file *again = must_open("ok", "big");
    assert_ptr_equal(again, file);
    expect_part(again, 21 * HTTP_BLOCK + 5, 100);
    assert_int_equal(http_counts(scene.remote).requests, 2);
    again->ops->close(again);
    for (uint64_t at = 0; at + 24576 <= FILE_BYTES; at += 24576) {
        expect_part(file, at, 24576);
        expect_part(file, at, 24576); /* as records of one block are read */
    }
    struct http_counts after = http_counts(scene.remote);
    assert_true(after.held <= CACHE_BLOCKS * HTTP_BLOCK);
    assert_true(after.bytes < FILE_BYTES + FILE_BYTES / 4);         /* each about once, */
    assert_true(after.requests < 10 + FILE_BYTES / HTTP_BLOCK / 4); /* and several together */
    file->ops->close(file);
}

static uint64_t next_random(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

static void *read_at_random(void *arg)
{
    struct remote_file *file = arg;
    uint64_t x = (uint64_t)pthread_self();
    uint8_t bytes[4096];
    for (int i = 0; i < 300; i++) {
        uint64_t at = next_random(&x) % (FILE_BYTES - sizeof bytes);
        if (file->ops->read(file, at, bytes, sizeof bytes, NULL) != OK ||
            memcmp(bytes, scene.bytes + at, sizeof bytes) != 0)
            return file;
    }
    return NULL;
}

static void test_threads_read_at_once(void **state)
{
    (void)state;
    pthread_t thread[READERS];
    struct remote_file *file = must_open("ok", "big");
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, read_at_random, file), 0);
    for (int i = 0; i < READERS; i++) {
        void *wrong;
        pthread_join(thread[i], &wrong);
        assert_null(wrong);
    }
    assert_true(http_counts(scene.remote).held <= CACHE_BLOCKS * HTTP_BLOCK);
    file->ops->close(file);
}

static void *read_one_block(void *arg)
{
    struct remote_file *file = arg;
    uint8_t bytes[100];
    return file->ops->read(file, 30 * HTTP_BLOCK, bytes, sizeof bytes, NULL) == OK ? NULL : file;
}

static void test_a_block_is_fetched_once_for_all_readers(void **state)
{
    (void)state;
    pthread_t thread[READERS];
    struct remote_file *file = must_open("ok", "big");
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, read_one_block, file), 0);
    for (int i = 0; i < READERS; i++) {
        void *wrong;
        pthread_join(thread[i], &wrong);
        assert_null(wrong);
    }
    assert_int_equal(http_counts(scene.remote).requests, 2);
    file->ops->close(file);
}

/* ---- servers that misbehave ---- */

/* At each second request: the next try is right. */
static void test_failures_that_pass_are_repeated(void **state)
{
    (void)state;
    static const char *const modes[] = {"busy", "reset", "truncate", "shift",   "short", "long",
                                        "more", "wait",  "unnamed",  "garbage", "moved", "chunked"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        int64_t begun = real_now();
        struct remote_file *file = must_open(modes[i], "big");
        expect_part(file, 40 * HTTP_BLOCK - 7, 2 * HTTP_BLOCK);
        expect_part(file, 100 * HTTP_BLOCK - 7, 1000);
        file->ops->close(file);
        assert_true(real_now() - begun < IN_TIME * WORLD_SECOND);
    }
}

/* Read what the opening has not fetched; the error says `why`. */
static void expect_failure(const char *mode, const char *why)
{
    struct remote_file *file = must_open(mode, "big");
    struct err err;
    char url[256];
    uint8_t bytes[100];
    int64_t begun = real_now();
    memset(bytes, 0xa5, sizeof bytes);
    assert_int_equal(read_part(file, 20 * HTTP_BLOCK + 10, bytes, sizeof bytes, &err), ERR_IO);
    assert_int_equal(err.status, ERR_IO);
    if (!strstr(err.text, why) || !strstr(err.text, " 1310720") ||
        !strstr(err.text, http_server_url(&scene.server, mode, "big", url)))
        fail_msg("\"%s\" should say \"%s\"", err.text, why);
    assert_true(real_now() - begun < IN_TIME * WORLD_SECOND);
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(bytes[i], 0xa5);
    file->ops->close(file);
}

static void test_failures_that_stay_are_errors(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"resets", "(5 tries)"},
        {"truncates", "(5 tries)"},
        {"shifts", "the server sends bytes 1310721 to 1376256 instead (5 tries)"},
        {"shorts", "the server announces 65535 bytes for a range of 65536 (5 tries)"},
        {"longs", "the server announces 66536 bytes for a range of 65536 (5 tries)"},
        {"mores", "the server sends more than the range of 65536 bytes (5 tries)"},
        {"waits", "(5 tries)"},
        {"downs", "the server answers 503 (unavailable) (5 tries)"},
        {"gone", "the server answers 404 (not found)"},
        {"wholes", "does not serve ranges"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_failure(bad[i][0], bad[i][1]);
}

static void test_a_file_that_changes_is_never_read_again(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"etag", "has changed since it was opened: another ETag"},
        {"modified", "has changed since it was opened: another Last-Modified"},
        {"total", "has changed since it was opened: 9449530 bytes, not 9449529"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_failure(bad[i][0], bad[i][1]);
        struct remote_file *file = must_open("ok", "big");
        file->ops->close(file);
    }
    struct remote_file *file = must_open("etag", "small"); /* its first block is kept */
    struct err err;
    uint8_t byte;
    expect_part(file, 0, 1000);
    file->ops->close(file);
    file = must_open("etag", "big?twice"), expect_part(file, 0, 10);
    assert_int_equal(read_part(file, 5 * HTTP_BLOCK, &byte, 1, &err), ERR_IO);
    assert_int_equal(read_part(file, 0, &byte, 1, &err), ERR_IO);
    assert_non_null(strstr(err.text, "has changed since it was opened"));
    file->ops->close(file);
}

static void expect_refusal(const char *url, const char *why)
{
    struct remote_file *file = NULL;
    struct err err;
    int64_t begun = real_now();
    assert_int_equal(open_url(url, &file, &err), ERR_INPUT);
    assert_int_equal(err.status, ERR_INPUT);
    assert_null(file);
    if (!strstr(err.text, why) || !strstr(err.text, "cannot be opened"))
        fail_msg("\"%s\" should say \"%s\"", err.text, why);
    assert_true(real_now() - begun < IN_TIME * WORLD_SECOND);
}

static void test_urls_that_cannot_be_opened(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"404/big", "404 (not found)"},
        {"403/big", "403 (forbidden)"},
        {"ok/absent", "404 (not found)"},
        {"ok/none", "416 (no such range; the file may be empty)"},
        {"503/big", "503 (unavailable) (5 tries)"},
        {"429/big", "429 (too many requests) (5 tries)"},
        {"410/big", "410"},
        {"whole/big", "the server answers 200 (the whole file) to a request for a part of it"},
        {"loop/big", "redirects"},
        {"ftp/big", "not supported"},
        {"local/big", "not supported"},
        {"gzip/big", "the server sends it encoded"},
        {"headers/big", "more than 65536 bytes of headers"},
        {"secret/big", "401 (unauthorized)"},
    };
    char url[256];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(url, sizeof url, "http://127.0.0.1:%d/%s", scene.server.port, bad[i][0]);
        expect_refusal(url, bad[i][1]);
    }
    expect_refusal("http://127.0.0.1:1/a", "onnect");
    expect_refusal("http://127.0.0.1:999999/a", "http://127.0.0.1:999999/a: cannot be opened");
    expect_refusal("http:///", "cannot be opened");
    snprintf(url, sizeof url, "https://127.0.0.1:%d/ok/big", scene.server.port);
    expect_refusal(url, "SSL");
}

static void test_secrets_are_sent_and_not_shown(void **state)
{
    (void)state;
    struct remote_file *file;
    struct err err;
    char url[256];
    snprintf(url, sizeof url, "http://me:secret@127.0.0.1:%d/secret/big?key", scene.server.port);
    assert_int_equal(open_url(url, &file, &err), OK);
    expect_part(file, 0, 100);
    file->ops->close(file);
    snprintf(url, sizeof url, "http://me:wrong@127.0.0.1:%d/secret/big?key", scene.server.port);
    expect_refusal(url, "http://***@127.0.0.1");
    expect_refusal(url, "/secret/big?***: cannot be opened: the server answers 401");
}

static void test_closing_and_freeing_do_not_wait_for_servers(void **state)
{
    (void)state;
    const struct http_options usual = {0};
    struct remote *remote = http_create(&usual);
    struct remote_file *file;
    struct err err;
    char url[256];
    assert_non_null(remote);
    http_server_url(&scene.server, "waits", "big?close", url);
    assert_int_equal(remote->ops->open(remote, url, &file, &err), OK);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_one_block, file), 0);
    while (http_counts(remote).requests < 2)
        real_sleep(WORLD_SECOND / 100);
    int64_t begun = real_now();
    file->ops->close(file); /* of which a reader is a caller's mistake, but only ends */
    void *wrong;
    pthread_join(thread, &wrong);
    assert_non_null(wrong);
    http_free(remote);
    assert_true(real_now() - begun < 5 * WORLD_SECOND);
}

/* ---- TLS ---- */

static void test_tls_needs_a_certificate_that_is_trusted(void **state)
{
    (void)state;
    char command[512], path[256], url[256];
    struct http_server server;
    struct remote_file *file;
    struct err err;
    folder_file(&scene.folder, "server.pem", path);
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
             "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout %s.key -out %s.crt "
             "2>/dev/null && cat %s.crt %s.key >%s",
             path, path, path, path, path);
    assert_int_equal(system(command), 0);
    http_server_start(&server, scene.folder.path, path);
    snprintf(url, sizeof url, "https://127.0.0.1:%d/ok/big", server.port);
    expect_refusal(url, "certificate");
    const struct http_options trusting = {.ca_file = path, .pause = WORLD_SECOND / 100};
    http_free(scene.remote);
    scene.remote = http_create(&trusting);
    if (open_url(url, &file, &err) != OK)
        fail_msg("%s", err.text);
    expect_part(file, 3 * HTTP_BLOCK, 4 * HTTP_BLOCK);
    file->ops->close(file);
    http_server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_part_is_that_of_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_blocks_are_kept_and_memory_is_bounded, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_threads_read_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_block_is_fetched_once_for_all_readers, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_failures_that_pass_are_repeated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failures_that_stay_are_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_file_that_changes_is_never_read_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_urls_that_cannot_be_opened, setup, teardown),
        cmocka_unit_test_setup_teardown(test_secrets_are_sent_and_not_shown, setup, teardown),
        cmocka_unit_test_setup_teardown(test_closing_and_freeing_do_not_wait_for_servers, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_tls_needs_a_certificate_that_is_trusted, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, setup_group, teardown_group);
}
