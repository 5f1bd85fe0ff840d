/* The timeline of a trace as a picture for papers: what each node computed, and the phases of
 * its exchanges meanwhile, a row for each lane (MPCA, Fig. 9). */
#ifndef PL_CLI_REPORT_TIMELINE_H
#define PL_CLI_REPORT_TIMELINE_H

#include "cli/trace_window.h"

/* A PNG file of `dpi` pixels an inch; 0: an SVG file. false after a message. */
bool report_timeline_write(const char *path, const struct trace_summary *trace, double dpi);

#endif
