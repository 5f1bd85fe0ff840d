#include "data/maps.h"

#include "base/rng.h"
#include "data/mean_file.h"

#include <stdlib.h>
#include <string.h>

/* ---- sizes ---- */

static void resized_size(const struct maps *maps, size_t H, size_t W, size_t *h, size_t *w)
{
    *h = H;
    *w = W;
    if (maps->resize > 0) {
        *h = H <= W ? maps->resize : H * maps->resize / W;
        *w = H <= W ? W * maps->resize / H : maps->resize;
    } else if (maps->resize_H > 0) {
        *h = maps->resize_H;
        *w = maps->resize_W;
    }
}

/* How high and wide record i becomes. */
static int size_of(const struct maps *maps, const struct source *source, size_t i, size_t *h,
                   size_t *w, struct err *err)
{
    size_t H, W;
    char name[SOURCE_NAME_MAX];
    source_size(source, i, &H, &W);
    resized_size(maps, H, W, h, w);
    if (*h > SIDE_MAX || *w > SIDE_MAX)
        return err_set(err, ERR_INPUT,
                       "data: %s: resized to %zu x %zu pixels, more than %d along a side",
                       source_name(source, i, name), *h, *w, SIDE_MAX);
    if (maps->crop == 0)
        return OK;
    if (*h + 2 * maps->pad < maps->crop || *w + 2 * maps->pad < maps->crop)
        return err_set(err, ERR_INPUT,
                       "data: %s: %zu x %zu pixels%s cannot be cropped to %zu x %zu; resize them "
                       "first, or crop to less",
                       source_name(source, i, name), *h, *w, maps->pad > 0 ? " and pad" : "",
                       maps->crop, maps->crop);
    *h = *w = maps->crop;
    return OK;
}

/* Check that all records have the shape of the first after mapping, within the limit. */
static int check_sizes(const struct maps *maps, const struct source *source, struct shape *shape,
                       struct err *err)
{
    size_t h, w, count = source->shape.dim[1] > 0 ? 1 : source->count;
    int rc = size_of(maps, source, 0, &h, &w, err);
    for (size_t i = 1; rc == OK && i < count; i++) {
        size_t other_h, other_w;
        char name[SOURCE_NAME_MAX];
        rc = size_of(maps, source, i, &other_h, &other_w, err);
        if (rc == OK && (other_h != h || other_w != w))
            return err_set(err, ERR_INPUT,
                           "data: %s: %zu x %zu pixels, and record 0 has %zu x %zu; resize them "
                           "(resize_height and resize_width), or resize and crop",
                           source_name(source, i, name), other_h, other_w, h, w);
    }
    if (rc != OK)
        return rc;
    if (source->shape.dim[0] * h * w > RECORD_VALUES_MAX)
        return err_set(err, ERR_INPUT, "data: records of %zu x %zu x %zu are over %zu values each",
                       source->shape.dim[0], h, w, RECORD_VALUES_MAX);
    *shape = (struct shape){.n = 3, .dim = {source->shape.dim[0], h, w}};
    return OK;
}

bool maps_are_given(const Paceline__Data *spec)
{
    return spec->scale != 1 || spec->n_mean > 0 || (spec->mean_file && *spec->mean_file) ||
           spec->mirror || spec->pad > 0 || spec->crop > 0 || spec->resize > 0 ||
           spec->resize_height > 0;
}

/* A map would change labels and numbers of a record alike. */
static int check_fields(const Paceline__Data *spec, const struct source *source, struct err *err)
{
    if (source->fields.n == 0 || !maps_are_given(spec))
        return OK;
    return err_set(err, ERR_INPUT,
                   "data: records have fields, to which scale, mean, crop and the like do not "
                   "apply; give them to the data of a zip's field, or change the values before");
}

/* ---- the mean ---- */

static int load_mean(struct maps *maps, const char *path, const struct source *source,
                     struct err *err)
{
    struct mean_file file;
    size_t h, w;
    char name[SOURCE_NAME_MAX];
    int rc = mean_file_read(path, &file, err);
    if (rc != OK) {
        err_prefix(err, "mean_file");
        return rc;
    }
    maps->mean = file.mean;
    maps->per_pixel = true;
    maps->mean_H = file.shape.dim[1];
    maps->mean_W = file.shape.dim[2];
    maps->mean_hash = file.hash;
    for (size_t i = 0; i < (source->shape.dim[1] > 0 ? 1 : source->count); i++) {
        size_t H, W;
        source_size(source, i, &H, &W);
        resized_size(maps, H, W, &h, &w);
        if (file.shape.dim[0] != source->shape.dim[0] || h != maps->mean_H || w != maps->mean_W)
            return err_set(err, ERR_INPUT,
                           "mean_file: %s: a mean of %zu x %zu x %zu, and %s has %zu x %zu x %zu "
                           "before it is cropped",
                           path, file.shape.dim[0], maps->mean_H, maps->mean_W,
                           source_name(source, i, name), source->shape.dim[0], h, w);
    }
    return OK;
}

static int set_mean(struct maps *maps, const Paceline__Data *spec, const struct source *source,
                    struct err *err)
{
    size_t C = source->shape.dim[0];
    if (spec->mean_file && spec->mean_file[0])
        return load_mean(maps, spec->mean_file, source, err);
    if (spec->n_mean > 1 && spec->n_mean != C)
        return err_set(err, ERR_INPUT,
                       "data: %zu values of mean for records of %zu channels, expected one, or one "
                       "a channel",
                       spec->n_mean, C);
    maps->mean = calloc(C, sizeof *maps->mean);
    if (!maps->mean)
        return err_set(err, ERR_NOMEM, "data: out of memory");
    for (size_t c = 0; c < C && spec->n_mean > 0; c++)
        maps->mean[c] = spec->mean[spec->n_mean == 1 ? 0 : c];
    return OK;
}

int maps_init(struct maps *maps, const Paceline__Data *spec, const struct source *source,
              struct shape *shape, struct err *err)
{
    struct maps made = {
        .scale = spec->scale,
        .channels = source->shape.dim[0],
        .mirror = spec->mirror,
        .pad = spec->pad,
        .crop = spec->crop,
        .resize = spec->resize,
        .resize_H = spec->resize_height,
        .resize_W = spec->resize_width,
    };
    int rc = check_fields(spec, source, err);
    if (rc == OK)
        rc = check_sizes(&made, source, shape, err);
    if (rc == OK)
        rc = set_mean(&made, spec, source, err);
    if (rc != OK) {
        maps_release(&made);
        return rc;
    }
    *maps = made;
    return OK;
}

int maps_copy(struct maps *to, const struct maps *from)
{
    size_t n = from->channels * (from->per_pixel ? from->mean_H * from->mean_W : 1);
    float *mean = malloc(n * sizeof *mean);
    if (!mean)
        return ERR_NOMEM;
    memcpy(mean, from->mean, n * sizeof *mean);
    *to = *from;
    to->mean = mean;
    return OK;
}

void maps_release(struct maps *maps)
{
    free(maps->mean);
    *maps = (struct maps){0};
}

/* ---- a record ---- */

/* One of n positions from 32 random bits, equally likely within n 2^-32. */
static size_t one_of(size_t n, uint32_t bits)
{
    return (size_t)(((uint64_t)n * bits) >> 32);
}

/* Choose the crop of the resized record. A record has its own random stream in each epoch: word 0
 * decides mirroring, words 1 and 2 the position of the crop. */
static struct window choose_window(const struct maps *maps, size_t H, size_t W,
                                   const struct maps_draw *draw)
{
    struct window window = {0};
    resized_size(maps, H, W, &window.h, &window.w);
    window.H = maps->crop ? maps->crop : window.h;
    window.W = maps->crop ? maps->crop : window.w;
    size_t down = window.h + 2 * maps->pad - window.H, right = window.w + 2 * maps->pad - window.W;
    size_t top = down / 2, left = right / 2;
    if (draw && (maps->crop || maps->mirror)) {
        uint32_t word[4];
        rng_block(rng_u64(draw->seed, RNG_MAP, draw->epoch), RNG_MAP, draw->record, word);
        window.mirror = maps->mirror && word[0] & 1;
        top = one_of(down + 1, word[1]);
        left = one_of(right + 1, word[2]);
    }
    window.top = (ptrdiff_t)top - (ptrdiff_t)maps->pad;
    window.left = (ptrdiff_t)left - (ptrdiff_t)maps->pad;
    return window;
}

/* Of a row of the window, which columns lie within the picture. */
static struct span clip_span(ptrdiff_t begin, size_t count, size_t n)
{
    ptrdiff_t from = begin < 0 ? -begin : 0, end = (ptrdiff_t)n - begin;
    if (end > (ptrdiff_t)count)
        end = (ptrdiff_t)count;
    if (end < from)
        return (struct span){0, 0};
    return (struct span){(size_t)from, (size_t)end};
}

static void reverse_row(float *row, size_t n)
{
    for (size_t k = 0; k < n / 2; k++) {
        float last = row[n - 1 - k];
        row[n - 1 - k] = row[k];
        row[k] = last;
    }
}

/* n values of channel c from pixel (y, x) on. */
static void copy_values(const struct raw *raw, size_t c, size_t y, size_t x, size_t n, float *row)
{
    size_t plane = (c * raw->H + y) * raw->W + x;
    if (raw->form == RAW_FLOATS) {
        memcpy(row, (const float *)raw->at + plane, n * sizeof *row);
    } else {
        const uint8_t *from = (const uint8_t *)raw->at + plane;
        for (size_t k = 0; k < n; k++)
            row[k] = (float)from[k];
    }
}

/* The window of a record of planes that keeps its size. */
static void copy_window(const struct raw *raw, const struct window *window, float *x)
{
    struct span rows = clip_span(window->top, window->H, raw->H);
    struct span columns = clip_span(window->left, window->W, raw->W);
    size_t n = columns.end - columns.first;
    bool whole = n == window->W;
    for (size_t c = 0; c < raw->C; c++) {
        for (size_t i = 0; i < window->H; i++) {
            float *row = x + (c * window->H + i) * window->W;
            bool inside = i >= rows.first && i < rows.end && n > 0;
            if (!inside || !whole)
                memset(row, 0, window->W * sizeof *row);
            if (!inside)
                continue;
            copy_values(raw, c, (size_t)(window->top + (ptrdiff_t)i),
                        (size_t)(window->left + (ptrdiff_t)columns.first), n, row + columns.first);
            if (window->mirror)
                reverse_row(row, window->W);
        }
    }
}

/* x <- (x - mean) * scale, the mean of each channel. */
static void shift_and_scale(const struct levels *levels, size_t C, size_t HW, float *x)
{
    for (size_t c = 0; c < C; c++)
        for (size_t k = c * HW; k < (c + 1) * HW; k++)
            x[k] = (x[k] - levels->mean[c]) * levels->scale;
}

/* Likewise, the mean of each pixel, where there is one. */
static void shift_by_pixel(const struct maps *maps, size_t C, const struct window *window, float *x)
{
    struct span rows = clip_span(window->top, window->H, maps->mean_H);
    struct span columns = clip_span(window->left, window->W, maps->mean_W);
    for (size_t c = 0; c < C; c++) {
        for (size_t i = rows.first; i < rows.end; i++) {
            size_t y = (size_t)(window->top + (ptrdiff_t)i);
            const float *mean = maps->mean + (c * maps->mean_H + y) * maps->mean_W;
            float *row = x + (c * window->H + i) * window->W;
            for (size_t j = columns.first; j < columns.end; j++)
                row[window->mirror ? window->W - 1 - j : j] -= mean[window->left + (ptrdiff_t)j];
        }
    }
    for (size_t k = 0; k < C * window->H * window->W; k++)
        x[k] *= maps->scale;
}

/* The most that a side of n may be shrunk on its way to m pixels. */
static unsigned choose_shrink(size_t n, size_t m)
{
    unsigned shrink = 0;
    while (shrink < SHRINK_MAX && m << (shrink + 1) <= n)
        shrink++;
    return shrink;
}

void maps_want(const struct maps *maps, size_t H, size_t W, const struct maps_draw *draw,
               struct raw_want *out)
{
    const struct window window = choose_window(maps, H, W, draw);
    unsigned down = choose_shrink(H, window.h), right = choose_shrink(W, window.w);
    unsigned shrink = down < right ? down : right;
    struct span rows = resize_reach(H, shrink, window.h, window.top, window.H);
    struct span columns = resize_reach(W, shrink, window.w, window.left, window.W);
    *out = (struct raw_want){H, W, shrink, rows.first, rows.end, columns.first, columns.end};
}

int maps_read(const struct maps *maps, const struct source *source, size_t i,
              const struct maps_draw *draw, struct scratch *scratch, struct raw *raw,
              struct err *err)
{
    size_t H, W;
    struct raw_want want;
    source_size(source, i, &H, &W);
    maps_want(maps, H, W, draw, &want);
    scratch->want = &want;
    int rc = source->ops->read(source, i, scratch, raw, err);
    scratch->want = NULL;
    return rc;
}

int maps_apply(const struct maps *maps, const struct raw *raw, const struct maps_draw *draw,
               struct scratch *scratch, float *x)
{
    const struct window window = choose_window(maps, raw->H, raw->W, draw);
    const struct levels levels = {maps->mean, maps->scale};
    if (raw->form != RAW_INTERLEAVED && window.h == raw->H && window.w == raw->W) {
        copy_window(raw, &window, x);
        if (!maps->per_pixel)
            shift_and_scale(&levels, raw->C, window.H * window.W, x);
    } else {
        int rc = resize_window(raw, &window, maps->per_pixel ? NULL : &levels, scratch, x);
        if (rc != OK)
            return rc;
    }
    if (maps->per_pixel)
        shift_by_pixel(maps, raw->C, &window, x);
    return OK;
}
