/* README's "Your own pictures in five minutes", as written there: a folder of two classes, the
 * example's job, and the requirements of the run. */
#include "free_port.h"
#include "pictures.h"
#include "process.h"

enum { LIMIT_S = 120, SIDE = 40, PICTURES = 24 };

/* Cats are red, dogs are blue. */
static void draw_pictures(const struct folder *f, const char *class, int red, int blue)
{
    static uint8_t pixels[SIDE * SIDE * 3];
    char name[64];
    for (int i = 0; i < PICTURES; i++) {
        for (int k = 0; k < SIDE * SIDE; k++) {
            pixels[3 * k] = (uint8_t)(red + (k * 7 + i * 13) % 50);
            pixels[3 * k + 1] = (uint8_t)((k * 3 + i) % 50);
            pixels[3 * k + 2] = (uint8_t)(blue + (k * 5 + i * 11) % 50);
        }
        snprintf(name, sizeof name, "pets/%s/%d.jpg", class, i);
        picture_put_jpeg(f, name, pixels, SIDE, SIDE, 3, 90);
    }
}

static int setup(void **state)
{
    static struct folder f;
    char command[512];
    folder_make(&f);
    snprintf(command, sizeof command, "cd '%s' && mkdir -p pets/cat pets/dog && cp '%s' .", f.path,
             TEST_ROOT "/examples/pets.job");
    assert_int_equal(system(command), 0);
    draw_pictures(&f, "cat", 180, 0);
    draw_pictures(&f, "dog", 0, 180);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    folder_remove(*state);
    return 0;
}

static void expect_output(const struct folder *f, const char *what, const char *const *argv)
{
    struct process p;
    process_start(&p, f->path, argv);
    process_wait(&p, LIMIT_S);
    if (p.code != 0 || !(strstr(p.out, what) || strstr(p.err, what)))
        fail_msg("%s %s: code %d, expected `%s` in:\n%s\n%s", argv[0], argv[1], p.code, what, p.out,
                 p.err);
    process_release(&p);
}

#define EXPECT_OUTPUT(f, what, ...) expect_output(f, what, (const char *const[]){__VA_ARGS__, NULL})

static void test_own_pictures_are_learnt(void **state)
{
    const struct folder *f = *state;
    EXPECT_OUTPUT(f, "records    48", "data", "info", "images:pets");
    EXPECT_OUTPUT(f, "in a job   mean: ", "data", "stats",
                  "images:pets?resize_height=32&resize_width=32");
    EXPECT_OUTPUT(f, "2 classes", "train", "pets.job", "--dry-run");
    EXPECT_OUTPUT(f, "validation  error 0.00 %", "train", "pets.job");
    EXPECT_OUTPUT(f, "cat", "predict", "runs/pets-001", "pets/cat/3.jpg", "--top", "1");
    EXPECT_OUTPUT(f, "dog", "predict", "runs/pets-001", "pets/dog/5.jpg", "--top", "1", "--model",
                  "best");
    EXPECT_OUTPUT(f, "accuracy    100.00 % (error 0.00 %)", "test", "runs/pets-001", "--data",
                  "images:pets?resize_height=32&resize_width=32&mean=128&scale=0.015625");
}

/* The net has more outputs than there are folders: those that stand for one have its name. */
static void test_outputs_without_a_folder_have_a_number(void **state)
{
    const struct folder *f = *state;
    struct process p;
    EXPECT_OUTPUT(f, "the net has 10 outputs, and the records have 2 classes", "train", "pets.job",
                  "--set", "net.zoo=resnet-20?classes=10", "--epochs", "0.2", "--out", "wide");
    process_start(
        &p, f->path,
        (const char *const[]){"predict", "wide", "pets/cat/3.jpg", "--top", "10", "--json", NULL});
    process_wait(&p, LIMIT_S);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "{\"class\":0,\"name\":\"cat\","));
    assert_non_null(strstr(p.out, "{\"class\":1,\"name\":\"dog\","));
    assert_non_null(strstr(p.out, "{\"class\":2,\"probability\":"));
    process_release(&p);
    EXPECT_OUTPUT(f, "dog ", "predict", "wide", "pets/cat/3.jpg", "--top", "10");
}

/* The archive that the commands in the head of the example make is what the example trains on. */
static void test_the_archive_of_the_example(void **state)
{
    const struct folder *f = *state;
    char command[512];
    snprintf(command, sizeof command,
             "cd '%s' && cp '%s' . && sed -n 's/^#   //p' webdataset.job | sh -eu", f->path,
             TEST_ROOT "/examples/webdataset.job");
    assert_int_equal(system(command), 0);
    EXPECT_OUTPUT(f, "records    48", "data", "info", "webdataset:pets.tar");
    EXPECT_OUTPUT(f, "verified   48 records, 0 broken", "data", "verify", "webdataset:pets.tar");
    EXPECT_OUTPUT(f, "validation  error", "train", "webdataset.job", "--epochs", "2");
    EXPECT_OUTPUT(f, "samples     48", "test", "runs/webdataset-001", "--data",
                  "webdataset:pets.tar?resize_height=32&resize_width=32&mean=128&scale=0.015625");
}

/* One worker, so that the same records give the same bits. */
static void train_to(const struct folder *f, const char *out, const char *set_a, const char *set_b)
{
    EXPECT_OUTPUT(f, out, "train", "pets.job", "--out", out, "--workers", "1", "--strategy",
                  "single", "--epochs", "4", "--set", "deterministic=true", "--set", set_a, "--set",
                  set_b);
}

/* The values alone: the head of the file has the hash of the job, too. */
static void expect_same_model(const struct folder *f, const char *a, const char *b)
{
    char command[512];
    snprintf(
        command, sizeof command,
        "cd '%s' && for x in %s %s; do tail -c 1000000 $x/final.safetensors > $x.values; done && "
        "cmp %s.values %s.values",
        f->path, a, b, a, b);
    assert_int_equal(system(command), 0);
}

/* `paceline worker` prints how many records it has kept. */
static void expect_kept(const struct folder *f, const char *out, const char *set, const char *kept)
{
    struct process driver, worker;
    char join[32];
    port_find(join);
    process_start(&driver, f->path,
                  (const char *const[]){"driver", "pets.job", "--out", out, "--listen", join,
                                        "--set", "stop.epochs=12", "--set", set, "--set",
                                        "memory_budget=1GiB", NULL});
    process_start(&worker, f->path,
                  (const char *const[]){"worker", "--join", join, "--cache", f->path, NULL});
    process_wait(&driver, LIMIT_S);
    process_wait(&worker, LIMIT_S);
    if (driver.code != 0 || worker.code != 0 || !strstr(worker.err, kept))
        fail_msg("codes %d, %d:\n%s\n%s", driver.code, worker.code, driver.err, worker.err);
    process_release(&driver);
    process_release(&worker);
}

static void test_what_a_worker_keeps(void **state)
{
    expect_kept(*state, "keeps", "cache=memory", "cache: kept 40 records in memory");
    expect_kept(*state, "keeps-not", "cache=none", "is over");
}

/* The result and the event of the end count the records that local workers keep: each of two those
 * of 40 that it has read. */
static void test_train_counts_what_its_workers_keep(void **state)
{
    const struct folder *f = *state;
    const char *const train[] = {"train", "pets.job",       "--out",      "folder",  "--workers",
                                 "2",     "--set",          "cache=disk", "--cache", ".",
                                 "--set", "stop.epochs=12", "--json",     NULL};
    struct process p;
    EXPECT_OUTPUT(f, "cache       80 records in memory (", "train", "pets.job", "--out", "together",
                  "--workers", "2", "--set", "cache=memory", "--set", "memory_budget=50%", "--set",
                  "stop.epochs=40");
    process_start(&p, f->path, train);
    process_wait(&p, LIMIT_S);
    const char *at = strstr(p.out, "\"cached_disk\":");
    unsigned kept = 0;
    if (p.code != 0 || !at || sscanf(at, "\"cached_disk\": %u", &kept) != 1 || kept <= 40)
        fail_msg("code %d, %u kept:\n%s\n%s", p.code, kept, p.out, p.err);
    process_release(&p);
    process_start(&p, f->path,
                  (const char *const[]){"train", "pets.job", "--out", "nowhere", "--set",
                                        "cache=disk", "--cache", "no/such", NULL});
    process_wait(&p, LIMIT_S);
    if (p.code == 0 || !strstr(p.err, "no/such: there is no such folder"))
        fail_msg("code %d:\n%s\n%s", p.code, p.out, p.err);
    process_release(&p);
}

/* Read from files again and again, kept in memory, kept on disk, and read from shards. */
static void test_kept_records_are_the_same(void **state)
{
    const struct folder *f = *state;
    train_to(f, "plain", "cache=none", "seed=1");
    train_to(f, "kept", "cache=memory", "memory_budget=2GiB");
    expect_same_model(f, "plain", "kept");
    train_to(f, "spilled", "cache=disk", "seed=1");
    expect_same_model(f, "plain", "spilled");
    EXPECT_OUTPUT(f, "packed     48 records", "data", "pack", "images:pets", "pets-packed");
    train_to(f, "packed",
             "train_data={shards {shards: 'pets-packed-00000.shard'} resize_height: 32 "
             "resize_width: 32 mirror: true mean: 128 scale: 0.015625}",
             "memory_budget=50%");
    expect_same_model(f, "plain", "packed");
}

/* The net alone takes more. */
static void test_a_budget_that_is_too_small(void **state)
{
    const struct folder *f = *state;
    struct process p;
    process_start(&p, f->path,
                  (const char *const[]){"train", "pets.job", "--out", "small", "--set",
                                        "memory_budget=16MiB", NULL});
    process_wait(&p, LIMIT_S);
    assert_int_not_equal(p.code, 0);
    if (!strstr(p.err, "left of memory_budget"))
        fail_msg("%s", p.err);
    process_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_pictures_are_learnt),
        cmocka_unit_test(test_kept_records_are_the_same),
        cmocka_unit_test(test_what_a_worker_keeps),
        cmocka_unit_test(test_train_counts_what_its_workers_keep),
        cmocka_unit_test(test_a_budget_that_is_too_small),
        cmocka_unit_test(test_outputs_without_a_folder_have_a_number),
        cmocka_unit_test(test_the_archive_of_the_example),
    };
    return cmocka_run_group_tests_name("own pictures", tests, setup, teardown);
}
