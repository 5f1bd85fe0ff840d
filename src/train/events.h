/* events.jsonl (D15): one JSON object a line, each with `t`, seconds since the run began, and
 * `kind`. Keys stand in the order in which they were added, numbers with as many digits as they
 * need, so equal runs give equal bytes. */
#ifndef PL_TRAIN_EVENTS_H
#define PL_TRAIN_EVENTS_H

#include "world/world.h"

#include <cjson/cJSON.h>

struct events {
    struct world *world;
    int64_t start; /* of the run, on the world's clock */
    /* Called with each line, without its newline, valid during the call. */
    void (*line)(void *user, const char *line);
    void *user;
};

void events_init(struct events *events, struct world *world,
                 void (*line)(void *user, const char *line), void *user);

/* Seconds since the run began. */
double events_seconds(const struct events *events);

/* A new object with `t` and `kind`; the caller adds its keys and gives it to events_emit, which
 * frees it. NULL when memory runs out, which the cJSON calls and events_emit accept. */
cJSON *events_new(const struct events *events, const char *kind);
void events_emit(const struct events *events, cJSON *event);

#endif
