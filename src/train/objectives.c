#include "train/objectives.h"

#include "base/utf8.h"
#include "data/source_text.h"
#include "job/job.h"
#include "world/trace.h"

#include <math.h>

void objectives_init(struct objectives *o, struct world *world, const Paceline__Job *job,
                     const struct corpus *corpus, struct workspace *ws, const struct events *events,
                     double step_seconds)
{
    *o = (struct objectives){
        .job = job,
        .corpus = corpus,
        .ws = ws,
        .world = world,
        .events = events,
        .batch_seconds = step_seconds / 3, /* forward only */
        .error = -1,
        .best_score = INFINITY,
    };
}

uint64_t objectives_every(const Paceline__Job *job, size_t records, uint64_t batches)
{
    if (job->evaluate->has_every_exchanges)
        return job->evaluate->every_exchanges;
    uint64_t samples = job_takes_all(job) ? records : batches * job_step_records(job);
    return samples < records ? (records + samples / 2) / samples : 1;
}

/* How much of a set is evaluated. */
static size_t records_of(const struct objectives *o, enum corpus_set which)
{
    const Paceline__Evaluate *e = o->job->evaluate;
    size_t all = o->corpus->set[which].count;
    if (o->most > 0 && all > o->most)
        all = o->most;
    return which == SET_TEST && e->has_test_records && e->test_records < all ? e->test_records
                                                                             : all;
}

/* Seconds of a batch: of a slice, the part of the products that it has. */
static double seconds_of_batch(const struct objectives *o)
{
    return o->batch_seconds * (o->meeting ? net_share(o->ws->train) : 1);
}

static int measure_set(struct objectives *o, enum corpus_set which, const struct vec *x,
                       struct vec *s, uint64_t step, struct net_result *sum)
{
    const struct dataset *set = &o->corpus->set[which];
    size_t count = records_of(o, which);
    int64_t begun = trace_now(o->world);
    *sum = (struct net_result){0};
    for (size_t first = 0, batch = o->ws->batch; first < count; first += batch) {
        size_t n = count - first < batch ? count - first : batch;
        if (o->stop && atomic_load(o->stop) > 0)
            return ERR_END;
        int rc = world_work(o->world, &(struct cost){seconds_of_batch(o)});
        if (rc == OK)
            rc = workspace_evaluate_slice(o->ws, set, first, n, x, s, o->meeting, sum, &o->err);
        if (rc != OK)
            return rc;
    }
    trace_end(o->world, begun,
              (struct trace_span){
                  .kind = SPAN_EVALUATE, .row = TRACE_MODEL_WRITER, .n = step, .amount = count});
    return OK;
}

int objectives_measure(struct objectives *o, const struct vec *x, struct vec *s, uint64_t step,
                       struct net_result sum[SCORES_SETS])
{
    for (enum corpus_set set = SET_VALIDATION; set <= SET_TEST; set++) {
        int rc = o->corpus->set[set].count > 0
                     ? measure_set(o, set, x, s, step, &sum[set - SET_VALIDATION])
                     : OK;
        if (rc != OK)
            return rc;
    }
    return OK;
}

static void report_set(struct objectives *o, enum corpus_set which, const struct net_result *sum,
                       uint64_t offset, uint64_t step)
{
    struct evaluation e = o->last[which] = evaluation_of(sum);
    cJSON *event = events_new(o->events, "eval");
    events_add_measure(event, "epoch", (double)offset / (double)o->epoch_records);
    cJSON_AddNumberToObject(event, "step", (double)step);
    cJSON_AddStringToObject(event, "set", corpus_set_name(which));
    if (e.error >= 0)
        events_add_measure(event, "error", e.error);
    events_add_measure(event, "loss", e.loss);
    if (which == SET_TEST) {
        if (e.error >= 0)
            events_add_measure(event, "test_error", e.error);
        events_add_measure(event, "test_loss", e.loss);
    }
    events_emit(o->events, event);
}

/* ---- a text that the model draws ---- */

int objectives_open_text(struct objectives *o, const struct logger *log, struct err *err)
{
    const struct source *source = o->corpus->train_source;
    const Paceline__Data__Text *text = source ? source_text_settled(source) : NULL;
    struct text_units *units;
    struct err why;
    if (!text || o->job->evaluate->sample_length == 0)
        return OK;
    if (o->job->slices > 1 && !o->meeting) /* the slices draw it */
        return OK;
    int rc = text_units_create(text, &units, err);
    if (rc != OK)
        return rc;
    o->unit_seconds = seconds_of_batch(o) / ((double)o->ws->batch * text->window);
    rc = text_sampler_create(o->job->net, o->ws, units, &o->sampler, &why);
    if (rc == ERR_NOMEM)
        return err_set(err, rc, "%s", why.text);
    if (rc != OK)
        log_info(log, "evaluations draw no text: %s", why.text);
    return OK;
}

int objectives_open_drawn(const Paceline__Job *job, struct arena *arena, struct drawn_text *text)
{
    bool draws = job->slices > 1 && job->train_data &&
                 job->train_data->source_case == PACELINE__DATA__SOURCE_TEXT;
    size_t room = draws ? (size_t)job->evaluate->sample_length * UTF8_BYTES_MAX : 0;
    *text = (struct drawn_text){.at = arena_array(arena, room, char), .room = room};
    return text->at ? OK : ERR_NOMEM;
}

void objectives_release(struct objectives *o)
{
    text_sampler_free(o->sampler);
    o->sampler = NULL;
}

int objectives_draw(struct objectives *o, const struct vec *x, struct vec *s, struct buf *drawn)
{
    const struct text_request request = {
        .length = o->job->evaluate->sample_length, .temperature = 1, .seed = o->job->seed};
    struct err why;
    if (!o->sampler)
        return OK;
    int rc = world_work(o->world, &(struct cost){o->unit_seconds * (double)(request.length + 1)});
    if (rc == OK)
        rc = text_sampler_draw(o->sampler, x, s, &request, o->meeting, drawn, &why);
    bool none = rc == ERR_DIVERGED || (rc == ERR_NOMEM && !o->meeting);
    if (none) /* for all slices, whose scores are the same */
        drawn->len = 0;
    return none ? OK : rc;
}

/* Bytes that are no UTF-8 become \xNN, since an event is UTF-8. */
static void write_text(const void *drawn, size_t n, struct buf *text)
{
    const uint8_t *bytes = drawn;
    for (size_t at = 0, length; at < n; at += length) {
        uint32_t code;
        length = utf8_take(bytes + at, n - at, &code);
        if (length > 0 && code > 0) {
            buf_put(text, bytes + at, length);
        } else {
            buf_printf(text, "\\x%02x", bytes[at]);
            length = 1;
        }
    }
    buf_put_u8(text, 0);
}

void objectives_report_text(const struct objectives *o, const void *drawn, size_t n,
                            uint64_t offset, uint64_t step)
{
    struct buf text = {0};
    if (n == 0)
        return;
    cJSON *event = events_new(o->events, "sample");
    events_add_measure(event, "epoch", (double)offset / (double)o->epoch_records);
    cJSON_AddNumberToObject(event, "step", (double)step);
    write_text(drawn, n, &text);
    if (!text.failed)
        cJSON_AddStringToObject(event, "text", (const char *)text.data);
    events_emit(o->events, event);
    buf_release(&text);
}

int objectives_judge(struct objectives *o, const struct net_result sum[SCORES_SETS],
                     uint64_t offset, uint64_t step)
{
    const Paceline__Stop *stop = o->job->stop;
    bool reached = false;
    for (enum corpus_set set = SET_VALIDATION; set <= SET_TEST; set++)
        if (o->corpus->set[set].count > 0)
            report_set(o, set, &sum[set - SET_VALIDATION], offset, step);
    bool chooses = o->corpus->set[SET_VALIDATION].count > 0;
    const struct evaluation *counts = &o->last[chooses ? SET_VALIDATION : SET_TEST];
    o->error = chooses || o->corpus->set[SET_TEST].count > 0 ? counts->error : -1;
    o->evaluated++;
    double score = counts->error >= 0 ? counts->error : counts->loss;
    o->best = chooses && score < o->best_score;
    if (o->best)
        o->best_score = score;
    reached |= stop->has_validation_error && chooses && o->error >= 0 &&
               o->error <= stop->validation_error;
    reached |= stop->has_test_error && o->last[SET_TEST].error >= 0 &&
               o->last[SET_TEST].error <= stop->test_error;
    return reached ? ERR_STOP : OK;
}

int objectives_evaluate(struct objectives *o, const struct vec *x, struct vec *s, uint64_t offset,
                        uint64_t step)
{
    struct net_result sum[SCORES_SETS] = {{0}};
    int rc = objectives_measure(o, x, s, step, sum);
    if (rc != OK)
        return rc;
    int judged = objectives_judge(o, sum, offset, step);
    struct buf drawn = {0};
    rc = objectives_draw(o, x, s, &drawn);
    if (rc == OK)
        objectives_report_text(o, drawn.data, drawn.len, offset, step);
    buf_release(&drawn);
    return rc != OK ? rc : judged;
}
