/* events.jsonl (D15): one JSON object a line, each with `t`, seconds since the run began, and
 * `kind`. Keys stand in the order in which they were added, numbers with as many digits as they
 * need, so equal runs give equal bytes.
 *
 * Any task of the driver makes events; they go to its main task as messages to the node itself,
 * which hands them on one after another. */
#ifndef PL_TRAIN_EVENTS_H
#define PL_TRAIN_EVENTS_H

#include "world/world.h"

#include <cjson/cJSON.h>

struct events {
    struct world *world;
    int64_t start;  /* of this driver, on the world's clock */
    double before;  /* s of the run that earlier drivers have had */
    bool simulated; /* each event carries it */
};

/* `before`: seconds of the run until now, 0 for a new one. */
void events_init(struct events *events, struct world *world, double before);

/* Seconds since the run began. */
double events_seconds(const struct events *events);

/* A new object with `t` and `kind`; the caller adds its keys and gives it to events_emit, which
 * frees it. NULL when memory runs out, which the cJSON calls and events_emit accept. */
cJSON *events_new(const struct events *events, const char *kind);
void events_emit(const struct events *events, cJSON *event);

/* The line of a `fault`, for the simulator, which is no node. Freed with free; NULL when memory
 * runs out. */
char *events_fault(double t, const char *what, uint32_t node, double factor);

/* The shortest decimal that equals this float: 0.01, where the double is 0.00999999977648258. */
double events_decimal(float value);

/* Add a count or a node's number, with the text that cJSON would write. cJSON formats each number
 * as a fraction and reads it back, which takes long for an event of every exchange. */
void events_add_whole(cJSON *event, const char *key, double value);

/* Add a measured or divided number (a loss, a share, an epoch) with the digits of a float:
 * 0.15833333, where the double 19/120 is 0.15833333333333333. */
void events_add_measure(cJSON *event, const char *key, double value);

/* A node's number as events give it: the driver is -1. */
double events_node(uint32_t node);

/* The message that the main task waits for, and the line in such a message (a text ended by
 * zero). */
struct wait_for events_wait(const struct events *events);
const char *events_line(const struct message *m);

#endif
