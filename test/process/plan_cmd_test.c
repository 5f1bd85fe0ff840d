/* `paceline plan`: its table and its JSON for a job and a cluster file, the measured step, the rows
 * that it simulates, and its refusals. */
#include "free_port.h"
#include "process.h"
#include "real_run.h"
#include "refusal.h"

#include <cjson/cJSON.h>
#include <math.h>

static const char stated[] = "node { count: 3 } step_seconds: 0.004\n"
                             "link { mbit: 100 latency_us: 100 }\n";
static const char measured[] = "node { count: 2 } link { mbit: 1000 }\n";
static const char slow[] = "node { count: 3 } step_seconds: 0.001 link { mbit: 0.01 }\n";

static const cJSON *item_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);
    if (!item)
        fail_msg("no `%s`", key);
    return item;
}

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = item_of(object, key);
    if (!cJSON_IsNumber(item))
        fail_msg("`%s` is not a number", key);
    return item->valuedouble;
}

static const char *text_of(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(item_of(object, key));
}

/* The row of that strategy and number of workers; NULL: there is none. */
static const cJSON *row_of(const cJSON *plan, const char *strategy, int workers)
{
    const cJSON *row;
    cJSON_ArrayForEach(row, item_of(plan, "rows"))
    {
        if (strcmp(text_of(row, "strategy"), strategy) == 0 && number_of(row, "workers") == workers)
            return row;
    }
    return NULL;
}

static cJSON *plan_of(const struct tiny *t, const char *const *argv)
{
    struct process p;
    run_command(t, &p, argv);
    cJSON *plan = cJSON_Parse(p.out);
    if (!plan)
        fail_msg("no JSON: %s", p.out);
    process_release(&p);
    return plan;
}

#define PLAN(t, ...)                                                                        \
    plan_of(t, (const char *const[]){"plan", (t)->job, "--cluster", (t)->cluster, "--json", \
                                     __VA_ARGS__, NULL})

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* 540 records are trained on; a worker takes 16 in 4 ms. */
static void test_plan_with_a_stated_step(void **state)
{
    struct tiny *t = *state;
    tiny_cluster(t, stated);
    cJSON *plan = PLAN(t, "--price", "3.6");
    assert_true(number_of(plan, "records") == 540);
    const cJSON *one = row_of(plan, "single", 1), *sync = row_of(plan, "sync", 3);
    assert_true(one && sync && row_of(plan, "allreduce", 2) && row_of(plan, "diloco", 3));
    assert_null(row_of(plan, "sync", 1));
    assert_true(is_near(number_of(one, "samples_per_s"), 16 / 0.004));
    assert_true(is_near(number_of(one, "epoch_s"), 540 * 0.004 / 16));
    assert_true(is_near(number_of(one, "epoch_cost"), 540 * 0.004 / 16 * 0.001));
    assert_true(number_of(one, "utilisation") == 1 && number_of(one, "worker_bytes") == 0);
    assert_string_equal(text_of(one, "step_from"), "stated");
    assert_string_equal(text_of(plan, "others_from"), "modelled");
    /* The job's own τ of 4, not the default of 50. */
    double round = number_of(sync, "round_s");
    assert_true(number_of(sync, "round_steps") == 4 && round > 4 * 0.004);
    assert_true(is_near(number_of(sync, "exchange_s"), round - 4 * 0.004));
    assert_true(is_near(number_of(sync, "samples_per_s"), 3 * 4 * 16 / round));
    assert_true(is_near(number_of(sync, "epoch_cost"), 3 * number_of(sync, "epoch_s") * 0.001));
    assert_true(number_of(sync, "worker_memory") > 0 && number_of(sync, "driver_bytes") > 0);
    cJSON_Delete(plan);
}

/* Each strategy is in the table, or a line says that it is not. */
static void test_plan_names_what_it_leaves_out(void **state)
{
    struct tiny *t = *state;
    static const char *const strategies[] = {
        "sync", "allreduce", "async_allreduce", "ps",    "easgd", "downpour",
        "mpca", "pace",      "gossip",          "diloco"};
    char notes[4096] = "";
    tiny_cluster(t, stated);
    cJSON *plan = PLAN(t, "--workers", "2");
    const cJSON *note;
    cJSON_ArrayForEach(note, item_of(plan, "notes"))
    {
        strncat(notes, cJSON_GetStringValue(note), sizeof notes - strlen(notes) - 1);
    }
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        if (!row_of(plan, strategies[i], 2) && !strstr(notes, strategies[i]))
            fail_msg("%s is neither in the table nor in a line: %s", strategies[i], notes);
    assert_true(cJSON_IsNull(item_of(plan, "single")));
    cJSON_Delete(plan);
}

/* A step is measured at each batch that a worker gets of a global batch. */
static void test_plan_with_a_measured_step(void **state)
{
    struct tiny *t = *state;
    tiny_cluster(t, measured);
    cJSON *plan = PLAN(t, "--unset", "batch", "--set", "global_batch=64");
    const cJSON *one = row_of(plan, "single", 1), *two = row_of(plan, "allreduce", 2);
    assert_true(one && two);
    assert_true(number_of(one, "batch") == 64 && number_of(two, "batch") == 32);
    assert_string_equal(text_of(two, "step_from"), "measured");
    assert_true(number_of(one, "step_s") > number_of(two, "step_s"));
    assert_true(number_of(two, "step_s") > 0);
    cJSON_Delete(plan);
    tiny_cluster(t, stated);
    plan = PLAN(t, "--unset", "batch", "--set", "global_batch=64");
    /* The file states the step of the job's four workers, which get 16 records each; of three one
     * gets 22, and all of them 64. */
    assert_string_equal(text_of(row_of(plan, "single", 1), "step_from"), "scaled");
    assert_true(number_of(row_of(plan, "single", 1), "step_s") > 0.004);
    const cJSON *three = row_of(plan, "allreduce", 3);
    assert_true(three && number_of(three, "batch") == 22);
    assert_true(is_near(number_of(three, "samples_per_s"), 64 / number_of(three, "round_s")));
    cJSON_Delete(plan);
    plan = PLAN(t, "--unset", "batch", "--set", "batch_growth={first:48 last:480 epochs:2}");
    assert_true(number_of(row_of(plan, "sync", 3), "batch") == 16);
    const cJSON *note;
    cJSON_ArrayForEach(note, item_of(plan, "notes"))
    {
        if (strstr(cJSON_GetStringValue(note),
                   "batch_growth: all rows are for its first batch, 48"))
            break;
    }
    assert_non_null(note);
    cJSON_Delete(plan);
}

/* The table ends with the best row, and with whether several machines are worth it. */
static void test_plan_reports_one_faster_machine(void **state)
{
    struct tiny *t = *state;
    struct process p;
    tiny_cluster(t, slow);
    RUN(t, &p, "plan", t->job, "--cluster", t->cluster, "--workers", "1..3");
    assert_non_null(strstr(p.out, "single"));
    assert_non_null(strstr(p.out, "step =: stated by the cluster file\n"));
    assert_non_null(strstr(p.out, "all other numbers: modelled"));
    assert_non_null(strstr(p.out, "best: single with 1 worker, 16000 samples/s"));
    assert_non_null(strstr(p.out, "one machine is faster: "));
    process_release(&p);
}

/* ---- as a drawing ---- */

/* Every element that begins ends, in order. Returns how many there are. */
static int check_elements(const char *text)
{
    char open[8][32], name[32];
    int depth = 0, count = 0;
    for (const char *at = strchr(text, '<'); at; at = strchr(at + 1, '<')) {
        const char *end = strchr(at, '>');
        assert_true(end && depth < 8);
        size_t n = strcspn(at + 1, " />");
        if (at[1] == '/') {
            n = (size_t)(end - at - 2);
            assert_true(depth > 0 && strlen(open[--depth]) == n &&
                        strncmp(open[depth], at + 2, n) == 0);
            continue;
        }
        count++;
        snprintf(name, sizeof name, "%.*s", (int)n, at + 1);
        if (end[-1] != '/')
            memcpy(open[depth++], name, sizeof name);
    }
    assert_int_equal(depth, 0);
    return count;
}

/* The point of a row. */
static void find_point(const char *svg, const cJSON *row, double *x, double *y)
{
    char title[128];
    int workers = (int)number_of(row, "workers");
    snprintf(title, sizeof title, "><title>%s, %d worker%s: %.0f samples/s predicted</title>",
             text_of(row, "strategy"), workers, workers == 1 ? "" : "s",
             number_of(row, "samples_per_s"));
    const char *at = strstr(svg, title);
    if (!at)
        fail_msg("no point %s", title);
    while (at > svg && *at != '<')
        at--;
    if (sscanf(strstr(at, "cx="), "cx=\"%lf\" cy=\"%lf\"", x, y) != 2)
        fail_msg("no place: %.80s", at);
}

/* Points lie where their rows' workers and samples/s are on two linear axes. */
static void test_plan_draws_its_rows(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char path[128], svg[32768] = "";
    double x[2], y[2], at_x, at_y;
    tiny_cluster(t, stated);
    snprintf(path, sizeof path, "%s/plan.svg", t->folder);
    cJSON *plan = PLAN(t, "--svg", path);
    FILE *f = fopen(path, "rb");
    assert_true(f && fread(svg, 1, sizeof svg - 1, f) > 0 && feof(f));
    fclose(f);
    const cJSON *row, *rows = item_of(plan, "rows"), *ps = row_of(plan, "ps", 3);
    assert_true(check_elements(svg) > cJSON_GetArraySize(rows));
    assert_non_null(strstr(svg, ">workers</text>"));
    assert_non_null(strstr(svg, ">samples/s of all workers</text>"));
    find_point(svg, cJSON_GetArrayItem(rows, 0), &x[0], &y[0]);
    find_point(svg, ps, &x[1], &y[1]);
    double first = number_of(cJSON_GetArrayItem(rows, 0), "samples_per_s");
    double per_sample = (y[1] - y[0]) / (number_of(ps, "samples_per_s") - first);
    assert_true(per_sample < 0 && x[1] > x[0]);
    cJSON_ArrayForEach(row, rows)
    {
        find_point(svg, row, &at_x, &at_y);
        double right = (number_of(row, "workers") - 1) / 2;
        assert_true(fabs(at_x - x[0] - right * (x[1] - x[0])) <= 0.11);
        assert_true(fabs(at_y - y[0] - per_sample * (number_of(row, "samples_per_s") - first)) <
                    0.5);
        char label[64];
        snprintf(label, sizeof label, ">%s</text>", text_of(row, "strategy"));
        assert_non_null(strstr(svg, label)); /* of the legend */
    }
    cJSON_Delete(plan);
    RUN(t, &p, "plan", t->job, "--cluster", t->cluster, "--svg", path); /* its own file */
    process_release(&p);
}

/* ---- rows that are simulated ---- */

/* The trial is the run that `sim` makes of one second. */
static void check_against_sim(struct tiny *t, const cJSON *trial, const char *strategy,
                              const char *workers)
{
    struct process p;
    char out[128];
    RUN(t, &p, "sim", t->job, "--cluster", t->cluster, "--workers", workers, "--strategy", strategy,
        "--set", "stop={seconds:1 epochs:100}", "--out", tiny_out(t, out), "--json", "--quiet");
    cJSON *end = cJSON_Parse(p.out);
    double loss = number_of(trial, "loss"), whole = number_of(end, "test_loss");
    assert_true(whole > 0 && fabs(loss - whole) < 1e-6 * whole);
    assert_true(fabs(number_of(trial, "error") - number_of(end, "test_error")) < 1e-6);
    cJSON_Delete(end);
    process_release(&p);
}

/* One machine alone and three strategies are simulated; each is within the bar for predictions, and
 * is the run that `sim` makes of the same seconds. */
static void test_plan_simulates_the_best_rows(void **state)
{
    struct tiny *t = *state;
    char workers[16];
    tiny_cluster(t, stated);
    cJSON *plan = PLAN(t, "--simulate", "1", "--set", "stop.epochs=100", "--quiet");
    const cJSON *row, *diloco = NULL, *single = NULL;
    int simulated = 0;
    cJSON_ArrayForEach(row, item_of(plan, "rows"))
    {
        const cJSON *trial = cJSON_GetObjectItem(row, "simulated");
        if (!trial)
            continue;
        simulated++;
        double off = number_of(trial, "prediction_off");
        if (fabs(off) > 0.10)
            fail_msg("%s: the prediction is off by %.3f", text_of(row, "strategy"), off);
        assert_true(is_near(number_of(row, "samples_per_s"),
                            number_of(trial, "samples_per_s") * (1 + off)));
        assert_string_equal(text_of(trial, "set"), "test");
        assert_true(number_of(trial, "error") >= 0 && number_of(trial, "error") <= 1);
        assert_true(number_of(trial, "at_s") > 0.98 && number_of(trial, "at_s") < 1.5);
        single = number_of(row, "workers") == 1 ? trial : single;
        if (strcmp(text_of(row, "strategy"), "diloco") == 0) {
            diloco = trial;
            snprintf(workers, sizeof workers, "%.0f", number_of(row, "workers"));
        }
    }
    assert_true(simulated == 4 && single && diloco);
    assert_true(number_of(plan, "simulated_s") == 1 && cJSON_IsFalse(item_of(plan, "interrupted")));
    check_against_sim(t, diloco, "diloco", workers);
    check_against_sim(t, single, "single", "1");
    cJSON_Delete(plan);
}

/* The table says what was simulated, and that the limit of time has shortened it. */
static void test_plan_shortens_long_simulations(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char runs[128];
    tiny_cluster(t, stated);
    RUN(t, &p, "plan", t->job, "--cluster", t->cluster, "--simulate", "1e6", "--simulate-limit",
        "0.5", "--workers", "1..2", "--set", "stop.epochs=1e9");
    assert_non_null(strstr(p.out, "simulated /s"));
    assert_non_null(strstr(p.out, "error and loss: of the simulated model at the virtual time"));
    assert_non_null(strstr(p.out, " s in place of 1e+06 s, which would take about "));
    snprintf(runs, sizeof runs, "%s/runs", t->folder);
    assert_true(access(runs, F_OK) != 0); /* nothing is kept */
    process_release(&p);
}

static bool has_printed(const struct process *p, const char *text)
{
    char *err = process_output(p->err_fd);
    bool has = strstr(err, text);
    free(err);
    return has;
}

/* Ctrl-C ends the simulations, and the plan is printed as far as it is known. */
static void test_plan_is_interrupted(void **state)
{
    struct tiny *t = *state;
    struct process p;
    tiny_cluster(t, stated);
    const char *const argv[] = {"plan",
                                t->job,
                                "--cluster",
                                t->cluster,
                                "--simulate",
                                "1e6",
                                "--simulate-limit",
                                "1e6",
                                "--workers",
                                "1..2",
                                "--set",
                                "stop.epochs=1e9",
                                "--json",
                                "--progress",
                                "0.05",
                                NULL};
    process_start(&p, t->folder, argv);
    UNTIL(REAL_LIMIT_S, process_poll(&p) || has_printed(&p, "simulating "));
    kill(p.pid, SIGINT);
    process_wait(&p, REAL_LIMIT_S);
    assert_int_equal(p.code, 130);
    assert_non_null(strstr(p.err, "interrupted: ends at the next exchange"));
    cJSON *plan = cJSON_Parse(p.out);
    assert_true(plan && cJSON_IsTrue(item_of(plan, "interrupted")));
    assert_non_null(row_of(plan, "sync", 2));
    cJSON_Delete(plan);
    process_release(&p);
}

/* A row that cannot be simulated is a line. */
static void test_plan_names_failed_simulations(void **state)
{
    struct tiny *t = *state;
    struct process p;
    tiny_cluster(t, "node { count: 2 } step_seconds: 0.004 fault { at: 0.1 kill: -1 for: 1 }\n");
    RUN(t, &p, "plan", t->job, "--cluster", t->cluster, "--simulate", "0.1");
    assert_non_null(strstr(p.out, "single with 1 worker: not simulated: fault[0].kill: a driver "
                                  "returns from the files of its run"));
    assert_null(strstr(p.out, "simulated /s"));
    process_release(&p);
}

/* Two workers are started by hand; what was measured of them serves a later plan. Two of their
 * steps take an epoch of the records, and a survey takes more. */
static void test_plan_measures_machines(void **state)
{
    struct tiny *t = *state;
    struct process p, worker[2];
    char address[PORT_TEXT];
    port_find(address);
    const char *const argv[] = {"plan",   t->job,   "--listen",    address,  "--workers",
                                "1..2",   "--emit", "new.cluster", "--wait", "60",
                                "--json", "--set",  "batch=256",   NULL};
    const char *const work[] = {"worker", "--join", address, "--threads", "1", NULL};
    process_start(&p, t->folder, argv);
    for (int i = 0; i < 2; i++)
        process_start(&worker[i], t->folder, work);
    process_wait(&p, REAL_LIMIT_S);
    if (p.code != 0)
        fail_msg("exit %d: %s", p.code, p.err);
    for (int i = 0; i < 2; i++) {
        process_wait(&worker[i], REAL_LIMIT_S);
        assert_int_equal(worker[i].code, 0);
        process_release(&worker[i]);
    }
    assert_non_null(strstr(p.err, "ms a step, link "));
    cJSON *plan = cJSON_Parse(p.out);
    const cJSON *two = row_of(plan, "sync", 2);
    assert_true(two && row_of(plan, "single", 1) && number_of(two, "step_s") > 0);
    assert_string_equal(text_of(two, "step_from"), "surveyed");
    cJSON *again = plan_of(t, (const char *const[]){"plan", t->job, "--cluster", "new.cluster",
                                                    "--json", "--set", "batch=256", NULL});
    const cJSON *same = row_of(again, "sync", 2);
    assert_true(fabs(number_of(same, "round_s") / number_of(two, "round_s") - 1) < 1e-3);
    assert_string_equal(text_of(same, "step_from"), "stated");
    cJSON_Delete(again);
    cJSON_Delete(plan);
    process_release(&p);
}

/* A survey without its workers ends by a name, and leaves no file. */
static void test_plan_waits_for_machines_in_vain(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char address[PORT_TEXT], path[256];
    port_find(address);
    const char *const argv[] = {"plan",   t->job,         "--listen", address, "--workers", "2",
                                "--emit", "late.cluster", "--wait",   "0.5",   NULL};
    process_start(&p, t->folder, argv);
    process_wait(&p, REAL_LIMIT_S);
    assert_int_equal(p.code, 1);
    assert_non_null(strstr(p.err, "worker"));
    snprintf(path, sizeof path, "%s/late.cluster", t->folder);
    assert_int_not_equal(access(path, F_OK), 0);
    process_release(&p);
}

static void test_plan_refuses_bad_input(void **state)
{
    struct tiny *t = *state;
    tiny_cluster(t, stated);
    REFUSED(t, "give one of --cluster FILE and --listen ADDR", "plan", t->job);
    REFUSED(t, "give one of --cluster FILE and --listen ADDR", "plan", t->job, "--cluster",
            t->cluster, "--listen", "127.0.0.1");
    REFUSED(t, "--emit is of a survey: give --listen ADDR", "plan", t->job, "--cluster", t->cluster,
            "--emit", "new.cluster");
    REFUSED(t, "--emit: net.prototxt exists: name a new file", "plan", t->job, "--listen",
            "127.0.0.1", "--emit", "net.prototxt");
    REFUSED(t, "--wait: expected a number", "plan", t->job, "--listen", "127.0.0.1", "--wait",
            "no");
    REFUSED(t, "beyond this host a key is required", "plan", t->job, "--listen", "0.0.0.0:0");
    REFUSED(t, "none.cluster", "plan", t->job, "--cluster", "none.cluster");
    REFUSED(t, "--workers: expected numbers from 1 to 1024 as 8 or 1..8, not 3..1", "plan", t->job,
            "--cluster", t->cluster, "--workers", "3..1");
    REFUSED(t, "--workers: expected", "plan", t->job, "--cluster", t->cluster, "--workers", "two");
    REFUSED(t, "the cluster has 3 nodes; write 1..3", "plan", t->job, "--cluster", t->cluster,
            "--workers", "1..4");
    REFUSED(t, "--simulate: expected a number", "plan", t->job, "--cluster", t->cluster,
            "--simulate", "0");
    REFUSED(t, "--simulate-limit is of a simulation", "plan", t->job, "--cluster", t->cluster,
            "--simulate-limit", "9");
    REFUSED(t, "--price: expected a number", "plan", t->job, "--cluster", t->cluster, "--price",
            "-1");
    REFUSED(t, "--svg: net.prototxt exists and is no file of this command", "plan", t->job,
            "--cluster", t->cluster, "--svg", "net.prototxt");
    REFUSED(t, "--svg: none/plan.svg: No such file", "plan", t->job, "--cluster", t->cluster,
            "--svg", "none/plan.svg");
    tiny_cluster(t, "node { count: 2 speed: 0 } step_seconds: 0.004\n");
    REFUSED(t, "node[0].speed", "plan", t->job, "--cluster", t->cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_with_a_stated_step),
        cmocka_unit_test(test_plan_names_what_it_leaves_out),
        cmocka_unit_test(test_plan_with_a_measured_step),
        cmocka_unit_test(test_plan_reports_one_faster_machine),
        cmocka_unit_test(test_plan_draws_its_rows),
        cmocka_unit_test(test_plan_simulates_the_best_rows),
        cmocka_unit_test(test_plan_shortens_long_simulations),
        cmocka_unit_test(test_plan_is_interrupted),
        cmocka_unit_test(test_plan_names_failed_simulations),
        cmocka_unit_test(test_plan_measures_machines),
        cmocka_unit_test(test_plan_waits_for_machines_in_vain),
        cmocka_unit_test(test_plan_refuses_bad_input),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
