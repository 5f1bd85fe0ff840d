/* One machine's copy of the data breaks in the middle of a run that others share: that worker
 * leaves, named with its host, and the run continues with the others, or waits for another. */
#include "machines.h"
#include "pictures.h"

/* Noise, so that a picture's file is longer than the part that is hashed. */
enum { PICTURES = 60, ROWS = 64, COLUMNS = 96, TAIL = 40 };

static const char job[] =
    "name: 'pictures' net { file: 'net.prototxt' } batch: 4 threads: 1 "
    "deterministic: true kernels: ref stop { epochs: 3 } strategy { allreduce {} } "
    "train_data { images { list: 'list' color: gray } scale: 0.004 } "
    "solver { base_lr: 0.01 lr_policy: 'fixed' }";

static int setup(void **state)
{
    if (tiny_setup(state) != 0)
        return -1;
    struct tiny *t = *state;
    struct folder f;
    char list[4096] = "", name[32];
    snprintf(f.path, sizeof f.path, "%s", t->folder);
    for (int i = 0; i < PICTURES; i++) {
        uint8_t pixels[ROWS * COLUMNS];
        for (size_t k = 0; k < sizeof pixels; k++)
            pixels[k] = (uint8_t)rng_below(3, (uint64_t)i, k, 256);
        snprintf(name, sizeof name, "p%02d.png", i);
        picture_put_png(&f, name, pixels, ROWS, COLUMNS, PNG_COLOR_TYPE_GRAY, 8, COLUMNS, false);
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s %d\n", name, i % 3);
    }
    folder_put(&f, "list", list, strlen(list));
    tiny_write(t, "tiny.job", job);
    return 0;
}

/* A copy of the pictures, of the same hash, in which pictures [from, to) break off in their body.
 */
static void make_copy(const struct tiny *t, char folder[96], int from, int to)
{
    char command[320], path[160];
    static const char zeros[16];
    snprintf(folder, 96, "%s/copy-XXXXXX", t->folder);
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "cp '%s'/p*.png '%s/list' '%s'", t->folder, t->folder,
             folder);
    assert_int_equal(system(command), 0);
    for (int i = from; i < to; i++) {
        snprintf(path, sizeof path, "%s/p%02d.png", folder, i);
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, -TAIL, SEEK_END), 0);
        assert_int_equal(fwrite(zeros, 1, sizeof zeros, file), sizeof zeros);
        assert_int_equal(fclose(file), 0);
    }
}

static void expect_named(const struct machines *m, const char *what, const char *remedy)
{
    char host[64] = "", who[160];
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    snprintf(who, sizeof who, " (%s, 127.0.0.1:", host);
    UNTIL(REAL_LIMIT_S, machines_log(&m->run.p, "left while training: "));
    assert_true(machines_log(&m->run.p, who) && machines_log(&m->run.p, what));
    assert_true(machines_log(&m->run.p, remedy));
}

static void test_only_worker_in_trouble_is_replaced(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    char copy[96];
    make_copy(t, copy, 30, 60);
    DRIVE(t, &m, "--set", "workers=1");
    struct process *p = WORKER(&m, "/", "--data-root", copy);
    process_wait(p, REAL_LIMIT_S);
    assert_int_equal(p->code, 2);
    assert_non_null(strstr(p->err, ".png"));
    expect_named(&m, ".png", "--set on_bad_record=skip");
    UNTIL(REAL_LIMIT_S, machines_log(&m.run.p, "the run waits for others"));
    assert_false(machines_log(&m.run.p, "is lost: ")); /* it has sent its reason */
    WORKER(&m, t->folder, NULL);
    real_end(&m.run, 0, "epochs");
    machines_release(&m);
}

/* No other worker joins: the end names that worker's error, and is not an error of the driver. */
static void test_only_worker_in_trouble_is_the_cause(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    char copy[96];
    make_copy(t, copy, 30, 60);
    DRIVE(t, &m, "--set", "workers=1", "--wait", "1.5");
    WORKER(&m, "/", "--data-root", copy);
    process_wait(&m.run.p, REAL_LIMIT_S);
    assert_int_equal(m.run.p.code, 1);
    const char *end = strstr(m.run.p.err, "no progress for 1.5 s");
    if (!end || !strstr(end, "left while training: ") || !strstr(end, ".png"))
        fail_msg("%s", m.run.p.err);
    machines_release(&m);
}

#define SKIPS "--set", "on_bad_record=skip", "--set", "bad_records_max=3", "--set", "workers=2"

static void test_damaged_copy_ends_one_worker(void **state)
{
    struct tiny *t = *state;
    struct machines m;
    char copy[96];
    make_copy(t, copy, 0, 50);
    DRIVE(t, &m, SKIPS);
    WORKER(&m, t->folder, NULL);
    struct process *p = WORKER(&m, "/", "--data-root", copy);
    process_wait(p, REAL_LIMIT_S);
    assert_int_equal(p->code, 2);
    expect_named(&m, "4 broken records, more than bad_records_max: 3", "mend the data there");
    real_end(&m.run, 0, "epochs");
    assert_true(machines_log(&m.run.p, "more on one worker's machine alone"));
    machines_release(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_worker_in_trouble_is_replaced),
        cmocka_unit_test(test_only_worker_in_trouble_is_the_cause),
        cmocka_unit_test(test_damaged_copy_ends_one_worker),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
