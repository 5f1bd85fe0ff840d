#include "train/checkpoint_ranges.h"

#include "base/fault.h"
#include "model/weights.h"
#include "train/checkpoint_files.h"

#include <stdlib.h>
#include <string.h>

/* A tensor of the file, and where its floats lie in the layout. */
struct placed {
    size_t at;
    const struct safetensors_item *item;
};

struct checkpoint_ranges {
    struct safetensors_file file;
    struct placed *placed; /* ascending */
    size_t count;
    size_t next, taken; /* of a source: the tensor, and its floats that were taken */
};

static void place_vector(struct checkpoint_ranges *r, const char *prefix,
                         const struct segments *table, size_t at)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct safetensors_item *item = weights_item(&r->file.st, prefix, &table->at[i]);
        PL_ASSERT(item && item->count == table->at[i].len);
        r->placed[r->count++] = (struct placed){at + table->at[i].offset, item};
    }
}

static void place_tensor(struct checkpoint_ranges *r, const char *name, size_t at)
{
    const struct safetensors_item *item = safetensors_item(&r->file.st, name);
    PL_ASSERT(item);
    r->placed[r->count++] = (struct placed){at, item};
}

static void place_all(struct checkpoint_ranges *r, const struct model_layout *layout)
{
    size_t at = 0;
    place_vector(r, "joint", layout->x, at);
    at += layout->x->total;
    place_vector(r, "s", layout->s, at);
    at += layout->s->total;
    for (size_t i = 0; layout->has_state && i < layout->optim->states; i++) {
        place_vector(r, layout->optim->state_name[i], layout->x, at);
        at += layout->x->total;
    }
    for (size_t i = 0; layout->has_extra && i < layout->extras; i++) {
        place_vector(r, layout->extra_name[i], layout->x, at);
        at += layout->x->total;
    }
    if (layout->has_carried) {
        place_tensor(r, CHECKPOINT_CARRIED_STATE, at);
        place_tensor(r, CHECKPOINT_CARRIED_RECORD, at + layout->streams * layout->row);
    }
}

int checkpoint_ranges_make(struct safetensors_file *file, const struct model_layout *layout,
                           struct checkpoint_ranges **out, struct err *err)
{
    size_t states = layout->has_state ? layout->optim->states : 0;
    size_t extras = layout->has_extra ? layout->extras : 0;
    size_t most = layout->x->count * (1 + states + extras) + layout->s->count + 2;
    struct checkpoint_ranges *r = calloc(1, sizeof *r);
    struct placed *placed = calloc(most + 1, sizeof *placed);
    if (!r || !placed) {
        free(r);
        free(placed);
        safetensors_close(file);
        return err_set(err, ERR_NOMEM, "out of memory for a checkpoint");
    }
    *r = (struct checkpoint_ranges){.file = *file, .placed = placed};
    place_all(r, layout);
    *out = r;
    return OK;
}

void checkpoint_close(struct checkpoint_ranges *r)
{
    if (!r)
        return;
    safetensors_close(&r->file);
    free(r->placed);
    free(r);
}

/* The first tensor that ends behind this float of the layout. */
static size_t find_placed(const struct checkpoint_ranges *r, size_t from)
{
    size_t low = 0, high = r->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->placed[middle].at + r->placed[middle].item->count <= from)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int checkpoint_range(const struct checkpoint_ranges *r, size_t from, size_t n, float *into,
                     struct err *err)
{
    memset(into, 0, n * sizeof *into);
    for (size_t i = find_placed(r, from); i < r->count && r->placed[i].at < from + n; i++) {
        const struct placed *p = &r->placed[i];
        size_t begin = p->at > from ? p->at : from, end = p->at + p->item->count;
        if (end > from + n)
            end = from + n;
        int rc = safetensors_range(&r->file, p->item, begin - p->at, end - begin,
                                   into + (begin - from), err);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static int begin_source(void *user, const struct model_layout *layout, struct err *err)
{
    struct checkpoint_ranges *r = user;
    (void)layout, (void)err;
    r->next = r->taken = 0;
    return OK;
}

/* Tensors are placed in the order of the file. */
static int next_floats(void *user, float *into, size_t n, struct err *err)
{
    struct checkpoint_ranges *r = user;
    while (n > 0) {
        PL_ASSERT(r->next < r->count);
        const struct safetensors_item *item = r->placed[r->next].item;
        size_t left = item->count - r->taken, take = n < left ? n : left;
        int rc = safetensors_range(&r->file, item, r->taken, take, into, err);
        if (rc != OK)
            return rc;
        into += take;
        n -= take;
        r->taken += take;
        if (r->taken == item->count) {
            r->next++;
            r->taken = 0;
        }
    }
    return OK;
}

static void end_source(void *user)
{
    (void)user;
}

struct model_source checkpoint_ranges_source(struct checkpoint_ranges *r)
{
    return (struct model_source){
        .begin = begin_source, .next = next_floats, .end = end_source, .user = r};
}
