/* Linked into a second copy of the command: at each evaluation of a simulated run's joint model, a
 * line with its error on the test set and with each worker's own, added to the file that
 * PACELINE_OWN_MODELS names. bench/bn_strategies.py runs it. */
#include "own_models.h"

#include <stdio.h>

static void own_judged(const struct own_judged *judged)
{
    const char *path = getenv("PACELINE_OWN_MODELS");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f)
        return;
    fprintf(f, "{\"step\":%llu,\"joint\":%.6f,\"own\":[", (unsigned long long)judged->step,
            judged->error);
    const char *comma = "";
    for (size_t i = 0; i < OWN_WORKERS_MAX; i++) {
        if (isnan(judged->own_error[i]))
            continue;
        fprintf(f, "%s%.6f", comma, judged->own_error[i]);
        comma = ",";
    }
    fprintf(f, "]}\n");
    fclose(f);
}
