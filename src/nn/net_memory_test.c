/* The memory layout: live ranges do not overlap in memory, and values that a layer's backward does
 * not declare as read may be spoilt before it. */
#include "nn/fixture.h"
#include "nn/layer.h"
#include "nn/live_ranges.h"
#include "nn/nets.h"

#include <stdio.h>

static const struct shape image = {3, {3, 12, 10}};
enum { N = 6, TYPES_MAX = 64 };

/* ---- places ---- */

static bool are_disjoint(const struct piece *a, const struct piece *b)
{
    return a->last < b->first || b->last < a->first || a->offset + a->floats <= b->offset ||
           b->offset + b->floats <= a->offset;
}

/* Three pieces of 16 floats, of which the outer two never meet; one more of 32 meets the last. */
static void test_places_by_hand(void **state)
{
    (void)state;
    struct piece piece[] = {{16, 0, 1, 0}, {10, 1, 2, 0}, {16, 2, 5, 0}, {32, 3, 4, 0}};
    struct piece *order[4];
    assert_int_equal(memory_layout_assign(piece, 4, order), 48);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++)
            assert_true(are_disjoint(&piece[i], &piece[k]));
    assert_int_equal(memory_layout_assign(piece, 2, order), 32);
    assert_int_equal(memory_layout_assign(piece, 1, order), 16);
    assert_int_equal(memory_layout_assign(piece, 0, order), 0);
}

/* Any lives and sizes: nothing overlaps, and no order is worse than side by side. */
static void test_places_of_many(void **state)
{
    (void)state;
    enum { PIECES = 200 };
    struct piece piece[PIECES], *order[PIECES];
    for (uint64_t round = 0; round < 20; round++) {
        size_t sum = 0;
        for (uint64_t i = 0; i < PIECES; i++) {
            size_t first = rng_below(round, 1, i, 100), length = rng_below(round, 2, i, 30);
            size_t lines = 1 + rng_below(round, 3, i, 50);
            piece[i] = (struct piece){lines * LAYOUT_ALIGN, first, first + length, 0};
            sum += piece[i].floats;
        }
        size_t total = memory_layout_assign(piece, PIECES, order);
        assert_true(total < sum);
        for (int i = 0; i < PIECES; i++) {
            assert_true(piece[i].offset + piece[i].floats <= total);
            assert_int_equal(piece[i].offset % LAYOUT_ALIGN, 0);
            for (int k = 0; k < i; k++)
                assert_true(are_disjoint(&piece[i], &piece[k]));
        }
    }
}

/* ---- nets with every type of layer ---- */

/* Every type there is, so that a new one is not forgotten. */
static void test_every_type_is_there(void **state)
{
    (void)state;
    char text[1024], quoted[64];
    layer_types_text(text, sizeof text);
    for (char *type = strtok(text, ", "); type; type = strtok(NULL, ", ")) {
        bool found = layer_find(type) == layer_find("Data");
        snprintf(quoted, sizeof quoted, "type: '%s'", type);
        for (size_t i = 0; i < NETS && !found; i++)
            found = strstr(nets[i], quoted);
        if (!found)
            fail_msg("no net has a %s", type);
    }
}

/* No two pieces that live at one moment overlap, and not much more is taken than what lives. */
static void test_live_ranges(void **state)
{
    (void)state;
    for (size_t i = 0; i < NETS; i++) {
        struct fixture f;
        fixture_open_lean(&f, nets[i], PHASE_TRAIN, N, image, &kernels_dnnl);
        const struct net *net = f.net;
        size_t most = 0;
        for (size_t k = 0; k < net->n_pieces; k++)
            for (size_t l = 0; l < k; l++)
                assert_true(are_disjoint(&net->piece[k], &net->piece[l]));
        for (size_t moment = 0; moment <= 2 * net->n_layers; moment++) {
            size_t sum = 0;
            for (size_t k = 0; k < net->n_pieces; k++)
                if (net->piece[k].first <= moment && moment <= net->piece[k].last)
                    sum += net->piece[k].floats;
            most = sum > most ? sum : most;
        }
        assert_true(net->room_floats >= most);
        if ((double)net->room_floats > 1.15 * (double)most + 64.0 * LAYOUT_ALIGN)
            fail_msg("net %zu: %zu floats for %zu", i, net->room_floats, most);
        fixture_close(&f);
    }
}

/* The same bits as `b`, and near those of `apart`. */
static void same_values(const struct vec *a, const struct vec *b, const struct vec *apart,
                        size_t net, const char *what)
{
    for (size_t i = 0; i < a->n; i++) {
        double scale = 1.0 + fabs((double)apart->at[i]);
        if (memcmp(&a->at[i], &b->at[i], sizeof(float)) != 0 ||
            !(fabs((double)a->at[i] - (double)apart->at[i]) < 1e-4 * scale))
            fail_msg("net %zu: %s %zu is %.9g, not %.9g, or nearly %.9g", net, what, i,
                     (double)a->at[i], (double)b->at[i], (double)apart->at[i]);
    }
}

/* A net that is spoilt wherever it says that nobody reads any more gives what it gives unspoilt,
 * and what one gives whose values all stay; for whole batches and for less. */
static void test_the_dead_are_not_read(void **state)
{
    const struct kernels *kernels = *state;
    for (size_t i = 0; i < NETS; i++)
        for (size_t count = N; count > 0; count -= N / 2) {
            struct fixture all, lean, spoilt;
            fixture_open(&all, nets[i], PHASE_TRAIN, N, image, kernels);
            fixture_open_lean(&lean, nets[i], PHASE_TRAIN, N, image, kernels);
            fixture_open_lean(&spoilt, nets[i], PHASE_TRAIN, N, image, kernels);
            spoilt.net->poisoned = true;
            all.batch.count = lean.batch.count = spoilt.batch.count = count;
            struct fixture *each[] = {&all, &lean, &spoilt};
            for (int k = 0; k < 3; k++) /* no first step */
                fixture_gradient(each[k]);
            double a = fixture_gradient(&all).loss;
            fixture_near(fixture_gradient(&lean).loss, a, 1e-4 * fabs(a));
            fixture_near(fixture_gradient(&spoilt).loss, a, 1e-4 * fabs(a));
            same_values(&spoilt.dx, &lean.dx, &all.dx, i, "gradient");
            same_values(&spoilt.s, &lean.s, &all.s, i, "state");
            assert_true(spoilt.net->room_floats < all.net->room_floats);
            fixture_close(&all);
            fixture_close(&lean);
            fixture_close(&spoilt);
        }
}

static void test_the_dead_are_not_read_in_tests(void **state)
{
    const struct kernels *kernels = *state;
    for (size_t i = 0; i < NETS; i++) {
        struct fixture all, spoilt;
        fixture_open(&all, nets[i], PHASE_TEST, N, image, kernels);
        fixture_open_lean(&spoilt, nets[i], PHASE_TEST, N, image, kernels);
        spoilt.net->poisoned = true;
        for (size_t count = N; count > 0; count -= N / 2) {
            all.batch.count = spoilt.batch.count = count;
            struct net_result a = fixture_forward(&all), b = fixture_forward(&spoilt);
            fixture_near(b.loss, a.loss, 1e-5 * fabs(a.loss));
            assert_true(a.right == b.right);
        }
        assert_true(spoilt.net->room_floats < all.net->room_floats);
        fixture_close(&all);
        fixture_close(&spoilt);
    }
}

/* ---- who lies where ---- */

static struct blob *find_blob(const struct net *net, const char *name)
{
    for (size_t i = net->n_blobs; i-- > 0;)
        if (strcmp(net->blob[i]->name, name) == 0)
            return net->blob[i];
    fail_msg("no blob is named %s", name);
    return NULL;
}

static void live_blobs(const struct piece *piece, size_t first, size_t last)
{
    assert_non_null(piece);
    if (piece->first != first || piece->last != last)
        fail_msg("from %zu to %zu, not from %zu to %zu", piece->first, piece->last, first, last);
}

/* Layers run as: data 0, x 1, the chain that makes a 2, b 3, c 4, the sum that makes e 5, ip 6,
 * loss 7; backward at 15 less that. a is read again by c at 11 and b at 12; b and c, which are
 * summed, by nobody. */
static const char rematerialised[] =
    DATA CONV("x", "data", "x", "8") NORM("an", "x", "a") RELU("ar", "a", "a")
        CONV("b", "a", "b", "8") CONV("c", "a", "c", "8") TWO("e", "Eltwise", "b", "c", "e", "")
            RELU("er", "e", "e") INNER("ip", "e", "ip", "4") LOSS("ip");

static void test_what_is_rematerialised(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open_lean(&f, rematerialised, PHASE_TRAIN, N, image, &kernels_dnnl);
    const struct net *net = f.net;
    assert_int_equal(net->n_layers, 8);
    live_blobs(find_blob(net, "x")->values, 1, 13);
    live_blobs(find_blob(net, "a")->values, 2, 4);
    live_blobs(find_blob(net, "a")->repeated, 11, 12);
    size_t remakes = 0;
    for (size_t i = 0; i < net->n_layers; i++)
        for (size_t k = 0; k < net->layer[i]->n_bottom; k++)
            remakes += net->layer[i]->bottom[k].remakes;
    assert_int_equal(remakes, 1);
    assert_null(find_blob(net, "x")->repeated);
    assert_null(find_blob(net, "e")->repeated);
    fixture_close(&f);
    fixture_open_lean(&f, rematerialised, PHASE_TEST, N, image, &kernels_dnnl);
    for (size_t i = 0; i < f.net->n_blobs; i++)
        assert_null(f.net->blob[i]->repeated);
    fixture_close(&f);
}

/* Values that may be read stay, and so do those that no backward leads through. */
static void test_what_is_not_rematerialised(void **state)
{
    (void)state;
    static const char frozen[] = DATA LAYER("n", "BatchNorm", "data", "a", "") RELU("r", "a", "a")
        INNER("ip", "a", "ip", "4") LOSS("ip");
    static const struct {
        const char *net, *keep;
    } cases[] = {{rematerialised, "a"}, {frozen, NULL}};
    for (size_t i = 0; i < 2; i++) {
        struct net_options options = {.phase = PHASE_TRAIN,
                                      .batch = N,
                                      .input = image,
                                      .kernels = &kernels_dnnl,
                                      .keep = cases[i].keep};
        struct err err = {0};
        struct fixture f;
        struct net *net = NULL;
        assert_int_equal(fixture_make(cases[i].net, &options, &net, &err), OK);
        fixture_fill(&f, net, N, image);
        assert_null(find_blob(net, "a")->repeated);
        assert_true(find_blob(net, "a")->values->last > net->n_layers);
        fixture_gradient(&f);
        fixture_close(&f);
    }
}

/* A residual's sum: the gradient continues to the shortcut where it lies; the shortcut's values are
 * read by no backward, and where nobody else reads them the sum takes their place. */
static void test_sums_lie_over(void **state)
{
    (void)state;
    static const char net[] = DATA CONV("z", "data", "z", "8") CONV("x", "z", "x", "8")
        NORM("xn", "x", "y") TWO("e", "Eltwise", "y", "z", "e", "") RELU("er", "e", "e")
            CONV("s", "e", "s", "8") CONV("t", "e", "t", "8") NORM("tn", "t", "u")
                TWO("f", "Eltwise", "u", "s", "f", "") RELU("fr", "f", "f") END("f");
    struct fixture f;
    fixture_open_lean(&f, net, PHASE_TRAIN, N, image, &kernels_dnnl);
    assert_ptr_equal(find_blob(f.net, "e")->gradient, find_blob(f.net, "z")->gradient);
    assert_ptr_not_equal(find_blob(f.net, "e")->values,
                         find_blob(f.net, "z")->values); /* x reads z back */
    assert_ptr_equal(find_blob(f.net, "f")->gradient, find_blob(f.net, "s")->gradient);
    assert_ptr_equal(find_blob(f.net, "f")->values, find_blob(f.net, "s")->values);
    assert_ptr_not_equal(find_blob(f.net, "f")->values, find_blob(f.net, "t")->values);
    fixture_close(&f);
}

/* ---- what is asked for ---- */

static void test_what_is_kept(void **state)
{
    (void)state;
    static const char net[] = DATA INNER("a", "data", "a", "8") RELU("r", "a", "a")
        INNER("b", "a", "b", "8") RELU("s", "b", "c") END("c");
    const struct net_options options = {
        .phase = PHASE_TEST, .batch = N, .input = image, .kernels = &kernels_ref, .keep = "a"};
    struct err err = {0};
    struct fixture all, one;
    float a[2][8 * N];
    fixture_open(&all, net, PHASE_TEST, N, image, &kernels_ref);
    assert_int_equal(fixture_make(net, &options, &one.net, &err), OK);
    fixture_fill(&one, one.net, N, image);
    one.net->poisoned = true;
    assert_true(net_keeps(one.net, "a") && net_keeps(one.net, "loss") && net_keeps(one.net, "acc"));
    assert_false(net_keeps(one.net, "b") || net_keeps(one.net, "data") || net_keeps(one.net, "x"));
    assert_true(net_keeps(all.net, "a") && net_keeps(all.net, "b") && net_keeps(all.net, "data"));
    fixture_forward(&all);
    fixture_forward(&one);
    assert_int_equal(net_blob(all.net, "a", a[0], 8 * N, NULL), 8 * N);
    assert_int_equal(net_blob(one.net, "a", a[1], 8 * N, NULL), 8 * N);
    assert_memory_equal(a[0], a[1], sizeof a[0]);
    assert_int_equal(net_blob(one.net, "b", NULL, 0, NULL), 8 * N); /* how large it is */
    fixture_close(&all);
    fixture_close(&one);
}

/* Two nets in one room, in turns, as training and its evaluations are. */
static void test_one_room_for_two(void **state)
{
    (void)state;
    struct fixture own, train, test;
    struct fixture *both[] = {&train, &test};
    size_t floats = 0;
    for (int i = 0; i < 2; i++) {
        struct net_options options = {.phase = i ? PHASE_TEST : PHASE_TRAIN,
                                      .batch = N,
                                      .input = image,
                                      .kernels = &kernels_dnnl,
                                      .brings_room = true};
        struct err err = {0};
        struct net *net = NULL;
        assert_int_equal(fixture_make(nets[1], &options, &net, &err), OK);
        floats = net_room(net) > floats ? net_room(net) : floats;
        fixture_fill(both[i], net, N, image);
    }
    float *room = arena_array(&train.arena, floats, float);
    net_take_room(train.net, room);
    net_take_room(test.net, room);
    fixture_open_lean(&own, nets[1], PHASE_TRAIN, N, image, &kernels_dnnl);
    for (int i = 0; i < 3; i++) {
        assert_true(fixture_gradient(&train).loss == fixture_gradient(&own).loss);
        assert_memory_equal(train.dx.at, own.dx.at, own.dx.n * sizeof(float));
        assert_true(isfinite(fixture_forward(&test).loss));
    }
    fixture_close(&own);
    fixture_close(&test);
    fixture_close(&train);
}

#define BY_KERNELS(test)                                                  \
    {#test " ref", test, NULL, NULL, (void *)(uintptr_t)&kernels_ref},    \
    {                                                                     \
#test " dnnl", test, NULL, NULL, (void *)(uintptr_t)&kernels_dnnl \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places_by_hand),
        cmocka_unit_test(test_places_of_many),
        cmocka_unit_test(test_every_type_is_there),
        cmocka_unit_test(test_live_ranges),
        BY_KERNELS(test_the_dead_are_not_read),
        BY_KERNELS(test_the_dead_are_not_read_in_tests),
        cmocka_unit_test(test_what_is_rematerialised),
        cmocka_unit_test(test_what_is_not_rematerialised),
        cmocka_unit_test(test_sums_lie_over),
        cmocka_unit_test(test_what_is_kept),
        cmocka_unit_test(test_one_room_for_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
