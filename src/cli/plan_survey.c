#include "cli/plan_survey.h"

#include "cli/driver_address.h"
#include "cli/number.h"
#include "cli/output.h"
#include "cli/signals.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Found by survey_read. */
static struct {
    const struct survey_arguments *arguments;
    struct driver_address address;
    double wait_s, max_mbit;
} survey;

static int refuse_without_listen(const char *option)
{
    fprintf(stderr,
            "paceline plan: --%s is of a survey: give --listen ADDR, too, or leave it out\n",
            option);
    return EXIT_BAD_INPUT;
}

int survey_read(const struct command *command, const struct survey_arguments *a)
{
    const char *of_survey = a->insecure   ? "insecure"
                            : a->key_file ? "key"
                            : a->wait     ? "wait"
                            : a->max_mbit ? "max-mbit"
                            : a->emit     ? "emit"
                                          : NULL;
    survey.arguments = a;
    if (!a->listen)
        return of_survey ? refuse_without_listen(of_survey) : -1;
    int end = number_option(command, "wait", a->wait, 0.001, 1e9, &survey.wait_s);
    if (end < 0)
        end = number_option(command, "max-mbit", a->max_mbit, 0.01, 1e6, &survey.max_mbit);
    if (end < 0 && a->emit && access(a->emit, F_OK) == 0) {
        fprintf(stderr, "paceline plan: --emit: %s exists: name a new file\n", a->emit);
        return EXIT_BAD_INPUT;
    }
    return end >= 0 ? end : driver_address_read(command, a->listen, a->key_file, &survey.address);
}

static double number_of(const cJSON *event, const char *key)
{
    const cJSON *value = cJSON_GetObjectItem(event, key);
    return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

static void print_machine(const cJSON *event)
{
    const char *host = cJSON_GetStringValue(cJSON_GetObjectItem(event, "host"));
    double node = number_of(event, "node"), mbit = number_of(event, "mbit");
    if (node < 0)
        output_line("driver: link %.4g Mbit/s, latency %.4g us", mbit,
                    number_of(event, "latency_us"));
    else
        output_line("worker %.0f%s%s%s: %.4g ms a step, link %.4g Mbit/s", node, host ? " (" : "",
                    host ? host : "", host ? ")" : "", 1e3 * number_of(event, "step_s"), mbit);
}

void survey_event(void *user, const char *line)
{
    cJSON *event = cJSON_Parse(line);
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItem(event, "kind"));
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(event, "text"));
    (void)user;
    if (kind && strcmp(kind, "machine") == 0)
        print_machine(event);
    else if (kind && text && strcmp(kind, "warning") == 0)
        output_warning(text);
    cJSON_Delete(event);
}

static int write_cluster(const pl_cluster *cluster)
{
    const char *path = survey.arguments->emit, *text = pl_cluster_text(cluster);
    FILE *file = fopen(path, "wx");
    bool written = file && fputs(text, file) >= 0;
    int cause = errno;
    if (file && fclose(file) != 0 && written) {
        written = false;
        cause = errno;
    }
    if (written)
        return PL_OK;
    if (file)
        unlink(path);
    fprintf(stderr, "paceline plan: --emit: %s: %s\n", path, strerror(cause));
    return PL_ERR_IO;
}

int survey_run(pl_engine *engine, const pl_job *job, uint32_t workers, pl_cluster **out)
{
    signals_catch_run();
    const pl_run_options options = {
        .size = sizeof options,
        .event = survey_event,
        .stop = &signals_stop,
        .listens = driver_address_print,
        .patience_s = survey.wait_s,
        .max_mbit = survey.max_mbit,
        .listen = survey.address.listen,
        .port = (unsigned short)atoi(HOST_PORT),
        .insecure = survey.arguments->insecure,
        .key = survey.address.key,
    };
    int rc = pl_survey(engine, job, workers, &options, out);
    if (rc != PL_OK || !survey.arguments->emit)
        return rc;
    rc = write_cluster(*out);
    if (rc != PL_OK)
        pl_cluster_free(*out);
    return rc;
}
