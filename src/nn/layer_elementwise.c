/* Layers that are a function of one element: Power, Exp, Log, AbsVal, TanH, ELU, Clip
 * (tensor/map.h). A batch that is not full has zeros after its records, and the function of zero
 * may not be a number: these positions are set to zero again. */
#include "nn/axes.h"
#include "nn/layers.h"
#include "tensor/map.h"

#include <math.h>

struct layer_elementwise {
    struct layer layer;
    size_t records; /* of the last forward */
};

static int check_number(const char *field, float value, struct err *err)
{
    if (isfinite(value))
        return OK;
    return err_set(err, ERR_INPUT, "%s: %g is out of range", field, (double)value);
}

/* ln of Caffe's base; -1 stands for e. */
static int read_base(const char *field, float base, double *ln, struct err *err)
{
    if (base != -1.0f && !(base > 0.0f && isfinite(base)))
        return err_set(err, ERR_INPUT, "%s: %g is out of range, above 0, or -1 for e", field,
                       (double)base);
    *ln = base == -1.0f ? 1.0 : log((double)base);
    return OK;
}

/* ---- the messages ---- */

static int read_power(const Caffe__LayerParameter *param, struct map_spec *m, struct err *err)
{
    Caffe__PowerParameter none = CAFFE__POWER_PARAMETER__INIT;
    const Caffe__PowerParameter *p = param->power_param ? param->power_param : &none;
    int rc = check_number("power_param.power", p->power, err);
    if (rc == OK)
        rc = check_number("power_param.scale", p->scale, err);
    if (rc == OK)
        rc = check_number("power_param.shift", p->shift, err);
    m->a = (double)p->scale;
    m->b = (double)p->shift;
    m->c = (double)p->power;
    return rc;
}

/* base^(shift + scale·x) = e^(ln base · (shift + scale·x)). */
static int read_exp(const Caffe__LayerParameter *param, struct map_spec *m, struct err *err)
{
    Caffe__ExpParameter none = CAFFE__EXP_PARAMETER__INIT;
    const Caffe__ExpParameter *p = param->exp_param ? param->exp_param : &none;
    double ln = 1.0;
    int rc = read_base("exp_param.base", p->base_, &ln, err);
    if (rc == OK)
        rc = check_number("exp_param.scale", p->scale, err);
    if (rc == OK)
        rc = check_number("exp_param.shift", p->shift, err);
    m->a = ln * (double)p->scale;
    m->b = ln * (double)p->shift;
    return rc;
}

static int read_log(const Caffe__LayerParameter *param, struct map_spec *m, struct err *err)
{
    Caffe__LogParameter none = CAFFE__LOG_PARAMETER__INIT;
    const Caffe__LogParameter *p = param->log_param ? param->log_param : &none;
    double ln = 1.0;
    int rc = read_base("log_param.base", p->base_, &ln, err);
    if (rc == OK && ln == 0.0)
        return err_set(err, ERR_INPUT, "log_param.base: 1 has no logarithms");
    if (rc == OK)
        rc = check_number("log_param.scale", p->scale, err);
    if (rc == OK)
        rc = check_number("log_param.shift", p->shift, err);
    m->a = (double)p->scale;
    m->b = (double)p->shift;
    m->c = 1.0 / ln;
    return rc;
}

static int read_elu(const Caffe__LayerParameter *param, struct map_spec *m, struct err *err)
{
    float alpha = param->elu_param ? param->elu_param->alpha : 1.0f;
    m->a = (double)alpha;
    return check_number("elu_param.alpha", alpha, err);
}

static int read_clip(const Caffe__LayerParameter *param, struct map_spec *m, struct err *err)
{
    const Caffe__ClipParameter *p = param->clip_param;
    if (!p || !p->has_min || !p->has_max)
        return err_set(err, ERR_INPUT, "clip_param: min and max must be set");
    int rc = check_number("clip_param.min", p->min, err);
    if (rc == OK)
        rc = check_number("clip_param.max", p->max, err);
    if (rc == OK && p->min > p->max)
        rc = err_set(err, ERR_INPUT, "clip_param: min, %g, is above max, %g", (double)p->min,
                     (double)p->max);
    m->a = (double)p->min;
    m->b = (double)p->max;
    return rc;
}

/* ---- the layer ---- */

typedef int read_fn(const Caffe__LayerParameter *param, struct map_spec *m, struct err *err);

static int setup_map(struct layer *layer, const struct setup *setup, enum map_kind kind,
                     read_fn *read, struct err *err)
{
    bool training = setup->options->phase == PHASE_TRAIN;
    struct map_spec spec = {.kind = kind};
    int rc = layer_links(layer, 1, 1, err);
    if (rc == OK && read)
        rc = read(layer->param, &spec, err);
    if (rc == OK)
        rc = layer_params_done(layer, err);
    if (rc != OK)
        return rc;
    const struct blob *x = layer->bottom[0].blob;
    spec.n = x->count;
    rc = layer_top(layer, 0, &x->shape, x->layout, err);
    if (rc == OK)
        rc = map_plan(&spec, training, setup->arena, &layer->op, err);
    if (rc == OK)
        layer->reads_bottom = map_reads_x(layer->op);
    return rc;
}

static void elementwise_forward(struct layer *layer, const struct pass *pass)
{
    struct layer_elementwise *self = (struct layer_elementwise *)layer;
    self->records = pass->batch->count;
    layer_op_forward(layer, pass);
    axes_clear_rest(layer->top[0], self->records, layer->top[0]->at);
}

static void elementwise_backward(struct layer *layer, const struct pass *pass)
{
    const struct layer_elementwise *self = (const struct layer_elementwise *)layer;
    layer_op_backward(layer, pass);
    axes_clear_rest(layer->bottom[0].blob, self->records, layer->bottom[0].dx);
}

/* One type: its table, the message it reads, and whether backward needs its output. */
#define TYPE(name, caffe, message, kind, read, reads_y)                                      \
    static const char *const name##_types[] = {caffe, NULL};                                 \
    static const char *const name##_messages[] = {message, NULL};                            \
    static int name##_setup(struct layer *layer, const struct setup *setup, struct err *err) \
    {                                                                                        \
        return setup_map(layer, setup, kind, read, err);                                     \
    }                                                                                        \
    const struct layer_ops layer_##name = {                                                  \
        .types = name##_types,                                                               \
        .messages = name##_messages,                                                         \
        .size = sizeof(struct layer_elementwise),                                            \
        .in_place = true,                                                                    \
        .by_channel = true,                                                                  \
        .reads_top = reads_y,                                                                \
        .setup = name##_setup,                                                               \
        .forward = elementwise_forward,                                                      \
        .backward = elementwise_backward,                                                    \
    }

TYPE(power, "Power", "power_param", MAP_POWER, read_power, false);
TYPE(exp, "Exp", "exp_param", MAP_EXP, read_exp, true);
TYPE(log, "Log", "log_param", MAP_LOG, read_log, false);
TYPE(abs, "AbsVal", NULL, MAP_ABS, NULL, false);
TYPE(tanh, "TanH", "tanh_param", MAP_TANH, NULL, true);
TYPE(elu, "ELU", "elu_param", MAP_ELU, read_elu, true);
TYPE(clip, "Clip", "clip_param", MAP_CLIP, read_clip, false);
