#include "tensor/kernels_dnnl_choose.h"

#include "base/fault.h"
#include "base/memory.h"
#include "tensor/bf16.h"
#include "tensor/isa.h"

#include <ctype.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

/* The maker; family, model and stepping. Choices are not to be carried to another processor. */
static void name_processor(char out[32])
{
    snprintf(out, 32, "generic");
#ifdef __x86_64__
    unsigned a, b, c, d, id;
    char maker[13] = {0};
    if (!__get_cpuid(0, &a, &b, &c, &d) || !__get_cpuid(1, &id, &a, &a, &a))
        return;
    memcpy(maker, &b, 4);
    memcpy(maker + 4, &d, 4);
    memcpy(maker + 8, &c, 4);
    for (char *p = maker; *p; p++)
        if (!isalnum((unsigned char)*p))
            *p = '.';
    snprintf(out, 32, "%s-%x", maker, id);
#endif
}

static const char *const passes[] = {"fwd", "data", "weights"};

void conv_key(const struct conv_site *site, char out[TUNER_KEY_MAX + 1])
{
    const struct conv_spec *s = site->spec;
    const dnnl_version_t *lib = dnnl_version();
    char cpu[32];
    name_processor(cpu);
    int n = snprintf(
        out, TUNER_KEY_MAX + 1,
        "conv %s%s %s%s x=%zux%zux%zux%zu k=%zux%zu s=%zux%zu p=%zux%zu d=%zux%zu g=%zu o=%zu b=%d "
        "t=%d cpu=%s-%s codes=%d lib=onednn-%d.%d.%d",
        passes[site->pass], site->cold ? "-cold" : "", dtype_name(s->dtype),
        s->blocks ? "-blocks" : "", s->x.dim[0], s->x.dim[1], s->x.dim[2], s->x.dim[3], s->kernel_h,
        s->kernel_w, s->stride_h, s->stride_w, s->pad_h, s->pad_w, s->dilation_h, s->dilation_w,
        s->groups, s->y.dim[1], s->bias && site->pass != ONEDNN_BACKWARD_DATA,
        omp_get_max_threads(), cpu, isa_name(isa_best()), CONV_CODES_VERSION, lib->major,
        lib->minor, lib->patch);
    PL_ASSERT(n > 0 && n <= TUNER_KEY_MAX); /* 21 numbers */
}

/* ---- timing ---- */

/* One direction of a convolution, done by candidates in turn. */
struct trial {
    struct conv_spec spec; /* over fewer records, maybe */
    enum onednn_pass pass;
    bool training, cold;
    const struct conv_candidate *candidates;
    struct arena arrays;
    struct op_args args;
    size_t bytes, places, turn; /* the output rotates through this many buffers, one behind the
                                   other */

    size_t current; /* which is planned; SIZE_MAX: none */
    struct arena arena;
    struct onednn dnn;
    struct op_scratch scratch;
    struct conv_code *code;
};

static void end_candidate(struct trial *t)
{
    onednn_release(&t->dnn);
    arena_release(&t->arena);
    arena_init(&t->arena);
    arena_limit(&t->arena, memory_available(NULL) / 2);
    t->scratch = (struct op_scratch){0};
    t->current = SIZE_MAX;
}

static int begin_candidate(struct trial *t, size_t i)
{
    struct err ignored;
    size_t bytes = 0;
    end_candidate(t);
    const struct conv_site site = {
        .spec = &t->spec,
        .pass = t->pass,
        .training = t->training,
        .dnn = &t->dnn,
        .arena = &t->arena,
        .scratch = &t->scratch,
        .bytes = &bytes,
    };
    if (onednn_init(&t->dnn, &ignored) != OK ||
        conv_code_plan(&site, &t->candidates[i], &t->code) != dnnl_success)
        return ERR_UNSUPPORTED;
    t->scratch.at = arena_alloc(&t->arena, 1, t->scratch.bytes);
    if (!t->scratch.at)
        return ERR_NOMEM;
    t->current = i;
    return OK;
}

static int run_candidate(void *user, size_t i)
{
    struct trial *t = user;
    int rc = t->current == i ? OK : begin_candidate(t, i);
    struct op_args args = t->args;
    void **made = t->pass == ONEDNN_FORWARD ? &args.y : &args.dx;
    *made = (char *)*made + t->turn++ % t->places * t->bytes;
    if (rc == OK)
        t->code->run(t->code, &args);
    return rc;
}

/* Any numbers but zeros, of which a processor may make less work. */
static float *fill_numbers(struct arena *arena, size_t n)
{
    float *v = arena_array(arena, n, float);
    for (size_t i = 0; v && i < n; i++)
        v[i] = (float)(i * 7919 % 1009) * 1e-3f - 0.5f;
    return v;
}

/* Rounded where they lie. */
static void *image_numbers(struct arena *arena, const struct shape *shape, enum dtype dtype)
{
    size_t n = shape_count(shape);
    float *v = fill_numbers(arena, n);
    bf16 *half = (void *)v;
    for (size_t i = 0; v && i < n && dtype == DTYPE_BF16; i++)
        half[i] = bf16_nearest(v[i]);
    return v;
}

enum { COLD_BYTES = 64 << 20, COLD_MAX = 16, TOUCH_BYTES = 4096 };

/* Training keeps the values of forward, so they lie where no cache has been for long; its inputs
 * were written just before. Some codes suffer from that more than others. */
static void *cold_buffers(struct trial *t, const struct shape *image)
{
    size_t bytes = shape_count(image) * dtype_size(t->spec.dtype);
    t->bytes = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    t->places = COLD_BYTES / t->bytes;
    t->places = t->places < 1 ? 1 : t->places > COLD_MAX ? COLD_MAX : t->places;
    char *at = arena_alloc(&t->arrays, t->places, t->bytes);
    for (size_t i = 0; at && i < t->places * t->bytes; i += TOUCH_BYTES)
        at[i] = 0;
    return at;
}

static bool make_arrays(struct trial *t)
{
    const struct conv_spec *s = &t->spec;
    size_t O = s->y.dim[1], w = O * (s->x.dim[1] / s->groups) * s->kernel_h * s->kernel_w;
    bool makes_y = t->pass == ONEDNN_FORWARD, makes_x = t->pass == ONEDNN_BACKWARD_DATA;
    t->places = 1;
    void *x =
        t->cold && makes_x ? cold_buffers(t, &s->x) : image_numbers(&t->arrays, &s->x, s->dtype);
    void *y =
        t->cold && makes_y ? cold_buffers(t, &s->y) : image_numbers(&t->arrays, &s->y, s->dtype);
    float *weights = fill_numbers(&t->arrays, w), *b = fill_numbers(&t->arrays, O);
    t->args = (struct op_args){
        .x = x, .w = weights, .b = b, .y = y, .dy = y, .dx = x, .dw = weights, .db = b};
    return x && y && weights && b;
}

/* Enough records for some GFLOP, which take tens of milliseconds; a share for each thread. */
static size_t records_to_time(const struct conv_spec *s)
{
    enum { ENOUGH = 3 }; /* GFLOP a thread */
    double taps = (double)(s->x.dim[1] / s->groups * s->kernel_h * s->kernel_w);
    double one = 2e-9 * taps * (double)shape_count_from(&s->y, 1);
    size_t T = (size_t)omp_get_max_threads(), most = s->x.dim[0];
    double shares = one > 0 ? ENOUGH / one + 1 : (double)most;
    return shares * (double)T < (double)most ? (size_t)shares * T : most;
}

static dnnl_status_t time_candidates(const struct conv_site *site, struct tuner *tuner,
                                     const char *key, const struct conv_candidate *list, size_t n,
                                     size_t *winner)
{
    const char *names[CONV_CANDIDATES_MAX];
    struct trial t = {
        .spec = *site->spec,
        .pass = site->pass,
        .training = site->training,
        .cold = site->cold,
        .candidates = list,
        .current = SIZE_MAX,
    };
    t.spec.x.dim[0] = t.spec.y.dim[0] = records_to_time(site->spec);
    for (size_t i = 0; i < n; i++)
        names[i] = list[i].name;
    arena_init(&t.arrays);
    arena_limit(&t.arrays, memory_available(NULL) / 2);
    arena_init(&t.arena);
    dnnl_status_t status = make_arrays(&t) ? dnnl_success : dnnl_out_of_memory;
    if (!status)
        status = onednn_keep_no_primitives();
    if (!status) {
        *winner = tuner_choose(tuner, key, names, n, run_candidate, &t);
        end_candidate(&t);
        onednn_keep_primitives();
    }
    arena_release(&t.arena);
    arena_release(&t.arrays);
    return !status && *winner == n ? dnnl_unimplemented : status;
}

dnnl_status_t conv_choose(const struct conv_site *site, struct tuner *tuner,
                          struct conv_candidate *out, double *seconds)
{
    struct conv_candidate list[CONV_CANDIDATES_MAX];
    char key[TUNER_KEY_MAX + 1];
    *seconds = 0;
    if (!tuner)
        return conv_rule(site, out);
    conv_key(site, key);
    size_t n = conv_candidates(site, list), winner = 0;
    const char *kept = tuner_find(tuner, key);
    while (kept && winner < n && strcmp(list[winner].name, kept) != 0)
        winner++;
    bool known = kept && winner < n;
    size_t better = winner;
    if (known && tuner_checks(tuner, key) &&
        time_candidates(site, tuner, key, list, n, &better) == dnnl_success)
        winner = better;
    if (n == 0 || (!known && !tuner_has_time(tuner, key)) ||
        (!known && time_candidates(site, tuner, key, list, n, &winner) != dnnl_success))
        return conv_rule(site, out); /* which knows the status for an unsupported site */
    *out = list[winner];
    double times = (double)site->spec->x.dim[0] / (double)records_to_time(site->spec);
    *seconds = (double)tuner_time(tuner, key) * 1e-9 * times;
    return dnnl_success;
}
