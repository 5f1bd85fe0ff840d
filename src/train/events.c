#include "train/events.h"

void events_init(struct events *events, struct world *world,
                 void (*line)(void *user, const char *line), void *user)
{
    *events = (struct events){world, world_now(world), line, user};
}

double events_seconds(const struct events *events)
{
    return world_seconds(world_now(events->world) - events->start);
}

cJSON *events_new(const struct events *events, const char *kind)
{
    cJSON *event = cJSON_CreateObject();
    cJSON_AddNumberToObject(event, "t", events_seconds(events));
    cJSON_AddStringToObject(event, "kind", kind);
    return event;
}

void events_emit(const struct events *events, cJSON *event)
{
    char *line = cJSON_PrintUnformatted(event);
    if (line && events->line)
        events->line(events->user, line);
    cJSON_free(line);
    cJSON_Delete(event);
}
