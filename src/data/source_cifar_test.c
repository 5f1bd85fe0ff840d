/* CIFAR files made by hand, whole and broken, and the real ones where there are some. */
#include "data/mean_file.h"
#include "data/names.h"
#include "data/reading.h"
#include "data/stats.h"
#include "folder.h"

enum { PIXELS = 3072 };

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

/* `n` records: labels as given, `labels` of them each; pixel k of record i is i + k. */
static void put_records(const struct folder *f, const char *name, const uint8_t *label,
                        size_t labels, size_t n)
{
    static uint8_t bytes[8 * (2 + PIXELS)];
    assert_true(n <= 8);
    for (size_t i = 0; i < n; i++) {
        uint8_t *record = bytes + i * (labels + PIXELS);
        memcpy(record, label + i * labels, labels);
        for (size_t k = 0; k < PIXELS; k++)
            record[labels + k] = (uint8_t)(i + k);
    }
    folder_put(f, name, bytes, n * (labels + PIXELS));
}

static int open_cifar(const char *path, int of, bool coarse, enum source_role role,
                      struct source **out, struct err *err)
{
    Paceline__Data__Cifar cifar = PACELINE__DATA__CIFAR__INIT;
    Paceline__Data spec = PACELINE__DATA__INIT;
    cifar.path = (char *)(uintptr_t)path;
    cifar.coarse = coarse;
    spec.source_case = of == 10 ? PACELINE__DATA__SOURCE_CIFAR10 : PACELINE__DATA__SOURCE_CIFAR100;
    spec.cifar10 = &cifar;
    return source_open(&spec, role, out, err);
}

static struct source *must_open(const char *path, int of, bool coarse, enum source_role role)
{
    struct source *source;
    struct err err;
    if (open_cifar(path, of, coarse, role, &source, &err) != OK)
        fail_msg("%s", err.text);
    return source;
}

static void test_one_file(void **state)
{
    const struct folder *f = *state;
    char path[256];
    const uint8_t labels[] = {3, 0, 9};
    put_records(f, "some.bin", labels, 1, 3);
    struct source *source = must_open(folder_file(f, "some.bin", path), 10, false, SOURCE_TEST);
    float x[PIXELS];
    uint32_t label;
    assert_int_equal(source->count, 3);
    assert_int_equal(source->classes, 10);
    assert_int_equal(source->shape.dim[0], 3);
    assert_int_equal(source->shape.dim[1], 32);
    assert_int_equal(source->shape.dim[2], 32);
    read_raw(source, 2, x, &label);
    assert_int_equal(label, 9);
    assert_true(x[0] == 2 && x[253] == 255 && x[254] == 0 && x[PIXELS - 1] == 1);
    source_close(source);
}

static void test_a_folder_has_two_roles(void **state)
{
    const struct folder *f = *state;
    for (uint8_t b = 1; b <= 5; b++) {
        char name[32];
        snprintf(name, sizeof name, "data_batch_%u.bin", b);
        const uint8_t labels[] = {b, (uint8_t)(b - 1)};
        put_records(f, name, labels, 1, b == 3 ? 1 : 2);
    }
    const uint8_t test[] = {7};
    put_records(f, "test_batch.bin", test, 1, 1);
    struct source *train = must_open(f->path, 10, false, SOURCE_TRAIN);
    struct source *held = must_open(f->path, 10, false, SOURCE_TEST);
    const uint32_t want[] = {1, 0, 2, 1, 3, 4, 3, 5, 4};
    assert_int_equal(train->count, 9);
    for (size_t i = 0; i < 9; i++)
        assert_int_equal(train->ops->label(train, i), want[i]);
    assert_int_equal(held->count, 1);
    assert_int_equal(held->ops->label(held, 0), 7);
    assert_true(train->hash != held->hash);
    source_close(train);
    source_close(held);
}

static void test_fine_and_coarse(void **state)
{
    const struct folder *f = *state;
    const uint8_t labels[] = {19, 99, 0, 42};
    put_records(f, "train.bin", labels, 2, 2);
    struct source *fine = must_open(f->path, 100, false, SOURCE_TRAIN);
    struct source *coarse = must_open(f->path, 100, true, SOURCE_TRAIN);
    assert_int_equal(fine->classes, 100);
    assert_int_equal(fine->ops->label(fine, 0), 99);
    assert_int_equal(fine->ops->label(fine, 1), 42);
    assert_int_equal(coarse->classes, 20);
    assert_int_equal(coarse->ops->label(coarse, 0), 19);
    assert_int_equal(coarse->ops->label(coarse, 1), 0);
    assert_true(fine->hash != coarse->hash);
    float x[PIXELS];
    uint32_t label;
    read_raw(fine, 1, x, &label);
    assert_true(x[0] == 1);
    source_close(fine);
    source_close(coarse);
}

static void expect_refusal(const char *path, int of, const char *why)
{
    struct source *source = NULL;
    struct err err;
    assert_int_equal(open_cifar(path, of, false, SOURCE_TRAIN, &source, &err), ERR_INPUT);
    assert_null(source);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" should say \"%s\"", err.text, why);
}

static void test_mistakes_are_named(void **state)
{
    const struct folder *f = *state;
    char path[256];
    static uint8_t bytes[3 * 3074];
    folder_file(f, "x", path);
    folder_put(f, "x", bytes, 0);
    expect_refusal(path, 10, "0 bytes are no whole number of records of 3073");
    folder_put(f, "x", bytes, 3072);
    expect_refusal(path, 10, "3072 bytes are no whole number of records of 3073: truncated");
    folder_put(f, "x", bytes, 3074);
    expect_refusal(path, 10, "3074 bytes are no whole number");
    const uint8_t wrong[] = {3, 10};
    put_records(f, "x", wrong, 1, 2);
    expect_refusal(path, 10, "record 1: label 10 is out of range 0 to 9");
    const uint8_t fine[] = {0, 100}, coarse[] = {20, 0};
    put_records(f, "x", fine, 2, 1);
    expect_refusal(path, 100, "record 0: fine label 100 is out of range 0 to 99");
    put_records(f, "x", coarse, 2, 1);
    expect_refusal(path, 100, "record 0: coarse label 20 is out of range 0 to 19");
    expect_refusal(f->path, 10, "data_batch_1.bin: cannot open");
    folder_file(f, "none", path);
    expect_refusal(path, 10, "none: cannot open");
}

static void test_names_of_the_folder(void **state)
{
    const struct folder *f = *state;
    const uint8_t labels[] = {1};
    char path[256];
    put_records(f, "some.bin", labels, 1, 1);
    folder_put(f, "batches.meta.txt",
               "plane\r\ncar\nb\xff"
               "rd\n\n\n",
               18);
    Paceline__Data__Cifar cifar = PACELINE__DATA__CIFAR__INIT;
    Paceline__Data spec = PACELINE__DATA__INIT;
    spec.source_case = PACELINE__DATA__SOURCE_CIFAR10;
    spec.cifar10 = &cifar;
    struct names names;
    struct err err;
    char *const paths[] = {(char *)(uintptr_t)f->path, folder_file(f, "some.bin", path) ? path : 0};
    for (int i = 0; i < 2; i++) { /* the folder; a file in it */
        cifar.path = paths[i];
        assert_int_equal(names_of(&spec, NULL, &names, &err), OK);
        assert_int_equal(names.count, 3);
        assert_string_equal(names_at(&names, 0), "plane");
        assert_string_equal(names_at(&names, 1), "car");
        assert_string_equal(names_at(&names, 2), "b\\xffrd");
        assert_null(names_at(&names, 3));
        names_release(&names);
    }
    spec.source_case = PACELINE__DATA__SOURCE_CIFAR100;
    assert_int_equal(names_of(&spec, NULL, &names, &err), OK); /* there are none */
    assert_int_equal(names.count, 0);
}

/* ---- the real files ---- */

static const char *real_data(const char *what, char out[512])
{
    const char *root = getenv("PACELINE_DATA");
    if (!root || !*root) {
        print_message("PACELINE_DATA is not set: skipped\n");
        skip();
    }
    snprintf(out, 512, "%s/%s", root, what);
    return out;
}

/* Caffe's own mean of the training images is the independent witness. */
static void test_cifar_10_itself(void **state)
{
    (void)state;
    enum { RECORDS = 50000 };
    char path[512], mean_path[512];
    struct source *source =
        must_open(real_data("cifar-10-batches-bin", path), 10, false, SOURCE_TRAIN);
    assert_int_equal(source->count, RECORDS);
    static double sum[PIXELS];
    static float x[PIXELS];
    size_t of[10] = {0};
    for (size_t i = 0; i < RECORDS; i++) {
        uint32_t label;
        read_raw(source, i, x, &label);
        of[label]++;
        for (size_t k = 0; k < PIXELS; k++)
            sum[k] += (double)x[k];
    }
    for (size_t c = 0; c < 10; c++)
        assert_int_equal(of[c], 5000);
    struct mean_file mean;
    struct err err;
    real_data("caffe/cifar10_quick/mean.binaryproto", mean_path);
    if (mean_file_read(mean_path, &mean, &err) != OK)
        fail_msg("%s", err.text);
    assert_true(shape_equal(&mean.shape, &source->shape));
    for (size_t k = 0; k < PIXELS; k++)
        assert_true((float)(sum[k] / RECORDS) - mean.mean[k] < 1e-4f &&
                    mean.mean[k] - (float)(sum[k] / RECORDS) < 1e-4f);
    free(mean.mean);
    source_close(source);
    source = must_open(path, 10, false, SOURCE_TEST);
    struct stats stats;
    assert_int_equal(stats_of(source, 0, NULL, &stats, &err), OK);
    assert_int_equal(stats.records, 10000);
    for (size_t c = 0; c < 10; c++)
        assert_int_equal(stats.of_class[c], 1000);
    stats_release(&stats);
    source_close(source);
}

/* The figures that everybody divides by: 0.4914 0.4822 0.4465, 0.2470 0.2435 0.2616 of 255. */
static void test_figures_of_cifar_10(void **state)
{
    (void)state;
    const double mean[] = {0.4914, 0.4822, 0.4465}, deviation[] = {0.2470, 0.2435, 0.2616};
    char path[512];
    struct source *source =
        must_open(real_data("cifar-10-batches-bin", path), 10, false, SOURCE_TRAIN);
    struct stats stats;
    struct err err;
    assert_int_equal(stats_of(source, 0, NULL, &stats, &err), OK);
    assert_int_equal(stats.channels, 3);
    for (int c = 0; c < 3; c++) {
        assert_true(stats.channel[c].mean / 255 - mean[c] < 5.1e-5 &&
                    mean[c] - stats.channel[c].mean / 255 < 5.1e-5);
        assert_true(stats.channel[c].deviation / 255 - deviation[c] < 5.1e-5 &&
                    deviation[c] - stats.channel[c].deviation / 255 < 5.1e-5);
        assert_true(stats.channel[c].least == 0 && stats.channel[c].most == 255);
    }
    assert_true(stats.H_least == 32 && stats.W_most == 32);
    stats_release(&stats);
    source_close(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_folder_has_two_roles, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fine_and_coarse, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mistakes_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names_of_the_folder, setup, teardown),
        cmocka_unit_test(test_cifar_10_itself),
        cmocka_unit_test(test_figures_of_cifar_10),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
