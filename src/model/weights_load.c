#include "model/caffe_model.h"
#include "model/torch_names.h"
#include "model/weights.h"
#include "model/weights_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the file's tensors ---- */

/* One tensor of either format. */
struct tensor {
    const char *name; /* "joint/conv1.0" in safetensors, "conv1.0" in a caffemodel */
    struct shape shape;
    const float *data;                   /* of safetensors, unless they are read by range, */
    const struct caffe_blob *blob;       /* or of a caffemodel */
    const struct safetensors_item *item; /* of safetensors with Caffe's names */
    bool seen;                           /* the net has a segment of its name */
};

struct tensors {
    const struct weights_file *file;
    struct tensor *at; /* n, by name; the file's arena's */
    size_t n;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

static bool is_weights(const char *name)
{
    return strncmp(name, "joint/", 6) == 0 || strncmp(name, "s/", 2) == 0;
}

static int list_safetensors(struct tensors *list, struct arena *arena)
{
    const struct safetensors *st = &list->file->st;
    list->at = arena_array(arena, st->n, struct tensor);
    for (size_t i = 0; list->at && i < st->n; i++) {
        const struct safetensors_item *item = &st->item[i];
        if (is_weights(item->name) && item->count > 0)
            list->at[list->n++] = (struct tensor){
                .name = item->name, .shape = item->shape, .data = item->data, .item = item};
    }
    return list->at ? OK : ERR_NOMEM;
}

static bool has_layer(void *user, const char *layer)
{
    const struct weights_into *into = user;
    char name[SEGMENT_NAME_MAX];
    if (snprintf(name, sizeof name, "%s.0", layer) >= SEGMENT_NAME_MAX)
        return false;
    return segments_find(into->x, name) || segments_find(into->s, name);
}

static int list_torch_of(struct tensors *list, const struct torch_map *map, const char *prefix,
                         const struct segments *table, struct arena *arena)
{
    for (size_t i = 0; i < table->count; i++) {
        const char *segment = table->at[i].name, *dot = strrchr(segment, '.');
        char layer[SEGMENT_NAME_MAX], *name = arena_array(arena, SEGMENT_NAME_MAX + 16, char);
        struct caffe_tensor tensor;
        if (!name)
            return ERR_NOMEM;
        snprintf(layer, sizeof layer, "%.*s", (int)(dot - segment), segment);
        snprintf(name, SEGMENT_NAME_MAX + 16, "%s%s", prefix, segment);
        if (torch_take(map, &list->file->st, layer, (size_t)strtoul(dot + 1, NULL, 10), arena,
                       &tensor))
            list->at[list->n++] =
                (struct tensor){.name = name, .shape = tensor.shape, .data = tensor.data};
    }
    return OK;
}

/* A file with torchvision's names has a tensor for each segment of a net that has such names. */
static int list_torch(struct tensors *list, struct weights_into into, struct arena *arena)
{
    struct torch_map map;
    list->at = arena_array(arena, into.x->count + into.s->count, struct tensor);
    if (!list->at)
        return ERR_NOMEM;
    if (!torch_map_find(has_layer, &into, &map))
        return OK;
    int rc = list_torch_of(list, &map, "joint/", into.x, arena);
    return rc == OK ? list_torch_of(list, &map, "s/", into.s, arena) : rc;
}

static int list_caffe(struct tensors *list, struct arena *arena)
{
    const struct caffe_model *model = &list->file->caffe;
    size_t n = 0;
    for (size_t i = 0; i < model->n; i++)
        n += model->layer[i].n;
    list->at = arena_array(arena, n, struct tensor);
    for (size_t i = 0; list->at && i < model->n; i++) {
        const struct caffe_layer *layer = &model->layer[i];
        for (size_t k = 0; k < layer->n; k++) {
            size_t size = strlen(layer->name) + 16;
            char *name = arena_array(arena, size, char);
            if (!name)
                return ERR_NOMEM;
            snprintf(name, size, "%s.%zu", layer->name, k);
            list->at[list->n++] = (struct tensor){
                .name = name, .shape = layer->blob[k].shape, .blob = &layer->blob[k]};
        }
    }
    return list->at ? OK : ERR_NOMEM;
}

static bool are_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

/* A tensor that is read by range is checked then. */
static bool is_finite(const struct tensor *tensor)
{
    if (tensor->blob)
        return caffe_blob_finite(tensor->blob);
    return !tensor->data || are_finite(tensor->data, shape_count(&tensor->shape));
}

static void copy_tensor(const struct tensor *tensor, float *into)
{
    if (tensor->blob)
        caffe_blob_copy(tensor->blob, into);
    else
        memcpy(into, tensor->data, shape_count(&tensor->shape) * sizeof *into);
}

/* ---- the net's segments ---- */

struct loading {
    const char *path;
    enum weights_fit fit;
    struct tensors list;
    const struct logger *log;
    struct err *err;
    size_t taken, left;
};

/* A vector to be loaded: from[i] goes to segment i; NULL: it keeps its values. */
struct taker {
    const char *prefix;
    const struct segments *table;
    float *at;
    const struct tensor **from;
};

static int refuse_values(const struct loading *l, const char *name)
{
    return err_set(l->err, ERR_INPUT, "%s: tensor %s holds a value that is no finite number",
                   l->path, name);
}

static int check_fit(const struct loading *l, const struct segment *segment,
                     const struct tensor *tensor, const char *name, bool *fits)
{
    char a[64], b[64];
    *fits = tensor && caffe_shapes_fit(&tensor->shape, &segment->shape);
    if (*fits && !is_finite(tensor))
        return refuse_values(l, name);
    if (*fits)
        return OK;
    shape_text(&segment->shape, b, sizeof b);
    if (l->fit == WEIGHTS_ALL && !tensor)
        return err_set(l->err, ERR_INPUT, "%s: has no tensor %s: it is of another net", l->path,
                       name);
    if (l->fit == WEIGHTS_ALL)
        return err_set(l->err, ERR_INPUT, "%s: tensor %s is %s, the net has %s", l->path, name,
                       shape_text(&tensor->shape, a, sizeof a), b);
    if (tensor)
        log_info(l->log, "%s: %s is %s, the net has %s: stays as it was", l->path, name,
                 shape_text(&tensor->shape, a, sizeof a), b);
    else
        log_info(l->log, "%s: has no %s, %s in the net: stays as it was", l->path, name, b);
    return OK;
}

static int match_tensors(struct loading *l, struct taker *to)
{
    for (size_t i = 0; i < to->table->count; i++) {
        const struct segment *segment = &to->table->at[i];
        char name[SEGMENT_NAME_MAX + 16];
        snprintf(name, sizeof name, "%s%s", l->list.file->is_caffe ? "" : to->prefix,
                 segment->name);
        const struct tensor key = {.name = name};
        struct tensor *tensor =
            l->list.n ? bsearch(&key, l->list.at, l->list.n, sizeof key, compare_names) : NULL;
        bool fits;
        int rc = check_fit(l, segment, tensor, name, &fits);
        if (rc != OK)
            return rc;
        if (tensor)
            tensor->seen = true;
        to->from[i] = fits ? tensor : NULL;
        l->taken += fits;
        l->left += !fits;
    }
    return OK;
}

/* The net has "LAYER.K-1" where the file has "LAYER.K", which the net has not: their numbers of
 * blobs differ. */
static bool one_more(const char *name, const struct weights_into *into)
{
    char before[SEGMENT_NAME_MAX];
    const char *dot = strrchr(name, '.');
    char *end;
    unsigned long k = dot ? strtoul(dot + 1, &end, 10) : 0;
    if (k == 0 || *end || dot - name > (ptrdiff_t)sizeof before - 16)
        return false;
    snprintf(before, sizeof before, "%.*s.%lu", (int)(dot - name), name, k - 1);
    return segments_find(into->x, before) || segments_find(into->s, before);
}

/* Checks the tensors that the net does not have. */
static int check_rest(const struct loading *l, const struct weights_into *into)
{
    for (size_t i = 0; i < l->list.n; i++) {
        const struct tensor *tensor = &l->list.at[i];
        if (tensor->seen)
            continue;
        const char *name = l->list.file->is_caffe ? tensor->name : strchr(tensor->name, '/') + 1;
        char text[64];
        shape_text(&tensor->shape, text, sizeof text);
        if (l->fit == WEIGHTS_ALL && one_more(name, into))
            return err_set(l->err, ERR_INPUT,
                           "%s: has a tensor %.150s, %s: the net's layer has none like it", l->path,
                           tensor->name, text);
        log_info(l->log, "%s: %s, %s, is not in the net", l->path, tensor->name, text);
    }
    return OK;
}

static void take_tensor(const struct taker *to)
{
    for (size_t i = 0; i < to->table->count; i++)
        if (to->from[i])
            copy_tensor(to->from[i], to->at + to->table->at[i].offset);
}

/* The slice's part of a vector, and where its segments begin. */
static int read_ranges(const struct loading *l, const struct safetensors_file *file,
                       const struct model_slice *slice, const struct taker *to)
{
    size_t begin = 0;
    int rc = OK;
    for (size_t i = 0; rc == OK && i < to->table->count; i++) {
        const struct segment *segment = &to->table->at[i];
        const struct safetensors_item *item = to->from[i]->item;
        size_t at = begin;
        for (size_t block = 0; rc == OK && block < slice_blocks(segment); block++) {
            struct range own = slice_of_block(slice, segment, block);
            rc = safetensors_range(file, item, own.from, own.len, to->at + at, l->err);
            at += own.len;
        }
        if (rc == OK && !are_finite(to->at + begin, at - begin))
            rc = refuse_values(l, item->name);
        begin = slice_next_segment(slice, segment, begin);
    }
    return rc;
}

/* Find the tensors of an open file for both vectors. */
static int match_all(struct loading *l, struct arena *arena, const struct weights_into *into,
                     struct taker *to_x, struct taker *to_s)
{
    struct taker x = {"joint/", into->x, into->x_at, NULL};
    struct taker s = {"s/", into->s, into->s_at, NULL};
    x.from = arena_array(arena, into->x->count, const struct tensor *);
    s.from = arena_array(arena, into->s->count, const struct tensor *);
    bool caffe = l->list.file->is_caffe, torch = !caffe && torch_is_named(&l->list.file->st);
    int rc = caffe   ? list_caffe(&l->list, arena)
             : torch ? list_torch(&l->list, *into, arena)
                     : list_safetensors(&l->list, arena);
    if (rc != OK || !x.from || !s.from)
        return err_set(l->err, ERR_NOMEM, "%s: out of memory", l->path);
    if (l->list.n > 0)
        qsort(l->list.at, l->list.n, sizeof *l->list.at, compare_names);
    if ((rc = match_tensors(l, &x)) != OK || (rc = match_tensors(l, &s)) != OK ||
        (rc = check_rest(l, into)) != OK)
        return rc;
    if (l->taken == 0 && l->left > 0)
        return err_set(l->err, ERR_INPUT, "%s: none of its %zu tensors fits the net", l->path,
                       l->list.n);
    *to_x = x;
    *to_s = s;
    return OK;
}

static void log_taken(const struct loading *l)
{
    log_info(l->log, "%s: %zu of the net's %zu tensors taken", l->path, l->taken,
             l->taken + l->left);
}

int model_weights_load(const char *path, enum weights_fit fit, const struct weights_into *into,
                       const struct logger *log, struct err *err)
{
    struct weights_file file;
    struct loading l = {.path = path, .fit = fit, .log = log, .err = err, .list = {.file = &file}};
    struct arena arena;
    int rc = weights_file_open(path, WEIGHTS_CHECKED, &file, err);
    if (rc != OK)
        return rc;
    struct taker x, s;
    arena_init(&arena);
    rc = match_all(&l, &arena, into, &x, &s);
    if (rc == OK) {
        take_tensor(&x);
        take_tensor(&s);
        log_taken(&l);
    }
    arena_release(&arena);
    weights_file_close(&file);
    return rc;
}

static int refuse_slices(const char *path, struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED,
                   "%.200s: slices read their parts of a .safetensors as a run leaves it; "
                   "`paceline convert` makes one",
                   path);
}

int model_weights_load_slice(const char *path, const struct model_slice *slice,
                             const struct weights_into *into, const struct logger *log,
                             struct err *err)
{
    const struct model_slice all = {SLICE_ALL, slice->count}; /* each has all of s */
    struct safetensors_file open;
    struct taker x, s;
    struct arena arena;
    bool ours = false;
    int rc = weights_file_is_ours(path, &ours, err);
    if (rc == OK && !ours)
        rc = refuse_slices(path, err);
    if (rc == OK)
        rc = safetensors_open(path, &open, err);
    if (rc != OK)
        return rc;
    if (torch_is_named(&open.st)) {
        safetensors_close(&open);
        return refuse_slices(path, err);
    }
    struct weights_file file = {.st = open.st};
    struct loading l = {
        .path = path, .fit = WEIGHTS_ALL, .log = log, .err = err, .list = {.file = &file}};
    arena_init(&arena);
    rc = match_all(&l, &arena, into, &x, &s);
    if (rc == OK)
        rc = read_ranges(&l, &open, slice, &x);
    if (rc == OK)
        rc = read_ranges(&l, &open, &all, &s);
    if (rc == OK)
        log_taken(&l);
    arena_release(&arena);
    safetensors_close(&open);
    return rc;
}
