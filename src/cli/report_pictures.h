/* The curves of runs as files for papers, one for each quantity, and the timeline of a trace. */
#ifndef PL_CLI_REPORT_PICTURES_H
#define PL_CLI_REPORT_PICTURES_H

#include "cli/report_document.h"

enum report_axis { REPORT_TIME, REPORT_EPOCHS, REPORT_SAMPLES };

/* `folder` is made if it is not there. May the files be written? PNG files of `dpi` pixels an inch,
 * or with 0 SVG files. false after a message. */
bool report_pictures_may_write(const char *folder, double dpi);

/* Write error.png, loss.png and so on: those that a run has points of. timeline.png is of the first
 * run that has a trace. false after a message. */
bool report_pictures_write(const char *folder, const struct report_run *run, size_t count,
                           enum report_axis axis, double dpi);

#endif
