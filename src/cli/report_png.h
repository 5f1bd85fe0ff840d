/* The curves of runs as PNG files for papers: one for each quantity. */
#ifndef PL_CLI_REPORT_PNG_H
#define PL_CLI_REPORT_PNG_H

#include "cli/report_document.h"

enum report_axis { REPORT_TIME, REPORT_EPOCHS, REPORT_SAMPLES };

/* `folder` is made if it is not there. May the files be written? false after a message. */
bool report_png_may_write(const char *folder);

/* Write error.png, loss.png and so on: those that a run has points of. false after a message. */
bool report_png_write(const char *folder, const struct report_run *run, size_t count,
                      enum report_axis axis, double dpi);

#endif
