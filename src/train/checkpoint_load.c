/* Loading a checkpoint, or a model that was written alone. */
#include "train/checkpoint.h"

#include "base/file.h"
#include "job/text_number.h"
#include "model/weights.h"
#include "train/checkpoint_files.h"
#include "train/checkpoint_ranges.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHECKPOINT_BYTES_MAX_SHIFT = 36 };

static int take_vector(const struct safetensors *st, const char *path, const char *prefix,
                       const struct segments *table, float *into, struct err *err)
{
    int rc = weights_check(st, path, prefix, table, err);
    if (rc == OK)
        weights_take(st, prefix, table, into);
    return rc;
}

static int take_number(const struct safetensors *st, const char *path, const char *key, int base,
                       uint64_t *out, struct err *err)
{
    const char *text = safetensors_meta_get(st, key);
    char *end = NULL;
    uint64_t value = text && *text ? strtoull(text, &end, base) : 0;
    if (!end || *end)
        return err_set(err, ERR_INPUT, "%s: metadata %s is missing or not a number", path, key);
    *out = value;
    return OK;
}

static int take_header(const struct safetensors *st, const char *path,
                       struct checkpoint_header *header, struct err *err)
{
    const char *format = safetensors_meta_get(st, "format");
    if (!format || strcmp(format, CHECKPOINT_FORMAT) != 0)
        return err_set(err, ERR_INPUT,
                       "%s: format is \"%.40s\", expected \"" CHECKPOINT_FORMAT "\"", path,
                       format ? format : "");
    uint64_t incarnation = 0;
    const struct {
        const char *key;
        int base;
        uint64_t *into;
    } numbers[] = {
        {"job_hash", 16, &header->job_hash},
        {"data_hash", 16, &header->data_hash},
        {"lane.0", 10, &header->progress.exchanges},
        {"place", 10, &header->progress.sample_offset},
        {"steps", 10, &header->progress.steps},
        {"used", 10, &header->used},
        {"missed", 10, &header->missed},
        {"seed", 10, &header->seed},
        {"incarnation", 10, &incarnation},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int rc = take_number(st, path, numbers[i].key, numbers[i].base, numbers[i].into, err);
        if (rc != OK)
            return rc;
    }
    header->incarnation = (uint32_t)incarnation;
    header->repeated = 0;
    if (safetensors_meta_get(st, "repeated")) { /* older ones lack it */
        int rc = take_number(st, path, "repeated", 10, &header->repeated, err);
        if (rc != OK)
            return rc;
    }
    const char *best = safetensors_meta_get(st, "best_error");
    bool below = best && best[0] == '-';
    if (!best || !text_number_double(best + below, strlen(best + below), &header->best_score))
        header->best_score = INFINITY;
    else if (below)
        header->best_score = -header->best_score;
    return OK;
}

int checkpoint_read_header(const char *path, struct checkpoint_header *header, struct err *err)
{
    struct safetensors st;
    *header = (struct checkpoint_header){.records = 0};
    int rc = safetensors_read_meta(path, &st, err);
    if (rc != OK)
        return rc;
    rc = take_header(&st, path, header, err);
    safetensors_release(&st);
    return rc;
}

void book_texts_release(struct book_texts *books)
{
    free(books->leases);
    free(books->holdings);
    *books = (struct book_texts){.leases = NULL};
}

/* A copy of a text of the file, if it has that one. false: out of memory */
static bool copy_meta(const struct safetensors *st, const char *name, char **out)
{
    const char *text = safetensors_meta_get(st, name);
    *out = text ? strdup(text) : NULL;
    return !text || *out;
}

static int take_books(const struct safetensors *st, const char *path, struct book_texts *books,
                      struct err *err)
{
    *books = (struct book_texts){.leases = NULL};
    return copy_meta(st, "leases", &books->leases) && copy_meta(st, "holdings", &books->holdings)
               ? OK
               : err_set(err, ERR_NOMEM, "%s: out of memory", path);
}

int checkpoint_read_books(const char *path, struct book_texts *books, struct err *err)
{
    struct safetensors st;
    *books = (struct book_texts){.leases = NULL};
    int rc = safetensors_read_meta(path, &st, err);
    if (rc != OK)
        return rc;
    rc = take_books(&st, path, books, err);
    safetensors_release(&st);
    return rc;
}

bool checkpoint_find_newest(const struct rundir *dir, struct checkpoint_header *header)
{
    struct checkpoint_numbers numbers;
    char path[RUNDIR_PATH_MAX + 64];
    bool listed = checkpoint_files_list(dir, &numbers, NULL) == OK;
    size_t left = listed ? numbers.count : 0;
    bool is_there = left > 0, read = false;
    while (left-- > 0 && !read) {
        checkpoint_path_of(dir, numbers.at[left], path, sizeof path);
        read = checkpoint_read_header(path, header, NULL) == OK;
    }
    if (!read)
        *header = (struct checkpoint_header){.best_score = INFINITY};
    free(numbers.at);
    return is_there;
}

bool checkpoint_model_is_of(const struct rundir *dir, const char *name,
                            const struct progress *progress)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct checkpoint_header header;
    rundir_file(dir, name, path, sizeof path);
    return checkpoint_read_header(path, &header, NULL) == OK &&
           header.progress.exchanges == progress->exchanges &&
           header.progress.sample_offset == progress->sample_offset &&
           header.progress.steps == progress->steps;
}

/* A tensor of the model that the net does not have. */
static int check_no_more(const struct safetensors *st, const char *path,
                         const struct model_layout *layout, struct err *err)
{
    for (size_t i = 0; i < st->n; i++) {
        const char *name = st->item[i].name;
        bool x = strncmp(name, "joint/", 6) == 0, s = strncmp(name, "s/", 2) == 0;
        if ((x && !segments_find(layout->x, name + 6)) ||
            (s && !segments_find(layout->s, name + 2)))
            return err_set(err, ERR_INPUT, "%s: has a tensor %.200s: it is of another net", path,
                           name);
    }
    return OK;
}

/* Load all of these vectors or none: missing ones are reset. */
static bool take_vectors(const struct safetensors *st, const char *path, const char *const *names,
                         size_t count, const struct segments *table, float *into)
{
    for (size_t i = 0; i < count; i++) {
        struct err none;
        if (take_vector(st, path, names[i], table, into + i * table->total, &none) != OK)
            return false;
    }
    return count > 0;
}

static int check_shape(const struct safetensors_item *item, const char *path,
                       const struct shape *want, struct err *err)
{
    char a[64], b[64];
    if (shape_equal(&item->shape, want))
        return OK;
    return err_set(err, ERR_INPUT, "%s: %s is %s, and the streams of this job's net have %s", path,
                   item->name, shape_text(&item->shape, a, sizeof a),
                   shape_text(want, b, sizeof b));
}

/* Has the file the carried state, of as many streams of such a net? One of a run without has none,
 * and a job without does not look. */
static int check_carried(const struct safetensors *st, const char *path,
                         struct model_layout *layout, struct err *err)
{
    const struct shape state = {2, {layout->streams, layout->row}};
    const struct shape record = {2, {layout->streams, CARRIED_STATE_MARKS}};
    const struct safetensors_item *a = safetensors_item(st, CHECKPOINT_CARRIED_STATE);
    const struct safetensors_item *b = safetensors_item(st, CHECKPOINT_CARRIED_RECORD);
    struct err why;
    layout->has_carried = false;
    if (layout->streams == 0 || layout->row == 0 || (!a && !b))
        return OK;
    int rc = a && b ? OK
                    : err_set(&why, ERR_INPUT, "%s: has no tensor %s next to %s", path,
                              a ? CHECKPOINT_CARRIED_RECORD : CHECKPOINT_CARRIED_STATE,
                              a ? CHECKPOINT_CARRIED_STATE : CHECKPOINT_CARRIED_RECORD);
    if (rc == OK)
        rc = check_shape(a, path, &state, &why);
    if (rc == OK)
        rc = check_shape(b, path, &record, &why);
    layout->has_carried = rc == OK;
    if (rc == OK || layout->drops_carried)
        return OK;
    return err_set(err, rc,
                   "%s; take another checkpoint, or begin the streams with 0 by "
                   "--force-change",
                   why.text);
}

static void take_carried(const struct safetensors *st, float *into)
{
    struct shape shape;
    const float *states = safetensors_find(st, CHECKPOINT_CARRIED_STATE, &shape);
    size_t n = shape_count(&shape);
    memcpy(into, states, n * sizeof *into);
    const float *records = safetensors_find(st, CHECKPOINT_CARRIED_RECORD, &shape);
    memcpy(into + n, records, shape_count(&shape) * sizeof *into);
}

static bool has_vectors(const struct safetensors *st, const char *path, const char *const *names,
                        size_t count, const struct model_layout *layout)
{
    struct err none;
    for (size_t i = 0; i < count; i++)
        if (weights_check(st, path, names[i], layout->x, &none) != OK)
            return false;
    return count > 0;
}

int checkpoint_check_tensors(const struct safetensors *st, const char *path,
                             struct model_layout *layout, struct err *err)
{
    int rc = weights_check(st, path, "joint", layout->x, err);
    if (rc == OK)
        rc = check_no_more(st, path, layout, err);
    if (rc == OK)
        rc = weights_check(st, path, "s", layout->s, err);
    if (rc == OK)
        rc = check_carried(st, path, layout, err);
    layout->has_state =
        rc == OK && has_vectors(st, path, layout->optim->state_name, layout->optim->states, layout);
    layout->has_extra =
        rc == OK && has_vectors(st, path, layout->extra_name, layout->extras, layout);
    return rc;
}

static int take_model(const struct safetensors *st, const char *path, struct model_layout *layout,
                      float *model, struct err *err)
{
    int rc = take_vector(st, path, "joint", layout->x, model, err);
    if (rc == OK)
        rc = check_no_more(st, path, layout, err);
    if (rc == OK)
        rc = take_vector(st, path, "s", layout->s, model + layout->x->total, err);
    if (rc == OK)
        rc = check_carried(st, path, layout, err);
    if (rc != OK)
        return rc;
    model += layout->x->total + layout->s->total;
    layout->has_state =
        take_vectors(st, path, layout->optim->state_name, layout->optim->states, layout->x, model);
    if (layout->has_state)
        model += layout->optim->states * layout->x->total;
    layout->has_extra =
        take_vectors(st, path, layout->extra_name, layout->extras, layout->x, model);
    if (layout->has_extra)
        model += layout->extras * layout->x->total;
    if (layout->has_carried)
        take_carried(st, model);
    return OK;
}

/* The number of updates behind the optimizer's vectors. A file without it is of an optimizer that
 * does not need it. */
static int take_updates(const struct safetensors *st, const char *path,
                        const struct model_layout *layout, struct checkpoint_header *header,
                        struct err *err)
{
    header->updates = 0;
    if (!layout->has_state || !safetensors_meta_get(st, "updates"))
        return OK;
    return take_number(st, path, "updates", 10, &header->updates, err);
}

/* Where a file's vectors go: into memory, or nowhere, and the file stays open. */
struct destination {
    float *model;
    struct checkpoint_ranges **ranges; /* NULL: into memory */
};

static int take_all(const struct safetensors *st, const char *path, struct model_layout *layout,
                    float *model, struct checkpoint_header *header, struct err *err)
{
    int rc = take_header(st, path, header, err);
    if (rc == OK)
        rc = model ? take_model(st, path, layout, model, err)
                   : checkpoint_check_tensors(st, path, layout, err);
    if (rc == OK)
        rc = take_updates(st, path, layout, header, err);
    header->books = (struct book_texts){.leases = NULL};
    return rc == OK ? take_books(st, path, &header->books, err) : rc;
}

static int open_ranges(const char *path, struct model_layout *layout,
                       struct checkpoint_ranges **out, struct checkpoint_header *header,
                       bool *whole, struct err *err)
{
    struct safetensors_file file;
    int rc = safetensors_open(path, &file, err);
    if (rc != OK)
        return rc;
    *whole = true;
    rc = take_all(&file.st, path, layout, NULL, header, err);
    if (rc == OK)
        return checkpoint_ranges_make(&file, layout, out, err);
    safetensors_close(&file);
    return rc;
}

int checkpoint_open_weights(const char *path, struct model_layout *layout,
                            struct checkpoint_ranges **out, struct err *err)
{
    struct safetensors_file file;
    int rc = safetensors_open(path, &file, err);
    if (rc != OK)
        return rc;
    layout->has_state = layout->has_extra = layout->has_carried = false;
    rc = weights_check(&file.st, path, "joint", layout->x, err);
    if (rc == OK)
        rc = weights_check(&file.st, path, "s", layout->s, err);
    if (rc == OK)
        return checkpoint_ranges_make(&file, layout, out, err);
    safetensors_close(&file);
    return rc;
}

/* *whole: the file is undamaged. */
static int load_file(const char *path, struct model_layout *layout, const struct destination *to,
                     struct checkpoint_header *header, bool *whole, struct err *err)
{
    struct file_bytes bytes;
    struct safetensors st;
    *whole = false;
    if (to->ranges)
        return open_ranges(path, layout, to->ranges, header, whole, err);
    int rc = file_read(path, (size_t)1 << CHECKPOINT_BYTES_MAX_SHIFT, &bytes, err);
    if (rc != OK)
        return rc;
    rc = safetensors_look(path, bytes.data, bytes.len, true, &st, err);
    if (rc != OK) {
        file_release(&bytes);
        return rc;
    }
    *whole = true;
    rc = take_all(&st, path, layout, to->model, header, err);
    safetensors_release(&st);
    file_release(&bytes);
    return rc;
}

int checkpoint_load_model(const char *path, struct model_layout *layout, float *model,
                          struct checkpoint_header *header, struct err *err)
{
    bool whole;
    return load_file(path, layout, &(struct destination){.model = model}, header, &whole, err);
}

int checkpoint_open_model(const char *path, struct model_layout *layout,
                          struct checkpoint_ranges **out, struct checkpoint_header *header,
                          struct err *err)
{
    bool whole;
    return load_file(path, layout, &(struct destination){.ranges = out}, header, &whole, err);
}

/* The newest that is undamaged: whether it fits or not, an older one would do no better. */
static int load_newest(const struct rundir *dir, const struct checkpoint_numbers *numbers,
                       const struct logger *log, struct model_layout *layout,
                       const struct destination *to, struct checkpoint_header *header,
                       struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct err why, newest = {0};
    for (size_t left = numbers->count; left-- > 0;) {
        bool whole;
        checkpoint_path_of(dir, numbers->at[left], path, sizeof path);
        int rc = load_file(path, layout, to, header, &whole, &why);
        if (rc != OK && (whole || rc == ERR_NOMEM))
            return err_set(err, rc, "%s", why.text);
        if (rc == OK)
            return OK;
        log_warn(log, "passed over: %s", why.text);
        if (!newest.text[0])
            newest = why;
    }
    if (numbers->count == 0)
        return err_set(err, ERR_NOT_FOUND, "%s: there is no checkpoint", dir->path);
    err_set(err, ERR_INPUT, "%s: no checkpoint to resume from: %.300s", dir->path, newest.text);
    err_remedy(err, "remove those that are damaged to start over");
    return ERR_INPUT;
}

static int load_checkpoint(const struct rundir *dir, const struct logger *log,
                           struct model_layout *layout, const struct destination *to,
                           struct checkpoint_header *header, struct err *err)
{
    struct checkpoint_numbers numbers;
    int rc = checkpoint_files_list(dir, &numbers, err);
    if (rc == OK || rc == ERR_NOT_FOUND)
        rc = load_newest(dir, &numbers, log, layout, to, header, err);
    free(numbers.at);
    return rc;
}

int checkpoint_load(const struct rundir *dir, const struct logger *log, struct model_layout *layout,
                    float *model, struct checkpoint_header *header, struct err *err)
{
    return load_checkpoint(dir, log, layout, &(struct destination){.model = model}, header, err);
}

int checkpoint_open(const struct rundir *dir, const struct logger *log, struct model_layout *layout,
                    struct checkpoint_ranges **out, struct checkpoint_header *header,
                    struct err *err)
{
    return load_checkpoint(dir, log, layout, &(struct destination){.ranges = out}, header, err);
}
