/* The curves of runs as files that TensorBoard reads. */
#ifndef PL_CLI_REPORT_TENSORBOARD_H
#define PL_CLI_REPORT_TENSORBOARD_H

#include "cli/report_document.h"

#include <stdbool.h>

/* DIR/NAME/events.out.tfevents.T.paceline for each run, where T is the second in which it began,
 * taken from the time of its events.jsonl; an older file of that name is replaced. A scalar for
 * each point: its step is the number of samples. false after a message on stderr. */
bool report_tensorboard_write(const char *directory, const struct report_run *run, size_t count);

#endif
