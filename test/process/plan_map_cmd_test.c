/* `paceline plan --map`: cells measured by training, continued from their file, interrupted, and
 * refused. */
#include "cli/json_value.h"
#include "process.h"
#include "refusal.h"

#include <inttypes.h>
#include <math.h>

#define MAP(t, ...) "plan", (t)->job, "--map", "--lr", "0.02", "--target", "0.3", __VA_ARGS__

struct row {
    unsigned workers, tau, reached;
    double steps, rounds, error, speedup;
};

static bool find_row(const char *csv, unsigned workers, unsigned tau, struct row *row)
{
    for (const char *line = strchr(csv, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        if (sscanf(line + 1, "%u,%u,%lf,%lf,%u,%lf,%lf", &row->workers, &row->tau, &row->steps,
                   &row->rounds, &row->reached, &row->error, &row->speedup) == 7 &&
            row->workers == workers && row->tau == tau)
            return true;
    }
    return false;
}

/* Steps of the first evaluation at or below 0.3, from the events of a run. */
static double steps_of_run(const struct tiny *t, const char *run)
{
    char path[256];
    double steps = 0;
    snprintf(path, sizeof path, "%s/events.jsonl", run + strlen(t->folder) + 1);
    char *events = read_file_of(t, path), *rest = NULL;
    for (char *line = strtok_r(events, "\n", &rest); line && steps == 0;
         line = strtok_r(NULL, "\n", &rest)) {
        const char *error = strstr(line, "\"error\":"), *step = strstr(line, "\"step\":");
        if (strstr(line, "\"kind\":\"eval\"") && strstr(line, "\"validation\"") && error && step &&
            strtod(error + 8, NULL) <= 0.3)
            steps = strtod(step + 7, NULL);
    }
    free(events);
    return steps;
}

/* Each cell ends at its target, where a simulation of its own of that job does; the value is
 * N_a/(τ·M_a). One worker's averages would change nothing, so its row is all 1. */
static void test_plan_map_measures_cells(void **state)
{
    struct tiny *t = *state;
    struct process p;
    struct row alone, row;
    char path[128];
    RUN(t, &p,
        MAP(t, "--workers", "1..3", "--tau", "2,8", "--every", "2", "--csv", "map.csv", "--svg",
            "map.svg", "-q"));
    assert_non_null(strstr(p.out, "one worker needs "));
    process_release(&p);
    char *csv = read_file_of(t, "map.csv"), *svg = read_file_of(t, "map.svg");
    assert_true(find_row(csv, 1, 1, &alone) && alone.reached && alone.speedup == 1);
    for (unsigned workers = 2; workers <= 3; workers++)
        for (unsigned tau = 2; tau <= 8; tau += 6) {
            assert_true(find_row(csv, workers, tau, &row));
            assert_true(row.steps == tau * row.rounds); /* a round ends with an average */
            assert_true(fabs(row.speedup - alone.steps / row.steps) < 1e-5 * row.speedup);
            assert_true(row.reached == (row.error <= 0.3));
        }
    assert_true(find_row(csv, 3, 8, &row) && row.reached);
    tiny_cluster(t, "node { count: 3 } step_seconds: 0.01 driver { speed: 1000000 }\n"
                    "link { mbit: 100000 latency_us: 1 }\n");
    RUN(t, &p, "sim", t->job, "--lr", "0.02", "--cluster", t->cluster, "--workers", "3",
        "--strategy", "sync", "--set", "strategy.sync.tau=8", "--set", "evaluate.every_steps=2",
        "--steps", "800", "--out", tiny_out(t, path), "-q");
    process_release(&p);
    assert_true(steps_of_run(t, path) == row.steps);
    assert_true(strncmp(svg, "<svg ", 5) == 0 && strstr(svg, "</svg>\n"));
    free(csv), free(svg);
}

/* A cell that is in the file is not measured again, a new one is; and other targets are refused. */
static void test_plan_map_continues_from_its_file(void **state)
{
    struct tiny *t = *state;
    struct process p;
    struct row row;
    RUN(t, &p, MAP(t, "--workers", "2", "--tau", "4", "--csv", "cells.csv", "-q"));
    process_release(&p);
    RUN(t, &p, MAP(t, "--workers", "2", "--tau", "4,8", "--csv", "cells.csv"));
    assert_null(strstr(p.err, "K 2, tau 4:"));
    assert_non_null(strstr(p.err, "K 2, tau 8:"));
    process_release(&p);
    char *csv = read_file_of(t, "cells.csv");
    assert_true(find_row(csv, 1, 1, &row) && find_row(csv, 2, 4, &row) &&
                find_row(csv, 2, 8, &row));
    free(csv);
    REFUSED(t, "cells.csv:2: is of another job, target or --every",
            MAP(t, "--tau", "4", "--every", "5", "--csv", "cells.csv"));
    REFUSED(t, "is of another job", MAP(t, "--tau", "4", "--csv", "cells.csv", "--batch", "8"));
    tiny_write(t, "torn.csv",
               "workers,tau,steps,rounds,reached,error,speedup,target,every,job\n1,1,40,4");
    REFUSED(t, "torn.csv:2: expected a row", MAP(t, "--tau", "4", "--csv", "torn.csv"));
}

/* One object on stdout, which says what the file and the tables do. */
static void test_plan_map_prints_json(void **state)
{
    struct tiny *t = *state;
    struct process p;
    struct row row;
    RUN(t, &p,
        MAP(t, "--workers", "1,2", "--tau", "4", "--exchange", "0,4", "--csv", "json.csv", "--json",
            "-q"));
    cJSON *o = cJSON_Parse(p.out);
    assert_non_null(o);
    char *csv = read_file_of(t, "json.csv");
    assert_true(find_row(csv, 1, 1, &row));
    assert_true(json_number(o, "steps_alone") == row.steps && json_number(o, "target") == 0.3);
    assert_string_equal(json_text(o, "set"), "validation");
    assert_true(find_row(csv, 2, 4, &row));
    const cJSON *cells = cJSON_GetObjectItem(o, "cells"), *cell = cJSON_GetArrayItem(cells, 1);
    const cJSON *speedup = cJSON_GetObjectItem(cell, "speedup");
    assert_int_equal(cJSON_GetArraySize(cells), 2);
    assert_true(json_number(cell, "workers") == 2 && json_number(cell, "tau") == 4);
    assert_true(json_number(cell, "steps") == row.steps && row.steps == 4 * row.rounds);
    assert_true(json_number(cell, "rounds") == row.rounds);
    double plain = cJSON_GetArrayItem(speedup, 0)->valuedouble;
    double slow = cJSON_GetArrayItem(speedup, 1)->valuedouble;
    assert_true(fabs(plain / row.speedup - 1) < 1e-5 && fabs(slow / plain - 0.5) < 1e-9);
    const cJSON *verdict = cJSON_GetArrayItem(cJSON_GetObjectItem(o, "comparisons"), 1);
    assert_true(json_number(verdict, "exchange") == 4 && json_number(verdict, "workers") == 2);
    assert_true(fabs(json_number(verdict, "dividing") - 1 / 4.5) < 1e-9);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(o, "interrupted")));
    cJSON_Delete(o), free(csv);
    process_release(&p);
}

/* Its simulations end with it, and their files are gone. */
static void test_plan_map_ends_on_interrupt(void **state)
{
    struct tiny *t = *state;
    struct process p;
    pid_t child[PROCESS_CHILDREN_MAX];
    const char *const argv[] = {MAP(t, "--lr", "1e-12", "--limit", "1000000", "-q"), NULL};
    char folder[128];
    snprintf(folder, sizeof folder, "%s/scratch", t->folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    setenv("TMPDIR", folder, 1);
    process_start(&p, t->folder, argv);
    unsetenv("TMPDIR");
    double until = process_now() + REFUSAL_LIMIT_S;
    while (process_children(p.pid, child) == 0 && process_now() < until)
        process_nap(0.02);
    assert_true(process_children(p.pid, child) > 0);
    kill(p.pid, SIGINT);
    process_wait(&p, REFUSAL_LIMIT_S);
    assert_int_equal(p.code, 130);
    assert_false(process_is_alive(child[0]));
    assert_int_equal(rmdir(folder), 0); /* it is empty */
    process_release(&p);
}

static void test_plan_map_refuses_bad_input(void **state)
{
    struct tiny *t = *state;
    REFUSED(t, "--target ERROR is missing", "plan", t->job, "--map");
    REFUSED(t, "--target: expected a number from 1e-06 to 1", "plan", t->job, "--map", "--target",
            "2");
    REFUSED(t, "--workers: expected up to 32 rising", MAP(t, "--workers", "3..1"));
    REFUSED(t, "--tau: expected up to 32 rising", MAP(t, "--tau", "5,2"));
    REFUSED(t, "--exchange: expected", MAP(t, "--exchange", "1,-1"));
    REFUSED(t, "--every: expected a whole number", MAP(t, "--every", "1.5"));
    REFUSED(t, "the job sets global_batch", MAP(t, "--unset", "batch", "--set", "global_batch=64"));
    REFUSED(t, "net.prototxt exists", MAP(t, "--csv", "net.prototxt"));
    REFUSED(t, "no/images", MAP(t, "--set", "train_data.idx.images=no/images"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_map_measures_cells),
        cmocka_unit_test(test_plan_map_continues_from_its_file),
        cmocka_unit_test(test_plan_map_prints_json),
        cmocka_unit_test(test_plan_map_ends_on_interrupt),
        cmocka_unit_test(test_plan_map_refuses_bad_input),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
