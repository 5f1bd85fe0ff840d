#include "api/guard.h"
#include "api/net.h"
#include "base/memory.h"
#include "job/text.h"
#include "model/load.h"
#include "model/zoo.h"
#include "nn/summary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- their life ---- */

/* `net` is taken, also on failure. */
static int wrap_net(pl_engine *engine, Caffe__NetParameter *net, pl_net_spec **out)
{
    pl_net_spec *spec = calloc(1, sizeof *spec);
    if (!spec) {
        caffe__net_parameter__free_unpacked(net, NULL);
        return err_set(&engine->error, ERR_NOMEM, "net: out of memory");
    }
    spec->engine = engine;
    spec->build.net = net;
    arena_init(&spec->arena);
    *out = spec;
    return OK;
}

static int create_spec(pl_engine *engine, const char *name, pl_net_spec **out)
{
    struct build build;
    Caffe__NetParameter *net = NULL;
    build_begin(&build, name ? name : "net");
    int rc = build_end(&build, &net, &engine->error);
    return rc == OK ? wrap_net(engine, net, out) : rc;
}

static int load_spec(pl_engine *engine, const char *path, pl_net_spec **out)
{
    Caffe__NetParameter *net = NULL;
    int rc = model_load_file(path, &net, &engine->error);
    return rc == OK ? wrap_net(engine, net, out) : rc;
}

static int zoo_spec(pl_engine *engine, const char *name, pl_net_spec **out)
{
    Caffe__NetParameter *net = NULL;
    int rc = zoo_net(name, &net, &engine->error);
    if (rc == OK)
        rc = wrap_net(engine, net, out);
    if (rc == OK)
        (*out)->record = zoo_record(name);
    return rc;
}

bool api_copy_name(const char *name, char **out)
{
    *out = name ? strdup(name) : NULL;
    return *out || !name;
}

static int of_job(const pl_job *job, pl_net_spec **out)
{
    struct err *err = &job->engine->error;
    Caffe__NetParameter *net = NULL;
    if (!job->message->net || !job->message->net->source_case)
        return err_set(err, ERR_INPUT, "net: is missing from the job");
    int rc = model_load_net(job->message->net, &net, err);
    if (rc == OK)
        rc = wrap_net(job->engine, net, out);
    if (rc != OK)
        return rc;
    if (api_copy_name(job->message->slices_from, &(*out)->slices_from) &&
        api_copy_name(job->message->slices_to, &(*out)->slices_to))
        return OK;
    pl_net_spec_free(*out);
    return err_set(err, ERR_NOMEM, "net: out of memory");
}

int pl_net_spec_create(pl_engine *engine, const char *name, pl_net_spec **out)
{
    RETURN_GUARDED(engine, create_spec(engine, name, out));
}

int pl_net_spec_load(pl_engine *engine, const char *path, pl_net_spec **out)
{
    RETURN_GUARDED(engine, load_spec(engine, path, out));
}

int pl_net_spec_zoo(pl_engine *engine, const char *name, pl_net_spec **out)
{
    RETURN_GUARDED(engine, zoo_spec(engine, name, out));
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
    buf_release(&spec->text);
    arena_release(&spec->arena);
    free(spec->slices_from);
    free(spec->slices_to);
    free(spec);
}

const char *const *pl_zoo_names(void)
{
    return zoo_names();
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

/* ---- what it says ---- */

static int write_text(pl_net_spec *spec, const char **text)
{
    struct err *err = &spec->engine->error;
    int rc = api_spec_check(spec, err);
    if (rc != OK)
        return rc;
    buf_release(&spec->text);
    spec->text = (struct buf){0};
    text_write(&spec->build.net->base, &spec->text);
    buf_put_u8(&spec->text, 0);
    if (spec->text.failed)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    *text = (const char *)spec->text.data;
    return OK;
}

int pl_net_spec_text(pl_net_spec *spec, const char **text)
{
    RETURN_GUARDED(spec->engine, write_text(spec, text));
}

int api_spec_record(const pl_net_spec *spec, const uint32_t given[3], struct shape *out,
                    struct err *err)
{
    *out = (struct shape){3, {given[0], given[1], given[2]}};
    if (given[0] && given[1] && given[2])
        return OK;
    if (given[0] || given[1] || given[2])
        return err_set(err, ERR_USAGE,
                       "net: records of %u channels, %u rows and %u columns: all of these or none "
                       "may be 0",
                       given[0], given[1], given[2]);
    *out = model_record_shape(spec->build.net);
    if (out->n == 0)
        *out = spec->record;
    return out->n > 0
               ? OK
               : err_set(err, ERR_USAGE, "net: the shape of its records is unknown; give it");
}

static int copy_layers(pl_net_spec *spec, const struct net *net, const pl_layer **layers,
                       size_t *count)
{
    size_t n = net_layer_count(net);
    arena_release(&spec->arena);
    arena_init(&spec->arena);
    pl_layer *out = arena_array(&spec->arena, n, pl_layer);
    for (size_t i = 0; i < n && out; i++) {
        struct layer_summary layer = net_layer_at(net, i);
        char *name = arena_strdup(&spec->arena, layer.name);
        char *type = arena_strdup(&spec->arena, layer.type);
        if (!name || !type)
            out = NULL;
        else
            out[i] = (pl_layer){
                .name = name,
                .type = type,
                .dims = layer.top.n,
                .parameters = layer.parameters,
                .state = layer.state,
                .multiply_adds = layer.products,
            };
        _Static_assert(sizeof out->shape == sizeof layer.top.dim, "as many dimensions");
        if (out)
            memcpy(out[i].shape, layer.top.dim, sizeof out[i].shape);
    }
    if (!out)
        return err_set(&spec->engine->error, ERR_NOMEM, "net: out of memory");
    *layers = out;
    *count = n;
    return OK;
}

static int list_layers(pl_net_spec *spec, const uint32_t given[3], const pl_layer **layers,
                       size_t *count)
{
    struct err *err = &spec->engine->error;
    struct net_options options = {
        .phase = PHASE_TRAIN,
        .batch = 1,
        .kernels = &kernels_ref,
    };
    struct net *net = NULL;
    options.memory_limit = memory_available(&options.memory_by);
    int rc = api_spec_check(spec, err);
    if (rc == OK)
        rc = api_spec_record(spec, given, &options.input, err);
    if (rc == OK)
        rc = net_create(spec->build.net, &options, &net, err);
    if (rc != OK)
        return rc;
    rc = copy_layers(spec, net, layers, count);
    net_free(net);
    return rc;
}

int pl_net_spec_layers(pl_net_spec *spec, uint32_t channels, uint32_t height, uint32_t width,
                       const pl_layer **layers, size_t *count)
{
    const uint32_t given[3] = {channels, height, width};
    RETURN_GUARDED(spec->engine, list_layers(spec, given, layers, count));
}
