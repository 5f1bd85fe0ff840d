/* Databases that LMDB's own library writes, read by Paceline; and databases with false bytes. */
#include "data/lmdb_file.h"
#include "data/reading.h"
#include "data/source_lmdb.h"
#include "pictures.h"
#include "watching.h"

#include "caffe.pb-c.h"

#include <lmdb.h>

enum { PACKED_MAX = 1 << 16 };

struct stage {
    struct folder folder;
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
};

static int setup(void **state)
{
    struct stage *s = calloc(1, sizeof *s);
    assert_non_null(s);
    folder_make(&s->folder);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct stage *s = *state;
    folder_remove(&s->folder);
    free(s);
    return 0;
}

static void begin_transaction(struct stage *s, unsigned flags)
{
    assert_int_equal(mdb_env_create(&s->env), 0);
    assert_int_equal(mdb_env_set_mapsize(s->env, 64u << 20), 0);
    assert_int_equal(mdb_env_set_maxdbs(s->env, 2), 0);
    assert_int_equal(mdb_env_open(s->env, s->folder.path, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(s->env, NULL, 0, &s->txn), 0);
    assert_int_equal(mdb_dbi_open(s->txn, NULL, flags, &s->dbi), 0);
}

static void put_bytes(struct stage *s, const char *key, const void *bytes, size_t n)
{
    MDB_val k = {strlen(key), (void *)(uintptr_t)key}, v = {n, (void *)(uintptr_t)bytes};
    assert_int_equal(mdb_put(s->txn, s->dbi, &k, &v, 0), 0);
}

static void commit_transaction(struct stage *s)
{
    assert_int_equal(mdb_txn_commit(s->txn), 0);
    mdb_env_close(s->env);
}

static void put_datum(struct stage *s, const char *key, const Caffe__Datum *datum)
{
    static uint8_t bytes[PACKED_MAX];
    size_t n = caffe__datum__get_packed_size(datum);
    assert_true(n <= sizeof bytes);
    caffe__datum__pack(datum, bytes);
    put_bytes(s, key, bytes, n);
}

/* Bytes of (C, H, W), value k being k + `first`. */
static void put_values(struct stage *s, const char *key, int C, int H, int W, int label,
                       uint8_t first)
{
    static uint8_t values[PACKED_MAX];
    Caffe__Datum d = CAFFE__DATUM__INIT;
    d.has_channels = d.has_height = d.has_width = d.has_data = d.has_label = 1;
    d.channels = C;
    d.height = H;
    d.width = W;
    d.label = label;
    for (int k = 0; k < C * H * W; k++)
        values[k] = (uint8_t)(k + first);
    d.data = (ProtobufCBinaryData){(size_t)(C * H * W), values};
    put_datum(s, key, &d);
}

static int open_lmdb(const char *path, struct source **out, struct err *err)
{
    Paceline__Data__Lmdb lmdb = PACELINE__DATA__LMDB__INIT;
    Paceline__Data spec = PACELINE__DATA__INIT;
    lmdb.path = (char *)(uintptr_t)path;
    spec.source_case = PACELINE__DATA__SOURCE_LMDB;
    spec.lmdb = &lmdb;
    return source_open(&spec, SOURCE_TRAIN, out, err);
}

static struct source *must_open(const char *path)
{
    struct source *source;
    struct err err;
    if (open_lmdb(path, &source, &err) != OK)
        fail_msg("%s", err.text);
    return source;
}

/* Some thousand records, small ones in leaves and large ones in pages of their own, put in any
 * order, come out in the order of keys; the tree has three levels. */
static void test_records_in_the_order_of_keys(void **state)
{
    struct stage *s = *state;
    enum { N = 3000 };
    char path[256], key[32];
    begin_transaction(s, 0);
    for (int k = 0; k < N; k++) {
        int i = k * 7 % N;
        snprintf(key, sizeof key, "%08d_some_picture", i);
        put_values(s, key, 3, 5, 4, i % 10, (uint8_t)i);
    }
    commit_transaction(s);
    struct source *source = must_open(s->folder.path);
    assert_int_equal(source->count, N);
    assert_int_equal(source->classes, 10);
    assert_int_equal(source->shape.dim[0], 3);
    assert_int_equal(source->shape.dim[1], 5);
    assert_int_equal(source->shape.dim[2], 4);
    for (size_t i = 0; i < N; i++) {
        float x[60];
        uint32_t label;
        read_raw(source, i, x, &label);
        assert_int_equal(label, i % 10);
        for (size_t k = 0; k < 60; k++)
            assert_true(x[k] == (float)(uint8_t)(k + i));
    }
    uint64_t hash = source->hash;
    source_close(source);
    source = must_open(folder_file(&s->folder, "data.mdb", path));
    assert_true(source->hash == hash);
    source_close(source);
}

static void test_values_that_do_not_fit_a_leaf(void **state)
{
    struct stage *s = *state;
    begin_transaction(s, 0);
    put_values(s, "a", 3, 32, 32, 4, 1);
    put_values(s, "b", 3, 70, 70, 2, 9);
    put_values(s, "c", 3, 32, 32, 0, 2);
    commit_transaction(s);
    struct source *source = must_open(s->folder.path);
    static float x[3 * 70 * 70];
    uint32_t label;
    size_t H, W;
    assert_int_equal(source->shape.dim[1], 0);
    source_size(source, 1, &H, &W);
    assert_true(H == 70 && W == 70);
    read_raw(source, 1, x, &label);
    assert_int_equal(label, 2);
    for (size_t k = 0; k < 3 * 70 * 70; k++)
        assert_true(x[k] == (float)(uint8_t)(k + 9));
    read_raw(source, 2, x, &label);
    assert_true(x[0] == 2 && label == 0);
    source_close(source);
}

static void test_floats(void **state)
{
    struct stage *s = *state;
    float values[] = {0.5f, -3, 1e20f, 0};
    Caffe__Datum d = CAFFE__DATUM__INIT;
    d.has_channels = d.has_height = d.has_width = 1;
    d.channels = 1;
    d.height = d.width = 2;
    d.n_float_data = 4;
    d.float_data = values;
    begin_transaction(s, 0);
    put_datum(s, "f", &d);
    static const uint8_t packed[] = {
        0x32, 16, 0, 0, 0,    0x3f, 0, 0, 0x40, 0xc0, 0,  0,
        0,    0,  0, 0, 0x80, 0x3f, 8, 1, 16,   2,    24, 2}; /* 0.5 -3 0 1, then the shape */
    put_bytes(s, "g", packed, sizeof packed);
    values[2] = __builtin_inff();
    put_datum(s, "h", &d);
    commit_transaction(s);
    struct source *source = must_open(s->folder.path);
    float x[4];
    uint32_t label;
    read_raw(source, 0, x, &label);
    assert_true(x[0] == 0.5f && x[1] == -3 && x[2] == 1e20f && x[3] == 0 && label == 0);
    read_raw(source, 1, x, &label);
    assert_true(x[0] == 0.5f && x[1] == -3 && x[2] == 0 && x[3] == 1);
    struct scratch scratch = {0};
    struct raw raw;
    struct err err = {0};
    assert_int_equal(source->ops->read(source, 2, &scratch, &raw, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "record 2: value 2 is not a finite number"));
    scratch_release(&scratch);
    source_close(source);
}

static void test_files_of_pictures(void **state)
{
    struct stage *s = *state;
    static uint8_t file[FOLDER_BYTES_MAX];
    const uint8_t rgb[] = {1, 2, 3, 250, 251, 252};
    picture_put_png(&s->folder, "p", rgb, 1, 2, PNG_COLOR_TYPE_RGB, 8, 6, false);
    Caffe__Datum d = CAFFE__DATUM__INIT;
    d.has_encoded = d.encoded = d.has_data = d.has_label = 1;
    d.label = 5;
    d.data = (ProtobufCBinaryData){folder_get(&s->folder, "p", file), file};
    begin_transaction(s, 0);
    put_datum(s, "p", &d);
    commit_transaction(s);
    struct source *source = must_open(s->folder.path);
    float x[6];
    uint32_t label;
    assert_int_equal(source->shape.dim[0], 3);
    read_raw(source, 0, x, &label);
    const float bgr[] = {3, 252, 2, 251, 1, 250}; /* Caffe's order, unless asked otherwise */
    assert_memory_equal(x, bgr, sizeof x);
    assert_int_equal(label, 5);
    source_close(source);
}

static void expect_refusal(const char *path, const char *why)
{
    struct source *source = NULL;
    struct err err = {0};
    assert_int_equal(open_lmdb(path, &source, &err), ERR_INPUT);
    assert_null(source);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" should say \"%s\"", err.text, why);
}

static void test_records_that_are_none(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *why;
    } bad[] = {
        {"\x08\x01\x10\x02\x18\x02\x22\x03"
         "abc",
         11, "Datum of 1 x 2 x 2 has 3 bytes"},
        {"\x08\x01\x10\x02\x18\x02\x22\x05"
         "abcd",
         12, "no Datum: wrong at byte"},
        {"\x08\x01\x10\x02\x18\x02", 6, "Datum of 1 x 2 x 2 has 0 floats"},
        {"\x22\x01"
         "a",
         3, "Datum of 0 x 0 x 0, expected 1 to 16384 each"},
        {"\x08\x01\x10\x01\x18\x01\x22\x01"
         "a\x28\x80\x80\x40",
         13, "label 1048576 is out of range"},
        {"\x08\x01\x10\x01\x18\x01\x22\x01"
         "a\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
         20, "label -1 is out of range"},
        {"\x08\xff\xff\xff\xff\x07\x10\xff\xff\xff\xff\x07\x18\xff\xff\xff\xff\x07", 18,
         "Datum of 2147483647 x 2147483647 x 2147483647"},
        {"\x0a\x01"
         "a",
         3, "field 1 is of another type"},
        {"\x38\x01\x22\x03"
         "GIF",
         7, "neither JPEG nor PNG"},
        {"\x38\x01", 2, "empty"},
        {"\x0b", 1, "no Datum"},
        {"\x00", 1, "no Datum"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct stage s = {0};
        (void)state;
        folder_make(&s.folder);
        begin_transaction(&s, 0);
        put_values(&s, "a", 1, 1, 1, 0, 0);
        put_bytes(&s, "b\x01", bad[i].bytes, bad[i].n);
        commit_transaction(&s);
        expect_refusal(s.folder.path, "data.mdb: record 1 (key b\\x01): ");
        expect_refusal(s.folder.path, bad[i].why);
        folder_remove(&s.folder);
    }
}

static void test_databases_of_another_kind(void **state)
{
    struct stage *s = *state;
    char path[256];
    expect_refusal(s->folder.path, "no LMDB: there is no data.mdb in it");
    folder_put(&s->folder, "CURRENT", "MANIFEST-000004\n", 16);
    expect_refusal(s->folder.path, "a LevelDB, which is not read");
    folder_put(&s->folder, "data.mdb", "", 0);
    expect_refusal(s->folder.path, "0 bytes, too short for an LMDB");
    assert_int_equal(unlink(folder_file(&s->folder, "data.mdb", path)), 0);
    begin_transaction(s, 0);
    commit_transaction(s);
    expect_refusal(s->folder.path, "");
    begin_transaction(s, MDB_DUPSORT | MDB_CREATE);
    put_bytes(s, "a", "x", 1);
    commit_transaction(s);
    expect_refusal(s->folder.path, "keys may have several values");
}

static void test_channels_must_agree(void **state)
{
    struct stage *s = *state;
    begin_transaction(s, 0);
    put_values(s, "a", 1, 2, 2, 0, 0);
    put_values(s, "b", 3, 2, 2, 0, 0);
    commit_transaction(s);
    expect_refusal(s->folder.path, "record 1 (key b): 3 channels, those before it have 1");
}

/* ---- bytes that lie ---- */

static int count_entry(void *user, const uint8_t *key, size_t key_len, const struct part_of *value)
{
    uint8_t head[64];
    size_t n = part_left(value, 0, sizeof head);
    (void)key;
    (void)key_len;
    assert_int_equal(part_read(value, 0, head, n), OK);
    ++*(size_t *)user;
    return OK;
}

static int walk_file(const char *path, size_t *count)
{
    struct file_open file;
    struct err err;
    *count = 0;
    const struct lmdb_callback callback = {.entry = count_entry, .user = count};
    assert_int_equal(file_open(path, &file, &err), OK);
    int rc = lmdb_walk(&file, "t", &callback, &err);
    file_close(&file);
    return rc;
}

/* A database of a few pages, any bit of which is another, and cut at any page: entries or an error.
 */
static void test_every_bit_changed(void **state)
{
    struct stage *s = *state;
    char path[256], key[16];
    begin_transaction(s, 0);
    for (int i = 0; i < 150; i++) {
        snprintf(key, sizeof key, "%08d", i);
        put_values(s, key, 1, 5, 8, 0, 0);
    }
    put_values(s, "large", 1, 60, 60, 0, 0);
    commit_transaction(s);
    folder_file(&s->folder, "data.mdb", path);
    static uint8_t bytes[FOLDER_BYTES_MAX];
    size_t n = folder_get(&s->folder, "data.mdb", bytes), count;
    assert_int_equal(walk_file(path, &count), OK);
    assert_int_equal(count, 151);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    setvbuf(file, NULL, _IONBF, 0);
    for (size_t at = 0; at < n; at++) {
        size_t in_page = at % 4096;
        if (in_page > 300 && in_page % 37 != 0) /* heads and lists all, values here and there */
            continue;
        for (int bit = 0; bit < 8; bit++) {
            fseek(file, (long)at, SEEK_SET);
            fputc(bytes[at] ^ 1 << bit, file);
            int rc = walk_file(path, &count);
            assert_true(rc == OK || rc == ERR_INPUT);
            assert_true(count <= 151 + 256);
            fseek(file, (long)at, SEEK_SET);
            fputc(bytes[at], file);
        }
    }
    fclose(file);
    for (size_t len = 0; len < n; len += 512) {
        assert_int_equal(truncate(path, (off_t)len), 0);
        int rc = walk_file(path, &count);
        assert_true(rc == ERR_INPUT || rc == OK); /* OK: what is cut off was free */
        folder_put(&s->folder, "data.mdb", bytes, n);
    }
}

/* A branch that leads back to itself ends by the count of levels and pages. */
static void test_a_tree_that_is_a_ring(void **state)
{
    struct stage *s = *state;
    char path[256], key[16];
    begin_transaction(s, 0);
    for (int i = 0; i < 400; i++) {
        snprintf(key, sizeof key, "%08d", i);
        put_values(s, key, 1, 5, 8, 0, 0);
    }
    commit_transaction(s);
    folder_file(&s->folder, "data.mdb", path);
    static uint8_t bytes[FOLDER_BYTES_MAX];
    size_t n = folder_get(&s->folder, "data.mdb", bytes), count, branches = 0;
    for (size_t page = 2; page < n / 4096; page++) {
        uint8_t *head = bytes + page * 4096;
        if (!(head[10] & 1))
            continue;
        branches++;
        size_t entries = ((size_t)(head[12] | head[13] << 8) - 16) / 2;
        for (size_t i = 0; i < entries; i++) {
            size_t at = (size_t)(head[16 + 2 * i] | head[17 + 2 * i] << 8);
            memcpy(head + at, head, 4); /* its own number */
        }
    }
    assert_true(branches > 0);
    folder_put(&s->folder, "data.mdb", bytes, n);
    assert_int_equal(walk_file(path, &count), ERR_INPUT);
}

static int open_watched(void *user, const struct open_watch *watch, struct err *err)
{
    Paceline__Data__Lmdb lmdb = PACELINE__DATA__LMDB__INIT;
    const struct source_config config = {.watch = watch};
    struct source *source;
    lmdb.path = user;
    int rc = source_lmdb_open(&config, &lmdb, &source, err);
    if (rc == OK)
        source_close(source);
    return rc;
}

static void test_opening_is_watched_and_cancelled(void **state)
{
    struct stage *s = *state;
    char key[8];
    begin_transaction(s, 0);
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "%04d", i);
        put_values(s, key, 1, 16, 16, 0, 0);
    }
    commit_transaction(s);
    watching_story(open_watched, s->folder.path, "records ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_records_in_the_order_of_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_opening_is_watched_and_cancelled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_values_that_do_not_fit_a_leaf, setup, teardown),
        cmocka_unit_test_setup_teardown(test_floats, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files_of_pictures, setup, teardown),
        cmocka_unit_test(test_records_that_are_none),
        cmocka_unit_test_setup_teardown(test_databases_of_another_kind, setup, teardown),
        cmocka_unit_test_setup_teardown(test_channels_must_agree, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_bit_changed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_tree_that_is_a_ring, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
