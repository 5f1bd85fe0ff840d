#include "train/model_writer.h"

#include "tensor/kernels.h"
#include "train/display.h"

#include <math.h>
#include <stdlib.h>

int model_writer_init(struct model_writer *k, struct arena *arena)
{
    atomic_store(&k->last_error, -1.0);
    if (k->slices > 1)
        k->layout.source = &k->parts.source;
    if (stream_parts_init(&k->streams, k->world, k->group, k->log, &k->layout, arena) != OK)
        return ERR_NOMEM;
    if (k->slices > 1 && objectives_open_drawn(k->objectives.job, arena, &k->text) != OK)
        return ERR_NOMEM;
    if (k->slices > 1)
        return model_parts_init(&k->parts, k->group, k->slices, &k->layout, arena);
    k->room = model_floats_most(&k->layout);
    k->landing = arena_array(arena, k->room, float);
    if (!k->landing ||
        vec_init_model(&k->both, &k->x, &k->s, arena, k->layout.x->total, k->layout.s->total) != OK)
        return ERR_NOMEM;
    return OK;
}

static void free_books(struct book_texts *books)
{
    if (books)
        book_texts_release(books);
    free(books);
}

void model_writer_give_books(struct model_writer *k, bool final, const struct book_texts *texts)
{
    struct book_texts unkept = *texts, *books = malloc(sizeof *books);
    if (!books) {
        book_texts_release(&unkept);
        return;
    }
    *books = *texts;
    free_books(atomic_exchange(final ? &k->books_final : &k->books_given, books));
}

void model_writer_set_books(struct model_writer *k, uint32_t use)
{
    bool final = use & MODEL_FINAL;
    struct book_texts *books = atomic_exchange(final ? &k->books_final : &k->books_given, NULL);
    if (books) {
        free_books(k->books);
        k->books = books;
    }
}

struct checkpoint_header model_writer_header_at(const struct model_writer *k,
                                                const struct progress *progress)
{
    struct checkpoint_header header = k->header;
    uint64_t unused = atomic_load(&k->unused);
    if (k->books)
        header.books = *k->books;
    header.progress = *progress;
    header.repeated = atomic_load(&k->repeated);
    header.missed = atomic_load(&k->missed);
    header.used = progress->sample_offset > unused ? progress->sample_offset - unused
                                                   : 0; /* of an earlier model, for instance */
    header.best_score = k->objectives.best_score;
    return header;
}

static void report_checkpoint(const struct model_writer *k, uint64_t n, uint64_t bytes,
                              int64_t start)
{
    cJSON *event = events_new(k->events, "checkpoint");
    cJSON_AddNumberToObject(event, "n", (double)n);
    cJSON_AddNumberToObject(event, "bytes", (double)bytes);
    cJSON_AddNumberToObject(event, "seconds", world_seconds(world_now(k->world) - start));
    events_emit(k->events, event);
}

/* A stop at once would keep this state. */
static void record_state(struct model_writer *k, const struct progress *progress)
{
    k->at = *progress;
    atomic_store(&k->kept_exchanges, progress->exchanges);
    atomic_store(&k->kept_at, world_now(k->world));
}

void model_writer_checkpoint(struct model_writer *k, const struct model_header *model)
{
    struct checkpoint_header header = model_writer_header_at(k, &model->progress);
    struct model_layout layout = k->layout;
    struct err *err = &k->err;
    uint64_t bytes;
    int64_t start = world_now(k->world);
    layout.has_state = model->has_state;
    layout.has_extra = model->has_extra;
    layout.has_carried = model->has_carried;
    header.updates = model->updates;
    int rc = checkpoint_save(k->dir, &header, &layout, k->landing, k->keep, &bytes, err);
    if (rc == OK && model->parts_in)
        record_state(k, &model->progress);
    if (rc == OK) {
        report_checkpoint(k, model->progress.exchanges, bytes, start);
        k->written = true;
        k->written_at = model->progress;
        k->written_at_offset = atomic_load(&k->kept_at);
    } else {
        log_error(k->log, "no checkpoint: %s", err->text);
    }
}

static int keep_model(struct model_writer *k, const char *name, const struct progress *progress)
{
    struct checkpoint_header header = model_writer_header_at(k, progress);
    int rc = checkpoint_save_model(k->dir, name, &header, &k->layout, k->landing, &k->err);
    if (rc != OK)
        log_error(k->log, "no %s: %s", name, k->err.text);
    return rc;
}

/* The learning rate of the step that follows. */
static void report_rate(const struct model_writer *k, const struct progress *progress)
{
    double epoch = (double)progress->sample_offset / (double)k->header.records;
    cJSON *event = events_new(k->events, "rate");
    events_add_measure(event, "epoch", epoch);
    cJSON_AddNumberToObject(event, "step", (double)progress->steps);
    cJSON_AddNumberToObject(event, "rate",
                            display_rate(k->objectives.job, progress, k->header.records));
    events_emit(k->events, event);
}

bool model_writer_has_evaluated(const struct model_writer *k, const struct progress *progress)
{
    return k->objectives.evaluated > 0 && k->evaluated.exchanges == progress->exchanges &&
           k->evaluated.sample_offset == progress->sample_offset;
}

double model_writer_evaluated(const struct model_writer *k)
{
    int64_t since = atomic_load(&k->evaluates_since), ns = atomic_load(&k->evaluated_ns);
    return world_seconds(ns + (since > 0 ? world_now(k->world) - since : 0));
}

static int evaluate_timed(struct model_writer *k, const struct model_header *model)
{
    int64_t begun = world_now(k->world);
    atomic_store(&k->evaluates_since, begun);
    int rc = objectives_evaluate(&k->objectives, &k->x, &k->s, model->progress.sample_offset,
                                 model->progress.steps);
    atomic_store(&k->evaluates_since, 0);
    atomic_fetch_add(&k->evaluated_ns, world_now(k->world) - begun);
    return rc;
}

static int keep_best(struct model_writer *k, const struct model_header *model)
{
    int rc = keep_model(k, "best.safetensors", &model->progress);
    k->best_is_due = model->parts_in && rc == ERR_PEER;
    return k->best_is_due ? rc : OK;
}

/* Behind an evaluation. ERR_PEER: the slices of the best model are gone */
static int use_scores(struct model_writer *k, const struct model_header *model, int judged)
{
    struct objectives *o = &k->objectives;
    k->evaluated = model->progress;
    atomic_store(&k->last_error, o->error);
    if (judged == ERR_STOP)
        k->reached(k->user);
    int rc = judged == ERR_STOP ? OK : judged;
    return rc == OK && o->best && k->dir ? keep_best(k, model) : rc;
}

/* The slices have evaluated their model. An offer that broke off has been judged. */
static int judge_offer(struct model_writer *k, const struct model_header *model)
{
    const struct progress *progress = &model->progress;
    const struct drawn_text *text = &model->scores.text;
    bool judged = model_writer_has_evaluated(k, progress);
    if (judged || !model->scores.here || model->scores.exchanges != progress->exchanges)
        return judged && k->best_is_due ? keep_best(k, model) : OK;
    if (k->stop && atomic_load(k->stop) > 0)
        return OK;
    report_rate(k, progress);
    atomic_fetch_add(&k->evaluations, 1);
    int rc = objectives_judge(&k->objectives, model->scores.sum, progress->sample_offset,
                              progress->steps);
    objectives_report_text(&k->objectives, text->at, text->len, progress->sample_offset,
                           progress->steps);
    return use_scores(k, model, rc);
}

static int evaluate_model(struct model_writer *k, const struct model_header *model)
{
    if (model->parts_in)
        return judge_offer(k, model);
    if (model->use & MODEL_FINAL && !k->may_differ &&
        model_writer_has_evaluated(k, &model->progress))
        return OK; /* it has just been seen */
    if (k->stop && atomic_load(k->stop) > 0)
        return OK; /* a stop does not wait for it */
    vec_import(&k->both, vec_all(&k->both), k->landing);
    report_rate(k, &model->progress);
    atomic_fetch_add(&k->evaluations, 1);
    int rc = evaluate_timed(k, model);
    if (rc == ERR_END)
        return OK;
    return use_scores(k, model, rc);
}

static bool wants_snapshot(const struct model_writer *k, const struct model_header *model)
{
    return k->snapshot.net && (model->use & MODEL_SNAPSHOT ||
                               (model->use & MODEL_FINAL && snapshot_at_end(&k->snapshot)));
}

static int first_error(int rc, int then)
{
    return rc != OK ? rc : then;
}

static int take_vector(struct model_writer *k, const struct segments *table, float *into)
{
    const struct model_source *source = k->layout.source;
    int rc = OK;
    for (size_t i = 0; rc == OK && i < table->count; i++)
        rc = source->next(source->user, into + table->at[i].offset, table->at[i].len, &k->err);
    return rc;
}

/* Caffe's format has the whole model in one message. */
static int gather_snapshot(struct model_writer *k, const struct model_header *model)
{
    const struct model_source *source = k->layout.source;
    size_t n = k->layout.x->total, all = n + k->layout.s->total;
    float *whole = calloc(all + 1, sizeof *whole);
    if (!whole)
        return err_set(&k->err, ERR_NOMEM, "no memory for the %zu parameters of a snapshot", n);
    struct model_layout alone = k->layout; /* without the other vectors of a checkpoint */
    alone.has_state = alone.has_extra = alone.has_carried = false;
    int rc = source->begin(source->user, &alone, &k->err);
    if (rc == OK)
        rc = take_vector(k, k->layout.x, whole);
    if (rc == OK)
        rc = take_vector(k, k->layout.s, whole + n);
    source->end(source->user);
    if (rc == OK)
        rc = snapshot_write(&k->snapshot, &k->layout, whole, model->progress.steps, &k->err);
    free(whole);
    return rc;
}

static int keep_snapshot(struct model_writer *k, const struct model_header *model)
{
    int rc = model->parts_in ? gather_snapshot(k, model)
                             : snapshot_write(&k->snapshot, &k->layout, k->landing,
                                              model->progress.steps, &k->err);
    if (rc != OK)
        log_error(k->log, "no snapshot: %s", k->err.text);
    return rc;
}

static int keep_final(struct model_writer *k, const struct model_header *model)
{
    const struct checkpoint_header header = model_writer_header_at(k, &model->progress);
    bool complete = strategy_done(k->objectives.job, &model->progress, k->header.records);
    return model_writer_write_final(k, &header, complete);
}

/* Files that could be lost are written before values that can be computed again. */
static int take_model(struct model_writer *k, const struct model_header *model)
{
    bool final = model->use & MODEL_FINAL;
    int rc = OK;
    if (k->dir && k->replaced && k->replaced(k->user))
        return OK; /* the run ends, and writes nothing more */
    if (model->use & (MODEL_CHECKPOINT | MODEL_FINAL)) {
        model_writer_set_books(k, model->use);
        atomic_fetch_add(&k->taken, 1);
    }
    if (k->dir && model->use & (MODEL_CHECKPOINT | MODEL_FINAL))
        model_writer_checkpoint(k, model);
    if (k->dir && final)
        rc = keep_final(k, model);
    if (rc != OK)
        return rc;
    if (wants_snapshot(k, model))
        rc = first_error(rc, keep_snapshot(k, model));
    if (rc == ERR_PEER && model->parts_in)
        return rc;
    if (model->use & (MODEL_EVALUATE | MODEL_FINAL)) {
        int evaluated = evaluate_model(k, model);
        if (evaluated != OK)
            return evaluated;
    }
    return final ? rc : OK;
}

/* The model that the run begins from. */
static int evaluate_first(struct model_writer *k)
{
    model_copy(k->landing, &(struct global_model){.x = k->first->x, .s = k->first->s}, 0);
    return evaluate_model(k, &(struct model_header){.use = MODEL_EVALUATE});
}

static void record_kept(struct model_writer *k, const struct model_header *model)
{
    k->kept_model = *model;
    record_state(k, &model->progress);
}

/* Another model overwrites the kept one: from now on the newest checkpoint is the newest state. */
static void drop_kept(struct model_writer *k)
{
    k->kept_model.floats = 0;
    atomic_store(&k->kept_exchanges, k->written_at.exchanges);
    atomic_store(&k->kept_at, k->written_at_offset);
}

/* Leave out a model that did not arrive completely; the driver requests another if it needs one. */
static void leave_out(struct model_writer *k, uint32_t from, const struct model_header *model,
                      int rc)
{
    if (rc == ERR_TIMEOUT)
        log_warn(k->log, "worker %u: its model is dropped: nothing more of it arrived in %.0f s",
                 from, world_seconds(MODEL_PAUSE_MAX));
    else if (rc == ERR_PROTOCOL)
        log_warn(k->log, "worker %u: its model is dropped: its header or its length is wrong",
                 from);
    model_drop_chunks(k->world, from, k->room, model);
    if (rc != ERR_PEER && model->use & MODEL_FINAL) {
        atomic_fetch_add(&k->left_out, 1);
        world_raise(k->world, SIGNAL_GROUP);
    }
}

/* The slices of a model wait until the driver ends their offer. ERR_PEER: it is of another view */
static int take_offer(struct model_writer *k, uint32_t from, struct model_header *model)
{
    int rc = k->slices > 1 ? model_parts_begin(&k->parts, from, model->parts_in) : ERR_PROTOCOL;
    if ((rc == OK && model->use) || rc == ERR_CANCELLED)
        return rc;
    if (rc == OK)
        model_parts_end(&k->parts);
    log_warn(k->log, "an offer of worker %u's replica is dropped: %s", from,
             rc == OK ? "it was not requested" : "its members have changed");
    if (model->use & MODEL_FINAL) {
        atomic_fetch_add(&k->left_out, 1);
        world_raise(k->world, SIGNAL_GROUP);
    }
    return ERR_PEER;
}

/* Write and judge it. ERR_PEER: its slices are gone, and others will offer it again */
static int use_offer(struct model_writer *k, const struct model_header *model)
{
    if (model->use & MODEL_FINAL)
        k->at = model->progress;
    int rc = take_model(k, model);
    model_parts_end(&k->parts);
    if (rc == OK && model->use & MODEL_FINAL)
        atomic_store(&k->here, true);
    if (rc == ERR_PEER && model->use & MODEL_FINAL) {
        atomic_fetch_add(&k->left_out, 1);
        world_raise(k->world, SIGNAL_GROUP);
    }
    return rc;
}

/* The next model's header. The states of streams that arrive before it are kept for it. */
static int receive_header(struct model_writer *k, struct model_header *model, uint32_t *from)
{
    for (;;) {
        *from = WORLD_ANY;
        *model = (struct model_header){.scores.text = k->text};
        int rc = model_receive_header(k->world, NULL, model, from, WORLD_FOREVER);
        if (rc == OK && model->use == MODEL_STREAMS)
            rc = stream_parts_take(&k->streams, *from, model);
        else
            return rc;
        if (rc != OK)
            return rc;
    }
}

static int receive_model(struct model_writer *k, struct model_header *model)
{
    uint32_t from;
    int rc = receive_header(k, model, &from);
    if (rc == OK && k->allowed)
        model->use = k->allowed(k->user, from, model->use);
    if (rc == OK && model->parts_in)
        return take_offer(k, from, model);
    if (rc == OK && (k->slices > 1 || !model->use)) {
        log_warn(k->log, "a model of worker %u, which was not requested, is dropped", from);
        rc = ERR_PEER;
    }
    if (rc == OK) {
        drop_kept(k);
        rc = model_receive_vectors(k->world, NULL, from, k->landing, k->room, model,
                                   MODEL_PAUSE_MAX);
    }
    if (rc == OK && model->use & MODEL_STREAMS)
        rc = stream_parts_complete(&k->streams, from, model, k->landing, k->room);
    if (rc == ERR_PEER || rc == ERR_TIMEOUT || rc == ERR_PROTOCOL)
        leave_out(k, from, model, rc);
    return rc;
}

static int model_writer_main(void *arg)
{
    struct model_writer *k = arg;
    kernels_set_threads((int)k->objectives.job->threads);
    int begun = k->first ? evaluate_first(k) : OK;
    if (begun != OK)
        return begun;
    for (;;) {
        struct model_header model;
        int rc = receive_model(k, &model);
        if (rc == ERR_PEER || rc == ERR_TIMEOUT || rc == ERR_PROTOCOL)
            continue; /* its sender died on the way, or hangs; another will send */
        if (rc == OK && model.parts_in) {
            rc = use_offer(k, &model);
            if (rc == ERR_PEER)
                continue;
            if (rc != OK || model.use & MODEL_FINAL)
                return rc;
            continue;
        }
        if (rc == OK && model.use & MODEL_FINAL)
            atomic_store(&k->here, true);
        if (rc == OK && k->where)
            k->where(k->user, &model.progress);
        if (rc == OK)
            record_kept(k, &model);
        if (rc == OK)
            rc = take_model(k, &model);
        if (rc != OK || model.use & MODEL_FINAL)
            return rc;
    }
}

const char *model_writer_set_samples(const struct model_writer *k, int result)
{
    const struct err *read = &k->objectives.err, *written = &k->err;
    return result == OK                ? NULL
           : result == read->status    ? read->text
           : result == written->status ? written->text
                                       : NULL;
}

void model_writer_release(struct model_writer *k)
{
    free_books(atomic_exchange(&k->books_given, NULL));
    free_books(atomic_exchange(&k->books_final, NULL));
    free_books(k->books);
    k->books = NULL;
    objectives_release(&k->objectives);
}

int model_writer_start(struct model_writer *k)
{
    return world_spawn(k->world, "model writer", model_writer_main, k, &k->task);
}
