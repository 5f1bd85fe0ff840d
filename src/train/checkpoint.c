#include "train/checkpoint.h"

#include "base/file.h"
#include "model/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "paceline 1"

enum { CHECKPOINT_BYTES_MAX_SHIFT = 36, NAME_MAX_LEN = 512 };

size_t model_floats(const struct model_layout *layout, bool with_state)
{
    size_t states = with_state ? layout->optim->states : 0;
    return layout->x->total * (1 + states) + layout->s->total;
}

/* ---- writing ---- */

static void put_vector(struct safetensors_writer *w, const char *prefix,
                       const struct segments *table, const float *at)
{
    char name[NAME_MAX_LEN];
    for (size_t i = 0; i < table->count; i++) {
        const struct segment *segment = &table->at[i];
        snprintf(name, sizeof name, "%s/%s", prefix, segment->name);
        safetensors_tensor(w, name, &segment->shape, at + segment->offset);
    }
}

static void put_number(struct safetensors_writer *w, const char *key, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    safetensors_meta(w, key, text);
}

static void put_hash(struct safetensors_writer *w, const char *key, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    safetensors_meta(w, key, text);
}

static void put_note(struct safetensors_writer *w, const struct checkpoint_note *note)
{
    char epoch[32];
    snprintf(epoch, sizeof epoch, "%.6f", (double)note->course.place / (double)note->records);
    safetensors_meta(w, "format", FORMAT);
    put_hash(w, "job_hash", note->job_hash);
    put_hash(w, "data_hash", note->data_hash);
    put_number(w, "lane.0", note->course.exchanges);
    put_number(w, "place", note->course.place);
    put_number(w, "steps", note->course.steps);
    safetensors_meta(w, "epoch", epoch);
    put_number(w, "used", note->used);
    put_number(w, "missed", note->missed);
    put_number(w, "seed", note->seed);
    put_number(w, "incarnation", note->incarnation);
}

static int make_image(const struct checkpoint_note *note, const struct model_layout *layout,
                      const float *model, struct buf *image, struct err *err)
{
    struct safetensors_writer w;
    safetensors_begin(&w);
    put_note(&w, note);
    put_vector(&w, "joint", layout->x, model);
    put_vector(&w, "s", layout->s, model + layout->x->total);
    const float *state = model + model_floats(layout, false);
    for (size_t i = 0; layout->has_state && i < layout->optim->states; i++)
        put_vector(&w, layout->optim->state_name[i], layout->x, state + i * layout->x->total);
    int rc = safetensors_image(&w, image, err);
    safetensors_end(&w);
    return rc;
}

static int check_space(const struct rundir *dir, size_t bytes, struct err *err)
{
    uint64_t left;
    int rc = dir->disk->ops->free_space(dir->disk, dir->path, &left, err);
    if (rc == OK && left < bytes + bytes / 8)
        return err_set(err, ERR_IO, "%s: %" PRIu64 " bytes are left, a checkpoint needs %zu",
                       dir->path, left, bytes);
    return rc;
}

/* "NNNNNNNN.safetensors" → N; false for any other name. */
static bool checkpoint_number(const char *name, uint64_t *n)
{
    char *end;
    if (name[0] < '0' || name[0] > '9')
        return false;
    *n = strtoull(name, &end, 10);
    return strcmp(end, ".safetensors") == 0;
}

/* Numbers of the checkpoints in a directory, ascending as their names are. */
struct numbers {
    uint64_t *at;
    size_t count, cap;
    bool failed;
};

static void add_number(void *user, const char *name)
{
    struct numbers *numbers = user;
    uint64_t n;
    if (!checkpoint_number(name, &n) || numbers->failed)
        return;
    if (numbers->count == numbers->cap) {
        size_t cap = numbers->cap ? 2 * numbers->cap : 16;
        uint64_t *at = realloc(numbers->at, cap * sizeof *at);
        if (!at) {
            numbers->failed = true;
            return;
        }
        numbers->at = at;
        numbers->cap = cap;
    }
    numbers->at[numbers->count++] = n;
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int list_checkpoints(const struct rundir *dir, struct numbers *numbers, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    rundir_file(dir, "checkpoint", path, sizeof path);
    int rc = dir->disk->ops->list(dir->disk, path, add_number, numbers, err);
    if (rc == OK && numbers->failed)
        rc = err_set(err, ERR_NOMEM, "%s: out of memory", path);
    if (rc == OK && numbers->count > 0)
        qsort(numbers->at, numbers->count, sizeof *numbers->at, compare_numbers);
    return rc;
}

static void checkpoint_path(const struct rundir *dir, uint64_t n, char *out, size_t size)
{
    char name[64];
    snprintf(name, sizeof name, "checkpoint/%08" PRIu64 ".safetensors", n);
    rundir_file(dir, name, out, size);
}

/* What cannot be removed stays: it does no harm. */
static void remove_old(const struct rundir *dir, uint32_t keep)
{
    struct numbers numbers = {0};
    char path[RUNDIR_PATH_MAX + 64];
    if (list_checkpoints(dir, &numbers, NULL) == OK) {
        for (size_t i = 0; i + keep < numbers.count; i++) {
            checkpoint_path(dir, numbers.at[i], path, sizeof path);
            dir->disk->ops->remove(dir->disk, path, NULL);
        }
    }
    free(numbers.at);
}

static int save(const struct rundir *dir, const char *path, const struct checkpoint_note *note,
                const struct model_layout *layout, const float *model, uint64_t *bytes,
                struct err *err)
{
    struct buf image = {0};
    int rc = make_image(note, layout, model, &image, err);
    if (rc == OK)
        rc = check_space(dir, image.len, err);
    if (rc == OK)
        rc = disk_replace(dir->disk, path, image.data, image.len, err);
    *bytes = image.len;
    buf_release(&image);
    return rc;
}

int checkpoint_save(const struct rundir *dir, const struct checkpoint_note *note,
                    const struct model_layout *layout, const float *model, uint32_t keep,
                    uint64_t *bytes, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    rundir_file(dir, "checkpoint", path, sizeof path);
    int rc = dir->disk->ops->make_dir(dir->disk, path, err);
    checkpoint_path(dir, note->course.exchanges, path, sizeof path);
    if (rc == OK)
        rc = save(dir, path, note, layout, model, bytes, err);
    if (rc == OK)
        remove_old(dir, keep > 0 ? keep : 1);
    return rc;
}

int checkpoint_save_model(const struct rundir *dir, const char *name,
                          const struct checkpoint_note *note, const struct model_layout *layout,
                          const float *model, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    uint64_t bytes;
    struct model_layout alone = *layout;
    alone.has_state = false;
    rundir_file(dir, name, path, sizeof path);
    return save(dir, path, note, &alone, model, &bytes, err);
}

/* ---- reading ---- */

static int take_vector(const struct safetensors *st, const char *path, const char *prefix,
                       const struct segments *table, float *into, struct err *err)
{
    char name[NAME_MAX_LEN];
    for (size_t i = 0; i < table->count; i++) {
        const struct segment *segment = &table->at[i];
        struct shape shape;
        snprintf(name, sizeof name, "%s/%s", prefix, segment->name);
        const float *data = safetensors_find(st, name, &shape);
        char a[64], b[64];
        if (!data)
            return err_set(err, ERR_INPUT, "%s: has no tensor %s: it is of another net", path,
                           name);
        if (!shape_equal(&shape, &segment->shape))
            return err_set(err, ERR_INPUT, "%s: tensor %s is %s, the job's net has %s", path, name,
                           shape_text(&shape, a, sizeof a),
                           shape_text(&segment->shape, b, sizeof b));
        memcpy(into + segment->offset, data, segment->len * sizeof(float));
    }
    return OK;
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

static int take_note(const struct safetensors *st, const char *path, struct checkpoint_note *note,
                     struct err *err)
{
    const char *format = safetensors_meta_get(st, "format");
    if (!format || strcmp(format, FORMAT) != 0)
        return err_set(err, ERR_INPUT, "%s: format is \"%.40s\", expected \"" FORMAT "\"", path,
                       format ? format : "");
    uint64_t incarnation = 0;
    const struct {
        const char *key;
        int base;
        uint64_t *into;
    } numbers[] = {
        {"job_hash", 16, &note->job_hash},       {"data_hash", 16, &note->data_hash},
        {"lane.0", 10, &note->course.exchanges}, {"place", 10, &note->course.place},
        {"steps", 10, &note->course.steps},      {"used", 10, &note->used},
        {"missed", 10, &note->missed},           {"seed", 10, &note->seed},
        {"incarnation", 10, &incarnation},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int rc = take_number(st, path, numbers[i].key, numbers[i].base, numbers[i].into, err);
        if (rc != OK)
            return rc;
    }
    note->incarnation = (uint32_t)incarnation;
    return OK;
}

static int take_model(const struct safetensors *st, const char *path, struct model_layout *layout,
                      float *model, struct err *err)
{
    int rc = take_vector(st, path, "joint", layout->x, model, err);
    if (rc == OK)
        rc = take_vector(st, path, "s", layout->s, model + layout->x->total, err);
    float *state = model + model_floats(layout, false);
    layout->has_state = false;
    for (size_t i = 0; rc == OK && i < layout->optim->states; i++) {
        struct err none;
        if (take_vector(st, path, layout->optim->state_name[i], layout->x,
                        state + i * layout->x->total, &none) != OK)
            return OK; /* optional: every optimizer can start afresh */
    }
    layout->has_state = rc == OK;
    return rc;
}

static int load(const char *path, struct model_layout *layout, float *model,
                struct checkpoint_note *note, struct err *err)
{
    struct file_bytes bytes;
    struct safetensors st;
    int rc = file_read(path, (size_t)1 << CHECKPOINT_BYTES_MAX_SHIFT, &bytes, err);
    if (rc != OK)
        return rc;
    rc = safetensors_parse(path, bytes.data, bytes.len, true, &st, err);
    file_release(&bytes);
    if (rc != OK)
        return rc;
    rc = take_note(&st, path, note, err);
    if (rc == OK)
        rc = take_model(&st, path, layout, model, err);
    safetensors_release(&st);
    return rc;
}

int checkpoint_load(const struct rundir *dir, const struct logger *log, struct model_layout *layout,
                    float *model, struct checkpoint_note *note, struct err *err)
{
    struct numbers numbers = {0};
    struct err why = {0};
    char path[RUNDIR_PATH_MAX + 64];
    int rc = list_checkpoints(dir, &numbers, &why);
    if (rc == OK)
        rc = ERR_NOT_FOUND;
    for (size_t i = numbers.count; rc == ERR_NOT_FOUND && i-- > 0;) {
        checkpoint_path(dir, numbers.at[i], path, sizeof path);
        int loaded = load(path, layout, model, note, &why);
        if (loaded == OK)
            rc = OK;
        else
            log_warn(log, "passed over: %s", why.text);
    }
    free(numbers.at);
    if (rc == ERR_NOT_FOUND)
        return err_set(err, rc, "%s: no checkpoint to go on from%s%.300s", dir->path,
                       why.text[0] ? ": " : "", why.text);
    return rc == OK ? OK : err_set(err, rc, "%s", why.text);
}
