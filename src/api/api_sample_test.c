/* Texts that a net draws: what it chooses is what its scores for the whole text say, chances are as
 * often as they should be, and wrong input is refused. */
#include "paceline/sample.h"

#include "folder.h"
#include "team_play.h"

#include <math.h>

enum { WINDOW = 24, UNITS = 4, DRAWS = 6000 };

/* The characters are "\nabc". */
static const char text[] = "abcabacbcabccab\nabcabacbcabccabacbabc\ncabacbcabccab\nabcabacb";

static const char layers[] =
    "layer { name: 'text' type: 'Data' top: 'data' top: 'target' }\n"
    "layer { name: 'embed' type: 'Embed' bottom: 'data' top: 'embed' embed_param {\n"
    "  input_dim: 4 num_output: 3 weight_filler { type: 'gaussian' std: 1 } } }\n"
    "layer { name: 'lstm' type: 'LSTM' bottom: 'embed' top: 'lstm' recurrent_param {\n"
    "  num_output: 6 weight_filler { type: 'gaussian' std: 1.5 } } }\n"
    "layer { name: 'rnn' type: 'RNN' bottom: 'lstm' top: 'rnn' recurrent_param {\n"
    "  num_output: 5 weight_filler { type: 'gaussian' std: 1 } } }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'rnn' top: 'ip' inner_product_param {\n"
    "  num_output: 4 axis: 2 weight_filler { type: 'gaussian' std: 2 } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'target'\n"
    "  softmax_param { axis: 2 } }\n";

struct stage {
    pl_engine *engine;
    struct folder folder;
    char spec[512]; /* of the text */
};

static void expect_ok(const struct stage *s, int rc)
{
    if (rc != PL_OK)
        fail_msg("%d: %s", rc, pl_engine_error(s->engine));
}

static void expect_refusal(const struct stage *s, int rc, int expected, const char *phrase)
{
    if (rc != expected || !strstr(pl_engine_error(s->engine), phrase))
        fail_msg("%d: \"%s\", expected %d: \"%s\"", rc, pl_engine_error(s->engine), expected,
                 phrase);
}

static pl_net *make_net(const struct stage *s, const char *description, const char *kernels,
                        bool inference)
{
    const pl_net_options options = {.size = sizeof options,
                                    .batch = 2,
                                    .threads = 1,
                                    .kernels = kernels,
                                    .seed = 5,
                                    .inference = inference,
                                    .solver = "base_lr: 0.3 lr_policy: 'fixed'"};
    char path[256];
    pl_net_spec *spec;
    pl_net *net;
    folder_put(&s->folder, "net.prototxt", description, strlen(description));
    expect_ok(s, pl_net_spec_load(s->engine, folder_file(&s->folder, "net.prototxt", path), &spec));
    expect_ok(s, pl_net_create(s->engine, spec, &options, &net));
    pl_net_spec_free(spec);
    return net;
}

static pl_net *make_trained(const struct stage *s, const char *kernels)
{
    pl_net *net = make_net(s, layers, kernels, false);
    expect_ok(s, pl_net_set_training_data(net, s->spec, 0, 1));
    return net;
}

static const char *draw_text(const struct stage *s, pl_net *net, const char *prime, uint64_t length,
                             double temperature, uint64_t seed)
{
    const pl_net_sample_options options = {sizeof options, prime, length, temperature, seed};
    const char *drawn;
    size_t bytes;
    expect_ok(s, pl_net_sample(net, &options, &drawn, &bytes));
    assert_int_equal(strlen(drawn), bytes);
    return drawn;
}

/* Behind each character of the prime and the text, the net that reads all of it at once scores the
 * next one highest. */
static void expect_highest(const struct stage *s, pl_net *net, const char *prime)
{
    char whole[WINDOW + 2];
    float record[2 * WINDOW] = {0}, scores[WINDOW * UNITS];
    size_t given = strlen(prime), each;
    snprintf(whole, sizeof whole, "%s%s", prime,
             draw_text(s, net, prime, WINDOW + 1 - given, 0, 1));
    for (size_t i = 0; i < WINDOW; i++)
        record[i] = (float)(strchr("\nabc", whole[i]) - "\nabc");
    expect_ok(s, pl_net_forward(net, record, 1, "ip", scores, WINDOW * UNITS, &each));
    assert_int_equal(each, WINDOW * UNITS);
    for (size_t i = given - 1; i < WINDOW; i++) {
        const float *z = scores + i * UNITS;
        size_t highest = 0;
        for (size_t k = 1; k < UNITS; k++)
            highest = z[k] > z[highest] ? k : highest;
        if (whole[i + 1] != "\nabc"[highest])
            fail_msg("behind %zu characters of \"%s\" it is %zu", i + 1, whole, highest);
    }
}

static void test_the_state_is_carried(void **state)
{
    const struct stage *s = *state;
    static const char *const kernels[] = {"ref", "dnnl"};
    for (int i = 0; i < 2; i++) {
        pl_net *net = make_trained(s, kernels[i]);
        expect_highest(s, net, "a");
        expect_highest(s, net, "cab\nab");
        expect_ok(s, pl_net_train(net, 20, NULL)); /* its weights of now count */
        expect_highest(s, net, "a");
        expect_highest(s, net, "bbbbbbbb");
        pl_net_free(net);
    }
}

/* A line end stands where no prime does, whatever was drawn before. */
static void test_without_a_prime(void **state)
{
    const struct stage *s = *state;
    pl_net *net = make_trained(s, "ref");
    char *first = strdup(draw_text(s, net, NULL, 12, 0, 1));
    assert_non_null(first);
    draw_text(s, net, "abc", 5, 1, 2);
    assert_string_equal(draw_text(s, net, "", 12, 0, 3), first);
    assert_string_equal(draw_text(s, net, "\n", 12, 0, 4), first);
    free(first);
    pl_net_free(net);
}

static void test_a_seed_repeats(void **state)
{
    const struct stage *s = *state;
    pl_net *net = make_trained(s, "ref");
    char *first = strdup(draw_text(s, net, "a", 60, 1, 7));
    assert_non_null(first);
    assert_true(strncmp(draw_text(s, net, "a", 30, 1, 7), first, 30) == 0);
    assert_string_not_equal(draw_text(s, net, "a", 60, 1, 8), first);
    free(first);
    pl_net_free(net);
}

/* Scores that are the same behind any text, log 1, log 2, log 5 and log 2: at temperature 1 a
 * character is drawn with 1/10, 2/10, 5/10 and 2/10; at 1/2 with 1/34, 4/34, 25/34 and 4/34; at a
 * very low one it is always the third. */
static void set_scores(const struct stage *s, pl_net *net)
{
    const float scores[UNITS] = {0, logf(2), logf(5), logf(2)};
    pl_weights weights;
    expect_ok(s, pl_net_weights(net, "ip", 0, &weights));
    memset(weights.at, 0, weights.count * sizeof *weights.at);
    expect_ok(s, pl_net_weights(net, "ip", 1, &weights));
    memcpy(weights.at, scores, sizeof scores);
}

static void expect_shares(const struct stage *s, pl_net *net, double temperature,
                          const double share[UNITS])
{
    const char *drawn = draw_text(s, net, "a", DRAWS, temperature, 3);
    for (size_t k = 0; k < UNITS; k++) {
        double n = 0, p = share[k];
        for (size_t i = 0; i < DRAWS; i++)
            n += drawn[i] == "\nabc"[k];
        /* four standard deviations */
        if (!(fabs(n / DRAWS - p) <= 4 * sqrt(p * (1 - p) / DRAWS)))
            fail_msg("temperature %g: share of %zu is %g, not %g", temperature, k, n / DRAWS, p);
    }
}

static void test_temperatures(void **state)
{
    const struct stage *s = *state;
    pl_net *net = make_trained(s, "ref");
    set_scores(s, net);
    expect_shares(s, net, 1, (const double[]){0.1, 0.2, 0.5, 0.2});
    expect_shares(s, net, 0.5, (const double[]){1 / 34., 4 / 34., 25 / 34., 4 / 34.});
    expect_shares(s, net, 1e-300, (const double[]){0, 0, 1, 0});
    expect_shares(s, net, 0, (const double[]){0, 0, 1, 0});
    expect_shares(s, net, 1e300, (const double[]){0.25, 0.25, 0.25, 0.25});
    pl_net_free(net);
}

/* A net that ends in a Softmax has these shares as they are. */
static void test_a_net_that_gives_probabilities(void **state)
{
    const struct stage *s = *state;
    char changed[sizeof layers];
    snprintf(changed, sizeof changed,
             "%.*slayer { name: 'p' type: 'Softmax' bottom: 'ip' top: 'p' "
             "softmax_param { axis: 2 } }",
             (int)(strstr(layers, "layer { name: 'loss'") - layers), layers);
    pl_net *net = make_net(s, changed, "ref", true);
    pl_data *data;
    expect_ok(s, pl_data_open(s->engine, s->spec, true, &data));
    expect_ok(s, pl_net_form_text(net, NULL, data));
    pl_data_close(data);
    set_scores(s, net);
    expect_shares(s, net, 1, (const double[]){0.1, 0.2, 0.5, 0.2});
    expect_shares(s, net, 0.5, (const double[]){1 / 34., 4 / 34., 25 / 34., 4 / 34.});
    pl_net_free(net);
}

/* The vocabulary of a job is enough; a job without one has its text opened. */
static void test_the_text_of_a_job(void **state)
{
    const struct stage *s = *state;
    pl_net *net = make_trained(s, "ref"), *other = make_net(s, layers, "ref", true);
    char path[256], job_text[512];
    pl_job *job;
    pl_weights from, to;
    for (int there = 0; there < 2; there++) {
        snprintf(job_text, sizeof job_text,
                 "train_data { text { path: '%s/%s' unit: character window: 8 %s } }",
                 s->folder.path, there ? "text" : "nowhere", there ? "" : "vocabulary: '\\nabc'");
        folder_put(&s->folder, "x.job", job_text, strlen(job_text));
        expect_ok(s, pl_job_load(s->engine, folder_file(&s->folder, "x.job", path), &job));
        expect_ok(s, pl_net_form_text(other, job, NULL));
        pl_job_free(job);
        for (size_t i = 0; i < pl_net_weights_count(net); i++) {
            expect_ok(s, pl_net_weights_at(net, i, &from));
            expect_ok(s, pl_net_weights_at(other, i, &to));
            assert_int_equal(from.count, to.count);
            memcpy(to.at, from.at, from.count * sizeof *from.at);
        }
        char *expected = strdup(draw_text(s, net, "ab", 40, 0.8, 9));
        assert_non_null(expected);
        assert_string_equal(draw_text(s, other, "ab", 40, 0.8, 9), expected);
        free(expected);
    }
    pl_net_free(net);
    pl_net_free(other);
}

/* ---- wrong input ---- */

static void test_wrong_options(void **state)
{
    const struct stage *s = *state;
    pl_net *net = make_trained(s, "ref");
    const char *drawn;
    size_t bytes;
    struct {
        pl_net_sample_options options;
        int status;
        const char *phrase;
    } wrong[] = {
        {{0, "a", 0, 1, 1}, PL_ERR_USAGE, "length 0 is out of range"},
        {{0, "a", 100000001, 1, 1}, PL_ERR_USAGE, "is out of range, 1 to 100000000"},
        {{0, "a", 1, -0.5, 1}, PL_ERR_USAGE, "temperature -0.5 is out of range"},
        {{0, "a", 1, (double)NAN, 1}, PL_ERR_USAGE, "is out of range"},
        {{0, "a", 1, (double)INFINITY, 1}, PL_ERR_USAGE, "is out of range"},
        {{0, "ab\xc3\xa9", 1, 1, 1},
         PL_ERR_INPUT,
         "prime: byte 2: character U+00E9 is none of the 4 in the vocabulary"},
        {{0, "a\xff", 1, 1, 1}, PL_ERR_INPUT, "prime: byte 1: byte \\xff is no character of UTF-8"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wrong[i].options.size = sizeof wrong[i].options;
        expect_refusal(s, pl_net_sample(net, &wrong[i].options, &drawn, &bytes), wrong[i].status,
                       wrong[i].phrase);
    }
    const pl_net_sample_options sizeless = {.length = 1};
    expect_refusal(s, pl_net_sample(net, &sizeless, &drawn, &bytes), PL_ERR_USAGE,
                   "pl_net_sample_options");
    pl_net_free(net);
}

static void expect_no_sample(const struct stage *s, pl_net *net, int status, const char *phrase)
{
    const pl_net_sample_options options = {sizeof options, "a", 1, 1, 1};
    const char *drawn;
    size_t bytes;
    expect_refusal(s, pl_net_sample(net, &options, &drawn, &bytes), status, phrase);
    pl_net_free(net);
}

static pl_net *make_changed(const struct stage *s, const char *what, const char *by)
{
    char changed[2 * sizeof layers];
    const char *at = strstr(layers, what);
    assert_non_null(at);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - layers), layers, by,
             at + strlen(what));
    pl_net *net = make_net(s, changed, "ref", false);
    expect_ok(s, pl_net_set_training_data(net, s->spec, 0, 1));
    return net;
}

/* Members that have the net in slices. A wrong prime is refused before they meet. */
static int draw_in_slices(struct team_member *m)
{
    const struct stage *s = m->arg;
    const pl_net_options options = {.size = sizeof options,
                                    .batch = 1,
                                    .threads = 1,
                                    .kernels = "ref",
                                    .seed = 5,
                                    .inference = true,
                                    .team = m->team};
    char path[256];
    pl_net_spec *spec;
    pl_net *net;
    pl_data *data;
    const char *drawn[2];
    size_t bytes;
    CHECK(pl_net_spec_load(m->engine, folder_file(&s->folder, "net.prototxt", path), &spec) ==
          PL_OK);
    CHECK(pl_net_create(m->engine, spec, &options, &net) == PL_OK);
    pl_net_spec_free(spec);
    CHECK(pl_data_open(m->engine, s->spec, false, &data) == PL_OK);
    CHECK(pl_net_form_text(net, NULL, data) == PL_OK);
    pl_data_close(data);
    for (int i = 0; i < 2; i++) {
        const pl_net_sample_options of = {sizeof of, i == 0 ? "abx" : "ab", 12, 0, 1};
        CHECK(pl_net_sample(net, &of, &drawn[i], &bytes) == (i == 0 ? PL_ERR_INPUT : PL_OK));
    }
    CHECK(bytes == 12);
    pl_net_free(net);
    return 0;
}

static void test_a_wrong_prime_leaves_slices_as_they_are(void **state)
{
    struct stage *s = *state;
    folder_put(&s->folder, "net.prototxt", layers, strlen(layers));
    team_play(2, draw_in_slices, s);
}

static void test_nets_that_draw_no_text(void **state)
{
    const struct stage *s = *state;
    pl_net *net = make_net(s, layers, "ref", false);
    expect_no_sample(s, net, PL_ERR_USAGE, "the shape of its records is unknown");
    expect_no_sample(s, make_changed(s, "num_output: 4 axis: 2", "num_output: 5 axis: 2"),
                     PL_ERR_INPUT,
                     "blob \"ip\" has 5 scores a unit, and the text has 4 characters");
    expect_no_sample(s, make_changed(s, "num_output: 5", "num_output: 5 reverse: true"),
                     PL_ERR_UNSUPPORTED, "layer \"rnn\" reads its sequences backwards");
    expect_no_sample(s,
                     make_changed(s,
                                  "type: 'RNN' bottom: 'lstm' top: 'rnn' recurrent_param {\n"
                                  "  num_output: 5",
                                  "type: 'GRU' bottom: 'lstm' top: 'rnn' gru_param {\n"
                                  "  num_output: 5 reverse: true"),
                     PL_ERR_UNSUPPORTED, "layer \"rnn\" reads its sequences backwards");
}

static void test_nets_without_recurrent_layers(void **state)
{
    const struct stage *s = *state;
    static const char plain[] =
        "layer { name: 'text' type: 'Data' top: 'data' top: 'target' }\n"
        "layer { name: 'embed' type: 'Embed' bottom: 'data' top: 'ip' embed_param {\n"
        "  input_dim: 4 num_output: 4 weight_filler { type: 'gaussian' std: 1 } } }\n"
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'target'\n"
        "  softmax_param { axis: 2 } }\n";
    static const char whole[] =
        "layer { name: 'text' type: 'Data' top: 'data' top: 'target' }\n"
        "layer { name: 'all' type: 'InnerProduct' bottom: 'data' top: 'all'\n"
        "  inner_product_param { num_output: 96 weight_filler { type: 'xavier' } } }\n"
        "layer { name: 'ip' type: 'Reshape' bottom: 'all' top: 'ip'\n"
        "  reshape_param { shape { dim: 0 dim: 24 dim: 4 } } }\n"
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'target'\n"
        "  softmax_param { axis: 2 } }\n";
    pl_net *net = make_net(s, plain, "ref", false);
    expect_ok(s, pl_net_set_training_data(net, s->spec, 0, 1));
    expect_no_sample(s, net, PL_ERR_UNSUPPORTED, "no layer carries a state from unit to unit");
    net = make_net(s, whole, "ref", false);
    expect_ok(s, pl_net_set_training_data(net, s->spec, 0, 1));
    expect_no_sample(s, net, PL_ERR_UNSUPPORTED, "for one unit at a time");
}

static void test_data_that_is_no_text(void **state)
{
    const struct stage *s = *state;
    pl_net *net = make_net(s, layers, "ref", true);
    pl_job *job;
    pl_data *data;
    char path[256];
    static const char table[] = "csv:%s?target=b";
    char spec[512];
    folder_put(&s->folder, "t.csv", "a,b\n1,2\n3,4\n", 12);
    snprintf(spec, sizeof spec, table, folder_file(&s->folder, "t.csv", path));
    expect_refusal(s, pl_net_form_text(net, NULL, NULL), PL_ERR_USAGE, "neither as data nor by");
    expect_ok(s, pl_data_open(s->engine, spec, true, &data));
    expect_refusal(s, pl_net_form_text(net, NULL, data), PL_ERR_INPUT, "data: is not a text");
    pl_data_close(data);
    expect_ok(s, pl_job_create(s->engine, &job));
    expect_refusal(s, pl_net_form_text(net, job, NULL), PL_ERR_INPUT, "train_data: is not a text");
    pl_job_free(job);
    pl_net_free(net);
}

static void test_weights_that_have_diverged(void **state)
{
    const struct stage *s = *state;
    pl_net *net = make_trained(s, "ref");
    pl_weights weights;
    expect_ok(s, pl_net_weights(net, "ip", 1, &weights));
    weights.at[2] = (float)NAN;
    expect_no_sample(s, net, PL_ERR_DIVERGED, "are not finite");
}

static int setup(void **state)
{
    static struct stage stage;
    char path[256];
    folder_make(&stage.folder);
    folder_put(&stage.folder, "text", text, strlen(text));
    snprintf(stage.spec, sizeof stage.spec, "text:%s?unit=character&window=%d",
             folder_file(&stage.folder, "text", path), WINDOW);
    *state = &stage;
    return pl_engine_create(NULL, &stage.engine);
}

static int teardown(void **state)
{
    struct stage *s = *state;
    pl_engine_destroy(s->engine);
    folder_remove(&s->folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_state_is_carried),
        cmocka_unit_test(test_without_a_prime),
        cmocka_unit_test(test_a_seed_repeats),
        cmocka_unit_test(test_temperatures),
        cmocka_unit_test(test_a_net_that_gives_probabilities),
        cmocka_unit_test(test_the_text_of_a_job),
        cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_a_wrong_prime_leaves_slices_as_they_are),
        cmocka_unit_test(test_nets_that_draw_no_text),
        cmocka_unit_test(test_nets_without_recurrent_layers),
        cmocka_unit_test(test_data_that_is_no_text),
        cmocka_unit_test(test_weights_that_have_diverged),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
