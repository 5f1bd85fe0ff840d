/* Where a run's directory is, and what is put into it. */
#include "train/rundir.h"

#include "faulty_disk.h"
#include "folder.h"
#include "job/job.h"

static int setup(void **state)
{
    static struct folder folder;
    folder_make(&folder);
    assert_int_equal(chdir(folder.path), 0); /* runs/ is in the working directory */
    *state = &folder;
    return 0;
}

static int teardown(void **state)
{
    assert_int_equal(chdir("/"), 0);
    folder_remove(*state);
    return 0;
}

/* With its lock. */
static struct rundir claim_directory(const char *path, const char *name)
{
    struct rundir dir;
    struct err err = {0};
    if (rundir_create(&dir, real_disk(), path, name, &err) != OK)
        fail_msg("%s", err.text);
    return dir;
}

static struct rundir create_directory(const char *path, const char *name)
{
    struct rundir dir = claim_directory(path, name);
    rundir_close(&dir);
    return dir;
}

static void expect_no_dir(const char *path, const char *phrase)
{
    struct rundir dir;
    struct err err = {0};
    assert_int_equal(rundir_create(&dir, real_disk(), path, "x", &err), ERR_USAGE);
    if (!strstr(err.text, phrase))
        fail_msg("%s: %s", phrase, err.text);
}

static void test_rundir_create_numbers_runs(void **state)
{
    const struct folder *folder = *state;
    assert_string_equal(create_directory(NULL, "net").path, "runs/net-001");
    assert_string_equal(create_directory(NULL, "net").path, "runs/net-002");
    assert_string_equal(create_directory(NULL, "net-2").path, "runs/net-2-001"); /* another name */
    assert_int_equal(mkdir("runs/net-0998", 0777), 0);
    assert_int_equal(mkdir("runs/net-", 0777), 0);
    assert_int_equal(mkdir("runs/net-1234x", 0777), 0);
    assert_int_equal(mkdir("runs/net-final", 0777), 0);
    assert_string_equal(create_directory(NULL, "net").path, "runs/net-999");
    assert_string_equal(create_directory(NULL, "net").path, "runs/net-1000");
    assert_string_equal(create_directory(NULL, "net").path, "runs/net-1001");
    assert_true(folder_has(folder, "runs/net-1001"));
}

static void expect_no_run(const char *path, const char *phrase)
{
    struct rundir dir;
    struct err err = {0};
    assert_int_equal(rundir_find(&dir, real_disk(), path, "net", &err), ERR_NOT_FOUND);
    if (!strstr(err.text, phrase))
        fail_msg("%s: %s", phrase, err.text);
}

/* A run is a directory with its job in it. */
static void test_rundir_find_returns_newest(void **state)
{
    const struct folder *folder = *state;
    struct rundir dir;
    struct err err = {0};
    expect_no_run(NULL, "runs: ");
    create_directory(NULL, "net");
    create_directory(NULL, "net");
    create_directory(NULL, "other");
    expect_no_run(NULL, "runs/net-002");
    folder_put(folder, "runs/net-002/job.prototxt", "", 0);
    assert_int_equal(rundir_find(&dir, real_disk(), NULL, "net", &err), OK);
    assert_string_equal(dir.path, "runs/net-002");
    expect_no_run("some/where", "some/where");
    expect_no_run("runs/net-001/", "runs/net-001: ");
    assert_int_equal(rundir_find(&dir, real_disk(), "runs/net-002//", "net", &err), OK);
    assert_string_equal(dir.path, "runs/net-002");
    assert_int_equal(rundir_find(&dir, real_disk(), "", "net", &err), ERR_USAGE);
}

static void test_rundir_create_at_given_path(void **state)
{
    const struct folder *folder = *state;
    char long_path[RUNDIR_PATH_MAX + 2];
    memset(long_path, 'x', sizeof long_path);
    long_path[sizeof long_path - 1] = '\0';
    assert_string_equal(create_directory("here", "net").path, "here");
    assert_string_equal(create_directory("here///", "net").path, "here"); /* it is empty still */
    assert_false(folder_has(folder, "runs"));
    folder_put(folder, "here/file", "x", 1);
    expect_no_dir("here", "not empty");
    expect_no_dir("here/file", "here/file");
    expect_no_dir("here/file/run", "here/file/run");
    expect_no_dir("not/there", "not/there");
    expect_no_dir("", "path");
    expect_no_dir(long_path, "path");
    folder_expect(folder, "here/file", "x");
}

/* A job's name makes no way out of runs/. */
static void test_rundir_refuses_path_in_name(void **state)
{
    struct rundir dir;
    struct err err = {0};
    assert_int_equal(rundir_create(&dir, real_disk(), NULL, "../up", &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "../up"));
    assert_int_equal(rundir_find(&dir, real_disk(), NULL, "../up", &err), ERR_USAGE);
    assert_false(folder_has(*state, "up-001"));
}

static Paceline__Job *sample_job(void)
{
    static const char text[] = "name: 'sample' net { zoo: 'lenet' } solver { base_lr: 0.1 }";
    Paceline__Job *job = NULL;
    struct err err = {0};
    assert_int_equal(job_parse("sample", text, strlen(text), &job, &err), OK);
    return job;
}

static uint64_t hash_of(const Paceline__Job *job)
{
    uint64_t hash = 0;
    assert_int_equal(job_hash(job, &hash, NULL), OK);
    return hash;
}

static void test_rundir_open_writes_job_and_events(void **state)
{
    const struct folder *folder = *state;
    static uint8_t text[FOLDER_BYTES_MAX];
    struct err err = {0};
    Paceline__Job *job = sample_job(), *reread = NULL;
    struct rundir dir = create_directory("run", "net");
    event_log_line(&dir.events, "{\"too\":\"early\"}"); /* no file is open yet */
    for (int i = 0; i < 2; i++) {                       /* the second time as a run that
                                                           continues */
        assert_int_equal(rundir_open(&dir, job, &err), OK);
        event_log_line(&dir.events, i ? "{\"b\":2}" : "{\"a\":1}");
        rundir_close(&dir);
        rundir_close(&dir); /* fine, too */
    }
    folder_expect(folder, "run/events.jsonl", "{\"a\":1}\n{\"b\":2}\n");
    size_t n = folder_get(folder, "run/job.prototxt", text);
    assert_int_equal(job_parse("again", (char *)text, n, &reread, &err), OK);
    assert_int_equal(hash_of(reread), hash_of(job));
    job_free(job);
    job_free(reread);
}

/* A reader of the job need not be in the folder where it was trained. */
static void test_rundir_job_has_absolute_paths(void **state)
{
    const struct folder *folder = *state;
    static const char given[] =
        "name: 'sample' net { file: 'a.prototxt' } solver { base_lr: 0.1 } weights: 'b,/c' "
        "train_data { idx { images: 'd/e' labels: '/f' } mean_file: 'g' } "
        "test_data { images { list: 'h' } }";
    static uint8_t text[FOLDER_BYTES_MAX];
    char here[1024], expected[8192];
    struct err err = {0};
    Paceline__Job *job = NULL, *reread = NULL;
    assert_int_equal(job_parse("given", given, strlen(given), &job, &err), OK);
    uint64_t hash = hash_of(job);
    struct rundir dir = create_directory("run", "net");
    assert_int_equal(rundir_open(&dir, job, &err), OK);
    rundir_close(&dir);
    assert_int_equal(hash_of(job), hash);
    size_t n = folder_get(folder, "run/job.prototxt", text);
    assert_int_equal(job_parse("again", (char *)text, n, &reread, &err), OK);
    assert_non_null(getcwd(here, sizeof here));
    snprintf(expected, sizeof expected, "%s/a.prototxt", here);
    assert_string_equal(reread->net->file, expected);
    snprintf(expected, sizeof expected, "%s/b,/c", here);
    assert_string_equal(reread->weights, expected);
    snprintf(expected, sizeof expected, "%s/d/e", here);
    assert_string_equal(reread->train_data->idx->images, expected);
    assert_string_equal(reread->train_data->idx->labels, "/f");
    snprintf(expected, sizeof expected, "%s/g", here);
    assert_string_equal(reread->train_data->mean_file, expected);
    snprintf(expected, sizeof expected, "%s/h", here);
    assert_string_equal(reread->test_data->images->list, expected);
    job_free(job);
    job_free(reread);
}

/* Whatever it is: an unreadable directory is not a new run, and is not changed. */
static void test_rundir_keeps_unreadable_job(void **state)
{
    static const char broken[] = "\x1f\x8b but no gzip";
    Paceline__Job *job = sample_job();
    struct err err = {0};
    struct rundir dir = create_directory("run", "net");
    folder_put(*state, "run/job.prototxt", broken, sizeof broken - 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(rundir_put_job(&dir, job, &err), OK);
    folder_expect(*state, "run/job.1.prototxt", broken);
    assert_false(folder_has(*state, "run/job.2.prototxt"));
    assert_true(folder_has(*state, "run/job.prototxt"));
    rundir_close(&dir);
    job_free(job);
}

/* A write of the job that fails once may be another driver's doing, and is repeated. */
static void test_rundir_open_survives_failed_call(void **state)
{
    Paceline__Job *job = sample_job();
    (void)state;
    for (int i = 0; i < 16; i++) {
        int n = i / 2 + 1;
        struct faulty_disk faulty;
        struct err err = {0};
        char name[32];
        snprintf(name, sizeof name, "run%d", i);
        struct rundir dir = create_directory(name, "net");
        faulty_init(&faulty);
        dir.disk = &faulty.disk;
        faulty.fail_at = n;
        faulty.for_good = i % 2;
        int rc = rundir_open(&dir, job, &err);
        assert_int_equal(rc, faulty.for_good || n == 8 ? ERR_IO : OK);
        rundir_close(&dir);
    }
    job_free(job);
}

/* A disk on which, while one driver looks for a number, another takes the same one. */
struct race {
    struct disk disk; /* first */
    struct rundir other;
    int left; /* calls of `list` that this still happens at */
};

static int list_late(struct disk *d, const char *path, void (*fn)(void *user, const char *name),
                     void *user, struct err *err)
{
    struct race *race = (struct race *)d;
    int rc = real_disk()->ops->list(real_disk(), path, fn, user, err);
    if (race->left-- > 0)
        race->other = claim_directory(NULL, "net");
    return rc;
}

static void test_rundir_create_claims_number_alone(void **state)
{
    struct disk_ops ops = *real_disk()->ops;
    struct race race = {.disk = {&ops}, .left = 1};
    struct rundir dir;
    struct err err = {0};
    (void)state;
    ops.list = list_late;
    assert_int_equal(rundir_create(&dir, &race.disk, NULL, "net", &err), OK);
    assert_string_equal(race.other.path, "runs/net-001");
    assert_string_equal(dir.path, "runs/net-002");
    rundir_close(&dir);
    rundir_close(&race.other);
}

static void test_rundir_create_refuses_claimed_directory(void **state)
{
    struct err err = {0};
    struct rundir dir = claim_directory("here", "net"), second;
    assert_int_equal(rundir_create(&second, real_disk(), "here", "net", &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "here: its driver is alive (process "));
    rundir_close(&second);
    rundir_close(&dir);
    assert_false(folder_has(*state, "here/driver.lock"));
    dir = claim_directory("here", "net"); /* it has ended, and left nothing */
    rundir_close(&dir);
}

static void test_rundir_lock_refuses_living_driver(void **state)
{
    const struct folder *folder = *state;
    struct err err = {0};
    char from[256];
    struct rundir dir = claim_directory("here", "net"),
                  second = {.disk = real_disk(), .path = "here"};
    assert_int_equal(rundir_lock(&second, false, from, &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "--take-over"));
    assert_int_equal(rundir_lock(&second, true, from, &err), OK);
    assert_non_null(strstr(from, "process "));
    rundir_close(&dir); /* the older one's end does not give up the newer one's lock */
    assert_true(folder_has(folder, "here/driver.lock"));
    dir = (struct rundir){.disk = real_disk(), .path = "here"};
    assert_int_equal(rundir_lock(&dir, false, from, &err), ERR_USAGE);
    rundir_close(&second);
    assert_int_equal(rundir_lock(&dir, false, from, &err), OK);
    assert_string_equal(from, "");
    rundir_close(&dir);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_rundir_create_numbers_runs),
        TEST(test_rundir_find_returns_newest),
        TEST(test_rundir_create_at_given_path),
        TEST(test_rundir_refuses_path_in_name),
        TEST(test_rundir_open_writes_job_and_events),
        TEST(test_rundir_job_has_absolute_paths),
        TEST(test_rundir_keeps_unreadable_job),
        TEST(test_rundir_open_survives_failed_call),
        TEST(test_rundir_create_claims_number_alone),
        TEST(test_rundir_create_refuses_claimed_directory),
        TEST(test_rundir_lock_refuses_living_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
