#include "cli/output.h"

#include "cli/wrap_line.h"

#include <ctype.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define PLAIN_EVERY_S    2.0
#define TERMINAL_EVERY_S 0.25
#define KIND_EVERY_S     1.0

enum { KINDS_MAX = 32, KEY_MAX = 128, LINE_MAX_BYTES = 2048, COLUMNS_DEFAULT = 80 };

/* The tone of a line, and the order to a terminal for it: yellow, red, bold. */
enum tone { TONE_PLAIN, TONE_WARNING, TONE_ERROR, TONE_RESULT };
static const char *const tone_orders[] = {"", "\033[33m", "\033[31m", "\033[1m"};
static const char tone_end[] = "\033[0m";

/* Warnings that differ in numbers alone. */
struct kind {
    char key[KEY_MAX];
    double printed;            /* when the newest was */
    unsigned held;             /* since then */
    char last[LINE_MAX_BYTES]; /* the newest of those */
};

static struct output {
    pthread_mutex_t lock;
    struct output_options options;
    bool looked, terminal, colors;
    bool drawn; /* the progress line is on the terminal, with the cursor behind it */
    struct progress_field field[PROGRESS_FIELDS_MAX];
    size_t fields;
    double progressed; /* when the newest was printed */
    struct kind kind[KINDS_MAX];
    size_t kinds;
} output = {.lock = PTHREAD_MUTEX_INITIALIZER};

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* In one write, so that lines of several processes do not mix. Errors of a closed stderr are
 * ignored. */
static void put_text(const char *text)
{
    fputs(text, stderr);
}

static bool shows_orders(int fd)
{
    const char *term = getenv("TERM");
    return isatty(fd) == 1 && !(term && strcmp(term, "dumb") == 0);
}

static bool wants_color(void)
{
    const char *none = getenv("NO_COLOR");
    return !none || !none[0];
}

static bool is_terminal(struct output *o)
{
    if (!o->looked) {
        o->terminal = shows_orders(STDERR_FILENO);
        o->colors = o->terminal && wants_color();
    }
    o->looked = true;
    return o->terminal;
}

/* Read each time, since the window may have changed. The last column stays free, since some
 * terminals wrap when it is used. */
static size_t count_columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return COLUMNS_DEFAULT - 1;
    return size.ws_col > 1 ? size.ws_col - 1u : 1;
}

static void draw_progress(struct output *o)
{
    char line[PROGRESS_LINE_MAX], text[PROGRESS_LINE_MAX + 8];
    progress_line_fit(o->field, o->fields, count_columns(), line);
    snprintf(text, sizeof text, "\r%s\033[K", line); /* clears the rest of an older, longer line */
    put_text(text);
    o->drawn = true;
}

/* Above the progress line, which moves down. */
static void put_line(struct output *o, enum tone tone, const char *line)
{
    char text[LINE_MAX_BYTES + 256], wrapped[LINE_MAX_BYTES + 128];
    if (is_terminal(o))
        wrap_line(line, count_columns(), wrapped, sizeof wrapped);
    bool colored = o->colors && tone != TONE_PLAIN;
    snprintf(text, sizeof text, "%s%s%s%s\n", o->drawn ? "\r\033[K" : "",
             colored ? tone_orders[tone] : "", is_terminal(o) ? wrapped : line,
             colored ? tone_end : "");
    put_text(text);
    if (o->drawn)
        draw_progress(o);
}

/* A worker's own errors come as warnings: the run may survive them. */
static enum tone tone_of_warning(const char *line)
{
    return strncmp(line, "paceline: ", 10) == 0 ? TONE_ERROR : TONE_WARNING;
}

static void put_held(struct output *o, struct kind *k, double now)
{
    char line[LINE_MAX_BYTES + 64];
    if (k->held > 1)
        snprintf(line, sizeof line, "%s (%u more like it in %.1f s)", k->last, k->held - 1,
                 now - k->printed);
    else
        snprintf(line, sizeof line, "%s", k->last);
    put_line(o, tone_of_warning(line), line);
    k->held = 0;
    k->printed = now;
}

static void put_all_held(struct output *o, double now, double age)
{
    for (size_t i = 0; i < o->kinds; i++)
        if (o->kind[i].held > 0 && now - o->kind[i].printed >= age)
            put_held(o, &o->kind[i], now);
}

/* The length of the part of a word that may be a machine's name or address: letters, digits, dots
 * and dashes that begin with a letter, or four numbers. 0: none. */
static size_t measure_host(const char *word, size_t n)
{
    size_t host = 0, dots = 0, letters = 0;
    for (; host < n && (isalnum((unsigned char)word[host]) || strchr("._-", word[host])); host++) {
        dots += word[host] == '.';
        letters += isalpha((unsigned char)word[host]) != 0;
    }
    bool whole = host == n || word[host] == ':';
    bool named = isalpha((unsigned char)word[0]) || (letters == 0 && dots >= 3);
    return whole && named ? host : 0;
}

/* Write a word without its numbers: a path may name one of many files. The name of a machine is
 * kept. */
static size_t write_word(const char *word, size_t n, bool keep, char key[KEY_MAX], size_t used)
{
    size_t host = keep ? n : measure_host(word, n);
    for (size_t i = 0; i < n && used + 1 < KEY_MAX; i++) {
        bool digit = i >= host && isdigit((unsigned char)word[i]);
        if (digit && used > 0 && key[used - 1] == '#')
            continue;
        key[used++] = digit ? '#' : word[i];
    }
    return used;
}

/* The common part of warnings of one kind: the line without its numbers, but for those that name a
 * worker or a machine. */
static void write_key(const char *line, char key[KEY_MAX])
{
    static const char between[] = " \t,;()[]'\"";
    size_t used = 0;
    bool worker = false; /* the previous word */
    for (const char *at = line; *at;) {
        size_t n = strcspn(at, between), rest = n > 0 ? n : strspn(at, between);
        bool number = worker && isdigit((unsigned char)*at);
        used = write_word(at, rest, n == 0 || number, key, used);
        if (n > 0)
            worker = n == strlen("worker") && strncmp(at, "worker", n) == 0;
        at += rest;
    }
    key[used] = '\0';
}

/* NULL: it is a new one, and has been made room for in `*made`. */
static struct kind *find_kind(struct output *o, const char *key, double now, struct kind **made)
{
    struct kind *oldest = &o->kind[0];
    for (size_t i = 0; i < o->kinds; i++) {
        if (strcmp(o->kind[i].key, key) == 0)
            return &o->kind[i];
        if (o->kind[i].printed < oldest->printed)
            oldest = &o->kind[i];
    }
    if (o->kinds < KINDS_MAX)
        oldest = &o->kind[o->kinds++];
    else if (oldest->held > 0)
        put_held(o, oldest, now);
    *oldest = (struct kind){.printed = now};
    memcpy(oldest->key, key, strlen(key) + 1);
    *made = oldest;
    return NULL;
}

static void put_warning(struct output *o, const char *line)
{
    char key[KEY_MAX];
    double now = seconds_now();
    struct kind *made;
    write_key(line, key);
    struct kind *k = find_kind(o, key, now, &made);
    if (!k) {
        put_line(o, tone_of_warning(line), line);
        return;
    }
    k->held++;
    snprintf(k->last, sizeof k->last, "%s", line);
    if (now - k->printed >= KIND_EVERY_S)
        put_held(o, k, now);
}

void output_configure(const struct output_options *options)
{
    output.options = *options;
}

static void put_formatted(enum tone tone, const char *format, va_list arguments)
{
    char line[LINE_MAX_BYTES];
    vsnprintf(line, sizeof line, format, arguments);
    pthread_mutex_lock(&output.lock);
    put_line(&output, tone, line);
    pthread_mutex_unlock(&output.lock);
}

void output_line(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!output.options.quiet)
        put_formatted(TONE_PLAIN, format, arguments);
    va_end(arguments);
}

void output_best(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!output.options.quiet)
        put_formatted(TONE_RESULT, format, arguments);
    va_end(arguments);
}

void output_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    put_formatted(TONE_ERROR, format, arguments);
    va_end(arguments);
}

void output_result(const char *line)
{
    bool bold = shows_orders(STDOUT_FILENO) && wants_color();
    printf("%s%s%s\n", bold ? tone_orders[TONE_RESULT] : "", line, bold ? tone_end : "");
}

void output_warning(const char *line)
{
    pthread_mutex_lock(&output.lock);
    put_warning(&output, line);
    pthread_mutex_unlock(&output.lock);
}

static void put_plain(struct output *o, double now)
{
    char line[PROGRESS_LINE_MAX];
    double every = o->options.progress_s > 0 ? o->options.progress_s : PLAIN_EVERY_S;
    bool first = o->progressed == 0;
    if (!first && now - o->progressed < every)
        return;
    o->progressed = now;
    if (first)
        return; /* a short run needs none */
    progress_line_fit(o->field, o->fields, PROGRESS_LINE_MAX - 1, line);
    put_line(o, TONE_PLAIN, line);
}

void output_progress(const struct progress_field *field, size_t count)
{
    struct output *o = &output;
    pthread_mutex_lock(&o->lock);
    double now = seconds_now();
    put_all_held(o, now, KIND_EVERY_S);
    o->fields = count < PROGRESS_FIELDS_MAX ? count : PROGRESS_FIELDS_MAX;
    memcpy(o->field, field, o->fields * sizeof *field);
    if (o->options.quiet) {
        /* nothing to show */
    } else if (!is_terminal(o)) {
        put_plain(o, now);
    } else if (now - o->progressed >= TERMINAL_EVERY_S) {
        o->progressed = now;
        draw_progress(o);
    }
    pthread_mutex_unlock(&o->lock);
}

void output_tick(void)
{
    struct output *o = &output;
    pthread_mutex_lock(&o->lock);
    put_all_held(o, seconds_now(), KIND_EVERY_S);
    pthread_mutex_unlock(&o->lock);
}

void output_finish(void)
{
    struct output *o = &output;
    pthread_mutex_lock(&o->lock);
    put_all_held(o, seconds_now(), 0);
    if (o->drawn) {
        draw_progress(o); /* the newest */
        put_text("\n");
    }
    o->drawn = false;
    pthread_mutex_unlock(&o->lock);
}

void output_log(void *user, pl_log_level level, const char *line)
{
    char text[LINE_MAX_BYTES];
    (void)user;
    if (level < PL_LOG_WARN) {
        output_line("%s", line);
        return;
    }
    snprintf(text, sizeof text, "warning: %s", line);
    output_warning(text);
}

void output_relay(const char *line)
{
    bool news = strncmp(line, "warning: ", 9) != 0 && strncmp(line, "paceline: ", 10) != 0;
    if (news)
        output_line("%s", line);
    else
        output_warning(line);
}
