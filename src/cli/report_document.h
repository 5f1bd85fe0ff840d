/* The data of a report or of the live page as JSON, which src/cli/page/page.js draws. No `<` is in
 * it, so that text of an event cannot end the element of the page that has it. */
#ifndef PL_CLI_REPORT_DOCUMENT_H
#define PL_CLI_REPORT_DOCUMENT_H

#include "cli/job_fields.h"
#include "cli/run_summary.h"
#include "cli/trace_summary.h"

#include <stdio.h>

/* Everything is borrowed. */
struct report_run {
    const char *name, *directory;
    const struct run_summary *summary;
    const struct trace_summary *trace; /* NULL: none */
    const struct job_fields *job;      /* NULL: none */
};

/* Where a reader of the live page is: so many points of each curve, and all after so many
 * reductions. */
struct report_cursor {
    size_t seen[CURVES];
    uint64_t reductions, sessions;
};

/* The whole document of `count` runs. Curves with more points than a screen has columns are reduced
 * (run_series_reduce). `cursor` (NULL: not wanted): where its reader then is; curves are as the
 * summary has them. false: out of memory. */
bool report_document_write(FILE *out, const struct report_run *run, size_t count,
                           struct report_cursor *cursor);

/* Write the changes of a run since the cursor, which moves; false: the reader needs the whole
 * document, and nothing was written. */
bool report_document_change(FILE *out, const struct report_run *run, struct report_cursor *cursor);

#endif
