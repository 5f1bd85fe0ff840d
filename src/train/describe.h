/* The description of a run before its first step: fields of its `start` event, and a `warning`
 * event for each setting that is allowed and seldom intended. */
#ifndef PL_TRAIN_DESCRIBE_H
#define PL_TRAIN_DESCRIBE_H

#include "train/events.h"

struct driver;

/* Add to the `start` event: net, parameters, classes, records, a step, the rate, the end. */
void describe_run(const struct driver *d, cJSON *start);

/* Emit warnings, {"kind":"warning","what":"classes","text":"..."}: each text names a suspicious
 * setting and the remedy. Reads a few training records. */
void describe_suspicions(struct driver *d);

/* Warnings of a loss that stays at chance: checked from the beginning on, at each report, and at
 * the end. */
void describe_chance_begin(struct driver *d);
void describe_chance(struct driver *d);
void describe_chance_end(struct driver *d);

#endif
