/* Four workers, each with a quarter of the training data from an iterator of its own, and one of
 * them killed at half of the run: the error next to that of a run where all have all of the data,
 * and the counts of samples.
 *
 *     local_data [--train SPEC] [--test SPEC] [--net NAME] [--job FIELD=VALUE]... STRATEGY...
 *
 * SPECs name Fashion-MNIST, the net is lenet, and the job that of examples/fashion-lenet.job, where
 * nothing else is given. Each strategy runs three times: `shared`; `local`; `killed`, local with
 * one worker killed. A line of JSON for each. */
#include "paceline/data.h"
#include "paceline/run.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { WORKERS = 4, VICTIM = 2, FIELDS_MAX = 32 };

#define DATASETS "/usr/share/datasets/fashion-mnist/"

struct plan {
    const char *program, *train, *test, *net;
    const char *field[FIELDS_MAX];
    int fields;
    bool local, kills;
    pid_t worker[WORKERS];
    uint32_t started;
    bool killed;
};

/* ---- an iterator's records ---- */

/* Stream the records from `from` to `to` under the name "train". */
static int stream_records(pl_engine *engine, pl_data *data, const pl_data_info *info, size_t from,
                          size_t to)
{
    const pl_stream_options options = {.size = sizeof options,
                                       .channels = info->channels,
                                       .height = info->height_max,
                                       .width = info->width_max,
                                       .classes = info->classes,
                                       .type = PL_F32};
    size_t each = (size_t)info->channels * info->height_max * info->width_max;
    pl_stream *stream = NULL;
    int rc = pl_stream_open(engine, "train", &options, &stream);
    while (rc == PL_OK && from < to) {
        void *values;
        uint32_t *labels;
        size_t room;
        rc = pl_stream_acquire(stream, &values, &labels, &room);
        if (rc != PL_OK)
            break;
        room = room < to - from ? room : to - from;
        rc = pl_data_read(data, from, room, values, room * each);
        for (size_t i = 0; rc == PL_OK && i < room; i++) {
            pl_data_record record;
            rc = pl_data_record_at(data, from + i, &record);
            labels[i] = record.label;
        }
        if (rc == PL_OK)
            rc = pl_stream_commit(stream, room);
        from += room;
    }
    if (rc == PL_OK)
        return pl_stream_seal(stream);
    pl_stream_free(stream);
    return rc;
}

/* An engine that has part `k` of WORKERS parts of the records. */
static int make_engine(const char *spec, unsigned k, pl_engine **engine)
{
    pl_data *data = NULL;
    pl_data_info info;
    int rc = pl_engine_create(NULL, engine);
    if (rc == PL_OK)
        rc = pl_data_open(*engine, spec, true, &data);
    if (rc == PL_OK)
        rc = pl_data_describe(data, &info);
    if (rc == PL_OK)
        rc = stream_records(*engine, data, &info, info.records * k / WORKERS,
                            info.records * (k + 1) / WORKERS);
    pl_data_close(data);
    return rc;
}

static int work_for(const char *address, const char *spec, unsigned k)
{
    pl_engine *engine = NULL;
    int rc = spec[0] ? make_engine(spec, k, &engine) : pl_engine_create(NULL, &engine);
    if (rc == PL_OK)
        rc = pl_work(engine, &(pl_work_options){
                                 .size = sizeof(pl_work_options), .driver = address, .threads = 1});
    if (rc != PL_OK)
        fprintf(stderr, "local_data: worker %u: %s\n", k,
                engine ? pl_engine_error(engine) : "no memory");
    pl_engine_destroy(engine);
    return rc == PL_OK ? 0 : 1;
}

/* ---- the driver ---- */

static int start_workers(void *user, uint32_t count, const char *address)
{
    struct plan *plan = user;
    for (; count > 0 && plan->started < WORKERS; count--) {
        char number[16];
        snprintf(number, sizeof number, "%u", plan->started);
        char *const argv[] = {(char *)plan->program,
                              "--worker",
                              (char *)address,
                              (char *)(plan->local ? plan->train : ""),
                              number,
                              NULL};
        if (posix_spawnp(&plan->worker[plan->started], plan->program, NULL, NULL, argv, environ) !=
            0)
            return -1;
        plan->started++;
    }
    return 0;
}

static void kill_at_half(void *user, const pl_progress *progress)
{
    struct plan *plan = user;
    if (!plan->kills || plan->killed || progress->epoch < progress->epochs / 2)
        return;
    plan->killed = true;
    kill(plan->worker[VICTIM], SIGKILL);
}

/* The events of the books, as they are. */
static void print_records(void *user, const char *line)
{
    (void)user;
    if (strstr(line, "\"kind\":\"records\""))
        printf("    %s\n", line);
}

static int describe_job(pl_job *job, const struct plan *plan, const char *strategy)
{
    char text[1024];
    static const char *const fields[] = {
        "workers=4", "threads=1", "batch=64",
        "solver={type: 'SGD' base_lr: 0.04 momentum: 0.9 weight_decay: 0.0005 lr_policy: 'inv' "
        "gamma: 0.0001 power: 0.75}",
        "stop={epochs: 5}"};
    snprintf(text, sizeof text, "net={zoo: '%s'}", plan->net);
    int rc = pl_job_set(job, text);
    if (rc == PL_OK)
        rc = pl_job_set_train_data(
            job, plan->local
                     ? "memory:train?scale=0.00390625"
                     : (snprintf(text, sizeof text, "%s?scale=0.00390625", plan->train), text));
    snprintf(text, sizeof text, "%s?scale=0.00390625", plan->test);
    if (rc == PL_OK)
        rc = pl_job_set_test_data(job, text);
    for (size_t i = 0; rc == PL_OK && i < sizeof fields / sizeof *fields; i++)
        rc = pl_job_set(job, fields[i]);
    snprintf(text, sizeof text, "strategy.%s={}", strategy);
    if (rc == PL_OK)
        rc = pl_job_set(job, text);
    if (rc == PL_OK && plan->local)
        rc = pl_job_set(job, "local_data=true");
    for (int i = 0; rc == PL_OK && i < plan->fields; i++)
        rc = pl_job_set(job, plan->field[i]);
    return rc;
}

static int run_once(struct plan *plan, const char *strategy)
{
    const pl_run_options options = {.size = sizeof options,
                                    .start_workers = start_workers,
                                    .progress = kill_at_half,
                                    .event = print_records,
                                    .user = plan};
    const char *what = plan->kills ? "killed" : plan->local ? "local" : "shared";
    pl_engine *engine = NULL;
    pl_job *job = NULL;
    pl_run_report report;
    plan->started = 0;
    plan->killed = false;
    int rc = plan->local ? make_engine(plan->train, 0, &engine) : pl_engine_create(NULL, &engine);
    if (rc == PL_OK)
        rc = pl_job_create(engine, &job);
    if (rc == PL_OK)
        rc = describe_job(job, plan, strategy);
    if (rc == PL_OK)
        rc = pl_run(engine, job, &options, &report);
    if (rc == PL_OK)
        printf("{\"strategy\":\"%s\",\"data\":\"%s\",\"test_error\":%.4f,\"epochs\":%.3f,"
               "\"used\":%llu,\"repeated\":%llu,\"missed\":%llu,\"workers\":%u,\"wall_s\":%.1f}\n",
               strategy, what, report.test_error, report.epochs, (unsigned long long)report.used,
               (unsigned long long)report.repeated, (unsigned long long)report.missed,
               report.workers, report.wall_s);
    else
        fprintf(stderr, "local_data: %s, %s: %s\n", strategy, what,
                engine ? pl_engine_error(engine) : "no memory");
    fflush(stdout);
    while (wait(NULL) > 0)
        continue;
    pl_job_free(job);
    pl_engine_destroy(engine);
    return rc;
}

int main(int argc, char **argv)
{
    struct plan plan = {.program = argv[0],
                        .train = "idx:" DATASETS "train-images-idx3-ubyte.gz," DATASETS
                                 "train-labels-idx1-ubyte.gz",
                        .test = "idx:" DATASETS "t10k-images-idx3-ubyte.gz," DATASETS
                                "t10k-labels-idx1-ubyte.gz",
                        .net = "lenet"};
    int rc = PL_OK, i = 1;
    if (argc == 5 && strcmp(argv[1], "--worker") == 0)
        return work_for(argv[2], argv[3], (unsigned)strtoul(argv[4], NULL, 10));
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
        if (strcmp(argv[i], "--train") == 0)
            plan.train = argv[i + 1];
        else if (strcmp(argv[i], "--test") == 0)
            plan.test = argv[i + 1];
        else if (strcmp(argv[i], "--net") == 0)
            plan.net = argv[i + 1];
        else if (strcmp(argv[i], "--job") == 0 && plan.fields < FIELDS_MAX)
            plan.field[plan.fields++] = argv[i + 1];
        else
            break;
    }
    if (i == argc || argv[i][0] == '-') {
        fprintf(stderr, "usage: local_data [--train SPEC] [--test SPEC] [--net NAME] "
                        "[--job FIELD=VALUE]... STRATEGY...\n");
        return 2;
    }
    for (; rc == PL_OK && i < argc; i++)
        for (int way = 0; rc == PL_OK && way < 3; way++) {
            plan.local = way > 0;
            plan.kills = way > 1;
            rc = run_once(&plan, argv[i]);
        }
    return rc == PL_OK ? 0 : 1;
}
