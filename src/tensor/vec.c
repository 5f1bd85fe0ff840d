#include "tensor/vec.h"

#include "base/fault.h"
#include "base/hash.h"
#include "base/status.h"
#include "tensor/parallel.h"
#include "tensor/vec_kernels.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

/* Ranges shorter than this are done before other threads would have woken up. */
enum { THREADS_LEN_MIN = 64 * 1024, PAGE_FLOATS = 1024 };

static void check_range(const struct vec *v, struct range r)
{
    PL_ASSERT(r.from <= v->n && r.len <= v->n - r.from);
}

/* The range of y, which is written, and the same range of x: both exist and are apart. */
static void check_apart(const struct vec *y, const struct vec *x, struct range r)
{
    check_range(y, r);
    check_range(x, r);
    uintptr_t p = (uintptr_t)y->at, q = (uintptr_t)x->at;
    PL_ASSERT((p > q ? p - q : q - p) >= r.len * sizeof(float));
}

/* Blocks of VEC_BLOCK floats lie on a grid from the start of the vector, whatever the range. */
static size_t block_first(struct range r)
{
    return r.from / VEC_BLOCK;
}

static size_t block_end(struct range r)
{
    return r.len ? (r.from + r.len - 1) / VEC_BLOCK + 1 : block_first(r);
}

/* The part of the range in block i. */
static struct range block_part(struct range r, size_t i)
{
    size_t from = i * VEC_BLOCK, end = from + VEC_BLOCK;
    from = from > r.from ? from : r.from;
    end = end < r.from + r.len ? end : r.from + r.len;
    return (struct range){from, end - from};
}

struct update;

/* A step of an optimizer over part of one segment. */
typedef void segment_fn(const struct update *u, const struct segment *segment, size_t from,
                        size_t n);

/* The arguments of one update; each uses those it needs. */
struct update {
    float *y, *v, *second;
    const float *x, *p;
    float a, b, c;
    const float *w;
    const struct vec *const *inputs;
    size_t count;
    segment_fn *optimizer;
    const void *rule; /* the optimizer's own */
    const struct segments *table;
};

typedef void update_fn(const struct update *u, size_t from, size_t n);

/* Apply fn block by block. Elements do not meet, so threads cannot show in the result; and a block
 * of each vector fits the first-level cache, for updates that pass over it more than once. */
static void each_block(update_fn *fn, const struct update *u, struct range r)
{
    PARALLEL_EACH(i, block_first(r), block_end(r), 1, r.len >= THREADS_LEN_MIN, {
        struct range part = block_part(r, i);
        fn(u, part.from, part.len);
    });
}

void vec_each_block(struct range r, void (*fn)(void *user, struct range block), void *user)
{
    PARALLEL_EACH(i, block_first(r), block_end(r), 1, r.len >= THREADS_LEN_MIN,
                  fn(user, block_part(r, i)));
}

static size_t cut_at(size_t n, size_t parts, size_t i, size_t unit)
{
    size_t even = n / parts * i + n % parts * i / parts; /* i·n/parts without overflow */
    return i < parts ? even / unit * unit : n;
}

struct range range_cut(size_t n, size_t parts, size_t i, size_t unit)
{
    PL_ASSERT(i < parts && unit > 0);
    size_t from = cut_at(n, parts, i, unit);
    return (struct range){from, cut_at(n, parts, i + 1, unit) - from};
}

struct range range_shard(size_t n, size_t shards, size_t i)
{
    PL_ASSERT(i < shards);
    return range_cut(n, shards, i, n / shards >= VEC_BLOCK ? VEC_BLOCK : SEGMENT_ALIGN);
}

int vec_init(struct vec *v, struct arena *arena, size_t n)
{
    float *at = arena_array(arena, n, float);
    if (!at)
        return ERR_NOMEM;
    *v = (struct vec){at, n};
    return OK;
}

int vec_init_model(struct vec *both, struct vec *x, struct vec *s, struct arena *arena, size_t n_x,
                   size_t n_s)
{
    int rc = vec_init(both, arena, n_x + n_s);
    *x = vec_part(both, 0, rc == OK ? n_x : 0);
    *s = vec_part(both, x->n, rc == OK ? n_s : 0);
    return rc;
}

void vec_touch(struct vec *v)
{
    for (size_t i = 0; i < v->n; i += PAGE_FLOATS)
        *(volatile float *)(v->at + i) = 0;
}

void vec_export(const struct vec *v, struct range r, float *out)
{
    check_range(v, r);
    if (r.len)
        memcpy(out, v->at + r.from, r.len * sizeof *out);
}

void vec_import(struct vec *v, struct range r, const float *in)
{
    check_range(v, r);
    if (r.len)
        memcpy(v->at + r.from, in, r.len * sizeof *in);
}

static void fill_part(const struct update *u, size_t from, size_t n)
{
    vec_kernels_best()->fill(u->y + from, u->a, n);
}

void vec_fill(struct vec *y, struct range r, float value)
{
    check_range(y, r);
    each_block(fill_part, &(struct update){.y = y->at, .a = value}, r);
}

static void copy_part(const struct update *u, size_t from, size_t n)
{
    memcpy(u->y + from, u->x + from, n * sizeof(float));
}

void vec_copy(struct vec *y, const struct vec *x, struct range r)
{
    check_apart(y, x, r);
    each_block(copy_part, &(struct update){.y = y->at, .x = x->at}, r);
}

static void scale_part(const struct update *u, size_t from, size_t n)
{
    vec_kernels_best()->scale(u->y + from, u->a, n);
}

void vec_scale(struct vec *y, float a, struct range r)
{
    check_range(y, r);
    each_block(scale_part, &(struct update){.y = y->at, .a = a}, r);
}

static void axpy_part(const struct update *u, size_t from, size_t n)
{
    vec_kernels_best()->axpy(u->y + from, u->a, u->x + from, n);
}

void vec_axpy(struct vec *y, float a, const struct vec *x, struct range r)
{
    check_apart(y, x, r);
    each_block(axpy_part, &(struct update){.y = y->at, .a = a, .x = x->at}, r);
}

static void lerp_part(const struct update *u, size_t from, size_t n)
{
    vec_kernels_best()->lerp(u->y + from, u->a, u->x + from, n);
}

void vec_lerp(struct vec *y, float t, const struct vec *x, struct range r)
{
    check_apart(y, x, r);
    each_block(lerp_part, &(struct update){.y = y->at, .a = t, .x = x->at}, r);
}

static void penalise_part(const struct update *u, size_t from, size_t n)
{
    vec_kernels_best()->penalise(u->y + from, u->a, u->x + from, n);
}

void vec_penalise(struct vec *x, float alpha, const struct vec *joint, struct range r)
{
    check_apart(x, joint, r);
    each_block(penalise_part, &(struct update){.y = x->at, .a = alpha, .x = joint->at}, r);
}

static void extrapolate_part(const struct update *u, size_t from, size_t n)
{
    vec_kernels_best()->extrapolate(u->y + from, u->v + from, u->x + from, u->p + from, u->a, u->b,
                                    u->c, n);
}

void vec_extrapolate(struct vec *out, struct vec *v, const struct vec *x, const struct vec *x_prev,
                     float delta, float fresh, float gamma, struct range r)
{
    check_apart(out, v, r);
    check_apart(out, x, r);
    check_apart(out, x_prev, r);
    check_apart(v, x, r);
    check_apart(v, x_prev, r);
    struct update u = {
        .y = out->at, .v = v->at, .x = x->at, .p = x_prev->at, .a = delta, .b = fresh, .c = gamma};
    each_block(extrapolate_part, &u, r);
}

static void weighted_sum_part(const struct update *u, size_t from, size_t n)
{
    if (u->count == 0)
        vec_kernels_best()->fill(u->y + from, 0, n);
    else
        vec_kernels_best()->product(u->y + from, u->w[0], u->inputs[0]->at + from, n);
    for (size_t i = 1; i < u->count; i++)
        vec_kernels_best()->axpy(u->y + from, u->w[i], u->inputs[i]->at + from, n);
}

void vec_weighted_sum(struct vec *y, const float *w, const struct vec *const *x, size_t count,
                      struct range r)
{
    check_range(y, r);
    for (size_t i = 0; i < count; i++)
        if (i > 0 || x[i]->at != y->at)
            check_apart(y, x[i], r);
    struct update u = {.y = y->at, .w = w, .inputs = x, .count = count};
    each_block(weighted_sum_part, &u, r);
}

/* Index of the first segment that ends past `from`. */
static size_t segment_after(const struct segments *table, size_t from)
{
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (table->at[mid].offset + table->at[mid].len > from)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

static void segments_part(const struct update *u, size_t from, size_t n)
{
    size_t end = from + n;
    for (size_t i = segment_after(u->table, from); i < u->table->count; i++) {
        const struct segment *segment = &u->table->at[i];
        if (segment->offset >= end)
            break;
        size_t a = segment->offset > from ? segment->offset : from;
        size_t b = segment->offset + segment->len < end ? segment->offset + segment->len : end;
        if (segment->lr_mult != 0)
            u->optimizer(u, segment, a, b - a);
    }
}

/* One step of an optimizer with one vector of state. */
static void each_segment(segment_fn *optimizer, const void *rule, struct vec *x,
                         const struct vec *dx, struct vec *state, const struct segments *table,
                         struct range r)
{
    check_apart(x, dx, r);
    check_apart(x, state, r);
    check_apart(state, dx, r);
    PL_ASSERT(r.from + r.len <= table->total);
    struct update u = {.y = x->at,
                       .x = dx->at,
                       .v = state->at,
                       .optimizer = optimizer,
                       .rule = rule,
                       .table = table};
    each_block(segments_part, &u, r);
}

static struct vec_sgd_step sgd_step(const struct vec_sgd *rule, const struct segment *segment)
{
    return (struct vec_sgd_step){
        .rate = rule->rate * segment->lr_mult,
        .momentum = rule->momentum,
        .decay = rule->decay * segment->decay_mult,
    };
}

static void sgd_segment(const struct update *u, const struct segment *segment, size_t from,
                        size_t n)
{
    vec_kernels_best()->sgd(u->y + from, u->x + from, u->v + from, sgd_step(u->rule, segment), n);
}

void vec_sgd(struct vec *x, const struct vec *dx, struct vec *m, const struct vec_sgd *rule,
             const struct segments *table, struct range r)
{
    each_segment(sgd_segment, rule, x, dx, m, table, r);
}

static void nesterov_segment(const struct update *u, const struct segment *segment, size_t from,
                             size_t n)
{
    vec_kernels_best()->nesterov(u->y + from, u->x + from, u->v + from, sgd_step(u->rule, segment),
                                 n);
}

void vec_nesterov(struct vec *x, const struct vec *dx, struct vec *m, const struct vec_sgd *rule,
                  const struct segments *table, struct range r)
{
    each_segment(nesterov_segment, rule, x, dx, m, table, r);
}

static void adagrad_segment(const struct update *u, const struct segment *segment, size_t from,
                            size_t n)
{
    const struct vec_adagrad *rule = u->rule;
    struct vec_adagrad_step step = {
        .rate = rule->rate * segment->lr_mult,
        .delta = rule->delta,
        .decay = rule->decay * segment->decay_mult,
    };
    vec_kernels_best()->adagrad(u->y + from, u->x + from, u->v + from, step, n);
}

void vec_adagrad(struct vec *x, const struct vec *dx, struct vec *h, const struct vec_adagrad *rule,
                 const struct segments *table, struct range r)
{
    each_segment(adagrad_segment, rule, x, dx, h, table, r);
}

static void rmsprop_segment(const struct update *u, const struct segment *segment, size_t from,
                            size_t n)
{
    const struct vec_rmsprop *rule = u->rule;
    struct vec_rmsprop_step step = {
        .rate = rule->rate * segment->lr_mult,
        .rms_decay = rule->rms_decay,
        .delta = rule->delta,
        .decay = rule->decay * segment->decay_mult,
    };
    vec_kernels_best()->rmsprop(u->y + from, u->x + from, u->v + from, step, n);
}

void vec_rmsprop(struct vec *x, const struct vec *dx, struct vec *h, const struct vec_rmsprop *rule,
                 const struct segments *table, struct range r)
{
    each_segment(rmsprop_segment, rule, x, dx, h, table, r);
}

/* One step of an optimizer with two vectors of state. */
static void each_segment_two(segment_fn *optimizer, const void *rule, struct vec *x,
                             const struct vec *dx, struct vec *first, struct vec *second,
                             const struct segments *table, struct range r)
{
    const struct vec *const all[] = {x, dx, first, second};
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < i; j++)
            check_apart(all[i], all[j], r);
    PL_ASSERT(r.from + r.len <= table->total);
    struct update u = {.y = x->at,
                       .x = dx->at,
                       .v = first->at,
                       .second = second->at,
                       .optimizer = optimizer,
                       .rule = rule,
                       .table = table};
    each_block(segments_part, &u, r);
}

static void adadelta_segment(const struct update *u, const struct segment *segment, size_t from,
                             size_t n)
{
    const struct vec_adadelta *rule = u->rule;
    struct vec_adadelta_step step = {
        .rate = rule->rate * segment->lr_mult,
        .momentum = rule->momentum,
        .delta = rule->delta,
        .decay = rule->decay * segment->decay_mult,
    };
    vec_kernels_best()->adadelta(u->y + from, u->x + from, u->v + from, u->second + from, step, n);
}

void vec_adadelta(struct vec *x, const struct vec *dx, struct vec *h, struct vec *u,
                  const struct vec_adadelta *rule, const struct segments *table, struct range r)
{
    each_segment_two(adadelta_segment, rule, x, dx, h, u, table, r);
}

/* A product of floats is exact in double, so that `keep` is rounded once. */
static void adam_segment(const struct update *u, const struct segment *segment, size_t from,
                         size_t n)
{
    const struct vec_adam *rule = u->rule;
    float rate = rule->rate * segment->lr_mult, decay = rule->decay * segment->decay_mult;
    struct vec_adam_step step = {
        .rate = rule->correction * rate,
        .beta1 = rule->beta1,
        .beta2 = rule->beta2,
        .delta = rule->delta,
        .decay = rule->decoupled ? 0 : decay,
        .keep = rule->decoupled ? (float)(1 - (double)rate * (double)decay) : 1,
    };
    vec_kernels_best()->adam(u->y + from, u->x + from, u->v + from, u->second + from, step, n);
}

void vec_adam(struct vec *x, const struct vec *dx, struct vec *m, struct vec *v,
              const struct vec_adam *rule, const struct segments *table, struct range r)
{
    each_segment_two(adam_segment, rule, x, dx, m, v, table, r);
}

static void decay_l1_segment(const struct update *u, const struct segment *segment, size_t from,
                             size_t n)
{
    vec_kernels_best()->axpy_sign(u->y + from, u->a * segment->decay_mult, u->x + from, n);
}

void vec_decay_l1(struct vec *dx, const struct vec *x, float decay, const struct segments *table,
                  struct range r)
{
    check_apart(dx, x, r);
    PL_ASSERT(r.from + r.len <= table->total);
    struct update u = {
        .y = dx->at, .x = x->at, .a = decay, .optimizer = decay_l1_segment, .table = table};
    each_block(segments_part, &u, r);
}

bool vec_finite(const struct vec *v, struct range r)
{
    check_range(v, r);
    atomic_bool ok = true;
    PARALLEL_EACH(i, block_first(r), block_end(r), 1, r.len >= THREADS_LEN_MIN, {
        struct range part = block_part(r, i);
        if (ok && !vec_kernels_best()->finite(v->at + part.from, part.len))
            ok = false;
    });
    return ok;
}

double vec_dot(const struct vec *a, const struct vec *b, struct range r)
{
    check_range(a, r);
    check_range(b, r);
    enum { GROUP = 512 }; /* blocks whose sums are added together */
    double sums[GROUP], total = 0;
    size_t end = block_end(r);
    for (size_t base = block_first(r); base < end; base += GROUP) {
        size_t count = end - base < GROUP ? end - base : GROUP;
        PARALLEL_EACH(i, 0, count, 1, r.len >= THREADS_LEN_MIN, {
            struct range part = block_part(r, base + i);
            sums[i] = vec_kernels_best()->dot_block(a->at + part.from, b->at + part.from, part.len);
        });
        for (size_t i = 0; i < count; i++)
            total += sums[i];
    }
    return total;
}

/* A block of a − p. */
static const float *difference_of(float *room, const struct vec *a, const struct vec *p,
                                  struct range part)
{
    if (!p)
        return a->at + part.from;
    for (size_t k = 0; k < part.len; k++)
        room[k] = a->at[part.from + k] - p->at[part.from + k];
    return room;
}

static struct vec_angle angle_of_block(const struct vec *a, const struct vec *p,
                                       const struct vec *b, const struct vec *q, struct range part)
{
    const struct vec_kernels *kernels = vec_kernels_best();
    float u_room[VEC_BLOCK], v_room[VEC_BLOCK];
    const float *u = difference_of(u_room, a, p, part);
    struct vec_angle sum = {.uu = kernels->dot_block(u, u, part.len)};
    if (b) {
        const float *v = difference_of(v_room, b, q, part);
        sum.vv = kernels->dot_block(v, v, part.len);
        sum.uv = kernels->dot_block(u, v, part.len);
    }
    return sum;
}

struct vec_angle vec_angle(const struct vec *a, const struct vec *p, const struct vec *b,
                           const struct vec *q, struct range r)
{
    const struct vec *all[] = {a, p, b, q};
    for (size_t i = 0; i < 4; i++)
        if (all[i])
            check_range(all[i], r);
    enum { GROUP = 128 }; /* blocks whose sums are added together */
    struct vec_angle sums[GROUP], total = {0};
    size_t end = block_end(r);
    for (size_t base = block_first(r); base < end; base += GROUP) {
        size_t count = end - base < GROUP ? end - base : GROUP;
        PARALLEL_EACH(i, 0, count, 1, r.len >= THREADS_LEN_MIN,
                      { sums[i] = angle_of_block(a, p, b, q, block_part(r, base + i)); });
        for (size_t i = 0; i < count; i++) {
            total.uu += sums[i].uu;
            total.vv += sums[i].vv;
            total.uv += sums[i].uv;
        }
    }
    return total;
}

uint64_t vec_hash(const struct vec *v, struct range r)
{
    check_range(v, r);
    return hash_bytes(v->at + r.from, r.len * sizeof(float));
}

void vec_host_add(float *y, const float *x, size_t n)
{
    vec_kernels_best()->add(y, x, n);
}

void vec_host_product(float *y, float a, const float *x, size_t n)
{
    vec_kernels_best()->product(y, a, x, n);
}

void vec_host_add_all(float *y, const float *x, size_t n)
{
    const struct vec_kernels *k = vec_kernels_best();
    PARALLEL_EACH(i, 0, n, VEC_BLOCK, n >= THREADS_LEN_MIN,
                  k->add(y + i, x + i, n - i < VEC_BLOCK ? n - i : VEC_BLOCK));
}
