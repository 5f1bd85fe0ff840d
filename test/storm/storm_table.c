/* Faults by the moments at which they struck. */
#include "storm.h"

#include <inttypes.h>
#include <string.h>

const char *const fault_names[FAULTS] = {
    "crash",   "restart",     "pause",   "slow",      "partition",    "one-way loss",
    "clog",    "duplicate",   "reorder", "disk full", "driver crash", "join flood",
    "no sync", "wrong words", "twin",    "other run", "leap",
};

const char *const moment_names[MOMENTS] = {
    "forms", "trains",  "gathers", "reduces", "reports",    "adopts",
    "waits", "donates", "settles", "leaves",  "hands over", "saves",
};

const char *table_impossible(enum fault_kind fault, enum moment moment)
{
    if (fault == FAULT_TWIN && moment == MOMENT_FORMS)
        return "all workers say hello at one moment, and then there is a view";
    return NULL;
}

void table_add(struct table *sum, const struct table *other)
{
    uint64_t *a = (uint64_t *)sum;
    const uint64_t *b = (const uint64_t *)other;
    for (size_t i = 0; i < sizeof *sum / sizeof *a; i++)
        a[i] += b[i];
}

int table_print(const struct table *table, uint64_t least)
{
    int few = 0;
    printf("%-13s", "");
    for (int m = 0; m < MOMENTS; m++)
        printf(" %10s", moment_names[m]);
    printf("\n");
    for (int f = 0; f < FAULTS; f++) {
        printf("%-13s", fault_names[f]);
        for (int m = 0; m < MOMENTS; m++) {
            uint64_t hits = table->hits[f][m];
            bool can = !table_impossible((enum fault_kind)f, (enum moment)m);
            few += can && hits < least;
            if (can)
                printf(" %9" PRIu64 "%c", hits, hits < least ? '!' : ' ');
            else
                printf(" %10s", "-");
        }
        printf("\n");
    }
    for (int f = 0; f < FAULTS; f++)
        for (int m = 0; m < MOMENTS; m++) {
            const char *why = table_impossible((enum fault_kind)f, (enum moment)m);
            if (why)
                printf("- %s at one that %s: %s\n", fault_names[f], moment_names[m], why);
        }
    return few;
}
