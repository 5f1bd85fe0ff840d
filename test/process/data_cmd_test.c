/* `paceline data`: its output for records that a test made, and its refusals. */
#include "pictures.h"
#include "refusal.h"
#include "tar_archive.h"

#include <cjson/cJSON.h>
#include <math.h>

static const char spec[] = "idx:test-images,test-labels";

static void expect_text(const struct process *p, const char *text)
{
    if (!strstr(p->out, text))
        fail_msg("expected `%s` in:\n%s", text, p->out);
}

static cJSON *parse_output(const struct process *p)
{
    cJSON *object = cJSON_Parse(p->out);
    assert_non_null(object);
    const char *end = strchr(p->out, '\n');
    assert_true(end && end[1] == '\0'); /* one line */
    return object;
}

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);
    if (!cJSON_IsNumber(item))
        fail_msg("no number `%s`", key);
    return item->valuedouble;
}

static double element_of(const cJSON *object, const char *key, int i)
{
    const cJSON *item = cJSON_GetArrayItem(cJSON_GetObjectItem(object, key), i);
    if (!cJSON_IsNumber(item))
        fail_msg("no number %d in `%s`", i, key);
    return item->valuedouble;
}

/* 120 records of 12 x 12, 40 of each of three classes. */
static void test_info(void **state)
{
    struct tiny *t = *state;
    struct process p;
    RUN(t, &p, "data", "info", spec);
    expect_text(&p, "kind       idx\n");
    expect_text(&p, "records    120\n");
    expect_text(&p, "record     1 channel, 12 high, 12 wide\n");
    expect_text(&p, "bytes      17280\n");
    expect_text(&p, "classes    3, of 40 to 40 records, 1.00 to 1\n");
    assert_null(strstr(p.out, "mapped"));
    process_release(&p);
    RUN(t, &p, "data", "info", "idx:test-images,test-labels?resize=20&crop=16", "--json");
    cJSON *info = parse_output(&p);
    assert_true(number_of(info, "records") == TINY_TEST && number_of(info, "bytes") == 17280);
    assert_true(element_of(info, "shape", 0) == 1 && element_of(info, "shape", 1) == 16);
    assert_true(element_of(info, "count", 2) == 40 && number_of(info, "ratio") == 1);
    assert_int_equal(strlen(cJSON_GetStringValue(cJSON_GetObjectItem(info, "hash"))), 16);
    cJSON_Delete(info);
    process_release(&p);
}

static void test_head(void **state)
{
    struct tiny *t = *state;
    struct process p;
    RUN(t, &p, "data", "head", spec);
    size_t lines = 0;
    for (const char *c = p.out; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, 11);
    expect_text(&p, "\n       4       1  -          12      12  -\n");
    process_release(&p);
    RUN(t, &p, "data", "head", spec, "--first", "500", "--json");
    assert_non_null(strstr(p.out, "{\"record\":119,\"label\":2,\"height\":12,\"width\":12}\n"));
    assert_null(strstr(p.out, "\"record\":120"));
    process_release(&p);
}

/* Two classes in folders of their names, pictures of two sizes. */
static void make_folders(const struct tiny *t, struct folder *f)
{
    static uint8_t rows[12 * 9 * 3];
    char path[256];
    snprintf(f->path, sizeof f->path, "%s", t->folder);
    mkdir(folder_file(f, "zoo", path), 0700);
    mkdir(folder_file(f, "zoo/cat", path), 0700);
    mkdir(folder_file(f, "zoo/dog", path), 0700);
    for (size_t i = 0; i < sizeof rows; i++)
        rows[i] = (uint8_t)(i % 3 == 0 ? 250 : 20);
    picture_put_png(f, "zoo/cat/a.png", rows, 12, 9, PNG_COLOR_TYPE_RGB, 8, 27, false);
    picture_put_png(f, "zoo/dog/b.png", rows, 6, 9, PNG_COLOR_TYPE_RGB, 8, 27, false);
    picture_put_png(f, "zoo/dog/c.png", rows, 12, 9, PNG_COLOR_TYPE_RGB, 8, 27, false);
}

static void test_pictures_in_folders(void **state)
{
    struct tiny *t = *state;
    struct folder f;
    struct process p;
    make_folders(t, &f);
    RUN(t, &p, "data", "info", "images:zoo");
    expect_text(&p, "record     3 channels, 6 to 12 high, 9 wide\n");
    expect_text(&p, "classes    2, of 1 to 2 records, 2.00 to 1\n");
    expect_text(&p, "        1         2  dog\n");
    process_release(&p);
    RUN(t, &p, "data", "head", "images:zoo", "--first", "2");
    expect_text(&p, "       0       0  cat        12       9  cat/a.png\n");
    expect_text(&p, "       1       1  dog         6       9  dog/b.png\n");
    process_release(&p);
    RUN(t, &p, "data", "stats", "images:zoo?color=bgr", "--json");
    cJSON *stats = parse_output(&p), *channels = cJSON_GetObjectItem(stats, "channels");
    assert_true(fabs(number_of(cJSON_GetArrayItem(channels, 0), "mean") - 20) < 1e-9);
    assert_true(fabs(number_of(cJSON_GetArrayItem(channels, 2), "mean") - 250) < 1e-9);
    assert_true(fabs(number_of(cJSON_GetArrayItem(channels, 2), "deviation")) < 1e-9);
    cJSON_Delete(stats);
    process_release(&p);
    RUN(t, &p, "data", "head", "images:zoo?color=bgr", "--sheet", "sheet.png", "--side", "12");
    process_release(&p);
    char path[256];
    png_image image = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_file(&image, folder_file(&f, "sheet.png", path)));
    assert_int_equal(image.width, 2 + 2 * 14); /* 2 x 2 cells for 3 pictures */
    assert_int_equal(image.height, 2 + 2 * 14);
    uint8_t pixels[30 * 30 * 3];
    assert_true(image.format == PNG_FORMAT_RGB);
    assert_true(png_image_finish_read(&image, NULL, pixels, 0, NULL));
    const uint8_t *first = pixels + (2 * 30 + 2 + 1) * 3; /* 9 of 12 pixels wide */
    assert_true(first[0] == 250 && first[1] == 20 && first[2] == 20);
    RUN(t, &p, "data", "info", "images:zoo?resize=6&crop=6"); /* all are of one size then */
    expect_text(&p, "mapped     3 x 6 x 6\n");
    process_release(&p);
}

/* The proposed maps bring mean and deviation to 0 and 1. */
static void test_what_stats_propose(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char mapped[512];
    RUN(t, &p, "data", "stats", spec, "--json");
    cJSON *stats = parse_output(&p);
    const char *maps = cJSON_GetStringValue(cJSON_GetObjectItem(stats, "maps"));
    const char *job = cJSON_GetStringValue(cJSON_GetObjectItem(stats, "job"));
    assert_true(maps && job && strncmp(job, "mean: ", 6) == 0);
    snprintf(mapped, sizeof mapped, "%s%s", spec, maps);
    process_release(&p);
    RUN(t, &p, "data", "stats", mapped, "--json");
    cJSON *after = parse_output(&p);
    const cJSON *channel = cJSON_GetArrayItem(cJSON_GetObjectItem(after, "channels"), 0);
    assert_true(fabs(number_of(channel, "mean")) < 1e-4);
    assert_true(fabs(number_of(channel, "deviation") - 1) < 1e-4);
    assert_null(cJSON_GetObjectItem(after, "maps"));
    process_release(&p);
    tiny_write_changed(t, "scaled.job", tiny_job, "scale: 0.00390625", job);
    RUN(t, &p, "train", "scaled.job", "--out", "scaled", "--workers", "1", "--strategy", "single",
        "--set", "stop.steps=1");
    process_release(&p);
    cJSON_Delete(stats);
    cJSON_Delete(after);
    RUN(t, &p, "data", "stats", spec, "--first", "3");
    expect_text(&p, "records    3\n");
    expect_text(&p, "in a job   mean: ");
    expect_text(&p, "in a SPEC  ?mean=");
    process_release(&p);
}

static const cJSON *key_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);
    assert_non_null(item);
    return item;
}

/* Packed records are the same records: labels, pixels, names, and what a net learns of them. */
static void test_pack(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char shards[300], path[300];
    snprintf(path, sizeof path, "%s/packed-00002.shard", t->folder);
    RUN(t, &p, "data", "pack", spec, "packed", "--shard-bytes", "6000", "--json");
    cJSON *packed = parse_output(&p);
    assert_true(number_of(packed, "records") == TINY_TEST && number_of(packed, "shards") == 3);
    snprintf(shards, sizeof shards, "%s", cJSON_GetStringValue(key_of(packed, "spec")));
    assert_string_equal(shards, "shards:packed-{00000..00002}.shard");
    cJSON_Delete(packed);
    process_release(&p);
    RUN(t, &p, "data", "info", shards);
    expect_text(&p, "kind       shards\n");
    expect_text(&p, "records    120\n");
    expect_text(&p, "record     1 channel, 12 high, 12 wide\n");
    expect_text(&p, "classes    3, of 40 to 40 records, 1.00 to 1\n");
    process_release(&p);
    RUN(t, &p, "data", "stats", spec, "--json");
    char before[4096];
    snprintf(before, sizeof before, "%s", p.out);
    process_release(&p);
    RUN(t, &p, "data", "stats", shards, "--json");
    assert_string_equal(p.out, before);
    process_release(&p);
    REFUSED(t, "packed-00000.shard: exists", "data", "pack", spec, "packed");
    RUN(t, &p, "data", "pack", spec, "packed", "--force");
    expect_text(&p, "packed     120 records, ");
    expect_text(&p, "SPEC       shards:packed-00000.shard\n");
    process_release(&p);
    assert_int_equal(access(path, F_OK), -1);
    RUN(t, &p, "data", "verify", "shards:packed-00000.shard");
    expect_text(&p, "verified   120 records, 0 broken\n");
    process_release(&p);
    REFUSED(t, "shards that are read", "data", "pack", "shards:packed-00000.shard", "packed",
            "--force");
    RUN(t, &p, "data", "pack", "shards:packed-00000.shard", "pack"); /* is another prefix */
    process_release(&p);
    REFUSED(t, "maps are not packed", "data", "pack", "idx:test-images,test-labels?crop=8", "x");
    REFUSED(t, "no prefix", "data", "pack", spec, "x,y");
    REFUSED(t, "no prefix", "data", "pack", spec, "x/");
    REFUSED(t, "PREFIX", "data", "pack", spec);
    REFUSED(t, "no-such-folder", "data", "pack", spec, "no-such-folder/x");
    REFUSED(t, "--shard-bytes", "data", "pack", spec, "y", "--shard-bytes", "0");
    REFUSED(t, "--shard-bytes", "data", "info", spec, "--shard-bytes", "9");
}

/* The report of an archive with an index is that without it. */
static void test_index(void **state)
{
    struct tiny *t = *state;
    static struct archive a;
    struct process p, again;
    uint8_t pixels[12] = {1, 2, 3}, bytes[FOLDER_BYTES_MAX];
    struct folder f;
    snprintf(f.path, sizeof f.path, "%s", t->folder);
    picture_put_png(&f, "picture", pixels, 2, 6, PNG_COLOR_TYPE_GRAY, 8, 6, false);
    size_t n = folder_get(&f, "picture", bytes);
    archive_put(&a, "r.png", '0', bytes, n);
    archive_text(&a, "r.cls", "3");
    archive_end(&a);
    folder_put(&f, "a.tar", a.bytes, a.n);
    RUN(t, &p, "data", "info", "webdataset:a.tar");
    RUN(t, &again, "data", "index", "webdataset:a.tar", "--json");
    expect_text(&again, "{\"archives\":1}");
    process_release(&again);
    assert_true(folder_has(&f, "a.tar.index"));
    RUN(t, &again, "data", "info", "webdataset:a.tar");
    assert_string_equal(p.out, again.out);
    process_release(&again);
    process_release(&p);
    REFUSED(t, "only archives have an index", "data", "index", spec);
}

/* `paceline bench data`: the rate, and the wait of a taker that needs half of it. */
static void test_bench(void **state)
{
    struct tiny *t = *state;
    struct process p;
    RUN(t, &p, "bench", "data", spec, "--seconds", "0.3", "--share", "0.5", "--json");
    cJSON *report = parse_output(&p);
    assert_true(number_of(report, "records") == TINY_TEST && number_of(report, "batch") == 64);
    assert_true(number_of(report, "records_per_s") > 100);
    assert_true(number_of(report, "taken") >= 64);
    assert_true(number_of(report, "open_s") <= number_of(report, "first_batch_s"));
    assert_true(number_of(report, "median_ms") <= number_of(report, "p99_ms"));
    double waited = number_of(report, "waited_share");
    assert_true(waited >= 0 && waited < 0.9);
    assert_true(number_of(report, "kept_records") == 0); /* they are in memory anyway */
    cJSON_Delete(report);
    process_release(&p);
    RUN(t, &p, "data", "pack", spec, "benched");
    process_release(&p);
    RUN(t, &p, "bench", "data", "shards:benched-00000.shard", "--seconds", "0.3", "--cache",
        "1000000");
    expect_text(&p, "kept       120 records in ");
    process_release(&p);
    REFUSED(t, "SPEC", "bench", "data");
    REFUSED(t, "--share", "bench", "data", spec, "--share", "1.1");
    REFUSED(t, "--batch", "bench", "data", spec, "--batch", "65537");
    REFUSED(t, "nowhere", "bench", "data", "idx:nowhere,test-labels");
}

static void test_wrong_inputs(void **state)
{
    struct tiny *t = *state;
    tiny_write(t, "none.png", "no picture");
    tiny_write(t, "list", "none.png 0\n");
    REFUSED(t, "what?", "data");
    REFUSED(t, "look", "data", "look", spec);
    REFUSED(t, "SPEC", "data", "info");
    REFUSED(t, "unexpected", "data", "info", spec, "more");
    REFUSED(t, "tape:", "data", "info", "tape:x");
    REFUSED(t, "idx:", "data", "info", "idx:test-images");
    REFUSED(t, "nowhere", "data", "info", "idx:nowhere,test-labels");
    REFUSED(t, "test-labels", "data", "head", "idx:train-images,test-labels");
    REFUSED(t, "colour", "data", "head", "idx:test-images,test-labels?colour=1");
    REFUSED(t, "13 x 13", "data", "info", "idx:test-images,test-labels?crop=13");
    REFUSED(t, "none.png", "data", "info", "images:list");
    REFUSED(t, "none.png", "data", "stats", "images:list");
    REFUSED(t, "data_batch_1.bin", "data", "stats", "cifar10:.", "--training");
    REFUSED(t, "test_batch.bin", "data", "stats", "cifar10:.");
    static const char *const first[] = {"0", "-1", "ten", "", "4294967296", "1x"};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        REFUSED(t, "--first", "data", "head", spec, "--first", first[i]);
    REFUSED(t, "--first", "data", "info", spec, "--first", "3");
    REFUSED(t, "--sheet", "data", "stats", spec, "--sheet", "no.png");
    REFUSED(t, "--side", "data", "head", spec, "--side", "20");
    REFUSED(t, "--side", "data", "head", spec, "--sheet", "no.png", "--side", "7");
    REFUSED(t, "--columns", "data", "head", spec, "--sheet", "no.png", "--columns", "4097");
    REFUSED(t, "sheet", "data", "head", spec, "--sheet", "no.png", "--columns", "4096", "--side",
            "1024");
    REFUSED(t, "--sheep", "data", "head", spec, "--sheep", "no.png");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_pictures_in_folders),
        cmocka_unit_test(test_what_stats_propose),
        cmocka_unit_test(test_pack),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_bench),
        cmocka_unit_test(test_wrong_inputs),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
