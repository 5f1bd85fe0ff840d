/* The page of a report: one HTML file with style, script and data in it, which loads nothing; and
 * the live page, whose script receives its data from the driver (page_server.h). */
#ifndef PL_CLI_REPORT_PAGE_H
#define PL_CLI_REPORT_PAGE_H

#include "cli/report_document.h"

#include <stdio.h>

/* The first bytes of every page, for svg_may_write. */
extern const char report_first_bytes[];

/* Write the file. false after a message on stderr. */
bool report_page_write(const char *path, const struct report_run *run, size_t count);

/* The live page. Errors stay in the stream. */
void report_page_live(FILE *out, const char *title);

/* All points of the curves of all runs: a row each, with run and curve. false after a message. */
bool report_csv_write(const char *path, const struct report_run *run, size_t count);

extern const char report_csv_head[];

#endif
