/* Resuming a run as a user does it: `paceline resume DIR`, the fields that may be changed, and the
 * owner of the directory. */
#include "real_run.h"
#include "refusal.h"

/* ---- whose the directory is ---- */

enum { AT_ONCE = 8 };

/* Of eight runs that start at the same moment each has a directory of its own. */
static void test_runs_started_at_once_share_no_directory(void **state)
{
    struct tiny *t = *state;
    struct process p[AT_ONCE];
    char dir[128];
    for (int i = 0; i < AT_ONCE; i++)
        process_start(&p[i], t->folder,
                      (const char *const[]){"train", t->job, "--json", "--set", "workers=1",
                                            "--set", "stop={steps: 3}", NULL});
    for (int i = 0; i < AT_ONCE; i++) {
        process_wait(&p[i], REAL_LIMIT_S);
        if (p[i].code != 0)
            fail_msg("code %d: %s", p[i].code, p[i].err);
        process_release(&p[i]);
    }
    for (int i = 1; i <= AT_ONCE; i++) {
        snprintf(dir, sizeof dir, "%s/runs/tiny-%03d", t->folder, i);
        assert_int_equal(run_count(dir, "start", NULL, NULL), 1);
        assert_int_equal(run_count(dir, "end", NULL, NULL), 1);
    }
}

/* One of several commands gets a given directory; the others are refused. */
static void test_one_directory_is_one_runs(void **state)
{
    struct tiny *t = *state;
    struct process p[AT_ONCE];
    struct real_run r = real_new(t);
    int ended = 0;
    for (int i = 0; i < AT_ONCE; i++)
        process_start(&p[i], t->folder,
                      (const char *const[]){"train", t->job, "--json", "--out", r.dir, "--set",
                                            "workers=1", "--set", "stop={steps: 3}", NULL});
    for (int i = 0; i < AT_ONCE; i++) {
        process_wait(&p[i], REAL_LIMIT_S);
        ended += p[i].code == 0;
        if (p[i].code != 0 && (p[i].code != 2 || !strstr(p[i].err, r.dir)))
            fail_msg("code %d: %s", p[i].code, p[i].err);
        process_release(&p[i]);
    }
    assert_int_equal(ended, 1);
    assert_int_equal(run_count(r.dir, "start", NULL, NULL), 1);
    assert_int_equal(run_count(r.dir, "end", NULL, NULL), 1);
}

/* A run with a live driver is not taken over, unless the user requests it. */
static void test_a_living_driver_is_left_alone(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    struct process second;
    char phrase[256];
    const char *argv[] = {"train", t->job, "--json", "--resume",
                          "--out", r.dir,  "--set",  "stop.epochs=100000",
                          NULL,    NULL};
    START(t, &r, "--set", "stop.epochs=100000");
    UNTIL(REAL_LIMIT_S, process_poll(&r.p) || real_exchanges(&r) >= 3);
    process_start(&second, t->folder, argv);
    process_wait(&second, REAL_LIMIT_S);
    snprintf(phrase, sizeof phrase, "%s: its driver is alive (process %ld on host ", r.dir,
             (long)r.p.pid);
    if (second.code != 2 || !strstr(second.err, phrase) || !strstr(second.err, "--take-over"))
        fail_msg("code %d, expected %s: %s", second.code, phrase, second.err);
    process_release(&second);
    const char *other[] = {"resume", r.dir, "--take-over", "--set", "batch=8", NULL};
    process_start(&second, t->folder, other);
    process_wait(&second, REAL_LIMIT_S);
    if (second.code != 2 || !strstr(second.err, "--force-change allows it") ||
        strstr(second.err, "taken over"))
        fail_msg("code %d: %s", second.code, second.err);
    process_release(&second);
    process_start(&second, t->folder, argv); /* it is still the first one's */
    process_wait(&second, REAL_LIMIT_S);
    if (second.code != 2 || !strstr(second.err, phrase))
        fail_msg("code %d, expected %s: %s", second.code, phrase, second.err);
    process_release(&second);
    char lock[256];
    snprintf(lock, sizeof lock, "%s/driver.lock", r.dir);
    assert_int_equal(unlink(lock), 0); /* as one leaves it that took it, and gave up */
    UNTIL(REAL_LIMIT_S, process_poll(&r.p) || access(lock, F_OK) == 0);
    int printed = real_exchanges(&r);
    UNTIL(REAL_LIMIT_S, process_poll(&r.p) || real_exchanges(&r) >= printed + 3);
    assert_false(process_poll(&r.p));
    argv[8] = "--take-over";
    process_start(&second, t->folder, argv);
    process_wait(&r.p, REAL_LIMIT_S);
    assert_non_null(strstr(r.p.err, "a later driver has taken this run over"));
    assert_false(process_poll(&second));
    process_release(&r.p);
    process_release(&second);
}

/* ---- the run's own job ---- */

static char *job_of(const struct real_run *r, const char *name)
{
    char path[256];
    struct file_bytes bytes;
    struct err err = {0};
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    if (file_read(path, 1 << 20, &bytes, &err) != OK)
        return NULL;
    char *text = strdup((char *)bytes.data);
    file_release(&bytes);
    return text;
}

static void resume_run(struct tiny *t, struct real_run *r, const char *const *more)
{
    const char *argv[PROCESS_ARGS_MAX] = {"resume", r->dir, "--json"};
    for (size_t n = 3; *more; n++)
        argv[n] = *more++;
    process_release(&r->p);
    process_start(&r->p, t->folder, argv);
}

#define RESUME(t, r, ...) resume_run(t, r, (const char *const[]){__VA_ARGS__, NULL})

static void expect_output(const struct real_run *r, const char *phrase, bool text)
{
    if ((strstr(r->p.err, phrase) != NULL) != text)
        fail_msg("%s \"%s\"; it said:\n%s", text ? "expected" : "not expected", phrase, r->p.err);
}

/* A run by mpca at half the job's rate, ended after one epoch. */
static struct real_run half_a_run(struct tiny *t)
{
    struct real_run r = real_new(t);
    START(t, &r, "--strategy", "mpca", "--workers", "2", "--set", "solver.base_lr=0.025", "--set",
          "stop.epochs=1");
    real_end(&r, 0, "epochs");
    return r;
}

static void test_resume_takes_the_runs_own_job(void **state)
{
    struct tiny *t = *state;
    struct real_run r = half_a_run(t);
    char *before = job_of(&r, "job.prototxt"), *now;
    RESUME(t, &r, "--set", "stop.epochs=12");
    real_end(&r, 0, "epochs");
    expect_output(&r, "stop.epochs: 1 \u2192 12\n", true);
    expect_output(&r, "resumes after exchange", true);
    expect_output(&r, "base_lr", false);
    expect_output(&r, "strategy: ", false);
    cJSON *start = run_event(r.dir, "start", NULL, NULL, 1);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(start, "strategy")), "mpca");
    cJSON_Delete(start);
    assert_true(run_number(r.dir, "end", 1, "epochs") >= 12);
    assert_true(run_number(r.dir, "start", 1, "t") >= run_number(r.dir, "end", 0, "t"));
    assert_true(run_number(r.dir, "end", 1, "wall_s") > run_number(r.dir, "end", 0, "wall_s"));
    now = job_of(&r, "job.1.prototxt");
    assert_string_equal(now, before); /* the run's files are unchanged */
    free(now);
    now = job_of(&r, "job.prototxt");
    assert_non_null(strstr(now, "epochs: 12\n"));
    assert_non_null(strstr(now, "base_lr: 0.025\n"));
    free(now);
    assert_null(job_of(&r, "job.2.prototxt"));
    /* Leases may take a run beyond its epochs. */
    RESUME(t, &r, "--epochs", "30", "--lr", "0.01", "--workers", "1");
    real_end(&r, 0, "epochs");
    expect_output(&r, "solver.base_lr: 0.025 \u2192 0.01\n", true);
    expect_output(&r, "workers: 2 \u2192 1\n", true);
    now = job_of(&r, "job.2.prototxt");
    assert_non_null(now);
    free(now);
    free(before);
    process_release(&r.p);
}

/* Refused by name, with what allows it, and nothing is changed. */
static void test_resume_refuses_what_makes_another_run(void **state)
{
    struct tiny *t = *state;
    struct real_run r = half_a_run(t);
    static const char *const changes[][2] = {
        {"net.zoo=lenet", "net: file "},
        {"seed=7", "seed: 1 \u2192 7"},
        {"batch=8", "batch: 16 \u2192 8"},
        {"strategy.sync={}", "strategy: mpca \u2192 sync"},
        {"train_data.scale=1", "train_data.scale: 0.00390625 \u2192 1"},
        {"solver.type=Adam", "solver.type: \"SGD\" \u2192 \"Adam\""},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        REFUSED(t, changes[i][1], "resume", r.dir, "--set", changes[i][0]);
        REFUSED(t, "--force-change allows it", "resume", r.dir, "--set", changes[i][0]);
    }
    REFUSED(t, "strategy: mpca \u2192 sync", "train", t->job, "--resume", "--out", r.dir);
    REFUSED(t, "solver.base_lr: 0.025 \u2192 0.05", "train", t->job, "--resume", "--out", r.dir);
    RESUME(t, &r, "--set", "strategy.sync={tau:4}", "--set", "stop.epochs=2", "--force-change");
    real_end(&r, 0, "epochs");
    expect_output(&r, "strategy: mpca \u2192 sync\n", true);
    process_release(&r.p);
}

/* ---- a model that is not where it belongs ---- */

static void file_of(const struct real_run *r, const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", r->dir, name);
}

static void remove_checkpoints(const struct real_run *r)
{
    char path[3][512];
    for (int n = run_checkpoints(r->dir, path); n-- > 0;)
        assert_int_equal(unlink(path[n]), 0);
}

/* As after a run with a full directory: its model is elsewhere, and its end names the file. */
static void put_model_elsewhere(const struct tiny *t, const struct real_run *r, char there[256])
{
    char final[256], events[256];
    file_of(r, "final.safetensors", final);
    file_of(r, "events.jsonl", events);
    snprintf(there, 256, "%s/elsewhere.safetensors", t->folder);
    remove_checkpoints(r);
    assert_int_equal(rename(final, there), 0);
    FILE *f = fopen(events, "a");
    assert_non_null(f);
    fprintf(f, "{\"t\":1,\"kind\":\"end\",\"reason\":\"epochs\",\"model\":\"%s\"}\n", there);
    fclose(f);
}

/* The run does not start over: its model is read from there, and moved to the directory. */
static void test_resume_takes_up_a_model_elsewhere(void **state)
{
    struct tiny *t = *state;
    struct real_run r = half_a_run(t);
    char there[256], away[300];
    double used = run_number(r.dir, "end", 0, "used");
    put_model_elsewhere(t, &r, there);
    snprintf(away, sizeof away, "%s.away", there);
    assert_int_equal(rename(there, away), 0);
    REFUSED(t, there, "resume", r.dir);
    REFUSED(t, "copy it to ", "resume", r.dir);
    assert_int_equal(rename(away, there), 0);
    RESUME(t, &r, "--seed", "1");
    real_end(&r, 0, "epochs");
    expect_output(&r, "the run's newest model is ", true);
    expect_output(&r, "the run is complete: ", true);
    struct safetensors st;
    run_model(r.dir, "final.safetensors", &st);
    safetensors_release(&st);
    assert_int_equal(run_count(r.dir, "start", NULL, NULL), 1); /* nothing was trained again */
    assert_int_equal(unlink(there), 0);
    RESUME(t, &r, "--set", "stop.epochs=4");
    real_end(&r, 0, "epochs");
    expect_output(&r, "resumes after exchange ", true);
    assert_true(run_number(r.dir, "end", 2, "used") > used);
    process_release(&r.p);
}

/* With damaged checkpoints the run does not silently start from another state. */
static void test_resume_names_damaged_checkpoints(void **state)
{
    struct tiny *t = *state;
    struct real_run r = half_a_run(t);
    char path[3][512];
    for (int n = run_checkpoints(r.dir, path); n-- > 0;) {
        FILE *f = fopen(path[n], "w");
        assert_non_null(f);
        fclose(f);
    }
    REFUSED(t, "no checkpoint to resume from", "resume", r.dir, "--epochs", "2");
    process_release(&r.p);
}

/* `train --resume` and `driver --resume` without a job take the directory's, too. */
static void test_resume_needs_no_job_file(void **state)
{
    struct tiny *t = *state;
    struct real_run r = half_a_run(t);
    process_release(&r.p);
    process_start(&r.p, t->folder,
                  (const char *const[]){"train", "--json", "--resume", "--out", r.dir, "--set",
                                        "stop.epochs=4", NULL});
    real_end(&r, 0, "epochs");
    expect_output(&r, "stop.epochs: 1 \u2192 4\n", true);
    RESUME(t, &r, "--listen", "127.0.0.1:0", "--wait", "0.2", "--set", "stop.epochs=8");
    process_wait(&r.p, REAL_LIMIT_S);
    expect_output(&r, "waits for workers", true);
    process_release(&r.p);
    REFUSED(t, "which run?", "resume");
    REFUSED(t, "paceline resume DIR", "train", "--resume");
    REFUSED(t, "nowhere: there is no run to resume", "resume", "nowhere");
    REFUSED(t, "unknown option --solver", "resume", r.dir, "--solver", "x");
}

/* Options without effect are refused, with the settings that they need. */
static void test_resume_ignores_no_option(void **state)
{
    struct tiny *t = *state;
    struct real_run r = half_a_run(t);
    REFUSED(t, "--force-change is for a run that is resumed; give --resume", "train", t->job,
            "--force-change");
    REFUSED(t, "--take-over is for a run that is resumed; give --resume", "driver", t->job,
            "--take-over");
    REFUSED(t, "give --listen ADDR", "resume", r.dir, "--max-mbit", "10");
    REFUSED(t, "wait", "resume", r.dir, "--wait", "soon");
    process_release(&r.p);
}

/* A run that went beyond the requested end is complete: the advice continues from there, no speed
 * is invented, and changes are reported even with --quiet. */
static void test_resume_of_a_longer_run_advises_from_where_it_is(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    START(t, &r, "--workers", "2", "--set", "stop.epochs=4");
    real_end(&r, 0, "epochs");
    process_release(&r.p);
    const char *argv[] = {"resume", r.dir, "--epochs", "2", NULL, NULL};
    process_start(&r.p, t->folder, argv);
    process_wait(&r.p, REAL_LIMIT_S);
    assert_int_equal(r.p.code, 0);
    expect_output(&r, "the run is complete: ", true);
    expect_output(&r, " --set stop.epochs=8", true);
    assert_null(strstr(r.p.out, "speed"));
    process_release(&r.p);
    argv[4] = "-q";
    process_start(&r.p, t->folder, argv);
    process_wait(&r.p, REAL_LIMIT_S);
    assert_string_equal(r.p.err, "warning: stop.epochs: 4 \u2192 2\n");
    process_release(&r.p);
}

/* A simulated run stays simulated, and a real one real, unless that is forced. */
static void test_resume_does_not_cross_the_worlds(void **state)
{
    struct tiny *t = *state;
    struct real_run real = half_a_run(t), sim = real_new(t);
    tiny_cluster(t, "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }\n");
    process_release(&real.p);
    process_start(&sim.p, t->folder,
                  (const char *const[]){"sim", t->job, "--cluster", t->cluster, "--out", sim.dir,
                                        "--workers", "2", "--epochs", "1", NULL});
    process_wait(&sim.p, REAL_LIMIT_S);
    assert_int_equal(sim.p.code, 0);
    process_release(&sim.p);
    REFUSED(t, "the run in it is simulated", "resume", sim.dir, "--epochs", "2");
    REFUSED(t, "paceline sim --resume", "train", t->job, "--resume", "--out", sim.dir);
    REFUSED(t, "the run in it is real", "sim", t->job, "--cluster", t->cluster, "--resume", "--out",
            real.dir);
    REFUSED(t, "--force-change", "sim", t->job, "--cluster", t->cluster, "--resume", "--out",
            sim.dir, "--seed", "7");
    process_start(&sim.p, t->folder,
                  (const char *const[]){"sim", t->job, "--cluster", t->cluster, "--out", sim.dir,
                                        "--workers", "2", "--epochs", "2", "--resume", "--seed",
                                        "7", "--force-change", NULL});
    process_wait(&sim.p, REAL_LIMIT_S);
    assert_int_equal(sim.p.code, 0);
    process_release(&sim.p);
    RESUME(t, &sim, "--epochs", "3", "--force-change");
    real_end(&sim, 0, "epochs");
    expect_output(&sim, "was simulated until now, and is real from here on", true);
    process_release(&sim.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_started_at_once_share_no_directory),
        cmocka_unit_test(test_one_directory_is_one_runs),
        cmocka_unit_test(test_a_living_driver_is_left_alone),
        cmocka_unit_test(test_resume_takes_the_runs_own_job),
        cmocka_unit_test(test_resume_refuses_what_makes_another_run),
        cmocka_unit_test(test_resume_takes_up_a_model_elsewhere),
        cmocka_unit_test(test_resume_names_damaged_checkpoints),
        cmocka_unit_test(test_resume_needs_no_job_file),
        cmocka_unit_test(test_resume_ignores_no_option),
        cmocka_unit_test(test_resume_of_a_longer_run_advises_from_where_it_is),
        cmocka_unit_test(test_resume_does_not_cross_the_worlds),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
