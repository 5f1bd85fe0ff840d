#include "cli/data_verify.h"

#include "cli/cli.h"
#include "cli/data_progress.h"
#include "cli/number.h"
#include "cli/output.h"

#include <cjson/cJSON.h>
#include <stdio.h>

struct verification {
    size_t most, reported, broken; /* of all sets */
    bool json;
};

static void print_problem(void *user, const char *what)
{
    struct verification *v = user;
    if (v->most > 0 && v->reported == v->most)
        return;
    v->reported++;
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

static void print_json(const pl_data_verified *found)
{
    printf("{");
    if (found->set)
        printf("\"set\":\"%s\",", found->set);
    printf("\"verified\":%zu,\"broken\":%zu,\"interrupted\":%s}\n", found->done, found->broken,
           data_progress_interrupted() ? "true" : "false");
}

static void print_text(const pl_data_verified *found)
{
    printf("verified   %zu record%s%s%s%s, %zu broken%s\n", found->done,
           number_plural((double)found->done, "s"), found->set ? " of the " : "",
           found->set ? found->set : "", found->set ? " set" : "", found->broken,
           data_progress_interrupted() ? "; interrupted" : "");
}

/* Verifies one set; a status. */
static int verify_set(pl_engine *engine, const char *spec, bool training, struct verification *v,
                      pl_data_verified *found)
{
    const pl_data_check check = {.size = sizeof check, v, print_problem, data_progress_report};
    data_progress_begin();
    int rc = pl_data_verify(engine, spec, training, &check, found);
    output_finish();
    if (rc != PL_OK)
        return rc;
    v->broken += found->broken;
    if (v->json)
        print_json(found);
    else
        print_text(found);
    return rc;
}

static void print_remedies(const struct verification *v)
{
    if (v->broken > v->reported)
        output_line("%zu more problem%s not listed; --max-problems raises the limit",
                    v->broken - v->reported, number_plural((double)(v->broken - v->reported), "s"));
    if (v->reported > 0)
        output_line("repair or remove broken records, or leave them out of training: --set "
                    "on_bad_record=skip");
}

int data_verify(pl_engine *engine, const char *spec, bool training, size_t most, bool json)
{
    struct verification v = {.most = most, .json = json};
    pl_data_verified found = {0};
    int rc = verify_set(engine, spec, training, &v, &found);
    if (rc == PL_OK && found.set && !training && !data_progress_interrupted())
        rc = verify_set(engine, spec, true, &v, &found);
    int code = rc == PL_OK ? EXIT_DONE : cli_fail(engine, rc);
    print_remedies(&v);
    if (rc != PL_OK)
        return code;
    return data_progress_interrupted() ? EXIT_INTERRUPTED
           : v.broken > 0              ? EXIT_BAD_INPUT
                                       : EXIT_DONE;
}
