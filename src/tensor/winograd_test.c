/* Winograd's convolutions against sums in double as the definition has them, for shapes that cut
 * tiles and blocks of channels every way, and images of floats and of bf16. Arrays lie between
 * guards, at odd addresses, or end with the memory that may be read. Instruction sets:
 * PACELINE_ISA. */
#define _DEFAULT_SOURCE /* for MAP_ANONYMOUS, which POSIX has only since 2024 */
#include "tensor/winograd.h"

#include "tensor/bf16.h"
#include "tensor/kernels_dnnl_code.h"
#include "tensor/kernels_test_suite.h"

#include <sys/mman.h>
#include <unistd.h>

static const double part = 3e-5;      /* of the largest result; the header promises 1e-4 */
static const double rounded = 0x1p-8; /* of a result itself, as bf16: half of its last bit */

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16};

struct sizes {
    size_t N, C, H, W, O, K, pad_h, pad_w;
};

static const struct sizes all_sizes[] = {
    {2, 16, 8, 8, 16, 3, 1, 1},   {1, 16, 1, 1, 16, 3, 1, 1},   {3, 32, 7, 5, 16, 3, 1, 1},
    {2, 16, 9, 6, 48, 3, 0, 0},   {2, 48, 6, 11, 32, 3, 2, 0},  {1, 64, 10, 13, 96, 3, 0, 2},
    {2, 96, 5, 5, 64, 3, 2, 2},   {33, 16, 4, 4, 32, 3, 1, 1},  {2, 80, 14, 14, 16, 3, 1, 1},
    {2, 16, 8, 8, 32, 5, 2, 2},   {1, 32, 1, 1, 16, 5, 2, 2},   {3, 16, 5, 7, 16, 5, 0, 1},
    {2, 32, 12, 9, 48, 5, 4, 3},  {1, 96, 6, 6, 80, 5, 2, 0},   {17, 16, 8, 8, 16, 5, 1, 2},
    {2, 20, 12, 12, 50, 5, 0, 0}, {2, 9, 7, 6, 33, 3, 1, 0},    {1, 8, 3, 3, 8, 3, 0, 0},
    {1, 304, 6, 6, 24, 3, 1, 1},  {1, 24, 5, 5, 304, 3, 1, 1},  {1, 150, 4, 5, 170, 5, 2, 2},
    {4, 17, 17, 3, 31, 3, 2, 1},  {1, 160, 9, 9, 288, 3, 1, 1},
};
enum { SIZES = sizeof all_sizes / sizeof *all_sizes };

static struct conv_spec spec_of(const struct sizes *s, enum dtype dtype)
{
    size_t OH = s->H + 2 * s->pad_h - s->K + 1, OW = s->W + 2 * s->pad_w - s->K + 1;
    return (struct conv_spec){.x = image_array(s->N, s->C, s->H, s->W),
                              .y = image_array(s->N, s->O, OH, OW),
                              .kernel_h = s->K,
                              .kernel_w = s->K,
                              .stride_h = 1,
                              .stride_w = 1,
                              .pad_h = s->pad_h,
                              .pad_w = s->pad_w,
                              .dilation_h = 1,
                              .dilation_w = 1,
                              .groups = 1,
                              .dtype = dtype};
}

/* The results of N records from the inputs, measured or expected. Images are NHWC. */
struct results {
    struct array y, dx, dw, db;
};

static struct results results_new(const struct conv_spec *spec, size_t N)
{
    const size_t *x = spec->x.dim, *y = spec->y.dim, K = spec->kernel_h;
    return (struct results){
        array_new(N * y[1] * y[2] * y[3], NAN),
        array_new(N * x[1] * x[2] * x[3], NAN),
        array_new(y[1] * x[1] * K * K, 0.5f),
        array_new(y[1], 0.25f),
    };
}

static void results_free(struct results *r)
{
    array_free(&r->y), array_free(&r->dx), array_free(&r->dw), array_free(&r->db);
}

struct inputs {
    struct array x, w, b, dy;
};

/* Images to be are numbers that bf16 has, where they are to be that. */
static struct array image_shuffled(enum dtype dtype, size_t n, uint64_t stream)
{
    struct array a = array_shuffled(n, stream);
    for (size_t i = 0; i < n && dtype == DTYPE_BF16; i++)
        a.v[i] = bf16_float(bf16_nearest(a.v[i]));
    return a;
}

static struct inputs inputs_new(const struct conv_spec *spec, size_t N, uint64_t stream)
{
    const size_t *x = spec->x.dim, *y = spec->y.dim, K = spec->kernel_h;
    return (struct inputs){
        image_shuffled(spec->dtype, N * x[1] * x[2] * x[3], stream),
        array_shuffled(y[1] * x[1] * K * K, stream + 1),
        array_shuffled(y[1], stream + 2),
        image_shuffled(spec->dtype, N * y[1] * y[2] * y[3], stream + 3),
    };
}

static void inputs_free(struct inputs *in)
{
    array_free(&in->x), array_free(&in->w), array_free(&in->b), array_free(&in->dy);
}

/* All products of x[n, h, w, c] with w[o, c, i, j], and where they go. */
struct sums {
    double *y, *dx, *dw, *db;
};

static double *make_doubles(size_t n, double value)
{
    double *v = malloc(n * sizeof *v);
    assert_non_null(v);
    for (size_t i = 0; i < n; i++)
        v[i] = value;
    return v;
}

/* The part of output pixel `at` (n, oh, ow) and the input pixel (h, w) seen through tap t. */
static void add_tap(const struct conv_spec *spec, const struct inputs *in, struct sums *to,
                    size_t at, size_t from, size_t t)
{
    size_t C = spec->x.dim[1], O = spec->y.dim[1], taps = spec->kernel_h * spec->kernel_w;
    for (size_t o = 0; o < O; o++) {
        double dy = (double)in->dy.v[at * O + o], y = 0;
        for (size_t c = 0; c < C; c++) {
            size_t k = (o * C + c) * taps + t;
            y += (double)in->x.v[from * C + c] * (double)in->w.v[k];
            to->dx[from * C + c] += dy * (double)in->w.v[k];
            to->dw[k] += dy * (double)in->x.v[from * C + c];
        }
        to->y[at * O + o] += y;
    }
}

static void add_pixel(const struct conv_spec *spec, const struct inputs *in, struct sums *to,
                      size_t n, size_t oh, size_t ow)
{
    const size_t *x = spec->x.dim, *y = spec->y.dim;
    size_t at = (n * y[2] + oh) * y[3] + ow, O = y[1];
    for (size_t o = 0; o < O; o++) {
        to->y[at * O + o] += (double)in->b.v[o];
        to->db[o] += (double)in->dy.v[at * O + o];
    }
    for (size_t i = 0; i < spec->kernel_h; i++)
        for (size_t j = 0; j < spec->kernel_w; j++) {
            size_t h = oh + i - spec->pad_h, w = ow + j - spec->pad_w; /* wraps, outside */
            if (h < x[2] && w < x[3])
                add_tap(spec, in, to, at, (n * x[2] + h) * x[3] + w, i * spec->kernel_w + j);
        }
}

static void results_by_definition(const struct conv_spec *spec, size_t N, const struct inputs *in,
                                  struct results *r)
{
    struct sums to = {make_doubles(r->y.n, 0), make_doubles(r->dx.n, 0), make_doubles(r->dw.n, 0.5),
                      make_doubles(r->db.n, 0.25)};
    for (size_t n = 0; n < N; n++)
        for (size_t oh = 0; oh < spec->y.dim[2]; oh++)
            for (size_t ow = 0; ow < spec->y.dim[3]; ow++)
                add_pixel(spec, in, &to, n, oh, ow);
    for (size_t i = 0; i < r->y.n; i++)
        r->y.v[i] = (float)to.y[i];
    for (size_t i = 0; i < r->dx.n; i++)
        r->dx.v[i] = (float)to.dx[i];
    for (size_t i = 0; i < r->dw.n; i++)
        r->dw.v[i] = (float)to.dw[i];
    for (size_t i = 0; i < r->db.n; i++)
        r->db.v[i] = (float)to.db[i];
    free(to.y), free(to.dx), free(to.dw), free(to.db);
}

static struct winograd *planned_conv(const struct conv_spec *spec, bool training,
                                     struct arena *arena)
{
    struct winograd *winograd;
    struct err err = {0};
    size_t bytes = 0;
    assert_true(winograd_fits(spec));
    assert_int_equal(winograd_plan(spec, training, arena, &winograd, &bytes, &err), OK);
    assert_true(bytes > 0 && bytes <= arena->bytes);
    return winograd;
}

/* Memory that ends where nothing may be read, and begins after zeros. */
struct edge {
    char *map;
    void *at;
    size_t length;
};

static struct edge edge_new(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), end = page + (bytes + page - 1) / page * page;
    char *map = mmap(NULL, end + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + end, page, PROT_NONE), 0);
    return (struct edge){map, map + end - bytes, end + page};
}

static void edge_free(const struct edge *edge)
{
    for (const char *p = edge->map; p < (const char *)edge->at; p++)
        assert_true(*p == 0);
    munmap(edge->map, edge->length);
}

/* The array there, as an image. */
static struct edge image_at_edge(enum dtype dtype, const struct array *a)
{
    struct edge edge = edge_new(a->n * dtype_size(dtype));
    if (dtype == DTYPE_BF16)
        bf16_round(a->n, a->v, edge.at);
    else
        memcpy(edge.at, a->v, a->n * sizeof *a->v);
    return edge;
}

struct images {
    const void *x, *dy;
    void *y, *dx;
};

/* A direction may not count on what another one left behind: so in either order. */
static void run_all(const struct winograd *winograd, size_t N, const struct images *at,
                    const struct inputs *in, bool weights_first, struct results *r)
{
    if (weights_first)
        winograd_backward_weights(winograd, N, at->x, at->dy, r->dw.v, r->db.v);
    winograd_forward(winograd, N, at->x, in->w.v, in->b.v, at->y);
    winograd_backward_data(winograd, N, at->dy, in->w.v, at->dx);
    if (!weights_first)
        winograd_backward_weights(winograd, N, at->x, at->dy, r->dw.v, r->db.v);
}

static void results_by_winograd(const struct winograd *winograd, enum dtype dtype, size_t N,
                                const struct inputs *in, bool weights_first, struct results *r)
{
    if (dtype == DTYPE_F32) {
        const struct images at = {in->x.v, in->dy.v, r->y.v, r->dx.v};
        run_all(winograd, N, &at, in, weights_first, r);
        return;
    }
    struct edge x = image_at_edge(dtype, &in->x), dy = image_at_edge(dtype, &in->dy);
    struct edge y = image_at_edge(dtype, &r->y), dx = image_at_edge(dtype, &r->dx);
    const struct images at = {x.at, dy.at, y.at, dx.at};
    run_all(winograd, N, &at, in, weights_first, r);
    bf16_widen(r->y.n, y.at, r->y.v);
    bf16_widen(r->dx.n, dx.at, r->dx.v);
    edge_free(&x), edge_free(&dy), edge_free(&y), edge_free(&dx);
}

static void assert_image(const char *what, enum dtype dtype, const struct array *want,
                         const struct array *got)
{
    double largest = 0, own = dtype == DTYPE_BF16 ? rounded : 0;
    for (size_t i = 0; i < want->n; i++)
        largest = fmax(largest, fabs((double)want->v[i]));
    for (size_t i = 0; i < want->n; i++) {
        double a = (double)want->v[i], b = (double)got->v[i];
        if (!(fabs(a - b) <= part * largest + own * fabs(a)))
            fail_msg("%s[%zu] of %zu: %.9g and %.9g", what, i, want->n, a, b);
    }
}

static void assert_results(enum dtype dtype, const struct results *want, const struct results *got)
{
    assert_image("y", dtype, &want->y, &got->y);
    assert_image("dx", dtype, &want->dx, &got->dx);
    assert_close("dw", want->dw.v, got->dw.v, want->dw.n, part);
    assert_close("db", want->db.v, got->db.v, want->db.n, part);
}

static void assert_same(const struct array *a, const struct array *b)
{
    assert_memory_equal(a->v, b->v, a->n * sizeof *a->v);
}

/* Plan for s->N records on so many threads, run N of them, others, and the first again: compare. */
static void try_dtype(const struct sizes *s, enum dtype dtype, size_t N, int threads)
{
    struct conv_spec spec = spec_of(s, dtype);
    struct arena arena;
    arena_init(&arena);
    kernels_set_threads(threads);
    const struct winograd *winograd = planned_conv(&spec, true, &arena);
    struct inputs in = inputs_new(&spec, N, 1), others = inputs_new(&spec, N, 5);
    struct results want = results_new(&spec, N), got = results_new(&spec, N);
    struct results lost = results_new(&spec, N), again = results_new(&spec, N);
    results_by_definition(&spec, N, &in, &want);
    results_by_winograd(winograd, dtype, N, &in, false, &got);
    assert_results(dtype, &want, &got);
    results_by_winograd(winograd, dtype, N, &others, false, &lost);
    results_by_winograd(winograd, dtype, N, &in, true, &again);
    assert_same(&got.y, &again.y), assert_same(&got.dx, &again.dx);
    assert_same(&got.dw, &again.dw), assert_same(&got.db, &again.db);
    results_free(&want), results_free(&got), results_free(&lost), results_free(&again);
    inputs_free(&in), inputs_free(&others);
    arena_release(&arena);
    kernels_set_threads(1);
}

static void try_sizes(const struct sizes *s, size_t N, int threads)
{
    for (size_t i = 0; i < 2; i++)
        try_dtype(s, dtypes[i], N, threads);
}

static void test_definition(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++)
        try_sizes(&all_sizes[i], all_sizes[i].N, 1);
}

static void test_two_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++)
        try_sizes(&all_sizes[i], all_sizes[i].N, 2);
    try_sizes(&(struct sizes){3, 32, 20, 20, 64, 3, 1, 1}, 3, 3);
}

/* All that a kernel may be padded by, and channels that leave something over. */
static void test_pads(void **state)
{
    (void)state;
    static const size_t channels[] = {9, 17, 24};
    for (size_t K = 3; K <= 5; K += 2)
        for (size_t h = 0; h < K; h++)
            for (size_t w = 0; w < K; w++)
                try_sizes(&(struct sizes){2, channels[h % 3], 7, 5, channels[w % 3], K, h, w}, 2,
                          1 + (int)(h + w) % 2);
}

/* The arrays are then as short as the batch. */
static void test_part_of_batch(void **state)
{
    (void)state;
    try_sizes(&(struct sizes){40, 16, 8, 8, 32, 3, 1, 1}, 37, 2);
    try_sizes(&(struct sizes){40, 16, 8, 8, 32, 3, 1, 1}, 1, 2);
    try_sizes(&(struct sizes){9, 20, 6, 6, 40, 5, 2, 2}, 4, 1);
}

/* Without b, db, or training. */
static void test_less(void **state)
{
    (void)state;
    struct conv_spec spec = spec_of(&(struct sizes){2, 16, 6, 6, 20, 3, 1, 1}, DTYPE_F32);
    struct arena arena;
    arena_init(&arena);
    const struct winograd *winograd = planned_conv(&spec, true, &arena);
    const struct winograd *inference = planned_conv(&spec, false, &arena);
    struct inputs in = inputs_new(&spec, 2, 1);
    struct results with = results_new(&spec, 2), without = results_new(&spec, 2);
    results_by_winograd(winograd, DTYPE_F32, 2, &in, false, &with);
    winograd_forward(inference, 2, in.x.v, in.w.v, in.b.v, without.y.v);
    assert_same(&with.y, &without.y);
    winograd_backward_weights(winograd, 2, in.x.v, in.dy.v, without.dw.v, NULL);
    assert_same(&with.dw, &without.dw);
    winograd_forward(winograd, 2, in.x.v, in.w.v, NULL, without.y.v);
    for (size_t i = 0; i < with.y.n; i++)
        with.y.v[i] -= in.b.v[i % in.b.n];
    assert_close("y", with.y.v, without.y.v, with.y.n, 1e-6);
    results_free(&with), results_free(&without);
    inputs_free(&in);
    arena_release(&arena);
}

/* How far from the definition a result may be would catch a single tap of a single filter that is
 * wrong by a hundredth. */
static void test_tolerance(void **state)
{
    (void)state;
    struct conv_spec spec = spec_of(&(struct sizes){1, 32, 8, 8, 32, 3, 1, 1}, DTYPE_F32);
    struct arena arena;
    arena_init(&arena);
    const struct winograd *winograd = planned_conv(&spec, true, &arena);
    struct inputs in = inputs_new(&spec, 1, 1);
    struct results want = results_new(&spec, 1), got = results_new(&spec, 1);
    results_by_definition(&spec, 1, &in, &want);
    in.w.v[77] += 0.01f;
    results_by_winograd(winograd, DTYPE_F32, 1, &in, false, &got);
    double largest = 0, most = 0;
    for (size_t i = 0; i < want.y.n; i++) {
        largest = fmax(largest, fabs((double)want.y.v[i]));
        most = fmax(most, fabs((double)want.y.v[i] - (double)got.y.v[i]));
    }
    assert_true(most > 10 * part * largest);
    results_free(&want), results_free(&got);
    inputs_free(&in);
    arena_release(&arena);
}

/* Blocks of 16 channels are read whole, but never past the end of the last image. */
static void try_edge(const struct sizes *s)
{
    struct conv_spec spec = spec_of(s, DTYPE_F32);
    struct arena arena;
    arena_init(&arena);
    const struct winograd *winograd = planned_conv(&spec, true, &arena);
    struct inputs in = inputs_new(&spec, s->N, 1), edge = in;
    struct results want = results_new(&spec, s->N), got = results_new(&spec, s->N);
    struct edge x = image_at_edge(DTYPE_F32, &in.x), dy = image_at_edge(DTYPE_F32, &in.dy);
    struct edge w = image_at_edge(DTYPE_F32, &in.w);
    edge.x.v = x.at, edge.w.v = w.at, edge.dy.v = dy.at;
    results_by_winograd(winograd, DTYPE_F32, s->N, &in, false, &want);
    results_by_winograd(winograd, DTYPE_F32, s->N, &edge, false, &got);
    assert_same(&want.y, &got.y), assert_same(&want.dx, &got.dx), assert_same(&want.dw, &got.dw);
    edge_free(&x), edge_free(&w), edge_free(&dy);
    results_free(&want), results_free(&got);
    inputs_free(&in);
    arena_release(&arena);
}

static void test_edge_of_memory(void **state)
{
    (void)state;
    try_edge(&(struct sizes){1, 18, 6, 6, 17, 3, 0, 0});
    try_edge(&(struct sizes){2, 33, 7, 5, 20, 3, 1, 1});
    try_edge(&(struct sizes){1, 17, 8, 8, 33, 5, 0, 0});
}

/* Ops of one shape that share scratch share a plan, but not where their images differ in type. */
static void test_types_share_no_plan(void **state)
{
    (void)state;
    const struct sizes s = {2, 16, 6, 6, 20, 3, 1, 1};
    struct arena arena;
    struct op_scratch scratch = {0};
    size_t bytes = 0;
    arena_init(&arena);
    for (size_t i = 0; i < 2; i++) {
        struct conv_spec spec = spec_of(&s, dtypes[i]);
        spec.bias = true;
        const struct conv_site site = {
            .spec = &spec, .training = true, .arena = &arena, .scratch = &scratch, .bytes = &bytes};
        struct conv_code *code;
        struct inputs in = inputs_new(&spec, s.N, 1);
        struct results r = results_new(&spec, s.N);
        struct edge x = image_at_edge(dtypes[i], &in.x), y = image_at_edge(dtypes[i], &r.y);
        assert_int_equal(code_plan_winograd(&site, &code), dnnl_success);
        code->run(code, &(struct op_args){.x = x.at, .w = in.w.v, .b = in.b.v, .y = y.at});
        results_by_winograd(planned_conv(&spec, true, &arena), dtypes[i], s.N, &in, false, &r);
        struct edge want = image_at_edge(dtypes[i], &r.y);
        assert_memory_equal(want.at, y.at, r.y.n * dtype_size(dtypes[i]));
        edge_free(&x), edge_free(&y), edge_free(&want);
        results_free(&r), inputs_free(&in);
    }
    arena_release(&arena);
}

static void test_fits(void **state)
{
    (void)state;
    const struct conv_spec good = spec_of(&all_sizes[0], DTYPE_F32);
    assert_true(winograd_fits(&good));
    struct conv_spec bad[9];
    for (size_t i = 0; i < 9; i++)
        bad[i] = good;
    bad[0].kernel_h = bad[0].kernel_w = 7;
    bad[1].kernel_h = 5;
    bad[2].stride_w = 2;
    bad[3].dilation_h = 2;
    bad[4].groups = 2;
    bad[5].pad_h = 3;
    bad[6].x.dim[1] = 3;
    bad[7].y.dim[1] = 4;
    bad[8].pad_w = 3;
    for (size_t i = 0; i < 9; i++)
        assert_false(winograd_fits(&bad[i]));
}

static void test_no_memory(void **state)
{
    (void)state;
    struct conv_spec spec = spec_of(&all_sizes[0], DTYPE_F32);
    struct arena arena;
    struct winograd *winograd = NULL;
    struct err err = {0};
    size_t bytes = 0;
    arena_init(&arena);
    arena_limit(&arena, 100 * 1024);
    assert_int_equal(winograd_plan(&spec, true, &arena, &winograd, &bytes, &err), ERR_NOMEM);
    assert_null(winograd);
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),     cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_pads),           cmocka_unit_test(test_part_of_batch),
        cmocka_unit_test(test_less),           cmocka_unit_test(test_tolerance),
        cmocka_unit_test(test_edge_of_memory), cmocka_unit_test(test_types_share_no_plan),
        cmocka_unit_test(test_fits),           cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
