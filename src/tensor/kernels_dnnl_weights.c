/* The gradient of a convolution's weights by oneDNN, summed over slices of the batch (slices.h):
 * one pass over each slice, their sums in the form that the primitive chose, which is put into
 * canonical order once, when it is added to dw. */
#include "tensor/kernels_common.h"
#include "tensor/kernels_dnnl_code.h"
#include "tensor/slices.h"

/* The pass over a slice of one size. */
struct conv_slice {
    dnnl_memory_t x, dy, dw, db;
    struct onednn_step *run;
    dnnl_memory_t sum;         /* where order writes */
    struct onednn_step *order; /* from dw into the form that is summed; NULL: dw has it */
};

struct conv_weights {
    struct conv_code code;
    const struct conv_spec *spec;
    struct onednn *dnn;
    struct arena *arena;
    struct op_scratch *scratch;
    size_t *bytes;

    size_t x_size, dy_size;        /* elements of one record */
    struct conv_slice whole, tail; /* tail: of the records after the last whole slice */
    size_t dw_floats;              /* in the form that is summed; db follows them */
    struct slices sums;
    dnnl_memory_t dw_sum, dw; /* dw: canonical, the caller's */
    struct onednn_step *add_dw;
    size_t first_step, end_step;
    void *bound; /* the scratch that the steps were bound to */
};

struct pass {
    struct conv_weights *weights;
    const void *x, *dy;
};

static void sum_slice(void *user, size_t first, size_t count, float *sum)
{
    const struct pass *pass = user;
    const struct conv_weights *weights = pass->weights;
    enum dtype dtype = weights->spec->dtype;
    const struct conv_slice *slice =
        count < SLICE_RECORDS && weights->tail.run ? &weights->tail : &weights->whole;
    onednn_bind(slice->x, dtype_in(dtype, pass->x, first * weights->x_size));
    onednn_bind(slice->dy, dtype_in(dtype, pass->dy, first * weights->dy_size));
    onednn_bind(slice->order ? slice->sum : slice->dw, sum);
    if (slice->db)
        onednn_bind(slice->db, sum + weights->dw_floats);
    onednn_run(weights->dnn, slice->run);
    if (slice->order)
        onednn_run(weights->dnn, slice->order);
}

static void run_reorder(struct conv_code *code, const struct op_args *args)
{
    struct conv_weights *weights = (struct conv_weights *)code;
    struct pass pass = {weights, args->x, args->dy};
    if (weights->bound != weights->scratch->at) {
        weights->bound = weights->scratch->at;
        onednn_scratch_bind(weights->dnn, weights->first_step, weights->end_step, weights->bound);
    }
    const float *sum = slices_sum(&weights->sums, sum_slice, &pass);
    onednn_bind(weights->dw_sum, sum);
    onednn_bind(weights->dw, args->dw);
    onednn_run(weights->dnn, weights->add_dw);
    if (weights->spec->bias)
        add_floats(weights->spec->y.dim[1], sum + weights->dw_floats, args->db);
}

/* The descriptor of the backward pass over `records`. */
static dnnl_status_t describe_weights(const struct conv_weights *weights, size_t records,
                                      dnnl_primitive_desc_t *pd)
{
    struct conv_spec spec = *weights->spec;
    struct onednn_conv conv = {.spec = &spec, .pass = ONEDNN_BACKWARD_WEIGHTS, .training = true};
    spec.x.dim[0] = spec.y.dim[0] = records;
    dnnl_status_t status = onednn_conv_find(weights->dnn, &conv, conv_see_allowed, &conv, pd);
    if (status || !onednn_slow(*pd))
        return status;
    dnnl_primitive_desc_destroy(*pd);
    return dnnl_unimplemented;
}

static onednn_desc form_of(const_dnnl_primitive_desc_t pd, dnnl_query_t what, int index)
{
    return dnnl_primitive_desc_query_md(pd, what, index);
}

static dnnl_status_t plan_run(struct conv_weights *weights, struct conv_slice *slice,
                              const_dnnl_primitive_desc_t pd)
{
    struct onednn *dnn = weights->dnn;
    bool bias = weights->spec->bias;
    dnnl_status_t status = onednn_step(dnn, pd, &slice->run);
    if (!status)
        status = onednn_memory(dnn, form_of(pd, dnnl_query_src_md, 0), NULL, &slice->x);
    if (!status)
        status = onednn_memory(dnn, form_of(pd, dnnl_query_diff_dst_md, 0), NULL, &slice->dy);
    if (!status)
        status = onednn_memory(dnn, form_of(pd, dnnl_query_diff_weights_md, 0), NULL, &slice->dw);
    if (!status && bias)
        status = onednn_memory(dnn, form_of(pd, dnnl_query_diff_weights_md, 1), NULL, &slice->db);
    if (status)
        return status;
    onednn_step_arg(slice->run, DNNL_ARG_SRC, slice->x);
    onednn_step_arg(slice->run, DNNL_ARG_DIFF_DST, slice->dy);
    onednn_step_arg(slice->run, DNNL_ARG_DIFF_WEIGHTS, slice->dw);
    if (bias)
        onednn_step_arg(slice->run, DNNL_ARG_DIFF_BIAS, slice->db);
    return dnnl_success;
}

/* The form in which the slices are summed: that of whole slices. */
static dnnl_status_t plan_sums(struct conv_weights *weights, onednn_desc form)
{
    struct onednn *dnn = weights->dnn;
    size_t records = weights->spec->x.dim[0], bytes = 0;
    weights->dw_floats = dnnl_memory_desc_get_size(form) / sizeof(float);
    size_t floats = weights->dw_floats + weights->spec->y.dim[1];
    if (slices_init(&weights->sums, weights->arena, records, floats, &bytes) != OK)
        return dnnl_out_of_memory;
    *weights->bytes += bytes;
    dnnl_status_t status = onednn_memory(dnn, form, NULL, &weights->dw_sum);
    if (!status)
        status = onednn_memory_weights(dnn, weights->spec, &weights->dw);
    if (!status)
        status = onednn_step_reorder(dnn, weights->dw_sum, weights->dw, true, &weights->add_dw);
    return status;
}

static dnnl_status_t plan_whole(struct conv_weights *weights, size_t records)
{
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = describe_weights(weights, records, &pd);
    if (status)
        return status;
    status = plan_run(weights, &weights->whole, pd);
    if (!status)
        status = plan_sums(weights, form_of(pd, dnnl_query_diff_weights_md, 0));
    dnnl_primitive_desc_destroy(pd);
    return status;
}

/* The plan for fewer records may have another form; its result then has memory of its own until it
 * is reordered into the form of the sums. */
static dnnl_status_t plan_tail(struct conv_weights *weights, size_t records)
{
    struct onednn *dnn = weights->dnn;
    struct conv_slice *tail = &weights->tail;
    dnnl_primitive_desc_t pd;
    void *data;
    dnnl_status_t status = describe_weights(weights, records, &pd);
    if (status)
        return status;
    onednn_desc form = form_of(pd, dnnl_query_diff_weights_md, 0);
    status = plan_run(weights, tail, pd);
    if (!status && !onednn_has_form(weights->dw_sum, form)) {
        *weights->bytes += dnnl_memory_desc_get_size(form);
        data = arena_alloc(weights->arena, 1, dnnl_memory_desc_get_size(form));
        status = data ? onednn_memory_like(dnn, weights->dw_sum, &tail->sum) : dnnl_out_of_memory;
        if (!status)
            status = onednn_step_reorder(dnn, tail->dw, tail->sum, false, &tail->order);
        if (!status)
            onednn_bind(tail->dw, data);
    }
    dnnl_primitive_desc_destroy(pd);
    return status;
}

dnnl_status_t code_plan_slices(const struct conv_site *site, struct conv_code **out)
{
    const struct conv_spec *spec = site->spec;
    size_t records = spec->x.dim[0];
    struct conv_weights *weights = arena_new(site->arena, struct conv_weights);
    if (!weights)
        return dnnl_out_of_memory;
    *weights = (struct conv_weights){
        .code = {.run = run_reorder, .reorders = {.weights = 1}},
        .spec = spec,
        .dnn = site->dnn,
        .arena = site->arena,
        .scratch = site->scratch,
        .bytes = site->bytes,
        .x_size = shape_count_from(&spec->x, 1),
        .dy_size = shape_count_from(&spec->y, 1),
        .first_step = site->dnn->n_steps,
    };
    dnnl_status_t status = plan_whole(weights, records < SLICE_RECORDS ? records : SLICE_RECORDS);
    if (!status && records > SLICE_RECORDS && records % SLICE_RECORDS)
        status = plan_tail(weights, records % SLICE_RECORDS);
    weights->end_step = site->dnn->n_steps;
    size_t bytes = onednn_scratch_of(site->dnn, weights->first_step);
    if (bytes > site->scratch->bytes)
        site->scratch->bytes = bytes;
    *out = &weights->code;
    return status;
}
