/* Sizes by hand and against PyTorch, in all three forms of raw values; windows of a size are pieces
 * of the whole. */
#include "data/resize.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

static void resize_all(const struct raw *raw, struct window window, float *x)
{
    struct scratch scratch = {0};
    assert_int_equal(resize_window(raw, &window, NULL, &scratch, x), OK);
    scratch_release(&scratch);
}

static struct window whole_window(size_t h, size_t w)
{
    return (struct window){.h = h, .w = w, .H = h, .W = w};
}

static void close_to(const float *got, const double *want, size_t n)
{
    for (size_t k = 0; k < n; k++)
        if (fabs((double)got[k] - want[k]) > 1e-4)
            fail_msg("value %zu is %.9g, expected %.9g", k, (double)got[k], want[k]);
}

/* Twice as many: outputs lie at quarters, and beyond the outermost middles there is nothing new. */
static void test_enlarging_by_hand(void **state)
{
    (void)state;
    const uint8_t bytes[] = {0, 100};
    const struct raw raw = {bytes, RAW_PLANES, 1, 1, 2, 0};
    float x[4];
    resize_all(&raw, whole_window(1, 4), x);
    close_to(x, (const double[]){0, 25, 75, 100}, 4);
}

/* Half as many: weights 3/4, 3/4, 1/4 of the three that exist on that side, over their sum. */
static void test_shrinking_by_hand(void **state)
{
    (void)state;
    const uint8_t bytes[] = {7, 14, 21, 70};
    const struct raw raw = {bytes, RAW_PLANES, 1, 4, 1, 0};
    float x[2];
    resize_all(&raw, whole_window(2, 1), x);
    close_to(x, (const double[]){(3 * 7 + 3 * 14 + 21) / 7.0, (14 + 3 * 21 + 3 * 70) / 7.0}, 2);
}

/* Five shrunk to half are three, the last of which lies half outside: the scale is 2.5 / 2, and
 * outputs lie at 0.625 and 1.875, so that the weights are 0.9, 0.3 and 0.7, 0.5. */
static void test_a_shrunk_side_by_hand(void **state)
{
    (void)state;
    const uint8_t bytes[] = {24, 48, 120};
    const struct raw raw = {bytes, RAW_INTERLEAVED, 1, 1, 5, 1};
    float x[2];
    resize_all(&raw, whole_window(1, 2), x);
    close_to(x, (const double[]){(0.9 * 24 + 0.3 * 48) / 1.2, (0.7 * 48 + 0.5 * 120) / 1.2}, 2);
    struct span reach = resize_reach(5, 1, 2, -3, 4);
    assert_true(reach.first == 0 && reach.end == 2);
    reach = resize_reach(5, 1, 2, 1, 9);
    assert_true(reach.first == 1 && reach.end == 3);
    reach = resize_reach(5, 1, 2, 2, 9);
    assert_true(reach.first == 0 && reach.end == 0);
}

/* torch.nn.functional.interpolate(x, size, mode="bilinear", align_corners=False, antialias=True) of
 * PyTorch 1.13, x[y][v] = (31 y + 17 v + 5 y v) mod 256, 5 x 7, in double. */
static void test_as_pytorch_does(void **state)
{
    (void)state;
    enum { H = 5, W = 7, C = 2 };
    static const struct {
        size_t h, w;
        double y[24];
    } golden[] = {
        {3,
         4,
         {23.3129252, 53.1028571, 88.3257143, 118.115646, 76.1428571, 118.16, 167.84, 180.058201,
          128.972789, 183.217143, 142.028571, 97.8435374}},
        {2,
         9,
         {31, 45.6666667, 62.7777778, 79.8888889, 97, 114.111111, 131.222222, 144.454545,
          151.363636, 93, 114.333333, 139.222222, 164.111111, 189, 150.535354, 157.323232,
          147.30303, 98.8181818}},
        {8, 3, {14.5714286, 51,         87.4285714, 30.0089286, 71.125,     112.241071,
                52.0625,    99.875,     147.6875,   74.1160714, 128.625,    183.133929,
                96.1696429, 157.375,    190.008929, 118.223214, 186.125,    168.3125,
                140.276786, 172.522059, 105.473214, 155.714286, 159.705882, 58.2857143}},
    };
    uint8_t planes[C * H * W], mixed[C * H * W];
    float floats[C * H * W], x[C * 24];
    for (int y = 0; y < H; y++) {
        for (int v = 0; v < W; v++) {
            uint8_t value = (uint8_t)((31 * y + 17 * v + 5 * y * v) % 256);
            for (int c = 0; c < C; c++) {
                int k = (c * H + y) * W + v;
                planes[k] = mixed[(y * W + v) * C + c] = c == 0 ? value : (uint8_t)(255 - value);
                floats[k] = (float)planes[k];
            }
        }
    }
    const struct raw forms[] = {
        {planes, RAW_PLANES, C, H, W, 0},
        {mixed, RAW_INTERLEAVED, C, H, W, 0},
        {floats, RAW_FLOATS, C, H, W, 0},
    };
    for (size_t g = 0; g < sizeof golden / sizeof *golden; g++) {
        size_t n = golden[g].h * golden[g].w;
        for (size_t f = 0; f < 3; f++) {
            resize_all(&forms[f], whole_window(golden[g].h, golden[g].w), x);
            close_to(x, golden[g].y, n);
            for (size_t k = 0; k < n; k++) /* the other channel is its negative */
                assert_true(fabs((double)x[n + k] - (255 - golden[g].y[k])) < 1e-4);
        }
    }
}

/* A window shows the pixels of the whole at its place, and zeros outside; the mirror exchanges left
 * and right. */
static void test_windows_are_pieces(void **state)
{
    (void)state;
    enum { H = 11, W = 13, h = 7, w = 6 };
    uint8_t bytes[H * W];
    float all[h * w], x[9 * 8];
    for (int k = 0; k < H * W; k++)
        bytes[k] = (uint8_t)(k * k);
    const struct raw raw = {bytes, RAW_PLANES, 1, H, W, 0};
    resize_all(&raw, whole_window(h, w), all);
    for (ptrdiff_t top = -10; top <= h + 1; top++) {
        for (ptrdiff_t left = -9; left <= w + 1; left++) {
            for (int mirror = 0; mirror < 2; mirror++) {
                resize_all(&raw, (struct window){h, w, top, left, 9, 8, mirror}, x);
                for (ptrdiff_t i = 0; i < 9; i++) {
                    for (ptrdiff_t j = 0; j < 8; j++) {
                        ptrdiff_t y = top + i, v = left + (mirror ? 7 - j : j);
                        bool inside = y >= 0 && y < h && v >= 0 && v < w;
                        assert_true(x[i * 8 + j] == (inside ? all[y * w + v] : 0));
                    }
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_enlarging_by_hand),     cmocka_unit_test(test_shrinking_by_hand),
        cmocka_unit_test(test_a_shrunk_side_by_hand), cmocka_unit_test(test_as_pytorch_does),
        cmocka_unit_test(test_windows_are_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
