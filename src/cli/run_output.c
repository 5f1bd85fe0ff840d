#include "cli/run_output.h"
#include "cli/banner.h"
#include "cli/json_value.h"
#include "cli/number.h"
#include "cli/output.h"
#include "cli/signals.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOSS_TEXT = 24 };

int run_output_configure(const struct command *command, const struct output_arguments *arguments,
                         double every_s)
{
    struct output_options options = {.quiet = arguments->quiet, .progress_s = every_s};
    int end =
        number_option(command, "progress", arguments->progress, 0.01, 1e9, &options.progress_s);
    output_configure(&options);
    return end;
}

void run_output_init(struct run_output *output, bool json)
{
    *output = (struct run_output){.json = json, .best = {INFINITY, INFINITY}};
}

/* When it was: "    12.5 s", of a simulation's time by name. */
static const char *time_of(const cJSON *event, char out[48])
{
    bool simulated = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(event, "simulated"));
    snprintf(out, 48, "%s%8.1f s", simulated ? "simulated " : "", json_number(event, "t"));
    return out;
}

/* Without 36 digits where it explodes. */
static const char *loss_text(double loss, char out[LOSS_TEXT])
{
    snprintf(out, LOSS_TEXT, fabs(loss) < 1e6 ? "%.4f" : "%.4g", loss);
    return out;
}

/* Is it lower than all earlier ones of its set? The first has none to be compared with. */
static bool is_best(struct run_output *output, const cJSON *event)
{
    double *best = &output->best[strcmp(json_text(event, "set"), "test") == 0], value = NAN;
    if (!json_has_number(event, "error", &value))
        json_has_number(event, "loss", &value);
    bool lower = value < *best, first = isinf(*best);
    if (lower)
        *best = value;
    return lower && !first;
}

/* A net may have no error rate. */
static void print_evaluation(struct run_output *output, const cJSON *event)
{
    char error[32] = "", t[48], loss[LOSS_TEXT];
    if (cJSON_HasObjectItem(event, "error"))
        snprintf(error, sizeof error, "error %.2f %%, ", 100 * json_number(event, "error"));
    (is_best(output, event) ? output_best : output_line)(
        "%s  epoch %.2f: %s %sloss %s", time_of(event, t), json_number(event, "epoch"),
        json_text(event, "set"), error, loss_text(json_number(event, "loss"), loss));
}

/* Is byte i of the text part of a control character, in ASCII or U+0080 to U+009F? */
static bool is_control(const char *text, size_t i)
{
    unsigned char byte = (unsigned char)text[i], before = i > 0 ? (unsigned char)text[i - 1] : 0;
    return byte < ' ' || byte == 0x7f || (before == 0xc2 && byte < 0xa0);
}

/* A text that the model has drawn, line by line. */
static void print_sample(const cJSON *event)
{
    char t[48], line[2048];
    output_line("%s  epoch %.2f: the model writes", time_of(event, t), json_number(event, "epoch"));
    for (const char *text = json_text(event, "text"); *text;) {
        size_t n = strcspn(text, "\n"), kept = n < sizeof line - 1 ? n : sizeof line - 1;
        for (size_t i = 0; i < kept; i++)
            line[i] = is_control(text, i) ? '?' : text[i];
        line[kept] = '\0';
        output_line("    | %s", line);
        text += text[n] ? n + 1 : n;
    }
}

/* Something that is allowed and seldom meant. */
static void print_suspicion(const cJSON *event)
{
    char line[512];
    snprintf(line, sizeof line, "suspicious: %s", json_text(event, "text"));
    output_warning(line);
}

static void print_event(struct run_output *output, const cJSON *event)
{
    const char *kind = json_text(event, "kind");
    char t[48];
    if (strcmp(kind, "start") == 0)
        banner_print(event, output->directory);
    else if (strcmp(kind, "warning") == 0)
        print_suspicion(event);
    if (strcmp(kind, "checkpoint") == 0 || cJSON_HasObjectItem(event, "resumed_after"))
        output->resumable = true;
    else if (strcmp(kind, "eval") == 0)
        print_evaluation(output, event);
    else if (strcmp(kind, "sample") == 0)
        print_sample(event);
    else if (strcmp(kind, "fault") == 0)
        output_line("%s  fault: %s worker %.0f", time_of(event, t), json_text(event, "what"),
                    json_number(event, "node"));
}

void run_output_begins(void *user, const char *directory)
{
    struct run_output *output = user;
    snprintf(output->directory, sizeof output->directory, "%s", directory);
    if (output->watcher)
        output->watcher->begins(output->watcher->user, directory);
}

void run_output_event(void *user, const char *line)
{
    struct run_output *output = user;
    if (output->watcher)
        output->watcher->event(output->watcher->user, line);
    cJSON *event = cJSON_Parse(line);
    print_event(output, event);
    bool ends = strcmp(json_text(event, "kind"), "end") == 0;
    output->has_ended = output->has_ended || ends;
    if (output->json && ends) {
        cJSON_Delete(output->end);
        output->end = event;
    } else {
        cJSON_Delete(event);
    }
}

/* Fields in their order on the line. */
struct fields {
    struct progress_field at[PROGRESS_FIELDS_MAX];
    size_t count;
};

__attribute__((format(printf, 3, 4))) static void add_field(struct fields *f, unsigned rank,
                                                            const char *format, ...)
{
    struct progress_field *field = &f->at[f->count++];
    va_list arguments;
    *field = (struct progress_field){.rank = rank};
    va_start(arguments, format);
    vsnprintf(field->text, sizeof field->text, format, arguments);
    va_end(arguments);
}

__attribute__((format(printf, 2, 3))) static void set_brief(struct fields *f, const char *format,
                                                            ...)
{
    struct progress_field *field = &f->at[f->count - 1];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(field->brief, sizeof field->brief, format, arguments);
    va_end(arguments);
}

static void add_place(struct fields *f, const pl_progress *p)
{
    if (p->epochs > 0) {
        add_field(f, 0, "epoch %.2f/%g", p->epoch, p->epochs);
        set_brief(f, "epoch %.1f/%g", p->epoch, p->epochs);
    } else {
        add_field(f, 0, "epoch %.2f", p->epoch);
    }
    if (p->steps == 0 && p->local_steps == 0)
        return; /* not known yet */
    char loss[LOSS_TEXT];
    add_field(f, 0, "loss %s", loss_text(p->loss, loss));
    set_brief(f, fabs(p->loss) < 1e6 ? "loss %.3f" : "loss %.2g", p->loss);
}

static void add_end(struct fields *f, double eta_s)
{
    if (eta_s < 0)
        return;
    add_field(f, 0, "ends in %.0f s", eta_s);
    set_brief(f, "%.0f s left", eta_s);
}

/* Before the first exchange, which may be minutes away. */
static void add_local(struct fields *f, const pl_progress *p)
{
    if (p->local_steps == 0)
        return;
    add_field(f, 2, "step %llu", (unsigned long long)p->local_steps);
    if (p->first_exchange_s >= 0)
        add_field(f, 1, "first exchange in about %.0f s", p->first_exchange_s);
}

void run_output_tick(void *user)
{
    struct run_output *output = user;
    pl_flag_set(&signals_heeded, true);
    workers_file_look(&output->workers);
    output_tick();
    if (output->watcher)
        output->watcher->tick(output->watcher->user);
}

/* The time of day `age_s` seconds ago. */
static void time_text(double age_s, char out[16])
{
    time_t at = time(NULL) - (time_t)(age_s + 0.5);
    struct tm day;
    if (!localtime_r(&at, &day) || strftime(out, 16, "%H:%M:%S", &day) == 0)
        snprintf(out, 16, "%.0f s ago", age_s);
}

/* Names the state that a stop at once would keep. */
static void name_state(const pl_stopping *s, bool virtual_time, char *out, size_t size)
{
    char at[16];
    if (s->state_age_s >= 0 && !virtual_time) {
        time_text(s->state_age_s, at);
        snprintf(out, size, "keep the state of %s", at);
    } else {
        snprintf(out, size, "%s",
                 s->state_age_s >= 0 ? "keep the newest state"
                 : s->asks           ? "save the state that a worker sends within 2 s"
                 : s->initial        ? "keep the initial model, before any exchange"
                                     : "no state to save yet");
    }
}

static void name_kept(const pl_stopping *s, bool virtual_time, char *out, size_t size)
{
    char at[16] = "";
    if (!s->path[0])
        snprintf(out, size, "stopped at once; there was no state to keep");
    else if (s->initial)
        snprintf(out, size, "kept the initial model, since no exchange had been made, in %s",
                 s->path);
    else {
        if (s->state_age_s >= 0 && !virtual_time)
            time_text(s->state_age_s, at);
        snprintf(out, size, "kept the state of exchange %llu%s%s, in %s",
                 (unsigned long long)s->exchanges, at[0] ? ", " : "", at, s->path);
    }
}

/* Also where only warnings are printed: a user who has interrupted a run waits for a reply. */
void run_output_stopping(void *user, const pl_stopping *s)
{
    const struct run_output *output = user;
    char line[512], state[64], soon[32] = "";
    switch (s->stage) {
    case PL_STOPPING_SOON:
        name_state(s, output->virtual_time, state, sizeof state);
        if (s->commit_s >= 0 && !output->virtual_time)
            snprintf(soon, sizeof soon, ", about %.0f s", s->commit_s < 1 ? 1 : s->commit_s);
        snprintf(line, sizeof line, "stopping at the next commit point%s; again: stop now, %s",
                 soon, state);
        break;
    case PL_STOPPING_NOW: snprintf(line, sizeof line, "stopping now"); break;
    case PL_STOPPING_DONE: name_kept(s, output->virtual_time, line, sizeof line); break;
    }
    output_warning(line);
}

void run_output_progress(void *user, const pl_progress *p)
{
    const struct run_watcher *watcher = ((struct run_output *)user)->watcher;
    struct fields f = {.count = 0};
    if (watcher)
        watcher->progress(watcher->user, p);
    if (p->simulated) {
        add_field(&f, 0, "simulated");
        set_brief(&f, "sim");
    }
    add_field(&f, 3, "%8.1f s", p->t);
    add_place(&f, p);
    if (p->error >= 0)
        add_field(&f, 1, "error %.2f %%", 100 * p->error);
    if (p->samples_per_s > 0)
        add_field(&f, 2, "%.0f samples/s", p->samples_per_s);
    add_field(&f, 4, "%u worker%s", p->workers, number_plural(p->workers, "s"));
    if (p->exchange_s > 0)
        add_field(&f, 5, "exchange %.1f ms", p->exchange_s * 1e3);
    if (p->slowest >= 0)
        add_field(&f, 6, "slowest %d", p->slowest);
    add_local(&f, p);
    add_end(&f, p->eta_s);
    output_progress(f.at, f.count);
}

/* `matters`: nothing else of the result matters as much. */
static void print_set(const char *name, double error, double loss, bool matters)
{
    char text[LOSS_TEXT], rate[32] = "", line[96];
    if (error >= 0)
        snprintf(rate, sizeof rate, "error %.2f %%, ", 100 * error);
    snprintf(line, sizeof line, "%-12s%sloss %s", name, rate, loss_text(loss, text));
    if (matters)
        output_result(line);
    else
        puts(line);
}

/* Print the run's end, with the fields that its event lacks. */
static int print_object(struct run_output *output, const pl_run_report *report)
{
    cJSON *object = output->end;
    output->end = NULL;
    cJSON_AddStringToObject(object, "net", report->net);
    cJSON_AddStringToObject(object, "directory", report->directory);
    cJSON_DeleteItemFromObject(object, "model"); /* as its directory knows it */
    if (report->model[0])
        cJSON_AddStringToObject(object, "model", report->model);
    char *line = object ? cJSON_PrintUnformatted(object) : NULL;
    cJSON_Delete(object);
    if (line)
        printf("%s\n", line);
    else
        fprintf(stderr, "paceline: the run has ended, but there was no memory for its result\n");
    free(line);
    return line ? EXIT_DONE : EXIT_FAILED;
}

static void print_result(const pl_run_report *report)
{
    printf("ended       %s, after %.2f epochs and %.1f %ss\n", report->reason, report->epochs,
           report->wall_s, report->simulated ? "simulated " : "");
    if (report->has_train)
        print_set("training", -1, report->train_loss, false);
    if (report->has_validation)
        print_set("validation", report->validation_error, report->validation_loss,
                  !report->has_test);
    if (report->has_test)
        print_set("test", report->test_error, report->test_loss, true);
    if (report->session_s > 0 && report->samples > 0)
        printf("speed       %.0f samples/s%s\n", (double)report->samples / report->session_s,
               report->simulated ? ", simulated" : "");
    if (report->batch > 0)
        printf("batch       %llu records of all workers at the end\n",
               (unsigned long long)report->batch);
    printf("records     %llu used, %llu repeated, %llu missed\n", (unsigned long long)report->used,
           (unsigned long long)report->repeated, (unsigned long long)report->missed);
    if (report->has_cache)
        printf("cache       %llu records in memory (%.1f MiB), %llu on disk (%.1f MiB)\n",
               (unsigned long long)report->cached, (double)report->cached_bytes / (1 << 20),
               (unsigned long long)report->cached_disk,
               (double)report->cached_disk_bytes / (1 << 20));
    for (uint64_t i = 0; i < report->bad_records && i < 3; i++)
        printf("%-12s%s\n", i == 0 ? "left out" : "", report->bad_record[i]);
    if (report->bad_records > 3)
        printf("%-12sand %llu more broken records; events.jsonl names them\n", "",
               (unsigned long long)report->bad_records - 3);
    printf("directory   %s\n", report->directory);
    if (report->model[0])
        printf("model       %s\n", report->model);
}

int cli_run_ended(const pl_engine *engine, int status, struct run_output *output,
                  const pl_run_report *report)
{
    bool interrupted = status == PL_OK && strcmp(report->reason, "interrupted") == 0;
    bool early = interrupted || (status != PL_OK && output->has_ended); /* else another has it */
    if (output->resumable && !output->virtual_time && early)
        output_line("resume with: paceline resume %s", output->directory);
    output_finish();
    if (status != PL_OK) {
        cJSON_Delete(output->end);
        return cli_fail(engine, status);
    }
    int code = EXIT_DONE;
    if (output->json)
        code = print_object(output, report);
    else
        print_result(report);
    if (code == EXIT_DONE && (fflush(stdout) != 0 || ferror(stdout))) {
        fprintf(stderr, "paceline: the result cannot be written to stdout; the run is kept in %s\n",
                report->directory);
        return EXIT_FAILED;
    }
    return code != EXIT_DONE         ? code
           : report->model_elsewhere ? EXIT_ELSEWHERE
           : interrupted             ? EXIT_INTERRUPTED
                                     : EXIT_DONE;
}
