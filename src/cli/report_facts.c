#include "cli/report_facts.h"

#include "cli/json_value.h"
#include "cli/json_write.h"

#include <string.h>

/* Facts of an event, as they are in it. */
static const struct fact {
    const char *group, *label, *unit, *key;
} start_facts[] =
    {
        {"run", "net", "", "net"},
        {"run", "parameters", "", "parameters"},
        {"run", "strategy", "", "strategy"},
        {"run", "settings", "", "settings"},
        {"run", "chosen by the plan", "", "chosen"},
        {"run", "workers of the job", "", "nodes"},
        {"run", "slices of the model", "", "slices"},
        {"run", "batch of a worker", "samples", "batch"},
        {"run", "global batch at the start", "samples", "global_batch"},
        {"run", "growth of the batch", "", "batch_growth"},
        {"run", "steps in an epoch", "", "steps_an_epoch"},
        {"run", "optimizer", "", "optimizer"},
        {"run", "learning rate", "", "base_lr"},
        {"run", "schedule", "", "lr_policy"},
        {"run", "momentum", "", "momentum"},
        {"run", "shape of a record", "", "record"},
        {"run", "hash of the job", "", "job_hash"},
        {"run", "hash of the data", "", "data_hash"},
        {"machine", "kernels", "", "kernels"},
        {"machine", "instruction set", "", "isa"},
        {"machine", "threads of a worker", "", "threads"},
},
  end_facts[] = {
      {"result", "ended by", "", "reason"},
      {"result", "error", "", "error"},
      {"result", "validation error", "share", "validation_error"},
      {"result", "test error", "share", "test_error"},
      {"result", "validation loss", "", "validation_loss"},
      {"result", "test loss", "", "test_loss"},
      {"result", "training loss", "", "train_loss"},
      {"result", "epochs", "", "epochs"},
      {"result", "time", "s", "wall_s"},
      {"result", "virtual time", "s", "virtual_s"},
      {"result", "throughput of the last session", "samples/s", "samples_per_s"},
      {"result", "longest wait for records", "s", "data_s"},
      {"result", "workers at the end", "", "workers"},
      {"result", "batch at the end", "samples", "batch"},
      {"books", "samples used", "", "used"},
      {"books", "samples repeated", "", "repeated"},
      {"books", "samples missed", "", "missed"},
      {"books", "bad records", "", "bad_records"},
      {"books", "records cached in memory", "", "cached"},
      {"books", "memory of the cache", "bytes", "cached_bytes"},
      {"books", "records cached on disk", "", "cached_disk"},
      {"books", "disk space of the cache", "bytes", "cached_disk_bytes"},
      {"run", "seed", "", "seed"},
};

static void begin_fact(struct json_list *list, const char *group, const char *label,
                       const char *unit)
{
    json_next(list);
    fputc('[', list->out);
    json_put_text(list->out, group);
    fputc(',', list->out);
    json_put_text(list->out, label);
    fputc(',', list->out);
    json_put_text(list->out, unit);
    fputc(',', list->out);
}

static void put_event_facts(struct json_list *list, const cJSON *event, const struct fact *fact,
                            size_t count)
{
    for (; count > 0; fact++, count--) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(event, fact->key);
        if (!cJSON_IsNumber(value) && !cJSON_IsString(value))
            continue;
        begin_fact(list, fact->group, fact->label, fact->unit);
        json_put_item(list->out, value);
        fputc(']', list->out);
    }
}

static void put_fact(struct json_list *list, const char *group, const char *label, const char *unit,
                     double value)
{
    begin_fact(list, group, label, unit);
    json_put_number(list->out, value);
    fputc(']', list->out);
}

static void put_newest(struct json_list *list, const struct run_summary *s, enum run_curve curve)
{
    const struct run_series *series = &s->curve[curve];
    if (series->count > 0)
        put_fact(list, "result", run_curve_labels[curve], run_curve_units[curve],
                 series->point[series->count - 1].value);
}

/* Of a run without an end: what is known so far. */
static void put_state(struct json_list *list, const struct run_summary *s)
{
    begin_fact(list, "result", "ended by", "");
    fputs("\"no end: it is running, or its driver was lost\"]", list->out);
    put_newest(list, s, CURVE_VALIDATION_ERROR);
    put_newest(list, s, CURVE_TEST_ERROR);
    put_newest(list, s, CURVE_VALIDATION_LOSS);
    put_newest(list, s, CURVE_TEST_LOSS);
    put_newest(list, s, CURVE_TRAIN_LOSS);
    put_fact(list, "result", "epochs", "", s->now.epoch);
    put_fact(list, "result", "time", "s", s->now.t);
    put_newest(list, s, CURVE_SPEED);
}

static void put_count(struct json_list *list, const char *label, uint64_t count)
{
    if (count > 0)
        put_fact(list, "events", label, "", (double)count);
}

static void put_totals(struct json_list *list, const struct run_summary *s)
{
    const cJSON *records = cJSON_GetObjectItemCaseSensitive(s->start, "records");
    const cJSON *ends = cJSON_GetObjectItemCaseSensitive(s->start, "ends"), *one;
    static const char *const sets[] = {"train", "validation", "test"};
    char label[64];
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        snprintf(label, sizeof label, "%s records", sets[i]);
        if (cJSON_HasObjectItem(records, sets[i]))
            put_fact(list, "run", label, "", json_number(records, sets[i]));
    }
    cJSON_ArrayForEach(one, ends)
    {
        snprintf(label, sizeof label, "ends at %s", one->string ? one->string : "");
        put_fact(list, "run", label, "", one->valuedouble);
    }
    put_count(list, "exchanges", s->exchanges);
    if (s->exchanges > 0) {
        put_fact(list, "events", "mean exchange", "s", s->exchange_s / (double)s->exchanges);
        put_fact(list, "events", "sent and received in exchanges", "bytes", s->exchange_bytes);
        put_fact(list, "events", "waited in exchanges, sum of the longest waits", "s", s->waited_s);
    }
    put_count(list, "sessions", s->sessions);
    put_count(list, "faults", s->faults);
    put_count(list, "recoveries", s->recoveries);
    put_count(list, "rejected contributions", s->rejected);
    put_count(list, "checkpoints", s->checkpoints);
    put_count(list, "marks left out of the list", s->marks_left_out);
    put_count(list, "lines of events that could not be read", s->unreadable);
}

void report_facts_put(FILE *out, const struct run_summary *s)
{
    struct json_list list = {out, true};
    fputs("\"facts\":[", out);
    if (s->end)
        put_event_facts(&list, s->end, end_facts, sizeof end_facts / sizeof *end_facts);
    else
        put_state(&list, s);
    put_event_facts(&list, s->start, start_facts, sizeof start_facts / sizeof *start_facts);
    put_totals(&list, s);
    fputc(']', out);
}
