/* A user's Caffe project: a solver, its net by a path from Caffe's root, data layers with databases
 * elsewhere. It trains without changes, with other records; writes snapshots; begins with weights,
 * frozen or not; resumes from Caffe's snapshot. */
#include "job/caffe.pb-c.h"
#include "paceline/job.h"
#include "paceline/net.h"
#include "process.h"
#include "run_files.h"
#include "tiny_job.h"

enum { LIMIT_S = 120, STEPS = 40 };

#define RECORDS(set) "idx:" set "-images," set "-labels"

static const char solver[] = "net: 'examples/tiny/net.prototxt'\n"
                             "test_iter: 5\ntest_interval: 16\n"
                             "base_lr: 0.05\nmomentum: 0.9\nweight_decay: 0.0005\n"
                             "lr_policy: 'inv'\ngamma: 0.001\npower: 0.75\n"
                             "display: 8\naverage_loss: 4\nmax_iter: 40\n"
                             "snapshot: 16\nsnapshot_prefix: 'examples/tiny/tiny'\n"
                             "solver_mode: GPU\nrandom_seed: 5\n";

/* `freeze` stands among the parameters of the convolution. */
static void write_net(struct tiny *t, const char *name, const char *freeze)
{
    char text[2048];
    snprintf(
        text, sizeof text,
        "layers { name: 'records' type: DATA top: 'data' top: 'label'\n"
        "  data_param { source: 'nowhere/train_leveldb' batch_size: 16 }\n"
        "  transform_param { scale: 0.00390625 } include { phase: TRAIN } }\n"
        "layers { name: 'records' type: DATA top: 'data' top: 'label'\n"
        "  data_param { source: 'nowhere/test_leveldb' batch_size: 12 }\n"
        "  transform_param { scale: 0.00390625 } include { phase: TEST } }\n"
        "layers { name: 'conv' type: CONVOLUTION bottom: 'data' top: 'conv' %s\n"
        "  convolution_param { num_output: 6 kernel_size: 3\n"
        "    weight_filler { type: 'xavier' } } }\n"
        "layers { name: 'pool' type: POOLING bottom: 'conv' top: 'pool'\n"
        "  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }\n"
        "layers { name: 'ip' type: INNER_PRODUCT bottom: 'pool' top: 'ip'\n"
        "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
        "layers { name: 'accuracy' type: ACCURACY bottom: 'ip' bottom: 'label'\n"
        "  top: 'accuracy' include { phase: TEST } }\n"
        "layers { name: 'loss' type: SOFTMAX_LOSS bottom: 'ip' bottom: 'label' top: 'loss' }\n",
        freeze);
    tiny_write(t, name, text);
}

struct project {
    struct tiny tiny;
    char solver[128];    /* where it is */
    char whole[128];     /* the directory of a run to the end */
    char snapshot[256];  /* its last */
    struct process last; /* of the last run */
};

static void make_folder(const struct tiny *t, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", t->folder, name);
    assert_int_equal(mkdir(path, 0777), 0);
}

/* `paceline COMMAND …` to its end, with records, in a directory of its own. */
static void run_command(struct project *p, int code, char dir[128], const char *const *arguments)
{
    const char *argv[PROCESS_ARGS_MAX];
    size_t n = 0;
    while (*arguments)
        argv[n++] = *arguments++;
    for (const char *const *more =
             (const char *const[]){"--threads", "1", "--kernels", "ref", "--json", "--out",
                                   tiny_out(&p->tiny, dir), NULL};
         *more; more++)
        argv[n++] = *more;
    argv[n] = NULL;
    process_release(&p->last);
    process_start(&p->last, p->tiny.folder, argv);
    process_wait(&p->last, LIMIT_S);
    if (p->last.code != code)
        fail_msg("code %d, expected %d; it said:\n%s", p->last.code, code, p->last.err);
}

#define RUN(p, code, dir, ...) run_command(p, code, dir, (const char *const[]){__VA_ARGS__, NULL})
#define WITH_RECORDS           "--data", RECORDS("train"), "--test-data", RECORDS("test")
/* So that each evaluation is over by the next. */
#define SLOW "--set", "pace=0.01"

static void expect_logged(const struct project *p, const char *line)
{
    if (!strstr(p->last.err, line))
        fail_msg("it did not say `%s`, but:\n%s", line, p->last.err);
}

static bool has_file(const char *dir, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, R_OK) == 0;
}

static void test_solver_project_trains_unchanged(void **state)
{
    struct project *p = *state;
    char dir[128];
    RUN(p, 0, dir, "train", p->solver, WITH_RECORDS, SLOW);
    expect_logged(p, "examples/tiny/net.prototxt\n");
    expect_logged(p, "solver_mode: GPU: trains on the CPU\n");
    expect_logged(p, "step 8: loss ");
    expect_logged(p, "step 40: loss ");
    static const double steps[] = {0, 16, 32, 40};
    assert_int_equal(run_count(dir, "eval", "set", "test"), 4);
    for (int i = 0; i < 4; i++)
        assert_true(run_number(dir, "eval", i, "step") == steps[i]);
    assert_true(run_number(dir, "eval", 3, "loss") < 0.8 * run_number(dir, "eval", 0, "loss"));
    assert_true(run_number(dir, "end", 0, "used") == STEPS * 16);
    assert_true(run_number(dir, "end", 0, "seed") == 5);
    assert_true(has_file(dir, "tiny_iter_16.caffemodel"));
    assert_true(has_file(dir, "tiny_iter_32.caffemodel"));
    assert_true(has_file(dir, "tiny_iter_40.caffemodel"));
}

/* Five batches of twelve of the 120 records there are: the error is a multiple of 1/60. */
static void test_iter_bounds_the_test(void **state)
{
    const struct project *p = *state;
    double wrong = 60 * run_number(p->whole, "eval", 0, "error");
    assert_true(fabs(wrong - round(wrong)) < 1e-5);
    assert_true(run_number(p->whole, "eval", 0, "loss") > 0);
}

static void test_solver_records_must_be_given(void **state)
{
    struct project *p = *state;
    char dir[128];
    RUN(p, 2, dir, "train", "--solver", p->solver);
    expect_logged(p,
                  "layer \"records\": data_param.backend: LEVELDB cannot be read; give the records "
                  "with --data KIND:PATH");
    RUN(p, 2, dir, "train", "--solver", p->solver, "--data", RECORDS("train"));
    expect_logged(p, "give the records with --test-data KIND:PATH");
    RUN(p, 2, dir, "train", "--solver", p->solver, p->solver);
    expect_logged(p, "a job file and --solver are one too many");
    RUN(p, 2, dir, "train");
    expect_logged(p, "a job file is missing");
}

/* Missing records are reported with the way to give others; a list in the solver's folder has its
 * pictures there, too. */
static void test_records_that_are_elsewhere(void **state)
{
    struct project *p = *state;
    char dir[128];
#define NET_OF(data)                                                         \
    data                                                                     \
        " layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' " \
        "inner_product_param { num_output: 3 } } "                           \
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' } "
#define SOLVER_OF(net) "net: '" net "' base_lr: 0.1 lr_policy: 'fixed' max_iter: 1 "
    tiny_write(&p->tiny, "caffe/examples/tiny/lmdb.prototxt",
               NET_OF("layer { name: 'd' type: 'Data' top: 'data' top: 'label' data_param { "
                      "source: 'nowhere/db' batch_size: 1 backend: LMDB } }"));
    tiny_write(&p->tiny, "caffe/examples/tiny/lmdb_solver.prototxt", SOLVER_OF("lmdb.prototxt"));
    RUN(p, 2, dir, "train", "caffe/examples/tiny/lmdb_solver.prototxt");
    expect_logged(p, "train_data: nowhere/db is not there, neither from here nor from the solver's "
                     "folder; give the records with --data KIND:PATH");
    tiny_write(&p->tiny, "caffe/examples/tiny/two.prototxt",
               NET_OF("layer { name: 'd' type: 'Data' top: 'data' top: 'label' data_param { "
                      "source: 'nowhere/db' batch_size: 1 backend: LMDB } include { phase: TRAIN } "
                      "} layer { name: 'd' type: 'Data' top: 'data' top: 'label' data_param { "
                      "source: 'nowhere/test' batch_size: 1 backend: LMDB } include { phase: TEST "
                      "} }"));
    tiny_write(&p->tiny, "caffe/examples/tiny/two_solver.prototxt",
               SOLVER_OF("two.prototxt") "test_iter: 1 test_interval: 1 ");
    RUN(p, 2, dir, "train", "caffe/examples/tiny/two_solver.prototxt", "--data",
        "idx:train-images,train-labels");
    expect_logged(p,
                  "test_data: nowhere/test is not there, neither from here nor from the solver's "
                  "folder; give the records with --test-data KIND:PATH");
    assert_null(strstr(p->last.err, "--data KIND")); /* they were given */
    tiny_write(&p->tiny, "caffe/examples/tiny/list_net.prototxt",
               NET_OF("layer { name: 'd' type: 'ImageData' top: 'data' top: 'label' "
                      "image_data_param { source: 'data/list' batch_size: 1 } }"));
    tiny_write(&p->tiny, "caffe/examples/tiny/list_solver.prototxt",
               SOLVER_OF("list_net.prototxt"));
    tiny_write(&p->tiny, "caffe/examples/tiny/list", "gone.png 0\n");
    RUN(p, 2, dir, "train", "caffe/examples/tiny/list_solver.prototxt");
    expect_logged(p, "the paths of caffe/examples/tiny/list count from its folder");
    expect_logged(p, "caffe/examples/tiny/gone.png: cannot open");
}

static void test_it_can_be_simulated(void **state)
{
    struct project *p = *state;
    char dir[128];
    tiny_cluster(&p->tiny, "node { count: 2 } step_seconds: 0.01\n"
                           "link { mbit: 1000 latency_us: 100 }\n");
    RUN(p, 0, dir, "sim", "--solver", p->solver, "--cluster", p->tiny.cluster, "--workers", "2",
        "--strategy", "allreduce", WITH_RECORDS);
    assert_true(run_number(dir, "end", 0, "used") == 2 * STEPS * 16);
    assert_true(has_file(dir, "tiny_iter_16.caffemodel"));
    assert_true(has_file(dir, "tiny_iter_40.caffemodel"));
    /* A step of four batches takes four times as long, and as many records. */
    double once = run_number(dir, "end", 0, "wall_s");
    RUN(p, 0, dir, "sim", "--solver", p->solver, "--cluster", p->tiny.cluster, "--workers", "2",
        "--strategy", "allreduce", WITH_RECORDS, "--set", "iter_size=4");
    assert_true(run_number(dir, "end", 0, "used") == 2 * 4 * STEPS * 16);
    double wall = run_number(dir, "end", 0, "wall_s") / once;
    assert_true(wall > 3 && wall < 4.2);
}

/* A rate so small that no weight moves: the result equals the input, on every worker. */
static void test_all_begin_with_the_weights(void **state)
{
    struct project *p = *state;
    static const char *const options[][2] = {
        {"1", "single"}, {"2", "sync"}, {"2", "allreduce"}, {"2", "ps"}};
    char dir[128], safetensors[256];
    snprintf(safetensors, sizeof safetensors, "%s/final.safetensors", p->whole);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        RUN(p, 0, dir, "train", p->solver, WITH_RECORDS, "--workers", options[i][0], "--strategy",
            options[i][1], "--set", "solver.base_lr=1e-25", "--weights",
            i % 2 ? safetensors : p->snapshot);
        expect_logged(p, "weights from ");
        assert_true(run_same_bits(dir, p->whole, "final.safetensors"));
        assert_true(run_number(dir, "eval", 0, "step") == 0);
        assert_true(run_number(dir, "eval", 0, "loss") ==
                    run_number(p->whole, "end", 0, "test_loss"));
    }
}

/* A run that was killed before its first checkpoint begins as it was to begin. */
static void test_solver_weights_without_checkpoint(void **state)
{
    struct project *p = *state;
    char dir[128], job[32];
    snprintf(job, sizeof job, "run-%d", p->tiny.runs + 1);
    make_folder(&p->tiny, job);
    snprintf(job, sizeof job, "run-%d/job.prototxt", p->tiny.runs + 1);
    tiny_write(&p->tiny, job, "");
    RUN(p, 0, dir, "train", p->solver, WITH_RECORDS, "--set", "solver.base_lr=1e-25", "--weights",
        p->snapshot, "--resume", "--force-change"); /* its job is empty */
    expect_logged(p, "the run starts over");
    expect_logged(p, "weights from ");
    assert_true(run_same_bits(dir, p->whole, "final.safetensors"));
}

static bool same_tensor(const char *dir_a, const char *dir_b, const char *name)
{
    struct safetensors a, b;
    struct shape shape;
    run_model(dir_a, "final.safetensors", &a);
    run_model(dir_b, "final.safetensors", &b);
    const float *x = safetensors_find(&a, name, &shape), *y = safetensors_find(&b, name, &shape);
    assert_non_null(x);
    assert_non_null(y);
    bool same = memcmp(x, y, shape_count(&shape) * sizeof *x) == 0;
    safetensors_release(&a);
    safetensors_release(&b);
    return same;
}

/* Weights of the convolution are frozen, its bias is not; decay and momentum would move both. */
static void test_what_is_frozen_stays(void **state)
{
    struct project *p = *state;
    static const char *const types[] = {"SGD", "Nesterov", "AdaDelta", "Adam"};
    char dir[128], net[256];
    write_net(&p->tiny, "frozen.prototxt", "blobs_lr: 0 blobs_lr: 1");
    snprintf(net, sizeof net, "net={file:'%s/frozen.prototxt'}", p->tiny.folder);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char type[32];
        snprintf(type, sizeof type, "solver.type=%s", types[i]);
        RUN(p, 0, dir, "train", p->solver, WITH_RECORDS, "--set", net, "--set", type, "--weights",
            p->snapshot);
        assert_true(same_tensor(dir, p->whole, "joint/conv.0"));
        assert_false(same_tensor(dir, p->whole, "joint/conv.1"));
        assert_false(same_tensor(dir, p->whole, "joint/ip.0"));
    }
}

/* ---- what Caffe left ---- */

/* A blob of the momentum in the run's checkpoint. */
static Caffe__BlobProto *blob_of(const struct safetensors *st, const char *name)
{
    Caffe__BlobProto *blob = malloc(sizeof *blob);
    struct shape shape;
    assert_non_null(blob);
    caffe__blob_proto__init(blob);
    const float *data = safetensors_find(st, name, &shape);
    assert_non_null(data);
    blob->shape = malloc(sizeof *blob->shape);
    assert_non_null(blob->shape);
    caffe__blob_shape__init(blob->shape);
    blob->shape->n_dim = shape.n;
    blob->shape->dim = calloc(shape.n, sizeof *blob->shape->dim);
    for (size_t i = 0; i < shape.n; i++)
        blob->shape->dim[i] = (int64_t)shape.dim[i];
    blob->n_data = shape_count(&shape);
    blob->data = calloc(blob->n_data, sizeof *blob->data);
    memcpy(blob->data, data, blob->n_data * sizeof *data);
    return blob;
}

/* The .solverstate that Caffe would have written with the run's last snapshot. */
static void write_state(const char *dir, const char *path, const char *learned_net, int32_t iter)
{
    static const char *const names[] = {"momentum/conv.0", "momentum/conv.1", "momentum/ip.0",
                                        "momentum/ip.1"};
    char checkpoint[3][512], learned[128];
    struct safetensors st;
    Caffe__SolverState message;
    caffe__solver_state__init(&message);
    assert_int_equal(run_checkpoints(dir, checkpoint), 1);
    run_model(dir, checkpoint[0] + strlen(dir) + 1, &st);
    Caffe__BlobProto *history[4];
    for (size_t i = 0; i < 4; i++)
        history[i] = blob_of(&st, names[i]);
    safetensors_release(&st);
    snprintf(learned, sizeof learned, "%s", learned_net);
    message.has_iter = true;
    message.iter = iter;
    message.learned_net = learned;
    message.n_history = 4;
    message.history = history;
    uint8_t *bytes = malloc(caffe__solver_state__get_packed_size(&message));
    size_t n = caffe__solver_state__pack(&message, bytes);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    free(bytes);
    for (size_t i = 0; i < 4; i++)
        caffe__blob_proto__free_unpacked(history[i], NULL);
}

/* Half of a run, then the rest from its state and its weights, which have moved since: the bits of
 * the whole. */
static void test_solver_resumes_from_solverstate(void **state)
{
    struct project *p = *state;
    char half[128], rest[128], path[256];
    RUN(p, 0, half, "train", p->solver, WITH_RECORDS, "--set", "stop.steps=20");
    assert_true(has_file(half, "tiny_iter_20.caffemodel"));
    snprintf(path, sizeof path, "%s/tiny_iter_20.solverstate", half);
    write_state(half, path, "moved/from/tiny_iter_20.caffemodel", 20);
    RUN(p, 0, rest, "train", p->solver, WITH_RECORDS, "--snapshot", path);
    assert_true(run_same_bits(rest, p->whole, "final.safetensors"));
    assert_true(run_number(rest, "start", 0, "resumed_after") == 20);
    assert_true(run_number(rest, "end", 0, "used") == STEPS * 16);
    RUN(p, 2, rest, "train", p->solver, WITH_RECORDS, "--snapshot", path, "--workers", "2");
    expect_logged(p, "a solver's state is one worker's, and strategy ");
    RUN(p, 2, rest, "train", p->solver, WITH_RECORDS, "--snapshot", path, "--set",
        "solver.type=Adam");
    expect_logged(p,
                  "holds 1 vectors of an optimizer's, and \"Adam\" has 2: it is of another solver");
    write_state(half, path, "moved/tiny_iter_99.caffemodel", 20);
    RUN(p, 2, rest, "train", p->solver, WITH_RECORDS, "--snapshot", path);
    expect_logged(p, "tiny_iter_99.caffemodel");
}

/* A prefix may lead out of the run directory, to where an earlier run has left its own. */
static void test_snapshots_of_another_run_are_kept(void **state)
{
    struct project *p = *state;
    char dir[128], prefix[256], state_file[256];
    make_folder(&p->tiny, "snapshots");
    tiny_write(&p->tiny, "snapshots/a_iter_8.caffemodel.old", "no snapshot");
    tiny_write(&p->tiny, "snapshots/b_iter_8.caffemodel", "of another prefix");
    snprintf(prefix, sizeof prefix, "solver.snapshot_prefix=%s/snapshots/a", p->tiny.folder);
#define SHORT WITH_RECORDS, "--set", "stop.steps=20", "--set", prefix
    RUN(p, 0, dir, "train", p->solver, SHORT);
    RUN(p, 2, dir, "train", p->solver, SHORT);
    expect_logged(p,
                  "snapshots/a_iter_16.caffemodel: is another run's snapshot, which this run would "
                  "replace; move it away, or set another solver.snapshot_prefix");
    snprintf(state_file, sizeof state_file, "%s/snapshots/a_iter_20.solverstate", p->tiny.folder);
    write_state(p->whole, state_file, "a_iter_20.caffemodel", 20);
    RUN(p, 0, dir, "train", p->solver, WITH_RECORDS, "--set", "stop.steps=24", "--set", prefix,
        "--snapshot", state_file); /* the same training, continued */
#undef SHORT
}

/* ---- Caffe's own files ---- */

static const char *const solvers[] = {
    "alexnet/solver.prototxt",
    "caffenet/solver.prototxt",
    "cifar10_full/cifar10_full_sigmoid_solver_bn.prototxt",
    "cifar10_full/cifar10_full_solver.prototxt",
    "cifar10_full/cifar10_full_solver_lr1.prototxt",
    "cifar10_full/cifar10_full_solver_lr2.prototxt",
    "cifar10_quick/cifar10_quick_solver.prototxt",
    "cifar10_quick/cifar10_quick_solver_lr1.prototxt",
    "cifar10_v1format/cifar10_quick_solver.prototxt",
    "cifar10_v1format/cifar10_quick_solver_lr1.prototxt",
    "googlenet/quick_solver.prototxt",
    "googlenet/solver.prototxt",
    "lenet/lenet_adadelta_solver.prototxt",
    "lenet/lenet_multistep_solver.prototxt",
    "lenet/lenet_solver.prototxt",
    "lenet/lenet_solver_adam.prototxt",
    "lenet/lenet_solver_rmsprop.prototxt",
    "resnet_cifar10/res110_solver.prototxt",
    "resnet_cifar10/res110_solver_warmup.prototxt",
    "resnet_cifar10/solver.prototxt",
    "resnet_imagenet/resnet50_solver.prototxt",
    "squeezenet/squeezenet_v1.1_solver.prototxt",
    "vgg/vgg16_solver.prototxt",
};

/* Every one is a job, with a net, once its records are given. */
static void test_published_solvers_are_jobs(void **state)
{
    (void)state;
    const char *data = getenv("PACELINE_DATA");
    if (!data) {
        print_message("    PACELINE_DATA is not set\n");
        skip();
        return;
    }
    pl_engine *engine;
    assert_int_equal(pl_engine_create(NULL, &engine), PL_OK);
    for (size_t i = 0; i < sizeof solvers / sizeof *solvers; i++) {
        char path[512];
        pl_job *job;
        pl_net_spec *net;
        snprintf(path, sizeof path, "%s/caffe/%s", data, solvers[i]);
        if (pl_job_load(engine, path, &job) != PL_OK ||
            pl_job_set_train_data(job, "idx:i,l") != PL_OK ||
            pl_job_set_test_data(job, "idx:i,l") != PL_OK || pl_net_spec_job(job, &net) != PL_OK)
            fail_msg("%s: %s", solvers[i], pl_engine_error(engine));
        pl_net_spec_free(net);
        pl_job_free(job);
    }
    pl_engine_destroy(engine);
}

static int setup(void **state)
{
    static struct project p;
    tiny_create(&p.tiny);
    make_folder(&p.tiny, "caffe");
    make_folder(&p.tiny, "caffe/examples");
    make_folder(&p.tiny, "caffe/examples/tiny");
    write_net(&p.tiny, "caffe/examples/tiny/net.prototxt", "");
    tiny_write(&p.tiny, "caffe/examples/tiny/solver.prototxt", solver);
    snprintf(p.solver, sizeof p.solver, "%s/caffe/examples/tiny/solver.prototxt", p.tiny.folder);
    RUN(&p, 0, p.whole, "train", p.solver, WITH_RECORDS);
    snprintf(p.snapshot, sizeof p.snapshot, "%s/tiny_iter_%d.caffemodel", p.whole, STEPS);
    *state = &p;
    return 0;
}

static int teardown(void **state)
{
    struct project *p = *state;
    process_release(&p->last);
    tiny_remove(&p->tiny);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_solver_project_trains_unchanged),
        cmocka_unit_test(test_iter_bounds_the_test),
        cmocka_unit_test(test_solver_records_must_be_given),
        cmocka_unit_test(test_records_that_are_elsewhere),
        cmocka_unit_test(test_it_can_be_simulated),
        cmocka_unit_test(test_all_begin_with_the_weights),
        cmocka_unit_test(test_solver_weights_without_checkpoint),
        cmocka_unit_test(test_what_is_frozen_stays),
        cmocka_unit_test(test_solver_resumes_from_solverstate),
        cmocka_unit_test(test_snapshots_of_another_run_are_kept),
        cmocka_unit_test(test_published_solvers_are_jobs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
