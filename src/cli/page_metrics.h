/* The metrics of a run in Prometheus' text format, version 0.0.4. */
#ifndef PL_CLI_PAGE_METRICS_H
#define PL_CLI_PAGE_METRICS_H

#include "cli/run_summary.h"
#include "paceline/run.h"

#include <stdio.h>

/* `progress`: NULL: none yet. */
void page_metrics_put(FILE *out, const struct run_summary *summary, const pl_progress *progress);

#endif
