#include "api/guard.h"
#include "api/net.h"
#include "job/text.h"
#include "model/load.h"
#include "model/zoo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- their life ---- */

/* `net` is taken, also on failure. */
static int wrap(pl_engine *engine, Caffe__NetParameter *net, pl_net_spec **out)
{
    pl_net_spec *spec = calloc(1, sizeof *spec);
    if (!spec) {
        caffe__net_parameter__free_unpacked(net, NULL);
        return err_set(&engine->error, ERR_NOMEM, "net: out of memory");
    }
    spec->engine = engine;
    spec->build.net = net;
    *out = spec;
    return OK;
}

static int create(pl_engine *engine, const char *name, pl_net_spec **out)
{
    struct build build;
    Caffe__NetParameter *net = NULL;
    build_begin(&build, name ? name : "net");
    int rc = build_end(&build, &net, &engine->error);
    return rc == OK ? wrap(engine, net, out) : rc;
}

static int load(pl_engine *engine, const char *path, pl_net_spec **out)
{
    Caffe__NetParameter *net = NULL;
    int rc = model_load_prototxt(path, &net, &engine->error);
    return rc == OK ? wrap(engine, net, out) : rc;
}

static int zoo(pl_engine *engine, const char *name, pl_net_spec **out)
{
    Caffe__NetParameter *net = NULL;
    int rc = zoo_net(name, &net, &engine->error);
    return rc == OK ? wrap(engine, net, out) : rc;
}

static int of_job(const pl_job *job, pl_net_spec **out)
{
    struct err *err = &job->engine->error;
    Caffe__NetParameter *net = NULL;
    if (!job->message->net || !job->message->net->source_case)
        return err_set(err, ERR_INPUT, "net: is missing from the job");
    int rc = model_load_net(job->message->net, &net, err);
    return rc == OK ? wrap(job->engine, net, out) : rc;
}

int pl_net_spec_create(pl_engine *engine, const char *name, pl_net_spec **out)
{
    RETURN_GUARDED(engine, create(engine, name, out));
}

int pl_net_spec_load(pl_engine *engine, const char *path, pl_net_spec **out)
{
    RETURN_GUARDED(engine, load(engine, path, out));
}

int pl_net_spec_zoo(pl_engine *engine, const char *name, pl_net_spec **out)
{
    RETURN_GUARDED(engine, zoo(engine, name, out));
}

int pl_net_spec_job(const pl_job *job, pl_net_spec **out)
{
    RETURN_GUARDED(job->engine, of_job(job, out));
}

void pl_net_spec_free(pl_net_spec *spec)
{
    if (!spec)
        return;
    if (spec->build.net)
        caffe__net_parameter__free_unpacked(spec->build.net, NULL);
    free(spec);
}

int api_spec_check(const pl_net_spec *spec, struct err *err)
{
    if (spec->build.failed)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    if (spec->error.status != OK)
        return err_set(err, spec->error.status, "%s", spec->error.text);
    return OK;
}

static int set_net(pl_job *job, const pl_net_spec *spec)
{
    struct err *err = &job->engine->error;
    int rc = api_spec_check(spec, err);
    return rc == OK ? model_define_net(&job->message->net, spec->build.net, err) : rc;
}

int pl_job_set_net(pl_job *job, const pl_net_spec *spec)
{
    RETURN_GUARDED(job->engine, set_net(job, spec));
}

/* ---- building ---- */

/* Where the next error goes: the first stays. */
static struct err *error_of(pl_net_spec *spec)
{
    return spec->error.status == OK ? &spec->error : NULL;
}

/* Do name and bottoms say anything? Whether they fit is seen when all layers are there. */
static bool named(pl_net_spec *spec, const char *name, const char *bottom)
{
    if (spec->error.status != OK || spec->build.failed)
        return false;
    if (!name || !*name) {
        err_set(error_of(spec), ERR_INPUT, "net: layer %zu has no name",
                spec->build.net->n_layer + 1);
        return false;
    }
    if (!bottom || !*bottom) {
        err_set(error_of(spec), ERR_INPUT, "layer \"%.100s\": it is not said what it reads", name);
        return false;
    }
    return true;
}

void pl_spec_input(pl_net_spec *spec, const char *data, const char *label, uint32_t channels,
                   uint32_t height, uint32_t width)
{
    if (!named(spec, data, label))
        return;
    if (channels && height && width)
        build_images(&spec->build, data, label, channels, height, width);
    else if (!channels && !height && !width)
        build_input(&spec->build, data, label);
    else
        err_set(error_of(spec), ERR_INPUT,
                "layer \"%.100s\": records of %u channels, %u rows and %u columns: all of these or "
                "none may be 0",
                data, channels, height, width);
}

static bool weights_of(pl_net_spec *spec, const char *name, const pl_weight_options *o,
                       struct build_weights *out)
{
    if (!o->filler || !*o->filler) {
        err_set(error_of(spec), ERR_INPUT, "layer \"%.100s\": the weights have no filler", name);
        return false;
    }
    *out = (struct build_weights){
        .filler = o->filler,
        .std = o->std,
        .value = o->value,
        .bias = o->bias,
        .bias_value = o->bias_value,
        .rate = o->rate,
        .bias_rate = o->bias_rate,
        .decay = o->decay,
        .bias_decay = o->bias_decay,
    };
    return true;
}

void pl_spec_convolution(pl_net_spec *spec, const char *name, const char *bottom, uint32_t outputs,
                         uint32_t kernel, const pl_convolution_options *options)
{
    static const pl_convolution_options defaults = PL_CONVOLUTION_DEFAULTS;
    const pl_convolution_options *o = options ? options : &defaults;
    struct build_weights weights;
    if (!named(spec, name, bottom) || !weights_of(spec, name, &o->weights, &weights))
        return;
    const struct build_window window = {kernel, o->stride, o->pad};
    build_convolution(&spec->build, name, bottom, outputs, &window, &weights);
}

void pl_spec_pooling(pl_net_spec *spec, const char *name, const char *bottom, pl_pooling method,
                     uint32_t kernel, uint32_t stride)
{
    if (!named(spec, name, bottom))
        return;
    if (method == PL_POOL_MAX)
        build_pool_max(&spec->build, name, bottom, kernel, stride);
    else if (method == PL_POOL_AVERAGE)
        build_pool_average(&spec->build, name, bottom, kernel, stride);
    else
        err_set(error_of(spec), ERR_INPUT, "layer \"%.100s\": there is no pooling %d", name,
                (int)method);
}

void pl_spec_inner_product(pl_net_spec *spec, const char *name, const char *bottom,
                           uint32_t outputs, const pl_weight_options *options)
{
    static const pl_weight_options defaults = PL_WEIGHT_DEFAULTS;
    struct build_weights weights;
    if (named(spec, name, bottom) &&
        weights_of(spec, name, options ? options : &defaults, &weights))
        build_inner_product(&spec->build, name, bottom, outputs, &weights);
}

void pl_spec_relu(pl_net_spec *spec, const char *name, const char *bottom)
{
    if (named(spec, name, bottom))
        build_relu_apart(&spec->build, name, bottom);
}

void pl_spec_dropout(pl_net_spec *spec, const char *name, const char *bottom, float ratio)
{
    if (named(spec, name, bottom))
        build_dropout_apart(&spec->build, name, bottom, ratio);
}

void pl_spec_softmax_loss(pl_net_spec *spec, const char *name, const char *scores,
                          const char *label)
{
    if (named(spec, name, scores) && named(spec, name, label))
        build_softmax_loss(&spec->build, name, scores, label);
}

void pl_spec_accuracy(pl_net_spec *spec, const char *name, const char *scores, const char *label)
{
    if (named(spec, name, scores) && named(spec, name, label))
        build_accuracy(&spec->build, name, scores, label);
}

static int add_text(pl_net_spec *spec, const char *text)
{
    ProtobufCMessage *msg = NULL;
    char where[32];
    snprintf(where, sizeof where, "layer %zu", spec->build.net->n_layer + 1);
    int rc = text_parse(&caffe__layer_parameter__descriptor, where, text, strlen(text), &msg,
                        error_of(spec));
    if (rc == OK)
        build_layer(&spec->build, (Caffe__LayerParameter *)msg);
    return rc;
}

static int add_layer(pl_net_spec *spec, const char *text)
{
    RETURN_GUARDED(spec->engine, add_text(spec, text));
}

void pl_spec_layer(pl_net_spec *spec, const char *text)
{
    if (spec->error.status == OK && !spec->build.failed)
        add_layer(spec, text);
}
