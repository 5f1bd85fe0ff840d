/* Caffe's solvers and nets as jobs: the conversion of each field, and refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job/job.h"
#include "job/job_solver.h"
#include "job/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD   "net: 'n' base_lr: 0.1 lr_policy: 'fixed' "
#define SOLVER HEAD "max_iter: 90 "
#define TESTED SOLVER "test_iter: 7 test_interval: 30 "
#define LMDB   "data_param { source: 'db/train' batch_size: 20 backend: LMDB } "
#define LAYER  "name: 'records' type: 'Data' top: 'data' top: 'label' "
#define TRAIN  "layer { " LAYER "include { phase: TRAIN } " LMDB "} "
#define TEST                                                                   \
    "layer { " LAYER "include { phase: TEST } data_param { source: 'db/test' " \
    "batch_size: 11 backend: LMDB } } "
#define REST                                                              \
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' } " \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' } "
#define NET "name: 'N' " TRAIN TEST REST

static ProtobufCMessage *parse_message(const ProtobufCMessageDescriptor *type, const char *text)
{
    struct err err = {0};
    ProtobufCMessage *msg = NULL;
    if (text_parse(type, "t", text, strlen(text), &msg, &err) != OK)
        fail_msg("%s", err.text);
    return msg;
}

static Caffe__NetParameter *net_of(const char *text)
{
    return text ? (Caffe__NetParameter *)parse_message(&caffe__net_parameter__descriptor, text)
                : NULL;
}

/* The lines of the log. */
struct logged {
    char text[4096];
};

static void keep_line(void *user, enum log_level level, const char *line)
{
    struct logged *lines = user;
    size_t used = strlen(lines->text);
    (void)level;
    snprintf(lines->text + used, sizeof lines->text - used, "%s\n", line);
}

struct mapped {
    int rc;
    struct err err;
    Paceline__Job *job; /* NULL unless rc is OK */
    struct job_solver_wants wants;
    struct logged lines;
};

/* `test` NULL: the same net, where the solver tests. */
static void map_two(struct mapped *m, const char *solver, const char *net, const char *test)
{
    ProtobufCMessage *s = parse_message(&caffe__solver_parameter__descriptor, solver);
    Caffe__SolverParameter *parsed = (Caffe__SolverParameter *)s;
    Caffe__NetParameter *train = net_of(net), *other = net_of(test);
    *m = (struct mapped){0};
    const struct logger log = {keep_line, &m->lines, LOG_INFO};
    const Caffe__NetParameter *tests = other ? other : parsed->n_test_iter > 0 ? train : NULL;
    m->rc = job_from_solver(parsed, train, tests, "mine", &log, &m->job, &m->wants, &m->err);
    protobuf_c_message_free_unpacked(s, NULL);
    caffe__net_parameter__free_unpacked(train, NULL);
    if (other)
        caffe__net_parameter__free_unpacked(other, NULL);
}

static void map_solver(struct mapped *m, const char *solver, const char *net)
{
    map_two(m, solver, net, NULL);
    if (m->rc != OK)
        fail_msg("%s", m->err.text);
}

static void expect_refusal(const char *solver, const char *net, int status, const char *message)
{
    struct mapped m;
    map_two(&m, solver, net, NULL);
    assert_int_equal(m.rc, status);
    assert_string_equal(m.err.text, message);
    job_free(m.job);
}

/* Finished with records in place of local ones. */
static void finish_solver(struct mapped *m)
{
    if (job_finish(m->job, &m->err) != OK)
        fail_msg("%s", m->err.text);
}

/* ---- which of the two a file is ---- */

static bool is_solver(const char *text)
{
    return job_is_solver(text, strlen(text));
}

static void test_solver_is_recognised_by_its_fields(void **state)
{
    (void)state;
    assert_true(is_solver("net: \"a.prototxt\""));
    assert_true(is_solver("# a comment\nnet : 'a'\nbase_lr: 1"));
    assert_true(is_solver("weights: 'w' iter_size: 2 base_lr: 0.1"));
    assert_true(is_solver("train_net: 't'"));
    assert_true(is_solver("net_param { name: 'n' } base_lr: 1"));
    assert_false(is_solver("net { zoo: 'lenet' } solver { base_lr: 1 }"));
    assert_false(is_solver("net: { file: 'n' }"));
    assert_false(is_solver("name: 'max_iter'"));
    assert_false(is_solver("iter_size: 2 solver { base_lr: 1 max_iter: 3 }"));
    assert_false(is_solver("solver < net: 'n' base_lr: 1 >"));
    assert_false(is_solver(""));
    assert_false(is_solver("what: is this"));
    assert_false(is_solver("}}}}net"));
    assert_false(is_solver("net:"));
    assert_false(is_solver("\"unfinished"));
}

static void nets_of(const char *solver, struct job_solver_net *train, struct job_solver_net *test,
                    int status, const char *message)
{
    struct err err = {0};
    ProtobufCMessage *s = parse_message(&caffe__solver_parameter__descriptor, solver);
    int rc = job_solver_nets((Caffe__SolverParameter *)s, train, test, &err);
    assert_int_equal(rc, status);
    assert_string_equal(err.text, message);
    if (train->file)
        assert_string_equal(train->file, "a");
    protobuf_c_message_free_unpacked(s, NULL);
}

static void test_solver_nets(void **state)
{
    (void)state;
    struct job_solver_net train, test;
    nets_of("net: 'a'", &train, &test, OK, "");
    assert_true(train.file && !train.given && !test.file && !test.given);
    nets_of("net: 'a' test_iter: 1 test_interval: 5", &train, &test, OK, "");
    assert_ptr_equal(train.file, test.file);
    nets_of("train_net: 'a' test_net: 'b' test_iter: 1 test_interval: 5", &train, &test, OK, "");
    assert_ptr_not_equal(train.file, test.file);
    nets_of("net_param { name: 'n' }", &train, &test, OK, "");
    assert_non_null(train.given);
    nets_of("train_net_param { name: 'n' } test_net_param { name: 'm' } test_iter: 1 "
            "test_interval: 5",
            &train, &test, OK, "");
    assert_ptr_not_equal(train.given, test.given);
    train = (struct job_solver_net){0};
    nets_of("base_lr: 1", &train, &test, ERR_INPUT,
            "net: give the trained net as net, net_param, train_net or train_net_param");
    nets_of("net: 'a' train_net: 'b'", &train, &test, ERR_INPUT,
            "train_net: give the trained net as net, net_param, train_net or train_net_param");
    nets_of("train_net: 'a' test_net: 'b'", &train, &test, ERR_INPUT,
            "test_iter: 0 given, for 1 testing nets");
    nets_of("train_net: 'a' test_iter: 1", &train, &test, ERR_INPUT,
            "test_iter: 1 given, for 0 testing nets");
    nets_of("net: 'a' test_iter: 1 test_iter: 2 test_interval: 1", &train, &test, ERR_UNSUPPORTED,
            "test_iter: 2 testing nets, one is supported");
    nets_of("net: 'a' test_iter: 1", &train, &test, ERR_INPUT,
            "test_interval: must be > 0 where there is a test_iter");
    nets_of("net: 'a' test_state { level: 1 }", &train, &test, ERR_INPUT,
            "test_state: 1 given, for 0 testing nets");
}

/* ---- what becomes of the fields ---- */

static void test_solver_run_length(void **state)
{
    (void)state;
    struct mapped m;
    map_solver(&m,
               TESTED
               "momentum: 0.9 weight_decay: 0.5 type: 'Nesterov' clip_gradients: 3 iter_size: 2 "
               "random_seed: 8 weights: 'a,b' weights: 'c' display: 40 average_loss: 6 "
               "snapshot: 50 snapshot_prefix: 'x/lenet' regularization_type: 'L1'",
               NET);
    const Paceline__Job *job = m.job;
    assert_string_equal(job->name, "mine");
    assert_int_equal(job->stop->steps, 90);
    assert_int_equal(job->batch, 20);
    assert_int_equal(job->seed, 8);
    assert_int_equal(job->iter_size, 2);
    assert_string_equal(job->weights, "a,b,c");
    assert_int_equal(job->evaluate->every_steps, 30);
    assert_int_equal(job->evaluate->test_records, 77);
    assert_true(job->evaluate->at_start);
    finish_solver(&m);
    assert_int_equal(job_step_records(job), 40);
    assert_int_equal(job->solver->iter_size, 2);
    assert_true(job->solver->momentum == 0.9f && job->solver->clip_gradients == 3);
    assert_string_equal(job->solver->type, "Nesterov");
    assert_string_equal(job->solver->regularization_type, "L1");
    assert_int_equal(job->solver->display, 40);
    assert_int_equal(job->solver->average_loss, 6);
    assert_int_equal(job->solver->snapshot, 50);
    assert_string_equal(job->solver->snapshot_prefix, "x/lenet");
    assert_false(job->stop->has_epochs);
    job_free(m.job);
}

static void test_solver_defaults(void **state)
{
    (void)state;
    struct mapped m;
    map_solver(&m, SOLVER, NET);
    assert_null(m.job->test_data);
    assert_null(m.job->evaluate);
    assert_null(m.job->weights && *m.job->weights ? m.job : NULL);
    assert_string_equal(m.job->solver->snapshot_prefix, "mine");
    finish_solver(&m);
    assert_int_equal(m.job->seed, 1);
    assert_int_equal(m.job->iter_size, 1);
    assert_false(m.job->evaluate->at_start);
    job_free(m.job);
    map_solver(&m, TESTED "test_initialization: false", NET);
    assert_false(m.job->evaluate->at_start);
    job_free(m.job);
}

/* The text of a finished job has no field that differs from the job. */
static void test_the_text_has_no_defaults_that_are_not_meant(void **state)
{
    (void)state;
    static const char *const not_there[] = {"solver_mode", "random_seed",         "test_interval",
                                            "solver_type", "test_initialization", "debug_info",
                                            "device_id",   "test_compute_loss"};
    struct buf text = {0};
    struct mapped m;
    map_solver(&m, TESTED "solver_mode: CPU random_seed: 8 type: 'Adam'", NET);
    finish_solver(&m);
    text_write(&m.job->solver->base, &text);
    buf_put_u8(&text, 0);
    assert_non_null(strstr((char *)text.data, "momentum2")); /* a default that is meant */
    for (size_t i = 0; i < sizeof not_there / sizeof *not_there; i++)
        if (strstr((char *)text.data, not_there[i]))
            fail_msg("%s in: %s", not_there[i], (char *)text.data);
    buf_release(&text);
    job_free(m.job);
}

static void test_old_types_are_words(void **state)
{
    (void)state;
    static const char *const types[][2] = {
        {"SGD", "SGD"},         {"NESTEROV", "Nesterov"}, {"ADAGRAD", "AdaGrad"},
        {"RMSPROP", "RMSProp"}, {"ADADELTA", "AdaDelta"}, {"ADAM", "Adam"},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char text[256];
        struct mapped m;
        snprintf(text, sizeof text, SOLVER "solver_type: %s", types[i][0]);
        map_solver(&m, text, NET);
        finish_solver(&m);
        assert_string_equal(m.job->solver->type, types[i][1]);
        finish_solver(&m); /* a finished job may be finished again */
        assert_string_equal(m.job->solver->type, types[i][1]);
        job_free(m.job);
    }
    struct mapped m;
    map_solver(&m, SOLVER "solver_type: ADAM type: 'SGD'", NET);
    assert_int_equal(job_finish(m.job, &m.err), ERR_INPUT);
    assert_string_equal(m.err.text, "solver.solver_type: `type` is set, and one of the two may be");
    job_free(m.job);
}

static void test_solver_differences_are_logged(void **state)
{
    (void)state;
    struct mapped m;
    map_solver(&m,
               SOLVER
               "solver_mode: GPU device_id: 1 layer_wise_reduce: false snapshot_format: HDF5 "
               "test_compute_loss: true",
               NET);
    assert_string_equal(m.lines.text,
                        "solver_mode: GPU: trains on the CPU\n"
                        "device_id: ignored: trains on the CPU\n"
                        "layer_wise_reduce: ignored: strategy.allreduce.bucket_kb is for that\n"
                        "snapshot_format: HDF5 cannot be written; snapshots are BINARYPROTO\n"
                        "layer \"records\": encoded records are decoded to three channels, grey "
                        "ones too; transform_param.force_gray makes them one\n"
                        "layer \"records\": records come in a new random order in every epoch\n");
    finish_solver(&m);
    job_free(m.job);
    expect_refusal(SOLVER "debug_info: true", NET, ERR_UNSUPPORTED, "debug_info: is not supported");
    expect_refusal(SOLVER "snapshot_diff: true", NET, ERR_UNSUPPORTED,
                   "snapshot_diff: is not supported");
    expect_refusal(HEAD, NET, ERR_INPUT, "max_iter: is missing");
    expect_refusal(HEAD "max_iter: -1", NET, ERR_INPUT, "max_iter: must be > 0, is -1");
    expect_refusal(SOLVER "iter_size: 0", NET, ERR_INPUT, "iter_size: must be > 0, is 0");
    expect_refusal(SOLVER "test_iter: 0 test_interval: 1", NET, ERR_INPUT,
                   "test_iter: must be > 0, is 0");
}

/* ---- records ---- */

static void test_data_layers_are_data(void **state)
{
    (void)state;
    struct mapped m;
    map_solver(
        &m, TESTED,
        "layer { " LAYER "include { phase: TRAIN } " LMDB
        "transform_param { mirror: true crop_size: 24 mean_value: 104 mean_value: 117 "
        "mean_value: 123 scale: 0.5 } } "
        "layer { name: 'pictures' type: 'ImageData' top: 'data' top: 'label' "
        "include { phase: TEST } image_data_param { source: 'list' batch_size: 3 new_height: 30 "
        "new_width: 40 root_folder: 'in/' is_color: false } "
        "transform_param { crop_size: 24 mean_file: 'mean' } } " REST);
    const Paceline__Data *d = m.job->train_data;
    assert_int_equal(d->source_case, PACELINE__DATA__SOURCE_LMDB);
    assert_string_equal(d->lmdb->path, "db/train");
    assert_int_equal(d->lmdb->color, PACELINE__DATA__COLOR__bgr);
    assert_true(d->mirror && d->crop == 24 && d->scale == 0.5f);
    assert_int_equal(d->n_mean, 3);
    assert_true(d->mean[0] == 104 && d->mean[2] == 123);
    d = m.job->test_data;
    assert_int_equal(d->source_case, PACELINE__DATA__SOURCE_IMAGES);
    assert_string_equal(d->images->list, "list");
    assert_string_equal(d->images->root, "in/");
    assert_int_equal(d->images->color, PACELINE__DATA__COLOR__gray);
    assert_true(d->resize_height == 30 && d->resize_width == 40);
    assert_string_equal(d->mean_file, "mean");
    assert_false(d->has_mirror);
    assert_int_equal(m.job->evaluate->test_records, 21);
    job_free(m.job);
}

static void expect_line(const char *net, const char *line)
{
    struct mapped m;
    map_solver(&m, SOLVER, net);
    assert_int_equal(m.rc, OK);
    if (!strstr(m.lines.text, line))
        fail_msg("no `%s` in:\n%s", line, m.lines.text);
    job_free(m.job);
}

static void test_colours_of_encoded_records(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        Paceline__Data__Color color;
        bool expected;
    } as[] = {
        {"} ", PACELINE__DATA__COLOR__bgr, true},
        {"force_encoded_color: true } ", PACELINE__DATA__COLOR__bgr, false},
        {"} transform_param { force_color: true } ", PACELINE__DATA__COLOR__bgr, false},
        {"} transform_param { force_gray: true } ", PACELINE__DATA__COLOR__gray, false},
    };
    for (size_t i = 0; i < sizeof as / sizeof *as; i++) {
        char net[1024];
        struct mapped m;
        snprintf(net, sizeof net,
                 "layer { " LAYER "data_param { source: 'd' batch_size: 2 backend: LMDB %s} " REST,
                 as[i].more);
        map_solver(&m, SOLVER, net);
        assert_int_equal(m.job->train_data->lmdb->color, as[i].color);
        assert_true(as[i].expected == (strstr(m.lines.text, "encoded records") != NULL));
        finish_solver(&m);
        job_free(m.job);
    }
    expect_refusal(
        SOLVER,
        "layer { " LAYER "data_param { source: 'd' batch_size: 2 backend: LMDB "
        "force_encoded_color: true } transform_param { force_gray: true } } " REST,
        ERR_INPUT,
        "layer \"records\": transform_param.force_gray: data_param.force_encoded_color is set, "
        "and one of the two may be");
}

static void test_solver_ignored_layer_fields_are_logged(void **state)
{
    (void)state;
    expect_line(
        "layer { name: 'i' type: 'ImageData' top: 'data' top: 'label' image_data_param { "
        "source: 's' batch_size: 1 new_height: 3 new_width: 3 } } " REST,
        "layer \"i\": image_data_param.new_height, new_width: pictures that shrink are smoothed");
    expect_line("layer { name: 'm' type: 'MemoryData' top: 'data' top: 'label' memory_data_param { "
                "batch_size: 1 channels: 1 height: 2 width: 3 } } " REST,
                "layer \"m\": memory_data_param.channels, height, width: ignored");
    expect_line("layer { name: 'h' type: 'HDF5Data' top: 'data' top: 'label' hdf5_data_param { "
                "source: 's' batch_size: 1 shuffle: true } } " REST,
                "layer \"h\": hdf5_data_param.shuffle: ignored");
}

static void test_solver_net_takes_any_data(void **state)
{
    (void)state;
    struct mapped m;
    map_solver(&m, TESTED, NET);
    const Caffe__NetParameter *net = m.job->net->define;
    assert_string_equal(net->name, "N");
    assert_int_equal(net->n_layer, 4);
    for (size_t i = 0; i < 2; i++) {
        const Caffe__LayerParameter *layer = net->layer[i];
        assert_string_equal(layer->type, "Input");
        assert_null(layer->data_param);
        assert_int_equal(layer->n_include, 1);
        assert_int_equal(layer->include[0]->phase,
                         i == 0 ? CAFFE__PHASE__TRAIN : CAFFE__PHASE__TEST);
    }
    assert_int_equal(net->layer[2]->n_include, 0);
    job_free(m.job);
    map_solver(&m, SOLVER, TRAIN REST); /* records are for training only */
    assert_int_equal(m.job->net->define->layer[0]->n_include, 0);
    job_free(m.job);
}

static void test_records_that_only_a_user_has(void **state)
{
    (void)state;
    struct mapped m;
    map_solver(&m, TESTED,
               "layer { " LAYER "data_param { source: 's' batch_size: 5 } "
               "transform_param { scale: 0.25 } } " REST);
    assert_string_equal(m.wants.train, "layer \"records\": data_param.backend: LEVELDB cannot be "
                                       "read; give the records with --data KIND:PATH");
    assert_string_equal(m.wants.test, "layer \"records\": data_param.backend: LEVELDB cannot be "
                                      "read; give the records with --test-data KIND:PATH");
    assert_int_equal(m.job->batch, 5);
    assert_true(m.job->train_data->scale == 0.25f);
    job_free(m.job);
    static const char *const others[][2] = {
        {"HDF5Data", "hdf5_data_param { source: 's' batch_size: 9 }"},
        {"MemoryData", "memory_data_param { batch_size: 9 channels: 1 height: 2 width: 3 }"},
        {"WindowData", ""},
        {"DummyData", "dummy_data_param { num: 9 }"},
        {"Input", "input_param { shape { dim: 9 dim: 1 } }"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char net[512], want[256];
        snprintf(net, sizeof net,
                 "layer { name: 'd' type: '%s' top: 'data' top: 'label' %s } " REST, others[i][0],
                 others[i][1]);
        snprintf(want, sizeof want,
                 "layer \"d\": type \"%s\" brings no records that can be read; give the records "
                 "with --data KIND:PATH",
                 others[i][0]);
        map_solver(&m, SOLVER, net);
        assert_string_equal(m.wants.train, want);
        assert_int_equal(m.job->batch, strcmp(others[i][0], "WindowData") == 0 ||
                                               strcmp(others[i][0], "DummyData") == 0
                                           ? 64
                                           : 9);
        job_free(m.job);
    }
    map_solver(&m, SOLVER, "input: 'data' input_dim: 1 " REST);
    assert_string_equal(m.wants.train, "net: has no data layer in phase TRAIN; give the records "
                                       "with --data KIND:PATH");
    job_free(m.job);
}

static void test_data_that_is_refused(void **state)
{
    (void)state;
#define DATA(more) "layer { " LAYER "include { phase: TRAIN } " LMDB more " } " TEST REST
    expect_refusal(SOLVER, "layer { " LAYER "} " REST, ERR_INPUT,
                   "layer \"records\": data_param: is missing");
    expect_refusal(SOLVER, "layer { " LAYER "data_param { backend: LMDB } } " REST, ERR_INPUT,
                   "layer \"records\": data_param.source: is missing");
    expect_refusal(
        SOLVER, "layer { " LAYER "data_param { backend: LMDB source: 's' rand_skip: 3 } } " REST,
        ERR_UNSUPPORTED,
        "layer \"records\": data_param.rand_skip: records come in a random order of their own");
    expect_refusal(
        SOLVER, DATA("transform_param { mean_file: 'm' mean_value: 1 }"), ERR_INPUT,
        "layer \"records\": transform_param.mean_file: mean_value is set, and one of the two "
        "may be");
    expect_refusal(
        SOLVER, DATA("transform_param { force_color: true force_gray: true }"), ERR_INPUT,
        "layer \"records\": transform_param.force_gray: force_color is set, and one of the two "
        "may be");
    expect_refusal(
        SOLVER,
        "layer { name: 'i' type: 'ImageData' top: 'data' top: 'label' image_data_param { "
        "source: 's' new_width: 3 } } " REST,
        ERR_INPUT,
        "layer \"i\": image_data_param: new_height and new_width must be given together");
    expect_refusal(TESTED,
                   TRAIN "layer { " LAYER "include { phase: TEST } " LMDB
                         "transform_param { mirror: true } } " REST,
                   ERR_UNSUPPORTED,
                   "layer \"records\": transform_param.mirror: records are mirrored where they are "
                   "trained on alone");
    expect_refusal(SOLVER, TRAIN "layer { name: 'more' type: 'Input' top: 'x' } " REST,
                   ERR_UNSUPPORTED,
                   "layer \"more\": a second data layer next to \"records\" is not supported");
#undef DATA
}

static Paceline__Data *data_of(const char *text)
{
    return (Paceline__Data *)parse_message(&paceline__data__descriptor, text);
}

static void expect_maps(const char *records, const char *layer, const char *expected)
{
    struct err err = {0};
    struct buf got = {0}, want = {0};
    Paceline__Data *r = data_of(records), *l = data_of(layer), *e = data_of(expected);
    assert_int_equal(job_solver_keep_maps(r, l, &err), OK);
    text_write(&r->base, &got);
    text_write(&e->base, &want);
    buf_put_u8(&got, 0);
    buf_put_u8(&want, 0);
    assert_string_equal((char *)got.data, (char *)want.data);
    buf_release(&got);
    buf_release(&want);
    paceline__data__free_unpacked(r, NULL);
    paceline__data__free_unpacked(l, NULL);
    paceline__data__free_unpacked(e, NULL);
}

static void test_solver_replaced_records_keep_maps(void **state)
{
    (void)state;
#define IDX    "idx { images: 'i' labels: 'l' } "
#define LAYERS "lmdb { path: 'p' } scale: 0.5 mean: 1 mean: 2 crop: 9 mirror: true"
    expect_maps(IDX, LAYERS, IDX "scale: 0.5 mean: 1 mean: 2 crop: 9 mirror: true");
    expect_maps(IDX "scale: 3", LAYERS, IDX "scale: 3 mean: 1 mean: 2 crop: 9 mirror: true");
    expect_maps(IDX "mean_file: 'm' mirror: false", LAYERS,
                IDX "scale: 0.5 mean_file: 'm' crop: 9 mirror: false");
    expect_maps(IDX "mean: 7", "mean_file: 'm' resize_height: 4 resize_width: 5",
                IDX "mean: 7 resize_height: 4 resize_width: 5");
    expect_maps(IDX "resize: 8", "scale: 2 resize_height: 4 resize_width: 5",
                IDX "scale: 2 resize: 8");
    expect_maps("images { list: 'x' }", LAYERS,
                "images { list: 'x' color: bgr } scale: 0.5 mean: 1 mean: 2 crop: 9 mirror: true");
    expect_maps("images { list: 'x' color: rgb }", "scale: 2",
                "images { list: 'x' color: rgb } scale: 2");
    expect_maps("images { list: 'x' }", "images { list: 'y' color: gray }",
                "images { list: 'x' color: gray }");
#undef LAYERS
#undef IDX
}

/* ---- states ---- */

#define STAGED(rule) "layer { name: 'deep' type: 'Dropout' bottom: 'data' top: 'deep' " rule " } "

/* In which phases the layer `deep` is: "both", "TRAIN", "TEST", "none". */
static const char *where_deep_is(const char *solver, const char *rule)
{
    char net[1024];
    struct mapped m;
    const char *where = "none";
    snprintf(net, sizeof net, NET STAGED("%s"), rule);
    map_solver(&m, solver, net);
    const Caffe__NetParameter *define = m.job->net->define;
    for (size_t i = 0; i < define->n_layer; i++) {
        const Caffe__LayerParameter *layer = define->layer[i];
        if (strcmp(layer->name, "deep") != 0)
            continue;
        assert_int_equal(layer->n_exclude, 0);
        where = layer->n_include == 0                             ? "both"
                : layer->include[0]->phase == CAFFE__PHASE__TRAIN ? "TRAIN"
                                                                  : "TEST";
    }
    job_free(m.job);
    return where;
}

/* BVLC Caffe's Net::StateMeetsRule and Net::FilterNet, worked by hand. */
static void test_solver_state_selects_layers(void **state)
{
    (void)state;
#define STATES TESTED "train_state { level: 2 stage: 'a' stage: 'b' } test_state { stage: 'b' } "
    assert_string_equal(where_deep_is(STATES, ""), "both");
    assert_string_equal(where_deep_is(STATES, "include { stage: 'a' }"), "TRAIN");
    assert_string_equal(where_deep_is(STATES, "include { stage: 'b' }"), "both");
    assert_string_equal(where_deep_is(STATES, "include { stage: 'c' }"), "none");
    assert_string_equal(where_deep_is(STATES, "include { stage: 'a' stage: 'b' }"), "TRAIN");
    assert_string_equal(where_deep_is(STATES, "include { not_stage: 'a' }"), "TEST");
    assert_string_equal(where_deep_is(STATES, "exclude { not_stage: 'a' }"), "TRAIN");
    assert_string_equal(where_deep_is(STATES, "include { min_level: 1 }"), "TRAIN");
    assert_string_equal(where_deep_is(STATES, "include { min_level: 2 max_level: 2 }"), "TRAIN");
    assert_string_equal(where_deep_is(STATES, "include { max_level: 1 }"), "TEST");
    assert_string_equal(where_deep_is(STATES, "exclude { min_level: 0 }"), "none");
    assert_string_equal(
        where_deep_is(STATES, "include { stage: 'c' } include { phase: TEST stage: 'b' }"), "TEST");
    assert_string_equal(where_deep_is(TESTED, "include { stage: 'a' }"), "none");
    expect_refusal(STATES, NET STAGED("include { phase: TEST } exclude { phase: TRAIN }"),
                   ERR_INPUT, "layer \"deep\": include and exclude cannot both be given");
    expect_refusal(SOLVER "train_state { phase: TEST }", NET, ERR_UNSUPPORTED,
                   "train_state.phase: a net runs in its own phase alone");
    expect_refusal(SOLVER, "state { phase: TEST } " NET, ERR_UNSUPPORTED,
                   "net: state.phase: a net runs in its own phase alone");
#undef STATES
}

static void test_two_nets_become_one(void **state)
{
    (void)state;
    struct mapped m;
    map_two(&m,
            "train_net: 'a' test_net: 'b' test_iter: 2 test_interval: 4 base_lr: 1 "
            "lr_policy: 'fixed' max_iter: 9",
            "layer { " LAYER LMDB "} " REST,
            "layer { " LAYER
            "data_param { source: 'db/test' backend: LMDB batch_size: 3 } } " REST);
    assert_int_equal(m.rc, OK);
    const Caffe__NetParameter *net = m.job->net->define;
    assert_int_equal(net->n_layer, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(net->layer[i]->n_include, 1);
        assert_int_equal(net->layer[i]->include[0]->phase,
                         i < 3 ? CAFFE__PHASE__TRAIN : CAFFE__PHASE__TEST);
    }
    assert_string_equal(m.job->train_data->lmdb->path, "db/train");
    assert_string_equal(m.job->test_data->lmdb->path, "db/test");
    assert_int_equal(m.job->evaluate->test_records, 6);
    job_free(m.job);
}

/* ---- the solver of a job ---- */

static void a_jobs_solver(const char *more, const char *message)
{
    char text[512];
    struct err err = {0};
    Paceline__Job *job = NULL;
    snprintf(text, sizeof text,
             "net { zoo: 'lenet' } train_data { idx { images: 'i' labels: 'l' } } "
             "solver { base_lr: 1 lr_policy: 'fixed' %s",
             more);
    if (job_parse("t", text, strlen(text), &job, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(job_finish(job, &err), message ? ERR_INPUT : OK);
    if (message)
        assert_string_equal(err.text, message);
    else
        assert_int_equal(job_finish(job, &err), OK);
    job_free(job);
}

static void test_solver_job_fields_win(void **state)
{
    (void)state;
    a_jobs_solver("}", NULL);
    a_jobs_solver("test_interval: 0 random_seed: -1 test_initialization: true solver_type: SGD }",
                  NULL); /* as they are by default */
    a_jobs_solver("train_net: 'n' }",
                  "solver.train_net: name the net in `net { file: ... }` of the job instead");
    a_jobs_solver("test_iter: 3 }",
                  "solver.test_iter: use `evaluate { test_records: ... }` of the job instead");
    a_jobs_solver("test_interval: 3 }",
                  "solver.test_interval: use `evaluate { every_steps: ... }` of the job instead");
    a_jobs_solver("random_seed: 3 }", "solver.random_seed: use `seed` of the job instead");
    a_jobs_solver("weights: 'w' }", "solver.weights: use `weights` of the job instead");
    a_jobs_solver("debug_info: true }", "solver.debug_info: is not supported");
    a_jobs_solver("snapshot_format: HDF5 }", "solver.snapshot_format: HDF5 is not supported");
    a_jobs_solver("snapshot: 5 }", "solver.snapshot_prefix: is missing");
    a_jobs_solver("average_loss: 0 }", "solver.average_loss: must be from 1 to 10000, is 0");
    a_jobs_solver("clip_gradients: nan }",
                  "solver.clip_gradients: must be a finite number, is nan");
    a_jobs_solver("iter_size: 3 } iter_size: 3", NULL);
    a_jobs_solver("iter_size: 3 } iter_size: 4",
                  "solver.iter_size: `iter_size` of the job is 4, and this is 3");
    a_jobs_solver("} iter_size: 0", "iter_size: must be from 1 to 4096, is 0");
    a_jobs_solver("} batch: 65536 iter_size: 257",
                  "iter_size: a step may take 16777216 records, batch * iter_size is 16842752");
    a_jobs_solver("} evaluate { every_steps: 2 every_exchanges: 2 }",
                  "evaluate.every_steps: every_exchanges is set, and one of the two may be");
    a_jobs_solver("} evaluate { every_steps: 0 }", "evaluate.every_steps: must be > 0, is 0");
    a_jobs_solver("} evaluate { test_records: 0 }",
                  "evaluate.test_records: must be from 1 to 4294967295, is 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_solver_is_recognised_by_its_fields),
        cmocka_unit_test(test_solver_nets),
        cmocka_unit_test(test_solver_run_length),
        cmocka_unit_test(test_solver_defaults),
        cmocka_unit_test(test_the_text_has_no_defaults_that_are_not_meant),
        cmocka_unit_test(test_old_types_are_words),
        cmocka_unit_test(test_solver_differences_are_logged),
        cmocka_unit_test(test_data_layers_are_data),
        cmocka_unit_test(test_colours_of_encoded_records),
        cmocka_unit_test(test_solver_ignored_layer_fields_are_logged),
        cmocka_unit_test(test_solver_net_takes_any_data),
        cmocka_unit_test(test_records_that_only_a_user_has),
        cmocka_unit_test(test_data_that_is_refused),
        cmocka_unit_test(test_solver_replaced_records_keep_maps),
        cmocka_unit_test(test_solver_state_selects_layers),
        cmocka_unit_test(test_two_nets_become_one),
        cmocka_unit_test(test_solver_job_fields_win),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
