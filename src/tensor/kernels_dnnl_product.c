/* A window of one pixel makes a convolution over NHWC images a product of matrices: with P pixels
 * of the batch, y (P, O) = x (P, C) · wᵀ, dx = dy · w, and dw += dyᵀ · x, straight on canonical
 * weights. */
#include "tensor/kernels_dnnl_code.h"

#include "base/fault.h"
#include "tensor/kernels_common.h"

struct product_code {
    struct conv_code code;
    size_t P, C, O;
    bool bias;
};

bool code_product_fits(const struct conv_spec *s)
{
    return s->kernel_h == 1 && s->kernel_w == 1 && s->stride_h == 1 && s->stride_w == 1 &&
           s->pad_h == 0 && s->pad_w == 0 && s->groups == 1;
}

/* c (M, N) = a · b + beta c, row-major; 'T' for a matrix that is stored transposed. */
static void product(char trans_a, char trans_b, size_t M, size_t N, size_t K, const float *a,
                    size_t lda, const float *b, size_t ldb, float beta, float *c)
{
    dnnl_status_t status =
        dnnl_sgemm(trans_a, trans_b, (dnnl_dim_t)M, (dnnl_dim_t)N, (dnnl_dim_t)K, 1, a,
                   (dnnl_dim_t)lda, b, (dnnl_dim_t)ldb, beta, c, (dnnl_dim_t)N);
    PL_ASSERT(status == dnnl_success);
}

static void forward(struct conv_code *code, const struct op_args *args)
{
    const struct product_code *c = (const struct product_code *)code;
    size_t P = c->P, O = c->O;
    float *y = args->y;
    const float *b = args->b;
    if (c->bias) {
#pragma omp parallel for schedule(static) if (P * O >= PARALLEL_MIN)
        for (size_t p = 0; p < P; p++)
            for (size_t o = 0; o < O; o++)
                y[p * O + o] = b[o];
    }
    product('N', 'T', P, O, c->C, args->x, c->C, args->w, c->C, c->bias ? 1 : 0, y);
}

static void backward_data(struct conv_code *code, const struct op_args *args)
{
    const struct product_code *c = (const struct product_code *)code;
    product('N', 'N', c->P, c->C, c->O, args->dy, c->O, args->w, c->C, 0, args->dx);
}

static void backward_weights(struct conv_code *code, const struct op_args *args)
{
    const struct product_code *c = (const struct product_code *)code;
    product('T', 'N', c->O, c->C, c->P, args->dy, c->O, args->x, c->C, 1, args->dw);
    if (c->bias)
        column_sums_add(c->P, c->O, args->dy, args->db);
}

dnnl_status_t code_plan_product(const struct conv_site *site, struct conv_code **out)
{
    static void (*const run[])(struct conv_code *, const struct op_args *) = {
        [ONEDNN_FORWARD] = forward,
        [ONEDNN_BACKWARD_DATA] = backward_data,
        [ONEDNN_BACKWARD_WEIGHTS] = backward_weights,
    };
    const struct conv_spec *s = site->spec;
    struct product_code *c = arena_new(site->arena, struct product_code);
    if (!c)
        return dnnl_out_of_memory;
    *c = (struct product_code){
        .code = {run[site->pass], NULL},
        .P = s->x.dim[0] * s->x.dim[2] * s->x.dim[3],
        .C = s->x.dim[1],
        .O = s->y.dim[1],
        .bias = s->bias,
    };
    *out = &c->code;
    return dnnl_success;
}
