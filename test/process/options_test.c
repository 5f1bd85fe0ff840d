/* Options that change a job: each replaces the fields that contradict it, and reports this. The
 * messages before a run begins, the warnings about settings that are rarely intended, and the help.
 */
#include "free_port.h"
#include "process.h"
#include "tiny_job.h"

enum { LIMIT_S = 60 };

static void run_in(const struct tiny *t, struct process *p, const char *const *argv)
{
    process_start(p, t->folder, argv);
    process_wait(p, LIMIT_S);
}

#define RUN(t, p, ...) run_in(t, p, (const char *const[]){__VA_ARGS__, NULL})

/* The command ends with 0, and its stderr contains the text. */
#define TRAINS(t, phrase, ...)                                                  \
    do {                                                                        \
        struct process p;                                                       \
        char out[128];                                                          \
        RUN(t, &p, "train", "one.job", "--out", tiny_out(t, out), __VA_ARGS__); \
        if (p.code != 0 || !strstr(p.err, phrase))                              \
            fail_msg("code %d, expected `%s` in: %s", p.code, phrase, p.err);   \
        process_release(&p);                                                    \
    } while (0)

/* A job of one worker, that ends by steps. */
static int setup(void **state)
{
    tiny_setup(state);
    struct tiny *t = *state;
    tiny_write(t, "one.job",
               "name: 'one' net { file: 'net.prototxt' } kernels: ref threads: 1 batch: 16\n"
               "train_data { idx { images: 'train-images' labels: 'train-labels' } scale: 0.004 }\n"
               "solver { base_lr: 0.05 lr_policy: 'fixed' } strategy { single {} } stop { steps: "
               "1000000 }\n");
    return 0;
}

static void test_workers_take_the_place_of_single(void **state)
{
    TRAINS(*state,
           "workers=2: replaces strategy.single; several workers begin with "
           "strategy sync",
           "--workers", "2", "--epochs", "0.2");
}

static void test_epochs_take_the_place_of_steps(void **state)
{
    TRAINS(*state, "stop.epochs=0.2: replaces stop.steps", "--epochs", "0.2");
    TRAINS(*state, "", "--unset", "stop.steps", "--set", "stop.epochs=0.2");
    TRAINS(*state, "", "--steps", "3", "--lr", "0.01", "--batch", "8");
}

static void test_a_run_describes_itself(void **state)
{
    static const char *const lines[] = {
        "net         net.prototxt, 513 parameters, 3 classes",
        "records     600 to train on; each 1x12x12",
        "a step      16 records x 1 worker, 38 steps an epoch",
        "strategy    single",
        "optimizer   SGD, rate 0.05, fixed",
        "ends        after 3 steps",
        "computes    ref kernels, ",
        ", 1 thread a worker",
        "directory   ",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        TRAINS(*state, lines[i], "--steps", "3");
    struct process p;
    RUN(*state, &p, "train", "one.job", "--out", "plain", "--steps", "3");
    assert_null(strstr(p.err, "suspicious"));
    process_release(&p);
}

/* The net's line comes first, even when workers join in the meantime. */
static void test_a_run_describes_itself_before_its_workers_come(void **state)
{
    struct process p;
    RUN(*state, &p, "train", "one.job", "--out", "first", "--workers", "2", "--steps", "3");
    assert_int_equal(p.code, 0);
    const char *banner = strstr(p.err, "net         "), *join = strstr(p.err, " has joined");
    assert_true(banner && join && banner < join);
    assert_true(strstr(p.err, "directory   ") < join);
    process_release(&p);
}

#define SUSPECTS(state, phrase, ...) \
    TRAINS(state, "suspicious: " phrase, "--steps", "3", __VA_ARGS__)

static void test_rarely_intended_settings_are_reported(void **state)
{
    struct tiny *t = *state;
    tiny_write(t, "wide.prototxt",
               "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
               "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
               "  inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }\n"
               "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' }\n");
    SUSPECTS(t, "the net has 10 outputs, and the records have 3 classes: set num_output", "--set",
             "net.file=wide.prototxt");
    SUSPECTS(t, "values of records go from 0 to ", "--set", "train_data.scale=1", "--lr", "1e-9");
    SUSPECTS(t, "a step takes 601 records (batch 601, workers 1), and there are 600", "--batch",
             "601");
    SUSPECTS(t, "1000 threads compute on ", "--threads", "1000");
    SUSPECTS(t, "a learning rate of 0.1 is very high for Adam: write --lr 0.001", "--set",
             "solver.type=Adam", "--lr", "0.1");
    SUSPECTS(t, "cifar10-quick was made for records of 32 x 32, and these are 12 x 12", "--set",
             "net.zoo=cifar10-quick");
    TRAINS(t, "suspicious: the job has no stop rule, and ends after 1 epoch", "--unset", "stop");
    TRAINS(t,
           "suspicious: the loss stays at 1.0986, which is guessing among 3 classes: raise the "
           "learning rate, now 1e-09 (--lr 1e-07)",
           "--epochs", "3", "--lr", "1e-9", "--set", "train_data.scale=1e-6");
}

/* A driver knows its workers' machines no better than its own: it reports only large
 * differences. */
static void test_driver_suspects_threads_of_its_workers(void **state)
{
    struct process p;
    RUN(*state, &p, "driver", "one.job", "--out", "far", "--listen", "127.0.0.1:0", "--wait", "0.2",
        "--threads", "1000");
    assert_int_equal(p.code, 1);
    if (sysconf(_SC_NPROCESSORS_ONLN) < 100)
        assert_non_null(strstr(p.err, "suspicious: 1000 threads compute in each worker"));
    process_release(&p);
}

/* Finite, so that the run continues, and hopeless. */
static void test_an_exploding_loss_is_reported(void **state)
{
    struct process p;
    RUN(*state, &p, "train", "one.job", "--out", "high", "--steps", "60", "--lr", "1e9");
    const char *printed = strstr(p.err, "suspicious: the loss is ");
    if (p.code != 0 || !printed ||
        !strstr(printed, "the model is diverging; lower the learning rate"))
        fail_msg("code %d: %s", p.code, p.err);
    const char *loss = strstr(p.out, "training    loss ");
    assert_true(loss && strcspn(loss, "\n") < strlen("training    loss ") + 12);
    process_release(&p);
}

static void test_a_divergence_names_the_remedy(void **state)
{
    struct process p;
    RUN(*state, &p, "train", "one.job", "--out", "wild", "--epochs", "3", "--lr", "1e30");
    assert_int_equal(p.code, 1);
    const char *cause = strstr(p.err, "the model diverged");
    assert_non_null(cause);
    assert_null(strstr(cause + 1, "the model diverged")); /* once is enough */
    assert_non_null(strstr(p.err, "the model diverged (loss "));
    assert_null(strstr(p.err, "worker 0 ended"));
    assert_non_null(strstr(p.err, "solver.base_lr, now 1e+30 (--lr 1e+29)"));
    process_release(&p);
}

static void test_a_dry_run_takes_no_step(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char path[128];
    snprintf(path, sizeof path, "%s/dry", t->folder);
    RUN(t, &p, "train", "one.job", "--dry-run", "--out", "dry", "--lr", "0.25", "--batch", "601");
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.err, "net         net.prototxt, 513 parameters"));
    assert_non_null(strstr(p.err, "suspicious: a step takes 601 records"));
    assert_null(strstr(p.err, "loss"));
    assert_non_null(strstr(p.out, "base_lr: 0.25\n"));
    assert_non_null(strstr(p.out, "validation: 0\n"));
    assert_int_equal(access(path, F_OK), -1);
    process_release(&p);
    RUN(t, &p, "train", "one.job", "--dry-run", "--data", "images:nowhere");
    assert_int_equal(p.code, 2);
    assert_non_null(strstr(p.err, "nowhere"));
    process_release(&p);
}

/* As on two hosts, each with its rank in the options. */
static void test_ranks_come_from_options(void **state)
{
    struct tiny *t = *state;
    static const char *const ways[][3] = {{"wire", "--json", NULL},
                                          {"allreduce", "--floats=1e3", "--ranks=2"}};
    for (size_t i = 0; i < 2; i++) {
        struct process p[2];
        char at[PORT_TEXT];
        port_find(at);
        for (int rank = 1; rank >= 0; rank--)
            process_start(&p[rank], t->folder,
                          (const char *const[]){"bench", ways[i][0], "--rendezvous", at, "--rank",
                                                rank ? "1" : "0", ways[i][1], ways[i][2], NULL});
        for (int rank = 0; rank < 2; rank++) {
            process_wait(&p[rank], LIMIT_S);
            if (p[rank].code != 0)
                fail_msg("rank %d: code %d: %s", rank, p[rank].code, p[rank].err);
            assert_int_equal(p[rank].out[0] != '\0', rank == 0);
        }
        process_release(&p[0]);
        process_release(&p[1]);
    }
}

static void test_options_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *argv[7], *phrase;
    } ways[] = {
        {{"bench", "wire", "--rendezvous", "10.0.0.1"},
         "give --rank R (0 to 1) and --rendezvous HOST:PORT together, for one of 2 ranks"},
        {{"bench", "allreduce", "--rendezvous", "10.0.0.1"}, "--ranks N and --rendezvous"},
        {{"train", "one.job", "--dry-run", "--json"}, "prints the job as text, not with --json"},
        {{"train", "one.job", "--epochs", "1", "--steps", "2"},
         "--epochs and --steps both set the end of the run: give one of them; to end at the first "
         "of both, --epochs 1 --set stop.steps=2"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct process p;
        run_in(*state, &p, ways[i].argv);
        if (p.code != 2 || p.out[0] || !strstr(p.err, ways[i].phrase))
            fail_msg("%d, expected `%s` in: %s", p.code, ways[i].phrase, p.err);
        process_release(&p);
    }
}

static void test_help_is_asked_for_in_every_way(void **state)
{
    static const struct {
        const char *ask[3], *phrase;
    } ways[] = {
        {{"-h"}, "Exit codes: 0 done"},
        {{"help"}, "Exit codes: 0 done"},
        {{"--help"}, "Exit codes: 0 done"},
        {{"help", "train"}, "usage: paceline train"},
        {{"train", "-h"}, "usage: paceline train"},
        {{"help", "bench"}, "usage: paceline bench"},
        {{"help", "bench", "step"}, "usage: paceline bench step"},
        {{"help", "help"}, "3 done, but the final model"},
        {{"help", "data-spec"}, "images:DIR|LIST"},
        {{"-V"}, "paceline "},
        {{"version"}, "paceline "},
        {{"--version"}, "paceline "},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct process p;
        RUN(*state, &p, ways[i].ask[0], ways[i].ask[1], ways[i].ask[2]);
        assert_int_equal(p.code, 0);
        if (!strstr(p.out, ways[i].phrase))
            fail_msg("%s: expected `%s` in: %s", ways[i].ask[0], ways[i].phrase, p.out);
        process_release(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workers_take_the_place_of_single),
        cmocka_unit_test(test_epochs_take_the_place_of_steps),
        cmocka_unit_test(test_a_run_describes_itself),
        cmocka_unit_test(test_a_run_describes_itself_before_its_workers_come),
        cmocka_unit_test(test_rarely_intended_settings_are_reported),
        cmocka_unit_test(test_driver_suspects_threads_of_its_workers),
        cmocka_unit_test(test_an_exploding_loss_is_reported),
        cmocka_unit_test(test_a_divergence_names_the_remedy),
        cmocka_unit_test(test_a_dry_run_takes_no_step),
        cmocka_unit_test(test_ranks_come_from_options),
        cmocka_unit_test(test_options_that_do_not_fit_are_refused),
        cmocka_unit_test(test_help_is_asked_for_in_every_way),
    };
    return cmocka_run_group_tests_name("options", tests, setup, tiny_teardown);
}
