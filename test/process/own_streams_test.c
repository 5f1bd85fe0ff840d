/* Workers with records of their own: arrays, and streams that grow while they train. Wrong kinds
 * and missing numbers have a name. */
#include "paceline/data.h"
#include "paceline/run.h"
#include "run_files.h"
#include "tiny_job.h"

#include <pthread.h>
#include <time.h>

enum { PIXELS = TINY_SIDE * TINY_SIDE, WORKERS = 2, HALF = TINY_TRAIN / WORKERS };

/* A worker: a thread that has an engine, and with `every_ms` another one that feeds its stream. */
struct owner {
    uint32_t from, count; /* records */
    uint32_t height;      /* of a record */
    bool grows;
    long every_ms;      /* between two groups of records; 0: all at once, before it works */
    uint32_t parts;     /* the first of two parts that the records are; 0: they are not in parts */
    struct owner *heir; /* with parts: it gets them when this worker has left */
    pl_flag leave;
    pl_engine *engine;
    pl_stream *stream;
    pthread_t worker, feeder;
    char address[128], error[512];
    int rc, fed;
};

struct owners {
    struct owner at[WORKERS];
    uint32_t started;
};

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static int put_record(struct owner *owner, uint32_t i)
{
    void *values;
    uint32_t *labels;
    size_t room;
    int rc = pl_stream_acquire(owner->stream, &values, &labels, &room);
    if (rc != PL_OK)
        return rc;
    labels[0] = i % TINY_CLASSES;
    for (uint32_t k = 0; k < owner->height * TINY_SIDE; k++)
        ((float *)values)[k] =
            tiny_pixel(1, i, i % TINY_CLASSES, (int)k / TINY_SIDE, (int)k % TINY_SIDE);
    return pl_stream_commit(owner->stream, 1);
}

static void *feed_stream(void *arg)
{
    struct owner *owner = arg;
    for (uint32_t i = 0; owner->fed == PL_OK && i < owner->count; i++) {
        owner->fed = put_record(owner, owner->from + i);
        if (owner->fed == PL_OK && owner->parts > 0 && (i + 1) % (owner->count / 2) == 0)
            owner->fed = pl_stream_cut(owner->stream, owner->parts + 2 * i / owner->count);
        if (owner->every_ms > 0 && i % 10 == 9)
            pause_ms(owner->every_ms);
    }
    if (owner->fed == PL_OK && owner->parts == 0)
        owner->fed = pl_stream_seal(owner->stream);
    return NULL;
}

/* The worker has left, and its records go to one that trains. */
static void hand_over(struct owner *owner)
{
    struct owner from = *owner;
    from.stream = owner->heir->stream;
    feed_stream(&from);
    owner->fed = from.fed;
}

static void *work_own(void *arg)
{
    struct owner *owner = arg;
    const pl_stream_options options = {.size = sizeof options,
                                       .channels = 1,
                                       .height = owner->height,
                                       .width = TINY_SIDE,
                                       .classes = TINY_CLASSES,
                                       .type = PL_F32,
                                       .grows = owner->grows,
                                       .parts = owner->parts > 0};
    owner->rc = pl_engine_create(NULL, &owner->engine);
    if (owner->rc == PL_OK)
        owner->rc = pl_stream_open(owner->engine, "train", &options, &owner->stream);
    if (owner->rc != PL_OK)
        return NULL;
    if (owner->every_ms == 0)
        feed_stream(owner);
    else if (pthread_create(&owner->feeder, NULL, feed_stream, owner) != 0)
        abort();
    owner->rc = pl_work(owner->engine, &(pl_work_options){.size = sizeof(pl_work_options),
                                                          .driver = owner->address,
                                                          .threads = 1,
                                                          .leave = &owner->leave});
    if (owner->rc != PL_OK)
        snprintf(owner->error, sizeof owner->error, "%s", pl_engine_error(owner->engine));
    if (owner->every_ms > 0)
        pthread_join(owner->feeder, NULL);
    if (owner->heir)
        hand_over(owner);
    pl_stream_free(owner->parts > 0 ? owner->stream : NULL);
    pl_engine_destroy(owner->engine);
    return NULL;
}

static int start_owners(void *user, uint32_t count, const char *address)
{
    struct owners *owners = user;
    for (; count > 0 && owners->started < WORKERS; count--) {
        struct owner *owner = &owners->at[owners->started];
        snprintf(owner->address, sizeof owner->address, "%s", address);
        if (pthread_create(&owner->worker, NULL, work_own, owner) != 0)
            return -1;
        owners->started++;
    }
    return 0;
}

static struct owners make_halves(bool grows, long every_ms)
{
    struct owners owners = {.started = 0};
    for (uint32_t k = 0; k < WORKERS; k++)
        owners.at[k] = (struct owner){.from = k * HALF,
                                      .count = HALF,
                                      .height = TINY_SIDE,
                                      .grows = grows,
                                      .every_ms = every_ms};
    return owners;
}

/* Run the tiny job with these fields set, ended by NULL; the driver has a few records, too. */
static int run_owners(struct tiny *t, struct owners *owners, const char *const *set, char out[128],
                      char error[512])
{
    struct owner driver = {.count = 30, .height = TINY_SIDE};
    const pl_stream_options options = {.size = sizeof options,
                                       .channels = 1,
                                       .height = TINY_SIDE,
                                       .width = TINY_SIDE,
                                       .classes = 3,
                                       .type = PL_F32};
    const pl_run_options run = {.size = sizeof run,
                                .out = tiny_out(t, out),
                                .start_workers = start_owners,
                                .user = owners,
                                .patience_s = 8};
    static const char *const fields[] = {"workers=2", "validation=0", "local_data=true",
                                         "solver.momentum=0.5",
                                         "train_data={memory {name: 'train'} scale: 0.00390625}"};
    pl_job *job = NULL;
    pl_run_report report;
    assert_int_equal(pl_engine_create(NULL, &driver.engine), PL_OK);
    assert_int_equal(pl_stream_open(driver.engine, "train", &options, &driver.stream), PL_OK);
    feed_stream(&driver);
    assert_int_equal(driver.fed, PL_OK);
    assert_int_equal(pl_job_load(driver.engine, t->job, &job), PL_OK);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        assert_int_equal(pl_job_set(job, fields[i]), PL_OK);
    for (; *set; set++)
        if (pl_job_set(job, *set) != PL_OK)
            fail_msg("%s", pl_engine_error(driver.engine));
    int rc = pl_run(driver.engine, job, &run, &report);
    snprintf(error, 512, "%s", pl_engine_error(driver.engine));
    for (uint32_t k = 0; k < owners->started; k++)
        pthread_join(owners->at[k].worker, NULL);
    pl_job_free(job);
    pl_engine_destroy(driver.engine);
    return rc;
}

#define RUN(t, owners, out, error, ...) \
    run_owners(t, owners, (const char *const[]){__VA_ARGS__, NULL}, out, error)

static void expect_done(const struct owners *owners, int rc, const char *error)
{
    for (uint32_t k = 0; k < WORKERS; k++)
        if (owners->at[k].rc != PL_OK || owners->at[k].fed != PL_OK)
            fail_msg("worker %u: %d: %s, stream %d", k, owners->at[k].rc, owners->at[k].error,
                     owners->at[k].fed);
    if (rc != PL_OK)
        fail_msg("%d: %s", rc, error);
}

static void test_workers_train_on_their_own_records(void **state)
{
    struct owners owners = make_halves(false, 0);
    char out[128], error[512];
    int rc = RUN(*state, &owners, out, error, "stop.epochs=6", "validation=30",
                 "driver_validates=true"); /* on the driver's records: workers hold none out */
    expect_done(&owners, rc, error);
    assert_true(run_number(out, "end", 0, "test_error") < 0.34);
    assert_true(run_number(out, "end", 0, "validation_error") < 0.34);
    double used = 0;
    for (int k = 0; k < WORKERS; k++) {
        assert_true(run_number(out, "records", k, "records") == HALF);
        used += run_number(out, "records", k, "used");
    }
    assert_true(used == run_number(out, "end", 0, "used"));
    assert_int_equal(run_count(out, "records", "path", "memory:train"), WORKERS);
}

/* Training begins with 40 records of 300, which take 1.2 s to arrive. All are used at the end. */
static void test_training_begins_before_the_last_record(void **state)
{
    static const char *const strategies[] = {"strategy.sync={tau:4}", "strategy.mpca={}",
                                             "strategy.pace={}", "strategy.ps={}"};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        struct owners owners = make_halves(true, 40);
        char out[128], error[512];
        int rc = RUN(*state, &owners, out, error, strategies[i], "train_data.memory.begin_with=40",
                     "epoch_records=600", "pace=0.004", "stop.epochs=40", "solver.base_lr=0.02");
        expect_done(&owners, rc, error);
        for (int k = 0; k < WORKERS; k++)
            assert_true(run_number(out, "records", k, "records") == HALF);
        double begun = run_number(out, "member", 1, "t");
        print_message("    %s: begun after %.2f s, error %.3f\n", strategies[i], begun,
                      run_number(out, "end", 0, "test_error"));
        assert_true(begun < 1.1);
        assert_true(run_number(out, "end", 0, "test_error") < 0.34);
    }
}

/* Without begin_with it begins when all records are there. */
static void test_training_waits_for_all_records(void **state)
{
    struct owners owners = make_halves(true, 10);
    char out[128], error[512];
    expect_done(&owners, RUN(*state, &owners, out, error, "stop.epochs=2"), error);
    for (int k = 0; k < WORKERS; k++)
        assert_true(run_number(out, "records", k, "records") == HALF);
    assert_true(run_number(out, "records", 0, "used") >= 2 * HALF);
}

static void *ask_to_leave(void *arg)
{
    pause_ms(1000);
    pl_flag_set(&((struct owner *)arg)->leave, 1);
    return NULL;
}

static int left_worker(const char *out)
{
    cJSON *event = run_event(out, "member", "what", "leave", 0);
    const cJSON *node = cJSON_GetObjectItem(event, "node");
    int worker = cJSON_IsNumber(node) ? node->valueint : -1;
    cJSON_Delete(event);
    assert_in_range(worker, 0, WORKERS - 1);
    return worker;
}

/* A worker leaves, and the other one takes its records while it trains. The books know the parts
 * again: their samples are counted together, and the four parts are an epoch. */
static void test_parts_move_to_a_worker_that_trains(void **state)
{
    struct owners owners = make_halves(true, 0);
    char out[128], error[512];
    pthread_t asking;
    double used = 0, due = 0;
    for (uint32_t k = 0; k < WORKERS; k++)
        owners.at[k].parts = 1 + 2 * k;
    owners.at[1].heir = &owners.at[0];
    if (pthread_create(&asking, NULL, ask_to_leave, &owners.at[1]) != 0)
        abort();
    int rc = RUN(*state, &owners, out, error, "train_data.memory.begin_with=1", "epoch_records=600",
                 "pace=0.004", "stop.epochs=60", "solver.base_lr=0.02", "strategy.sync={tau:4}");
    pthread_join(asking, NULL);
    expect_done(&owners, rc, error);
    assert_int_equal(run_count(out, "member", "what", "leave"), 1);
    assert_int_equal(run_count(out, "records", "path", "memory:train"), 2 * WORKERS);
    /* The first to reach the driver is worker 0, whichever of the two threads it is. */
    int stayed = 1 - left_worker(out);
    for (int k = 0; k < 2 * WORKERS; k++) {
        double taken = run_number(out, "records", k, "used");
        print_message("    part %d: %g used, %g due\n", k, taken,
                      run_number(out, "records", k, "due"));
        assert_true(run_number(out, "records", k, "records") == HALF / 2.0);
        assert_true(run_number(out, "records", k, "owner") == stayed);
        assert_true(run_number(out, "records", k, "due") == 60.0 * HALF / 2);
        /* An epoch is missed or repeated while the records move, and those of a pass at the end. */
        assert_in_range((unsigned)taken, 50 * HALF / 2, 70 * HALF / 2);
        used += taken;
        due += run_number(out, "records", k, "due");
    }
    assert_true(used == due && used == run_number(out, "end", 0, "used"));
}

static void test_what_is_missing_has_a_name(void **state)
{
    struct owners owners = make_halves(true, 10);
    char out[128], error[512];
    int rc = RUN(*state, &owners, out, error, "train_data.memory.begin_with=40");
    assert_int_equal(rc, PL_ERR_INPUT);
    assert_non_null(strstr(error, "epoch_records: is missing; the records of worker"));
    owners = make_halves(true, 10);
    rc = RUN(*state, &owners, out, error, "train_data.memory.begin_with=40", "validation=9",
             "epoch_records=600");
    assert_int_not_equal(rc, PL_OK);
    assert_non_null(strstr(owners.at[0].error, "validation: none can be held out of records"));
}

static void test_other_kinds_are_refused(void **state)
{
    struct owners owners = make_halves(false, 0);
    char out[128], error[512];
    owners.at[1].height = TINY_SIDE - 1;
    assert_int_not_equal(RUN(*state, &owners, out, error, "stop.epochs=1"), PL_OK);
    assert_int_equal(owners.at[1].rc, PL_ERR_INPUT);
    assert_non_null(strstr(owners.at[1].error, "train_data there (memory:train) is 1x11x12 of 3 "
                                               "classes, the driver's (memory:train) is 1x12x12 of "
                                               "3 classes"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workers_train_on_their_own_records),
        cmocka_unit_test(test_training_begins_before_the_last_record),
        cmocka_unit_test(test_training_waits_for_all_records),
        cmocka_unit_test(test_parts_move_to_a_worker_that_trains),
        cmocka_unit_test(test_what_is_missing_has_a_name),
        cmocka_unit_test(test_other_kinds_are_refused),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
