/* Lists and folders of pictures that the test writes, and malicious lists. */
#include "data/source_images.h"

#include "data/names.h"
#include "data/reading.h"
#include "data/stats.h"
#include "pictures.h"

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

static void make_folder(const struct folder *f, const char *name)
{
    char path[256];
    assert_int_equal(mkdir(folder_file(f, name, path), 0700), 0);
}

/* A grey picture of H x W, all of one value. */
static void put_picture(const struct folder *f, const char *name, unsigned H, unsigned W,
                        uint8_t value)
{
    uint8_t pixels[64 * 64];
    memset(pixels, value, sizeof pixels);
    picture_put_png(f, name, pixels, H, W, PNG_COLOR_TYPE_GRAY, 8, W, false);
}

static int open_images(const char *list, const char *root, struct source **out, struct err *err)
{
    Paceline__Data__Images images = PACELINE__DATA__IMAGES__INIT;
    Paceline__Data spec = PACELINE__DATA__INIT;
    images.list = (char *)(uintptr_t)list;
    images.root = (char *)(uintptr_t)root;
    images.color = PACELINE__DATA__COLOR__gray;
    spec.source_case = PACELINE__DATA__SOURCE_IMAGES;
    spec.images = &images;
    return source_open(&spec, SOURCE_TRAIN, out, err);
}

static struct source *must_open(const char *list, const char *root)
{
    struct source *source;
    struct err err;
    if (open_images(list, root, &source, &err) != OK)
        fail_msg("%s", err.text);
    return source;
}

static float first_pixel(const struct source *source, size_t i)
{
    float x[64 * 64];
    uint32_t label;
    read_raw(source, i, x, &label);
    return x[0];
}

static void put_list(const struct folder *f, const char *text)
{
    folder_put(f, "list.txt", text, strlen(text));
}

static void test_a_list(void **state)
{
    const struct folder *f = *state;
    char list[256], text[512];
    make_folder(f, "sub");
    put_picture(f, "sub/a b.png", 4, 6, 10);
    put_picture(f, "c.png", 4, 6, 20);
    snprintf(text, sizeof text, "sub/a b.png 3\r\n\nc.png\t0\n%s/c.png  7", f->path);
    put_list(f, text);
    struct source *source = must_open(folder_file(f, "list.txt", list), NULL);
    assert_int_equal(source->count, 3);
    assert_int_equal(source->classes, 8);
    assert_int_equal(source->shape.dim[0], 1);
    assert_int_equal(source->shape.dim[1], 4);
    assert_int_equal(source->shape.dim[2], 6);
    assert_int_equal(source->ops->label(source, 0), 3);
    assert_int_equal(source->ops->label(source, 2), 7);
    assert_true(first_pixel(source, 0) == 10 && first_pixel(source, 2) == 20);
    char name[SOURCE_NAME_MAX];
    assert_string_equal(source_name(source, 0, name), "record 0 (sub/a b.png)");
    source_close(source);

    put_list(f, "a b.png 0\n");
    char root[256];
    source = must_open(list, folder_file(f, "sub", root));
    assert_true(first_pixel(source, 0) == 10);
    source_close(source);
}

/* Sizes may differ, which the source says and maps repair. */
static void test_sizes_may_differ(void **state)
{
    const struct folder *f = *state;
    char list[256];
    put_picture(f, "a", 4, 6, 10);
    put_picture(f, "b", 8, 3, 20);
    put_list(f, "a 0\nb 1\n");
    struct source *source = must_open(folder_file(f, "list.txt", list), NULL);
    size_t H, W;
    assert_int_equal(source->shape.dim[1], 0);
    assert_int_equal(source->shape.dim[2], 0);
    source_size(source, 1, &H, &W);
    assert_true(H == 8 && W == 3);
    struct stats stats;
    assert_int_equal(stats_of(source, 0, NULL, &stats, NULL), OK);
    assert_true(stats.H_least == 4 && stats.H_most == 8 && stats.W_least == 3 && stats.W_most == 6);
    assert_true(stats.of_class[0] == 1 && stats.of_class[1] == 1);
    /* 24 of 10 and 24 of 20 */
    assert_true(stats.channel[0].mean == 15 && stats.channel[0].deviation == 5);
    assert_true(stats.channel[0].least == 10 && stats.channel[0].most == 20);
    stats_release(&stats);
    Paceline__Data maps = PACELINE__DATA__INIT;
    struct dataset set;
    struct err err;
    assert_int_equal(dataset_init(&set, source, &maps, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "record 1 (b): 8 x 3 pixels, and record 0 has 4 x 6"));
    maps.resize = maps.crop = 2;
    assert_int_equal(dataset_init(&set, source, &maps, &err), OK);
    float x[4];
    uint32_t label;
    uint64_t record;
    read_plain(&set, 1, x, &label, &record);
    assert_true(x[0] > 19.999f && x[3] < 20.001f && label == 1);
    dataset_release(&set);
    source_close(source);
}

static void test_a_folder_of_classes(void **state)
{
    const struct folder *f = *state;
    make_folder(f, "dog");
    make_folder(f, "cat");
    make_folder(f, "none");
    make_folder(f, ".git");
    put_picture(f, "dog/2", 5, 5, 50);
    put_picture(f, "dog/1", 5, 5, 40);
    put_picture(f, "cat/x\xff.png", 5, 5, 30); /* not UTF-8 */
    put_picture(f, "dog/.hidden", 9, 9, 0);
    struct source *source = must_open(f->path, NULL);
    assert_int_equal(source->count, 3);
    assert_int_equal(source->classes, 3);
    const float want[] = {30, 40, 50};
    for (size_t i = 0; i < 3; i++)
        assert_true(first_pixel(source, i) == want[i]);
    assert_int_equal(source->ops->label(source, 0), 0);
    assert_int_equal(source->ops->label(source, 1), 1);
    char name[SOURCE_NAME_MAX];
    assert_string_equal(source_name(source, 0, name), "record 0 (cat/x\\xff.png)");
    source_close(source);
    Paceline__Data__Images images = PACELINE__DATA__IMAGES__INIT;
    Paceline__Data spec = PACELINE__DATA__INIT;
    images.list = (char *)(uintptr_t)f->path;
    spec.source_case = PACELINE__DATA__SOURCE_IMAGES;
    spec.images = &images;
    struct names names;
    assert_int_equal(names_of(&spec, NULL, &names, NULL), OK);
    assert_int_equal(names.count, 3);
    assert_string_equal(names_at(&names, 1), "dog");
    names_release(&names);
}

static uint64_t hash_of(const char *list)
{
    struct source *source = must_open(list, NULL);
    uint64_t hash = source->hash;
    source_close(source);
    return hash;
}

static void test_the_hash_is_the_data_s(void **state)
{
    const struct folder *f = *state;
    char list[256];
    put_picture(f, "a", 4, 6, 10);
    put_picture(f, "b", 4, 6, 20);
    put_list(f, "a 0\nb 1\n");
    folder_file(f, "list.txt", list);
    uint64_t first = hash_of(list);
    assert_true(hash_of(list) == first);
    put_list(f, "a 0\nb 2\n");
    assert_true(hash_of(list) != first);
    put_list(f, "b 1\na 0\n");
    assert_true(hash_of(list) != first);
    put_list(f, "a 0\nb 1\n");
    assert_true(hash_of(list) == first);
    put_picture(f, "b", 4, 6, 21);
    assert_true(hash_of(list) != first);
}

static void expect_refusal(const char *list, const char *root, const char *why)
{
    struct source *source = NULL;
    struct err err = {0};
    assert_int_equal(open_images(list, root, &source, &err), ERR_INPUT);
    assert_null(source);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" should say \"%s\"", err.text, why);
}

static void test_lists_that_are_wrong(void **state)
{
    const struct folder *f = *state;
    char list[256];
    folder_file(f, "list.txt", list);
    put_picture(f, "a", 4, 6, 10);
    static const char *const bad[][2] = {
        {"", "list.txt: names no picture"},
        {"\n\n", "list.txt: names no picture"},
        {"a 0\na\n", "list.txt:2: expected `path label`, found `a`"},
        {"a x\n", "list.txt:1: expected `path label`, found `a x`"},
        {"a -1\n", "list.txt:1: expected `path label`, found `a -1`"},
        {"a 0 4x6 gray\n", "list.txt:1: expected `path label`"},
        {" 3\n", "list.txt:1: there is no path before label 3"},
        {"a 1048576\n", "list.txt:1: label 1048576 is out of range 0 to 1048575"},
        {"a 99999999999999999999\n", "list.txt:1: label 99999999999999999999 is out of range"},
        {"a 0\n\xff\x1b[2J", "list.txt:2: expected `path label`, found `\\xff\\x1b[2J`"},
        {"a 0\nb 1\n", "/b: cannot open: No such file"},
        {"a 0\n. 1\n", "/.: not a regular file"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_list(f, bad[i][0]);
        expect_refusal(list, NULL, bad[i][1]);
    }
    folder_put(f, "list.txt", "a\0 0\n", 5);
    expect_refusal(list, NULL, "list.txt: holds a zero byte");
    char *line = malloc(6000);
    assert_non_null(line);
    memset(line, 'x', 6000);
    strcpy(line + 5000, " 1\n");
    folder_put(f, "list.txt", line, 5003);
    expect_refusal(list, NULL, "list.txt:1: path longer than 4096 bytes");
    free(line);
    put_list(f, "a 0\nb 1\n");
    folder_put(f, "b", "GIF89a", 6);
    expect_refusal(list, NULL, "/b: neither JPEG nor PNG: begins with 47 49 46 38");
    folder_put(f, "b", "", 0);
    expect_refusal(list, NULL, "/b: empty");
    folder_file(f, "absent", list);
    expect_refusal(list, NULL, "absent: cannot open");
}

/* The memory that a small file can make us allocate is bounded before the allocation. */
static void test_a_list_too_long(void **state)
{
    (void)state;
    struct image_list list;
    struct err err;
    size_t n = IMAGE_LIST_MAX + 1;
    char *text = malloc(n + 1);
    assert_non_null(text);
    memset(text, '\n', n);
    text[n] = '\0';
    assert_int_equal(image_list_parse("long", text, n, &list, &err), ERR_INPUT);
    assert_string_equal(err.text, "long: more than 16777216 lines");
}

/* 257 MiB, of which none is on the disk. */
static void test_a_list_file_too_long(void **state)
{
    const struct folder *f = *state;
    char list[256];
    put_list(f, "a 0\n");
    folder_file(f, "list.txt", list);
    assert_int_equal(truncate(list, (off_t)257 << 20), 0);
    expect_refusal(list, NULL, "longer than the limit of 268435456 bytes");
}

static void test_folders_that_are_wrong(void **state)
{
    const struct folder *f = *state;
    char path[256];
    expect_refusal(f->path, NULL, "holds no folder with pictures");
    make_folder(f, "a");
    expect_refusal(f->path, NULL, "holds no folder with pictures");
    put_picture(f, "a/1", 3, 3, 0);
    expect_refusal(f->path, "x", "images.root is for a list");
    assert_int_equal(symlink("..", folder_file(f, "a/loop", path)), 0); /* round and round */
    expect_refusal(f->path, NULL, "a/loop: not a regular file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(".", folder_file(f, "self", path)), 0);
    expect_refusal(f->path, NULL, "self/a: not a regular file");
    assert_int_equal(unlink(path), 0);
}

/* Files of systems and people in the folders are left out, named, and change neither labels nor
 * names; a class without pictures stays one. */
static void test_stray_files_are_left_out_with_a_warning(void **state)
{
    const struct folder *f = *state;
    Paceline__Data__Images images = PACELINE__DATA__IMAGES__INIT;
    Paceline__Data spec = PACELINE__DATA__INIT;
    struct names names;
    make_folder(f, "b");
    make_folder(f, "c");
    make_folder(f, "d");
    put_picture(f, "b/1.png", 3, 3, 0);
    put_picture(f, "d/1.png", 3, 3, 0);
    folder_put(f, "README.txt", "hi", 2);
    folder_put(f, "list", "hi", 2);
    folder_put(f, "d/Thumbs.db", "hi", 2);
    struct source *source = must_open(f->path, NULL);
    assert_int_equal(source->count, 2);
    assert_int_equal(source->classes, 3);
    assert_int_equal(source->ops->label(source, 1), 2);
    assert_non_null(
        strstr(source->warning, "2 files next to the class folders are ignored (README.txt"));
    assert_non_null(
        strstr(source->warning, "1 files that are no pictures are ignored (Thumbs.db)"));
    assert_non_null(strstr(source->warning, "1 classes without pictures (c)"));
    source_close(source);
    images.list = (char *)(uintptr_t)f->path;
    spec.source_case = PACELINE__DATA__SOURCE_IMAGES;
    spec.images = &images;
    assert_int_equal(names_of(&spec, NULL, &names, NULL), OK);
    assert_string_equal(names_at(&names, 2), "d");
    names_release(&names);
}

/* A file that changes after it was opened is an error of its record, which names it. */
static void test_files_that_change(void **state)
{
    const struct folder *f = *state;
    char list[256], path[256];
    static uint8_t bytes[FOLDER_BYTES_MAX];
    uint8_t pixels[20 * 20 * 3];
    for (size_t k = 0; k < sizeof pixels; k++)
        pixels[k] = (uint8_t)(k * 37);
    picture_put_jpeg(f, "a", pixels, 20, 20, 3, 90);
    picture_put_jpeg(f, "b", pixels, 20, 20, 3, 90);
    size_t n = folder_get(f, "b", bytes);
    memset(bytes + n / 2, 0, n - n / 2); /* the header is well, and the body is not */
    folder_put(f, "b", bytes, n);
    put_list(f, "a 0\nb 1\n");
    struct source *source = must_open(folder_file(f, "list.txt", list), NULL);
    struct scratch scratch = {0};
    struct raw raw;
    struct err err = {0};
    assert_int_equal(source->ops->read(source, 0, &scratch, &raw, &err), OK);
    assert_int_equal(source->ops->read(source, 1, &scratch, &raw, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "/b: JPEG: "));
    picture_put_jpeg(f, "a", pixels, 19, 20, 3, 90);
    assert_int_equal(source->ops->read(source, 0, &scratch, &raw, &err), ERR_IO);
    assert_non_null(strstr(err.text, "/a: has changed since it was opened"));
    assert_int_equal(unlink(folder_file(f, "a", path)), 0);
    assert_int_equal(source->ops->read(source, 0, &scratch, &raw, &err), ERR_IO);
    assert_non_null(strstr(err.text, "/a: cannot open"));
    scratch_release(&scratch);
    source_close(source);
}

static int open_under(const char *root, const Paceline__Data *spec, struct source **out,
                      struct err *err)
{
    const struct source_config config = {.root = root};
    return source_open_with(&config, spec, out, err);
}

/* Whatever a list names, and wherever links lead, only files below the root are opened. */
static void test_a_root_is_not_left(void **state)
{
    const struct folder *f = *state;
    char list[256], root[256], path[256];
    static const char *const lines[] = {"../a", NULL, "link", "links/a"};
    Paceline__Data__Images images = PACELINE__DATA__IMAGES__INIT;
    Paceline__Data spec = PACELINE__DATA__INIT;
    struct source *source;
    struct err err;
    make_folder(f, "in");
    put_picture(f, "a", 8, 8, 1);
    put_picture(f, "in/b", 8, 8, 1);
    assert_int_equal(symlink("../a", folder_file(f, "in/link", path)), 0);
    assert_int_equal(symlink("..", folder_file(f, "in/links", path)), 0);
    folder_file(f, "in", root);
    images.list = (char *)(uintptr_t)folder_file(f, "in/list", list);
    images.color = PACELINE__DATA__COLOR__gray;
    spec.source_case = PACELINE__DATA__SOURCE_IMAGES;
    spec.images = &images;
    for (size_t i = 0; i < 4; i++) {
        char text[512];
        const char *bad = lines[i] ? lines[i] : folder_file(f, "a", path);
        int n = snprintf(text, sizeof text, "b 0\n%s 0\n", bad);
        folder_put(f, "in/list", text, (size_t)n);
        assert_int_equal(source_open(&spec, SOURCE_TRAIN, &source, &err), OK);
        source_close(source);
        assert_int_equal(open_under(root, &spec, &source, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, "lies outside of the data root"));
    }
    folder_put(f, "in/list", "b 0\n", 4);
    assert_int_equal(open_under(root, &spec, &source, &err), OK);
    assert_int_equal(unlink(folder_file(f, "in/b", path)), 0);
    struct scratch scratch = {0};
    struct raw raw; /* deleted since then: an error of this machine, and not a broken record */
    assert_int_equal(source->ops->read(source, 0, &scratch, &raw, &err), ERR_IO);
    scratch_release(&scratch);
    source_close(source);
    images.list = (char *)(uintptr_t)f->path; /* all of it */
    assert_int_equal(open_under(root, &spec, &source, &err), ERR_INPUT);
}

/* A class that is a link out of the root is not listed: neither names from there nor their absence
 * are revealed. */
static void test_no_class_lies_outside(void **state)
{
    const struct folder *f = *state;
    char list[256], root[256], link[256];
    static const char *const outside[] = {"../../full", "../../empty", "../../none"};
    Paceline__Data__Images images = PACELINE__DATA__IMAGES__INIT;
    Paceline__Data spec = PACELINE__DATA__INIT;
    struct source *source;
    struct err err;
    const char *folders[] = {"in", "in/classes", "in/classes/one", "full", "empty"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        make_folder(f, folders[i]);
    put_picture(f, "in/classes/one/b", 8, 8, 1);
    put_picture(f, "full/secret", 8, 8, 1);
    folder_file(f, "in", root);
    images.list = (char *)(uintptr_t)folder_file(f, "in/classes", list);
    images.color = PACELINE__DATA__COLOR__gray;
    spec.source_case = PACELINE__DATA__SOURCE_IMAGES;
    spec.images = &images;
    assert_int_equal(open_under(root, &spec, &source, &err), OK);
    source_close(source);
    folder_file(f, "in/classes/two", link);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(symlink(outside[i], link), 0);
        assert_int_equal(open_under(root, &spec, &source, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, "in/classes/two: lies outside of the data root"));
        assert_null(strstr(err.text, "secret"));
        assert_int_equal(unlink(link), 0);
    }
    assert_int_equal(symlink("one", link), 0);
    assert_int_equal(open_under(root, &spec, &source, &err), OK);
    assert_int_equal(source->count, 2);
    source_close(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sizes_may_differ, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_folder_of_classes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_hash_is_the_data_s, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lists_that_are_wrong, setup, teardown),
        cmocka_unit_test(test_a_list_too_long),
        cmocka_unit_test_setup_teardown(test_a_list_file_too_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_folders_that_are_wrong, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stray_files_are_left_out_with_a_warning, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_files_that_change, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_root_is_not_left, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_class_lies_outside, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
