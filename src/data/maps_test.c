/* Crops, mirrors, pads and means by hand, and random draws: a function of seed, epoch and record.
 */
#include "data/maps.h"

#include "data/reading.h"
#include "folder.h"

#include <pthread.h>

/* A source of byte pictures of one channel, each of its own size; pixel (y, x) of record i is
 * 10 y + x + i. */
enum { PICTURES_MAX = 4, PIXELS_MAX = 64 };

struct pictures {
    struct source source;
    size_t H[PICTURES_MAX], W[PICTURES_MAX];
};

static int pictures_read(const struct source *source, size_t i, struct scratch *scratch,
                         struct raw *raw, struct err *err)
{
    (void)err;
    const struct pictures *p = (const struct pictures *)source;
    uint8_t *to = scratch_get(scratch, SCRATCH_PIXELS, PIXELS_MAX);
    for (size_t y = 0; y < p->H[i]; y++)
        for (size_t x = 0; x < p->W[i]; x++)
            to[y * p->W[i] + x] = (uint8_t)(10 * y + x + i);
    *raw = (struct raw){to, RAW_PLANES, 1, p->H[i], p->W[i], 0};
    return OK;
}

static uint32_t pictures_label(const struct source *source, size_t i)
{
    (void)source;
    return (uint32_t)i;
}

static void pictures_size(const struct source *source, size_t i, size_t *H, size_t *W)
{
    const struct pictures *p = (const struct pictures *)source;
    *H = p->H[i];
    *W = p->W[i];
}

static struct pictures pictures_of(size_t count, const size_t sizes[][2])
{
    static const struct source_ops ops = {
        .kind = "pictures",
        .read = pictures_read,
        .label = pictures_label,
        .size = pictures_size,
    };
    struct pictures p = {.source = {.ops = &ops, .count = count, .classes = PICTURES_MAX}};
    p.source.shape = (struct shape){.n = 3, .dim = {1, sizes[0][0], sizes[0][1]}};
    for (size_t i = 0; i < count; i++) {
        p.H[i] = sizes[i][0];
        p.W[i] = sizes[i][1];
        if (p.H[i] != p.H[0] || p.W[i] != p.W[0])
            p.source.shape.dim[1] = p.source.shape.dim[2] = 0;
    }
    return p;
}

static struct dataset open_pictures(const struct pictures *p, const Paceline__Data *spec)
{
    struct dataset set;
    struct err err;
    if (dataset_init(&set, &p->source, spec, &err) != OK)
        fail_msg("%s", err.text);
    return set;
}

static void read_drawn(const struct dataset *set, size_t i, uint64_t seed, uint64_t epoch, float *x)
{
    struct scratch scratch = {0};
    struct dataset_draw draw = {seed, epoch};
    uint32_t label;
    uint64_t record;
    assert_int_equal(dataset_read(set, i, &draw, &scratch, x, &label, &record, NULL), OK);
    scratch_release(&scratch);
}

static void plain_is(const struct dataset *set, size_t i, const float *want, size_t n)
{
    float x[PIXELS_MAX];
    uint32_t label;
    uint64_t record;
    assert_int_equal(shape_count(&set->shape), n);
    read_plain(set, i, x, &label, &record);
    for (size_t k = 0; k < n; k++)
        if (x[k] != want[k])
            fail_msg("value %zu is %g, expected %g", k, (double)x[k], (double)want[k]);
}

static void test_the_crop_is_the_middle(void **state)
{
    (void)state;
    struct pictures p = pictures_of(1, (const size_t[][2]){{4, 5}});
    Paceline__Data spec = PACELINE__DATA__INIT;
    spec.crop = 2;
    spec.mirror = 1; /* not where nothing is drawn */
    struct dataset set = open_pictures(&p, &spec);
    plain_is(&set, 0, (const float[]){11, 12, 21, 22}, 4); /* from (1, 1): 3 / 2 is 1 */
    dataset_release(&set);
    spec.crop = 3;
    set = open_pictures(&p, &spec);
    plain_is(&set, 0, (const float[]){1, 2, 3, 11, 12, 13, 21, 22, 23}, 9);
    dataset_release(&set);
}

/* Raw zeros around, which mean and scale see as any other value. */
static void test_pads_are_zeros_before_mean_and_scale(void **state)
{
    (void)state;
    float mean[] = {4};
    struct pictures p = pictures_of(2, (const size_t[][2]){{1, 2}, {1, 2}});
    Paceline__Data spec = PACELINE__DATA__INIT;
    spec.pad = 1;
    spec.crop = 3;
    spec.scale = 0.5f;
    spec.mean = mean;
    spec.n_mean = 1;
    struct dataset set = open_pictures(&p, &spec);
    plain_is(&set, 1, (const float[]){-2, -2, -2, -2, -1.5f, -1, -2, -2, -2}, 9);
    dataset_release(&set);
}

/* A mean of one value a pixel, as a BlobProto: num, channels, height, width, data. */
static void put_mean(const struct folder *f, uint8_t H, uint8_t W, const float *values, size_t n)
{
    uint8_t bytes[256] = {0x08, 1, 0x10, 1, 0x18, H, 0x20, W, 0x2a, (uint8_t)(4 * n)};
    memcpy(bytes + 10, values, 4 * n);
    folder_put(f, "mean.binaryproto", bytes, 10 + 4 * n);
}

/* The mean is subtracted from the pixel it belongs to, wherever that goes; pads stay zero. */
static void test_mean_follows_its_pixels(void **state)
{
    (void)state;
    struct folder f;
    char path[256];
    const float mean[] = {0,  1,  2,
                          10, 11, 12}; /* of record 0 itself: all that is left is its number */
    folder_make(&f);
    put_mean(&f, 2, 3, mean, 6);
    struct pictures p = pictures_of(2, (const size_t[][2]){{2, 3}, {2, 3}});
    Paceline__Data spec = PACELINE__DATA__INIT;
    folder_file(&f, "mean.binaryproto", path);
    spec.mean_file = path;
    spec.scale = 2;
    spec.pad = 1;
    spec.crop = 2;
    spec.mirror = 1;
    struct dataset set = open_pictures(&p, &spec);
    for (uint64_t epoch = 0; epoch < 100; epoch++) {
        float x[4];
        read_drawn(&set, 0, 7, epoch, x);
        for (int k = 0; k < 4; k++)
            assert_true(x[k] == 0);
        read_drawn(&set, 1, 7, epoch, x);
        for (int k = 0; k < 4; k++)
            assert_true(x[k] == 0 || x[k] == 2);
        assert_true(x[0] + x[1] + x[2] + x[3] > 0); /* a crop of two is never all pad */
    }
    dataset_release(&set);
    struct dataset none;
    struct err err;
    put_mean(&f, 3, 2, mean, 6);
    assert_int_equal(dataset_init(&none, &p.source, &spec, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "a mean of 1 x 3 x 2, and record 0 has 1 x 2 x 3"));
    folder_remove(&f);
}

/* Over many epochs every crop comes, each as often, and half of all are mirrored. */
static void test_what_is_drawn(void **state)
{
    (void)state;
    enum { EPOCHS = 9000 };
    struct pictures p = pictures_of(1, (const size_t[][2]){{4, 4}});
    Paceline__Data spec = PACELINE__DATA__INIT;
    spec.crop = 2;
    spec.mirror = 1;
    struct dataset set = open_pictures(&p, &spec);
    size_t times[2][3][3] = {{{0}}};
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        float x[4];
        read_drawn(&set, 0, 3, epoch, x);
        bool mirror = x[1] < x[0];
        size_t first = (size_t)(mirror ? x[1] : x[0]), top = first / 10, left = first % 10;
        for (int k = 0; k < 4; k++) {
            size_t column = (size_t)(mirror ? 1 - k % 2 : k % 2);
            assert_true(x[k] == (float)(10 * (top + (size_t)k / 2) + left + column));
        }
        assert_true(top < 3 && left < 3);
        times[mirror][top][left]++;
    }
    double expected = EPOCHS / 18.0, chi2 = 0;
    for (int k = 0; k < 18; k++) {
        double off = (double)(&times[0][0][0])[k] - expected;
        chi2 += off * off / expected;
    }
    assert_true(chi2 < 46.5); /* 17 degrees of freedom, one in ten thousand */
    dataset_release(&set);
}

static void test_drawing_is_pure(void **state)
{
    (void)state;
    struct pictures p = pictures_of(2, (const size_t[][2]){{8, 8}, {8, 8}});
    Paceline__Data spec = PACELINE__DATA__INIT;
    spec.crop = 2;
    spec.mirror = 1;
    struct dataset set = open_pictures(&p, &spec);
    int by_epoch = 0, by_seed = 0, by_record = 0;
    for (uint64_t epoch = 0; epoch < 50; epoch++) {
        float x[4], y[4];
        read_drawn(&set, 0, 1, epoch, x);
        read_drawn(&set, 0, 1, epoch, y);
        assert_memory_equal(x, y, sizeof x);
        read_drawn(&set, 0, 1, epoch + 1, y);
        by_epoch += memcmp(x, y, sizeof x) != 0;
        read_drawn(&set, 0, 2, epoch, y);
        by_seed += memcmp(x, y, sizeof x) != 0;
        read_drawn(&set, 1, 1, epoch, y);
        for (int k = 0; k < 4; k++)
            y[k] -= 1; /* record 1 is record 0 and one more */
        by_record += memcmp(x, y, sizeof x) != 0;
    }
    assert_true(by_epoch > 40 && by_seed > 40 && by_record > 40); /* equal by chance: 1 in 98 */
    dataset_release(&set);
}

struct reader {
    const struct dataset *set;
    float x[100][4];
};

static void *read_all(void *arg)
{
    struct reader *r = arg;
    struct scratch scratch = {0};
    uint32_t label;
    uint64_t record;
    for (uint64_t epoch = 0; epoch < 100; epoch++) {
        struct dataset_draw draw = {5, epoch};
        dataset_read(r->set, epoch % 2, &draw, &scratch, r->x[epoch], &label, &record, NULL);
    }
    scratch_release(&scratch);
    return NULL;
}

static void test_any_thread_reads_the_same(void **state)
{
    (void)state;
    struct pictures p = pictures_of(2, (const size_t[][2]){{7, 8}, {5, 4}});
    Paceline__Data spec = PACELINE__DATA__INIT;
    spec.resize = 6;
    spec.crop = 2;
    struct dataset set = open_pictures(&p, &spec);
    struct reader *r = calloc(4, sizeof *r);
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) {
        r[i].set = &set;
        assert_int_equal(pthread_create(&thread[i], NULL, read_all, &r[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    for (int i = 1; i < 4; i++)
        assert_memory_equal(r[0].x, r[i].x, sizeof r[0].x);
    free(r);
    dataset_release(&set);
}

/* The shorter edge to 4: 2 x 3 becomes 4 x 6, 6 x 3 becomes 8 x 4; a ramp stays one. */
static void test_resize_and_crop_make_sizes_equal(void **state)
{
    (void)state;
    struct pictures p = pictures_of(2, (const size_t[][2]){{2, 3}, {6, 3}});
    Paceline__Data spec = PACELINE__DATA__INIT;
    spec.resize = 4;
    spec.crop = 2;
    struct dataset set = open_pictures(&p, &spec);
    assert_int_equal(shape_count(&set.shape), 4);
    /* Rows 1, 2 of four from two lie at 0.25, 0.75 between them; columns 2, 3 of six from three at
     * 0.75, 1.25. */
    plain_is(&set, 0, (const float[]){3.25f, 3.75f, 8.25f, 8.75f}, 4); /* 10 y + x */
    dataset_release(&set);
    spec.resize = 0;
    spec.crop = 0;
    spec.resize_height = 1;
    spec.resize_width = 2;
    set = open_pictures(&p, &spec);
    assert_int_equal(set.shape.dim[1], 1);
    assert_int_equal(set.shape.dim[2], 2);
    dataset_release(&set);
}

static void expect_refusal(const struct pictures *p, const Paceline__Data *spec, const char *why)
{
    struct dataset set;
    struct err err = {0};
    assert_int_equal(dataset_init(&set, &p->source, spec, &err), ERR_INPUT);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" should say \"%s\"", err.text, why);
}

static void test_sizes_that_do_not_fit(void **state)
{
    (void)state;
    struct pictures p = pictures_of(3, (const size_t[][2]){{4, 4}, {4, 4}, {2, 6}});
    Paceline__Data spec = PACELINE__DATA__INIT;
    expect_refusal(&p, &spec, "record 2: 2 x 6 pixels, and record 0 has 4 x 4; resize them");
    spec.crop = 3;
    expect_refusal(&p, &spec, "record 2: 2 x 6 pixels cannot be cropped to 3 x 3");
    spec.pad = 1;
    struct dataset set = open_pictures(&p, &spec); /* 2 and two of pad are enough */
    dataset_release(&set);
    spec.crop = 5;
    expect_refusal(&p, &spec, "record 2: 2 x 6 pixels and pad cannot be cropped to 5 x 5");
    spec.crop = spec.pad = 0;
    spec.resize = 8;
    expect_refusal(&p, &spec, "record 2: 8 x 24 pixels, and record 0 has 8 x 8");
    spec.resize = 16384;
    expect_refusal(&p, &spec, "record 2: resized to 16384 x 49152 pixels, more than 16384");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_crop_is_the_middle),
        cmocka_unit_test(test_pads_are_zeros_before_mean_and_scale),
        cmocka_unit_test(test_mean_follows_its_pixels),
        cmocka_unit_test(test_what_is_drawn),
        cmocka_unit_test(test_drawing_is_pure),
        cmocka_unit_test(test_any_thread_reads_the_same),
        cmocka_unit_test(test_resize_and_crop_make_sizes_equal),
        cmocka_unit_test(test_sizes_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
