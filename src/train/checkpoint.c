#include "train/checkpoint.h"

#include "base/fault.h"
#include "job/text_number.h"
#include "model/weights.h"
#include "train/checkpoint_files.h"
#include "train/driver_term_file.h"
#include "train/last_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t count_floats(const struct model_layout *layout, bool state, bool extra, bool carried)
{
    size_t more = (state ? layout->optim->states : 0) + (extra ? layout->extras : 0);
    return layout->x->total * (1 + more) + layout->s->total +
           (carried ? carried_state_floats(layout->streams, layout->row) : 0);
}

size_t model_floats(const struct model_layout *layout)
{
    return count_floats(layout, layout->has_state, layout->has_extra, layout->has_carried);
}

size_t model_floats_most(const struct model_layout *layout)
{
    return count_floats(layout, true, true, true);
}

bool progress_is_further(const struct progress *a, const struct progress *b)
{
    return a->exchanges != b->exchanges ? a->exchanges > b->exchanges
                                        : a->sample_offset > b->sample_offset;
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

static void put_header(struct safetensors_writer *w, const struct checkpoint_header *header)
{
    double epoch = (double)header->progress.sample_offset / (double)header->records;
    safetensors_meta(w, "format", CHECKPOINT_FORMAT);
    put_hash(w, "job_hash", header->job_hash);
    put_hash(w, "data_hash", header->data_hash);
    put_number(w, "lane.0", header->progress.exchanges);
    put_number(w, "place", header->progress.sample_offset);
    put_number(w, "steps", header->progress.steps);
    put_fraction(w, "epoch", round(epoch * 1e6) / 1e6);
    put_number(w, "used", header->used);
    put_number(w, "repeated", header->repeated);
    put_number(w, "missed", header->missed);
    if (header->books.leases)
        safetensors_meta(w, "leases", header->books.leases);
    if (header->books.holdings)
        safetensors_meta(w, "holdings", header->books.holdings);
    put_number(w, "seed", header->seed);
    put_best(w, header->best_score);
    put_number(w, "incarnation", header->incarnation);
}

static void put_carried(struct safetensors_writer *w, const struct model_layout *layout,
                        const float *at)
{
    const struct shape state = {2, {layout->streams, layout->row}};
    const struct shape record = {2, {layout->streams, CARRIED_STATE_MARKS}};
    safetensors_tensor(w, CHECKPOINT_CARRIED_STATE, &state, at);
    safetensors_tensor(w, CHECKPOINT_CARRIED_RECORD, &record, at ? at + shape_count(&state) : NULL);
}

/* The tensors of a model that comes from a source. */
static void put_later(struct safetensors_writer *w, const struct model_layout *layout)
{
    weights_put(w, "joint", layout->x, NULL);
    weights_put(w, "s", layout->s, NULL);
    for (size_t i = 0; layout->has_state && i < layout->optim->states; i++)
        weights_put(w, layout->optim->state_name[i], layout->x, NULL);
    for (size_t i = 0; layout->has_extra && i < layout->extras; i++)
        weights_put(w, layout->extra_name[i], layout->x, NULL);
    if (layout->has_carried)
        put_carried(w, layout, NULL);
}

static void put_model(struct safetensors_writer *w, const struct checkpoint_header *header,
                      const struct model_layout *layout, const float *model)
{
    put_header(w, header);
    if (layout->has_state)
        put_number(w, "updates", header->updates);
    if (layout->source) {
        put_later(w, layout);
        return;
    }
    weights_put(w, "joint", layout->x, model);
    weights_put(w, "s", layout->s, model + layout->x->total);
    model += count_floats(layout, false, false, false);
    for (size_t i = 0; layout->has_state && i < layout->optim->states; i++) {
        weights_put(w, layout->optim->state_name[i], layout->x, model);
        model += layout->x->total;
    }
    for (size_t i = 0; layout->has_extra && i < layout->extras; i++) {
        weights_put(w, layout->extra_name[i], layout->x, model);
        model += layout->x->total;
    }
    if (layout->has_carried)
        put_carried(w, layout, model);
}

/* Does the folder's file system have room for so many bytes? */
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

/* A file that is put together, on its way to the disk. Large tensors are written from where they
 * lie; pieces too small for a write of their own are gathered. */
enum { SMALL_PIECE = 64 * 1024 };

struct image {
    struct safetensors_writer w;
    struct buf head;
    struct buf gathered;
    size_t bytes;
    struct disk *disk;
    const struct model_layout *layout;
    const struct rundir *dir; /* NULL: written to another folder */
    uint32_t incarnation;     /* of the driver that writes it */
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

static int take_piece(void *user, float *into, size_t n)
{
    struct image *image = user;
    const struct model_source *source = image->layout->source;
    return source->next(source->user, into, n, image->err);
}

/* The data of a source; then the head, which has checksums only now. */
static int stream_data(struct image *image)
{
    const struct model_source *source = image->layout->source;
    struct buf head = {0};
    size_t bytes;
    image->err->status = OK;
    int rc = source->begin(source->user, image->layout, image->err);
    if (rc == OK)
        rc = safetensors_stream(&image->w, take_piece, put_piece, image);
    if (rc == ERR_NOMEM && image->err->status != rc)
        err_set(image->err, rc, "no memory to write a model's file in pieces");
    source->end(source->user);
    if (rc == OK)
        rc = write_gathered(image);
    if (rc == OK)
        rc = safetensors_head(&image->w, &head, &bytes, image->err);
    if (rc == OK)
        rc = image->disk->ops->rewrite(image->file, head.data, head.len, image->err);
    buf_release(&head);
    return rc;
}

static int fill_file(void *user, struct disk_file *file, struct err *err)
{
    struct image *image = user;
    image->file = file;
    image->err = err;
    image->gathered.len = 0;
    int rc = put_piece(image, image->head.data, image->head.len);
    if (rc == OK && image->layout->source) {
        rc = stream_data(image);
    } else if (rc == OK) {
        rc = safetensors_data(&image->w, put_piece, image);
        if (rc == OK)
            rc = write_gathered(image);
    }
    if (rc != OK || !image->dir)
        return rc;
    /* It is renamed next, and this has taken its time: a later driver may have the run by now. */
    rc = image->disk->ops->sync(file, err);
    return rc == OK ? driver_term_check(image->dir, image->incarnation, err) : rc;
}

static int begin_image(struct image *image, struct disk *disk,
                       const struct checkpoint_header *header, const struct model_layout *layout,
                       const float *model, struct err *err)
{
    image->disk = disk;
    image->layout = layout;
    image->dir = NULL;
    image->incarnation = header->incarnation;
    image->bytes = 0;
    image->head = image->gathered = (struct buf){0};
    safetensors_begin(&image->w);
    put_model(&image->w, header, layout, model);
    return safetensors_head(&image->w, &image->head, &image->bytes, err);
}

static void end_image(struct image *image)
{
    buf_release(&image->head);
    buf_release(&image->gathered);
    safetensors_end(&image->w);
}

int checkpoint_save_at(const struct rundir *dir, const char *path,
                       const struct checkpoint_header *header, const struct model_layout *layout,
                       const float *model, uint64_t *bytes, struct err *err)
{
    struct image image;
    int rc = begin_image(&image, dir->disk, header, layout, model, err);
    image.dir = dir;
    if (rc == OK) /* room must be left for the final model, events and files of other programs */
        rc = check_space(dir->disk, dir->path, "a checkpoint", image.bytes + image.bytes / 8, err);
    if (rc == OK)
        rc = disk_replace_by(dir->disk, path, fill_file, &image, err);
    *bytes = image.bytes;
    end_image(&image);
    return rc;
}

int checkpoint_save(const struct rundir *dir, const struct checkpoint_header *header,
                    const struct model_layout *layout, const float *model, uint32_t keep,
                    uint64_t *bytes, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    rundir_file(dir, "checkpoint", path, sizeof path);
    int rc = disk_keep_dir(dir->disk, path, NULL, err);
    if (rc != OK)
        return rc;
    checkpoint_files_remove_unfinished(dir);
    checkpoint_path_of(dir, header->progress.exchanges, path, sizeof path);
    rc = checkpoint_save_at(dir, path, header, layout, model, bytes, err);
    if (rc == OK)
        rc = checkpoint_files_remove_others(dir, header->progress.exchanges, keep > 0 ? keep : 1,
                                            header->incarnation, err);
    if (rc == OK)
        last_reports_remove(dir, header->incarnation);
    return rc;
}

static struct model_layout layout_alone(const struct model_layout *layout)
{
    struct model_layout alone = *layout;
    alone.has_state = alone.has_extra = alone.has_carried = false;
    return alone;
}

int checkpoint_save_model(const struct rundir *dir, const char *name,
                          const struct checkpoint_header *header, const struct model_layout *layout,
                          const float *model, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct model_layout alone = layout_alone(layout);
    struct image image;
    rundir_file(dir, name, path, sizeof path);
    int rc = begin_image(&image, dir->disk, header, &alone, model, err);
    image.dir = dir;
    if (rc == OK)
        rc = check_space(dir->disk, dir->path, "the model", image.bytes, err);
    if (rc == OK)
        rc = disk_replace_by(dir->disk, path, fill_file, &image, err);
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
    rc = fill_file(image, file, err);
    if (rc == OK)
        rc = ops->sync(file, err);
    int closed = ops->close(file, rc == OK ? err : NULL);
    rc = rc == OK ? closed : rc;
    if (rc != OK)
        ops->remove(image->disk, path, NULL);
    return rc;
}

/* Numbers of NAME-NNN.safetensors that are taken. */
struct taken {
    const char *name;
    unsigned long most;
};

static void look_at_copy(void *user, const char *entry)
{
    struct taken *taken = user;
    size_t n = strlen(taken->name);
    char *end;
    if (strncmp(entry, taken->name, n) != 0 || entry[n] != '-')
        return;
    unsigned long number = strtoul(entry + n + 1, &end, 10);
    if (strncmp(end, ".safetensors", strlen(".safetensors")) == 0 && number > taken->most)
        taken->most = number;
}

int checkpoint_save_copy(struct disk *disk, const char *folder, const char *name,
                         const struct checkpoint_header *header, const struct model_layout *layout,
                         const float *model, char *path, size_t size, struct err *err)
{
    struct taken taken = {.name = name};
    struct model_layout alone = layout_alone(layout);
    struct image image;
    int rc = begin_image(&image, disk, header, &alone, model, err);
    if (rc == OK)
        rc = check_space(disk, folder, "the model", image.bytes + image.bytes / 8, err);
    if (rc == OK)
        rc = disk->ops->list(disk, folder, look_at_copy, &taken, err);
    snprintf(path, size, "%s/%s-%03lu.safetensors", folder, name, taken.most + 1);
    if (rc == OK)
        rc = write_new(&image, path, err);
    end_image(&image);
    return rc == OK ? disk->ops->sync_dir(disk, folder, err) : rc;
}

int checkpoint_turn_into_model(const struct rundir *dir, const struct checkpoint_header *header,
                               const char *name, struct err *err)
{
    char from[RUNDIR_PATH_MAX + 64], to[RUNDIR_PATH_MAX + 64];
    checkpoint_path_of(dir, header->progress.exchanges, from, sizeof from);
    rundir_file(dir, name, to, sizeof to);
    int rc = driver_term_check(dir, header->incarnation, err);
    if (rc == OK)
        rc = dir->disk->ops->rename(dir->disk, from, to, err);
    return rc == OK ? dir->disk->ops->sync_dir(dir->disk, dir->path, err) : rc;
}

uint64_t checkpoint_bytes(const struct model_layout *layout, bool alone)
{
    enum { HEADER = 64 * 1024 };
    return (alone ? count_floats(layout, false, false, false) : model_floats_most(layout)) *
               sizeof(float) +
           HEADER;
}
