/* Runs of nets with recurrent layers on text, from end to end: one worker, and two that share the
 * streams of the text out. */
#include "refusal.h"
#include "run_files.h"

static const char net[] =
    "layer { name: 'text' type: 'Data' top: 'data' top: 'target' }\n"
    "layer { name: 'embed' type: 'Embed' bottom: 'data' top: 'embed' embed_param {\n"
    "  input_dim: 9 num_output: 8 weight_filler { type: 'uniform' min: -0.5 max: 0.5 } } }\n"
    "layer { name: 'units' type: 'LSTM' bottom: 'embed' top: 'units' recurrent_param {\n"
    "  num_output: 16 weight_filler { type: 'uniform' min: -0.3 max: 0.3 } } }\n"
    "layer { name: 'scores' type: 'InnerProduct' bottom: 'units' top: 'scores'\n"
    "  inner_product_param { num_output: 9 axis: 2 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'scores' bottom: 'target'\n"
    "  softmax_param { axis: 2 } }\n";

static const char job[] =
    "name: 'sequence' net { file: 'net.prototxt' }\n"
    "train_data { text { path: 'train.txt' unit: character window: 6 } streams: 8 }\n"
    "test_data { text { path: 'train.txt' } }\n"
    "validation: 20 batch: 8 threads: 1 kernels: ref\n"
    "solver { type: 'RMSProp' base_lr: 0.01 rms_decay: 0.9 lr_policy: 'fixed' clip_gradients: 5 }\n"
    "strategy { single {} } stop { epochs: 8 }\n";

/* Two of its letters are followed by two different ones each, which the ones before tell apart. */
static const char line[] = "hello world ";

static void expect_learnt(const char *run)
{
    double loss = run_number(run, "end", 0, "validation_loss");
    double error = run_number(run, "end", 0, "validation_error");
    print_message("    loss %.3f, error %.3f\n", loss, error);
    assert_true(loss < 0.5 && error < 0.2); /* drawn at random: 2.2 and 0.88 */
}

static void test_one_worker(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char run[128];
    RUN(t, &p, "train", "sequence.job", "--out", "one");
    assert_null(strstr(p.err, "suspicious"));
    process_release(&p);
    snprintf(run, sizeof run, "%s/one", t->folder);
    expect_learnt(run);
}

/* Each has eight streams of sixteen. */
static void test_two_workers(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char run[128];
    RUN(t, &p, "train", "sequence.job", "--out", "two", "--workers", "2", "--strategy", "sync",
        "--set", "strategy.sync.tau=2", "--set", "train_data.streams=16", "--epochs", "16");
    assert_null(strstr(p.err, "suspicious"));
    process_release(&p);
    snprintf(run, sizeof run, "%s/two", t->folder);
    expect_learnt(run);
}

static void test_streams_that_are_not_continued(void **state)
{
    struct tiny *t = *state;
    struct process p;
    RUN(t, &p, "train", "sequence.job", "--out", "none", "--workers", "2", "--strategy", "sync",
        "--dry-run");
    if (!strstr(p.err, "suspicious: a step takes 16 records, and there are 8 streams, so that most "
                       "records begin with a state of 0: write --set train_data.streams=16"))
        fail_msg("%s", p.err);
    process_release(&p);
}

/* The state of a worker is in no checkpoint: it begins with 0. */
static void test_a_run_is_continued(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char run[128];
    RUN(t, &p, "train", "sequence.job", "--out", "one", "--resume", "--set", "stop.epochs=9");
    process_release(&p);
    RUN(t, &p, "test", "one");
    process_release(&p);
    snprintf(run, sizeof run, "%s/one", t->folder);
    expect_learnt(run);
}

static void test_refusals(void **state)
{
    struct tiny *t = *state;
    REFUSED(t, "train_data.streams: there are 180 records for 181 streams", "train", "sequence.job",
            "--set", "train_data.streams=181");
    REFUSED(t,
            "train.txt: has 1205 characters, and a window of 1205 with what follows it takes "
            "1206",
            "train", "sequence.job", "--set", "train_data.text.window=1205");
    REFUSED(t, "train_data.streams: text.stride is set", "train", "sequence.job", "--set",
            "train_data.text.stride=1");
    tiny_write(t, "marks.prototxt",
               "layer { name: 'text' type: 'Data' top: 'data' top: 'target' }\n"
               "layer { name: 'units' type: 'LSTM' bottom: 'data' bottom: 'data' top: 'units'\n"
               "  recurrent_param { num_output: 4 } }\n"
               "layer { name: 'more' type: 'LSTM' bottom: 'units' bottom: 'units' top: 'more'\n"
               "  recurrent_param { num_output: 9 } }\n"
               "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'more' bottom: 'target'\n"
               "  softmax_param { axis: 2 } }\n");
    REFUSED(t, "layer \"more\": bottom \"units\", the marks of continuation, is 8x6x4, not 8x6",
            "train", "sequence.job", "--set", "net.file=marks.prototxt");
}

static int setup(void **state)
{
    tiny_setup(state);
    struct tiny *t = *state;
    FILE *f = tiny_open(t, "train.txt");
    for (int i = 0; i < 100; i++)
        fputs(line, f);
    fputs("hello", f);
    fclose(f);
    tiny_write(t, "net.prototxt", net);
    tiny_write(t, "sequence.job", job);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_worker),
        cmocka_unit_test(test_two_workers),
        cmocka_unit_test(test_streams_that_are_not_continued),
        cmocka_unit_test(test_a_run_is_continued),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
