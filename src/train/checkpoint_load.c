/* What a checkpoint, or a model that was written alone, brings back. */
#include "train/checkpoint.h"

#include "base/file.h"
#include "job/text_number.h"
#include "model/weights.h"
#include "train/checkpoint_files.h"

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

static int take_note(const struct safetensors *st, const char *path, struct checkpoint_note *note,
                     struct err *err)
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
    note->repeated = 0;
    if (safetensors_meta_get(st, "repeated")) { /* older ones do not say */
        int rc = take_number(st, path, "repeated", 10, &note->repeated, err);
        if (rc != OK)
            return rc;
    }
    const char *best = safetensors_meta_get(st, "best_error");
    bool below = best && best[0] == '-';
    if (!best || !text_number_double(best + below, strlen(best + below), &note->best_score))
        note->best_score = INFINITY;
    else if (below)
        note->best_score = -note->best_score;
    return OK;
}

int checkpoint_read_note(const char *path, struct checkpoint_note *note, struct err *err)
{
    struct safetensors st;
    *note = (struct checkpoint_note){.records = 0};
    int rc = safetensors_read_meta(path, &st, err);
    if (rc != OK)
        return rc;
    rc = take_note(&st, path, note, err);
    safetensors_release(&st);
    return rc;
}

bool checkpoint_find_newest(const struct rundir *dir, struct course *course)
{
    struct checkpoint_numbers numbers;
    struct checkpoint_note note = {.records = 0};
    char path[RUNDIR_PATH_MAX + 64];
    bool listed = checkpoint_files_list(dir, &numbers, NULL) == OK;
    size_t left = listed ? numbers.count : 0;
    bool is_there = left > 0, read = false;
    while (left-- > 0 && !read) {
        checkpoint_path_of(dir, numbers.at[left], path, sizeof path);
        read = checkpoint_read_note(path, &note, NULL) == OK;
    }
    free(numbers.at);
    *course = note.course;
    return is_there;
}

bool checkpoint_model_is_of(const struct rundir *dir, const char *name, const struct course *course)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct checkpoint_note note;
    rundir_file(dir, name, path, sizeof path);
    return checkpoint_read_note(path, &note, NULL) == OK &&
           note.course.exchanges == course->exchanges && note.course.place == course->place &&
           note.course.steps == course->steps;
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

/* All of them or none: what is not there starts afresh. */
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

static int take_model(const struct safetensors *st, const char *path, struct model_layout *layout,
                      float *model, struct err *err)
{
    int rc = take_vector(st, path, "joint", layout->x, model, err);
    if (rc == OK)
        rc = check_no_more(st, path, layout, err);
    if (rc == OK)
        rc = take_vector(st, path, "s", layout->s, model + layout->x->total, err);
    if (rc != OK)
        return rc;
    model += layout->x->total + layout->s->total;
    layout->has_state =
        take_vectors(st, path, layout->optim->state_name, layout->optim->states, layout->x, model);
    if (layout->has_state)
        model += layout->optim->states * layout->x->total;
    layout->has_extra =
        take_vectors(st, path, layout->extra_name, layout->extras, layout->x, model);
    return OK;
}

/* How many updates made the optimizer's vectors. Where the file does not say, the optimizer was one
 * that does not ask. */
static int take_updates(const struct safetensors *st, const char *path,
                        const struct model_layout *layout, struct checkpoint_note *note,
                        struct err *err)
{
    note->updates = 0;
    if (!layout->has_state || !safetensors_meta_get(st, "updates"))
        return OK;
    return take_number(st, path, "updates", 10, &note->updates, err);
}

/* *whole: the file is undamaged. */
static int load(const char *path, struct model_layout *layout, float *model,
                struct checkpoint_note *note, bool *whole, struct err *err)
{
    struct file_bytes bytes;
    struct safetensors st;
    *whole = false;
    int rc = file_read(path, (size_t)1 << CHECKPOINT_BYTES_MAX_SHIFT, &bytes, err);
    if (rc != OK)
        return rc;
    rc = safetensors_look(path, bytes.data, bytes.len, true, &st, err);
    if (rc != OK) {
        file_release(&bytes);
        return rc;
    }
    *whole = true;
    rc = take_note(&st, path, note, err);
    if (rc == OK)
        rc = take_model(&st, path, layout, model, err);
    if (rc == OK)
        rc = take_updates(&st, path, layout, note, err);
    const char *leases = safetensors_meta_get(&st, "leases");
    note->leases = rc == OK && leases ? strdup(leases) : NULL;
    if (rc == OK && leases && !note->leases)
        rc = err_set(err, ERR_NOMEM, "%s: out of memory", path);
    safetensors_release(&st);
    file_release(&bytes);
    return rc;
}

int checkpoint_load_model(const char *path, struct model_layout *layout, float *model,
                          struct checkpoint_note *note, struct err *err)
{
    bool whole;
    return load(path, layout, model, note, &whole, err);
}

/* The newest that is undamaged: whether it fits or not, an older one would do no better. */
static int load_newest(const struct rundir *dir, const struct checkpoint_numbers *numbers,
                       const struct logger *log, struct model_layout *layout, float *model,
                       struct checkpoint_note *note, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct err why, newest = {0};
    for (size_t left = numbers->count; left-- > 0;) {
        bool whole;
        checkpoint_path_of(dir, numbers->at[left], path, sizeof path);
        int rc = load(path, layout, model, note, &whole, &why);
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
    err_set(err, ERR_INPUT, "%s: no checkpoint to go on from: %.300s", dir->path, newest.text);
    err_remedy(err, "remove those that are damaged to begin anew");
    return ERR_INPUT;
}

int checkpoint_load(const struct rundir *dir, const struct logger *log, struct model_layout *layout,
                    float *model, struct checkpoint_note *note, struct err *err)
{
    struct checkpoint_numbers numbers;
    int rc = checkpoint_files_list(dir, &numbers, err);
    if (rc == OK || rc == ERR_NOT_FOUND)
        rc = load_newest(dir, &numbers, log, layout, model, note, err);
    free(numbers.at);
    return rc;
}
