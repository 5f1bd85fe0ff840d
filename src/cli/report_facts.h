/* The facts of a run that a report has in tables: result, books, events, run, machine. */
#ifndef PL_CLI_REPORT_FACTS_H
#define PL_CLI_REPORT_FACTS_H

#include "cli/run_summary.h"

#include <stdio.h>

/* The key "facts" with an array of [group, label, unit, value]; the unit "share" is a part of 1. */
void report_facts_put(FILE *out, const struct run_summary *summary);

#endif
