/* Archives that the test writes, and those of Python's tarfile (test/fuzz/corpus.py). */
#include "data/source_webdataset.h"

#include "base/hash.h"
#include "data/reading.h"
#include "pictures.h"
#include "tar_archive.h"
#include "watching.h"

#include <fcntl.h>

static int setup(void **state)
{
    struct folder *f = calloc(1, sizeof *f);
    assert_non_null(f);
    folder_make(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    folder_remove(*state);
    free(*state);
    return 0;
}

/* ---- archives ---- */

/* A grey picture of one row, of `width` times that value, as a member. */
static void put_picture(const struct folder *f, struct archive *a, const char *name, unsigned width,
                        uint8_t value)
{
    uint8_t pixels[64], bytes[FOLDER_BYTES_MAX];
    memset(pixels, value, sizeof pixels);
    picture_put_png(f, "picture", pixels, 1, width, PNG_COLOR_TYPE_GRAY, 8, width, false);
    size_t n = folder_get(f, "picture", bytes);
    archive_put(a, name, '0', bytes, n);
}

/* KEY.png and KEY.cls */
static void put_record(const struct folder *f, struct archive *a, const char *key, uint8_t value,
                       const char *label)
{
    char name[80];
    snprintf(name, sizeof name, "%s.png", key);
    put_picture(f, a, name, 4, value);
    snprintf(name, sizeof name, "%s.cls", key);
    archive_text(a, name, label);
}

static void put_archive(const struct folder *f, const char *name, struct archive *a)
{
    archive_end(a);
    folder_put(f, name, a->bytes, a->n);
}

/* An archive of one record of that value and label. */
static void put_single(const struct folder *f, const char *name, uint8_t value, const char *label)
{
    static struct archive a;
    a.n = 0;
    put_record(f, &a, "r", value, label);
    put_archive(f, name, &a);
}

/* ---- opening ---- */

static int open_shards(const struct source_config *config, const char *shards, struct source **out,
                       struct err *err)
{
    Paceline__Data__WebDataset webdataset = PACELINE__DATA__WEB_DATASET__INIT;
    Paceline__Data spec = PACELINE__DATA__INIT;
    webdataset.shards = (char *)(uintptr_t)shards;
    webdataset.color = PACELINE__DATA__COLOR__gray;
    spec.source_case = PACELINE__DATA__SOURCE_WEBDATASET;
    spec.webdataset = &webdataset;
    *out = NULL;
    return source_open_with(config, &spec, out, err);
}

static struct source *must_open(const char *shards)
{
    const struct source_config config = {0};
    struct source *source;
    struct err err;
    if (open_shards(&config, shards, &source, &err) != OK)
        fail_msg("%s", err.text);
    return source;
}

static void expect_refusal(const char *shards, const char *why)
{
    const struct source_config config = {0};
    struct source *source;
    struct err err = {0};
    assert_int_equal(open_shards(&config, shards, &source, &err), ERR_INPUT);
    assert_null(source);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" should say \"%s\"", err.text, why);
}

static float first_pixel(const struct source *source, size_t i)
{
    float x[64 * 64];
    uint32_t label;
    read_raw(source, i, x, &label);
    return x[0];
}

/* ---- indexes ---- */

static int keep_index(void *user, const char *archive, const struct buf *index, struct err *err)
{
    const struct folder *f = user;
    char name[64];
    (void)err;
    snprintf(name, sizeof name, "%.50s.index", strrchr(archive, '/') + 1);
    folder_put(f, name, index->data, index->len);
    return OK;
}

static int index_shards(const struct folder *f, const char *shards, const char *label_key,
                        struct err *err)
{
    const struct source_config config = {0};
    const struct tar_indexer indexer = {keep_index, (void *)(uintptr_t)f};
    Paceline__Data__WebDataset spec = PACELINE__DATA__WEB_DATASET__INIT;
    spec.shards = (char *)(uintptr_t)shards;
    spec.label_key = (char *)(uintptr_t)label_key;
    return source_webdataset_index(&config, &spec, &indexer, err);
}

static void expect_equal(const struct source *a, const struct source *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->classes, b->classes);
    assert_int_equal(a->hash, b->hash);
    assert_true(shape_equal(&a->shape, &b->shape));
    for (size_t i = 0; i < a->count; i++) {
        float x[64], y[64];
        uint32_t of_a, of_b;
        read_raw(a, i, x, &of_a);
        read_raw(b, i, y, &of_b);
        assert_int_equal(of_a, of_b);
        assert_true(x[0] == y[0]);
    }
}

/* Two archives, opened without and with their indexes; then one of them has changed. */
static void test_an_index_opens_as_a_scan_does(void **state)
{
    const struct folder *f = *state;
    static struct archive a;
    static uint8_t bytes[FOLDER_BYTES_MAX];
    char path[2][256], list[600];
    struct err err = {0};
    a.n = 0;
    put_record(f, &a, "one", 11, "3");
    put_picture(f, &a, "two.png", 7, 12);
    archive_text(&a, "two.cls", "1");
    put_archive(f, "a.tar", &a);
    put_single(f, "b.tar", 13, "2");
    folder_file(f, "a.tar", path[0]);
    folder_file(f, "b.tar", path[1]);
    snprintf(list, sizeof list, "%s,%s", path[0], path[1]);
    struct source *scanned = must_open(list);
    if (index_shards(f, list, NULL, &err) != OK)
        fail_msg("%s", err.text);
    struct source *indexed = must_open(list);
    assert_string_equal(indexed->warning, "");
    expect_equal(scanned, indexed);
    source_close(indexed);
    source_close(scanned);

    /* It is what is used: with another label in it, and a right checksum, the label is another. */
    size_t n = folder_get(f, "b.tar.index", bytes);
    bytes[48 + 20] = 9;
    bytes_put_le64(bytes + n - 8, hash_bytes(bytes, n - 8));
    folder_put(f, "b.tar.index", bytes, n);
    indexed = must_open(list);
    assert_int_equal(indexed->ops->label(indexed, 2), 9);
    source_close(indexed);

    /* The archive is written again, with the same length. */
    put_single(f, "b.tar", 14, "4");
    const struct timespec times[2] = {{1, 0}, {1, 5}};
    assert_int_equal(utimensat(AT_FDCWD, path[1], times, 0), 0);
    indexed = must_open(list);
    assert_non_null(strstr(indexed->warning, "b.tar.index: made by another version"));
    assert_int_equal(indexed->ops->label(indexed, 2), 4);
    assert_true(first_pixel(indexed, 2) == 14);
    source_close(indexed);

    /* Labels of another kind need an index of their own; a broken record has none. */
    assert_int_equal(index_shards(f, list, "label", &err), ERR_INPUT);
    put_single(f, "b.tar", 14, "x");
    assert_int_equal(index_shards(f, list, NULL, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "r.cls"));
}

/* The archive's own records, whatever a file that is called its index has. */
static void test_a_damaged_index_is_not_used(void **state)
{
    const struct folder *f = *state;
    static uint8_t bytes[FOLDER_BYTES_MAX];
    char path[256];
    struct err err = {0};
    put_single(f, "a.tar", 17, "5");
    folder_file(f, "a.tar", path);
    struct source *scanned = must_open(path);
    assert_int_equal(index_shards(f, path, NULL, &err), OK);
    size_t n = folder_get(f, "a.tar.index", bytes);
    assert_int_equal(n, 48 + 32 + 8);
    for (size_t k = 0; k < 2 * n + 48 + 32; k++) {
        uint8_t changed[128];
        memcpy(changed, bytes, n);
        if (k >= n)
            changed[k % n] ^= 0xff;
        if (k >= 2 * n) { /* with the right checksum, where no value is left that could be true */
            size_t at = k - 2 * n;
            if (at >= 48 + 8 && at != 48 + 19 && at != 48 + 29 && at != 48 + 31)
                continue;
            memcpy(changed, bytes, n);
            changed[at] ^= 0xff;
            bytes_put_le64(changed + n - 8, hash_bytes(changed, n - 8));
        }
        folder_put(f, "a.tar.index", changed, k < n ? k : n);
        struct source *indexed = must_open(path);
        if (!strstr(indexed->warning, "a.tar.index: "))
            fail_msg("%zu: %s", k, indexed->warning);
        expect_equal(scanned, indexed);
        source_close(indexed);
    }
    source_close(scanned);
}

/* ---- what is there ---- */

/* The same files in an archive and in a list. */
static void test_pixels_are_those_of_the_same_files(void **state)
{
    const struct folder *f = *state;
    static struct archive a;
    static uint8_t bytes[FOLDER_BYTES_MAX];
    uint8_t pixels[12 * 20 * 3];
    char path[256], list[512] = "";
    for (size_t k = 0; k < sizeof pixels; k++)
        pixels[k] = (uint8_t)(k * 37);
    picture_put_jpeg(f, "a.jpg", pixels, 12, 20, 3, 90);
    picture_put_jpeg(f, "b.JPEG", pixels + 60, 10, 20, 1, 80);
    picture_put_png(f, "c.Png", pixels, 12, 20, PNG_COLOR_TYPE_RGB, 8, 60, false);
    a.n = 0;
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"a.jpg", "b.JPEG", "c.Png"};
        char cls[8] = {names[i][0], '.', 'C', 'L', 'S', '\0'},
             label[8] = {' ', (char)('5' + i), '\n'};
        size_t n = folder_get(f, names[i], bytes);
        if (i == 1) /* in any order */
            archive_text(&a, cls, label);
        archive_put(&a, names[i], '0', bytes, n);
        if (i != 1)
            archive_text(&a, cls, label);
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s %d\n", names[i], 5 + i);
    }
    put_archive(f, "x.tar", &a);
    folder_put(f, "list.txt", list, strlen(list));
    for (int color = 0; color < 3; color++) {
        Paceline__Data__WebDataset webdataset = PACELINE__DATA__WEB_DATASET__INIT;
        Paceline__Data__Images images = PACELINE__DATA__IMAGES__INIT;
        Paceline__Data spec = PACELINE__DATA__INIT;
        struct source *one, *other;
        webdataset.color = images.color = (Paceline__Data__Color)color;
        spec.source_case = PACELINE__DATA__SOURCE_WEBDATASET;
        spec.webdataset = &webdataset;
        webdataset.shards = (char *)(uintptr_t)folder_file(f, "x.tar", path);
        assert_int_equal(source_open(&spec, SOURCE_TRAIN, &one, NULL), OK);
        spec.source_case = PACELINE__DATA__SOURCE_IMAGES;
        spec.images = &images;
        images.list = (char *)(uintptr_t)folder_file(f, "list.txt", path);
        assert_int_equal(source_open(&spec, SOURCE_TRAIN, &other, NULL), OK);
        assert_int_equal(one->count, 3);
        assert_int_equal(one->classes, other->classes);
        assert_true(shape_equal(&one->shape, &other->shape) && one->shape.dim[1] == 0);
        for (size_t i = 0; i < 3; i++) {
            float x[sizeof pixels], y[sizeof pixels];
            size_t H, W, h, w;
            uint32_t label, of;
            source_size(one, i, &H, &W);
            source_size(other, i, &h, &w);
            assert_true(H == h && W == w);
            read_raw(one, i, x, &label);
            read_raw(other, i, y, &of);
            assert_int_equal(label, of);
            assert_memory_equal(x, y, one->shape.dim[0] * H * W * sizeof *x);
        }
        source_close(one);
        source_close(other);
    }
}

/* Each form of Python's; pixel k of a picture is 3k. */
static void test_archives_of_python(void **state)
{
    (void)state;
    static const char *const forms[] = {"ustar", "gnu", "pax"};
    uint64_t hash = 0;
    for (size_t form = 0; form < 3; form++) {
        char path[256], name[SOURCE_NAME_MAX], want[SOURCE_NAME_MAX];
        snprintf(path, sizeof path, TEST_ROOT "/test/fuzz/corpus/webdataset/%s", forms[form]);
        struct source *source = must_open(path);
        assert_int_equal(source->count, 3);
        assert_int_equal(source->classes, 13);
        for (size_t i = 0; i < 3; i++) {
            static const size_t widths[] = {4, 5, 3};
            static const uint32_t labels[] = {1, 0, 12};
            size_t H, W;
            float x[8];
            uint32_t label;
            source_size(source, i, &H, &W);
            assert_true(H == 1 && W == widths[i]);
            read_raw(source, i, x, &label);
            assert_int_equal(label, labels[i]);
            for (size_t k = 0; k < W; k++)
                assert_true(x[k] == (float)(3 * k));
        }
        snprintf(want, sizeof want, "record 0 (%s, dogs/rex.png)", forms[form]);
        assert_string_equal(source_name(source, 0, name), want);
        assert_true(form == 0 || hash == source->hash); /* of names, not of their form */
        hash = source->hash;
        source_close(source);
    }
}

static int open_labelled(const struct source_config *config, const char *path, const char *key,
                         struct source **out, struct err *err)
{
    Paceline__Data__WebDataset spec = PACELINE__DATA__WEB_DATASET__INIT;
    spec.shards = (char *)(uintptr_t)path;
    spec.label_key = (char *)(uintptr_t)key;
    spec.color = PACELINE__DATA__COLOR__gray;
    return source_webdataset_open(config, &spec, out, err);
}

/* Of Python's archive two of three records have an object there. */
static void test_labels_in_json(void **state)
{
    (void)state;
    static const char path[] = TEST_ROOT "/test/fuzz/corpus/webdataset/json";
    struct bad_records *bad = bad_records_create(9);
    const struct source_config config = {.bad = bad}, strict = {0};
    struct source *source;
    struct err err = {0};
    if (open_labelled(&config, path, "label.fine", &source, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(source->count, 2);
    assert_int_equal(source->classes, 13);
    assert_int_equal(source->ops->label(source, 0), 12);
    assert_int_equal(source->ops->label(source, 1), 7);
    assert_int_equal(bad_records_count(bad), 1);
    assert_non_null(strstr(bad_records_at(bad, 0)->cause, "json: 0.json: has no \"label.fine\""));
    source_close(source);
    bad_records_free(bad);
    assert_int_equal(open_labelled(&strict, path, "label", &source, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "json: 1.json: expected \"label\" to be a label, a number "
                                     "from 0 to 1048575"));
}

static void test_json_in_place_of_numbers(void **state)
{
    const struct folder *f = *state;
    static struct archive a;
    static char large[20000];
    static const char *const why[] = {
        "x.tar: b.json: is not JSON near byte 8",
        "x.tar: b.json: is not JSON near byte 0",
        "x.tar: b.json: a second label of this record",
        "x.tar: b: has no label; a file .json with it is expected",
        "x.tar: b: has no picture",
    };
    memset(large, ' ', sizeof large - 1);
    memcpy(large + sizeof large - 12, "{\"y\":   2}", 10);
    for (int kind = 0; kind < 5; kind++) {
        char path[256];
        struct source *source;
        struct err err = {0};
        a.n = 0;
        put_picture(f, &a, "a.png", 4, 10);
        archive_text(&a, "a.cls", "9 is not read");
        archive_text(&a, "a.JSON", "{\"x\": 4, \"y\": 1}");
        if (kind < 4)
            put_picture(f, &a, "b.png", 4, 99);
        if (kind != 3)
            archive_text(&a, "b.json", kind == 0 ? "{\"y\": 1}, 2" : kind == 1 ? "" : "{\"y\": 1}");
        if (kind == 2)
            archive_text(&a, "b.json", "{\"y\": 1}");
        put_picture(f, &a, "c.png", 4, 20);
        archive_text(&a, "c.json", large);
        put_archive(f, "x.tar", &a);
        struct bad_records *bad = bad_records_create(1);
        const struct source_config config = {.bad = bad};
        folder_file(f, "x.tar", path);
        if (open_labelled(&config, path, "y", &source, &err) != OK)
            fail_msg("%s", err.text);
        assert_int_equal(source->count, 2);
        assert_int_equal(source->ops->label(source, 0), 1);
        assert_int_equal(source->ops->label(source, 1), 2);
        if (!strstr(bad_records_at(bad, 0)->cause, why[kind]))
            fail_msg("\"%s\" should say \"%s\"", bad_records_at(bad, 0)->cause, why[kind]);
        source_close(source);
        bad_records_free(bad);
    }
}

/* Members of one key that follow each other. The key ends at the first dot of the last name. */
static void test_what_a_record_is(void **state)
{
    const struct folder *f = *state;
    static struct archive a;
    char path[256], name[SOURCE_NAME_MAX];
    a.n = 0;
    archive_text(&a, "README.md", "text");
    archive_text(&a, "LICENSE", "text");
    put_record(f, &a, "v1.2/a", 10, "3");
    archive_text(&a, "v1.2/a.seg.png", "no picture of ours");
    archive_text(&a, "v1.2/a.json", "{}");
    archive_text(&a, ".hidden.png", "x");
    archive_header(&a, "v1.2/", '5', 0);
    put_record(f, &a, "a", 20, "0");
    put_record(f, &a, "v1.2/a", 30, "1"); /* not next to the other one: another */
    put_record(f, &a, "b", 40, "  2\r\n");
    put_archive(f, "x.tar", &a);
    struct source *source = must_open(folder_file(f, "x.tar", path));
    assert_int_equal(source->count, 4);
    static const uint32_t labels[] = {3, 0, 1, 2};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(source->ops->label(source, i), labels[i]);
        assert_true(first_pixel(source, i) == (float)(10 * (i + 1)));
    }
    assert_string_equal(source_name(source, 2, name), "record 2 (x.tar, v1.2/a.png)");
    source_close(source);
}

static void test_records_of_several_shards(void **state)
{
    const struct folder *f = *state;
    static struct archive a;
    char path[256], name[SOURCE_NAME_MAX];
    put_single(f, "t-0.tar", 10, "0");
    a.n = 0;
    put_archive(f, "t-1.tar", &a); /* of no record */
    a.n = 0;
    put_record(f, &a, "r", 20, "1"); /* no record goes beyond its archive */
    put_record(f, &a, "s", 30, "2");
    put_archive(f, "t-2.tar", &a);
    struct source *source = must_open(folder_file(f, "t-{0..2}.tar", path));
    assert_int_equal(source->count, 3);
    for (size_t i = 3; i-- > 0;)
        assert_true(first_pixel(source, i) == (float)(10 * (i + 1)));
    assert_string_equal(source_name(source, 1, name), "record 1 (t-2.tar, r.png)");
    source_close(source);
}

/* The hash is of the records, wherever they are. */
static void test_the_hash_is_of_the_records(void **state)
{
    const struct folder *f = *state;
    static const struct {
        uint8_t value;
        const char *label, *same;
    } changes[] = {{7, "1", "no"}, {8, "1", "no"}, {7, "2", "no"}, {7, "1\n", "yes"}};
    uint64_t first = 0, hash;
    char path[256];
    for (size_t i = 0; i < 4; i++) {
        put_single(f, i % 2 ? "y.tar" : "x.tar", changes[i].value, changes[i].label);
        struct source *source = must_open(folder_file(f, i % 2 ? "y.tar" : "x.tar", path));
        hash = source->hash;
        source_close(source);
        assert_true(i == 0 || (hash == first) == (changes[i].same[0] == 'y'));
        first = i == 0 ? hash : first;
    }
}

/* ---- what is wrong ---- */

static void test_bad_records_are_refused_or_left_out(void **state)
{
    const struct folder *f = *state;
    static struct archive a;
    enum { KINDS = 10 };
    static const char *const why[KINDS] = {
        "x.tar: b: has no label; a file .cls with a number is expected",
        "x.tar: b: has no picture; a file .jpg, .jpeg or .png is expected",
        "x.tar: b.jpg: a second picture of this record",
        "x.tar: b.cls: a second label of this record",
        "x.tar: b.cls: expected a label, a number from 0 to 1048575",
        "x.tar: b.cls: expected a label",
        "x.tar: b.cls: expected a label",
        "x.tar: b.png: neither JPEG nor PNG: begins with 47 49 46 38",
        "x.tar: b.png: empty",
        "a damaged header: its checksum is wrong",
    };
    for (int kind = 0; kind < KINDS; kind++) {
        char path[256];
        static const char *const labels[] = {"1048576", "-1", "00000000000000000000000000000001"};
        struct err err = {0};
        struct source *source;
        a.n = 0;
        put_record(f, &a, "a", 10, "0");
        if (kind == 7 || kind == 8)
            archive_text(&a, "b.png", kind == 7 ? "GIF89a" : "");
        else if (kind != 1)
            put_picture(f, &a, "b.png", 4, 99);
        if (kind == 2)
            put_picture(f, &a, "b.jpg", 4, 99);
        if (kind == 3)
            archive_text(&a, "b.cls", "0");
        if (kind > 0 && kind < 9)
            archive_text(&a, "b.cls", kind >= 4 && kind <= 6 ? labels[kind - 4] : "5");
        if (kind == 9)
            archive_text(&a, "b.cls", "5")[0] = 'x';
        put_record(f, &a, "c", 20, "1");
        put_archive(f, "x.tar", &a);
        expect_refusal(folder_file(f, "x.tar", path), why[kind]);
        struct bad_records *bad = bad_records_create(2);
        const struct source_config config = {.bad = bad};
        if (open_shards(&config, path, &source, &err) != OK)
            fail_msg("%s", err.text);
        assert_int_equal(source->count, 2);
        assert_true(first_pixel(source, 0) == 10 && first_pixel(source, 1) == 20);
        assert_int_equal(source->classes, 2);
        assert_int_equal(bad_records_count(bad), kind == 9 ? 2 : 1); /* and b has no label */
        assert_non_null(strstr(bad_records_at(bad, 0)->cause, why[kind]));
        source_close(source);
        bad_records_free(bad);
    }
    struct bad_records *bad = bad_records_create(0);
    const struct source_config config = {.bad = bad};
    struct source *source;
    struct err err;
    char path[256];
    assert_int_equal(open_shards(&config, folder_file(f, "x.tar", path), &source, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "more than bad_records_max: 0"));
    bad_records_free(bad);
    expect_refusal(path, "copy the archive again");
}

/* Of an archive that breaks off nobody knows how many records are missing: it is an error even
 * where bad records are left out. */
static void test_archives_that_break_off(void **state)
{
    const struct folder *f = *state;
    static struct archive a;
    char path[256];
    a.n = 0;
    put_record(f, &a, "a", 10, "0");
    put_record(f, &a, "b", 20, "1");
    put_archive(f, "x.tar", &a);
    folder_file(f, "x.tar", path);
    for (size_t n = a.n - 2 * ARCHIVE_BLOCK;; n -= ARCHIVE_BLOCK) {
        struct bad_records *bad = bad_records_create(9);
        const struct source_config config = {.bad = bad};
        struct source *source;
        struct err err = {0};
        assert_int_equal(truncate(path, (off_t)n), 0);
        assert_int_equal(open_shards(&config, path, &source, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, "x.tar: truncated"));
        bad_records_free(bad);
        if (n == 0)
            break;
    }
}

static void test_archives_without_records(void **state)
{
    const struct folder *f = *state;
    static struct archive a;
    char path[256];
    folder_file(f, "x.tar", path);
    a.n = 0;
    put_archive(f, "x.tar", &a);
    expect_refusal(path, "x.tar: has no records; a record is NAME.jpg, .jpeg or .png and NAME.cls");
    a.n = 0;
    archive_text(&a, "README.md", "hello");
    put_archive(f, "x.tar", &a);
    expect_refusal(path, "x.tar: has no records");
    a.n = 0;
    archive_text(&a, "a.cls", "1");
    put_archive(f, "x.tar", &a);
    struct bad_records *bad = bad_records_create(9);
    const struct source_config config = {.bad = bad};
    struct source *source;
    struct err err;
    assert_int_equal(open_shards(&config, path, &source, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "none of its 1 records can be read; the last: "));
    assert_non_null(strstr(err.text, "a: has no picture"));
    bad_records_free(bad);
}

static void expect_change(const struct source *source, const char *why)
{
    struct scratch scratch = {0};
    struct raw raw;
    struct err err = {0};
    char name[SOURCE_NAME_MAX];
    assert_int_equal(source->ops->read(source, 0, &scratch, &raw, &err), ERR_IO);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" should say \"%s\"", err.text, why);
    (void)source_name(source, 0, name);
    scratch_release(&scratch);
}

static void test_archives_that_change(void **state)
{
    const struct folder *f = *state;
    static struct archive a;
    char path[256], name[SOURCE_NAME_MAX];
    a.n = 0;
    put_record(f, &a, "a", 10, "0");
    put_archive(f, "x.tar", &a);
    struct source *source = must_open(folder_file(f, "x.tar", path));
    assert_true(first_pixel(source, 0) == 10);
    a.bytes[0] = 'b'; /* another record of the same length */
    archive_seal(a.bytes);
    folder_put(f, "x.tar", a.bytes, a.n);
    expect_change(source, "x.tar: has changed since it was opened: record 0 is another");
    folder_put(f, "x.tar", a.bytes, a.n - 1);
    expect_change(source, "x.tar: has changed since it was opened: 3071 bytes, not 3072");
    assert_int_equal(unlink(path), 0);
    expect_change(source, "x.tar: cannot open");
    assert_string_equal(source_name(source, 0, name), "record 0 (x.tar, ?)");
    a.bytes[0] = 'a';
    archive_seal(a.bytes);
    folder_put(f, "x.tar", a.bytes, a.n);
    assert_true(first_pixel(source, 0) == 10);
    a.bytes[ARCHIVE_BLOCK + 50] ^= 0x55; /* the body alone: a bad record */
    folder_put(f, "x.tar", a.bytes, a.n);
    struct scratch scratch = {0};
    struct raw raw;
    struct err err = {0};
    assert_int_equal(source->ops->read(source, 0, &scratch, &raw, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "x.tar: a.png: PNG: "));
    scratch_release(&scratch);
    source_close(source);
}

static void test_a_root_is_not_left(void **state)
{
    const struct folder *f = *state;
    char root[256], path[256], inside[256], text[600];
    const struct source_config config = {.root = root};
    struct source *source;
    struct err err;
    assert_int_equal(mkdir(folder_file(f, "in", root), 0700), 0);
    put_single(f, "in/x.tar", 1, "0");
    put_single(f, "y.tar", 1, "0");
    folder_file(f, "in/x.tar", inside);
    assert_int_equal(open_shards(&config, inside, &source, &err), OK);
    assert_int_equal(unlink(inside), 0); /* an archive that becomes a link is not followed */
    assert_int_equal(symlink("../y.tar", inside), 0);
    expect_change(source, "lies outside of the data root");
    source_close(source);
    assert_int_equal(open_shards(&config, inside, &source, &err), ERR_INPUT);
    assert_int_equal(unlink(inside), 0);
    put_single(f, "in/x.tar", 1, "0");
    snprintf(text, sizeof text, "%s,%s", inside, folder_file(f, "y.tar", path));
    assert_int_equal(open_shards(&config, text, &source, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "lies outside of the data root"));
}

static int open_watched(void *user, const struct open_watch *watch, struct err *err)
{
    const struct source_config config = {.watch = watch};
    struct source *source;
    int rc = open_shards(&config, user, &source, err);
    if (rc == OK)
        source_close(source);
    return rc;
}

static void test_opening_is_watched(void **state)
{
    const struct folder *f = *state;
    static struct archive a;
    char path[256];
    a.n = 0;
    for (int i = 0; i < 5; i++)
        put_record(f, &a, i % 2 ? "a" : "b", 10, "0");
    put_archive(f, "x1.tar", &a);
    put_single(f, "x2.tar", 1, "0");
    watching_story(open_watched, (void *)(uintptr_t)folder_file(f, "x{1..2}.tar", path), "bytes ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_an_index_opens_as_a_scan_does, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_damaged_index_is_not_used, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pixels_are_those_of_the_same_files, setup, teardown),
        cmocka_unit_test(test_archives_of_python),
        cmocka_unit_test(test_labels_in_json),
        cmocka_unit_test_setup_teardown(test_json_in_place_of_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_a_record_is, setup, teardown),
        cmocka_unit_test_setup_teardown(test_records_of_several_shards, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_hash_is_of_the_records, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_records_are_refused_or_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(test_archives_that_break_off, setup, teardown),
        cmocka_unit_test_setup_teardown(test_archives_without_records, setup, teardown),
        cmocka_unit_test_setup_teardown(test_archives_that_change, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_root_is_not_left, setup, teardown),
        cmocka_unit_test_setup_teardown(test_opening_is_watched, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
