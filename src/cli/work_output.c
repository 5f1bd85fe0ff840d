#include "cli/work_output.h"

#include "cli/number.h"
#include "cli/output.h"
#include "cli/signals.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* "1,204": in threes. */
static const char *write_count(unsigned long long n, char out[32])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%llu", n);
    char *at = out;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *at++ = ',';
        *at++ = digits[i];
    }
    *at = '\0';
    return out;
}

/* The reason of a run's end, in words. */
static const char *name_reason(const char *reason)
{
    static const struct {
        const char *reason, *words;
    } words[] = {
        {"epochs", "its epochs are done"},
        {"steps", "its steps are done"},
        {"seconds", "its time is up"},
        {"error", "the error that it was to reach is reached"},
        {"converged", "its search has converged"},
        {"interrupted", "it was interrupted"},
        {"failed", "it failed; its driver prints the reason"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].reason, reason) == 0)
            return words[i].words;
    return "its driver has ended it";
}

static void show_progress(const pl_work_progress *p)
{
    struct progress_field field[4] = {{.rank = 0}, {.rank = 0}, {.rank = 2}, {.rank = 1}};
    char steps[32];
    size_t n = 0;
    snprintf(field[n++].text, sizeof field->text, "worker %u: %s step%s", p->worker,
             write_count(p->steps, steps), number_plural((double)p->steps, "s"));
    if (!isnan(p->loss))
        snprintf(field[n++].text, sizeof field->text, "loss %.4f", p->loss);
    if (p->samples_per_s > 0)
        snprintf(field[n++].text, sizeof field->text, "%.0f samples/s", p->samples_per_s);
    snprintf(field[n++].text, sizeof field->text, "%u worker%s", p->workers,
             number_plural(p->workers, "s"));
    output_progress(field, n);
}

void work_output_progress(void *user, const pl_work_progress *p)
{
    char steps[32];
    (void)user;
    write_count(p->steps, steps);
    const char *s = number_plural((double)p->steps, "s");
    pl_flag_set(&signals_heeded, p->stage == PL_WORK_JOINED || p->stage == PL_WORK_TRAINING);
    switch (p->stage) {
    case PL_WORK_JOINED:
        output_line("joined the run %s at %s as worker %u; %u worker%s train%s", p->run, p->driver,
                    p->worker, p->workers, p->workers == 1 ? "" : "s", p->workers == 1 ? "s" : "");
        break;
    case PL_WORK_TRAINING: show_progress(p); break;
    case PL_WORK_LEFT:
        output_finish();
        output_line("left the run %s after %s step%s", p->run, steps, s);
        break;
    case PL_WORK_OVER:
        output_finish();
        output_line("the run %s is over after %s step%s here: %s", p->run, steps, s,
                    name_reason(p->reason));
        break;
    }
}

void work_output_tick(void *user)
{
    (void)user;
    output_tick();
}
