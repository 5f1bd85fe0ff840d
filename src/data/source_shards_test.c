/* Records into shards and back: the same values, labels, fields and names; and what a shard is that
 * somebody else wrote, or that was damaged. */
#include "data/source_shards.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "data/pack.h"
#include "data/reading.h"
#include "data/shard_format.h"
#include "data/source_combined.h"
#include "data/source_fake.h"
#include "data/source_memory.h"
#include "data/source_zip.h"
#include "faulty_disk.h"
#include "pictures.h"
#include "watching.h"

enum { VALUES_MAX = 1 << 16 };

struct place {
    struct folder folder;
    struct faulty_disk disk;
    char prefix[256];
};

static int setup(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    assert_non_null(place);
    folder_make(&place->folder);
    faulty_init(&place->disk);
    folder_file(&place->folder, "set", place->prefix);
    *state = place;
    return 0;
}

static int teardown(void **state)
{
    struct place *place = *state;
    folder_remove(&place->folder);
    free(place);
    return 0;
}

/* ---- packing and opening ---- */

static int pack_source(struct place *place, const struct source *source, uint64_t shard_bytes,
                       struct pack_result *out, struct err *err)
{
    const struct pack_config config = {.disk = &place->disk.disk,
                                       .prefix = place->prefix,
                                       .shard_bytes = shard_bytes,
                                       .replace = true};
    return pack_records(source, &config, out, err);
}

static int open_shards(const char *shards, struct source **out, struct err *err)
{
    Paceline__Data__Shards message = PACELINE__DATA__SHARDS__INIT;
    Paceline__Data spec = PACELINE__DATA__INIT;
    message.shards = (char *)(uintptr_t)shards;
    spec.source_case = PACELINE__DATA__SOURCE_SHARDS;
    spec.shards = &message;
    *out = NULL;
    return source_open(&spec, SOURCE_TRAIN, out, err);
}

static struct source *open_packed(const struct place *place, const struct pack_result *packed)
{
    char shards[512];
    struct source *source;
    struct err err;
    snprintf(shards, sizeof shards, "%s-{00000..%05u}.shard", place->prefix, packed->shards - 1);
    if (open_shards(shards, &source, &err) != OK)
        fail_msg("%s", err.text);
    return source;
}

static struct source *pack_and_open(struct place *place, const struct source *source,
                                    uint64_t shard_bytes, struct pack_result *packed)
{
    struct err err;
    if (pack_source(place, source, shard_bytes, packed, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(packed->records, source->count);
    return open_packed(place, packed);
}

static void expect_same(const struct source *a, const struct source *b)
{
    static float x[VALUES_MAX], y[VALUES_MAX];
    uint32_t of_a, of_b;
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->classes, b->classes);
    assert_int_equal(a->is_integer, b->is_integer);
    assert_true(fields_equal(&a->fields, &b->fields));
    assert_memory_equal(&a->shape, &b->shape, sizeof a->shape);
    for (size_t i = 0; i < a->count; i++) {
        size_t H, W, h, w;
        source_size(a, i, &H, &W);
        source_size(b, i, &h, &w);
        assert_true(H == h && W == w && a->shape.dim[0] * H * W <= VALUES_MAX);
        read_raw(a, i, x, &of_a);
        read_raw(b, i, y, &of_b);
        assert_memory_equal(x, y, a->shape.dim[0] * H * W * sizeof *x);
        assert_int_equal(of_a, of_b);
    }
}

/* With blocks and shards that end in the middle, and everything in one shard. */
static void round_trip(struct place *place, const struct source *source)
{
    static const uint64_t sizes[] = {1, 20000, 100000, UINT64_MAX};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct pack_result packed;
        struct source *again = pack_and_open(place, source, sizes[k], &packed);
        assert_int_equal(packed.shards, k == 0 ? source->count : packed.shards);
        assert_true(k < 3 || packed.shards == 1);
        expect_same(source, again);
        source_close(again);
    }
}

/* ---- kinds of records ---- */

enum { COUNT = 300 };

static struct source *bytes_source(uint32_t classes, size_t count, struct shape shape)
{
    static uint8_t values[COUNT * 1000];
    static uint32_t labels[COUNT];
    struct source *source;
    struct err err;
    for (size_t k = 0; k < sizeof values; k++)
        values[k] = (uint8_t)(k * 37 + k / 251);
    for (uint32_t i = 0; i < count; i++)
        labels[i] = classes ? i * 7919 % classes : 0;
    const struct memory_records records = {.name = "r",
                                           .count = count,
                                           .shape = shape,
                                           .classes = classes,
                                           .type = VALUE_U8,
                                           .values = values,
                                           .labels = classes ? labels : NULL};
    if (source_memory(&records, &source, &err) != OK)
        fail_msg("%s", err.text);
    return source;
}

/* Labels of one, two and four bytes, and none. */
static void test_bytes(void **state)
{
    static const uint32_t classes[] = {0, 1, 256, 257, 65536, 65537};
    for (size_t k = 0; k < sizeof classes / sizeof *classes; k++) {
        struct source *source = bytes_source(classes[k], COUNT, (struct shape){3, {3, 11, 13}});
        round_trip(*state, source);
        source_close(source);
    }
}

/* A record that is larger than a block, and one of a single byte. */
static void test_sizes_of_records(void **state)
{
    static uint32_t labels[3] = {0, 1, 0};
    struct source *small = bytes_source(2, COUNT, (struct shape){3, {1, 1, 1}});
    struct source_fake large = source_fake_make(labels, 3, (struct shape){3, {2, 90, 100}});
    round_trip(*state, small);
    round_trip(*state, &large.source);
    source_close(small);
}

static void test_fields(void **state)
{
    static int32_t words[COUNT * 5];
    static float speeds[COUNT * 6];
    struct source *part[2], *source;
    struct err err;
    for (int k = 0; k < COUNT * 6; k++)
        speeds[k] = (float)k / 7;
    for (int k = 0; k < COUNT * 5; k++)
        words[k] = k * 31 % 4001 - 2000;
    const struct memory_records records[2] = {
        {.name = "w", .count = COUNT, .shape = {3, {5, 1, 1}}, .type = VALUE_I32, .values = words},
        {.name = "s", .count = COUNT, .shape = {3, {6, 1, 1}}, .type = VALUE_F32, .values = speeds},
    };
    for (size_t k = 0; k < 2; k++)
        assert_int_equal(source_memory(&records[k], &part[k], &err), OK);
    const struct zip_field fields[2] = {{part[0], "words", {0, {0}}},
                                        {part[1], "speeds", {2, {2, 3}}}};
    assert_int_equal(source_zip(fields, 2, &source, &err), OK);
    round_trip(*state, source);
    source_close(source);
}

enum { HALVES = 256 }; /* records, and values of each: all that there are of bf16 */

/* All values as they were bound, NaNs too, and half as many bytes; not in a set with floats. */
static void test_bf16(void **state)
{
    static uint16_t halves[HALVES * HALVES];
    static float floats[HALVES], x[HALVES];
    static uint64_t begin[HALVES + 1];
    const struct shape shape = {3, {HALVES, 1, 1}};
    struct source *source, *other, *again;
    struct pack_result packed;
    struct err err;
    for (uint32_t k = 0; k < HALVES * HALVES; k++)
        halves[k] = (uint16_t)k;
    for (size_t i = 0; i <= HALVES; i++)
        begin[i] = i * HALVES;
    struct memory_records records = {
        .name = "h", .count = HALVES, .shape = shape, .type = VALUE_BF16, .values = halves};
    assert_int_equal(source_memory(&records, &source, &err), OK);
    for (uint32_t i = 0; i < HALVES; i++) {
        uint32_t label;
        read_raw(source, i, x, &label);
        for (uint32_t k = 0; k < HALVES; k++) {
            uint32_t bits;
            memcpy(&bits, &x[k], sizeof bits);
            assert_int_equal(bits, (i * HALVES + k) << 16);
        }
    }
    assert_false(source->is_integer);
    round_trip(*state, source);
    again = pack_and_open(*state, source, UINT64_MAX, &packed);
    assert_true(packed.bytes < sizeof halves + 1024);
    assert_true(again->is_bf16);
    source_close(again);

    floats[0] = 1.0f / 3;
    assert_int_equal(
        source_memory(
            &(struct memory_records){
                .name = "f", .count = 1, .shape = shape, .type = VALUE_F32, .values = floats},
            &other, &err),
        OK);
    assert_int_equal(source_concat((struct source *const[]){source, other}, 2, &again, &err), OK);
    round_trip(*state, again);
    source_close(again);
    begin[HALVES]--;
    records.begin = begin;
    records.fill = 1.0f / 3;
    assert_int_equal(source_memory(&records, &source, &err), OK);
    round_trip(*state, source);
    source_close(source);
}

/* A list of JPEG and PNG files of several sizes: their bytes are in the shard. */
static void test_pictures(void **state)
{
    struct place *place = *state;
    static uint8_t pixels[60 * 60 * 3], bytes[FOLDER_BYTES_MAX], shard[FOLDER_BYTES_MAX];
    Paceline__Data__Images images = PACELINE__DATA__IMAGES__INIT;
    Paceline__Data spec = PACELINE__DATA__INIT;
    struct source *source, *again;
    struct pack_result packed;
    struct err err;
    char list[256], name[SOURCE_NAME_MAX], lines[1024] = "";
    for (size_t k = 0; k < sizeof pixels; k++)
        pixels[k] = (uint8_t)(k * k / 91);
    for (unsigned i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "%u.%s", i, i % 2 ? "png" : "jpg");
        if (i % 2)
            picture_put_png(&place->folder, name, pixels, 20 + i, 40, PNG_COLOR_TYPE_RGB, 8, 120,
                            false);
        else
            picture_put_jpeg(&place->folder, name, pixels, 30, 20 + i, 3, 90);
        snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "%s %u\n", name, i % 3);
    }
    folder_put(&place->folder, "list", lines, strlen(lines));
    images.list = (char *)(uintptr_t)folder_file(&place->folder, "list", list);
    spec.source_case = PACELINE__DATA__SOURCE_IMAGES;
    spec.images = &images;
    assert_int_equal(source_open(&spec, SOURCE_TRAIN, &source, &err), OK);
    round_trip(place, source);
    again = pack_and_open(place, source, UINT64_MAX, &packed);
    assert_true(source_name(again, 3, name)[0]);
    size_t n = folder_get(&place->folder, "0.jpg", bytes);
    assert_true(n > 0 && folder_get(&place->folder, "set-00000.shard", shard) > n);
    assert_memory_equal(shard + SHARD_HEADER, bytes, n);
    folder_file(&place->folder, "more", place->prefix);
    round_trip(place, again);
    source_close(again);
    source_close(source);
}

static void test_names_of_classes(void **state)
{
    struct place *place = *state;
    char *at[] = {(char *)"cat", (char *)"d\u00f6g"}, path[300];
    const struct names names = {at, 2};
    const struct pack_config config = {.disk = &place->disk.disk,
                                       .prefix = place->prefix,
                                       .shard_bytes = UINT64_MAX,
                                       .names = &names};
    struct source *source = bytes_source(2, 10, (struct shape){3, {1, 2, 2}});
    struct pack_result packed;
    struct names found = {0};
    struct err err = {0};
    assert_int_equal(pack_records(source, &config, &packed, &err), OK);
    snprintf(path, sizeof path, "%s-00000.shard", place->prefix);
    assert_int_equal(shards_names(path, NULL, &found, &err), OK);
    assert_int_equal(found.count, 2);
    assert_string_equal(names_at(&found, 0), "cat");
    assert_string_equal(names_at(&found, 1), "d\u00f6g");
    names_release(&found);
    assert_int_equal(pack_records(source, &config, &packed, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "set-00000.shard: exists"));
    source_close(source);
}

/* ---- the format ---- */

/* Three records of two floats in two blocks, as the header's comment describes a shard. */
static size_t write_by_hand(uint8_t *out)
{
    static const float values[6] = {1, -2.5f, 3e8f, 0, 4, 5};
    uint8_t *at = out, *index, *footer;
    memcpy(at, "PLSHARD\0\1\0\0\0\0\0\0\0", 16);
    at += 16;
    for (int k = 0; k < 6; k++, at += 4) {
        uint32_t bits;
        memcpy(&bits, &values[k], 4);
        bytes_put_le32(at, bits);
    }
    index = at;
    bytes_put_le64(at, hash_bytes(out + 16, 16));
    bytes_put_le64(at + 8, hash_bytes(out + 32, 8));
    memcpy(at + 16, "\0\2\1", 3);
    at += 19;
    footer = at;
    /* form, is_integer, label_bytes, block_bytes, C, H, W, classes, fields, names_bytes */
    static const uint32_t words[10] = {2, 0, 1, 9, 2, 1, 1, 3, 0, 0};
    for (int k = 0; k < 10; k++, at += 4)
        bytes_put_le32(at, words[k]);
    /* count, blocks, data_bytes, index_bytes, index_hash, data_hash */
    const uint64_t numbers[6] = {3, 2, 24, 19, hash_bytes(index, 19), 77};
    for (int k = 0; k < 6; k++, at += 8)
        bytes_put_le64(at, numbers[k]);
    bytes_put_le64(at, hash_bytes(footer, 88));
    return (size_t)(at + 8 - out);
}

static void test_format(void **state)
{
    struct place *place = *state;
    uint8_t bytes[256];
    struct source *source;
    struct err err;
    char path[256];
    float x[2];
    uint32_t label;
    folder_put(&place->folder, "hand", bytes, write_by_hand(bytes));
    if (open_shards(folder_file(&place->folder, "hand", path), &source, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(source->count, 3);
    assert_int_equal(source->classes, 3);
    read_raw(source, 0, x, &label);
    assert_true(x[0] == 1 && x[1] == -2.5f && label == 0);
    read_raw(source, 1, x, &label);
    assert_true(x[0] == 3e8f && x[1] == 0 && label == 2);
    read_raw(source, 2, x, &label);
    assert_true(x[0] == 4 && x[1] == 5 && label == 1);
    source_close(source);
}

/* ---- damage ---- */

/* Opens and reads all. Nothing is wrong, or something is refused by the file's name; values are
 * never others. */
static bool is_refused(const char *path, const struct source *right)
{
    struct source *source;
    struct err err = {0};
    struct scratch scratch = {0};
    struct raw raw;
    float x[64], y[64];
    uint32_t label;
    int rc = open_shards(path, &source, &err);
    if (rc != OK) {
        assert_true(rc == ERR_INPUT || rc == ERR_UNSUPPORTED);
        assert_non_null(strstr(err.text, path));
        return true;
    }
    assert_int_equal(source->count, right->count);
    for (size_t i = 0; rc == OK && i < right->count; i++) {
        rc = source->ops->read(source, i, &scratch, &raw, &err);
        if (rc != OK)
            continue;
        raw_floats(&raw, x);
        read_raw(right, i, y, &label);
        assert_memory_equal(x, y, shape_count(&right->shape) * sizeof *x);
        assert_int_equal(source->ops->label(source, i), label);
    }
    if (rc != OK)
        assert_true(rc == ERR_IO && strstr(err.text, path));
    scratch_release(&scratch);
    source_close(source);
    return rc != OK;
}

static void test_every_changed_byte_is_found(void **state)
{
    struct place *place = *state;
    static uint8_t bytes[FOLDER_BYTES_MAX];
    struct source *source = bytes_source(5, 40, (struct shape){3, {1, 3, 5}});
    struct pack_result packed;
    struct err err;
    char path[300];
    assert_int_equal(pack_source(place, source, UINT64_MAX, &packed, &err), OK);
    size_t n = folder_get(&place->folder, "set-00000.shard", bytes);
    assert_int_equal(n, packed.bytes);
    folder_file(&place->folder, "damaged", path);
    for (size_t k = 0; k < n; k++) {
        bool reserved = k >= 12 && k < SHARD_HEADER;
        bytes[k] ^= 0x10;
        folder_put(&place->folder, "damaged", bytes, n);
        if (is_refused(path, source) == reserved)
            fail_msg("byte %zu of %zu", k, n);
        bytes[k] ^= 0x10;
    }
    for (size_t len = 0; len < n; len += 7) {
        folder_put(&place->folder, "damaged", bytes, len);
        assert_true(is_refused(path, source));
    }
    source_close(source);
}

static void test_shards_of_different_kinds(void **state)
{
    struct place *place = *state;
    struct source *a = bytes_source(5, 4, (struct shape){3, {1, 3, 5}});
    struct source *b = bytes_source(5, 4, (struct shape){3, {1, 5, 3}}), *source;
    struct pack_result packed;
    struct err err;
    char shards[800], other[256];
    assert_int_equal(pack_source(place, a, UINT64_MAX, &packed, &err), OK);
    folder_file(&place->folder, "other", other);
    snprintf(shards, sizeof shards, "%s-00000.shard,%s-00000.shard", place->prefix, other);
    memcpy(place->prefix, other, sizeof other);
    assert_int_equal(pack_source(place, b, UINT64_MAX, &packed, &err), OK);
    assert_int_equal(open_shards(shards, &source, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "other-00000.shard: has records of another kind"));
    source_close(a);
    source_close(b);
}

/* ---- writing ---- */

static size_t count_shards(const struct place *place)
{
    size_t n = 0;
    char name[32];
    for (unsigned k = 0; k < 100; k++) {
        snprintf(name, sizeof name, "set-%05u.shard", k);
        n += folder_has(&place->folder, name);
    }
    return n;
}

static void clear_shards(const struct place *place)
{
    char path[300];
    for (unsigned k = 0; k < 100; k++) {
        snprintf(path, sizeof path, "%s-%05u.shard", place->prefix, k);
        unlink(path);
    }
}

/* Each call of the disk fails once: no shard is left, or all are there if the call did not
 * matter. */
static void test_a_disk_that_fails(void **state)
{
    struct place *place = *state;
    struct source *source = bytes_source(5, 40, (struct shape){3, {1, 3, 5}});
    struct pack_result packed;
    struct err err;
    int failures = 0;
    for (int at = 1; at == 1 || place->disk.calls >= at - 1; at++) {
        place->disk.calls = 0;
        place->disk.fail_at = at;
        err = (struct err){0};
        int rc = pack_source(place, source, 200, &packed, &err);
        failures += rc != OK;
        assert_int_equal(count_shards(place), rc == OK ? 3 : 0);
        assert_true(rc == OK || strstr(err.text, "the disk: cannot"));
        clear_shards(place);
    }
    assert_true(failures > 15);
    source_close(source);
}

/* Shards of more records that were there before are removed. */
static void test_fewer_shards_than_before(void **state)
{
    struct place *place = *state;
    struct source *many = bytes_source(5, 40, (struct shape){3, {1, 3, 5}});
    struct source *few = bytes_source(5, 4, (struct shape){3, {1, 3, 5}});
    struct pack_result packed;
    struct err err;
    assert_int_equal(pack_source(place, many, 15, &packed, &err), OK);
    assert_int_equal(count_shards(place), 40);
    assert_int_equal(pack_source(place, few, 15, &packed, &err), OK);
    assert_int_equal(count_shards(place), 4);
    source_close(many);
    source_close(few);
}

/* Two nodes have files of a set, one of them the same file. */
static void test_each_file_is_a_part(void **state)
{
    struct place *place = *state;
    struct source *source = bytes_source(5, 40, (struct shape){3, {1, 3, 5}}), *all, *some;
    struct pack_result packed;
    struct source_part part[3], other[3];
    struct err err;
    char path[300], list[700];
    assert_int_equal(pack_source(place, source, 200, &packed, &err), OK);
    assert_int_equal(packed.shards, 3);
    all = open_packed(place, &packed);
    assert_int_equal(source_parts(all, part, 3), 3);
    assert_true(part[0].count == 14 && part[1].count == 14 && part[2].count == 12);
    folder_file(&place->folder, "set-00002.shard", path);
    snprintf(list, sizeof list, "%s,", path);
    folder_file(&place->folder, "set-00001.shard", path);
    strcat(list, path);
    assert_int_equal(open_shards(list, &some, &err), OK);
    assert_int_equal(source_parts(some, other, 3), 2);
    assert_memory_equal(&other[0], &part[2], sizeof *other);
    assert_memory_equal(&other[1], &part[1], sizeof *other);
    source_close(source);
    source_close(all);
    source_close(some);
}

static void test_cancelled(void **state)
{
    struct place *place = *state;
    struct source *source = bytes_source(5, 40, (struct shape){3, {1, 3, 5}});
    struct watching w = {.watch = {&w, watching_progress}, .cancel_at = 20};
    const struct pack_config config = {
        .disk = &place->disk.disk, .prefix = place->prefix, .shard_bytes = 100, .watch = &w.watch};
    struct pack_result packed;
    struct err err;
    assert_int_equal(pack_records(source, &config, &packed, &err), ERR_CANCELLED);
    assert_int_equal(count_shards(place), 0);
    w = (struct watching){.watch = {&w, watching_progress}};
    assert_int_equal(pack_records(source, &config, &packed, &err), OK);
    assert_string_equal(w.stages, "records ");
    source_close(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sizes_of_records, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bf16, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fields, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pictures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names_of_classes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_format, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_changed_byte_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shards_of_different_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_disk_that_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fewer_shards_than_before, setup, teardown),
        cmocka_unit_test_setup_teardown(test_each_file_is_a_part, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancelled, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
