#include "cli/data_progress.h"

#include "cli/output.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

static volatile sig_atomic_t interrupted;
static double begun;

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

void data_progress_begin(void)
{
    struct sigaction action = {.sa_flags = (int)SA_RESETHAND}, before;
    action.sa_handler = on_interrupt;
    if (sigaction(SIGINT, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGINT, &action, NULL);
    begun = seconds_now();
}

bool data_progress_report(void *user, size_t done, size_t total)
{
    struct progress_field field[3] = {{.rank = 0}, {.rank = 1}, {.rank = 2}};
    double spent = seconds_now() - begun, rate = spent > 0 ? (double)done / spent : 0;
    (void)user;
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

bool data_progress_interrupted(void)
{
    return interrupted;
}
