/* Our own Winograd convolution (winograd.h) as a code of the dnnl set. A plan holds scratch memory
 * and no state of a pass, so that all directions of all ops of one shape that share scratch share
 * one plan, too. */
#include "tensor/kernels_dnnl_code.h"
#include "tensor/winograd.h"

struct op_plan {
    struct op_plan *next;
    struct conv_spec spec;
    bool training;
    struct winograd *winograd;
};

struct winograd_code {
    struct conv_code code;
    struct winograd *winograd;
    size_t N;
    bool bias;
};

static void winograd_forward_pass(struct conv_code *code, const struct op_args *args)
{
    const struct winograd_code *c = (const struct winograd_code *)code;
    winograd_forward(c->winograd, c->N, args->x, args->w, c->bias ? args->b : NULL, args->y);
}

static void backward_data(struct conv_code *code, const struct op_args *args)
{
    const struct winograd_code *c = (const struct winograd_code *)code;
    winograd_backward_data(c->winograd, c->N, args->dy, args->w, args->dx);
}

static void backward_weights(struct conv_code *code, const struct op_args *args)
{
    const struct winograd_code *c = (const struct winograd_code *)code;
    winograd_backward_weights(c->winograd, c->N, args->x, args->dy, args->dw,
                              c->bias ? args->db : NULL);
}

/* Of specs that winograd_fits: all else about them is the same. */
static bool same_shape(const struct conv_spec *a, const struct conv_spec *b)
{
    return shape_equal(&a->x, &b->x) && shape_equal(&a->y, &b->y) && a->kernel_h == b->kernel_h &&
           a->kernel_w == b->kernel_w && a->pad_h == b->pad_h && a->pad_w == b->pad_w &&
           a->dtype == b->dtype;
}

static dnnl_status_t find_plan(const struct conv_site *site, struct winograd **out)
{
    struct op_plan *plan = site->scratch->plans;
    while (plan && (plan->training != site->training || !same_shape(&plan->spec, site->spec)))
        plan = plan->next;
    if (plan) {
        *out = plan->winograd;
        return dnnl_success;
    }
    size_t bytes = 0;
    struct err why;
    if (!(plan = arena_new(site->arena, struct op_plan)))
        return dnnl_out_of_memory;
    int rc = winograd_plan(site->spec, site->training, site->arena, out, &bytes, &why);
    if (rc != OK)
        return rc == ERR_NOMEM ? dnnl_out_of_memory : dnnl_unimplemented;
    *site->bytes += bytes;
    *plan = (struct op_plan){site->scratch->plans, *site->spec, site->training, *out};
    site->scratch->plans = plan;
    return dnnl_success;
}

dnnl_status_t code_plan_winograd(const struct conv_site *site, struct conv_code **out)
{
    static void (*const run[])(struct conv_code *, const struct op_args *) = {
        [ONEDNN_FORWARD] = winograd_forward_pass,
        [ONEDNN_BACKWARD_DATA] = backward_data,
        [ONEDNN_BACKWARD_WEIGHTS] = backward_weights,
    };
    struct winograd_code *c = arena_new(site->arena, struct winograd_code);
    if (!c)
        return dnnl_out_of_memory;
    dnnl_status_t status = find_plan(site, &c->winograd);
    c->code.run = run[site->pass];
    c->N = site->spec->x.dim[0];
    c->bias = site->spec->bias;
    *out = &c->code;
    return status;
}
