/* Runs of nets with recurrent layers on text, from end to end: one worker, and two that share the
 * streams of the text out. */
#include "refusal.h"
#include "run_files.h"

static const char net[] =
    "layer { name: 'text' type: 'Data' top: 'data' top: 'target' }\n"
    "layer { name: 'embed' type: 'Embed' bottom: 'data' top: 'embed' embed_param {\n"
    "  input_dim: 8 num_output: 8 weight_filler { type: 'uniform' min: -0.5 max: 0.5 } } }\n"
    "layer { name: 'units' type: 'LSTM' bottom: 'embed' top: 'units' recurrent_param {\n"
    "  num_output: 16 weight_filler { type: 'uniform' min: -0.3 max: 0.3 } } }\n"
    "layer { name: 'scores' type: 'InnerProduct' bottom: 'units' top: 'scores'\n"
    "  inner_product_param { num_output: 8 axis: 2 weight_filler { type: 'xavier' } } }\n"
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

/* Step 30 is within an epoch of 22.5 steps: the streams continue as if the run had not ended
 * there. */
static void test_streams_of_a_resumed_run_continue(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char whole[128], parts[128];
    RUN(t, &p, "train", "sequence.job", "--out", "whole", "--set", "stop={steps:40}");
    process_release(&p);
    RUN(t, &p, "train", "sequence.job", "--out", "parts", "--set", "stop={steps:30}");
    process_release(&p);
    RUN(t, &p, "resume", "parts", "--set", "stop={steps:40}");
    if (!strstr(p.err, "with 1 worker: model, optimizer state, carried state\n"))
        fail_msg("%s", p.err);
    process_release(&p);
    snprintf(whole, sizeof whole, "%s/whole", t->folder);
    snprintf(parts, sizeof parts, "%s/parts", t->folder);
    assert_true(run_same_bits(parts, whole, "final.safetensors"));
}

static void expect_text(const struct process *p, const char *text)
{
    if (!strstr(p->err, text))
        fail_msg("%s", p->err);
}

/* The same of two workers: each has the states of its own streams, and the checkpoint has all. */
static void continue_streams(struct tiny *t, const char *name, const char *strategy,
                             const char *line_of_log)
{
    struct process p;
    char whole[128], parts[128], out[2][32];
    snprintf(out[0], sizeof out[0], "%s-whole", name);
    snprintf(out[1], sizeof out[1], "%s-parts", name);
    for (int i = 0; i < 2; i++) {
        RUN(t, &p, "train", "sequence.job", "--out", out[i], "--workers", "2", "--strategy", name,
            "--set", strategy, "--set", "train_data.streams=16", "--set",
            i == 0 ? "stop={steps:20}" : "stop={steps:14}");
        process_release(&p);
    }
    RUN(t, &p, "resume", out[1], "--set", "stop={steps:20}");
    expect_text(&p, line_of_log);
    process_release(&p);
    snprintf(whole, sizeof whole, "%s/%s", t->folder, out[0]);
    snprintf(parts, sizeof parts, "%s/%s", t->folder, out[1]);
    assert_true(run_same_bits(parts, whole, "final.safetensors"));
}

static void test_streams_of_several_workers_continue(void **state)
{
    continue_streams(*state, "allreduce", "strategy.allreduce={}",
                     "with 2 workers: model, optimizer state, carried state\n");
    continue_streams(*state, "sync", "strategy.sync={tau:2 on_replace:reset}",
                     "with 2 workers: model, carried state; optimizers start over\n");
}

/* Two workers begin where one has ended, and one where two have: a stream continues wherever its
 * next record is. Leases may give it to anyone. */
static void test_the_number_of_workers_changes(void **state)
{
    struct tiny *t = *state;
    struct process p;
    RUN(t, &p, "train", "sequence.job", "--out", "changed", "--set", "stop={steps:30}");
    process_release(&p);
    RUN(t, &p, "resume", "changed", "--set", "stop={steps:34}", "--workers", "2", "--strategy",
        "sync", "--force-change");
    expect_text(&p, "with 2 workers: model, optimizer state, carried state\n");
    process_release(&p);
    RUN(t, &p, "resume", "changed", "--set", "stop={steps:38}", "--workers", "2", "--strategy",
        "downpour", "--force-change");
    expect_text(&p, "; streams begin with a state of 0\n");
    process_release(&p);
}

/* A model in slices, of which the layer of units is shared out, carries the states of its streams
 * as one worker does: the layers before have a part of the streams. Those behind are whole, or
 * have a part of the scores. */
static void test_slices_carry_the_states_of_streams(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char whole[128], sliced[128];
    RUN(t, &p, "train", "sequence.job", "--out", "alone", "--set", "stop={steps:40}");
    process_release(&p);
    snprintf(whole, sizeof whole, "%s/alone", t->folder);
    for (int slices = 2; slices <= 3; slices++) {
        char count[32], workers[32], name[32];
        snprintf(count, sizeof count, "slices=%d", slices);
        snprintf(workers, sizeof workers, "workers=%d", slices);
        snprintf(name, sizeof name, "sliced-%d", slices);
        RUN(t, &p, "train", "sequence.job", "--out", name, "--set", "stop={steps:40}", "--set",
            count, "--set", workers, "--strategy", "allreduce", "--set",
            slices == 2 ? "slices_from=units" : "slices_from=embed", "--set",
            slices == 2 ? "slices_to=units" : "slices_to=loss");
        assert_null(strstr(p.err, "suspicious"));
        process_release(&p);
        snprintf(sliced, sizeof sliced, "%s/%s", t->folder, name);
        double apart = run_difference(sliced, whole);
        print_message("    %d slices: %.2g\n", slices, apart);
        assert_true(apart <= 1e-5);
    }
}

/* Of a run in slices the checkpoint has the states of all units: it is resumed in more slices, or
 * fewer. */
static void test_streams_of_slices_continue(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char whole[128], parts[128];
    for (int i = 0; i < 2; i++) {
        RUN(t, &p, "train", "sequence.job", "--out", i == 0 ? "slices-whole" : "slices-parts",
            "--set", "slices=2", "--set", "workers=2", "--strategy", "allreduce", "--set",
            i == 0 ? "stop={steps:40}" : "stop={steps:14}");
        process_release(&p);
    }
    RUN(t, &p, "resume", "slices-parts", "--set", "stop={steps:27}", "--set", "slices=3", "--set",
        "workers=3");
    expect_text(&p, "with 3 workers: model, optimizer state, carried state\n");
    process_release(&p);
    RUN(t, &p, "resume", "slices-parts", "--set", "stop={steps:40}", "--set", "slices=2", "--set",
        "workers=2");
    expect_text(&p, "with 2 workers: model, optimizer state, carried state\n");
    process_release(&p);
    snprintf(whole, sizeof whole, "%s/slices-whole", t->folder);
    snprintf(parts, sizeof parts, "%s/slices-parts", t->folder);
    double apart = run_difference(parts, whole);
    print_message("    2, 3, 2 slices: %.2g\n", apart);
    assert_true(apart <= 1e-5);
}

/* ---- predictions ---- */

/* The line that begins at *at, as an object, and *at behind it; NULL: there is none. */
static cJSON *next_object(const char **at)
{
    const char *begin = *at, *end = strchr(begin, '\n');
    if (!end)
        return NULL;
    *at = end + 1;
    cJSON *object = cJSON_ParseWithLength(begin, (size_t)(end - begin));
    assert_non_null(object);
    return object;
}

static int int_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);
    assert_true(cJSON_IsNumber(item));
    return item->valueint;
}

/* -log of the probability of the step's label, whose character the classes name. */
static double surprise_of(const cJSON *step, const char *vocabulary)
{
    int label = int_of(step, "label");
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(step, "classes"))
    {
        int class = int_of(item, "class");
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(item, "name"));
        assert_true(class >= 0 && class < 8 && name && name[0] == vocabulary[class] && !name[1]);
        if (class == label)
            return -log(cJSON_GetObjectItem(item, "probability")->valuedouble);
    }
    fail_msg("no class %d", label);
    return 0;
}

/* The mean of all steps is the loss that the run has measured on the same records, of which each
 * begins with a state of 0, too; and a step's label is the next character of the text. */
static void test_steps_are_predicted(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char run[128];
    double sum = 0;
    int n = 0;
    RUN(t, &p, "predict", "one", "--first", "200", "--top", "8", "--json", "--kernels", "ref");
    const char *at = p.out;
    for (cJSON *step; (step = next_object(&at)); n++) {
        static const char vocabulary[] = " dehlorw";
        assert_int_equal(int_of(step, "record"), n / 6);
        assert_int_equal(int_of(step, "step"), n % 6);
        assert_int_equal(vocabulary[int_of(step, "label")], line[(n + 1) % 12]);
        sum += surprise_of(step, vocabulary);
        cJSON_Delete(step);
    }
    process_release(&p);
    snprintf(run, sizeof run, "%s/one", t->folder);
    assert_int_equal(n, 6 * 200);
    int runs = run_count(run, "end", NULL, NULL);
    double loss = run_number(run, "end", runs - 1, "test_loss");
    if (!(fabs(sum / n - loss) < 1e-4))
        fail_msg("%g, and the run has %g", sum / n, loss);
    RUN(t, &p, "predict", "one", "text:train.txt", "--first", "1", "--top", "1");
    assert_non_null(strstr(p.out, "record   step   label  rank   class  name  probability\n"));
    assert_non_null(strstr(p.out, "\n            5  "));
    process_release(&p);
}

/* ---- texts ---- */

/* The command draws what the last evaluation has drawn. */
static void test_evaluations_draw_texts(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char run[128];
    snprintf(run, sizeof run, "%s/drawn", t->folder);
    RUN(t, &p, "train", "sequence.job", "--out", "drawn", "--set", "evaluate.sample_length=40",
        "--set", "seed=11");
    assert_non_null(strstr(p.err, "the model writes\n"));
    process_release(&p);
    int n = run_count(run, "sample", NULL, NULL);
    assert_int_equal(n, run_count(run, "eval", NULL, NULL) / 2); /* two sets */
    assert_true(n >= 2); /* an evaluation is left out while the previous one still runs */
    cJSON *event = run_event(run, "sample", NULL, NULL, n - 1);
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(event, "text"));
    assert_true(text && strlen(text) == 40);
    assert_true(run_number(run, "sample", n - 1, "epoch") == run_number(run, "end", 0, "epochs"));
    RUN(t, &p, "sample", "drawn", "--length", "40", "--seed", "11", "--kernels", "ref");
    assert_true(strncmp(p.out, text, 40) == 0 && strcmp(p.out + 40, "\n") == 0);
    process_release(&p);
    cJSON_Delete(event);
    RUN(t, &p, "train", "sequence.job", "--out", "undrawn", "--set", "evaluate.sample_length=0",
        "--set", "stop={steps:4}");
    process_release(&p);
    snprintf(run, sizeof run, "%s/undrawn", t->folder);
    assert_int_equal(run_count(run, "sample", NULL, NULL), 0);
}

/* Has each of its characters, behind the first four, the follower that the line has? */
static bool is_like_the_line(const char *text)
{
    for (size_t i = 4; text[i] && text[i + 1] && text[i + 1] != '\n'; i++) {
        char pair[] = {text[i], text[i + 1], '\0'};
        if (!strstr("hello world h", pair))
            return false;
    }
    return true;
}

/* Without its text, which the run has no need of. */
static void test_a_learnt_text(void **state)
{
    struct tiny *t = *state;
    struct process p, q;
    char from[256], to[256];
    snprintf(from, sizeof from, "%s/train.txt", t->folder);
    snprintf(to, sizeof to, "%s/moved.txt", t->folder);
    assert_int_equal(rename(from, to), 0);
    RUN(t, &p, "sample", "one", "--prime", "hello w", "--length", "24", "--temperature", "0");
    if (strncmp(p.out, "hello w", 7) != 0 || strlen(p.out) != 7 + 24 + 1 ||
        !is_like_the_line(p.out))
        fail_msg("%s", p.out);
    RUN(t, &q, "sample", "--net", "net.prototxt", "--weights", "one/final.safetensors", "--data",
        "text:moved.txt?unit=character", "--prime=hello w", "--length=24", "--temperature=0");
    assert_string_equal(p.out, q.out);
    process_release(&p);
    process_release(&q);
    assert_int_equal(rename(to, from), 0);
    REFUSED(t, "--data is for models of no run", "sample", "one", "--data", "text:train.txt");
    REFUSED(t, "--net needs --weights", "sample", "--net", "net.prototxt");
    REFUSED(t, "has 8 scores a unit, and the text has 256 bytes", "sample", "--net", "net.prototxt",
            "--weights", "one/final.safetensors", "--data", "text:train.txt");
    REFUSED(t, "must be whole numbers", "sample", "one", "--length", "1.5");
}

/* Each of the net's 8 rows and 8 scores is for a character. */
static void test_a_text_of_another_vocabulary(void **state)
{
    static const char digits[] = "hello world 0123";
    struct tiny *t = *state;
    struct process p;
    char *rows;
    FILE *f = tiny_open(t, "digits.txt");
    for (int i = 0; i < 100; i++)
        fputs(digits, f);
    fclose(f);
    tiny_write_changed(t, "rows.prototxt", net, "input_dim: 8", "input_dim: 12");
    tiny_write_changed(t, "scores.prototxt", net, "num_output: 8 axis", "num_output: 12 axis");
    static const char other[] = "train_data.text.path=digits.txt",
                      test[] = "test_data.text.path=digits.txt";
    REFUSED(t,
            "train_data: the text has 12 characters, and the net's layer \"embed\" has rows for 8: "
            "set its embed_param.input_dim to 12, or give the `vocabulary` of the text",
            "train", "sequence.job", "--set", other, "--set", test, "--out", "other");
    REFUSED(t,
            "layer \"loss\" has scores for 8: set num_output of the layer that makes the scores to "
            "12, or",
            "train", "sequence.job", "--set", other, "--set", test, "--set",
            "net.file=rows.prototxt");
    REFUSED(t, "layer \"embed\" has rows for 8", "train", "sequence.job", "--set", other, "--set",
            test, "--set", "net.file=scores.prototxt", "--set", "slices=2", "--strategy",
            "allreduce");
    REFUSED(t,
            "the text has 120 values of bytes, from 0 to its highest, and the net's layer "
            "\"embed\" has rows for 8",
            "train", "sequence.job", "--set", "train_data.text.unit=byte");
    tiny_write_changed(t, "ascii.prototxt", net, "input_dim: 8", "input_dim: 120");
    rows = read_file_of(t, "ascii.prototxt");
    tiny_write_changed(t, "bytes.prototxt", rows, "num_output: 8 axis", "num_output: 120 axis");
    free(rows);
    RUN(t, &p, "train", "sequence.job", "--set", "train_data.text.unit=byte", "--set",
        "net.file=bytes.prototxt", "--set", "test_data.text.unit=byte", "--out", "ascii", "--set",
        "stop={steps:2}");
    process_release(&p);
    tiny_write_changed(t, "more.prototxt", net, "num_output: 8 axis", "num_output: 9 axis");
    RUN(t, &p, "train", "sequence.job", "--set", "net.file=more.prototxt", "--out", "more", "--set",
        "stop={steps:2}");
    process_release(&p);
}

/* Bytes are large, and are no values that could be scaled. */
static void test_no_advice_about_scale(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char *rows;
    tiny_write_changed(t, "rows.prototxt", net, "input_dim: 8", "input_dim: 256");
    rows = read_file_of(t, "rows.prototxt");
    tiny_write_changed(t, "bytes.prototxt", rows, "num_output: 8 axis", "num_output: 256 axis");
    free(rows);
    RUN(t, &p, "train", "sequence.job", "--set", "train_data.text.unit=byte", "--set",
        "net.file=bytes.prototxt", "--dry-run");
    assert_null(strstr(p.err, "suspicious"));
    process_release(&p);
    static const char *const diverging[] = {"train", "sequence.job",        "--out", "diverged",
                                            "--set", "solver.base_lr=1e38", NULL};
    process_start(&p, t->folder, diverging);
    process_wait(&p, REFUSAL_LIMIT_S);
    if (p.code != 1 || !strstr(p.err, "the model diverged") || strstr(p.err, "scale"))
        refusal_complain(&p, diverging, "expected a model that diverges");
    process_release(&p);
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
    REFUSED(t,
            "validation: 20 held out of 1 records leave none to train; hold out fewer, or write a "
            "shorter text.window: each record has 1204 of the 1205 characters that ",
            "train", "sequence.job", "--set", "train_data.text.window=1204");
    REFUSED(t,
            "strategy.single: needs workers: 1, has 2; write --strategy allreduce, or another that "
            "is for slices",
            "train", "sequence.job", "--set", "slices=2");
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
        cmocka_unit_test(test_streams_of_a_resumed_run_continue),
        cmocka_unit_test(test_streams_of_several_workers_continue),
        cmocka_unit_test(test_the_number_of_workers_changes),
        cmocka_unit_test(test_slices_carry_the_states_of_streams),
        cmocka_unit_test(test_streams_of_slices_continue),
        cmocka_unit_test(test_steps_are_predicted),
        cmocka_unit_test(test_evaluations_draw_texts),
        cmocka_unit_test(test_a_learnt_text),
        cmocka_unit_test(test_a_text_of_another_vocabulary),
        cmocka_unit_test(test_no_advice_about_scale),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
