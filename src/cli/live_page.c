#define _GNU_SOURCE
#include "cli/live_page.h"

#include "cli/json_write.h"
#include "cli/number.h"
#include "cli/page_metrics.h"
#include "cli/report_page.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 2048, QUEUE_MAX = 64 << 20 };

struct live_page {
    pthread_mutex_t lock; /* of all but the queue */
    struct run_summary *summary;
    struct job_fields job;
    bool has_job, has_progress;
    pl_progress progress;
    char directory[PATH_BYTES];
    uint64_t version, shown; /* shown: at the last live_page_has_news that was true */

    pthread_mutex_t queue_lock; /* taken last, and never for longer than a copy */
    char *queue;                /* lines of events, each with its end */
    size_t queued, room;
    uint64_t lost; /* events for which there was no memory */
};

struct live_page *live_page_create(void)
{
    struct live_page *page = calloc(1, sizeof *page);
    struct run_summary *summary = run_summary_create(true);
    if (!page || !summary) {
        run_summary_free(summary);
        free(page);
        return NULL;
    }
    page->summary = summary;
    pthread_mutex_init(&page->lock, NULL);
    pthread_mutex_init(&page->queue_lock, NULL);
    return page;
}

void live_page_free(struct live_page *page)
{
    if (!page)
        return;
    pthread_mutex_destroy(&page->lock);
    pthread_mutex_destroy(&page->queue_lock);
    run_summary_free(page->summary);
    job_fields_release(&page->job);
    free(page->queue);
    free(page);
}

/* ---- events ---- */

void live_page_event(struct live_page *page, const char *line)
{
    size_t n = strlen(line);
    pthread_mutex_lock(&page->queue_lock);
    if (page->queued + n + 1 > page->room) {
        size_t room = page->queued + n + 1 + page->room;
        char *more = room <= QUEUE_MAX ? realloc(page->queue, room) : NULL;
        if (more) {
            page->queue = more;
            page->room = room;
        }
    }
    if (page->queued + n + 1 <= page->room) {
        memcpy(page->queue + page->queued, line, n);
        page->queue[page->queued + n] = '\n';
        page->queued += n + 1;
    } else {
        page->lost++;
    }
    pthread_mutex_unlock(&page->queue_lock);
}

/* With the lock held. */
static void drain_queue(struct live_page *page)
{
    pthread_mutex_lock(&page->queue_lock);
    char *lines = page->queue;
    size_t n = page->queued;
    page->queue = NULL;
    page->queued = page->room = 0;
    pthread_mutex_unlock(&page->queue_lock);
    for (size_t at = 0, length; at < n; at += length + 1) {
        length = (size_t)((char *)memchr(lines + at, '\n', n - at) - (lines + at));
        run_summary_line(page->summary, lines + at, length);
        page->version++;
    }
    free(lines);
}

void live_page_begins(struct live_page *page, const char *directory)
{
    char path[PATH_BYTES + 16];
    pthread_mutex_lock(&page->lock);
    snprintf(page->directory, sizeof page->directory, "%s", directory);
    snprintf(path, sizeof path, "%s/events.jsonl", page->directory);
    FILE *f = fopen(path, "rb");
    if (f && getc(f) != EOF)
        run_summary_read(page->summary, "page", path);
    if (f)
        fclose(f);
    snprintf(path, sizeof path, "%s/job.prototxt", page->directory);
    job_fields_release(&page->job);
    page->has_job = job_fields_read(path, &page->job);
    page->version++;
    pthread_mutex_unlock(&page->lock);
}

/* It is shown later where the server writes just now. */
void live_page_progress(struct live_page *page, const pl_progress *progress)
{
    if (pthread_mutex_trylock(&page->lock) != 0)
        return;
    page->progress = *progress;
    page->has_progress = true;
    page->version++;
    pthread_mutex_unlock(&page->lock);
}

bool live_page_has_news(struct live_page *page)
{
    if (pthread_mutex_trylock(&page->lock) != 0)
        return false;
    drain_queue(page);
    bool news = page->version != page->shown;
    page->shown = page->version;
    pthread_mutex_unlock(&page->lock);
    return news;
}

/* ---- texts ---- */

static const char *name_of(const struct live_page *page)
{
    const char *slash = strrchr(page->directory, '/');
    return slash && slash[1] ? slash + 1 : page->directory[0] ? page->directory : "paceline";
}

__attribute__((format(printf, 2, 3))) static void put_part(struct json_list *list,
                                                           const char *format, ...)
{
    char text[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    json_next(list);
    json_put_text(list->out, text);
}

/* A list of short texts. */
static void put_status(const struct live_page *page, FILE *out)
{
    const pl_progress *p = &page->progress;
    struct json_list list = {out, true};
    fputs("event: status\ndata: [", out);
    if (page->has_progress) {
        put_part(&list, "%s%.1f s", p->simulated ? "simulated " : "", p->t);
        if (p->epochs > 0)
            put_part(&list, "epoch %.2f of %g", p->epoch, p->epochs);
        else
            put_part(&list, "epoch %.2f", p->epoch);
        if (p->steps > 0 || p->local_steps > 0)
            put_part(&list, "loss %.4g", p->loss);
        if (p->error >= 0)
            put_part(&list, "error %.2f %%", 100 * p->error);
        if (p->samples_per_s > 0)
            put_part(&list, "%.0f samples/s", p->samples_per_s);
        put_part(&list, "%u worker%s", p->workers, number_plural(p->workers, "s"));
        if (p->eta_s >= 0)
            put_part(&list, "ends in %.0f s", p->eta_s);
    } else {
        put_part(&list, "the run begins");
    }
    fputs("]\n\n", out);
}

static void put_document(struct live_page *page, FILE *out, struct live_viewer *viewer)
{
    const struct report_run run = {
        .name = name_of(page),
        .directory = page->directory,
        .summary = page->summary,
        .job = page->has_job ? &page->job : NULL,
    };
    char *text = NULL;
    size_t length = 0;
    FILE *change = viewer->has_document ? open_memstream(&text, &length) : NULL;
    bool changed = change && report_document_change(change, &run, &viewer->cursor);
    if (change)
        changed = fclose(change) == 0 && changed;
    if (changed) {
        fprintf(out, "event: change\ndata: %s\n\n", text);
    } else {
        fputs("event: document\ndata: ", out);
        report_document_write(out, &run, 1, &viewer->cursor);
        fputs("\n\n", out);
        viewer->has_document = true;
    }
    free(text);
}

void live_page_update(struct live_page *page, FILE *out, struct live_viewer *viewer)
{
    pthread_mutex_lock(&page->lock);
    drain_queue(page);
    put_document(page, out, viewer);
    put_status(page, out);
    if (page->summary->end) {
        fputs("event: end\ndata: 1\n\n", out);
        viewer->has_end = true;
    }
    pthread_mutex_unlock(&page->lock);
}

void live_page_html(struct live_page *page, FILE *out)
{
    pthread_mutex_lock(&page->lock);
    report_page_live(out, name_of(page));
    pthread_mutex_unlock(&page->lock);
}

void live_page_metrics(struct live_page *page, FILE *out)
{
    pthread_mutex_lock(&page->lock);
    drain_queue(page);
    page_metrics_put(out, page->summary, page->has_progress ? &page->progress : NULL);
    pthread_mutex_unlock(&page->lock);
}
