/* Files of NumPy's, byte by byte as its version 1 of the format has them, whole and broken. */
#include "data/source.h"

#include "data/reading.h"
#include "folder.h"

enum { RECORDS = 3, VALUES = 4 };

struct npy_file {
    uint8_t bytes[4096];
    size_t n;
};

/* The magic, the version, the length of the text, and the text, filled up so that the values begin
 * at a multiple of 64 bytes. */
static void put_header(struct npy_file *f, int version, const char *text)
{
    size_t lengths = version == 1 ? 2 : 4, start = 8 + lengths, n = strlen(text) + 1;
    size_t all = (start + n + 63) / 64 * 64 - start;
    memcpy(f->bytes, "\x93NUMPY", 6);
    f->bytes[6] = (uint8_t)version;
    f->bytes[7] = 0;
    for (size_t i = 0; i < lengths; i++)
        f->bytes[8 + i] = (uint8_t)(all >> 8 * i);
    memset(f->bytes + start, ' ', all);
    memcpy(f->bytes + start, text, n - 1);
    f->bytes[start + all - 1] = '\n';
    f->n = start + all;
}

static void put_values(struct npy_file *f, const void *values, size_t n)
{
    memcpy(f->bytes + f->n, values, n);
    f->n += n;
}

static const uint8_t pixels[RECORDS][VALUES] = {{1, 2, 3, 4}, {5, 6, 7, 255}, {0, 9, 10, 11}};
static const float numbers[RECORDS][VALUES] = {{1, 2, 3, 4}, {5, 6, 7, -0.5f}, {0, 9, 10, 11}};
static const int64_t labels[RECORDS] = {2, 0, 1};

#define U1  "{'descr': '|u1', 'fortran_order': False, 'shape': "
#define F4  "{'descr': '<f4', 'fortran_order': False, 'shape': "
#define I8  "{'descr': '<i8', 'fortran_order': False, 'shape': "
#define END ", }"

static void put_pair(const struct folder *folder, const struct npy_file *values,
                     const struct npy_file *of)
{
    folder_put(folder, "x.npy", values->bytes, values->n);
    folder_put(folder, "y.npy", of->bytes, of->n);
}

static int open_pair(const struct folder *folder, struct source **source, struct err *err)
{
    char x[256], y[256];
    Paceline__Data__Npy npy = PACELINE__DATA__NPY__INIT;
    Paceline__Data data = PACELINE__DATA__INIT;
    data.source_case = PACELINE__DATA__SOURCE_NPY;
    data.npy = &npy;
    npy.values = (char *)(uintptr_t)folder_file(folder, "x.npy", x);
    npy.labels = (char *)(uintptr_t)folder_file(folder, "y.npy", y);
    *source = NULL;
    return source_open(&data, SOURCE_TRAIN, source, err);
}

static struct npy_file good_values(void)
{
    struct npy_file f;
    put_header(&f, 1, U1 "(3, 2, 2)" END);
    put_values(&f, pixels, sizeof pixels);
    return f;
}

static struct npy_file good_labels(void)
{
    struct npy_file f;
    put_header(&f, 1, I8 "(3,)" END);
    put_values(&f, labels, sizeof labels);
    return f;
}

static void expect_source(const struct folder *folder, size_t C, size_t H, size_t W, bool floats)
{
    struct source *source;
    struct scratch scratch = {0};
    struct err err = {0};
    if (open_pair(folder, &source, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(source->count, RECORDS);
    assert_int_equal(source->classes, 3);
    assert_true(shape_equal(&source->shape, &(struct shape){3, {C, H, W}}));
    for (size_t i = RECORDS; i-- > 0;) {
        struct raw raw;
        float x[VALUES];
        assert_int_equal(source->ops->read(source, i, &scratch, &raw, &err), OK);
        raw_floats(&raw, x);
        for (size_t k = 0; k < VALUES; k++)
            assert_true(x[k] == (floats ? numbers[i][k] : (float)pixels[i][k]));
        assert_int_equal(source->ops->label(source, i), labels[i]);
    }
    scratch_release(&scratch);
    source_close(source);
}

static void test_arrays_of_every_shape(void **state)
{
    const struct folder *folder = *state;
    static const struct {
        const char *text;
        size_t C, H, W;
    } shapes[] = {
        {"(3, 2, 2)", 1, 2, 2}, {"(3, 4)", 4, 1, 1},      {"(3, 2, 2, 1)", 2, 2, 1},
        {"(3,1,1,4)", 1, 1, 4}, {"(3,2,1,2,1)", 4, 1, 1},
    };
    const struct npy_file of = good_labels();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int version = 1; version <= 3; version++) {
            struct npy_file values;
            char text[128];
            snprintf(text, sizeof text, U1 "%s" END, shapes[i].text);
            put_header(&values, version, text);
            put_values(&values, pixels, sizeof pixels);
            put_pair(folder, &values, &of);
            expect_source(folder, shapes[i].C, shapes[i].H, shapes[i].W, false);
            snprintf(text, sizeof text, F4 "%s" END, shapes[i].text);
            put_header(&values, version, text);
            put_values(&values, numbers, sizeof numbers);
            put_pair(folder, &values, &of);
            expect_source(folder, shapes[i].C, shapes[i].H, shapes[i].W, true);
        }
}

static void test_labels_of_every_type(void **state)
{
    const struct folder *folder = *state;
    static const char *const types[] = {"|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8"};
    const struct npy_file values = good_values();
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct npy_file of;
        char text[128];
        size_t bytes = (size_t)(types[t][2] - '0');
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (3%s), }",
                 types[t], t % 2 ? ", 1" : ",");
        put_header(&of, 1, text);
        for (size_t i = 0; i < RECORDS; i++) {
            const uint8_t label[8] = {(uint8_t)labels[i]};
            put_values(&of, label, bytes);
        }
        put_pair(folder, &values, &of);
        expect_source(folder, 1, 2, 2, false);
    }
}

static void expect_refusal(const struct folder *folder, const struct npy_file *values,
                           const struct npy_file *of, const char *text)
{
    struct source *source;
    struct err err = {0};
    put_pair(folder, values, of);
    int rc = open_pair(folder, &source, &err);
    if ((rc != ERR_INPUT && rc != ERR_UNSUPPORTED) || source || !strstr(err.text, text) ||
        !strstr(err.text, folder->path))
        fail_msg("%d, '%s' does not say '%s'", rc, err.text, text);
}

/* A file of values with another header, or labels with one. */
static void refuse_values(const struct folder *folder, const char *header, const char *text)
{
    const struct npy_file of = good_labels();
    struct npy_file values;
    put_header(&values, 1, header);
    put_values(&values, pixels, sizeof pixels);
    expect_refusal(folder, &values, &of, text);
}

static void refuse_labels(const struct folder *folder, const char *header, const void *bytes,
                          size_t n, const char *text)
{
    const struct npy_file values = good_values();
    struct npy_file of;
    put_header(&of, 1, header);
    put_values(&of, bytes, n);
    expect_refusal(folder, &values, &of, text);
}

static void test_headers_that_are_wrong(void **state)
{
    const struct folder *folder = *state;
    static const char *const shapes[] = {
        "()",     "(0, 4)",     "(3, 2, 2", "(3, -4)",
        "(3, x)", "3, 4",       "(3 4)",    "(3,2,2,1,1,1,1,1,1)",
        "",       "(3, 2, 2, ", "(",        "(3, 99999999999999999999)"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char header[128];
        snprintf(header, sizeof header, U1 "%s", shapes[i]);
        refuse_values(folder, header, i == 11 ? "" : "its shape has 1 to 8 dimensions");
    }
    refuse_values(folder, U1 "(12,)" END, ": 3 labels; 12 labels are expected");
    refuse_values(folder, U1 "(3, 2, 3)" END, "truncated: its header promises 18 bytes");
    refuse_values(folder, U1 "(3, 3)" END, "longer than it should be: its header promises 9 bytes");
    refuse_values(folder, U1 "(4294967296, 4294967296)" END, "truncated");
    refuse_values(folder, "{'descr': '|u1', 'fortran_order': True, 'shape': (3, 4), }",
                  "numpy.ascontiguousarray");
    refuse_values(folder, "{'descr': '>f4', 'fortran_order': False, 'shape': (3, 1), }",
                  "byte order");
    refuse_values(folder, "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 1), }",
                  "truncated");
    refuse_values(folder, "{'descr': '<f2', 'fortran_order': False, 'shape': (3, 2), }",
                  "x.astype('float32')");
    refuse_values(folder, "{'descr': '|O', 'fortran_order': False, 'shape': (3, 1), }",
                  "no type that can be read");
    refuse_values(folder, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3, 1), }",
                  "several fields");
    refuse_values(folder, "{}", "no type that can be read");
}

/* Of 16 to 64 bits, without labels; one that no float holds is a broken record. */
static void test_integers_without_labels(void **state)
{
    const struct folder *folder = *state;
    static const int64_t i64[3][2] = {{-3, 16777216}, {0, 7}, {16777217, 1}};
    static const uint16_t u16[3][2] = {{65535, 0}, {1, 2}, {3, 4}};
    static const struct {
        const char *header;
        const void *values;
        size_t bytes;
        float first[2];
    } cases[] = {{"{'descr': '<i8', 'fortran_order': False, 'shape': (3, 2), }",
                  i64,
                  sizeof i64,
                  {-3, 16777216}},
                 {"{'descr': '<u2', 'fortran_order': False, 'shape': (3, 2), }",
                  u16,
                  sizeof u16,
                  {65535, 0}}};
    for (size_t k = 0; k < 2; k++) {
        struct npy_file file;
        struct source *source;
        struct scratch scratch = {0};
        struct raw raw;
        struct err err = {0};
        char x[256];
        Paceline__Data data = PACELINE__DATA__INIT;
        Paceline__Data__Npy npy = PACELINE__DATA__NPY__INIT;
        put_header(&file, 1, cases[k].header);
        put_values(&file, cases[k].values, cases[k].bytes);
        put_pair(folder, &file, &file);
        npy.values = (char *)(uintptr_t)folder_file(folder, "x.npy", x);
        data.source_case = PACELINE__DATA__SOURCE_NPY;
        data.npy = &npy;
        if (source_open(&data, SOURCE_TRAIN, &source, &err) != OK)
            fail_msg("%s", err.text);
        assert_int_equal(source->classes, 0);
        assert_true(source->is_integer);
        assert_int_equal(source->ops->read(source, 0, &scratch, &raw, &err), OK);
        assert_memory_equal(raw.at, cases[k].first, sizeof cases[k].first);
        assert_int_equal(source->ops->read(source, 2, &scratch, &raw, &err),
                         k == 0 ? ERR_INPUT : OK);
        scratch_release(&scratch);
        source_close(source);
    }
}

static void test_labels_that_are_wrong(void **state)
{
    const struct folder *folder = *state;
    static const int64_t negative[] = {0, -1, 2}, large[] = {0, 1 << 20, 2};
    static const float floats[] = {0, 1, 2};
    refuse_labels(folder, I8 "(2,)" END, labels, 16, ": 2 labels; 3 labels are expected");
    refuse_labels(folder, I8 "(1, 3)" END, labels, 24, ": 1 x 3 labels; 3 labels are expected");
    refuse_labels(folder, I8 "(3,)" END, negative, 24, "label 1 is negative");
    refuse_labels(folder, I8 "(3,)" END, large, 24, "label 1 is negative, or not below 1048576");
    refuse_labels(folder, F4 "(3,)" END, floats, 12, "y.astype('int64')");
}

/* Every file that is too short is refused. */
static void test_files_that_end_too_early(void **state)
{
    const struct folder *folder = *state;
    const struct npy_file values = good_values(), of = good_labels();
    for (size_t n = 0; n < values.n; n++) {
        struct npy_file less = values;
        less.n = n;
        expect_refusal(folder, &less, &of, n < 12 ? "not a .npy file" : "truncated");
    }
    for (size_t n = 0; n < of.n; n++) {
        struct npy_file less = of;
        less.n = n;
        expect_refusal(folder, &values, &less, n < 12 ? "not a .npy file" : "truncated");
    }
    struct npy_file other = values;
    other.bytes[6] = 4;
    expect_refusal(folder, &other, &of, "version 4");
}

/* The identity covers values and labels. */
static void test_hashes(void **state)
{
    const struct folder *folder = *state;
    uint64_t hash[4];
    for (int i = 0; i < 4; i++) {
        struct npy_file values = good_values(), of = good_labels();
        struct source *source;
        struct err err = {0};
        if (i == 1)
            values.bytes[values.n - 1] ^= 1;
        if (i == 2)
            of.bytes[of.n - 8] = 2;
        put_pair(folder, &values, &of);
        assert_int_equal(open_pair(folder, &source, &err), OK);
        hash[i] = source->hash;
        source_close(source);
    }
    assert_int_equal(hash[0], hash[3]);
    assert_int_not_equal(hash[0], hash[1]);
    assert_int_not_equal(hash[0], hash[2]);
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
        cmocka_unit_test(test_arrays_of_every_shape),
        cmocka_unit_test(test_labels_of_every_type),
        cmocka_unit_test(test_headers_that_are_wrong),
        cmocka_unit_test(test_integers_without_labels),
        cmocka_unit_test(test_labels_that_are_wrong),
        cmocka_unit_test(test_files_that_end_too_early),
        cmocka_unit_test(test_hashes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
