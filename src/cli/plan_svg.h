/* A plan as a drawing: samples/s over the number of workers, a line for each strategy. */
#ifndef PL_CLI_PLAN_SVG_H
#define PL_CLI_PLAN_SVG_H

#include "paceline/plan.h"

/* Draw the report into an SVG file. false after a message. */
bool plan_svg_write(const char *path, const pl_plan_report *report);

#endif
