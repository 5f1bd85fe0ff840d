/* Training on records that no file holds: points of three spirals. Those to train on are in arrays
 * of this program, those to test with come from an iterator.
 *
 *     arrays [WORKERS [DIRECTORY]]
 *     arrays --worker ADDRESS
 *
 * Trains with so many worker processes on this machine (2), into the run directory, or the next
 * free one below runs/. Each worker is this program again, on this machine or on another one: it
 * makes or loads the same records before it calls pl_work. */
#include "paceline/data.h"
#include "paceline/net.h"
#include "paceline/run.h"

#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { SPIRALS = 3, POINTS = 3000, TEST_POINTS = 600 };

static float point[POINTS][2];
static uint32_t spiral[POINTS];

/* The next point lies on a spiral, a little off it. */
static void draw_point(float at[2], uint32_t *of)
{
    double along = (double)rand() / RAND_MAX, off = (double)rand() / RAND_MAX - 0.5;
    *of = (uint32_t)(rand() % SPIRALS);
    double angle = 4 * along + 2.0944 * *of + 0.3 * off;
    at[0] = (float)(along * cos(angle));
    at[1] = (float)(along * sin(angle));
}

/* A record is a vector of two values. Its maps, such as a scale, may follow in the SPEC. */
static int bind_points(pl_engine *engine)
{
    const pl_records records = {
        .size = sizeof records,
        .count = POINTS,
        .channels = 2,
        .height = 1,
        .width = 1,
        .classes = SPIRALS,
        .type = PL_F32,
        .values = point,
        .labels = spiral,
    };
    return pl_data_bind(engine, "train", &records);
}

/* The records of an iterator are kept in memory, or with `memory` in part on disk. */
static int stream_points(pl_engine *engine)
{
    const pl_stream_options options = {.size = sizeof options,
                                       .channels = 2,
                                       .height = 1,
                                       .width = 1,
                                       .classes = SPIRALS,
                                       .type = PL_F32};
    pl_stream *stream = NULL;
    int rc = pl_stream_open(engine, "test", &options, &stream);
    for (int i = 0; rc == PL_OK && i < TEST_POINTS; i++) {
        void *values;
        uint32_t *labels;
        size_t room;
        rc = pl_stream_acquire(stream, &values, &labels, &room);
        if (rc != PL_OK)
            break;
        draw_point(values, labels);
        rc = pl_stream_commit(stream, 1);
    }
    if (rc == PL_OK)
        rc = pl_stream_seal(stream);
    if (rc != PL_OK)
        pl_stream_free(stream);
    return rc;
}

static int make_engine(pl_engine **engine)
{
    int rc = pl_engine_create(NULL, engine);
    if (rc == PL_OK)
        rc = bind_points(*engine);
    srand(2);
    return rc == PL_OK ? stream_points(*engine) : rc;
}

/* ---- a worker ---- */

static int work_for(const char *address)
{
    pl_engine *engine = NULL;
    int rc = make_engine(&engine);
    if (rc == PL_OK)
        rc = pl_work(engine, &(pl_work_options){
                                 .size = sizeof(pl_work_options), .driver = address, .threads = 1});
    if (rc != PL_OK)
        fprintf(stderr, "arrays: a worker: %s\n", engine ? pl_engine_error(engine) : "no memory");
    pl_engine_destroy(engine);
    return rc == PL_OK ? 0 : 1;
}

/* ---- the driver ---- */

/* A program is started, and not only forked: the run has threads, and a fork of this process would
 * have the locks that they hold, and no thread that releases them. */
static int start_workers(void *user, uint32_t count, const char *address)
{
    char *program = user, *const argv[] = {program, "--worker", (char *)address, NULL};
    for (uint32_t i = 0; i < count; i++) {
        pid_t worker;
        if (posix_spawnp(&worker, program, NULL, NULL, argv, environ) != 0)
            return -1;
    }
    return 0;
}

static void describe_net(pl_net_spec *net)
{
    pl_spec_input(net, "data", "label", 2, 1, 1);
    pl_spec_inner_product(net, "ip1", "data", 64, NULL);
    pl_spec_relu(net, "relu1", "ip1");
    pl_spec_inner_product(net, "ip2", "relu1", 64, NULL);
    pl_spec_relu(net, "relu2", "ip2");
    pl_spec_inner_product(net, "ip3", "relu2", SPIRALS, NULL);
    pl_spec_softmax_loss(net, "loss", "ip3", "label");
    pl_spec_accuracy(net, "accuracy", "ip3", "label");
}

static int describe_job(pl_job *job, pl_engine *engine, unsigned workers)
{
    static const char *const fields[] = {"name=spirals",
                                         "batch=32",
                                         "validation=300",
                                         "solver={base_lr: 0.1 momentum: 0.9 lr_policy: 'fixed'}",
                                         "strategy={sync {tau: 8}}",
                                         "stop={epochs: 40}"};
    char text[32];
    pl_net_spec *net = NULL;
    int rc = pl_net_spec_create(engine, "spirals", &net);
    if (rc != PL_OK)
        return rc;
    describe_net(net);
    snprintf(text, sizeof text, "workers=%u", workers);
    rc = pl_job_set_net(job, net);
    if (rc == PL_OK)
        rc = pl_job_set_train_data(job, "memory:train");
    if (rc == PL_OK)
        rc = pl_job_set_test_data(job, "memory:test");
    if (rc == PL_OK)
        rc = pl_job_set(job, text);
    for (size_t i = 0; rc == PL_OK && i < sizeof fields / sizeof *fields; i++)
        rc = pl_job_set(job, fields[i]);
    pl_net_spec_free(net);
    return rc;
}

static int drive_run(char *program, unsigned workers, const char *directory)
{
    const pl_run_options options = {
        .size = sizeof options, .out = directory, .start_workers = start_workers, .user = program};
    pl_engine *engine = NULL;
    pl_job *job = NULL;
    pl_run_report report;
    int rc = make_engine(&engine);
    if (rc == PL_OK)
        rc = pl_job_create(engine, &job);
    if (rc == PL_OK)
        rc = describe_job(job, engine, workers);
    if (rc == PL_OK)
        rc = pl_run(engine, job, &options, &report);
    if (rc == PL_OK)
        printf("test error %.1f %%, %.0f samples/s; the model is in %s\n", 100 * report.test_error,
               (double)report.used / report.wall_s, report.directory);
    else
        fprintf(stderr, "arrays: %s\n", engine ? pl_engine_error(engine) : "no memory");
    while (wait(NULL) > 0)
        continue;
    pl_job_free(job);
    pl_engine_destroy(engine);
    return rc == PL_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    srand(1);
    for (int i = 0; i < POINTS; i++)
        draw_point(point[i], &spiral[i]);
    if (argc == 3 && strcmp(argv[1], "--worker") == 0)
        return work_for(argv[2]);
    unsigned workers = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 2;
    return drive_run(argv[0], workers, argc > 2 ? argv[2] : NULL);
}
