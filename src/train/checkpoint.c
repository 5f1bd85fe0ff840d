#include "train/checkpoint.h"

#include "base/file.h"
#include "job/text_number.h"
#include "model/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "paceline 1"

enum { CHECKPOINT_BYTES_MAX_SHIFT = 36 };

static size_t floats(const struct model_layout *layout, bool state, bool extra)
{
    size_t more = (state ? layout->optim->states : 0) + (extra ? layout->extras : 0);
    return layout->x->total * (1 + more) + layout->s->total;
}

size_t model_floats(const struct model_layout *layout)
{
    return floats(layout, layout->has_state, layout->has_extra);
}

size_t model_floats_most(const struct model_layout *layout)
{
    return floats(layout, true, true);
}

/* ---- writing ---- */

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

/* With a point, whatever the process's locale has. */
static void put_fraction(struct safetensors_writer *w, const char *key, double value)
{
    struct buf text = {0};
    text_number_put_double(&text, value);
    buf_put_u8(&text, 0);
    if (!text.failed)
        safetensors_meta(w, key, (const char *)text.data);
    buf_release(&text);
}

/* Infinite before the first evaluation: then it is left out. */
static void put_best(struct safetensors_writer *w, double score)
{
    if (isfinite(score))
        put_fraction(w, "best_error", score);
}

static void put_note(struct safetensors_writer *w, const struct checkpoint_note *note)
{
    double epoch = (double)note->course.place / (double)note->records;
    safetensors_meta(w, "format", FORMAT);
    put_hash(w, "job_hash", note->job_hash);
    put_hash(w, "data_hash", note->data_hash);
    put_number(w, "lane.0", note->course.exchanges);
    put_number(w, "place", note->course.place);
    put_number(w, "steps", note->course.steps);
    put_fraction(w, "epoch", round(epoch * 1e6) / 1e6);
    put_number(w, "used", note->used);
    put_number(w, "repeated", note->repeated);
    put_number(w, "missed", note->missed);
    if (note->leases)
        safetensors_meta(w, "leases", note->leases);
    put_number(w, "seed", note->seed);
    put_best(w, note->best_score);
    put_number(w, "incarnation", note->incarnation);
}

static void put_model(struct safetensors_writer *w, const struct checkpoint_note *note,
                      const struct model_layout *layout, const float *model)
{
    put_note(w, note);
    if (layout->has_state)
        put_number(w, "updates", note->updates);
    weights_put(w, "joint", layout->x, model);
    weights_put(w, "s", layout->s, model + layout->x->total);
    model += floats(layout, false, false);
    for (size_t i = 0; layout->has_state && i < layout->optim->states; i++) {
        weights_put(w, layout->optim->state_name[i], layout->x, model);
        model += layout->x->total;
    }
    for (size_t i = 0; layout->has_extra && i < layout->extras; i++) {
        weights_put(w, layout->extra_name[i], layout->x, model);
        model += layout->x->total;
    }
}

/* Is there room for so many bytes in the folder? */
static int check_space(struct disk *disk, const char *folder, const char *what, uint64_t bytes,
                       struct err *err)
{
    uint64_t left;
    int rc = disk->ops->free_space(disk, folder, &left, err);
    if (rc == OK && left < bytes)
        return err_set(err, ERR_FULL,
                       "%s: %" PRIu64 " bytes are left, %s needs %" PRIu64 "; free %" PRIu64
                       " bytes there",
                       folder, left, what, bytes, bytes - left);
    return rc;
}

#define WHOLE      ".safetensors"
#define UNFINISHED ".safetensors.new" /* disk_replace's; there only while it is written */

/* "NNNNNNNN" and that end → N; false for any other name. */
static bool checkpoint_number(const char *name, const char *with_end, uint64_t *n)
{
    char *end;
    if (name[0] < '0' || name[0] > '9')
        return false;
    *n = strtoull(name, &end, 10);
    return strcmp(end, with_end) == 0;
}

/* Numbers of the checkpoints in a directory, ascending as their names are. */
struct numbers {
    const char *end; /* of their names */
    uint64_t *at;
    size_t count, cap;
    bool failed;
};

static void add_number(void *user, const char *name)
{
    struct numbers *numbers = user;
    uint64_t n;
    if (!checkpoint_number(name, numbers->end, &n) || numbers->failed)
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

static void file_path(const struct rundir *dir, uint64_t n, const char *end, char *out, size_t size)
{
    char name[64];
    snprintf(name, sizeof name, "checkpoint/%08" PRIu64 "%s", n, end);
    rundir_file(dir, name, out, size);
}

void checkpoint_path_of(const struct rundir *dir, uint64_t n, char *out, size_t size)
{
    file_path(dir, n, WHOLE, out, size);
}

/* What crashes have left half written would take its room for good: nobody else looks for it. */
static void remove_unfinished(const struct rundir *dir)
{
    struct numbers numbers = {.end = UNFINISHED};
    char path[RUNDIR_PATH_MAX + 64];
    if (list_checkpoints(dir, &numbers, NULL) == OK)
        for (size_t i = 0; i < numbers.count; i++) {
            file_path(dir, numbers.at[i], UNFINISHED, path, sizeof path);
            dir->disk->ops->remove(dir->disk, path, NULL);
        }
    free(numbers.at);
}

/* Those above n are of a course that the run has gone back behind. One that stayed, or came back
 * after a power cut, would be taken for the newest. */
static int remove_above(const struct rundir *dir, const struct numbers *numbers, uint64_t n,
                        struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    size_t left = numbers->count;
    int rc = OK;
    for (; rc == OK && left > 0 && numbers->at[left - 1] > n; left--) {
        checkpoint_path_of(dir, numbers->at[left - 1], path, sizeof path);
        rc = dir->disk->ops->remove(dir->disk, path, err);
    }
    rundir_file(dir, "checkpoint", path, sizeof path);
    return rc == OK && left < numbers->count ? dir->disk->ops->sync_dir(dir->disk, path, err) : rc;
}

/* Of the numbers up to n, all but the newest `keep` go. What cannot be removed stays: it does no
 * harm. */
static void remove_below(const struct rundir *dir, const struct numbers *numbers, uint64_t n,
                         uint32_t keep)
{
    char path[RUNDIR_PATH_MAX + 64];
    size_t upto = 0;
    while (upto < numbers->count && numbers->at[upto] <= n)
        upto++;
    for (size_t i = 0; i + keep < upto; i++) {
        checkpoint_path_of(dir, numbers->at[i], path, sizeof path);
        dir->disk->ops->remove(dir->disk, path, NULL);
    }
}

static int remove_others(const struct rundir *dir, uint64_t n, uint32_t keep, struct err *err)
{
    struct numbers numbers = {.end = WHOLE};
    int rc = list_checkpoints(dir, &numbers, err);
    if (rc == OK)
        rc = remove_above(dir, &numbers, n, err);
    if (rc == OK)
        remove_below(dir, &numbers, n, keep);
    free(numbers.at);
    return rc;
}

/* A file that is put together, on its way to the disk. Large tensors are written from where they
 * lie; pieces too small for a write of their own are gathered. */
enum { SMALL_PIECE = 64 * 1024 };

struct image {
    struct safetensors_writer w;
    struct buf head;
    struct buf gathered;
    size_t bytes;
    struct disk *disk;
    struct disk_file *file;
    struct err *err;
};

static int write_gathered(struct image *image)
{
    size_t len = image->gathered.len;
    image->gathered.len = 0;
    return len ? image->disk->ops->write(image->file, image->gathered.data, len, image->err) : OK;
}

static int put_piece(void *user, const void *data, size_t len)
{
    struct image *image = user;
    if (len < SMALL_PIECE) {
        buf_put(&image->gathered, data, len);
        if (image->gathered.failed)
            return err_set(image->err, ERR_NOMEM, "no memory to put a model's file together");
        return image->gathered.len < SMALL_PIECE ? OK : write_gathered(image);
    }
    int rc = write_gathered(image);
    return rc == OK ? image->disk->ops->write(image->file, data, len, image->err) : rc;
}

static int fill(void *user, struct disk_file *file, struct err *err)
{
    struct image *image = user;
    image->file = file;
    image->err = err;
    image->gathered.len = 0;
    int rc = put_piece(image, image->head.data, image->head.len);
    if (rc == OK)
        rc = safetensors_data(&image->w, put_piece, image);
    return rc == OK ? write_gathered(image) : rc;
}

static int begin_image(struct image *image, struct disk *disk, const struct checkpoint_note *note,
                       const struct model_layout *layout, const float *model, struct err *err)
{
    image->disk = disk;
    image->bytes = 0;
    image->head = image->gathered = (struct buf){0};
    safetensors_begin(&image->w);
    put_model(&image->w, note, layout, model);
    return safetensors_head(&image->w, &image->head, &image->bytes, err);
}

static void end_image(struct image *image)
{
    buf_release(&image->head);
    buf_release(&image->gathered);
    safetensors_end(&image->w);
}

int checkpoint_save(const struct rundir *dir, const struct checkpoint_note *note,
                    const struct model_layout *layout, const float *model, uint32_t keep,
                    uint64_t *bytes, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct image image;
    rundir_file(dir, "checkpoint", path, sizeof path);
    int rc = disk_keep_dir(dir->disk, path, NULL, err);
    if (rc != OK)
        return rc;
    remove_unfinished(dir);
    checkpoint_path_of(dir, note->course.exchanges, path, sizeof path);
    rc = begin_image(&image, dir->disk, note, layout, model, err);
    if (rc == OK) /* beside it the final model, events and what others write are to have room */
        rc = check_space(dir->disk, dir->path, "a checkpoint", image.bytes + image.bytes / 8, err);
    if (rc == OK)
        rc = disk_replace_by(dir->disk, path, fill, &image, err);
    *bytes = image.bytes;
    end_image(&image);
    if (rc == OK)
        rc = remove_others(dir, note->course.exchanges, keep > 0 ? keep : 1, err);
    return rc;
}

static struct model_layout layout_alone(const struct model_layout *layout)
{
    struct model_layout alone = *layout;
    alone.has_state = alone.has_extra = false;
    return alone;
}

int checkpoint_save_model(const struct rundir *dir, const char *name,
                          const struct checkpoint_note *note, const struct model_layout *layout,
                          const float *model, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct model_layout alone = layout_alone(layout);
    struct image image;
    rundir_file(dir, name, path, sizeof path);
    int rc = begin_image(&image, dir->disk, note, &alone, model, err);
    if (rc == OK)
        rc = check_space(dir->disk, dir->path, "the model", image.bytes, err);
    if (rc == OK)
        rc = disk_replace_by(dir->disk, path, fill, &image, err);
    end_image(&image);
    return rc;
}

/* A new file, and nothing if it cannot be written whole. */
static int write_new(struct image *image, const char *path, struct err *err)
{
    const struct disk_ops *ops = image->disk->ops;
    struct disk_file *file;
    int rc = ops->open(image->disk, path, false, &file, err);
    if (rc != OK)
        return rc;
    rc = fill(image, file, err);
    if (rc == OK)
        rc = ops->sync(file, err);
    int closed = ops->close(file, rc == OK ? err : NULL);
    rc = rc == OK ? closed : rc;
    if (rc != OK)
        ops->remove(image->disk, path, NULL);
    return rc;
}

int checkpoint_save_copy(struct disk *disk, const char *folder, const char *name,
                         const struct checkpoint_note *note, const struct model_layout *layout,
                         const float *model, char *path, size_t size, struct err *err)
{
    enum { NAMES = 100 }; /* of earlier runs */
    struct model_layout alone = layout_alone(layout);
    struct image image;
    int rc = begin_image(&image, disk, note, &alone, model, err);
    if (rc == OK)
        rc = check_space(disk, folder, "the model", image.bytes + image.bytes / 8, err);
    bool has_room = rc == OK;
    for (int n = 1; has_room && n <= NAMES; n++) {
        snprintf(path, size, "%s/%s-%03d.safetensors", folder, name, n);
        rc = write_new(&image, path, err);
        if (rc == OK)
            break;
    }
    end_image(&image);
    return rc == OK ? disk->ops->sync_dir(disk, folder, err) : rc;
}

uint64_t checkpoint_bytes(const struct model_layout *layout, bool alone)
{
    enum { HEADER = 64 * 1024 };
    return (alone ? floats(layout, false, false) : model_floats_most(layout)) * sizeof(float) +
           HEADER;
}

bool checkpoint_remove_oldest(const struct rundir *dir, bool newest_too)
{
    struct numbers numbers = {.end = WHOLE};
    char path[RUNDIR_PATH_MAX + 64];
    bool removed = false;
    if (list_checkpoints(dir, &numbers, NULL) == OK && numbers.count > (newest_too ? 0 : 1)) {
        checkpoint_path_of(dir, numbers.at[0], path, sizeof path);
        removed = dir->disk->ops->remove(dir->disk, path, NULL) == OK;
    }
    free(numbers.at);
    return removed;
}

/* ---- reading ---- */

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

bool checkpoint_model_is_of(const struct rundir *dir, const char *name, const struct course *course)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct file_bytes bytes;
    struct safetensors st;
    struct checkpoint_note note = {.records = 0};
    rundir_file(dir, name, path, sizeof path);
    if (file_read(path, (size_t)1 << CHECKPOINT_BYTES_MAX_SHIFT, &bytes, NULL) != OK)
        return false;
    bool whole = safetensors_parse(path, bytes.data, bytes.len, true, &st, NULL) == OK;
    file_release(&bytes);
    bool same = whole && take_note(&st, path, &note, NULL) == OK &&
                note.course.exchanges == course->exchanges && note.course.place == course->place &&
                note.course.steps == course->steps;
    if (whole)
        safetensors_release(&st);
    return same;
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
    model += floats(layout, false, false);
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

/* The newest that is undamaged: whether it fits or not, an older one would do no better. */
static int load_newest(const struct rundir *dir, const struct numbers *numbers,
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
    return err_set(err, ERR_INPUT, "%s: no checkpoint to go on from: %.300s", dir->path,
                   newest.text);
}

int checkpoint_load(const struct rundir *dir, const struct logger *log, struct model_layout *layout,
                    float *model, struct checkpoint_note *note, struct err *err)
{
    struct numbers numbers = {.end = WHOLE};
    int rc = list_checkpoints(dir, &numbers, err);
    if (rc == OK || rc == ERR_NOT_FOUND)
        rc = load_newest(dir, &numbers, log, layout, model, note, err);
    free(numbers.at);
    return rc;
}
