/* IDX files made by hand, whole and broken, and the installed Fashion-MNIST where there is one. */
#include "data/source.h"

#include "data/reading.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* Three images of 2 x 4 pixels and their labels. */
static const uint8_t IMAGES[] = {0,  0,  8,  3,  0,  0,   0,   3,   0,  0,  0,  2,  0,  0,
                                 0,  4,  0,  1,  2,  3,   4,   5,   6,  7,  10, 11, 12, 13,
                                 14, 15, 16, 17, 20, 255, 254, 128, 24, 25, 26, 27};
static const uint8_t LABELS[] = {0, 0, 8, 1, 0, 0, 0, 3, 4, 0, 7};

struct fixture {
    char folder[64];
    char images[96], labels[96];
};

static void put_plain(const char *path, const void *data, size_t len)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static void put_gzip(const char *path, const void *data, size_t len)
{
    gzFile gz = gzopen(path, "wb");
    assert_non_null(gz);
    assert_int_equal(gzwrite(gz, data, (unsigned)len), len);
    assert_int_equal(gzclose(gz), Z_OK);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    strcpy(f->folder, "/tmp/paceline_idx_XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->images, sizeof f->images, "%s/images", f->folder);
    snprintf(f->labels, sizeof f->labels, "%s/labels", f->folder);
    put_plain(f->images, IMAGES, sizeof IMAGES);
    put_plain(f->labels, LABELS, sizeof LABELS);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    remove(f->images);
    remove(f->labels);
    rmdir(f->folder);
    free(f);
    return 0;
}

static int open_pair(const char *images, const char *labels, struct source **out, struct err *err)
{
    Paceline__Data__Idx idx = PACELINE__DATA__IDX__INIT;
    idx.images = (char *)(uintptr_t)images;
    idx.labels = (char *)(uintptr_t)labels;
    Paceline__Data spec = PACELINE__DATA__INIT;
    spec.source_case = PACELINE__DATA__SOURCE_IDX;
    spec.idx = &idx;
    return source_open(&spec, SOURCE_TRAIN, out, err);
}

/* The pair is refused as bad input, `at` and `why` are both in the message, nothing is written. */
static void expect_refusal(const struct fixture *f, const char *at, const char *why)
{
    struct source *source = NULL;
    struct err err = {0};
    assert_int_equal(open_pair(f->images, f->labels, &source, &err), ERR_INPUT);
    assert_null(source);
    if (!strstr(err.text, at) || !strstr(err.text, why))
        fail_msg("\"%s\" should name \"%s\" and say \"%s\"", err.text, at, why);
}

static void put_header(uint8_t *file, uint32_t N, uint32_t H, uint32_t W)
{
    const uint32_t dims[] = {N, H, W};
    for (int d = 0; d < 3; d++)
        for (int b = 0; b < 4; b++)
            file[4 + 4 * d + b] = (uint8_t)(dims[d] >> (24 - 8 * b));
}

static void test_reads_images_and_labels(void **state)
{
    struct fixture *f = *state;
    struct source *source;
    struct err err;
    assert_int_equal(open_pair(f->images, f->labels, &source, &err), OK);
    assert_string_equal(source->ops->kind, "idx");
    assert_int_equal(source->count, 3);
    assert_int_equal(source->shape.n, 3);
    assert_int_equal(source->shape.dim[0], 1);
    assert_int_equal(source->shape.dim[1], 2);
    assert_int_equal(source->shape.dim[2], 4);
    assert_int_equal(source->classes, 8);
    float x[8];
    uint32_t label;
    read_raw(source, 2, x, &label);
    const float last[8] = {20, 255, 254, 128, 24, 25, 26, 27};
    assert_memory_equal(x, last, sizeof x);
    assert_int_equal(label, 7);
    read_raw(source, 0, x, &label);
    assert_true(x[0] == 0.0f && x[7] == 7.0f);
    assert_int_equal(label, 4);
    assert_int_equal(source->ops->label(source, 1), 0);
    source_close(source);
}

static void test_gzip_is_the_same_data(void **state)
{
    struct fixture *f = *state;
    struct source *plain, *packed, *changed;
    struct err err;
    assert_int_equal(open_pair(f->images, f->labels, &plain, &err), OK);
    put_gzip(f->images, IMAGES, sizeof IMAGES);
    put_gzip(f->labels, LABELS, sizeof LABELS);
    assert_int_equal(open_pair(f->images, f->labels, &packed, &err), OK);
    assert_true(packed->hash == plain->hash);
    float x[8], y[8];
    uint32_t a, b;
    for (size_t i = 0; i < 3; i++) {
        read_raw(plain, i, x, &a);
        read_raw(packed, i, y, &b);
        assert_memory_equal(x, y, sizeof x);
        assert_int_equal(a, b);
    }

    /* One label changed, and it is other data. */
    uint8_t labels[sizeof LABELS];
    memcpy(labels, LABELS, sizeof labels);
    labels[8] = 5;
    put_plain(f->labels, labels, sizeof labels);
    assert_int_equal(open_pair(f->images, f->labels, &changed, &err), OK);
    assert_true(changed->hash != plain->hash);
    source_close(plain);
    source_close(packed);
    source_close(changed);
}

static void test_no_source_is_an_error(void **state)
{
    (void)state;
    Paceline__Data spec = PACELINE__DATA__INIT;
    struct source *source = NULL;
    struct err err = {0};
    assert_int_equal(source_open(&spec, SOURCE_TRAIN, &source, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "no source"));
    assert_int_equal(open_pair(NULL, "x", &source, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "idx.images"));
    assert_int_equal(open_pair("x", "", &source, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "idx.labels"));
    assert_null(source);
    source_close(NULL);
}

static void test_missing_files(void **state)
{
    struct fixture *f = *state;
    remove(f->labels);
    expect_refusal(f, f->labels, "No such file");
    remove(f->images);
    expect_refusal(f, f->images, "No such file");
    assert_int_equal(mkdir(f->images, 0700), 0);
    expect_refusal(f, f->images, "not a regular file");
    rmdir(f->images);
}

/* Cut anywhere, an image file is refused, and says by how much it is short. */
static void test_every_truncation_of_images(void **state)
{
    struct fixture *f = *state;
    for (size_t len = 0; len < sizeof IMAGES; len++) {
        put_plain(f->images, IMAGES, len);
        char text[64];
        snprintf(text, sizeof text,
                 len < 4    ? "not an IDX image file (%zu bytes"
                 : len < 16 ? "truncated: %zu bytes, an IDX image header"
                            : "truncated: %zu bytes, header promises 40",
                 len);
        expect_refusal(f, f->images, text);
    }
}

static void test_every_truncation_of_labels(void **state)
{
    struct fixture *f = *state;
    for (size_t len = 0; len < sizeof LABELS; len++) {
        put_plain(f->labels, LABELS, len);
        expect_refusal(f, f->labels, len < 4 ? "not an IDX label file" : "truncated");
    }
}

static void test_every_truncation_of_a_gzip_file(void **state)
{
    struct fixture *f = *state;
    put_gzip(f->images, IMAGES, sizeof IMAGES);
    FILE *file = fopen(f->images, "rb");
    assert_non_null(file);
    uint8_t packed[256];
    size_t len = fread(packed, 1, sizeof packed, file);
    fclose(file);
    assert_in_range(len, 20, sizeof packed - 1);
    for (size_t cut = 0; cut < len; cut++) {
        put_plain(f->images, packed, cut);
        expect_refusal(f, f->images, cut < 2 ? "not an IDX image file" : "gzip");
    }
}

static void test_oversized(void **state)
{
    struct fixture *f = *state;
    uint8_t longer[sizeof IMAGES + 5] = {0};
    memcpy(longer, LABELS, sizeof LABELS);
    put_plain(f->labels, longer, sizeof LABELS + 1);
    expect_refusal(f, f->labels, "longer than the 11 bytes its header promises");
    memcpy(longer, IMAGES, sizeof IMAGES);
    put_plain(f->images, longer, sizeof longer);
    expect_refusal(f, f->images, "longer than the 40 bytes its header promises");
}

/* Zeros beyond what memory may hold, packed to a few kilobytes: refused by its first bytes, or once
 * the header's promise is kept. */
static void test_much_in_little(void **state)
{
    const struct fixture *f = *state;
    static uint8_t zeros[1 << 20];
    for (int i = 0; i < 2; i++) {
        gzFile gz = gzopen(f->images, "wb1");
        assert_non_null(gz);
        if (i == 1)
            assert_int_equal(gzwrite(gz, IMAGES, sizeof IMAGES), sizeof IMAGES);
        for (int k = 0; k < 256; k++)
            assert_int_equal(gzwrite(gz, zeros, sizeof zeros), sizeof zeros);
        assert_int_equal(gzclose(gz), Z_OK);
        struct rlimit before;
        assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        const struct rlimit tight = {(rlim_t)96 << 20, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_DATA, &tight), 0);
#endif
        expect_refusal(f, f->images,
                       i == 0 ? "not an IDX image file (magic 0x00000000)"
                              : "longer than the 40 bytes its header promises");
        assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
    }
}

static void test_noise(void **state)
{
    struct fixture *f = *state;
    uint8_t noise[4096];
    uint32_t v = 12345;
    for (size_t i = 0; i < sizeof noise; i++) {
        v = v * 1664525u + 1013904223u;
        noise[i] = (uint8_t)(v >> 24);
    }
    noise[0] = 0xab;
    put_plain(f->images, noise, sizeof noise);
    expect_refusal(f, f->images, "not an IDX image file (magic 0xab");
    put_plain(f->images, IMAGES, sizeof IMAGES);
    put_plain(f->labels, noise, sizeof noise);
    expect_refusal(f, f->labels, "not an IDX label file (magic 0xab");
}

static void test_swapped_files(void **state)
{
    struct fixture *f = *state;
    put_plain(f->images, LABELS, sizeof LABELS);
    put_plain(f->labels, IMAGES, sizeof IMAGES);
    expect_refusal(f, f->images,
                   "not an IDX image file (magic 0x00000801, an IDX label file); exchange the two");
    put_plain(f->images, IMAGES, sizeof IMAGES);
    expect_refusal(f, f->labels,
                   "not an IDX label file (magic 0x00000803, an IDX image file); exchange the two");
}

static void test_dimensions_out_of_bounds(void **state)
{
    struct fixture *f = *state;
    static const struct {
        uint32_t N, H, W;
        const char *why;
    } bad[] = {
        {0, 2, 4, "holds 0 images"},
        {3, 0, 4, "0 x 4 pixels"},
        {3, 2, 0, "2 x 0 pixels"},
        {3, 16385, 4, "16385 x 4 pixels, expected 1 to 16384 a side"},
        {3, 2, UINT32_MAX, "2 x 4294967295 pixels"},
        {UINT32_MAX, UINT32_MAX, UINT32_MAX, "4294967295 x 4294967295 pixels"},
        {UINT32_MAX, 16384, 16384, "4294967295 images of 16384 x 16384 pixels are more than"},
        {17, 16384, 16384, "17 images of 16384 x 16384 pixels are more than"},
        {16, 16384, 16384, "truncated: 40 bytes, header promises 4294967312"},
        {3, 16384, 16384, "truncated: 40 bytes, header promises 805306384"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint8_t file[sizeof IMAGES];
        memcpy(file, IMAGES, sizeof file);
        put_header(file, bad[i].N, bad[i].H, bad[i].W);
        put_plain(f->images, file, sizeof file);
        expect_refusal(f, f->images, bad[i].why);
    }
}

static void test_counts_that_differ(void **state)
{
    struct fixture *f = *state;
    const uint8_t two[] = {0, 0, 8, 1, 0, 0, 0, 2, 4, 0};
    put_plain(f->labels, two, sizeof two);
    expect_refusal(f, f->labels, "2 labels for the 3 images of ");
    expect_refusal(f, f->images, "2 labels");
    const uint8_t none[] = {0, 0, 8, 1, 0, 0, 0, 0};
    put_plain(f->labels, none, sizeof none);
    expect_refusal(f, f->labels, "holds 0 labels");
}

#define FASHION "/usr/share/datasets/fashion-mnist/"

/* `first` are the labels at the head of the published file. */
static void check_fashion(const char *images, const char *labels, size_t count,
                          const uint32_t first[10], double mean)
{
    struct source *source;
    struct err err;
    if (open_pair(images, labels, &source, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(source->count, count);
    assert_int_equal(source->shape.n, 3);
    assert_int_equal(source->shape.dim[0], 1);
    assert_int_equal(source->shape.dim[1], 28);
    assert_int_equal(source->shape.dim[2], 28);
    assert_int_equal(source->classes, 10);
    size_t of[10] = {0};
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        float x[784];
        uint32_t label;
        read_raw(source, i, x, &label);
        assert_int_equal(label, source->ops->label(source, i));
        of[label]++;
        if (i < 10)
            assert_int_equal(label, first[i]);
        for (size_t k = 0; k < 784; k++)
            sum += (double)x[k];
    }
    for (size_t c = 0; c < 10; c++)
        assert_int_equal(of[c], count / 10);
    assert_true(fabs(sum / 784 / (double)count / 255 - mean) < 1e-3);
    source_close(source);
}

static void test_fashion_mnist(void **state)
{
    (void)state;
    if (access(FASHION "train-images-idx3-ubyte.gz", R_OK) != 0) {
        print_message("no " FASHION ": skipped\n");
        skip();
    }
    /* The mean pixel is widely published: 0.2860 over the training images. */
    const uint32_t train[10] = {9, 0, 0, 3, 0, 2, 7, 2, 5, 5};
    check_fashion(FASHION "train-images-idx3-ubyte.gz", FASHION "train-labels-idx1-ubyte.gz", 60000,
                  train, 0.2860);
    const uint32_t test[10] = {9, 2, 1, 1, 6, 1, 4, 6, 5, 7};
    check_fashion(FASHION "t10k-images-idx3-ubyte.gz", FASHION "t10k-labels-idx1-ubyte.gz", 10000,
                  test, 0.2868);
    struct source *source;
    struct err err;
    assert_int_equal(open_pair(FASHION "train-images-idx3-ubyte.gz",
                               FASHION "t10k-labels-idx1-ubyte.gz", &source, &err),
                     ERR_INPUT);
    assert_non_null(strstr(err.text, "10000 labels for the 60000 images"));
}

int main(void)
{
#define FILES(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        FILES(test_reads_images_and_labels),
        FILES(test_gzip_is_the_same_data),
        cmocka_unit_test(test_no_source_is_an_error),
        FILES(test_missing_files),
        FILES(test_every_truncation_of_images),
        FILES(test_every_truncation_of_labels),
        FILES(test_every_truncation_of_a_gzip_file),
        FILES(test_oversized),
        FILES(test_much_in_little),
        FILES(test_noise),
        FILES(test_swapped_files),
        FILES(test_dimensions_out_of_bounds),
        FILES(test_counts_that_differ),
        cmocka_unit_test(test_fashion_mnist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
