/* `paceline predict`, `test` and `sample` by slices: processes with a slice of the model each print
 * what the whole model does; they have room where it has not; the end of one ends the command; and
 * what is refused. */
#include "free_port.h"
#include "pictures.h"
#include "real_run.h"
#include "refusal.h"
#include "sliced_job.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#define SAME_MAX 1e-5

/* ---- what was printed ---- */

/* The number behind the next `"probability":`, or a negative one; *at moves behind it. */
static double next_probability(const char **at)
{
    static const char key[] = "\"probability\":";
    const char *found = strstr(*at, key);
    char *end;
    if (!found)
        return -1;
    double number = strtod(found + sizeof key - 1, &end);
    *at = end;
    return number;
}

/* The largest difference of probabilities, whose classes are in the same order. */
static double find_difference(const char *a, const char *b)
{
    double most = 0;
    for (;;) {
        double x = next_probability(&a), y = next_probability(&b);
        assert_true((x < 0) == (y < 0));
        if (x < 0)
            return most;
        most = fmax(most, fabs(x - y));
    }
}

/* Train such a net as the whole model, and predict with it whole, then by 2 and 3 slices. */
static void expect_same(struct tiny *t, bool bits, const char *const *sets)
{
    char run[128];
    real_execute(t, "train", t->job, run, sets);
    struct process whole;
    RUN(t, &whole, "predict", run, "--first", "40", "--kernels", "ref", "--json");
    for (const char *slices = "2"; slices; slices = slices[0] == '2' ? "3" : NULL) {
        struct process p;
        RUN(t, &p, "predict", run, "--first", "40", "--kernels", "ref", "--json", "--slices",
            slices);
        double most = find_difference(p.out, whole.out);
        print_message("    %s slices: %.2g\n", slices, most);
        assert_true(most <= SAME_MAX);
        if (bits)
            assert_string_equal(p.out, whole.out);
        process_release(&p);
    }
    process_release(&whole);
}

#define EXPECT_SAME(t, bits, ...) expect_same(t, bits, (const char *const[]){__VA_ARGS__, NULL})
#define WHOLE                     "stop.steps=6", "workers=1", "strategy.single={}"

static void test_a_fully_connected_net_has_its_bits(void **state)
{
    EXPECT_SAME(*state, true, WHOLE);
}

static void test_a_convolutional_net_predicts_the_same(void **state)
{
    EXPECT_SAME(*state, true, WHOLE, "net.file=conv.prototxt");
    tiny_write(*state, "channels.prototxt", sliced_channels);
    EXPECT_SAME(*state, false, WHOLE, "net.file=channels.prototxt");
}

static void test_a_recurrent_net_has_its_bits(void **state)
{
    EXPECT_SAME(*state, true, WHOLE, "net.file=sequence.prototxt");
    EXPECT_SAME(*state, true, WHOLE, "net.file=states.prototxt");
}

/* A run in slices says which of its layers are shared out. */
static void test_the_layers_are_those_of_the_run(void **state)
{
    EXPECT_SAME(*state, true, "stop.steps=6", "workers=2", "slices=2", "strategy.allreduce={}",
                "net.file=mixed.prototxt", "slices_from=one", "slices_to=two");
}

/* ---- room ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LIMITED_MB = 0 }; /* their shadow memory has more addresses */
#else
enum { LIMITED_MB = 200 };
#endif

static void limit_addresses(rlim_t bytes, rlim_t *before)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    *before = limit.rlim_cur;
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

/* 70 MB of weights, where each process has 200 MB of addresses: read whole, with the file, they do
 * not fit. The job of the run says how many slices there are to be. */
static void test_slices_have_room_for_their_part_alone(void **state)
{
    struct tiny *t = *state;
    char run[128];
    struct process whole, p;
    rlim_t before;
    if (LIMITED_MB == 0)
        skip();
    tiny_write(t, "large.prototxt",
               SLICED_DATA SLICED_INNER("one", "data", "one", 4096)
                   SLICED_INNER("two", "one", "two", 4096) SLICED_INNER("ip", "two", "ip", 5)
                       SLICED_ENDS);
    EXECUTE(t, "train", t->job, run, "stop.steps=1", "workers=4", "slices=4",
            "strategy.allreduce={}", "net.file=large.prototxt");
    RUN(t, &whole, "predict", run, "--first", "40", "--json");
    assert_null(strstr(whole.err, "have a slice each"));
    limit_addresses((rlim_t)LIMITED_MB << 20, &before);
    RUN(t, &p, "predict", run, "--first", "40", "--json");
    double most = find_difference(p.out, whole.out);
    print_message("    4 slices: %.2g\n", most);
    assert_true(most <= SAME_MAX);
    assert_non_null(strstr(p.err, "4 processes have a slice each"));
    process_release(&p);
    RUN(t, &p, "test", run);
    assert_non_null(strstr(p.err, "4 processes have a slice each"));
    process_release(&p);
    const char *const alone[] = {"predict", run, "--first", "40", "--slices", "1", NULL};
    process_start(&p, t->folder, alone);
    process_wait(&p, REAL_LIMIT_S);
    assert_int_equal(p.code, 1);
    assert_non_null(strstr(p.err, "out of memory"));
    limit_addresses(before, &before);
    process_release(&p);
    process_release(&whole);
}

/* ---- a test ---- */

static void test_slices_are_tested(void **state)
{
    struct tiny *t = *state;
    char run[128];
    struct process whole, p;
    EXECUTE(t, "train", t->job, run, WHOLE);
    RUN(t, &whole, "test", run, "--kernels", "ref", "--json");
    RUN(t, &p, "test", run, "--kernels", "ref", "--json", "--slices", "3");
    assert_string_equal(p.out, whole.out);
    process_release(&p);
    process_release(&whole);
    REFUSED(t, "--slices are of a model with weights", "test", "--job", t->job, "--slices", "2");
    REFUSED(t, "layer \"ip\": slices: 7 are more than its 5 outputs", "test", run, "--slices", "7");
}

/* ---- records ---- */

/* Five pictures, and a list of them. */
static void put_pictures(struct tiny *t, struct folder *f)
{
    static uint8_t pixels[12 * 12];
    FILE *list = tiny_open(t, "list.txt");
    snprintf(f->path, sizeof f->path, "%s", t->folder);
    for (unsigned i = 0; i < 5; i++) {
        char name[16];
        for (size_t k = 0; k < sizeof pixels; k++)
            pixels[k] = (uint8_t)(31 * i + 7 * k);
        snprintf(name, sizeof name, "%u.png", i);
        picture_put_png(f, name, pixels, 12, 12, PNG_COLOR_TYPE_GRAY, 8, 12, false);
        fprintf(list, "%s %u\n", name, i);
    }
    fclose(list);
}

/* Batches of three and of the two that are left, and one of all. */
static void test_pictures_are_read_in_parts(void **state)
{
    static const char spec[] = "images:list.txt?color=gray&scale=0.00390625";
    struct tiny *t = *state;
    struct folder f;
    char run[128], path[256];
    struct process whole, p;
    EXECUTE(t, "train", t->job, run, WHOLE);
    put_pictures(t, &f);
    for (const char *batch = "3"; batch; batch = batch[0] == '3' ? "8" : NULL) {
        RUN(t, &whole, "predict", run, spec, "--batch", batch, "--kernels", "ref", "--json");
        RUN(t, &p, "predict", run, spec, "--batch", batch, "--kernels", "ref", "--json", "--slices",
            "3");
        assert_string_equal(p.out, whole.out);
        process_release(&p);
        process_release(&whole);
    }
    RUN(t, &whole, "test", run, "--data", spec, "--kernels", "ref", "--json");
    RUN(t, &p, "test", run, "--data", spec, "--kernels", "ref", "--json", "--slices", "3");
    assert_string_equal(p.out, whole.out);
    process_release(&p);
    process_release(&whole);
    assert_int_equal(truncate(folder_file(&f, "4.png", path), 60), 0); /* behind its header */
    REFUSED(t, "4.png: PNG: broken off", "predict", run, spec, "--slices", "3");
    REFUSED(t, "4.png: PNG: broken off", "test", run, "--data", spec, "--slices", "3");
}

/* ---- texts ---- */

#define TEXT_DATA "layer { name: 'text' type: 'Data' top: 'data' top: 'target' }\n"
#define TEXT_ENDS(bottom)                                                                  \
    "layer { name: 'scores' type: 'InnerProduct' bottom: '" bottom "' top: 'scores'\n"     \
    "  inner_product_param { num_output: 8 axis: 2 weight_filler { type: 'xavier' } } }\n" \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'scores' bottom: 'target'\n"     \
    "  softmax_param { axis: 2 } }\n"

/* Recurrent layers of each kind over the numbers of characters. */
static const char text_numbers[] =
    TEXT_DATA "layer { name: 'rows' type: 'Reshape' bottom: 'data' top: 'rows'\n"
              "  reshape_param { shape { dim: 0 dim: -1 dim: 1 } } }\n" SLICED_UNITS(
                  "lstm", "LSTM", "recurrent_param", "rows", 8)
                  SLICED_UNITS("gru", "GRU", "gru_param", "lstm", 7)
                      SLICED_UNITS("rnn", "RNN", "recurrent_param", "gru", 6) TEXT_ENDS("rnn");

/* An Embed, which slices share out or which is before those layers, and 400 kB of weights behind
 * it. */
static const char text_embedded[] =
    TEXT_DATA "layer { name: 'embed' type: 'Embed' bottom: 'data' top: 'embed' embed_param {\n"
              "  input_dim: 8 num_output: 8 weight_filler { type: 'uniform' min: -0.5 max: 0.5 } } "
              "}\n" SLICED_UNITS("lstm", "LSTM", "recurrent_param", "embed", 156) TEXT_ENDS("lstm");

/* Train a net of a text, and leave the path of its run in `run`. */
static void train_text(struct tiny *t, const char *net, const char *const *sets, char run[128])
{
    FILE *f = tiny_open(t, "train.txt");
    for (int i = 0; i < 20; i++)
        fputs("hello world ", f);
    fclose(f);
    tiny_write(t, "text.prototxt", net);
    tiny_write(t, "text.job",
               "name: 'text' net { file: 'text.prototxt' } batch: 8 threads: 1 kernels: ref\n"
               "train_data { text { path: 'train.txt' unit: character window: 6 } }\n"
               "test_data { text { path: 'train.txt' } }\n"
               "solver { type: 'RMSProp' base_lr: 0.01 rms_decay: 0.9 lr_policy: 'fixed' }\n");
    real_execute(t, "train", "text.job", run, sets);
}

#define TRAIN_TEXT(t, net, run, ...) \
    train_text(t, net, (const char *const[]){"stop.steps=6", __VA_ARGS__, NULL}, run)

/* Draw with the whole model, and by 2 and 3 slices. */
static void expect_same_text(struct tiny *t, const char *run)
{
    struct process whole, p;
    RUN(t, &whole, "sample", run, "--prime", "hello", "--kernels", "ref", "--seed", "5");
    assert_int_equal(strlen(whole.out), strlen("hello") + 300 + 1);
    for (const char *slices = "2"; slices; slices = slices[0] == '2' ? "3" : NULL) {
        RUN(t, &p, "sample", run, "--prime", "hello", "--kernels", "ref", "--seed", "5", "--slices",
            slices);
        assert_string_equal(p.out, whole.out);
        process_release(&p);
    }
    process_release(&whole);
}

static void test_slices_draw_the_same_text(void **state)
{
    struct tiny *t = *state;
    char run[128];
    TRAIN_TEXT(t, text_embedded, run, "workers=1", "strategy.single={}");
    expect_same_text(t, run);
    TRAIN_TEXT(t, text_numbers, run, "workers=1", "strategy.single={}");
    expect_same_text(t, run);
    REFUSED(t, "prime: byte 2: character U+0078 is none of the 8", "sample", run, "--prime", "hex",
            "--slices", "3");
    REFUSED(t, "layer \"rnn\": slices: 7 are more than its 6 units", "sample", run, "--slices",
            "7");
    REFUSED(t, "--slices must be whole numbers", "sample", run, "--slices", "1.5");
}

/* The last evaluation of the run has drawn that, which the command prints with a line end. */
static void expect_last_text(const char *run, const char *text)
{
    int n = run_count(run, "sample", NULL, NULL);
    cJSON *event = run_event(run, "sample", NULL, NULL, n - 1);
    const char *drawn = cJSON_GetStringValue(cJSON_GetObjectItem(event, "text"));
    assert_int_equal(n, run_count(run, "eval", NULL, NULL));
    assert_true(drawn && strncmp(text, drawn, 300) == 0 && strcmp(text + 300, "\n") == 0);
    cJSON_Delete(event);
}

/* The layers are those of the run, whose job also says how many slices there are. One record is
 * drawn: there are fewer than slices, among which the layers before the range divide them. */
static void test_a_text_of_a_run_in_slices(void **state)
{
    struct tiny *t = *state;
    char run[128], path[256];
    struct process whole, p;
    TRAIN_TEXT(t, text_embedded, run, "workers=2", "slices=2", "strategy.allreduce={}",
               "slices_from=lstm", "seed=3");
    expect_same_text(t, run);
    RUN(t, &whole, "sample", run, "--kernels", "ref", "--seed", "3");
    expect_last_text(run, whole.out);
    process_release(&whole);
    RUN(t, &whole, "sample", run, "--kernels", "ref");
    assert_null(strstr(whole.err, "have a slice each"));
    snprintf(path, sizeof path, "%s/job.prototxt", run);
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fputs("memory_budget: '1 MiB'\n", f);
    fclose(f);
    RUN(t, &p, "sample", run, "--kernels", "ref");
    assert_non_null(strstr(p.err, "2 processes have a slice each"));
    assert_string_equal(p.out, whole.out);
    process_release(&p);
    process_release(&whole);
}

/* ---- several hosts ---- */

/* Start the command as three processes with a slice each; the text of the first of them. NULL: the
 * last one has another seed. */
static void expect_text_between(struct tiny *t, const char *run, const char *text)
{
    static const char *const rank[] = {"0", "1", "2"};
    struct process p[3];
    char rendezvous[PORT_TEXT];
    port_find(rendezvous);
    for (int i = 2; i >= 0; i--)
        process_start(&p[i], t->folder,
                      (const char *const[]){"sample", run, "--kernels", "ref", "--slices", "3",
                                            "--rank", rank[i], "--rendezvous", rendezvous, "--key",
                                            "run.key", "--seed", text || i < 2 ? "1" : "2", NULL});
    for (int i = 0; i < 3; i++) {
        process_wait(&p[i], REAL_LIMIT_S);
        if (p[i].code != (text ? 0 : 2) || (!text && !strstr(p[i].err, "the processes differ")))
            fail_msg("process %d: code %d, it said:\n%s", i, p[i].code, p[i].err);
        assert_string_equal(p[i].out, i == 0 && text ? text : "");
        process_release(&p[i]);
    }
}

static void test_commands_on_hosts_have_a_slice_each(void **state)
{
    struct tiny *t = *state;
    char run[128];
    struct process p, whole;
    TRAIN_TEXT(t, text_numbers, run, "workers=1", "strategy.single={}");
    RUN(t, &whole, "sample", run, "--kernels", "ref");
    RUN(t, &p, "keygen", "run.key");
    expect_text_between(t, run, whole.out);
    expect_text_between(t, run, NULL);
    process_release(&p);
    process_release(&whole);
    REFUSED(t, "give --slices F, their number", "sample", run, "--rank", "0", "--rendezvous",
            "127.0.0.1");
    REFUSED(t, "give --rank R (0 to 2)", "predict", run, "--first", "1", "--slices", "3", "--rank",
            "3", "--rendezvous", "127.0.0.1");
    REFUSED(t, "give --rank R (0 to 1)", "test", run, "--slices", "2", "--rank", "0");
}

/* ---- ends ---- */

/* Kill each of the first two of three processes, and the command. */
static void end_processes(struct tiny *t, const char *const *argv)
{
    for (int which = 0; which < 3; which++) {
        pid_t child[PROCESS_CHILDREN_MAX];
        struct process p;
        process_start(&p, t->folder, argv);
        UNTIL(REAL_LIMIT_S, process_children(p.pid, child) == 3);
        process_nap(0.3);
        double killed = process_now();
        kill(which < 2 ? child[which] : p.pid, SIGKILL);
        process_wait(&p, REAL_LIMIT_S);
        print_message("    ended after %.3f s\n", process_now() - killed);
        assert_int_equal(p.code, which < 2 ? 1 : 128 + SIGKILL);
        if (which < 2 && !strstr(p.err, "one of 3 processes was ended by signal 9"))
            fail_msg("it said:\n%s", p.err);
        UNTIL(REAL_LIMIT_S, real_has_ended(child, 3));
        process_release(&p);
    }
}

static void test_the_end_of_a_process_ends_the_command(void **state)
{
    struct tiny *t = *state;
    char run[128];
    EXECUTE(t, "train", t->job, run, WHOLE);
    tiny_write_set(t, "many", 2, 100000);
    end_processes(t, (const char *const[]){"predict", run, "idx:many-images,many-labels", "--batch",
                                           "1", "--slices", "3", NULL});
    TRAIN_TEXT(t, text_numbers, run, "workers=1", "strategy.single={}");
    end_processes(
        t, (const char *const[]){"sample", run, "--length", "100000000", "--slices", "3", NULL});
}

static void test_wrong_inputs(void **state)
{
    struct tiny *t = *state;
    char run[128], weights[160];
    struct process p;
    EXECUTE(t, "train", t->job, run, WHOLE);
    tiny_write(t, "deconv.prototxt", sliced_deconv);
    snprintf(weights, sizeof weights, "%s/final.safetensors", run);
    REFUSED(t, "layer \"ip\": slices: 7 are more than its 5 outputs", "predict", run, "--first",
            "2", "--slices", "7");
    REFUSED(t, "--slices must be a number from 1 to 1024", "predict", run, "--first", "2",
            "--slices", "0");
    REFUSED(t, "layer \"p\": slices: weights of type \"Deconvolution\"", "predict", "--net",
            "deconv.prototxt", "--weights", weights, "idx:test-images,test-labels", "--slices",
            "2");
    REFUSED(t, "tensor joint/one.0 is 24x144, the net has 120x144", "predict", "--net",
            "wide.prototxt", "--weights", weights, "idx:test-images,test-labels", "--slices", "2");
    RUN(t, &p, "convert", weights, "model.caffemodel", "--net", "net.prototxt");
    process_release(&p);
    REFUSED(t, "slices read their parts of a .safetensors", "predict", "--net", "net.prototxt",
            "--weights", "model.caffemodel", "idx:test-images,test-labels", "--slices", "2");
    RUN(t, &p, "predict", run, "--first", "2", "--slices", "1");
    process_release(&p);
    tiny_write(t, "many.job",
               "name: 'many' net { file: 'net.prototxt' } slices: 5000 memory_budget: '1'\n");
    REFUSED(t, "slices: 5000: at most 1024", "test", "--job", "many.job", "--weights", weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_fully_connected_net_has_its_bits),
        cmocka_unit_test(test_a_convolutional_net_predicts_the_same),
        cmocka_unit_test(test_a_recurrent_net_has_its_bits),
        cmocka_unit_test(test_the_layers_are_those_of_the_run),
        cmocka_unit_test(test_slices_have_room_for_their_part_alone),
        cmocka_unit_test(test_slices_are_tested),
        cmocka_unit_test(test_pictures_are_read_in_parts),
        cmocka_unit_test(test_slices_draw_the_same_text),
        cmocka_unit_test(test_a_text_of_a_run_in_slices),
        cmocka_unit_test(test_commands_on_hosts_have_a_slice_each),
        cmocka_unit_test(test_the_end_of_a_process_ends_the_command),
        cmocka_unit_test(test_wrong_inputs),
    };
    return cmocka_run_group_tests(tests, sliced_setup, tiny_teardown);
}
