#include "api/guard.h"
#include "api/net.h"
#include "base/file.h"
#include "model/weights.h"
#include "real/disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t FILE_BYTES_MAX = (size_t)1 << 36;

/* ---- views ---- */

/* Elsewhere vectors are looked into by tensor, nn and learner alone; the public views are there to
 * be looked into. */
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

static int find(pl_net *net, const char *layer, uint32_t index, pl_weights *out)
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
        return err_set(err, ERR_NOT_FOUND, "layer \"%.100s\": the net has no weights %u of it",
                       layer, index);
    *out = view_of(net, (size_t)(segment - table->at));
    return OK;
}

int pl_net_weights(pl_net *net, const char *layer, uint32_t index, pl_weights *out)
{
    RETURN_GUARDED(net->engine, find(net, layer, index, out));
}

size_t pl_net_weights_count(const pl_net *net)
{
    return net->ws ? net->learner.table->count : 0;
}

static int at(pl_net *net, size_t i, pl_weights *out)
{
    if (i >= pl_net_weights_count(net))
        return err_set(&net->engine->error, ERR_NOT_FOUND, "weights %zu: the net has %zu", i,
                       pl_net_weights_count(net));
    *out = view_of(net, i);
    return OK;
}

int pl_net_weights_at(pl_net *net, size_t i, pl_weights *out)
{
    RETURN_GUARDED(net->engine, at(net, i, out));
}

static int vector(pl_net *net, const struct vec *v, float **x, size_t *n)
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
    RETURN_GUARDED(net->engine, vector(net, &net->learner.x, x, n));
}

int pl_net_all_state(pl_net *net, float **s, size_t *n)
{
    RETURN_GUARDED(net->engine, vector(net, &net->learner.s, s, n));
}

/* ---- files ---- */

static int take(pl_net *net, const struct safetensors *st, const char *path, struct err *err)
{
    const struct segments *x = net_segments(net->ws->train);
    const struct segments *s = net_state_segments(net->ws->train);
    int rc = weights_check(st, path, "joint", x, err);
    if (rc == OK)
        rc = weights_check(st, path, "s", s, err);
    if (rc != OK)
        return rc;
    weights_take(st, "joint", x, net->learner.x.at);
    weights_take(st, "s", s, net->learner.s.at);
    return OK;
}

static int load(pl_net *net, const char *path)
{
    struct err *err = &net->engine->error;
    struct file_bytes bytes;
    struct safetensors st;
    int rc = api_net_formed(net, err);
    if (rc == OK)
        rc = file_read(path, FILE_BYTES_MAX, &bytes, err);
    if (rc != OK)
        return rc;
    rc = safetensors_parse(path, bytes.data, bytes.len, true, &st, err);
    file_release(&bytes);
    if (rc != OK)
        return rc;
    rc = take(net, &st, path, err);
    safetensors_release(&st);
    return rc;
}

int pl_net_load_weights(pl_net *net, const char *path)
{
    RETURN_GUARDED(net->engine, load(net, path));
}

static int make_image(const pl_net *net, struct buf *image, struct err *err)
{
    struct safetensors_writer w;
    safetensors_begin(&w);
    safetensors_meta(&w, "format", "paceline 1");
    weights_put(&w, "joint", net_segments(net->ws->train), net->learner.x.at);
    weights_put(&w, "s", net_state_segments(net->ws->train), net->learner.s.at);
    int rc = safetensors_image(&w, image, err);
    safetensors_end(&w);
    return rc;
}

static int save(const pl_net *net, const char *path)
{
    struct err *err = &net->engine->error;
    struct buf image = {0};
    char here[4096];
    int rc = api_net_formed(net, err);
    int len = snprintf(here, sizeof here, "%s%s", strchr(path, '/') ? "" : "./", path);
    if (rc == OK && len >= (int)sizeof here)
        rc = err_set(err, ERR_INPUT, "%.100s...: the path is too long", path);
    if (rc == OK)
        rc = make_image(net, &image, err);
    if (rc == OK)
        rc = disk_replace(real_disk(), here, image.data, image.len, err);
    buf_release(&image);
    return rc;
}

int pl_net_save_weights(const pl_net *net, const char *path)
{
    RETURN_GUARDED(net->engine, save(net, path));
}
