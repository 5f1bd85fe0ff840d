/* A run of Caffe to resume from: its .solverstate, in the order of a net's parameters. */
#include "model/caffe_state.h"

#include "caffe_bytes.h"
#include "folder.h"
#include "job/text.h"

#include <math.h>

static const struct folder *folder;

/* conv1 learns two blobs, bn1 has three of state, sc1 shares conv1's second, ip1 learns one. */
static const char net_text[] =
    "layer { name: 'data' include { phase: TRAIN } } layer { name: 'data' include { phase: TEST } }"
    "layer { name: 'conv1' } layer { name: 'bn1' } layer { name: 'sc1' } layer { name: 'ip1' }";

struct scene {
    struct arena arena;
    struct segments x, s;
    Caffe__NetParameter *net;
};

static void add_segment(struct scene *scene, struct segments *table, const char *name, size_t a,
                        size_t b)
{
    const struct shape shape = {b ? 2 : 1, {a, b}};
    assert_non_null(segments_add(table, &scene->arena, name, &shape, 1, 1));
}

static struct scene scene_make(void)
{
    struct scene scene = {.net = NULL};
    struct err err = {0};
    ProtobufCMessage *msg;
    arena_init(&scene.arena);
    assert_int_equal(text_parse(&caffe__net_parameter__descriptor, "net", net_text,
                                strlen(net_text), &msg, &err),
                     OK);
    scene.net = (Caffe__NetParameter *)msg;
    add_segment(&scene, &scene.x, "conv1.0", 2, 2);
    add_segment(&scene, &scene.x, "conv1.1", 2, 0);
    add_segment(&scene, &scene.x, "ip1.0", 1, 2);
    add_segment(&scene, &scene.s, "bn1.0", 2, 0);
    add_segment(&scene, &scene.s, "bn1.1", 2, 0);
    add_segment(&scene, &scene.s, "bn1.2", 1, 0);
    return scene;
}

static void scene_end(struct scene *scene)
{
    arena_release(&scene->arena);
    caffe__net_parameter__free_unpacked(scene->net, NULL);
}

static const uint64_t dims[6][4] = {{1, 1, 2, 2}, {1, 1, 1, 2}, {1, 1, 1, 2},
                                    {1, 1, 1, 2}, {1, 1, 1, 1}, {1, 1, 1, 2}};
static const size_t counts[6] = {4, 2, 2, 2, 1, 2};

/* One vector: numbers from `from` on, in Caffe's order, conv1 bn1 ip1. */
static float put_vector(struct piece *file, float from)
{
    for (size_t i = 0; i < 6; i++) {
        float data[4];
        for (size_t k = 0; k < counts[i]; k++)
            data[k] = from++;
        struct piece blob = blob_old(dims[i], data, counts[i]);
        piece_in(file, 3, &blob);
    }
    return from;
}

static int read_state(const struct piece *file, struct caffe_state *state, struct err *err)
{
    static char path[256];
    folder_put(folder, "x.solverstate", file->at, file->n);
    return caffe_state_read(folder_file(folder, "x.solverstate", path), state, err);
}

static void test_two_vectors(void **state)
{
    (void)state;
    struct scene scene = scene_make();
    struct piece file = {.n = 0};
    struct caffe_state st;
    struct err err = {0};
    size_t vectors;
    float into[48];
    piece_number(&file, 1, 4000);
    piece_text(&file, 2, "runs/net_iter_4000.caffemodel");
    put_vector(&file, put_vector(&file, 1));
    piece_number(&file, 4, 2);
    assert_int_equal(read_state(&file, &st, &err), OK);
    assert_int_equal(st.iter, 4000);
    assert_int_equal(st.current_step, 2);
    assert_string_equal(st.learned_net, "runs/net_iter_4000.caffemodel");
    if (caffe_state_vectors(&st, scene.net, &scene.x, &scene.s, &vectors, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(vectors, 2);
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < 48; i++)
            into[i] = -1;
        caffe_state_take(&st, scene.net, &scene.x, &scene.s, k, into);
        /* 13 numbers a vector; of those 5 to 9 after conv1's are bn1's. */
        float at = 13 * (float)k;
        const float conv[] = {at + 1, at + 2, at + 3, at + 4}, bias[] = {at + 5, at + 6};
        const float ip[] = {at + 12, at + 13};
        assert_memory_equal(into, conv, sizeof conv);
        assert_memory_equal(into + 16, bias, sizeof bias);
        assert_memory_equal(into + 32, ip, sizeof ip);
        assert_true(into[4] == -1 && into[18] == -1 && into[34] == -1); /* padding */
    }
    caffe_state_release(&st);
    scene_end(&scene);
}

static void expect_misfit(const struct piece *file, const char *words)
{
    struct scene scene = scene_make();
    struct caffe_state st;
    struct err err = {0};
    size_t vectors;
    assert_int_equal(read_state(file, &st, &err), OK);
    assert_int_equal(caffe_state_vectors(&st, scene.net, &scene.x, &scene.s, &vectors, &err),
                     ERR_INPUT);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" says nothing of \"%s\"", err.text, words);
    caffe_state_release(&st);
    scene_end(&scene);
}

static void test_history_of_another_net(void **state)
{
    (void)state;
    struct piece file = {.n = 0};
    float data[4] = {0};
    piece_number(&file, 1, 1);
    expect_misfit(&file, "0 blobs of history, the net has 6 parameters");
    struct piece blob = blob_old(dims[0], data, 4);
    piece_in(&file, 3, &blob);
    expect_misfit(&file, "1 blobs of history");
    file = (struct piece){.n = 0};
    for (size_t i = 0; i < 6; i++) {
        blob = blob_old(dims[i == 1 ? 4 : i], data, counts[i == 1 ? 4 : i]);
        piece_in(&file, 3, &blob);
    }
    expect_misfit(&file, "history 1 is 1x1x1x1, conv1.1 of the net is 2");
    file = (struct piece){.n = 0};
    put_vector(&file, NAN);
    expect_misfit(&file, "history 0, of conv1.0, holds a value that is no finite number");
}

/* Wherever the file ends, or one byte is another. */
static void test_every_byte(void **state)
{
    (void)state;
    struct piece whole = {.n = 0};
    size_t refusals = 0;
    piece_number(&whole, 1, 4000);
    piece_text(&whole, 2, "net");
    put_vector(&whole, 1);
    for (size_t i = 0; i < whole.n; i++)
        for (unsigned change = 0; change < 9; change++) {
            struct piece file = whole;
            struct caffe_state st;
            struct err err = {0};
            if (change == 8)
                file.n = i;
            else
                file.at[i] ^= (uint8_t)(1u << change);
            int rc = read_state(&file, &st, &err);
            if (rc == OK) {
                caffe_state_release(&st);
                continue;
            }
            assert_int_equal(rc, ERR_INPUT);
            assert_non_null(strstr(err.text, "x.solverstate: byte "));
            refusals++;
        }
    assert_true(refusals > 100);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_vectors),
        cmocka_unit_test(test_history_of_another_net),
        cmocka_unit_test(test_every_byte),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
