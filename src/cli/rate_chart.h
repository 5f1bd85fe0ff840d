/* The figure of a learning-rate range test: loss, smoothed loss and accuracy over the rate. */
#ifndef PL_CLI_RATE_CHART_H
#define PL_CLI_RATE_CHART_H

#include "paceline/lr_range.h"

/* Draw the report into an SVG file; `name` is the job's file. false after a message. */
bool rate_chart_write(const char *path, const char *name, const pl_lr_range_report *report,
                      bool linear);

#endif
