#include "cli/run_output.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PLAIN_EVERY_S = 2 };

atomic_bool run_interrupted;

static void on_signal(int number)
{
    if (atomic_exchange(&run_interrupted, true)) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

void run_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

void run_output_init(struct run_output *output, bool json)
{
    *output = (struct run_output){.json = json, .terminal = isatty(STDERR_FILENO) == 1};
}

static void break_line(struct run_output *output)
{
    if (output->open_line)
        fputc('\n', stderr);
    output->open_line = false;
}

static double number(const cJSON *event, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(event, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static const char *text(const cJSON *event, const char *key)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event, key));
    return value ? value : "";
}

/* A net may have no error rate. */
static void print_evaluation(const cJSON *event)
{
    fprintf(stderr, "%8.1f s  epoch %.2f: %s ", number(event, "t"), number(event, "epoch"),
            text(event, "set"));
    if (cJSON_HasObjectItem(event, "error"))
        fprintf(stderr, "error %.2f %%, ", 100 * number(event, "error"));
    fprintf(stderr, "loss %.4f\n", number(event, "loss"));
}

static void print_event(const cJSON *event)
{
    const char *kind = text(event, "kind");
    double t = number(event, "t");
    if (strcmp(kind, "eval") == 0)
        print_evaluation(event);
    else if (strcmp(kind, "member") == 0 && strcmp(text(event, "what"), "join") != 0)
        fprintf(stderr, "%8.1f s  worker %.0f: %s\n", t, number(event, "node"),
                text(event, "what"));
    else if (strcmp(kind, "fault") == 0)
        fprintf(stderr, "%8.1f s  fault: %s worker %.0f\n", t, text(event, "what"),
                number(event, "node"));
}

void run_output_event(void *user, const char *line)
{
    struct run_output *output = user;
    snprintf(output->last, sizeof output->last, "%s", line);
    cJSON *event = cJSON_Parse(line);
    const char *kind = text(event, "kind");
    if (strcmp(kind, "exchange") != 0 && strcmp(kind, "rate") != 0) {
        break_line(output);
        print_event(event);
    }
    cJSON_Delete(event);
}

static void print_progress(const pl_progress *p)
{
    fprintf(stderr, "%8.1f s  epoch %.2f", p->t, p->epoch);
    if (p->epochs > 0)
        fprintf(stderr, "/%g", p->epochs);
    fprintf(stderr, "  loss %.4f", p->loss);
    if (p->error >= 0)
        fprintf(stderr, "  error %.2f %%", 100 * p->error);
    fprintf(stderr, "  %.0f samples/s  %u workers", p->samples_per_s, p->workers);
    if (p->exchange_s > 0)
        fprintf(stderr, "  exchange %.1f ms", p->exchange_s * 1e3);
    if (p->slowest >= 0)
        fprintf(stderr, "  slowest %d", p->slowest);
    if (p->eta_s >= 0)
        fprintf(stderr, "  ends in %.0f s", p->eta_s);
}

void run_output_progress(void *user, const pl_progress *progress)
{
    struct run_output *output = user;
    workers_file_look(&output->workers, progress->t);
    if (output->terminal) {
        fputc('\r', stderr);
        print_progress(progress);
        fputs("\033[K", stderr); /* what an older, longer line left */
        fflush(stderr);
        output->open_line = true;
    } else if (progress->t >= output->printed + PLAIN_EVERY_S) {
        output->printed = progress->t;
        print_progress(progress);
        fputc('\n', stderr);
    }
}

static void print_set(const char *name, double error, double loss)
{
    printf("%-12s", name);
    if (error >= 0)
        printf("error %.2f %%, ", 100 * error);
    printf("loss %.4f\n", loss);
}

static void print_result(struct run_output *output, const pl_run_report *report)
{
    break_line(output);
    if (output->json) {
        printf("%s\n", output->last);
        return;
    }
    printf("ended       %s, after %.2f epochs and %.1f s\n", report->reason, report->epochs,
           report->wall_s);
    if (report->has_validation)
        print_set("validation", report->validation_error, report->validation_loss);
    if (report->has_test)
        print_set("test", report->test_error, report->test_loss);
    if (report->wall_s > 0)
        printf("speed       %.0f samples/s\n", (double)report->samples / report->wall_s);
    printf("records     %llu used, %llu repeated, %llu missed\n", (unsigned long long)report->used,
           (unsigned long long)report->repeated, (unsigned long long)report->missed);
    printf("directory   %s\n", report->directory);
}

/* Is the last event the run's end? One that there was no memory for has not come. */
static bool has_end(const struct run_output *output)
{
    return strstr(output->last, "\"kind\":\"end\"") != NULL;
}

int cli_run_ended(const pl_engine *engine, int status, struct run_output *output,
                  const pl_run_report *report)
{
    if (status != PL_OK) {
        break_line(output);
        return cli_fail(engine, status);
    }
    if (output->json && !has_end(output)) {
        fprintf(stderr, "paceline: the run has ended, but there was no memory for its result\n");
        return EXIT_FAILED;
    }
    print_result(output, report);
    return strcmp(report->reason, "interrupted") == 0 ? EXIT_INTERRUPTED : EXIT_DONE;
}
