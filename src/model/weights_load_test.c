/* Weights from any file into a net's vectors: the tensors that must fit, and the log of the
 * rest. */
#include "caffe_bytes.h"
#include "folder.h"
#include "model/weights.h"
#include "nn/fixture.h"

#include <math.h>

static const struct folder *folder;

static const float FOUR[] = {1.5f, -2.0f, 3.0f, 4.25f}, TWO[] = {7.0f, -8.0f}, ONE[] = {0.25f};
static const uint64_t OLD4[] = {1, 1, 2, 2}, OLD2[] = {1, 1, 1, 2}, NEW2[] = {2}, NEW1[] = {1};

/* A net: ip.0 2x2, ip.1 2 to learn; bn.0 2, bn.1 2, bn.2 1 of state. Vectors begin as -1. */
struct scene {
    struct arena arena;
    struct segments x, s;
    float x_at[64], s_at[64];
    char lines[4096];
    struct err err;
};

static void keep_line(void *user, enum log_level level, const char *line)
{
    struct scene *scene = user;
    (void)level;
    strncat(scene->lines, line, sizeof scene->lines - strlen(scene->lines) - 2);
    strcat(scene->lines, "\n");
}

static void add_segment(struct scene *scene, struct segments *table, const char *name, size_t a,
                        size_t b)
{
    const struct shape shape = {b ? 2 : 1, {a, b}};
    assert_non_null(segments_add(table, &scene->arena, name, &shape, 1, 1));
}

static void scene_make(struct scene *scene)
{
    *scene = (struct scene){.err = {0}};
    arena_init(&scene->arena);
    add_segment(scene, &scene->x, "ip.0", 2, 2);
    add_segment(scene, &scene->x, "ip.1", 2, 0);
    add_segment(scene, &scene->s, "bn.0", 2, 0);
    add_segment(scene, &scene->s, "bn.1", 2, 0);
    add_segment(scene, &scene->s, "bn.2", 1, 0);
    for (size_t i = 0; i < 64; i++)
        scene->x_at[i] = scene->s_at[i] = -1;
}

static int load_weights(struct scene *scene, const char *name, enum weights_fit fit)
{
    char path[256];
    const struct weights_into into = {&scene->x, &scene->s, scene->x_at, scene->s_at};
    const struct logger log = {.write = keep_line, .user = scene, .level = LOG_INFO};
    scene->lines[0] = '\0';
    return model_weights_load(folder_file(folder, name, path), fit, &into, &log, &scene->err);
}

static void expect_logged(const struct scene *scene, const char *words)
{
    if (!strstr(scene->lines, words))
        fail_msg("nothing was said of \"%s\"; but:\n%s%s", words, scene->lines, scene->err.text);
}

static void expect_refused(struct scene *scene, const char *name, enum weights_fit fit,
                           const char *words)
{
    assert_int_equal(load_weights(scene, name, fit), ERR_INPUT);
    if (!strstr(scene->err.text, words))
        fail_msg("\"%s\" says nothing of \"%s\"", scene->err.text, words);
    for (size_t i = 0; i < 64; i++)
        assert_true(scene->x_at[i] == -1 && scene->s_at[i] == -1);
}

/* ---- files ---- */

struct file {
    bool without_bias, more_bias, other_shape, more_layers, no_number;
};

static void put_caffe(const char *name, const struct file *what)
{
    struct piece net = {.n = 0}, ip = layer_v1("ip", 14), bn = layer_v1("bn", 0);
    float odd[4] = {1.5f, -2.0f, 3.0f, what->no_number ? INFINITY : 4.25f};
    struct piece w = blob_old(what->other_shape ? OLD2 : OLD4, odd, what->other_shape ? 2 : 4);
    struct piece b = blob_old(OLD2, TWO, 2), two = blob_new(NEW2, 1, TWO, 2);
    struct piece one = blob_new(NEW1, 1, ONE, 1);
    piece_in(&ip, 6, &w);
    for (int i = 0; i < (what->without_bias ? 0 : what->more_bias ? 2 : 1); i++)
        piece_in(&ip, 6, &b);
    piece_in(&bn, 6, &two);
    piece_in(&bn, 6, &two);
    piece_in(&bn, 6, &one);
    piece_in(&net, 2, &ip);
    piece_in(&net, 2, &bn);
    if (what->more_layers) {
        struct piece fc = layer_v1("fc8", 14);
        piece_in(&fc, 6, &w);
        piece_in(&net, 2, &fc);
    }
    folder_put(folder, name, net.at, net.n);
}

static void put_tensor(struct safetensors_writer *w, const char *name, size_t a, size_t b,
                       const float *data)
{
    const struct shape shape = {b ? 2 : 1, {a, b}};
    safetensors_tensor(w, name, &shape, data);
}

static void put_safetensors(const char *name, const struct file *what)
{
    struct safetensors_writer w;
    struct buf image = {0};
    struct err err = {0};
    safetensors_begin(&w);
    put_tensor(&w, "joint/ip.0", what->other_shape ? 1 : 2, 2, FOUR);
    if (!what->without_bias)
        put_tensor(&w, "joint/ip.1", 2, 0, TWO);
    if (what->more_bias)
        put_tensor(&w, "joint/ip.2", 2, 0, TWO);
    put_tensor(&w, "s/bn.0", 2, 0, TWO);
    put_tensor(&w, "s/bn.1", 2, 0, TWO);
    put_tensor(&w, "s/bn.2", 1, 0, ONE);
    put_tensor(&w, "momentum/ip.0", 2, 2, FOUR);
    if (what->more_layers)
        put_tensor(&w, "joint/fc8.0", 2, 2, FOUR);
    assert_int_equal(safetensors_image(&w, &image, &err), OK);
    safetensors_end(&w);
    folder_put(folder, name, image.data, image.len);
    buf_release(&image);
}

/* Of ours, with torchvision's names. */
static void put_torch(const char *name)
{
    struct safetensors_writer w;
    struct buf image = {0};
    struct err err = {0};
    safetensors_begin(&w);
    put_tensor(&w, "conv1.weight", 2, 2, FOUR);
    assert_int_equal(safetensors_image(&w, &image, &err), OK);
    safetensors_end(&w);
    folder_put(folder, name, image.data, image.len);
    buf_release(&image);
}

static void put_no_number(const char *name)
{
    static const float odd[] = {1, 2, 3, 4}, wrong[] = {NAN, -2.0f, 3.0f, 4.25f};
    struct safetensors_writer w;
    struct buf image = {0};
    struct err err = {0};
    safetensors_begin(&w);
    put_tensor(&w, "joint/ip.0", 2, 2, wrong);
    put_tensor(&w, "joint/ip.1", 2, 0, odd);
    put_tensor(&w, "s/bn.0", 2, 0, odd);
    put_tensor(&w, "s/bn.1", 2, 0, odd);
    put_tensor(&w, "s/bn.2", 1, 0, odd);
    assert_int_equal(safetensors_image(&w, &image, &err), OK);
    safetensors_end(&w);
    folder_put(folder, name, image.data, image.len);
    buf_release(&image);
}

/* The same, by both formats; what the format is, no name says. */
static void each_format(const struct file *what, void (*story)(struct scene *scene))
{
    for (int i = 0; i < 2; i++) {
        struct scene scene;
        scene_make(&scene);
        (i ? put_caffe : put_safetensors)("weights", what);
        story(&scene);
        arena_release(&scene.arena);
    }
}

/* ---- what fits ---- */

static void all_is_taken(struct scene *scene)
{
    if (load_weights(scene, "weights", WEIGHTS_ALL) != OK)
        fail_msg("%s", scene->err.text);
    assert_memory_equal(scene->x_at, FOUR, sizeof FOUR);
    assert_memory_equal(scene->x_at + 16, TWO, sizeof TWO);
    assert_memory_equal(scene->s_at, TWO, sizeof TWO);
    assert_memory_equal(scene->s_at + 16, TWO, sizeof TWO);
    assert_true(scene->s_at[32] == ONE[0]);
    assert_true(scene->x_at[4] == -1 && scene->s_at[33] == -1); /* padding */
    expect_logged(scene, "5 of the net's 5 tensors taken\n");
    assert_null(strstr(scene->lines, "momentum"));
}

static void test_a_file_that_fits(void **state)
{
    (void)state;
    each_format(&(struct file){0}, all_is_taken);
}

static void more_is_named(struct scene *scene)
{
    all_is_taken(scene);
    expect_logged(scene, "fc8.0, ");
    expect_logged(scene, "is not in the net\n");
}

static void test_more_layers_do_not_matter(void **state)
{
    (void)state;
    each_format(&(struct file){.more_layers = true}, more_is_named);
}

/* ---- slices ---- */

/* ip.0 and ip.1 are cut by their two outputs; the state is whole. */
static void test_a_slice_takes_its_part(void **state)
{
    struct scene scene;
    char path[256];
    (void)state;
    put_safetensors("weights", &(struct file){0});
    for (size_t f = 0; f < 2; f++) {
        scene_make(&scene);
        const struct model_slice slice = {f, 2};
        const struct weights_into into = {&scene.x, &scene.s, scene.x_at, scene.s_at};
        for (size_t i = 0; i < scene.x.count; i++)
            scene.x.at[i].units = 2;
        folder_file(folder, "weights", path);
        if (model_weights_load_slice(path, &slice, &into, NULL, &scene.err) != OK)
            fail_msg("%s", scene.err.text);
        assert_memory_equal(scene.x_at, FOUR + 2 * f, 2 * sizeof *FOUR);
        assert_true(scene.x_at[2] == -1 && scene.x_at[16] == TWO[f] && scene.x_at[17] == -1);
        assert_memory_equal(scene.s_at, TWO, sizeof TWO);
        assert_memory_equal(scene.s_at + 16, TWO, sizeof TWO);
        assert_true(scene.s_at[32] == ONE[0]);
        arena_release(&scene.arena);
    }
}

static void refuse_slice(const char *name, int status, const char *words)
{
    struct scene scene;
    char path[256];
    scene_make(&scene);
    const struct model_slice slice = {0, 2};
    const struct weights_into into = {&scene.x, &scene.s, scene.x_at, scene.s_at};
    folder_file(folder, name, path);
    assert_int_equal(model_weights_load_slice(path, &slice, &into, NULL, &scene.err), status);
    if (!strstr(scene.err.text, words))
        fail_msg("\"%s\" says nothing of \"%s\"", scene.err.text, words);
    arena_release(&scene.arena);
}

static void test_a_file_that_no_slice_takes(void **state)
{
    (void)state;
    put_safetensors("weights", &(struct file){.other_shape = true});
    refuse_slice("weights", ERR_INPUT, "joint/ip.0 is 1x2, the net has 2x2");
    put_safetensors("weights", &(struct file){.more_bias = true});
    refuse_slice("weights", ERR_INPUT, "the net's layer has none like it");
    put_caffe("weights", &(struct file){0});
    refuse_slice("weights", ERR_UNSUPPORTED, "`paceline convert` makes one");
    put_torch("weights");
    refuse_slice("weights", ERR_UNSUPPORTED, "`paceline convert` makes one");
    refuse_slice("nowhere", ERR_INPUT, "nowhere: cannot open");
    put_no_number("weights");
    refuse_slice("weights", ERR_INPUT, "joint/ip.0 holds a value that is no finite number");
}

/* ---- what does not ---- */

static void no_bias(struct scene *scene)
{
    expect_refused(scene, "weights", WEIGHTS_ALL, "ip.1: it is of another net");
    if (load_weights(scene, "weights", WEIGHTS_SOME) != OK)
        fail_msg("%s", scene->err.text);
    assert_memory_equal(scene->x_at, FOUR, sizeof FOUR);
    assert_true(scene->x_at[16] == -1);
    expect_logged(scene, "ip.1, 2 in the net: stays as it was\n");
    expect_logged(scene, "4 of the net's 5 tensors taken\n");
}

static void test_a_missing_tensor(void **state)
{
    (void)state;
    each_format(&(struct file){.without_bias = true}, no_bias);
}

static void other_shape(struct scene *scene)
{
    expect_refused(scene, "weights", WEIGHTS_ALL, "ip.0 is 1x");
    if (load_weights(scene, "weights", WEIGHTS_SOME) != OK)
        fail_msg("%s", scene->err.text);
    assert_true(scene->x_at[0] == -1);
    assert_memory_equal(scene->x_at + 16, TWO, sizeof TWO);
    expect_logged(scene, ", the net has 2x2: stays as it was\n");
}

static void test_another_shape(void **state)
{
    (void)state;
    each_format(&(struct file){.other_shape = true}, other_shape);
}

static void too_many_blobs(struct scene *scene)
{
    expect_refused(scene, "weights", WEIGHTS_ALL, "the net's layer has none like it");
    assert_int_equal(load_weights(scene, "weights", WEIGHTS_SOME), OK);
    expect_logged(scene, "ip.2, ");
}

static void test_one_blob_more(void **state)
{
    (void)state;
    each_format(&(struct file){.more_bias = true}, too_many_blobs);
}

static void test_no_number(void **state)
{
    struct scene scene;
    (void)state;
    scene_make(&scene);
    put_caffe("weights", &(struct file){.no_number = true});
    expect_refused(&scene, "weights", WEIGHTS_ALL, "ip.0 holds a value that is no finite number");
    expect_refused(&scene, "weights", WEIGHTS_SOME, "ip.0 holds a value that is no finite number");
    arena_release(&scene.arena);
}

static void test_nothing_fits(void **state)
{
    struct scene scene;
    struct piece net = {.n = 0}, other = layer_new("other", "InnerProduct");
    struct piece w = blob_new(NEW2, 1, TWO, 2);
    (void)state;
    scene_make(&scene);
    piece_in(&other, 7, &w);
    piece_in(&net, 100, &other);
    folder_put(folder, "weights", net.at, net.n);
    expect_refused(&scene, "weights", WEIGHTS_SOME, "none of its 1 tensors fits the net");
    expect_refused(&scene, "nowhere", WEIGHTS_SOME, "nowhere: cannot open");
    arena_release(&scene.arena);
}

/* A file cut short is of the format that its name says. */
static void test_cut_short(void **state)
{
    struct scene scene;
    (void)state;
    scene_make(&scene);
    folder_put(folder, "a.safetensors", "\x08\0\0\0\0\0\0\0{}", 10);
    expect_refused(&scene, "a.safetensors", WEIGHTS_ALL, "a.safetensors");
    assert_null(strstr(scene.err.text, "byte "));
    folder_put(folder, "a.caffemodel", "\x0a\x05sm", 4);
    expect_refused(&scene, "a.caffemodel", WEIGHTS_ALL,
                   "a.caffemodel: byte 0: field 1 has 5 bytes, 2 are left");
    folder_put(folder, "empty", "", 0);
    expect_refused(&scene, "empty", WEIGHTS_ALL, "empty: no layers");
    arena_release(&scene.arena);
}

static int setup(void **state)
{
    static struct folder own;
    (void)state;
    folder_make(&own);
    folder = &own;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

/* ---- recurrent layers ---- */

/* Blob k of a layer has these dimensions, and the values 100 k, 100 k + 1, .. */
static void put_blob(struct piece *layer, unsigned k, uint64_t a, uint64_t b)
{
    float data[64];
    const uint64_t dim[] = {a, b};
    size_t n = (size_t)(b ? a * b : a);
    assert_in_range(n, 1, 64);
    for (size_t i = 0; i < n; i++)
        data[i] = (float)(100 * k + i);
    const struct piece blob = blob_new(dim, b ? 2 : 1, data, n);
    piece_in(layer, 7, &blob);
}

/* The blobs as Caffe's recurrent layers have them: of their unrolled net, in order of its layers
 * (W_xc, b_c, W_xc_static, W_hc; and W_xh, b_h, W_hh, W_ho, b_o), and of Embed. */
static void put_recurrent(const char *name)
{
    static const struct {
        const char *name, *type;
        uint64_t blob[5][2];
    } layers[] = {
        {"e", "Embed", {{6, 3}, {3, 0}}},
        {"l", "LSTM", {{8, 3}, {8, 0}, {8, 5}, {8, 2}}},
        {"r", "RNN", {{4, 2}, {4, 0}, {4, 4}, {4, 4}, {4, 0}}},
    };
    struct piece net = {.n = 0};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        struct piece layer = layer_new(layers[i].name, layers[i].type);
        for (unsigned k = 0; k < 5 && layers[i].blob[k][0] > 0; k++)
            put_blob(&layer, k, layers[i].blob[k][0], layers[i].blob[k][1]);
        piece_in(&net, 100, &layer);
    }
    folder_put(folder, name, net.at, net.n);
}

static void test_recurrent_blobs_of_caffe(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = {0};
    char path[256];
    struct scene scene = {.err = {0}};
    fixture_open(&f,
                 "layer { name: 'd' type: 'Input' top: 'd' top: 'label' }"
                 "layer { name: 'e' type: 'Embed' bottom: 'd' top: 'e' embed_param { num_output: 3 "
                 "input_dim: 6 } }"
                 "layer { name: 's' type: 'Power' bottom: 'd' top: 's' }"
                 "layer { name: 'c' type: 'Power' bottom: 'd' top: 'c' }"
                 "layer { name: 'l' type: 'LSTM' bottom: 'e' bottom: 'c' bottom: 's' top: 'l' "
                 "recurrent_param { num_output: 2 } }"
                 "layer { name: 'r' type: 'RNN' bottom: 'l' top: 'r' recurrent_param { "
                 "num_output: 4 } }",
                 PHASE_TEST, 2, (struct shape){1, {5}}, &kernels_ref);
    put_recurrent("recurrent.caffemodel");
    const struct weights_into into = {net_segments(f.net), net_state_segments(f.net), f.x.at,
                                      f.s.at};
    const struct logger log = {.write = keep_line, .user = &scene, .level = LOG_INFO};
    folder_file(folder, "recurrent.caffemodel", path);
    if (model_weights_load(path, WEIGHTS_ALL, &into, &log, &err) != OK)
        fail_msg("%s", err.text);
    static const struct {
        const char *name;
        unsigned blobs;
    } layers[] = {{"e", 2}, {"l", 4}, {"r", 5}};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (unsigned k = 0; k < layers[i].blobs; k++) {
            const struct segment *segment = net_layer_param(f.net, layers[i].name, k);
            assert_non_null(segment);
            for (size_t n = 0; n < segment->len; n++)
                assert_true(f.x.at[segment->offset + n] == (float)(100 * k + n));
        }
    assert_null(net_layer_param(f.net, "l", 4));
    assert_null(net_layer_param(f.net, "r", 5));
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_that_fits),
        cmocka_unit_test(test_more_layers_do_not_matter),
        cmocka_unit_test(test_a_slice_takes_its_part),
        cmocka_unit_test(test_a_file_that_no_slice_takes),
        cmocka_unit_test(test_a_missing_tensor),
        cmocka_unit_test(test_another_shape),
        cmocka_unit_test(test_one_blob_more),
        cmocka_unit_test(test_no_number),
        cmocka_unit_test(test_nothing_fits),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_recurrent_blobs_of_caffe),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
