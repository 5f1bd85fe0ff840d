/* A plan as a drawing: samples/s over the number of workers, a line for each strategy. */
#ifndef PL_CLI_PLAN_SVG_H
#define PL_CLI_PLAN_SVG_H

#include "paceline/plan.h"

/* Write the drawing into the file, which is replaced. Returns EXIT_DONE, or EXIT_FAILED after a
 * message. */
int plan_svg_write(const pl_plan_report *report, const char *path);

#endif
