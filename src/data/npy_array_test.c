/* Archives that numpy.savez and numpy.savez_compressed wrote (test/fuzz/corpus.py), with
 * directories of 32 and 64 bits, whole, truncated and with every byte changed. */
#define _GNU_SOURCE /* memmem */
#include "data/source.h"

#include "base/file.h"
#include "folder.h"

enum { RECORDS = 3, VALUES = 8 };

static const char *const forms[] = {"stored", "deflated", "zip64", "zip64_deflated"};
static const uint32_t labels[RECORDS] = {1, 0, 9};

static bool is_deflated(size_t form)
{
    return form % 2 == 1;
}

static struct file_bytes read_form(const char *form)
{
    char path[512];
    struct file_bytes bytes;
    struct err err = {0};
    snprintf(path, sizeof path, TEST_ROOT "/test/fuzz/corpus/npz/%s", form);
    if (file_read(path, 1 << 16, &bytes, &err) != OK)
        fail_msg("%s", err.text);
    return bytes;
}

static void put_archive(const struct folder *folder, const struct file_bytes *bytes, size_t n)
{
    folder_put(folder, "a.npz", bytes->data, n);
}

/* Arrays of the archive in the folder: what follows a.npz. */
static int open_arrays(const struct folder *folder, const char *x, const char *y,
                       struct source **out, struct err *err)
{
    char values[512], of[512], file[256];
    Paceline__Data__Npy npy = PACELINE__DATA__NPY__INIT;
    Paceline__Data data = PACELINE__DATA__INIT;
    folder_file(folder, "a.npz", file);
    snprintf(values, sizeof values, "%s%s", file, x);
    snprintf(of, sizeof of, "%s%s", file, y);
    data.source_case = PACELINE__DATA__SOURCE_NPY;
    data.npy = &npy;
    npy.values = values;
    npy.labels = *y ? of : NULL;
    *out = NULL;
    *err = (struct err){0};
    struct source_config config = {.root = folder->path};
    return source_open_with(&config, &data, out, err);
}

/* An error by name, or the values that were written. Returns OK for these. */
static int expect_values_or_error(const struct folder *folder)
{
    struct source *source;
    struct err err;
    struct scratch scratch = {0};
    int rc = open_arrays(folder, ":x", ":y", &source, &err);
    if (rc != OK) {
        if ((rc != ERR_INPUT && rc != ERR_UNSUPPORTED) || !strstr(err.text, "a.npz:"))
            fail_msg("%d: %s", rc, err.text);
        return rc;
    }
    assert_int_equal(source->count, RECORDS);
    assert_true(shape_equal(&source->shape, &(struct shape){3, {1, 2, 4}}));
    for (size_t i = 0; i < RECORDS; i++) {
        struct raw raw;
        float x[VALUES];
        assert_int_equal(source->ops->read(source, i, &scratch, &raw, &err), OK);
        raw_floats(&raw, x);
        for (size_t k = 0; k < VALUES; k++)
            assert_true(x[k] == (float)(i * VALUES + k));
        assert_int_equal(source->ops->label(source, i), labels[i]);
    }
    scratch_release(&scratch);
    source_close(source);
    return OK;
}

static void test_arrays_of_an_archive(void **state)
{
    const struct folder *folder = *state;
    uint64_t hash = 0;
    for (size_t i = 0; i < 4; i++) {
        struct file_bytes bytes = read_form(forms[i]);
        struct source *source;
        struct err err;
        put_archive(folder, &bytes, bytes.len);
        assert_int_equal(expect_values_or_error(folder), OK);
        assert_int_equal(open_arrays(folder, ":x.npy", ":y.npy", &source, &err), OK);
        assert_int_equal(source->reading, is_deflated(i) ? SOURCE_IN_MEMORY : SOURCE_READS);
        if (i > 0)
            assert_int_equal(source->hash, hash);
        hash = source->hash;
        source_close(source);
        assert_int_equal(open_arrays(folder, ":zeros", "", &source, &err), OK);
        assert_int_equal(source->shape.dim[0], 1000);
        source_close(source);
        file_release(&bytes);
    }
}

static void test_every_truncation_is_refused(void **state)
{
    for (size_t i = 0; i < 4; i++) {
        struct file_bytes bytes = read_form(forms[i]);
        for (size_t n = 0; n < bytes.len; n++) {
            put_archive(*state, &bytes, n);
            assert_int_not_equal(expect_values_or_error(*state), OK);
        }
        file_release(&bytes);
    }
}

/* Of stored arrays no CRC is checked: those bytes stay. */
static void test_every_changed_byte_is_refused_or_harmless(void **state)
{
    for (size_t i = 0; i < 4; i++) {
        struct file_bytes bytes = read_form(forms[i]);
        const uint8_t *directory = memmem(bytes.data, bytes.len, "PK\1\2", 4);
        size_t refused = 0;
        assert_non_null(directory);
        for (size_t k = is_deflated(i) ? 0 : (size_t)(directory - bytes.data); k < bytes.len; k++)
            for (int change = 0; change < 3; change++) {
                static const uint8_t bits[] = {0x01, 0x80, 0xff};
                bytes.data[k] ^= bits[change];
                put_archive(*state, &bytes, bytes.len);
                refused += expect_values_or_error(*state) != OK;
                bytes.data[k] ^= bits[change];
            }
        assert_true(refused > 100);
        file_release(&bytes);
    }
}

/* A changed number, and the message about it. */
struct patch {
    const char *form, *magic; /* of the part that is changed, the last one of them, */
    size_t at, n;             /* so many bytes behind its begin */
    uint64_t value;           /* as little endian */
    const char *x, *why;
};

static void test_archives_that_are_refused_by_name(void **state)
{
    static const struct patch patches[] = {
        {"stored", NULL, 0, 0, 0, "", "name one of its members, with a colon before: x.npy, y.npy"},
        {"stored", NULL, 0, 0, 0, ":", "name one of its members"},
        {"stored", NULL, 0, 0, 0, ":w", "has no member `w.npy`; it has x.npy, y.npy, zeros.npy"},
        {"double", NULL, 0, 0, 0, ":x", "values are uint8, float32"},
        {"mixed", NULL, 0, 0, 0, ":x", "a.npz:x: not a .npy file"},
        {"mixed", NULL, 0, 0, 0, ":y", "a.npz:y: not a .npy file"},
        {"mixed", NULL, 0, 0, 0, ":z", "compressed by method 12"},
        {"stored", "PK\1\2", 8, 2, 1, ":zeros", "it is encrypted"},
        {"stored", "PK\1\2", 24, 4, 3129, ":zeros", "the sizes in its directory are wrong"},
        {"stored", "PK\1\2", 34, 2, 1, ":zeros", "the sizes in its directory are wrong"},
        {"stored", "PK\1\2", 42, 4, 0, ":zeros", "names another member than there is"},
        {"stored", "PK\1\2", 46 + 4, 1, 'z', ":zeroz", "names another member than there is"},
        {"stored", "PK\1\2", 42, 4, 1 << 20, ":zeros", "a part of it lies behind its end"},
        {"stored", "PK\5\6", 4, 2, 1, ":zeros", "in several files"},
        {"stored", "PK\5\6", 8, 4, 0x20002, ":zeros", "more members than its end says"},
        {"stored", "PK\5\6", 8, 4, 0x40004, ":zeros", "its directory cannot be read"},
        {"stored", "PK\5\6", 16, 4, 5, ":zeros", "is not where its end says"},
        {"stored", "PK\5\6", 20, 2, 1, ":zeros", "not a ZIP archive, or truncated"},
        {"zip64", "PK\6\6", 24, 8, 1, ":zeros", "its ZIP64 end cannot be read"},
        {"zip64", "PK\6\6", 48, 8, UINT64_MAX, ":zeros", "is not where its end says"},
        {"zip64", "PK\6\7", 8, 8, UINT64_MAX, ":zeros", "a part of it lies behind its end"},
        /* bombs: neither is unpacked further than a header may reach */
        {"double", "PK\1\2", 24, 4, 1 << 30, ":zeros",
         "longer than it should be: its header promises 120000 bytes"},
        {"deflated", "PK\1\2", 24, 4, 3129, ":zeros", "cannot be unpacked to its size"},
        {"zip64_deflated", "PK\1\2", 46 + 9 + 4, 8, 1ull << 33, ":zeros",
         "8589934592 bytes when unpacked; at most 4294967296 are"},
        {"deflated", "PK\1\2", 16, 4, 7, ":zeros", "its CRC is wrong"},
        {"deflated", "PK\1\2", 20, 4, 3, ":zeros", "cannot be unpacked to its size"},
    };
    for (size_t i = 0; i < sizeof patches / sizeof *patches; i++) {
        const struct patch *p = &patches[i];
        struct file_bytes bytes = read_form(p->form);
        uint8_t *at = p->magic ? NULL : bytes.data;
        for (size_t k = 0; p->magic && k + 4 <= bytes.len; k++)
            if (memcmp(bytes.data + k, p->magic, 4) == 0)
                at = bytes.data + k;
        assert_non_null(at);
        for (size_t k = 0; k < p->n; k++)
            at[p->at + k] = (uint8_t)(p->value >> 8 * k);
        struct source *source;
        struct err err;
        put_archive(*state, &bytes, bytes.len);
        int rc = open_arrays(*state, p->x, "", &source, &err);
        if ((rc != ERR_INPUT && rc != ERR_UNSUPPORTED) || source || !strstr(err.text, p->why))
            fail_msg("%zu: %d, '%s' does not say '%s'", i, rc, err.text, p->why);
        file_release(&bytes);
    }
}

static void test_an_archive_outside_of_the_root_is_refused(void **state)
{
    struct folder inner = *(struct folder *)*state;
    struct file_bytes bytes = read_form("stored");
    struct source *source;
    struct err err;
    char link[512], target[512];
    folder_file(&inner, "a.npz", link);
    put_archive(&inner, &bytes, 0);
    remove(link);
    snprintf(target, sizeof target, TEST_ROOT "/test/fuzz/corpus/npz/stored");
    assert_int_equal(symlink(target, link), 0);
    assert_int_equal(open_arrays(&inner, ":x", "", &source, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, inner.path));
    remove(link);
    file_release(&bytes);
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrays_of_an_archive),
        cmocka_unit_test(test_every_truncation_is_refused),
        cmocka_unit_test(test_every_changed_byte_is_refused_or_harmless),
        cmocka_unit_test(test_archives_that_are_refused_by_name),
        cmocka_unit_test(test_an_archive_outside_of_the_root_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
