#define _GNU_SOURCE
#include "cli/trace_summary.h"

#include "cli/json_value.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES_MAX = 4096, NAMES_MAX = 1 << 16 };

#define TRACE_PURPOSE(name, span, label, drawn) span,
static const char *const span_names[PURPOSES] = {TRACE_PURPOSES(TRACE_PURPOSE)};
#undef TRACE_PURPOSE
#define TRACE_PURPOSE(name, span, label, drawn) label,
const char *const trace_purpose_labels[PURPOSES] = {TRACE_PURPOSES(TRACE_PURPOSE)};
#undef TRACE_PURPOSE
#define TRACE_PURPOSE(name, span, label, drawn) drawn,
const char *const trace_purpose_drawn[PURPOSES] = {TRACE_PURPOSES(TRACE_PURPOSE)};
#undef TRACE_PURPOSE

/* ---- reading ---- */

static bool grow_array(void **array, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return true;
    size_t more = *room > 0 ? 2 * *room : 256;
    void *moved = realloc(*array, more * size);
    if (moved) {
        *array = moved;
        *room = more;
    }
    return moved != NULL;
}

/* The node of a process, "driver" or "worker 3"; -1: none. */
static int peer_of(const char *name)
{
    unsigned node;
    char rest;
    if (strcmp(name, "driver") == 0)
        return 0;
    bool worker = sscanf(name, "worker %u%c", &node, &rest) == 1;
    return worker && node + 1 < TRACE_NODES_MAX ? (int)node + 1 : -1;
}

/* Process 1 is the driver, process w + 2 worker w. */
static bool place_of(const cJSON *event, uint16_t *node, uint16_t *row)
{
    double pid = json_number(event, "pid"), tid = json_number(event, "tid");
    bool fits = pid >= 1 && pid <= TRACE_NODES_MAX && tid >= 0 && tid <= UINT16_MAX;
    if (fits) {
        *node = (uint16_t)(pid - 1);
        *row = (uint16_t)fmod(tid, UINT16_MAX + 1.0);
    }
    return fits;
}

static bool take_name(struct trace_summary *trace, const cJSON *event)
{
    struct trace_row row;
    const cJSON *arguments = cJSON_GetObjectItemCaseSensitive(event, "args");
    if (strcmp(json_text(event, "name"), "thread_name") != 0 ||
        !place_of(event, &row.node, &row.row) || trace->names == NAMES_MAX)
        return true;
    snprintf(row.name, sizeof row.name, "%s", json_text(arguments, "name"));
    if (!grow_array((void **)&trace->name, trace->names, &trace->names_room, sizeof row))
        return false;
    trace->name[trace->names++] = row;
    return true;
}

static bool take_span(struct trace_summary *trace, const cJSON *event)
{
    struct trace_piece piece;
    int purpose = 0;
    double start = json_number(event, "ts") / 1e6, lasted = json_number(event, "dur") / 1e6;
    const cJSON *arguments = cJSON_GetObjectItemCaseSensitive(event, "args");
    const char *name = json_text(event, "name");
    while (purpose < PURPOSE_OTHER && strcmp(span_names[purpose], name) != 0)
        purpose++;
    if (purpose == PURPOSE_OTHER || !place_of(event, &piece.node, &piece.row) || !isfinite(start) ||
        !isfinite(lasted) || !(lasted > 0))
        return true; /* of a later version */
    trace->too_long |= trace->pieces == TRACE_SPANS_MAX;
    if (trace->too_long)
        return true;
    piece.start = start;
    piece.end = start + lasted;
    piece.purpose = (uint8_t)purpose;
    piece.peer = (int16_t)peer_of(json_text(arguments, "peer"));
    if (!grow_array((void **)&trace->piece, trace->pieces, &trace->room, sizeof piece))
        return false;
    trace->piece[trace->pieces++] = piece;
    return true;
}

/* One event a line, behind it a comma; the first and the last line are brackets. */
static bool take_line(struct trace_summary *trace, const char *line)
{
    cJSON *event = line[0] == '{' ? cJSON_ParseWithOpts(line, NULL, false) : NULL;
    const char *phase = json_text(event, "ph");
    bool good = phase[0] == 'X'   ? take_span(trace, event)
                : phase[0] == 'M' ? take_name(trace, event)
                                  : true;
    cJSON_Delete(event);
    return good;
}

static bool read_lines(struct trace_summary *trace, FILE *f)
{
    char line[LINE_BYTES_MAX];
    bool good = true, begins = true;
    while (good && fgets(line, sizeof line, f)) {
        size_t n = strlen(line);
        if (begins)
            good = take_line(trace, line);
        begins = n > 0 && line[n - 1] == '\n'; /* else a line that is too long continues */
    }
    return good;
}

/* ---- what each node did ---- */

/* A span begins or ends. */
struct edge {
    double t;
    const struct trace_piece *piece;
    bool ends;
};

static int compare_edges(const void *left, const void *right)
{
    const struct edge *a = left, *b = right;
    return a->t < b->t ? -1 : a->t > b->t ? 1 : (int)b->ends - (int)a->ends;
}

static int compare_pieces(const void *left, const void *right)
{
    const struct trace_piece *a = left, *b = right;
    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    return a->start < b->start ? -1 : a->start > b->start;
}

/* The spans that cover a moment. */
struct cover {
    size_t open[PURPOSES];
    size_t open_waits[TRACE_NODES_MAX];
    int newest; /* the peer of the wait that began last and is open; -1: none, or not known */
};

static void cross_edge(struct cover *c, const struct edge *e, uint16_t nodes)
{
    const struct trace_piece *p = e->piece;
    if (e->ends)
        c->open[p->purpose]--;
    else
        c->open[p->purpose]++;
    if (p->purpose != PURPOSE_WAIT || p->peer < 0)
        return;
    if (!e->ends) {
        c->open_waits[p->peer]++;
        c->newest = p->peer;
    } else if (--c->open_waits[p->peer] == 0 && c->newest == p->peer) {
        c->newest = -1;
        for (int i = 0; i < nodes; i++)
            if (c->open_waits[i] > 0)
                c->newest = i;
    }
}

static int find_purpose(const struct cover *c)
{
    int purpose = 0;
    while (purpose < PURPOSE_OTHER && c->open[purpose] == 0)
        purpose++;
    return purpose;
}

/* `edge` has room for two edges of each of the node's `n` spans. */
static void sum_node(struct trace_summary *trace, const struct trace_piece *piece, size_t n,
                     struct edge *edge)
{
    struct cover cover = {.newest = -1};
    uint16_t node = piece[0].node;
    for (size_t i = 0; i < n; i++) {
        edge[2 * i] = (struct edge){piece[i].start, &piece[i], false};
        edge[2 * i + 1] = (struct edge){piece[i].end, &piece[i], true};
        if (piece[i].purpose == PURPOSE_WAIT && piece[i].peer >= 0)
            trace->waited[node * trace->nodes + piece[i].peer] += piece[i].end - piece[i].start;
    }
    qsort(edge, 2 * n, sizeof *edge, compare_edges);
    for (size_t i = 0; i + 1 < 2 * n; i++) {
        cross_edge(&cover, &edge[i], trace->nodes);
        double lasted = edge[i + 1].t - edge[i].t;
        int purpose = find_purpose(&cover);
        trace->seconds[node][purpose] += lasted;
        if (purpose == PURPOSE_WAIT && cover.newest >= 0)
            trace->stood[node * trace->nodes + cover.newest] += lasted;
    }
    trace->there[node] = true;
}

static bool sum_up(struct trace_summary *trace)
{
    trace->begin = INFINITY;
    trace->end = -INFINITY;
    for (const struct trace_piece *p = trace->piece; p < trace->piece + trace->pieces; p++) {
        trace->begin = fmin(trace->begin, p->start);
        trace->end = fmax(trace->end, p->end);
        trace->nodes = p->node >= trace->nodes ? (uint16_t)(p->node + 1) : trace->nodes;
        trace->nodes = p->peer >= trace->nodes ? (uint16_t)(p->peer + 1) : trace->nodes;
    }
    qsort(trace->piece, trace->pieces, sizeof *trace->piece, compare_pieces);
    trace->waited = calloc((size_t)trace->nodes * trace->nodes, sizeof *trace->waited);
    trace->stood = calloc((size_t)trace->nodes * trace->nodes, sizeof *trace->stood);
    struct edge *edge = malloc(2 * trace->pieces * sizeof *edge);
    bool good = trace->waited && trace->stood && edge;
    for (size_t from = 0, to; good && from < trace->pieces; from = to) {
        for (to = from; to < trace->pieces && trace->piece[to].node == trace->piece[from].node;)
            to++;
        sum_node(trace, &trace->piece[from], to - from, edge);
    }
    free(edge);
    return good;
}

struct trace_summary *trace_summary_read(const char *command, const char *path)
{
    struct trace_summary *trace = calloc(1, sizeof *trace);
    FILE *f = fopen(path, "rb");
    bool opened = f != NULL;
    bool room = trace && (!f || read_lines(trace, f));
    bool read = opened && !ferror(f);
    int error = errno;
    if (f)
        fclose(f);
    bool empty = room && read && trace->pieces == 0;
    if (room && read && !empty)
        room = sum_up(trace);
    if (room && read && !empty) {
        if (trace->too_long)
            fprintf(stderr, "paceline %s: %s: spans after the first %d are left out\n", command,
                    path, TRACE_SPANS_MAX);
        return trace;
    }
    fprintf(stderr, "paceline %s: %s: %s\n", command, path,
            !room   ? "out of memory"
            : empty ? "it has no span; is it a file that --trace has written?"
                    : strerror(error));
    trace_summary_free(trace);
    return NULL;
}

void trace_summary_free(struct trace_summary *trace)
{
    if (!trace)
        return;
    free(trace->piece);
    free(trace->name);
    free(trace->waited);
    free(trace->stood);
    free(trace);
}
