#include "api/convert.h"
#include "api/guard.h"
#include "api/net.h"
#include "model/caffe_convert.h"
#include "model/load.h"
#include "model/weights.h"
#include "model/weights_file.h"
#include "real/disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- views ---- */

/* Only tensor, nn and learner read the contents of vectors; the public views are the exception. */
static pl_weights view_of(const pl_net *net, size_t i)
{
    const struct segment *segment = &net->learner.table->at[i];
    pl_weights view = {
        .layer = net->layer[i],
        .index = (uint32_t)strtoul(strrchr(segment->name, '.') + 1, NULL, 10),
        .at = net->learner.x.at + segment->offset,
        .count = segment->len,
        .dims = segment->shape.n,
    };
    _Static_assert(sizeof view.shape == sizeof segment->shape.dim,
                   "shapes have as many dimensions");
    memcpy(view.shape, segment->shape.dim, sizeof view.shape);
    return view;
}

static int find_weights(pl_net *net, const char *layer, uint32_t index, pl_weights *out)
{
    struct err *err = &net->engine->error;
    int rc = api_net_formed(net, err);
    if (rc != OK)
        return rc;
    char name[SEGMENT_NAME_MAX];
    int len = snprintf(name, sizeof name, "%s.%u", layer, index);
    const struct segments *table = net->learner.table;
    const struct segment *segment = len < SEGMENT_NAME_MAX ? segments_find(table, name) : NULL;
    if (!segment)
        return err_set(err, ERR_NOT_FOUND,
                       "layer \"%.100s\": the net has no such layer, or it has no weights %u",
                       layer, index);
    *out = view_of(net, (size_t)(segment - table->at));
    return OK;
}

int pl_net_weights(pl_net *net, const char *layer, uint32_t index, pl_weights *out)
{
    RETURN_GUARDED(net->engine, find_weights(net, layer, index, out));
}

size_t pl_net_weights_count(const pl_net *net)
{
    return net->ws ? net->learner.table->count : 0;
}

static int weights_at(pl_net *net, size_t i, pl_weights *out)
{
    if (i >= pl_net_weights_count(net))
        return err_set(&net->engine->error, ERR_NOT_FOUND, "weights %zu: the net has %zu", i,
                       pl_net_weights_count(net));
    *out = view_of(net, i);
    return OK;
}

int pl_net_weights_at(pl_net *net, size_t i, pl_weights *out)
{
    RETURN_GUARDED(net->engine, weights_at(net, i, out));
}

static int vector_of(pl_net *net, const struct vec *v, float **x, size_t *n)
{
    int rc = api_net_formed(net, &net->engine->error);
    if (rc != OK)
        return rc;
    *x = v->at;
    *n = v->n;
    return OK;
}

int pl_net_all_weights(pl_net *net, float **x, size_t *n)
{
    RETURN_GUARDED(net->engine, vector_of(net, &net->learner.x, x, n));
}

int pl_net_all_state(pl_net *net, float **s, size_t *n)
{
    RETURN_GUARDED(net->engine, vector_of(net, &net->learner.s, s, n));
}

/* ---- files ---- */

static int load_weights(pl_net *net, const char *path, enum weights_fit fit)
{
    struct err *err = &net->engine->error;
    int rc = api_net_formed(net, err);
    if (rc != OK)
        return rc;
    const struct weights_into into = {
        .x = net_whole_segments(workspace_net(net->ws)),
        .s = net_state_segments(workspace_net(net->ws)),
        .x_at = net->learner.x.at,
        .s_at = net->learner.s.at,
    };
    if (net->team && fit == WEIGHTS_ALL)
        return model_weights_load_slice(path, &net->slice, &into, &net->engine->log, err);
    if ((rc = api_net_whole(net, "a file that fits in part", err)) != OK)
        return rc;
    return model_weights_load(path, fit, &into, &net->engine->log, err);
}

int pl_net_load_weights(pl_net *net, const char *path)
{
    RETURN_GUARDED(net->engine, load_weights(net, path, WEIGHTS_ALL));
}

int pl_net_load_some_weights(pl_net *net, const char *path)
{
    RETURN_GUARDED(net->engine, load_weights(net, path, WEIGHTS_SOME));
}

static int make_image(const pl_net *net, struct buf *image, struct err *err)
{
    struct safetensors_writer w;
    safetensors_begin(&w);
    safetensors_meta(&w, "format", "paceline 1");
    weights_put(&w, "joint", net_segments(workspace_net(net->ws)), net->learner.x.at);
    weights_put(&w, "s", net_state_segments(workspace_net(net->ws)), net->learner.s.at);
    int rc = safetensors_image(&w, image, err);
    safetensors_end(&w);
    return rc;
}

static int save_safetensors(const pl_net *net, const char *path, struct err *err)
{
    struct buf image = {0};
    int rc = make_image(net, &image, err);
    if (rc == OK)
        rc = disk_replace(real_disk(), path, image.data, image.len, err);
    buf_release(&image);
    return rc;
}

/* A caffemodel, or a model in ONNX. */
static int save_model(const pl_net *net, const char *path, struct err *err)
{
    Caffe__NetParameter *param;
    int rc = model_load_net(net->job->net, &param, err);
    if (rc != OK)
        return rc;
    rc = caffe_convert_save(param, net_segments(workspace_net(net->ws)), net->learner.x.at,
                            net_state_segments(workspace_net(net->ws)), net->learner.s.at,
                            &net->record, real_disk(), path, err);
    caffe__net_parameter__free_unpacked(param, NULL);
    return rc;
}

static int save_weights(const pl_net *net, const char *path)
{
    struct err *err = &net->engine->error;
    char here[API_PATH_MAX];
    int rc = api_net_formed(net, err);
    if (rc == OK)
        rc = api_net_whole(net, "a file of its weights", err);
    if (rc == OK)
        rc = api_path_here(path, here, err);
    if (rc != OK)
        return rc;
    bool model = weights_file_called(path, "caffemodel") || weights_file_called(path, "onnx");
    return model ? save_model(net, here, err) : save_safetensors(net, here, err);
}

int pl_net_save_weights(const pl_net *net, const char *path)
{
    RETURN_GUARDED(net->engine, save_weights(net, path));
}
