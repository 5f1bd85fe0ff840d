/* Records that are crops of pictures: decoded in part, or shrunk, or kept in a cache whole, they
 * are what the maps make of the picture. */
#include "data/dataset.h"
#include "data/picture.h"
#include "data/record_cache.h"
#include "data/source_images.h"

#include "faulty_disk.h"
#include "pictures.h"

enum { PICTURES = 5, CROP = 12, VALUES = 3 * CROP * CROP, EPOCHS = 20 };

static const size_t sizes[PICTURES][2] = {{60, 81}, {131, 90}, {33, 40}, {48, 48}, {20, 23}};
static const unsigned shrinks[PICTURES] = {1, 2, 1, 1, 0}; /* to 16 along the shorter side */

struct place {
    struct folder folder;
    struct source *source;
    char list[256];
};

static int setup(void **state)
{
    static uint8_t pixels[131 * 131 * 3];
    struct place *place = calloc(1, sizeof *place);
    Paceline__Data__Images spec = PACELINE__DATA__IMAGES__INIT;
    const struct source_config config = {0};
    char text[256] = "", name[16];
    struct err err;
    assert_non_null(place);
    folder_make(&place->folder);
    for (size_t k = 0; k < sizeof pixels; k++)
        pixels[k] = (uint8_t)((k / 17 % 3 * 80 + k * k % 41));
    for (unsigned i = 0; i < PICTURES; i++) {
        snprintf(name, sizeof name, "%u", i);
        unsigned h = (unsigned)sizes[i][0], w = (unsigned)sizes[i][1];
        if (i == 3)
            picture_put_png(&place->folder, name, pixels, h, w, PNG_COLOR_TYPE_RGB, 8, 3 * w,
                            false);
        else
            picture_put_jpeg_as(&place->folder, name, pixels, h, w, 3, 85,
                                (struct jpeg_form){.across = 2, .down = 2});
        snprintf(text + strlen(text), sizeof text - strlen(text), "%u %u\n", i, i % 2);
    }
    folder_put(&place->folder, "list", text, strlen(text));
    spec.list = (char *)(uintptr_t)folder_file(&place->folder, "list", place->list);
    spec.color = PACELINE__DATA__COLOR__rgb;
    if (source_images_open(&config, &spec, &place->source, &err) != OK)
        fail_msg("%s", err.text);
    *state = place;
    return 0;
}

static int teardown(void **state)
{
    struct place *place = *state;
    source_close(place->source);
    folder_remove(&place->folder);
    free(place);
    return 0;
}

static struct dataset open_crops(const struct source *source, uint32_t resize)
{
    Paceline__Data spec = PACELINE__DATA__INIT;
    struct dataset set;
    struct err err;
    spec.resize = resize;
    spec.crop = CROP;
    spec.pad = resize > 0 ? 0 : 2;
    spec.mirror = 1;
    spec.scale = 0.25f;
    if (dataset_init(&set, source, &spec, &err) != OK)
        fail_msg("%s", err.text);
    return set;
}

static void read_crop(const struct dataset *set, size_t i, uint64_t epoch, struct scratch *scratch,
                      float *x)
{
    const struct dataset_draw draw = {3, epoch};
    uint32_t label;
    uint64_t number;
    struct err err;
    memset(x, 0xff, VALUES * sizeof *x);
    if (dataset_read(set, i, epoch == 0 ? NULL : &draw, scratch, x, &label, &number, &err) != OK)
        fail_msg("%s", err.text);
    assert_true(label == i % 2 && number == i);
}

/* The picture whole, shrunk or not, through the maps. */
static void make_crop(const struct dataset *set, size_t i, unsigned shrink, uint64_t epoch,
                      float *x)
{
    struct scratch scratch = {0};
    const struct maps_draw draw = {3, epoch, i};
    const struct raw_want all = {sizes[i][0], sizes[i][1], shrink, 0, SIDE_MAX, 0, SIDE_MAX};
    struct raw raw;
    scratch.want = &all;
    assert_int_equal(set->source->ops->read(set->source, i, &scratch, &raw, NULL), OK);
    assert_int_equal(raw.shrink, i == 3 ? 0 : shrink); /* a PNG is not shrunk */
    assert_int_equal(maps_apply(&set->maps, &raw, epoch == 0 ? NULL : &draw, &scratch, x), OK);
    scratch_release(&scratch);
}

static void expect_crops(const struct dataset *set, const struct dataset *of, bool shrunk)
{
    struct scratch scratch = {0};
    float x[VALUES], y[VALUES];
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        for (size_t i = 0; i < PICTURES; i++) {
            make_crop(of, i, shrunk ? shrinks[i] : 0, epoch, y);
            read_crop(set, i, epoch, &scratch, x);
            assert_memory_equal(x, y, sizeof x);
        }
    }
    scratch_release(&scratch);
}

/* Where nothing is resized, no bit changes. */
static void test_crops_of_pictures_as_they_are(void **state)
{
    const struct place *place = *state;
    struct dataset set = open_crops(place->source, 0);
    expect_crops(&set, &set, false);
    dataset_release(&set);
}

static void test_crops_of_pictures_that_are_resized(void **state)
{
    const struct place *place = *state;
    struct dataset set = open_crops(place->source, 16);
    expect_crops(&set, &set, true);
    dataset_release(&set);
}

/* Nowhere, in memory, two of them in memory, on disk. */
static void test_crops_of_pictures_that_are_kept(void **state)
{
    const struct place *place = *state;
    for (int kind = 0; kind < 4; kind++) {
        struct record_cache *cache;
        struct source *cached;
        struct faulty_disk disk;
        struct record_cache_counts counts;
        struct err err;
        char path[256];
        faulty_init(&disk);
        assert_int_equal(record_cache_create(&cache, &err), OK);
        assert_int_equal(source_cached(place->source, cache, &cached, &err), OK);
        if (kind == 1 || kind == 2) /* 30 x 41 and 33 x 23 pixels, and the allocator's */
            record_cache_allow_memory(cache, kind == 1 ? 1 << 20 : (30 * 41 + 33 * 23) * 3 + 40);
        folder_file(&place->folder, "kept", path);
        if (kind == 3)
            assert_int_equal(record_cache_allow_disk(cache, &disk.disk, path, &err), OK);
        struct dataset of = open_crops(place->source, 16), set = open_crops(cached, 16);
        expect_crops(&set, &of, true);
        record_cache_count(cache, &counts);
        assert_int_equal(counts.in_memory, kind == 1 ? PICTURES : kind == 2 ? 2 : 0);
        assert_int_equal(counts.on_disk, kind == 3 ? PICTURES : 0);
        dataset_release(&set);
        dataset_release(&of);
        source_close(cached);
        record_cache_free(cache);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_crops_of_pictures_as_they_are, setup, teardown),
        cmocka_unit_test_setup_teardown(test_crops_of_pictures_that_are_resized, setup, teardown),
        cmocka_unit_test_setup_teardown(test_crops_of_pictures_that_are_kept, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
