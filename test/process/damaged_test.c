/* Checkpoints that are damaged, or of something else: a run resumes from the newest valid one,
 * names those that it skipped, and never starts from less than requested. And records that vanish
 * during training. */
#include "pictures.h"
#include "real_run.h"
#include "refusal.h"

/* A simulated run that keeps three checkpoints, in a folder called `name`; their paths,
 * oldest first. */
static void make_checkpoints(struct tiny *t, const char *name, char path[3][512])
{
    struct process p;
    tiny_cluster(t, "node { count: 4 } step_seconds: 0.04\n");
    const char *const run[] = {"sim",       t->job,
                               "--cluster", t->cluster,
                               "--out",     name,
                               "--set",     "checkpoint.every_seconds=0.2",
                               "--set",     "checkpoint.keep=3",
                               NULL};
    run_command(t, &p, run);
    process_release(&p);
    char dir[256];
    snprintf(dir, sizeof dir, "%s/%s", t->folder, name);
    assert_int_equal(run_checkpoints(dir, path), 3);
}

static void damage_file(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    fputc(byte ^ 0x10, f);
    fclose(f);
}

static void shorten_file(const char *path)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    assert_int_equal(ftruncate(fileno(f), ftell(f) - 1), 0);
    fclose(f);
}

/* Continues from the older one, and logs the reason. */
static void resumes_from(struct tiny *t, const char *name, const char *older, const char *newest)
{
    struct process p;
    char phrase[64], dir[256];
    const char *const run[] = {"train", t->job, "--resume", "--out", name, "--force-change", NULL};
    process_start(&p, t->folder, run);
    process_wait(&p, REFUSAL_LIMIT_S);
    unsigned long n = strtoul(strrchr(older, '/') + 1, NULL, 10);
    snprintf(phrase, sizeof phrase, "resumes after exchange %lu ", n);
    const char *passed = strstr(p.err, "passed over: ");
    if (p.code != 0 || !strstr(p.err, phrase) || !passed || !strstr(passed, strrchr(newest, '/')))
        refusal_complain(&p, run, phrase);
    snprintf(dir, sizeof dir, "%s/%s", t->folder, name);
    assert_true(run_number(dir, "start", 1, "resumed_after") == (double)n);
    process_release(&p);
}

static void test_damaged_checkpoints(void **state)
{
    struct tiny *t = *state;
    char path[3][512];
    make_checkpoints(t, "flipped", path);
    damage_file(path[2], -40);
    resumes_from(t, "flipped", path[1], path[2]);
    make_checkpoints(t, "cut", path);
    shorten_file(path[2]);
    resumes_from(t, "cut", path[1], path[2]);
    make_checkpoints(t, "none", path);
    shorten_file(path[0]);
    damage_file(path[1], 100);
    damage_file(path[2], -40);
    REFUSED(t, "no checkpoint", "train", t->job, "--resume", "--out", "none", "--force-change");
    REFUSED(t, strrchr(path[2], '/'), "sim", t->job, "--cluster", t->cluster, "--resume", "--out",
            "none");
}

/* A checkpoint that is whole but of something else is no reason to look for an older one. */
static void test_checkpoints_of_something_else(void **state)
{
    struct tiny *t = *state;
    char path[3][512];
    make_checkpoints(t, "other", path);
    tiny_write_changed(t, "wide.prototxt", tiny_net, "num_output: 6", "num_output: 7");
    REFUSED(t, "joint/conv.0", "train", t->job, "--resume", "--out", "other", "--set",
            "net.file=wide.prototxt", "--force-change");
    tiny_write_changed(t, "named.prototxt", tiny_net, "name: 'ip'", "name: 'last'");
    REFUSED(t, "joint/last.0", "train", t->job, "--resume", "--out", "other", "--set",
            "net.file=named.prototxt", "--force-change");
    REFUSED(t, "other data", "sim", t->job, "--cluster", t->cluster, "--resume", "--out", "other",
            "--data", "idx:test-images,test-labels?scale=0.00390625");
}

/* Each worker reaches them, and is lost; the last line gives the reason. */
static void test_pictures_that_vanish(void **state)
{
    static const char *const names[] = {"zoo/a/1.png", "zoo/a/2.png", "zoo/b/3.png"};
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    struct folder f;
    uint8_t rows[TINY_SIDE * TINY_SIDE] = {0};
    char path[256];
    snprintf(f.path, sizeof f.path, "%s", t->folder);
    mkdir(folder_file(&f, "zoo", path), 0700);
    mkdir(folder_file(&f, "zoo/a", path), 0700);
    mkdir(folder_file(&f, "zoo/b", path), 0700);
    for (size_t i = 0; i < 3; i++)
        picture_put_png(&f, names[i], rows, TINY_SIDE, TINY_SIDE, PNG_COLOR_TYPE_GRAY, 8, TINY_SIDE,
                        false);
    START(t, &r, "--data", "images:zoo?color=gray", "--workers", "2", "--set", "validation=0",
          "--set", "stop.epochs=100000", "--set", "pace=0.02", "--set", "batch=2");
    UNTIL(REAL_LIMIT_S, process_poll(&r.p) || real_exchanges(&r) > 0);
    for (size_t i = 0; i < 3; i++)
        unlink(folder_file(&f, names[i], path));
    process_wait(&r.p, REAL_LIMIT_S);
    const char *last = r.p.err;
    for (const char *at = last; (at = strstr(at, "all workers are lost: worker ")); at++)
        last = at;
    if (r.p.code == 0 || last == r.p.err || !strstr(last, ".png"))
        fail_msg("code %d; it said:\n%s", r.p.code, r.p.err);
    assert_null(strstr(r.p.err, "the worker ended"));
    process_release(&r.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damaged_checkpoints),
        cmocka_unit_test(test_checkpoints_of_something_else),
        cmocka_unit_test(test_pictures_that_vanish),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
