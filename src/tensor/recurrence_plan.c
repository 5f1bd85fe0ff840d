/* Shapes of a recurrent layer's parameters, its products, and its memory. */
#include "base/fault.h"
#include "base/minmax.h"
#include "tensor/kernels_common.h"
#include "tensor/recurrence_internal.h"

#include <omp.h>

static bool is_gru(enum recurrence_kind kind)
{
    return kind == RECURRENCE_GRU || kind == RECURRENCE_RESET;
}

static size_t gates_of(enum recurrence_kind kind)
{
    return kind == RECURRENCE_LSTM ? 4 : is_gru(kind) ? 3 : 1;
}

size_t recurrence_states(enum recurrence_kind kind)
{
    return kind == RECURRENCE_LSTM ? 2 : 1;
}

struct shape recurrence_param_shape(const struct recurrence_spec *s, enum recurrence_param k)
{
    size_t gates = gates_of(s->kind) * s->H;
    bool gru = is_gru(s->kind), has_out = s->kind == RECURRENCE_TANH;
    const struct shape none = {0};
    switch (k) {
    case RECURRENCE_WX: return (struct shape){2, {gates, s->D}};
    case RECURRENCE_BX: return (struct shape){1, {gates}};
    case RECURRENCE_WS: return s->S > 0 ? (struct shape){2, {gates, s->S}} : none;
    case RECURRENCE_WH: return (struct shape){2, {gates, s->H}};
    case RECURRENCE_BH: return gru ? (struct shape){1, {gates}} : none;
    case RECURRENCE_WO: return has_out ? (struct shape){2, {s->H, s->H}} : none;
    case RECURRENCE_BO: return has_out ? (struct shape){1, {s->H}} : none;
    default: PL_ASSERT(false); return none;
    }
}

double recurrence_products(const struct recurrence_spec *s)
{
    double rows = (double)s->N * (double)s->T, gates = (double)(gates_of(s->kind) * s->own.len);
    double out = s->kind == RECURRENCE_TANH ? rows * (double)s->own.len * (double)s->H : 0.0;
    return rows * gates * (double)(s->D + s->H) + (double)s->N * gates * (double)s->S + out;
}

/* ---- planning ---- */

static void release_ops(struct op *op)
{
    struct recurrence *r = (struct recurrence *)op;
    struct op *const ops[] = {r->x_op,   r->fixed_op, r->step_op,       r->state_op,
                              r->out_op, r->rows.op,  r->reset.step_op, r->reset.state_op};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        op_release(ops[i]);
}

static const struct op_ops recurrence_ops = {.release = release_ops};

struct planning {
    struct recurrence *r;
    const struct kernels *kernels;
    bool training;
    struct arena *arena;
    struct err *err;
};

/* Rows of `from` values, `steps` of each record, by `to` units. */
static int plan_product(const struct planning *p, size_t rows, size_t steps, size_t from, size_t to,
                        bool bias, struct op **op)
{
    const struct inner_spec spec = {{2, {rows, from}}, {2, {rows, to}}, bias, steps};
    int rc = p->kernels->inner(&spec, LAYOUT_PLAIN, p->training, p->arena, op, p->err);
    if (rc == OK)
        p->r->op.scratch_bytes += (*op)->scratch_bytes;
    return rc;
}

/* A window must have enough rows of the few kinds. The choice may not depend on N, as below. The
 * reference set computes each row. */
static bool rows_have_kinds(const struct recurrence *r)
{
    enum { KINDS_MAX = 8 }; /* a step: from sixteen records on there are two rows of each kind */
    const struct recurrence_spec *s = &r->spec;
    return r->products && s->kinds > 0 && s->kinds <= KINDS_MAX * s->T;
}

static int plan_products(const struct planning *p)
{
    struct recurrence *r = p->r;
    const struct recurrence_spec *s = &r->spec;
    size_t places = s->N * s->T, width = r->G * s->own.len;
    size_t by_state = r->Z * s->own.len;
    bool gru = is_gru(s->kind), by_kind = rows_have_kinds(r);
    int rc = by_kind ? plan_product(p, s->kinds + 1, 1, s->D, width, true, &r->rows.op)
                     : plan_product(p, places, s->T, s->D, width, true, &r->x_op);
    if (rc == OK && s->S > 0)
        rc = plan_product(p, s->N, 1, s->S, width, false, &r->fixed_op);
    if (rc == OK && !r->products)
        rc = plan_product(p, s->N, 1, s->H, by_state, gru, &r->step_op);
    if (rc == OK && p->training)
        rc = plan_product(p, places, s->T, s->H, by_state, gru, &r->state_op);
    if (rc == OK && r->Z < r->G)
        rc = plan_product(p, s->N, 1, s->H, s->own.len, true, &r->reset.step_op);
    if (rc == OK && r->Z < r->G && p->training)
        rc = plan_product(p, places, s->T, s->H, s->own.len, true, &r->reset.state_op);
    if (rc == OK && s->kind == RECURRENCE_TANH)
        rc = plan_product(p, places, s->T, s->H, s->own.len, true, &r->out_op);
    return rc;
}

static float *take_room(struct recurrence *r, struct arena *arena, size_t count, bool *full)
{
    float *at = arena_array(arena, count, float);
    r->op.scratch_bytes += count * sizeof *at;
    *full = *full || !at;
    return at;
}

/* Columns as whole strips. */
static size_t whole_strips(const struct recurrence *r, size_t columns)
{
    size_t strip = r->products->strip;
    return (columns + strip - 1) / strip * strip;
}

/* Two products a step are those of the kernel set. A window of one step does not pay for packing,
 * as where a text is drawn. The choice may not depend on N: records that workers share out have the
 * bits of all together. */
static void choose_products(struct recurrence *r, const struct product_loops *products)
{
    enum { RECORDS_MIN = 4 };
    const struct recurrence_spec *s = &r->spec;
    double work = recurrence_products(s);
    r->products = s->T > 1 && r->Z == r->G ? products : NULL;
    r->parts = work < 16.0 * PARALLEL_MIN ? 1 : (size_t)omp_get_max_threads();
    r->parts = min_size(r->parts, (s->N + RECORDS_MIN - 1) / RECORDS_MIN);
}

static void reserve_weights(struct recurrence *r, struct arena *arena, bool training, bool *full)
{
    size_t H = r->spec.H, width = r->G * r->spec.own.len;
    size_t there = whole_strips(r, width) * H, back = training ? whole_strips(r, H) * width : 0;
    r->there = r->back = take_room(r, arena, there > back ? there : back, full);
}

static void reserve_kinds(struct recurrence *r, struct arena *arena, bool training, bool *full)
{
    size_t count = r->spec.kinds + 1, width = r->G * r->spec.own.len;
    struct recurrence_rows *rows = &r->rows;
    rows->x = take_room(r, arena, count * r->spec.D, full);
    rows->gates = take_room(r, arena, count * width, full);
    if (training)
        rows->dx = take_room(r, arena, count * r->spec.D, full);
    rows->first = arena_array(arena, count, size_t);
    r->op.scratch_bytes += count * sizeof *rows->first;
    *full = *full || !rows->first;
}

static void reserve_reset(struct recurrence *r, struct arena *arena, bool training, bool *full)
{
    size_t all_rows = r->spec.N * r->spec.H, rows = r->spec.N * r->spec.own.len;
    struct recurrence_reset *reset = &r->reset;
    reset->reset = take_room(r, arena, all_rows, full);
    reset->inner = take_room(r, arena, rows, full);
    if (training) {
        reset->resets = take_room(r, arena, all_rows * r->spec.T, full);
        reset->inners = take_room(r, arena, rows * r->spec.T, full);
    }
}

static int reserve_room(const struct planning *p)
{
    struct recurrence *r = p->r;
    const struct recurrence_spec *s = &r->spec;
    size_t rows = s->N * s->own.len, places = rows * s->T;
    size_t all_rows = s->N * s->H, all_places = all_rows * s->T;
    bool full = false, lstm = s->kind == RECURRENCE_LSTM, training = p->training;
    bool has_out = s->kind == RECURRENCE_TANH;
    r->gates = take_room(r, p->arena, r->G * places, &full);
    r->z = take_room(r, p->arena, r->Z * rows, &full);
    r->state = take_room(r, p->arena, all_rows, &full);
    if (r->products)
        reserve_weights(r, p->arena, training, &full);
    if (r->rows.op)
        reserve_kinds(r, p->arena, training, &full);
    if (r->Z < r->G)
        reserve_reset(r, p->arena, training, &full);
    if (s->S > 0)
        r->extra = take_room(r, p->arena, r->G * rows, &full);
    if (has_out)
        r->h = take_room(r, p->arena, all_places, &full);
    if (has_out && recurrence_is_slice(r))
        r->y = take_room(r, p->arena, places, &full);
    if (lstm) {
        r->c = take_room(r, p->arena, training ? places : rows, &full);
        r->c_first = take_room(r, p->arena, rows, &full);
    }
    if (training) {
        r->before = take_room(r, p->arena, all_places, &full);
        r->dh = take_room(r, p->arena, rows, &full);
        if (lstm)
            r->dc = take_room(r, p->arena, rows, &full);
        if (is_gru(s->kind))
            r->hidden = take_room(r, p->arena, r->Z * places, &full);
        if (has_out) {
            r->dout = take_room(r, p->arena, places, &full);
            r->dh_all =
                recurrence_is_slice(r) ? take_room(r, p->arena, all_places, &full) : r->gates;
        }
    }
    return full ? plan_nomem("recurrent layer", p->err) : OK;
}

int recurrence_plan(const struct recurrence_spec *spec, const struct kernels *kernels,
                    const struct recurrence_loops *loops, bool training, struct arena *arena,
                    struct recurrence **out, struct err *err)
{
    struct recurrence *r = arena_new(arena, struct recurrence);
    if (!r)
        return plan_nomem("recurrent layer", err);
    *r = (struct recurrence){
        .op = {.ops = &recurrence_ops},
        .spec = *spec,
        .loops = loops->gates,
        .G = gates_of(spec->kind),
        .Z = spec->kind == RECURRENCE_RESET ? 2 : gates_of(spec->kind),
    };
    choose_products(r, loops->products);
    const struct planning p = {r, kernels, training, arena, err};
    const struct shape gates = {3, {spec->N, spec->T, r->G * spec->H}};
    int rc = shape_count(&gates) > 0 ? plan_products(&p) : plan_nomem("recurrent layer", err);
    if (rc == OK)
        rc = reserve_room(&p);
    if (rc != OK) {
        release_ops(&r->op);
        return rc;
    }
    *out = r;
    return OK;
}
