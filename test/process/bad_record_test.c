/* Broken pictures in a run: the run stops at the first, or leaves out up to a number of them and
 * names each. */
#include "pictures.h"
#include "refusal.h"
#include "run_files.h"

enum { PICTURES = 60 };

static const char job[] =
    "name: 'broken' net { file: 'net.prototxt' } batch: 4 threads: 1 "
    "deterministic: true kernels: ref stop { epochs: 3 } "
    "train_data { images { list: 'list' color: gray } scale: 0.004 } "
    "test_data { idx { images: 'test-images' labels: 'test-labels' } scale: 0.004 } "
    "solver { base_lr: 0.01 lr_policy: 'fixed' }";

/* Numbers 7, 8 and 30 break off in their body. */
static int setup(void **state)
{
    if (tiny_setup(state) != 0)
        return -1;
    struct tiny *t = *state;
    struct folder f;
    char list[4096] = "", name[32], path[256];
    snprintf(f.path, sizeof f.path, "%s", t->folder);
    for (int i = 0; i < PICTURES; i++) {
        uint8_t rows[TINY_SIDE * TINY_SIDE];
        for (size_t k = 0; k < sizeof rows; k++)
            rows[k] =
                tiny_pixel(5, (uint32_t)i, (uint32_t)i % 3, (int)k / TINY_SIDE, (int)k % TINY_SIDE);
        snprintf(name, sizeof name, "p%02d.png", i);
        picture_put_png(&f, name, rows, TINY_SIDE, TINY_SIDE, PNG_COLOR_TYPE_GRAY, 8, TINY_SIDE,
                        false);
        if (i == 7 || i == 8 || i == 30)
            assert_int_equal(truncate(folder_file(&f, name, path), 60), 0);
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s %d\n", name, i % 3);
    }
    folder_put(&f, "list", list, strlen(list));
    tiny_write(t, "broken.job", job);
    return 0;
}

static int train_tiny(struct tiny *t, struct process *p, const char *out, const char *const *more)
{
    const char *argv[PROCESS_ARGS_MAX] = {"train", "broken.job", "--out", out};
    for (size_t i = 0; more[i]; i++)
        argv[4 + i] = more[i];
    process_start(p, t->folder, argv);
    process_wait(p, 60);
    return p->code;
}

#define TRAIN(t, p, out, ...) train_tiny(t, p, out, (const char *const[]){__VA_ARGS__, NULL})

static void test_a_broken_record_stops_a_run(void **state)
{
    struct process p;
    assert_int_equal(TRAIN(*state, &p, "stopped", "--set", "workers=1"), 2);
    if (!strstr(p.err, ".png") || !strstr(p.err, "paceline data verify SPEC") ||
        !strstr(p.err, "--set on_bad_record=skip"))
        fail_msg("%s", p.err);
    process_release(&p);
}

/* A picture to test with is read by the driver, which has the model by then: that is kept. */
static void test_a_broken_test_record_keeps_the_model(void **state)
{
    static const char judged[] =
        "name: 'judged' net { file: 'net.prototxt' } batch: 16 threads: 1 kernels: ref "
        "train_data { idx { images: 'train-images' labels: 'train-labels' } scale: 0.004 } "
        "test_data { images { list: 'list' color: gray } scale: 0.004 } stop { epochs: 3 } "
        "solver { base_lr: 0.01 lr_policy: 'fixed' } strategy { sync { tau: 4 } } workers: 2";
    struct tiny *t = *state;
    struct process p;
    char path[3][512], out[128];
    tiny_write(t, "judged.job", judged);
    process_start(&p, t->folder,
                  (const char *const[]){"train", "judged.job", "--out", "kept", NULL});
    process_wait(&p, 60);
    snprintf(out, sizeof out, "%s/kept", t->folder);
    if (p.code != 2 || !strstr(p.err, ".png") || !strstr(p.err, "paceline resume kept"))
        fail_msg("%d: %s", p.code, p.err);
    assert_int_equal(run_checkpoints(out, path), 1);
    process_release(&p);
}

/* Every worker meets some of them, at other times; the run counts each once. */
static void leave_out(struct tiny *t, const char *out, const char *strategy, const char *workers)
{
    struct process p;
    char path[256];
    if (TRAIN(t, &p, out, "--set", "on_bad_record=skip", "--set", workers, "--strategy",
              strategy) != 0)
        fail_msg("%s, %s: %s", strategy, workers, p.err);
    if (!strstr(p.err, "broken record left out: ") || !strstr(p.out, "left out"))
        fail_msg("%s said:\n%s%s", strategy, p.err, p.out);
    process_release(&p);
    snprintf(path, sizeof path, "%s/%s", t->folder, out);
    assert_true(run_number(path, "end", 0, "bad_records") == 3);
    for (int i = 0; i < 3; i++)
        assert_true(run_number(path, "bad_record", i, "record") >= 7);
}

static void test_broken_records_are_left_out_and_counted(void **state)
{
    leave_out(*state, "one", "single", "workers=1");
    leave_out(*state, "two", "sync", "workers=2");
    leave_out(*state, "free", "mpca", "workers=2");
}

static void test_a_deterministic_job_stays_so(void **state)
{
    struct tiny *t = *state;
    char a[256], b[256];
    leave_out(t, "first", "single", "workers=1");
    leave_out(t, "again", "single", "workers=1");
    snprintf(a, sizeof a, "%s/first", t->folder);
    snprintf(b, sizeof b, "%s/again", t->folder);
    assert_true(run_same_bits(a, b, "final.safetensors"));
}

static void test_too_many_broken_records_end_a_run(void **state)
{
    struct process p;
    assert_int_equal(TRAIN(*state, &p, "many", "--set", "on_bad_record=skip", "--set",
                           "bad_records_max=2", "--set", "workers=1"),
                     2);
    if (!strstr(p.err, "3 broken records, more than bad_records_max: 2; first: ") ||
        !strstr(p.err, "paceline data verify"))
        fail_msg("%s", p.err);
    process_release(&p);
}

static void verify_data(struct tiny *t, struct process *p, int code, const char *spec,
                        const char *more)
{
    process_start(p, t->folder, (const char *const[]){"data", "verify", spec, more, NULL});
    process_wait(p, 60);
    if (p->code != code)
        fail_msg("%s: %d: %s%s", spec, p->code, p->out, p->err);
}

/* Heads and bodies: all are listed, and a set without any ends well. */
static void test_verify_lists_every_broken_record(void **state)
{
    struct tiny *t = *state;
    struct process p;
    struct folder f;
    snprintf(f.path, sizeof f.path, "%s", t->folder);
    folder_put(&f, "head.png", "GIF89a", 6);
    folder_put(&f, "some", "p01.png 0\np07.png 1\nhead.png 0\np30.png 2\n", 41);
    verify_data(t, &p, 2, "images:some?color=gray", NULL);
    static const char *const lines[] = {"p07.png: PNG", "head.png: ", "p30.png: PNG",
                                        "verified   4 records, 3 broken\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(p.out, lines[i]))
            fail_msg("expected `%s` in:\n%s", lines[i], p.out);
    process_release(&p);
    verify_data(t, &p, 2, "images:some?color=gray&crop=8", "--max-problems=1");
    assert_null(strstr(p.out, "p30.png"));
    process_release(&p);
    verify_data(t, &p, 2, "images:some?color=gray", "--json");
    assert_non_null(strstr(p.out, "{\"verified\":4,\"broken\":3,\"interrupted\":false}\n"));
    assert_non_null(strstr(p.err, "repair or remove broken records"));
    process_release(&p);
    verify_data(t, &p, 0, "idx:test-images,test-labels", NULL);
    assert_non_null(strstr(p.out, "verified   120 records, 0 broken\n"));
    process_release(&p);
}

/* Of none can even the head be read. */
static void test_verify_lists_broken_records_where_all_are(void **state)
{
    struct tiny *t = *state;
    struct process p;
    struct folder f;
    snprintf(f.path, sizeof f.path, "%s", t->folder);
    folder_put(&f, "one.png", "GIF89a", 6);
    folder_put(&f, "two.png", "", 0);
    folder_put(&f, "all", "one.png 0\ntwo.png 1\n", 20);
    verify_data(t, &p, 2, "images:all", NULL);
    if (!strstr(p.out, "one.png: ") || !strstr(p.out, "two.png: ") ||
        !strstr(p.err, "all: none of its 2 records can be read; the last: ") ||
        !strstr(p.err, "repair or remove broken records"))
        fail_msg("it said:\n%s%s", p.out, p.err);
    process_release(&p);
}

/* Files as CIFAR-10 has them, with `records` black pictures. */
static void write_cifar(const struct folder *f, const char *name, int records)
{
    uint8_t *bytes = calloc((size_t)records, 3073);
    folder_put(f, name, bytes, (size_t)records * 3073);
    free(bytes);
}

static void test_verify_reads_both_sets_of_a_folder(void **state)
{
    struct tiny *t = *state;
    struct process p;
    struct folder f;
    char name[64];
    snprintf(f.path, sizeof f.path, "%.40s/cifar", t->folder);
    assert_int_equal(mkdir(f.path, 0777), 0);
    for (int i = 1; i <= 5; i++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        write_cifar(&f, name, 2);
    }
    write_cifar(&f, "test_batch.bin", 3);
    verify_data(t, &p, 0, "cifar10:cifar", NULL);
    assert_string_equal(p.out, "verified   3 records of the test set, 0 broken\n"
                               "verified   10 records of the train set, 0 broken\n");
    process_release(&p);
    verify_data(t, &p, 0, "cifar10:cifar", "--training");
    assert_string_equal(p.out, "verified   10 records of the train set, 0 broken\n");
    process_release(&p);
    verify_data(t, &p, 0, "cifar10:cifar/test_batch.bin", NULL);
    assert_string_equal(p.out, "verified   3 records, 0 broken\n");
    process_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_broken_record_stops_a_run),
        cmocka_unit_test(test_a_broken_test_record_keeps_the_model),
        cmocka_unit_test(test_broken_records_are_left_out_and_counted),
        cmocka_unit_test(test_a_deterministic_job_stays_so),
        cmocka_unit_test(test_too_many_broken_records_end_a_run),
        cmocka_unit_test(test_verify_lists_every_broken_record),
        cmocka_unit_test(test_verify_lists_broken_records_where_all_are),
        cmocka_unit_test(test_verify_reads_both_sets_of_a_folder),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
