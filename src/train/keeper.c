#include "train/keeper.h"

#include "tensor/kernels.h"
#include "train/display.h"

#include <math.h>
#include <stdlib.h>

int keeper_init(struct keeper *k, struct arena *arena)
{
    k->room = model_floats_most(&k->layout);
    k->landing = arena_array(arena, k->room, float);
    atomic_store(&k->last_error, -1.0);
    if (!k->landing || vec_init(&k->x, arena, k->layout.x->total) != OK ||
        vec_init(&k->s, arena, k->layout.s->total) != OK)
        return ERR_NOMEM;
    return OK;
}

void keeper_take_leases(struct keeper *k, uint32_t use)
{
    bool final = use & MODEL_FINAL;
    char *leases = atomic_exchange(final ? &k->leases_final : &k->leases_told, NULL);
    if (leases) {
        free(k->leases);
        k->leases = leases;
    }
}

struct checkpoint_note keeper_note_at(const struct keeper *k, const struct course *course)
{
    struct checkpoint_note note = k->note;
    uint64_t unused = atomic_load(&k->unused);
    note.leases = k->leases;
    note.course = *course;
    note.repeated = atomic_load(&k->repeated);
    note.missed = atomic_load(&k->missed);
    note.used = course->place > unused ? course->place - unused : 0; /* of a model of before, say */
    note.best_score = k->objectives.best_score;
    return note;
}

static void tell_checkpoint(const struct keeper *k, uint64_t n, uint64_t bytes, int64_t start)
{
    cJSON *event = events_new(k->events, "checkpoint");
    cJSON_AddNumberToObject(event, "n", (double)n);
    cJSON_AddNumberToObject(event, "bytes", (double)bytes);
    cJSON_AddNumberToObject(event, "seconds", world_seconds(world_now(k->world) - start));
    events_emit(k->events, event);
}

void keeper_checkpoint(struct keeper *k, const struct model_note *model)
{
    struct checkpoint_note note = keeper_note_at(k, &model->course);
    struct model_layout layout = k->layout;
    struct err *err = &k->err;
    uint64_t bytes;
    int64_t start = world_now(k->world);
    layout.has_state = model->has_state;
    layout.has_extra = model->has_extra;
    note.updates = model->updates;
    int rc = checkpoint_save(k->dir, &note, &layout, k->landing, k->keep, &bytes, err);
    if (rc == OK) {
        tell_checkpoint(k, model->course.exchanges, bytes, start);
        k->written = true;
        k->written_at = model->course;
        k->written_came = atomic_load(&k->held_at);
    } else {
        log_error(k->log, "no checkpoint: %s", err->text);
    }
}

static int keep_model(struct keeper *k, const char *name, const struct course *course)
{
    struct checkpoint_note note = keeper_note_at(k, course);
    int rc = checkpoint_save_model(k->dir, name, &note, &k->layout, k->landing, &k->err);
    if (rc != OK)
        log_error(k->log, "no %s: %s", name, k->err.text);
    return rc;
}

/* The learning rate of the step that follows. */
static void tell_rate(const struct keeper *k, const struct course *course)
{
    double epoch = (double)course->place / (double)k->note.records;
    cJSON *event = events_new(k->events, "rate");
    events_add_measure(event, "epoch", epoch);
    cJSON_AddNumberToObject(event, "step", (double)course->steps);
    cJSON_AddNumberToObject(event, "rate",
                            display_rate(k->objectives.job, course, k->note.records));
    events_emit(k->events, event);
}

bool keeper_has_judged(const struct keeper *k, const struct course *course)
{
    return k->objectives.evaluated > 0 && k->judged.exchanges == course->exchanges &&
           k->judged.place == course->place;
}

static int judge(struct keeper *k, const struct model_note *model)
{
    struct objectives *o = &k->objectives;
    if (model->use & MODEL_FINAL && !k->free && keeper_has_judged(k, &model->course))
        return OK; /* it has just been seen */
    if (k->stop && atomic_load(k->stop) > 0)
        return OK; /* whoever stops the run does not wait for it */
    vec_import(&k->x, vec_all(&k->x), k->landing);
    vec_import(&k->s, vec_all(&k->s), k->landing + k->x.n);
    tell_rate(k, &model->course);
    atomic_fetch_add(&k->judgements, 1);
    int rc = objectives_evaluate(o, &k->x, &k->s, model->course.place, model->course.steps);
    if (rc == ERR_END)
        return OK;
    k->judged = model->course;
    atomic_store(&k->last_error, o->error);
    if (rc == ERR_STOP)
        k->reached(k->user);
    if ((rc == OK || rc == ERR_STOP) && o->best && k->dir)
        keep_model(k, "best.safetensors", &model->course);
    return rc == ERR_STOP ? OK : rc;
}

static bool wants_snapshot(const struct keeper *k, const struct model_note *model)
{
    return k->snapshot.net && (model->use & MODEL_SNAPSHOT ||
                               (model->use & MODEL_FINAL && snapshot_at_end(&k->snapshot)));
}

static int first_error(int rc, int then)
{
    return rc != OK ? rc : then;
}

static int keep_snapshot(struct keeper *k, const struct model_note *model)
{
    int rc = snapshot_write(&k->snapshot, &k->layout, k->landing, model->course.steps, &k->err);
    if (rc != OK)
        log_error(k->log, "no snapshot: %s", k->err.text);
    return rc;
}

static int keep_final(struct keeper *k, const struct model_note *model)
{
    const struct checkpoint_note note = keeper_note_at(k, &model->course);
    bool complete = strategy_done(k->objectives.job, &model->course, k->note.records);
    return keeper_write_final(k, &note, complete);
}

/* What can be lost is written before what can be computed again. */
static int take(struct keeper *k, const struct model_note *model)
{
    bool final = model->use & MODEL_FINAL;
    int rc = OK;
    if (k->dir && k->replaced && k->replaced(k->user))
        return OK; /* it is told to end, and writes nothing more */
    if (model->use & (MODEL_CHECKPOINT | MODEL_FINAL)) {
        keeper_take_leases(k, model->use);
        atomic_fetch_add(&k->taken, 1);
    }
    if (k->dir && model->use & (MODEL_CHECKPOINT | MODEL_FINAL))
        keeper_checkpoint(k, model);
    if (k->dir && final)
        rc = keep_final(k, model);
    if (rc != OK)
        return rc;
    if (wants_snapshot(k, model))
        rc = first_error(rc, keep_snapshot(k, model));
    if (model->use & (MODEL_EVALUATE | MODEL_FINAL)) {
        int judged = judge(k, model);
        if (judged != OK)
            return judged;
    }
    return final ? rc : OK;
}

/* The model that the run begins from. */
static int judge_first(struct keeper *k)
{
    const struct joint *first = k->first;
    vec_export(first->x, vec_all(first->x), k->landing);
    vec_export(first->s, vec_all(first->s), k->landing + first->x->n);
    return judge(k, &(struct model_note){.use = MODEL_EVALUATE});
}

static void note_held(struct keeper *k, const struct model_note *model)
{
    k->held = *model;
    k->at = model->course;
    atomic_store(&k->held_exchanges, model->course.exchanges);
    atomic_store(&k->held_at, world_now(k->world));
}

/* Another model comes in where it lies: what is left is the newest checkpoint. */
static void drop_held(struct keeper *k)
{
    k->held.floats = 0;
    atomic_store(&k->held_exchanges, k->written_at.exchanges);
    atomic_store(&k->held_at, k->written_came);
}

/* A model that has not come whole; the driver asks for another, where it needs one. */
static void leave_aside(struct keeper *k, uint32_t from, const struct model_note *model, int rc)
{
    if (rc == ERR_TIMEOUT)
        log_warn(k->log, "worker %u: its model is left aside: nothing more of it came in %.0f s",
                 from, world_seconds(MODEL_PAUSE_MAX));
    else if (rc == ERR_PROTOCOL)
        log_warn(k->log, "worker %u: its model is left aside: it has the wrong length", from);
    model_drop_pieces(k->world, from, k->room, model);
    if (rc != ERR_PEER && model->use & MODEL_FINAL) {
        atomic_fetch_add(&k->aside, 1);
        world_raise(k->world, SIGNAL_GROUP);
    }
}

static int receive_model(struct keeper *k, struct model_note *model)
{
    uint32_t from = WORLD_ANY;
    *model = (struct model_note){.use = 0};
    int rc = model_receive_note(k->world, NULL, model, &from, WORLD_FOREVER);
    if (rc == OK && k->allowed)
        model->use = k->allowed(k->user, from, model->use);
    if (rc == OK && !model->use) {
        log_warn(k->log, "a model of worker %u, which was not asked for it, is left aside", from);
        rc = ERR_PEER;
    }
    if (rc == OK) {
        drop_held(k);
        rc = model_receive_vectors(k->world, NULL, from, k->landing, k->room, model,
                                   MODEL_PAUSE_MAX);
    }
    if (rc == ERR_PEER || rc == ERR_TIMEOUT || rc == ERR_PROTOCOL)
        leave_aside(k, from, model, rc);
    return rc;
}

static int keeper_main(void *arg)
{
    struct keeper *k = arg;
    kernels_set_threads((int)k->objectives.job->threads);
    int begun = k->first ? judge_first(k) : OK;
    if (begun != OK)
        return begun;
    for (;;) {
        struct model_note model;
        int rc = receive_model(k, &model);
        if (rc == ERR_PEER || rc == ERR_TIMEOUT || rc == ERR_PROTOCOL)
            continue; /* its sender died on the way, or hangs; another will send */
        if (rc == OK && model.use & MODEL_FINAL)
            atomic_store(&k->here, true);
        if (rc == OK && k->where)
            k->where(k->user, &model.course);
        if (rc == OK)
            note_held(k, &model);
        if (rc == OK)
            rc = take(k, &model);
        if (rc != OK || model.use & MODEL_FINAL)
            return rc;
    }
}

const char *keeper_says(const struct keeper *k, int result)
{
    const struct err *read = &k->objectives.err, *written = &k->err;
    return result == OK                ? NULL
           : result == read->status    ? read->text
           : result == written->status ? written->text
                                       : NULL;
}

void keeper_release(struct keeper *k)
{
    free(atomic_exchange(&k->leases_told, NULL));
    free(atomic_exchange(&k->leases_final, NULL));
    free(k->leases);
    k->leases = NULL;
}

int keeper_start(struct keeper *k)
{
    return world_spawn(k->world, "keeper", keeper_main, k, &k->task);
}
