/* The sigmoid of every kernel set against PyTorch (sigmoid.py wrote sigmoid.golden), from its
 * nearly linear part to full saturation. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/file.h"
#include "golden_hash.h"
#include "tensor/kernels.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 24, DY = 100, SCALES = 3 };

static const int scales[SCALES] = {4, 32, 256};

static const char *golden; /* the whole file */

static void expected_values(const char *what, int scale, double want[N])
{
    char key[64];
    snprintf(key, sizeof key, "%s.%d %d ", what, scale, N);
    const char *line = golden;
    while (line && strncmp(line, key, strlen(key)) != 0) {
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    if (!line)
        fail_msg("sigmoid.golden has no %s", key);
    char *at = (char *)(uintptr_t)(line + strlen(key));
    for (size_t i = 0; i < N; i++)
        want[i] = strtod(at, &at);
}

/* `slack`: the error of a y near 1 that is rounded to a float. Values below a float's normal range
 * may be 0. */
static void expect_near(const char *what, const float *got, const double *want, double slack)
{
    for (size_t i = 0; i < N; i++)
        if (!(fabs((double)got[i] - want[i]) <= 2e-6 * fabs(want[i]) + slack + (double)FLT_MIN))
            fail_msg("%s[%zu] is %.9g, PyTorch says %.9g", what, i, (double)got[i], want[i]);
}

static void check_sigmoid(const struct kernels *kernels, uint32_t stream, bool in_place)
{
    float x[N], y[N], dy[N], dx[N];
    double want_y[N], want_dx[N];
    struct shape shape = {2, {2, N / 2}};
    struct arena arena;
    struct op *op;
    struct err err = {0};
    for (uint32_t i = 0; i < N; i++) {
        x[i] = hash_unit(stream, i) * (float)scales[stream];
        dy[i] = hash_unit(DY + stream, i);
    }
    expected_values("y", scales[stream], want_y);
    expected_values("dx", scales[stream], want_dx);
    arena_init(&arena);
    if (kernels->sigmoid(&shape, LAYOUT_PLAIN, true, &arena, &op, &err) != OK)
        fail_msg("%s", err.text);
    struct op_args args = {.x = x, .y = in_place ? x : y, .dy = dy, .dx = in_place ? dy : dx};
    op->ops->forward(op, &args);
    op->ops->backward(op, &args);
    expect_near("y", args.y, want_y, 0);
    expect_near("dx", args.dx, want_dx, (double)FLT_EPSILON / 2);
    op_release(op);
    arena_release(&arena);
}

static void test_sigmoid(void **state)
{
    for (uint32_t stream = 0; stream < SCALES; stream++) {
        check_sigmoid(*state, stream, false);
        check_sigmoid(*state, stream, true);
    }
}

int main(void)
{
    struct file_bytes file;
    struct err err = {0};
    if (file_read(TEST_ROOT "/test/golden/sigmoid.golden", 1 << 20, &file, &err) != OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    golden = (const char *)file.data;
    static const struct kernels *const sets[] = {&kernels_ref, &kernels_dnnl};
    struct CMUnitTest tests[] = {
        {"sigmoid_ref", test_sigmoid, NULL, NULL, NULL},
        {"sigmoid_dnnl", test_sigmoid, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        memcpy(&tests[i].initial_state, &sets[i], sizeof sets[0]); /* drops a const */
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    file_release(&file);
    return failed;
}
