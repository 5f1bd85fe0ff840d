#include "train/events.h"
#include "train/train.h"

void train_report_event(const struct events *events, const struct train_report *report)
{
    cJSON *event = events_new(events, "end");
    cJSON_AddStringToObject(event, "reason", report->reason);
    cJSON_AddStringToObject(event, "strategy", report->strategy);
    cJSON_AddNumberToObject(event, "workers", report->workers);
    cJSON_AddNumberToObject(event, "parameters", (double)report->parameters);
    if (report->has_train)
        events_add_measure(event, "train_loss", report->train_loss);
    if (report->has_test) {
        if (report->test_error >= 0)
            events_add_measure(event, "test_error", report->test_error);
        events_add_measure(event, "test_loss", report->test_loss);
    }
    if (report->has_validation) {
        if (report->validation_error >= 0)
            events_add_measure(event, "validation_error", report->validation_error);
        events_add_measure(event, "validation_loss", report->validation_loss);
    }
    if (report->model[0])
        cJSON_AddStringToObject(event, "model", report->model + report->model_name);
    events_add_measure(event, "epochs", report->epochs);
    cJSON_AddNumberToObject(event, "samples", (double)report->samples);
    cJSON_AddNumberToObject(event, "used", (double)report->used);
    cJSON_AddNumberToObject(event, "repeated", (double)report->repeated);
    cJSON_AddNumberToObject(event, "missed", (double)report->missed);
    if (report->batch > 0)
        cJSON_AddNumberToObject(event, "batch", (double)report->batch);
    if (report->rejected > 0)
        cJSON_AddNumberToObject(event, "rejected", (double)report->rejected);
    if (report->bad_records > 0) {
        cJSON_AddNumberToObject(event, "bad_records", (double)report->bad_records);
        cJSON *first = cJSON_AddArrayToObject(event, "bad_record");
        for (size_t i = 0; i < report->bad_records && i < TRAIN_BAD_NAMED; i++)
            cJSON_AddItemToArray(first, cJSON_CreateString(report->bad_record[i]));
    }
    cJSON_AddNumberToObject(event, "wall_s", report->wall_s);
    if (report->simulated)
        cJSON_AddNumberToObject(event, "virtual_s", report->wall_s);
    cJSON_AddNumberToObject(event, "session_s", report->session_s);
    if (!report->simulated)
        events_add_measure(event, "data_s", report->data_s);
    if (report->cache.there) {
        cJSON_AddNumberToObject(event, "cached", (double)report->cache.records);
        cJSON_AddNumberToObject(event, "cached_bytes", (double)report->cache.bytes);
        cJSON_AddNumberToObject(event, "cached_disk", (double)report->cache.disk_records);
        cJSON_AddNumberToObject(event, "cached_disk_bytes", (double)report->cache.disk_bytes);
    }
    if (report->session_s > 0)
        events_add_measure(event, "samples_per_s", (double)report->samples / report->session_s);
    cJSON_AddNumberToObject(event, "seed", (double)report->seed);
    events_emit(events, event);
}
