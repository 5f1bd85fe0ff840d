#define _GNU_SOURCE
#include "cli/run_summary.h"

#include "cli/json_value.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE_BYTES_MAX = 1 << 20,
    CURVE_COLUMNS = 1000,
    CURVE_POINTS_MAX = 1 << 14,
    TABLE_MAX = 4096
};

#define RUN_CURVE(name, key, label, unit) key,
const char *const run_curve_keys[CURVES] = {RUN_CURVES(RUN_CURVE)};
#undef RUN_CURVE
#define RUN_CURVE(name, key, label, unit) label,
const char *const run_curve_labels[CURVES] = {RUN_CURVES(RUN_CURVE)};
#undef RUN_CURVE
#define RUN_CURVE(name, key, label, unit) unit,
const char *const run_curve_units[CURVES] = {RUN_CURVES(RUN_CURVE)};
#undef RUN_CURVE

const char *const run_mark_names[MARK_KINDS] = {"fault", "recovery", "member", "checkpoint",
                                                "note"};

struct run_summary *run_summary_create(bool bounded)
{
    struct run_summary *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->bounded = bounded;
    s->now.value = NAN;
    s->machines = cJSON_CreateArray();
    s->sets = cJSON_CreateArray();
    return s;
}

void run_summary_free(struct run_summary *s)
{
    if (!s)
        return;
    for (int i = 0; i < CURVES; i++)
        run_series_release(&s->curve[i]);
    for (int i = 0; i < RUN_SAMPLES_MAX; i++)
        free(s->sample[i]);
    cJSON_Delete(s->start);
    cJSON_Delete(s->end);
    cJSON_Delete(s->machines);
    cJSON_Delete(s->sets);
    free(s);
}

/* ---- curves and marks ---- */

/* `placed`: the event has the run's position. */
static void add_point(struct run_summary *s, enum run_curve curve, double t, double value,
                      bool placed)
{
    struct run_series *series = &s->curve[curve];
    const struct run_point point = {t, s->now.epoch, s->now.samples, value};
    if (!run_series_add(series, &point, placed)) {
        s->failed = true;
    } else if (s->bounded && series->count >= CURVE_POINTS_MAX) {
        run_series_reduce(series, CURVE_COLUMNS);
        s->reductions++;
    }
}

/* `node`: the worker; -1: none. */
__attribute__((format(printf, 5, 6))) static void add_mark(struct run_summary *s,
                                                           enum mark_kind kind, double t, int node,
                                                           const char *format, ...)
{
    s->faults += kind == MARK_FAULT;
    s->recoveries += kind == MARK_RECOVERY;
    if (s->marks == RUN_MARKS_MAX) {
        s->marks_left_out++;
        return;
    }
    struct run_mark *mark = &s->mark[s->marks++];
    va_list arguments;
    *mark = (struct run_mark){
        .at = {t, s->now.epoch, s->now.samples, node < 0 ? NAN : (double)node}, .kind = kind};
    va_start(arguments, format);
    vsnprintf(mark->text, sizeof mark->text, format, arguments);
    va_end(arguments);
}

/* The run is at a known position: points since the last one get theirs. */
static void move_to(struct run_summary *s, double t, double epoch, double samples)
{
    const struct run_point from = s->now,
                           to = {.t = t, .epoch = epoch, .samples = samples, .value = from.value};
    for (int i = 0; i < CURVES; i++)
        run_series_place(&s->curve[i], &from, &to);
    s->now = to;
}

/* `epoch` of the event. Samples are those of that many epochs, or else the sum that the events
 * name. */
static void take_position(struct run_summary *s, const cJSON *event, double t, double more)
{
    double epoch = s->now.epoch, samples = s->now.samples + more;
    if (json_has_number(event, "epoch", &epoch) && s->records > 0)
        samples = epoch * s->records;
    json_has_number(event, "step", &s->step);
    move_to(s, t, epoch, samples);
}

/* ---- members ---- */

/* A worker's number, or -1 for none that can be. */
static int node_of(struct run_summary *s, const cJSON *event, const char *key)
{
    double node = -2;
    if (!json_has_number(event, key, &node) || !(node >= 0 && node < RUN_NODES_MAX) ||
        node != floor(node))
        return -1;
    if ((uint32_t)node >= s->nodes)
        s->nodes = (uint32_t)node + 1;
    return (int)node;
}

static void set_member(struct run_summary *s, int node, bool in)
{
    if (node < 0 || s->in_view[node] == in)
        return;
    s->in_view[node] = in;
    s->workers = in ? s->workers + 1 : s->workers - 1;
}

static const struct change {
    const char *what, *text;
    enum mark_kind kind;
    int in; /* in the view afterwards: 1, 0; -1: as before */
} changes[] = {
    {"join", "joined", MARK_MEMBER, 1},
    {"back", "has reconnected", MARK_RECOVERY, 1},
    {"leave", "left in good order", MARK_MEMBER, 0},
    {"dead", "lost: its connection ended", MARK_FAULT, 0},
    {"cut", "lost: no heartbeat, or no link to another member", MARK_FAULT, 0},
    {"hung", "lost: no progress", MARK_FAULT, 0},
    {"fenced", "fenced: its state is unknown", MARK_FAULT, 0},
    {"leaf", "takes no part in exchanges: its network is slow", MARK_MEMBER, -1},
    {"participates", "takes part in exchanges again", MARK_MEMBER, -1},
    {"refused", "could not begin", MARK_FAULT, -1},
    {"failed", "could not continue", MARK_FAULT, -1},
};

/* A worker that joins while the others train replaces one, or is one more. */
static void on_member(struct run_summary *s, const cJSON *event, double t)
{
    const char *what = json_text(event, "what"), *why = json_text(event, "why");
    int node = node_of(s, event, "node");
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const struct change *c = &changes[i];
        if (strcmp(c->what, what) != 0)
            continue;
        bool replaces = c->in == 1 && s->trained && s->faults > s->recoveries;
        if (c->in >= 0)
            set_member(s, node, c->in == 1);
        const char *host = i == 0 ? json_text(event, "host") : "";
        if (host[0] && node >= 0)
            run_hosts_take(&s->hosts, node, event);
        add_mark(s, replaces ? MARK_RECOVERY : c->kind, t, node, "worker %d %s%s%s%s%s", node,
                 c->text, host[0] ? " on " : "", host, why[0] ? ": " : "", why);
        add_point(s, CURVE_WORKERS, t, s->workers, false);
    }
}

/* ---- kinds of events ---- */

static void on_start(struct run_summary *s, const cJSON *event, double t)
{
    const cJSON *records = cJSON_GetObjectItemCaseSensitive(event, "records");
    double batch = 0;
    cJSON_Delete(s->start);
    s->start = cJSON_Duplicate(event, true);
    s->records = json_number(records, "train");
    run_hosts_take(&s->hosts, -1, event);
    s->sessions++;
    s->trained = false;
    for (uint32_t node = 0; node < s->nodes; node++)
        set_member(s, (int)node, false);
    if (s->sessions > 1) {
        add_mark(s, MARK_RECOVERY, t, -1, "the run is resumed, session %llu",
                 (unsigned long long)s->sessions);
        cJSON_Delete(s->end);
        s->end = NULL;
    }
    s->now.t = t; /* throughput counts from here */
    if (json_has_number(event, "global_batch", &batch))
        add_point(s, CURVE_BATCH, t, batch, false);
}

static const char *const causes[CAUSES] = {"step", "data", "link", "stop", "evaluation"};

/* As "waited 0.31 s for worker 3: its link sent at 38 Mbit/s". */
static void keep_wait(struct run_summary *s, const cJSON *event, double t, double waited, int node)
{
    const char *why = json_text(event, "why");
    size_t at = s->waits;
    if (!why[0] || !(waited > 0))
        return;
    while (at > 0 && waited > s->wait[at - 1].seconds)
        at--;
    if (at == RUN_WAITS_MAX)
        return;
    s->waits += s->waits < RUN_WAITS_MAX;
    memmove(&s->wait[at + 1], &s->wait[at], (s->waits - 1 - at) * sizeof *s->wait);
    struct run_wait *w = &s->wait[at];
    *w = (struct run_wait){t, waited, (uint64_t)json_number(event, "n"), ""};
    char name[32] = "the driver";
    if (node >= 0)
        snprintf(name, sizeof name, "worker %d", node);
    snprintf(w->text, sizeof w->text, "waited %.3g s for %s: %s", waited, name, why);
}

static void on_exchange(struct run_summary *s, const cJSON *event, double t)
{
    double seconds = json_number(event, "seconds"), waited = json_number(event, "waited_s");
    const char *key = cJSON_HasObjectItem(event, "blamed") ? "blamed" : "waited_for";
    int node = node_of(s, event, key);
    bool driver = cJSON_HasObjectItem(event, key) && json_number(event, key) == -1;
    s->exchanges++;
    s->exchange_s += seconds;
    s->exchange_bytes += json_number(event, "bytes");
    s->waited_s += waited;
    if (driver || node >= 0) {
        struct run_waited *of = &s->waited[node + 1];
        of->count++;
        of->seconds += waited;
        for (int i = 0; i < CAUSES; i++)
            of->by[i] += strcmp(json_text(event, "cause"), causes[i]) == 0;
        keep_wait(s, event, t, waited, node);
    }
    add_point(s, CURVE_EXCHANGE, t, seconds, false);
    add_point(s, CURVE_WAITED, t, waited, false);
}

static double finite_number(const cJSON *event, const char *key)
{
    double value = NAN;
    json_has_number(event, key, &value);
    return value;
}

static void on_loss(struct run_summary *s, const cJSON *event, double t)
{
    double batch = 0, rate = 0, samples = json_number(event, "samples"), before = s->now.t;
    take_position(s, event, t, samples);
    s->trained = true;
    s->now.value = finite_number(event, "loss");
    add_point(s, CURVE_TRAIN_LOSS, t, s->now.value, true);
    if (t > before && samples > 0)
        add_point(s, CURVE_SPEED, t, samples / (t - before), true);
    if (json_has_number(event, "rate", &rate))
        add_point(s, CURVE_RATE, t, rate, true);
    if (json_has_number(event, "batch", &batch))
        add_point(s, CURVE_BATCH, t, batch, true);
}

static void on_rate(struct run_summary *s, const cJSON *event, double t)
{
    double rate = 0;
    if (json_has_number(event, "rate", &rate))
        add_point(s, CURVE_RATE, t, rate, false);
}

/* The evaluated model is that of an earlier moment, so the event moves the run nowhere. */
static void add_evaluated(struct run_summary *s, const cJSON *event, enum run_curve curve, double t,
                          const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(event, key);
    struct run_point point = {t, s->now.epoch, s->now.samples, finite_number(event, key)};
    if (!value)
        return;
    if (json_has_number(event, "epoch", &point.epoch) && s->records > 0)
        point.samples = point.epoch * s->records;
    if (!run_series_add(&s->curve[curve], &point, true))
        s->failed = true;
}

static void on_eval(struct run_summary *s, const cJSON *event, double t)
{
    bool test = strcmp(json_text(event, "set"), "test") == 0;
    add_evaluated(s, event, test ? CURVE_TEST_ERROR : CURVE_VALIDATION_ERROR, t, "error");
    add_evaluated(s, event, test ? CURVE_TEST_LOSS : CURVE_VALIDATION_LOSS, t, "loss");
    if (!test) {
        add_evaluated(s, event, CURVE_TEST_ERROR, t, "test_error");
        add_evaluated(s, event, CURVE_TEST_LOSS, t, "test_loss");
    }
}

static void on_sample(struct run_summary *s, const cJSON *event)
{
    char *text = strdup(json_text(event, "text"));
    if (!text)
        return;
    free(s->sample[RUN_SAMPLES_MAX - 1]);
    memmove(&s->sample[1], &s->sample[0], (RUN_SAMPLES_MAX - 1) * sizeof *s->sample);
    s->sample[0] = text;
}

static void on_fault(struct run_summary *s, const cJSON *event, double t)
{
    int node = node_of(s, event, "node");
    char name[32] = "the driver";
    if (node >= 0)
        snprintf(name, sizeof name, "worker %d", node);
    add_mark(s, MARK_FAULT, t, node, "%s: %s (fault of the cluster file)", name,
             json_text(event, "what"));
}

static void on_end(struct run_summary *s, const cJSON *event, double t)
{
    const char *error = json_text(event, "error");
    cJSON_Delete(s->end);
    s->end = cJSON_Duplicate(event, true);
    move_to(s, t, s->now.epoch, s->now.samples);
    add_mark(s, error[0] ? MARK_FAULT : MARK_NOTE, t, -1, "end: %s%s%s", json_text(event, "reason"),
             error[0] ? ": " : "", error);
}

static void on_checkpoint(struct run_summary *s, const cJSON *event, double t)
{
    s->checkpoints++;
    add_mark(s, MARK_CHECKPOINT, t, -1, "checkpoint of exchange %.0f, %.1f MB in %.2f s",
             json_number(event, "n"), json_number(event, "bytes") / 1e6,
             json_number(event, "seconds"));
}

/* The rarer ones. */
static void on_other(struct run_summary *s, const char *kind, const cJSON *event, double t)
{
    int node = node_of(s, event, "node");
    if (strcmp(kind, "rejected") == 0) {
        s->rejected++;
        add_mark(s, MARK_FAULT, t, node, "worker %d: contribution to exchange %.0f was not finite",
                 node, json_number(event, "n"));
    } else if (strcmp(kind, "back") == 0) {
        add_mark(s, MARK_RECOVERY, t, -1, "the driver has recovered with %.0f workers",
                 json_number(event, "workers"));
    } else if (strcmp(kind, "bad_record") == 0) {
        s->bad_records++;
        add_mark(s, MARK_NOTE, t, -1, "bad record %.0f: %s", json_number(event, "record"),
                 json_text(event, "cause"));
    } else if (strcmp(kind, "warning") == 0) {
        add_mark(s, MARK_NOTE, t, -1, "%s", json_text(event, "text"));
    } else if (strcmp(kind, "want_workers") == 0) {
        add_mark(s, MARK_MEMBER, t, -1, "the run is to have %.0f workers, and has %.0f",
                 json_number(event, "workers"), json_number(event, "of"));
    } else if (strcmp(kind, "paused") == 0) {
        add_mark(s, MARK_MEMBER, t, -1, "the run pauses: it has %.0f workers, and needs %.0f",
                 json_number(event, "workers"), json_number(event, "needed"));
    } else if (strcmp(kind, "resumed") == 0) {
        add_mark(s, MARK_MEMBER, t, -1, "the run continues with %.0f workers after %.1f s",
                 json_number(event, "workers"), json_number(event, "paused_s"));
    } else if (strcmp(kind, "dropped") == 0) {
        add_mark(s, MARK_FAULT, t, -1, "%.0f lines of events were lost",
                 json_number(event, "lines"));
    } else if (strcmp(kind, "machine") == 0 || strcmp(kind, "records") == 0) {
        cJSON *table = kind[0] == 'm' ? s->machines : s->sets;
        if (cJSON_GetArraySize(table) < TABLE_MAX)
            cJSON_AddItemToArray(table, cJSON_Duplicate(event, true));
    }
}

static void take_event(struct run_summary *s, const char *kind, const cJSON *event, double t)
{
    static const struct {
        const char *kind;
        void (*take)(struct run_summary *s, const cJSON *event, double t);
    } kinds[] = {
        {"exchange", on_exchange}, {"loss", on_loss},     {"rate", on_rate},
        {"eval", on_eval},         {"member", on_member}, {"fault", on_fault},
        {"end", on_end},           {"start", on_start},   {"checkpoint", on_checkpoint},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].kind, kind) == 0) {
            kinds[i].take(s, event, t);
            return;
        }
    }
    if (strcmp(kind, "sample") == 0)
        on_sample(s, event);
    else
        on_other(s, kind, event, t);
}

void run_summary_line(struct run_summary *s, const char *line, size_t length)
{
    double t;
    cJSON *event = length <= LINE_BYTES_MAX ? cJSON_ParseWithLength(line, length) : NULL;
    const char *kind = json_text(event, "kind");
    s->lines++;
    if (json_has_number(event, "t", &t) && isfinite(t) && kind[0])
        take_event(s, kind, event, t);
    else
        s->unreadable++;
    cJSON_Delete(event);
}

/* ---- files ---- */

/* Read up to the line's end, which is not stored. SIZE_MAX: the file's end. A line that is too long
 * has LINE_BYTES_MAX + 1 bytes. */
static size_t read_line(FILE *f, char *line)
{
    size_t n = 0;
    int c;
    while ((c = getc_unlocked(f)) != EOF && c != '\n') {
        line[n] = (char)c;
        n += n <= LINE_BYTES_MAX;
    }
    return c == EOF && n == 0 ? SIZE_MAX : n;
}

static void read_lines(struct run_summary *s, FILE *f, char *line)
{
    for (size_t n; (n = read_line(f, line)) != SIZE_MAX;)
        if (n > 0)
            run_summary_line(s, line, n);
    move_to(s, s->now.t, s->now.epoch, s->now.samples); /* a run without an end */
}

bool run_summary_read(struct run_summary *s, const char *command, const char *path)
{
    FILE *f = fopen(path, "rb");
    char *line = malloc(LINE_BYTES_MAX + 2);
    bool failed = !f || !line;
    if (!failed)
        read_lines(s, f, line);
    const char *why = failed || ferror(f) ? strerror(errno)
                      : s->failed         ? "out of memory"
                      : s->lines == s->unreadable
                          ? "no line of it is an event; is it the events.jsonl of a run?"
                          : NULL;
    if (f)
        fclose(f);
    free(line);
    if (why)
        fprintf(stderr, "paceline %s: %s: %s\n", command, path, why);
    else if (s->unreadable > 0)
        fprintf(stderr, "paceline %s: %s: %llu line%s could not be read and are left out\n",
                command, path, (unsigned long long)s->unreadable, s->unreadable == 1 ? "" : "s");
    return !why;
}
