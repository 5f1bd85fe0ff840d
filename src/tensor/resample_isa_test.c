/* The loops of resampling give the same bits with every instruction set, and the plain ones are the
 * sums that their header promises. */
#include "tensor/resample_loops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { INPUTS = 70, OUTPUTS = 72, MOST = 6, ROOM = FOUR * OUTPUTS + RESAMPLE_WIDTH };

static float draw_unit(void)
{
    return (float)(rand() % 2001 - 1000) / 999;
}

struct scene {
    size_t C, n, most;
    four weight[OUTPUTS * MOST];
    struct resample_tap tap[OUTPUTS];
    float line[FOUR * (INPUTS + MOST) + FOUR];
    float row[MOST][ROOM];
    uint8_t bytes[INPUTS];
};

static void draw_scene(struct scene *s)
{
    memset(s, 0, sizeof *s);
    s->C = 1 + (size_t)rand() % FOUR;
    s->n = FOUR * (1 + (size_t)rand() % (OUTPUTS / FOUR));
    s->most = 1 + (size_t)rand() % MOST;
    for (size_t j = 0; j < s->n; j++) {
        s->tap[j] = (struct resample_tap){(size_t)rand() % INPUTS, (size_t)rand() % (s->most + 1),
                                          s->weight + j / FOUR * FOUR * s->most + j % FOUR};
        for (size_t k = 0; k < s->tap[j].count; k++)
            s->weight[j / FOUR * FOUR * s->most + j % FOUR + FOUR * k] = draw_unit() - (four){0};
    }
    for (size_t k = 0; k < sizeof s->line / sizeof *s->line; k++)
        s->line[k] = 255 * draw_unit();
    for (size_t k = 0; k < MOST * (size_t)ROOM; k++)
        s->row[k / ROOM][k % ROOM] = 255 * draw_unit();
    for (size_t k = 0; k < INPUTS; k++)
        s->bytes[k] = (uint8_t)rand();
}

/* Behind what a loop is to write, nothing changes. */
struct results {
    float line[INPUTS + 1], sampled[FOUR * OUTPUTS + 1], blended[OUTPUTS + 1];
};

static void run_loops(const struct resample_loops *loops, const struct scene *s,
                      struct results *out)
{
    const float *rows[MOST];
    for (size_t k = 0; k < MOST; k++)
        rows[k] = s->row[k];
    memset(out, 0x5a, sizeof *out);
    loops->convert(s->bytes, INPUTS, out->line);
    loops->sample(s->line, s->C, s->tap, s->n, s->most, out->sampled);
    loops->blend(rows, &s->tap[1], 3.5f, 0.3f, s->n - 1, out->blended);
}

static void compute_results(const struct scene *s, struct results *out)
{
    memset(out, 0x5a, sizeof *out);
    for (size_t k = 0; k < INPUTS; k++)
        out->line[k] = s->bytes[k];
    for (size_t j = 0; j < s->n; j++) {
        for (size_t c = 0; c < s->C; c++) {
            float sum = 0;
            for (size_t k = 0; k < s->tap[j].count; k++)
                sum += s->tap[j].weight[FOUR * k][0] * s->line[(s->tap[j].first + k) * s->C + c];
            out->sampled[c * s->n + j] = sum;
        }
    }
    for (size_t j = 0; j < s->n - 1; j++) {
        float sum = 0;
        for (size_t k = 0; k < s->tap[1].count; k++)
            sum += s->tap[1].weight[FOUR * k][0] * s->row[k][j];
        out->blended[j] = (sum - 3.5f) * 0.3f;
    }
}

static void test_every_instruction_set_has_these_bits(void **state)
{
    (void)state;
    static struct scene scene;
    static struct results want, got;
    const struct resample_loops *const tables[] = {
        &resample_loops_plain,
#ifdef ISA_TABLES_X86
        isa_runs(ISA_AVX2) ? &resample_loops_avx2 : NULL,
        isa_runs(ISA_AVX512) ? &resample_loops_avx512 : NULL,
#endif
    };
    for (int i = 0; i < 3000; i++) {
        draw_scene(&scene);
        compute_results(&scene, &want);
        for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
            if (!tables[t])
                continue;
            run_loops(tables[t], &scene, &got);
            assert_memory_equal(&got, &want, sizeof got);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_instruction_set_has_these_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
