/* Records of the caller's, in its memory or made when they are asked for: nets and runs have the
 * same bits as with the same records in files, and mistakes have a name. */
#include "base/memory.h"
#include "engine_workers.h"
#include "paceline/data.h"
#include "paceline/net.h"
#include "run_files.h"
#include "tiny_job.h"

enum { PIXELS = TINY_SIDE * TINY_SIDE, BROKEN = 7 };

static uint8_t train_values[TINY_TRAIN][PIXELS];
static uint32_t train_labels[TINY_TRAIN], test_labels[TINY_TEST];

static void fill_records(void)
{
    for (uint32_t i = 0; i < TINY_TRAIN; i++) {
        train_labels[i] = i % TINY_CLASSES;
        for (int k = 0; k < PIXELS; k++)
            train_values[i][k] = tiny_pixel(1, i, i % TINY_CLASSES, k / TINY_SIDE, k % TINY_SIDE);
    }
    for (uint32_t i = 0; i < TINY_TEST; i++)
        test_labels[i] = i % TINY_CLASSES;
}

/* The values of the test set, as floats; those of one record cannot be made. */
static int make_record(void *user, size_t i, void *values)
{
    const int *broken = user;
    if (broken && (size_t)*broken == i)
        return PL_ERR_INPUT;
    for (int k = 0; k < PIXELS; k++)
        ((float *)values)[k] =
            tiny_pixel(2, (uint32_t)i, (uint32_t)i % TINY_CLASSES, k / TINY_SIDE, k % TINY_SIDE);
    return PL_OK;
}

static const pl_records train_records = {.size = sizeof train_records,
                                         .count = TINY_TRAIN,
                                         .channels = 1,
                                         .height = TINY_SIDE,
                                         .width = TINY_SIDE,
                                         .classes = TINY_CLASSES,
                                         .type = PL_U8,
                                         .values = train_values,
                                         .labels = train_labels};
static const pl_records test_records = {.size = sizeof test_records,
                                        .count = TINY_TEST,
                                        .channels = 1,
                                        .height = TINY_SIDE,
                                        .width = TINY_SIDE,
                                        .classes = TINY_CLASSES,
                                        .type = PL_F32,
                                        .labels = test_labels,
                                        .read = make_record,
                                        .hash = 2};

static void bind_records(pl_engine *engine, const void *train)
{
    assert_int_equal(pl_data_bind(engine, "train", train), PL_OK);
    assert_int_equal(pl_data_bind(engine, "test", &test_records), PL_OK);
}

static pl_engine *make_engine(const pl_records *train)
{
    pl_engine *engine = NULL;
    assert_int_equal(pl_engine_create(NULL, &engine), PL_OK);
    if (train)
        bind_records(engine, train);
    return engine;
}

/* ---- runs ---- */

/* Run the tiny job with two workers, on records in memory or, without `train`, in files. */
static int run_tiny(struct tiny *t, const pl_records *train, struct engine_workers *workers,
                    const char *out, char error[512])
{
    pl_engine *engine = make_engine(train);
    pl_job *job = NULL;
    pl_run_report report;
    assert_int_equal(pl_job_load(engine, t->job, &job), PL_OK);
    assert_int_equal(pl_job_set(job, "workers=2"), PL_OK);
    if (train) {
        assert_int_equal(pl_job_set(job, "train_data={memory {name: 'train'} scale: 0.00390625}"),
                         PL_OK);
        assert_int_equal(pl_job_set(job, "test_data={memory {name: 'test'} scale: 0.00390625}"),
                         PL_OK);
    }
    const pl_run_options options = {.size = sizeof options,
                                    .out = out,
                                    .start_workers = engine_workers_start,
                                    .user = workers,
                                    .patience_s = 20};
    int rc = pl_run(engine, job, &options, &report);
    engine_workers_end(workers);
    snprintf(error, 512, "%s", pl_engine_error(engine));
    pl_job_free(job);
    pl_engine_destroy(engine);
    return rc;
}

static void test_a_run_is_that_of_the_same_files(void **state)
{
    struct tiny *t = *state;
    struct engine_workers files = {.started = 0};
    const struct engine_worker binds = {.prepare = bind_records, .arg = &train_records};
    struct engine_workers memory = {.at = {binds, binds}};
    char a[128], b[128], error[512];
    assert_int_equal(run_tiny(t, NULL, &files, tiny_out(t, a), error), PL_OK);
    int rc = run_tiny(t, &train_records, &memory, tiny_out(t, b), error);
    if (rc != PL_OK)
        fail_msg("%d: %s", rc, error);
    assert_true(run_same_bits(a, b, "final.safetensors"));
    assert_true(run_number(a, "end", 0, "test_error") == run_number(b, "end", 0, "test_error"));
}

static void test_workers_with_other_records_are_refused(void **state)
{
    struct tiny *t = *state;
    static uint8_t other_values[TINY_TRAIN][PIXELS];
    memcpy(other_values, train_values, sizeof other_values);
    other_values[TINY_TRAIN - 1][PIXELS - 1] ^= 1;
    pl_records other = train_records;
    other.values = other_values;
    struct engine_workers workers = {.at = {{.prepare = bind_records, .arg = &other}}};
    char out[128], error[512];
    assert_int_not_equal(run_tiny(t, &train_records, &workers, tiny_out(t, out), error), PL_OK);
    assert_int_equal(workers.at[0].rc, PL_ERR_INPUT);
    assert_non_null(strstr(workers.at[0].error, "with other contents"));
    assert_non_null(strstr(workers.at[0].error, "train"));
    assert_int_equal(workers.at[1].rc, PL_ERR_INPUT);
    assert_non_null(strstr(workers.at[1].error, "memory:train: no records are bound to this name"));
}

/* ---- nets ---- */

static const pl_net_options net_options = {.size = sizeof net_options,
                                           .batch = 16,
                                           .solver =
                                               "base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed'",
                                           .threads = 1,
                                           .kernels = "ref"};

/* Weights after ten steps, of which the caller frees the memory; and the result of a test. */
static float *train_net(const struct tiny *t, pl_engine *engine, const char *train,
                        const char *test, size_t *n, pl_test_result *result)
{
    char path[128];
    pl_net_spec *spec;
    pl_net *net;
    float *x;
    snprintf(path, sizeof path, "%s/net.prototxt", t->folder);
    assert_int_equal(pl_net_spec_load(engine, path, &spec), PL_OK);
    assert_int_equal(pl_net_create(engine, spec, &net_options, &net), PL_OK);
    int rc = pl_net_set_training_data(net, train, 1, 3);
    if (rc == PL_OK)
        rc = pl_net_set_validation_data(net, test, 0, 1);
    if (rc != PL_OK)
        fail_msg("%s", pl_engine_error(engine));
    if (strncmp(train, "memory:train", 12) == 0)
        assert_int_equal(pl_data_unbind(engine, "train"), PL_ERR_USAGE);
    assert_int_equal(pl_net_train(net, 10, NULL), PL_OK);
    assert_int_equal(pl_net_test(net, 0, result), PL_OK);
    pl_net_all_weights(net, &x, n);
    float *copy = malloc(*n * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, x, *n * sizeof *copy);
    pl_net_free(net);
    pl_net_spec_free(spec);
    return copy;
}

static void test_a_net_is_that_of_the_same_files(void **state)
{
    const struct tiny *t = *state;
    char train[512], test[512];
    pl_engine *engine = make_engine(&train_records);
    pl_test_result from_files, from_memory;
    size_t n, m;
    snprintf(train, sizeof train, "idx:%s/train-images,%s/train-labels?scale=0.00390625", t->folder,
             t->folder);
    snprintf(test, sizeof test, "idx:%s/test-images,%s/test-labels?scale=0.00390625", t->folder,
             t->folder);
    float *files = train_net(t, engine, train, test, &n, &from_files);
    float *memory = train_net(t, engine, "memory:train?scale=0.00390625",
                              "memory:test?scale=0.00390625", &m, &from_memory);
    assert_int_equal(n, m);
    assert_memory_equal(files, memory, n * sizeof *files);
    assert_int_equal(from_memory.count, TINY_TEST);
    assert_true(from_files.error == from_memory.error && from_files.loss == from_memory.loss);
    free(files);
    free(memory);
    assert_int_equal(pl_data_unbind(engine, "train"), PL_OK);
    assert_int_equal(pl_data_bind(engine, "train", &train_records), PL_OK);
    pl_engine_destroy(engine);
}

/* ---- fields ---- */

enum { NUMBERS = 6, PLACES = 4, KINDS = 3 };

/* Numbers that are drawn; and for each of four places how many of two of them are positive. */
static float numbers[TINY_TRAIN][NUMBERS];
static int32_t kinds[TINY_TRAIN][PLACES];

static void bind_fields(pl_engine *engine, const void *arg)
{
    const size_t count = *(const size_t *)arg;
    const pl_records values = {.size = sizeof values,
                               .count = count,
                               .channels = NUMBERS,
                               .height = 1,
                               .width = 1,
                               .type = PL_F32,
                               .values = numbers};
    const pl_records targets = {.size = sizeof targets,
                                .count = count,
                                .channels = PLACES,
                                .height = 1,
                                .width = 1,
                                .type = PL_I32,
                                .values = kinds};
    const pl_field fields[] = {{.spec = "memory:values", .name = "numbers"},
                               {.spec = "memory:targets", .name = "kinds"}};
    assert_int_equal(pl_data_bind(engine, "values", &values), PL_OK);
    assert_int_equal(pl_data_bind(engine, "targets", &targets), PL_OK);
    if (pl_data_zip(engine, "both", fields, 2) != PL_OK)
        fail_msg("%s", pl_engine_error(engine));
}

static const char fields_net[] =
    "layer { name: 'data' type: 'Data' top: 'numbers' top: 'KINDS' }\n"
    "layer { name: 'a' type: 'InnerProduct' bottom: 'numbers' top: 'a'\n"
    "  inner_product_param { num_output: 48 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'a' top: 'a' }\n"
    "layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'b'\n"
    "  inner_product_param { num_output: 12 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'places' type: 'Reshape' bottom: 'b' top: 'places'\n"
    "  reshape_param { shape { dim: 0 dim: 3 dim: 4 } } }\n"
    "layer { name: 'accuracy' type: 'Accuracy' bottom: 'places' bottom: 'KINDS' top: 'accuracy'\n"
    "  include { phase: TEST } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'places' bottom: 'KINDS' }\n";

static void write_fields_net(struct tiny *t, const char *name, const char *kinds_top)
{
    char text[sizeof fields_net];
    snprintf(text, sizeof text, "%s", fields_net);
    for (char *at = text; (at = strstr(at, "KINDS")) != NULL;)
        memcpy(at, kinds_top, strlen("KINDS"));
    tiny_write(t, name, text);
}

/* Two workers learn a label for each of four places from a vector. */
static int run_fields(struct tiny *t, const char *net, double *error, char text[512])
{
    static const size_t count = TINY_TRAIN;
    const struct engine_worker binds = {.prepare = bind_fields, .arg = &count};
    struct engine_workers workers = {.at = {binds, binds}};
    pl_engine *engine = make_engine(NULL);
    pl_job *job = NULL;
    pl_run_report report;
    char out[128], file[256];
    const char *const set[] = {"workers=2",
                               "train_data={memory {name: 'both'}}",
                               "test_data={memory {name: 'both'}}",
                               file,
                               "stop={epochs: 60}",
                               "solver.base_lr=0.05",
                               "evaluate.every_exchanges=1000"};
    snprintf(file, sizeof file, "net={file: '%s/%s'}", t->folder, net);
    bind_fields(engine, &count);
    assert_int_equal(pl_job_load(engine, t->job, &job), PL_OK);
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        if (pl_job_set(job, set[i]) != PL_OK)
            fail_msg("%s", pl_engine_error(engine));
    const pl_run_options options = {.size = sizeof options,
                                    .out = tiny_out(t, out),
                                    .start_workers = engine_workers_start,
                                    .user = &workers,
                                    .patience_s = 20};
    int rc = pl_run(engine, job, &options, &report);
    engine_workers_end(&workers);
    snprintf(text, 512, "%s", pl_engine_error(engine));
    *error = rc == PL_OK ? report.test_error : 1;
    pl_job_free(job);
    pl_engine_destroy(engine);
    return rc;
}

static void test_a_run_on_fields_with_a_label_for_each_place(void **state)
{
    struct tiny *t = *state;
    char text[512];
    double error;
    for (uint32_t i = 0; i < TINY_TRAIN; i++) {
        for (uint32_t k = 0; k < NUMBERS; k++)
            numbers[i][k] = rng_normal(9, i, k);
        for (uint32_t k = 0; k < PLACES; k++)
            kinds[i][k] = (numbers[i][k] > 0) + (numbers[i][k + 2] > 0);
    }
    write_fields_net(t, "fields.prototxt", "kinds");
    if (run_fields(t, "fields.prototxt", &error, text) != PL_OK)
        fail_msg("%s", text);
    print_message("    error %.3f\n", error);
    assert_true(error < 0.1);
    write_fields_net(t, "others.prototxt", "label");
    assert_int_equal(run_fields(t, "others.prototxt", &error, text), PL_ERR_INPUT);
    print_message("    %s\n", text);
}

/* Three spirals, in arrays of the program, and two workers. */
static void test_the_example_learns(void **state)
{
    struct tiny *t = *state;
    char command[512], out[128], line[256] = "";
    double error = 100;
    snprintf(command, sizeof command, "OMP_WAIT_POLICY=passive '%s/arrays' 2 '%s'", TEST_BUILD,
             tiny_out(t, out));
    FILE *f = popen(command, "r");
    assert_non_null(f);
    char *got = fgets(line, sizeof line, f);
    assert_int_equal(pclose(f), 0);
    assert_non_null(got);
    assert_int_equal(sscanf(line, "test error %lf", &error), 1);
    print_message("    %s", line);
    assert_true(error < 5);
    assert_int_equal(run_count(out, "member", "what", "join"), 2);
}

/* ---- streams ---- */

static const pl_stream_options stream_options = {.size = sizeof stream_options,
                                                 .channels = 1,
                                                 .height = TINY_SIDE,
                                                 .width = TINY_SIDE,
                                                 .classes = TINY_CLASSES,
                                                 .type = PL_U8};

static pl_stream *open_stream(pl_engine *engine, const char *name, size_t memory)
{
    pl_stream *stream = NULL;
    pl_stream_options options = stream_options;
    options.memory = memory;
    if (pl_stream_open(engine, name, &options, &stream) != PL_OK)
        fail_msg("%s", pl_engine_error(engine));
    return stream;
}

/* The training records, as an iterator would give them. */
static void stream_records(pl_engine *engine, pl_stream *stream)
{
    for (size_t i = 0; i < TINY_TRAIN;) {
        void *values;
        uint32_t *labels;
        size_t room, n;
        assert_int_equal(pl_stream_acquire(stream, &values, &labels, &room), PL_OK);
        n = room < TINY_TRAIN - i ? room : TINY_TRAIN - i;
        n = n < 17 ? n : 17;
        memcpy(values, train_values[i], n * PIXELS);
        memcpy(labels, train_labels + i, n * sizeof *labels);
        if (pl_stream_commit(stream, n) != PL_OK)
            fail_msg("%s", pl_engine_error(engine));
        i += n;
    }
    if (pl_stream_seal(stream) != PL_OK)
        fail_msg("%s", pl_engine_error(engine));
}

static void test_a_net_on_a_stream_is_that_of_the_same_files(void **state)
{
    const struct tiny *t = *state;
    char test[512], train[512];
    snprintf(train, sizeof train, "idx:%s/train-images,%s/train-labels?scale=0.00390625", t->folder,
             t->folder);
    snprintf(test, sizeof test, "idx:%s/test-images,%s/test-labels?scale=0.00390625", t->folder,
             t->folder);
    for (int memory = 0; memory < 2; memory++) { /* all; and nothing but the last block */
        pl_engine *engine = make_engine(NULL);
        pl_test_result from_files, from_stream;
        size_t n, m;
        stream_records(engine, open_stream(engine, "train", (size_t)memory));
        float *files = train_net(t, engine, train, test, &n, &from_files);
        float *stream =
            train_net(t, engine, "memory:train?scale=0.00390625", test, &m, &from_stream);
        assert_int_equal(n, m);
        assert_memory_equal(files, stream, n * sizeof *files);
        free(files);
        free(stream);
        if (memory)
            assert_int_equal(pl_data_unbind(engine, "train"), PL_OK);
        pl_engine_destroy(engine);
    }
}

/* Records that are larger than a block, so that all are in the file. */
static void test_a_stream_in_a_file(void **state)
{
    enum { RECORDS = 3, CHANNELS = 8192, VALUES = CHANNELS * PIXELS };
    struct tiny *t = *state;
    pl_engine *engine = make_engine(NULL);
    pl_stream *stream = NULL;
    pl_data *data;
    pl_stream_options options = stream_options;
    options.channels = CHANNELS;
    options.memory = 1;
    options.folder = t->folder;
    assert_int_equal(pl_stream_open(engine, "large", &options, &stream), PL_OK);
    for (uint32_t i = 0; i < RECORDS; i++) {
        void *values;
        uint32_t *labels;
        size_t room;
        assert_int_equal(pl_stream_acquire(stream, &values, &labels, &room), PL_OK);
        memset(values, (int)i + 7, VALUES);
        *labels = i;
        assert_int_equal(pl_stream_commit(stream, 1), PL_OK);
    }
    assert_int_equal(pl_stream_seal(stream), PL_OK);
    assert_int_equal(pl_data_open(engine, "memory:large", true, &data), PL_OK);
    float *x = malloc(VALUES * sizeof *x);
    assert_non_null(x);
    for (uint32_t i = RECORDS; i-- > 0;) {
        pl_data_record record;
        assert_int_equal(pl_data_read(data, i, 1, x, VALUES), PL_OK);
        assert_true(x[0] == (float)(i + 7) && x[VALUES - 1] == (float)(i + 7));
        assert_int_equal(pl_data_record_at(data, i, &record), PL_OK);
        assert_int_equal(record.label, i);
    }
    free(x);
    pl_data_close(data);
    pl_engine_destroy(engine);
}

/* A worker's stream: of the training records, and of others that take memory. */
struct streamed {
    size_t memory; /* pl_stream_options.memory of both */
    size_t others; /* MiB */
};

static void bind_streams(pl_engine *engine, const void *arg)
{
    const struct streamed *with = arg;
    const pl_stream_options options = {.size = sizeof options,
                                       .channels = 1 << 20,
                                       .height = 1,
                                       .width = 1,
                                       .type = PL_U8,
                                       .memory = with->memory};
    pl_stream *others = NULL;
    stream_records(engine, open_stream(engine, "train", with->memory));
    assert_int_equal(pl_data_bind(engine, "test", &test_records), PL_OK);
    assert_int_equal(pl_stream_open(engine, "others", &options, &others), PL_OK);
    for (size_t i = 0; i < with->others; i++) {
        void *values;
        uint32_t *labels;
        size_t room;
        assert_int_equal(pl_stream_acquire(others, &values, &labels, &room), PL_OK);
        memset(values, 1, 1 << 20);
        assert_int_equal(pl_stream_commit(others, 1), PL_OK);
    }
    if (with->others == 0)
        pl_stream_free(others);
    else
        assert_int_equal(pl_stream_seal(others), PL_OK);
}

/* One worker, with `budget` MiB beyond what this process has now. A run whose worker fails waits
 * for another one as long as its patience. */
static int run_streamed(struct tiny *t, const struct streamed *with, size_t budget,
                        double patience_s, pl_run_report *report, char error[512])
{
    const struct streamed own = {with->memory, 0};
    struct engine_workers workers = {.at = {{.prepare = bind_streams, .arg = with}}};
    pl_engine *engine = make_engine(NULL);
    pl_job *job = NULL;
    char out[128], limit[64];
    const char *const set[] = {"workers=1", "train_data={memory {name: 'train'}}",
                               "test_data={memory {name: 'test'}}", "cache=memory", limit};
    snprintf(limit, sizeof limit, "memory_budget='%zu'", memory_used() + (budget << 20));
    bind_streams(engine, &own);
    assert_int_equal(pl_job_load(engine, t->job, &job), PL_OK);
    assert_int_equal(pl_job_set_strategy(job, "single"), PL_OK);
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        if (pl_job_set(job, set[i]) != PL_OK)
            fail_msg("%s", pl_engine_error(engine));
    const pl_run_options options = {.size = sizeof options,
                                    .out = tiny_out(t, out),
                                    .start_workers = engine_workers_start,
                                    .user = &workers,
                                    .patience_s = patience_s};
    int rc = pl_run(engine, job, &options, report);
    engine_workers_end(&workers);
    snprintf(error, 512, "%s", rc == PL_OK ? "" : workers.at[0].error);
    pl_job_free(job);
    pl_engine_destroy(engine);
    return rc;
}

/* The budget has room for other records in a file, not in memory. The cache does not keep those to
 * train on, which are fewer than a block and so in memory. */
static void test_streams_are_part_of_the_budget(void **state)
{
    struct tiny *t = *state;
    static const struct streamed memory = {0, 192}, file = {1, 192};
    pl_run_report report;
    char error[512];
    assert_int_not_equal(run_streamed(t, &memory, 128, 8, &report, error), PL_OK);
    if (!strstr(error, "nothing is left of memory_budget"))
        fail_msg("%s", error);
    if (run_streamed(t, &file, 128, 60, &report, error) != PL_OK)
        fail_msg("%s", error);
    assert_true(report.has_cache && report.cached < TINY_TRAIN - 60);
}

static void test_mistakes_of_a_stream_are_named(void **state)
{
    (void)state;
    pl_engine *engine = make_engine(&train_records);
    pl_stream *stream = NULL;
    pl_data *data;
    void *values;
    uint32_t *labels;
    size_t room;
    assert_int_equal(pl_stream_open(engine, "train", &stream_options, &stream), PL_ERR_USAGE);
    assert_null(stream);
    stream = open_stream(engine, "late", 0);
    assert_int_equal(pl_stream_commit(stream, 1), PL_ERR_USAGE);
    assert_non_null(strstr(pl_engine_error(engine), "1 records, of which 0 were acquired"));
    assert_int_equal(pl_stream_seal(stream), PL_ERR_INPUT);
    assert_string_equal(pl_engine_error(engine), "stream late: it has no record");
    assert_int_equal(pl_stream_acquire(stream, &values, &labels, &room), PL_OK);
    memset(values, 0, PIXELS);
    labels[0] = TINY_CLASSES;
    assert_int_equal(pl_stream_commit(stream, 1), PL_ERR_INPUT);
    assert_string_equal(pl_engine_error(engine), "stream late: record 0 has label 3 of 3 classes");
    labels[0] = 0;
    assert_int_equal(pl_stream_commit(stream, 1), PL_OK);
    assert_int_equal(pl_data_open(engine, "memory:late", true, &data), PL_ERR_INPUT);
    assert_int_equal(pl_data_bind(engine, "late", &train_records), PL_OK);
    assert_int_equal(pl_stream_seal(stream), PL_ERR_USAGE); /* the name was bound meanwhile */
    assert_int_equal(pl_data_unbind(engine, "late"), PL_OK);
    assert_int_equal(pl_stream_seal(stream), PL_OK);
    assert_int_equal(pl_data_open(engine, "memory:late", true, &data), PL_OK);
    pl_data_close(data);
    pl_stream_free(open_stream(engine, "forgotten", 1));
    pl_engine_destroy(engine);
}

/* The file cannot be made: the error has its path, and stays. */
static void test_a_stream_without_a_folder(void **state)
{
    (void)state;
    pl_engine *engine = make_engine(NULL);
    pl_stream *stream = NULL;
    pl_stream_options options = stream_options;
    options.channels = 8192; /* more than 1 MiB a record */
    options.memory = 1;
    options.folder = "/nowhere";
    assert_int_equal(pl_stream_open(engine, "s", &options, &stream), PL_OK);
    for (int i = 0; i < 2; i++) {
        void *values;
        uint32_t *labels;
        size_t room;
        int rc = pl_stream_acquire(stream, &values, &labels, &room);
        if (rc == PL_OK) {
            memset(values, 0, (size_t)options.channels * PIXELS);
            labels[0] = 0;
            rc = pl_stream_commit(stream, 1);
        }
        assert_int_equal(rc, PL_ERR_IO);
        assert_non_null(strstr(pl_engine_error(engine), "stream s: /nowhere/paceline-s-"));
    }
    assert_int_equal(pl_stream_seal(stream), PL_ERR_IO);
    pl_stream_free(stream);
    pl_engine_destroy(engine);
}

/* ---- sets made of others ---- */

/* Two halves, one from memory and one from files, are the whole. */
static void test_a_net_on_halves_is_that_of_the_whole(void **state)
{
    const struct tiny *t = *state;
    char files[512], train[600], test[512];
    pl_engine *engine = make_engine(&train_records);
    pl_test_result from_whole, from_halves;
    size_t n, m;
    snprintf(files, sizeof files, "idx:%s/train-images,%s/train-labels", t->folder, t->folder);
    snprintf(train, sizeof train, "%s?scale=0.00390625", files);
    snprintf(test, sizeof test, "idx:%s/test-images,%s/test-labels?scale=0.00390625", t->folder,
             t->folder);
    assert_int_equal(pl_data_shard(engine, "half-0", "memory:train", 0, 2), PL_OK);
    assert_int_equal(pl_data_shard(engine, "half-1", files, 1, 2), PL_OK);
    static const char *const halves[] = {"memory:half-0", "memory:half-1"};
    if (pl_data_concat(engine, "both", halves, 2) != PL_OK)
        fail_msg("%s", pl_engine_error(engine));
    float *whole = train_net(t, engine, train, test, &n, &from_whole);
    float *made = train_net(t, engine, "memory:both?scale=0.00390625", test, &m, &from_halves);
    assert_int_equal(n, m);
    assert_memory_equal(whole, made, n * sizeof *whole);
    free(whole);
    free(made);
    assert_int_equal(pl_data_unbind(engine, "half-0"), PL_ERR_USAGE); /* `both` reads it */
    assert_int_equal(pl_data_unbind(engine, "both"), PL_OK);
    assert_int_equal(pl_data_unbind(engine, "half-0"), PL_OK);
    pl_engine_destroy(engine);
}

static void test_samples_and_choices_by_name(void **state)
{
    (void)state;
    static const uint32_t chosen[] = {599, 0, 7};
    pl_engine *engine = make_engine(&train_records);
    pl_data *data;
    pl_data_info info;
    assert_int_equal(pl_data_subset(engine, "three", "memory:train", chosen, 3), PL_OK);
    assert_int_equal(pl_data_repeat(engine, "many", "memory:three", 100), PL_OK);
    const pl_sample_options options = {
        .size = sizeof options, .count = 60, .seed = 1, .stratified = true};
    assert_int_equal(pl_data_sample(engine, "few", "memory:train", &options), PL_OK);
    assert_int_equal(pl_data_open(engine, "memory:few", true, &data), PL_OK);
    assert_int_equal(pl_data_describe(data, &info), PL_OK);
    assert_int_equal(info.records, 60);
    for (int c = 0; c < TINY_CLASSES; c++)
        assert_int_equal(info.of_class[c], 20);
    pl_data_close(data);
    assert_int_equal(pl_data_open(engine, "memory:many", true, &data), PL_OK);
    for (size_t i = 297; i < 300; i++) {
        pl_data_record record;
        assert_int_equal(pl_data_record_at(data, i, &record), PL_OK);
        assert_int_equal(record.label, train_labels[chosen[i % 3]]);
    }
    pl_data_close(data);
    assert_int_equal(pl_data_repeat(engine, "x", "memory:three?scale=2", 2), PL_ERR_USAGE);
    assert_non_null(strstr(pl_engine_error(engine), "maps belong to the SPEC that uses"));
    assert_int_equal(pl_data_repeat(engine, "x", "memory:nothing", 2), PL_ERR_INPUT);
    assert_int_equal(pl_data_repeat(engine, "few", "memory:three", 2), PL_ERR_USAGE);
    assert_int_equal(pl_data_concat(engine, "x", NULL, 0), PL_ERR_USAGE);
    assert_int_equal(pl_data_shard(engine, "x", "memory:three", 3, 3), PL_ERR_INPUT);
    pl_engine_destroy(engine);
}

/* ---- mistakes ---- */

static void test_a_record_that_cannot_be_made(void **state)
{
    (void)state;
    static int broken = BROKEN;
    static float x[TINY_TEST * PIXELS];
    pl_records records = test_records;
    records.user = &broken;
    pl_engine *engine = make_engine(NULL);
    pl_data *data;
    assert_int_equal(pl_data_bind(engine, "some", &records), PL_OK);
    assert_int_equal(pl_data_open(engine, "memory:some", false, &data), PL_OK);
    assert_int_equal(pl_data_read(data, 0, BROKEN, x, sizeof x / sizeof *x), PL_OK);
    assert_int_equal(pl_data_read(data, 0, TINY_TEST, x, sizeof x / sizeof *x), PL_ERR_INPUT);
    assert_string_equal(pl_engine_error(engine), "memory some: record 7 cannot be made: bad input");
    pl_data_close(data);
    pl_engine_destroy(engine);
}

static void expect_refusal(pl_engine *engine, const pl_records *records, const char *name, int rc,
                           const char *text)
{
    assert_int_equal(pl_data_bind(engine, name, records), rc);
    if (!strstr(pl_engine_error(engine), text))
        fail_msg("'%s' does not say '%s'", pl_engine_error(engine), text);
}

#define WITH(...) (&(pl_records){.size = sizeof(pl_records), __VA_ARGS__})

static void test_mistakes_are_named(void **state)
{
    (void)state;
    pl_engine *engine = make_engine(&train_records);
    pl_data *data;
    static const uint32_t labels[] = {0, 3};
    static const float values[] = {1, 2};
    expect_refusal(engine, &train_records, "train", PL_ERR_USAGE, "is bound already");
    expect_refusal(engine, &train_records, "", PL_ERR_USAGE, "a name has 1 to 63");
    expect_refusal(engine, &train_records, "a?b", PL_ERR_USAGE, "a name has 1 to 63");
    expect_refusal(engine, WITH(.classes = (1 << 20) + 1), "a", PL_ERR_INPUT,
                   "memory a: 1048577 classes, at most 1048576");
    expect_refusal(engine, WITH(.count = 2, .labels = labels, .values = values, .classes = 4), "a",
                   PL_ERR_INPUT, "dimension 0 of a record is 0");
    expect_refusal(engine,
                   WITH(.count = 2, .labels = labels, .values = values, .classes = 3, .channels = 1,
                        .height = 1, .width = 1),
                   "a", PL_ERR_INPUT, "record 1 has label 3 of 3 classes");
    expect_refusal(engine,
                   WITH(.count = 2, .labels = labels, .read = make_record, .classes = 4,
                        .channels = 1, .height = 1, .width = 1),
                   "a", PL_ERR_INPUT, "need a hash");
    expect_refusal(engine,
                   WITH(.count = 2, .labels = labels, .values = values, .classes = 4,
                        .channels = 60000, .height = 16384, .width = 16384),
                   "a", PL_ERR_INPUT, "a record has 1 to");
    expect_refusal(
        engine,
        WITH(.count = 2, .labels = labels, .classes = 4, .channels = 1, .height = 1, .width = 1),
        "a", PL_ERR_INPUT, "there are no values");
    expect_refusal(engine, WITH(.classes = 4, .channels = 1, .height = 1, .width = 1), "a",
                   PL_ERR_INPUT, "memory a: 0 records");
    assert_int_equal(pl_data_open(engine, "memory:nothing", true, &data), PL_ERR_INPUT);
    assert_non_null(strstr(pl_engine_error(engine), "memory:nothing: no records are bound"));
    assert_int_equal(pl_data_open(engine, "memory:", true, &data), PL_ERR_USAGE);
    assert_int_equal(pl_data_unbind(engine, "nothing"), PL_ERR_USAGE);
    pl_engine_destroy(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_is_that_of_the_same_files),
        cmocka_unit_test(test_workers_with_other_records_are_refused),
        cmocka_unit_test(test_a_net_is_that_of_the_same_files),
        cmocka_unit_test(test_a_run_on_fields_with_a_label_for_each_place),
        cmocka_unit_test(test_the_example_learns),
        cmocka_unit_test(test_a_net_on_a_stream_is_that_of_the_same_files),
        cmocka_unit_test(test_a_stream_in_a_file),
        cmocka_unit_test(test_streams_are_part_of_the_budget),
        cmocka_unit_test(test_mistakes_of_a_stream_are_named),
        cmocka_unit_test(test_a_stream_without_a_folder),
        cmocka_unit_test(test_a_net_on_halves_is_that_of_the_whole),
        cmocka_unit_test(test_samples_and_choices_by_name),
        cmocka_unit_test(test_a_record_that_cannot_be_made),
        cmocka_unit_test(test_mistakes_are_named),
    };
    fill_records();
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
