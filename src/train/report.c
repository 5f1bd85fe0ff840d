#include "train/events.h"
#include "train/train.h"

void train_report_event(const struct events *events, const struct train_report *report)
{
    cJSON *event = events_new(events, "end");
    cJSON_AddStringToObject(event, "reason", report->reason);
    if (report->has_test) {
        if (report->test_error >= 0)
            cJSON_AddNumberToObject(event, "test_error", report->test_error);
        cJSON_AddNumberToObject(event, "test_loss", report->test_loss);
    }
    if (report->has_validation) {
        if (report->validation_error >= 0)
            cJSON_AddNumberToObject(event, "validation_error", report->validation_error);
        cJSON_AddNumberToObject(event, "validation_loss", report->validation_loss);
    }
    cJSON_AddNumberToObject(event, "epochs", report->epochs);
    cJSON_AddNumberToObject(event, "samples", (double)report->samples);
    cJSON_AddNumberToObject(event, "used", (double)report->used);
    cJSON_AddNumberToObject(event, "repeated", (double)report->repeated);
    cJSON_AddNumberToObject(event, "missed", (double)report->missed);
    cJSON_AddNumberToObject(event, "wall_s", report->wall_s);
    cJSON_AddNumberToObject(event, "seed", (double)report->seed);
    events_emit(events, event);
}
