#include "train/events.h"

#include "wire/catalogue.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void events_init(struct events *events, struct world *world, double before)
{
    *events = (struct events){.world = world, .start = world_now(world), .before = before};
}

double events_seconds(const struct events *events)
{
    return events->before + world_seconds(world_now(events->world) - events->start);
}

static cJSON *new_at(double t, const char *kind)
{
    cJSON *event = cJSON_CreateObject();
    cJSON_AddNumberToObject(event, "t", t);
    cJSON_AddStringToObject(event, "kind", kind);
    return event;
}

cJSON *events_new(const struct events *events, const char *kind)
{
    return new_at(events_seconds(events), kind);
}

double events_node(uint32_t node)
{
    return node == WORLD_DRIVER ? -1 : (double)node;
}

double events_decimal(float value)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            return strtod(text, NULL);
    }
    return (double)value;
}

void events_add_whole(cJSON *event, const char *key, double value)
{
    char text[32];
    if (fabs(value) >= 1e15 /* which cJSON writes with an exponent */ || value != floor(value)) {
        cJSON_AddNumberToObject(event, key, value);
        return;
    }
    snprintf(text, sizeof text, "%" PRId64, (int64_t)value);
    cJSON_AddRawToObject(event, key, text);
}

void events_add_measure(cJSON *event, const char *key, double value)
{
    cJSON_AddNumberToObject(event, key, events_decimal((float)value));
}

char *events_fault(double t, const char *what, uint32_t node, double factor)
{
    cJSON *event = new_at(t, "fault");
    cJSON_AddStringToObject(event, "what", what);
    cJSON_AddNumberToObject(event, "node", events_node(node));
    if (strncmp(what, "slow", 4) == 0 || strncmp(what, "clog", 4) == 0)
        cJSON_AddNumberToObject(event, "factor", factor);
    cJSON_AddTrueToObject(event, "simulated");
    char *line = cJSON_PrintUnformatted(event);
    cJSON_Delete(event);
    return line;
}

void events_emit(const struct events *events, cJSON *event)
{
    if (events->simulated)
        cJSON_AddTrueToObject(event, "simulated");
    char *line = cJSON_PrintUnformatted(event);
    cJSON_Delete(event);
    if (!line)
        return;
    size_t size = strlen(line) + 1;
    struct message *m = message_new(wire_tag(WIRE_EVENT, 0, 0, 0), 0, size);
    if (m) {
        memcpy(m->data, line, size);
        if (world_send(events->world, events->world->self, m, CLASS_CONTROL) == ERR_FULL)
            message_unref(m);
    }
    cJSON_free(line);
}

struct wait_for events_wait(const struct events *events)
{
    return (struct wait_for){
        .kind = WAIT_MESSAGE,
        .from = events->world->self,
        .tag = wire_tag(WIRE_EVENT, 0, 0, 0),
        .mask = WIRE_KIND_MASK,
    };
}

const char *events_line(const struct message *m)
{
    return m->data;
}
