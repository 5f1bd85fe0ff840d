/* A run on text, from end to end: the vocabulary that the driver finds is in the run's job, and
 * test data, workers and a continued run read their texts by it. */
#include "refusal.h"
#include "run_files.h"

#include <math.h>

static const char net[] =
    "layer { name: 'data' type: 'Data' top: 'data' top: 'target' }\n"
    "layer { name: 'ip1' type: 'InnerProduct' bottom: 'data' top: 'ip1'\n"
    "  inner_product_param { num_output: 48 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'ip1' top: 'ip1' }\n"
    "layer { name: 'ip2' type: 'InnerProduct' bottom: 'ip1' top: 'ip2'\n"
    "  inner_product_param { num_output: 36 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'places' type: 'Reshape' bottom: 'ip2' top: 'places'\n"
    "  reshape_param { shape { dim: 0 dim: 9 dim: 4 } } }\n"
    "layer { name: 'accuracy' type: 'Accuracy' bottom: 'places' bottom: 'target' top: 'accuracy'\n"
    "  include { phase: TEST } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'places' bottom: 'target' }\n";

static const char job[] =
    "name: 'text' net { file: 'net.prototxt' }\n"
    "train_data { text { path: 'train.txt' unit: character window: 4 stride: 1 } }\n"
    "test_data { text { path: 'test.txt' } }\n"
    "batch: 20 threads: 1 kernels: ref\n"
    "solver { base_lr: 0.02 momentum: 0.9 lr_policy: 'fixed' }\n"
    "strategy { sync { tau: 5 } } workers: 2 stop { epochs: 10 }\n";

/* Nine characters, each of which says what follows but for l and the blank. */
static const char line[] = "h\xc3\xa9llo w\xc3\xb8r\xf0\x9d\x84\x9e ";

static void write_lines(const struct tiny *t, const char *name, int lines)
{
    FILE *f = tiny_open(t, name);
    for (int i = 0; i < lines; i++)
        fputs(line, f);
    fclose(f);
}

static const char *read_job(const struct tiny *t, char text[8192])
{
    char path[256];
    snprintf(path, sizeof path, "%s/run/job.prototxt", t->folder);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, 8191, f)] = '\0';
    fclose(f);
    return text;
}

static const char listed[] = "vocabulary: \" hlorw\xc3\xa9\xc3\xb8\xf0\x9d\x84\x9e\"";

/* Two workers open the text with hashes of their own. */
static void test_a_run_on_a_text(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char text[8192], run[128];
    RUN(t, &p, "train", "text.job", "--out", "run");
    process_release(&p);
    snprintf(run, sizeof run, "%s/run", t->folder);
    double error = run_number(run, "end", 0, "test_error");
    print_message("    error %.3f\n", error);
    assert_true(error < 0.1);
    const char *test = strstr(read_job(t, text), "test_data");
    assert_non_null(test);
    if (!strstr(text, listed) || strstr(text, listed) > test || !strstr(test, listed) ||
        !strstr(test, "unit: character") || !strstr(test, "window: 4"))
        fail_msg("%s", text);
}

/* The vocabulary stays the run's, though the text has another character. */
static void test_a_run_is_continued(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char text[8192];
    RUN(t, &p, "train", "text.job", "--out", "run", "--resume", "--set", "stop.epochs=11");
    process_release(&p);
    assert_non_null(strstr(read_job(t, text), listed));
    RUN(t, &p, "test", "run");
    process_release(&p);
}

static void test_characters_that_are_unknown(void **state)
{
    struct tiny *t = *state;
    tiny_write(t, "new.txt", "hello world");
    REFUSED(t, "new.txt: byte 1: character U+0065 is none of the 9 in the vocabulary", "train",
            "text.job", "--set", "test_data.text.path=new.txt");
    tiny_write(t, "bad.txt", "h\xff");
    REFUSED(t, "bad.txt: byte 1 (\\xff) is no character of UTF-8", "train", "text.job", "--set",
            "train_data.text.path=bad.txt");
}

static void expect_output(const struct process *p, const char *phrase)
{
    if (!strstr(p->out, phrase))
        fail_msg("no \"%s\" in:\n%s", phrase, p->out);
}

static void test_commands_about_data(void **state)
{
    struct tiny *t = *state;
    struct process p;
    static const char spec[] = "text:test.txt?unit=character&window=4&stride=2";
    RUN(t, &p, "data", "info", spec);
    expect_output(&p, "kind       text");
    expect_output(&p, "records    108");
    expect_output(&p, "values     0 to 8");
    process_release(&p);
    RUN(t, &p, "data", "head", spec, "--first", "3");
    expect_output(&p, "       2       -");
    process_release(&p);
    RUN(t, &p, "data", "stats", spec);
    assert_null(strstr(p.out, "scale")); /* no maps, which records with fields do not have */
    process_release(&p);
    RUN(t, &p, "data", "verify", spec);
    process_release(&p);
    RUN(t, &p, "data", "verify", "text:test.txt");
    process_release(&p);
    RUN(t, &p, "data", "pack", spec, "packed");
    process_release(&p);
    RUN(t, &p, "data", "info", "shards:packed-00000.shard");
    expect_output(&p, "records    108");
    process_release(&p);
}

static int setup(void **state)
{
    tiny_setup(state);
    struct tiny *t = *state;
    write_lines(t, "train.txt", 60);
    write_lines(t, "test.txt", 20);
    tiny_write(t, "net.prototxt", net);
    tiny_write(t, "text.job", job);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_on_a_text),
        cmocka_unit_test(test_a_run_is_continued),
        cmocka_unit_test(test_characters_that_are_unknown),
        cmocka_unit_test(test_commands_about_data),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
