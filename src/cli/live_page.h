/* The state of a live page and of a run's metrics (`--page`): a summary that grows with the run's
 * events. The run's thread puts events in; the server's thread takes texts out. Neither waits for
 * longer than the other needs to write one text, and an event only for as long as a copy takes. */
#ifndef PL_CLI_LIVE_PAGE_H
#define PL_CLI_LIVE_PAGE_H

#include "cli/report_document.h"
#include "paceline/run.h"

#include <stdbool.h>
#include <stdio.h>

struct live_page;

/* NULL: out of memory. */
struct live_page *live_page_create(void);
void live_page_free(struct live_page *page); /* NULL allowed */

/* ---- by the run's thread ---- */

/* The run directory: events of earlier sessions in it are taken in. */
void live_page_begins(struct live_page *page, const char *directory);
void live_page_event(struct live_page *page, const char *line);
void live_page_progress(struct live_page *page, const pl_progress *progress);

/* Is there more to show than at the last call that returned true? */
bool live_page_has_news(struct live_page *page);

/* ---- by any thread ---- */

/* Where a viewer is. Zeroed: it has nothing yet. */
struct live_viewer {
    struct report_cursor cursor;
    bool has_document, has_end;
};

/* Server-sent events that bring the viewer up to date: `document` or `change`, then `status`, and
 * after the run's end `end`. */
void live_page_update(struct live_page *page, FILE *out, struct live_viewer *viewer);

void live_page_html(struct live_page *page, FILE *out);

/* In Prometheus' text format, version 0.0.4. */
void live_page_metrics(struct live_page *page, FILE *out);

#endif
