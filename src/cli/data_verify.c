#include "cli/data_verify.h"

#include "cli/cli.h"
#include "cli/number.h"
#include "cli/output.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

static volatile sig_atomic_t interrupted;

struct verification {
    size_t most, told;
    bool json;
    double begun;
};

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* The first Ctrl-C ends it with its result, the second one at once. */
static void catch_interrupt(void)
{
    struct sigaction action = {.sa_flags = (int)SA_RESETHAND}, before;
    action.sa_handler = on_interrupt;
    if (sigaction(SIGINT, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGINT, &action, NULL);
}

static void print_problem(void *user, const char *what)
{
    struct verification *v = user;
    if (v->most > 0 && v->told == v->most)
        return;
    v->told++;
    if (!v->json) {
        printf("%s\n", what);
        return;
    }
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "problem", what);
    char *text = cJSON_PrintUnformatted(object);
    printf("%s\n", text ? text : "{}");
    cJSON_free(text);
    cJSON_Delete(object);
}

static bool tell_progress(void *user, size_t done, size_t total)
{
    const struct verification *v = user;
    struct progress_field field[3] = {{.rank = 0}, {.rank = 1}, {.rank = 2}};
    double spent = seconds_now() - v->begun, rate = spent > 0 ? (double)done / spent : 0;
    if (interrupted)
        return false;
    if (done == 0 || (done % 64 != 0 && done != total))
        return true;
    snprintf(field[0].text, sizeof field[0].text, "%zu of %zu records", done, total);
    snprintf(field[1].text, sizeof field[1].text, "%.0f records/s", rate);
    snprintf(field[2].text, sizeof field[2].text, "ends in %.0f s", (double)(total - done) / rate);
    output_progress(field, 3);
    return true;
}

static void print_end(const struct verification *v, size_t done, size_t broken)
{
    if (v->json)
        printf("{\"verified\":%zu,\"broken\":%zu,\"interrupted\":%s}\n", done, broken,
               interrupted ? "true" : "false");
    else
        printf("verified   %zu record%s, %zu broken%s\n", done, number_plural((double)done, "s"),
               broken, interrupted ? "; interrupted" : "");
    if (broken > v->told)
        output_line("%zu more problem%s not listed; --max-problems raises the limit",
                    broken - v->told, number_plural((double)(broken - v->told), "s"));
}

int data_verify(pl_engine *engine, pl_data *data, size_t most, bool json)
{
    struct verification v = {.most = most, .json = json, .begun = seconds_now()};
    const pl_data_check check = {&v, print_problem, tell_progress};
    size_t done = 0, broken = 0;
    catch_interrupt();
    int rc = pl_data_verify(data, &check, &done, &broken);
    output_finish();
    if (rc != PL_OK)
        return cli_fail(engine, rc);
    print_end(&v, done, broken);
    return interrupted ? EXIT_INTERRUPTED : broken > 0 ? EXIT_BAD_INPUT : EXIT_DONE;
}
