/* Streams: a learner carries its recurrent state from record to record, so that windows of any
 * length have the losses of one long one; it begins with 0 where a record does not follow. */
#include "data/lease.h"
#include "folder.h"
#include "job/job.h"
#include "learner/learner.h"
#include "tensor/kernels.h"

#include <math.h>

static const char net[] =
    "layer { name: 'text' type: 'Data' top: 'data' top: 'target' }\n"
    "layer { name: 'embed' type: 'Embed' bottom: 'data' top: 'embed' embed_param {\n"
    "  input_dim: 4 num_output: 3 weight_filler { type: 'gaussian' std: 1 } } }\n"
    "layer { name: 'lstm' type: 'LSTM' bottom: 'embed' top: 'lstm' recurrent_param {\n"
    "  num_output: 5 weight_filler { type: 'gaussian' std: 1 } } }\n"
    "layer { name: 'gru' type: 'GRU' bottom: 'lstm' top: 'gru' gru_param {\n"
    "  num_output: 4 weight_filler { type: 'gaussian' std: 1 } } }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'gru' top: 'ip' inner_product_param {\n"
    "  num_output: 4 axis: 2 weight_filler { type: 'gaussian' std: 2 } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'target'\n"
    "  softmax_param { axis: 2 } }\n";

/* Windows of 5, 10, 20 and 40 characters cut the 80 into as many records for each of two streams,
 * which begin at characters 0 and 40. */
enum { CHARACTERS = 83, STREAMS = 2, STEP = 5, STEPS = 40 / STEP };

static void put_text(const struct folder *folder, const char *name, const char *text)
{
    folder_put(folder, name, text, strlen(text));
}

struct trial {
    Paceline__Job *job;
    struct corpus corpus;
    struct workspace *ws;
    struct arena arena;
    struct learner l;
    struct err err;
};

static int open_corpus(struct trial *t, const struct folder *folder, unsigned window,
                       unsigned streams, unsigned batch, const char *more)
{
    char text[1024];
    *t = (struct trial){0};
    arena_init(&t->arena);
    const char *file = strstr(more, "plain") ? "plain.prototxt" : "net.prototxt";
    snprintf(text, sizeof text,
             "net { file: '%s/%s' } threads: 2 kernels: ref batch: %u train_data { "
             "text { path: '%s/text' unit: character window: %u } streams: %u } solver { base_lr: "
             "1 lr_policy: 'fixed' } %s",
             folder->path, file, batch, folder->path, window, streams, more);
    int rc = job_parse("job", text, strlen(text), &t->job, &t->err);
    if (rc == OK)
        rc = job_finish(t->job, &t->err);
    return rc == OK ? corpus_open(t->job, NULL, &t->corpus, &t->err) : rc;
}

static int try_trial(struct trial *t, const struct folder *folder, unsigned window,
                     unsigned streams, unsigned batch, const char *more)
{
    struct logger silent = {0};
    kernels_set_threads(1);
    int rc = open_corpus(t, folder, window, streams, batch, more);
    if (rc == OK)
        rc = workspace_create(t->job, &t->corpus, &silent, NULL, NULL, &t->ws, &t->err);
    return rc == OK ? learner_init(&t->l, NULL, t->job, &t->corpus, t->ws, &t->arena, NULL, &t->err)
                    : rc;
}

static void open_trial(struct trial *t, const struct folder *folder, unsigned window,
                       unsigned streams, unsigned batch, const char *more)
{
    if (try_trial(t, folder, window, streams, batch, more) != OK)
        fail_msg("%s", t->err.text);
}

static void close_trial(struct trial *t)
{
    workspace_free(t->ws);
    arena_release(&t->arena);
    corpus_close(&t->corpus);
    job_free(t->job);
}

static double loss_at(struct trial *t, uint64_t start, size_t count)
{
    assert_int_equal(learner_gradient(&t->l, start, count), OK);
    return t->l.loss;
}

static void assert_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-5))
        fail_msg("%.9g, not %.9g", a, b);
}

/* Of each step of an epoch; the parameters stay as they are. */
static void read_losses(const struct folder *folder, unsigned window, const char *more,
                        double *loss)
{
    struct trial t;
    open_trial(&t, folder, window, STREAMS, STREAMS, more);
    size_t steps = 40 / window;
    assert_int_equal(t.corpus.set[SET_TRAIN].count, steps * STREAMS);
    for (size_t i = 0; i < steps; i++)
        loss[i] = loss_at(&t, i * STREAMS, STREAMS);
    assert_near(loss_at(&t, steps * STREAMS, STREAMS), loss[0]); /* the next epoch begins with 0 */
    close_trial(&t);
}

static void test_windows_are_one_long_one(void **state)
{
    double some[STEPS], loss[STEPS], zero;
    struct trial t;
    read_losses(*state, STEP, "", loss);
    for (unsigned window = 2 * STEP; window <= 40; window *= 2) {
        size_t each = window / STEP;
        read_losses(*state, window, "", some);
        for (size_t i = 0; i < STEPS / each; i++) {
            double sum = 0;
            for (size_t k = 0; k < each; k++)
                sum += loss[i * each + k];
            assert_near(sum / (double)each, some[i]);
        }
    }
    open_trial(&t, *state, STEP, STREAMS, STREAMS, "");
    zero = loss_at(&t, 3 * STREAMS, STREAMS); /* its first step: nothing is carried */
    assert_true(fabs(zero - loss[3]) > 1e-3);
    assert_near(loss_at(&t, 3 * STREAMS, STREAMS), zero); /* again: nor here, */
    loss_at(&t, 0, STREAMS);
    assert_near(loss_at(&t, STREAMS, STREAMS), loss[1]);
    assert_near(loss_at(&t, 3 * STREAMS, STREAMS), zero); /* nor behind a jump */
    close_trial(&t);
}

static void test_a_group_carries_its_state(void **state)
{
    double one[STEPS], two[STEPS];
    read_losses(*state, STEP, "", one);
    read_losses(*state, STEP, "local: 2", two);
    for (size_t i = 0; i < STEPS; i++)
        assert_near(one[i], two[i]);
}

/* Batches of one step follow each other as steps do. */
static void test_batches_of_a_step_carry_it(void **state)
{
    double loss[STEPS];
    struct trial t;
    read_losses(*state, STEP, "", loss);
    open_trial(&t, *state, STEP, STREAMS, STREAMS, "iter_size: 4");
    assert_near(loss_at(&t, 0, 4 * STREAMS), (loss[0] + loss[1] + loss[2] + loss[3]) / 4);
    assert_near(loss_at(&t, 4 * STREAMS, 4 * STREAMS), (loss[4] + loss[5] + loss[6] + loss[7]) / 4);
    close_trial(&t);
}

/* Two workers have a stream each of a step of all. */
static void test_workers_share_streams_out(void **state)
{
    double loss[STEPS];
    struct trial t[2];
    read_losses(*state, STEP, "", loss);
    for (size_t k = 0; k < 2; k++)
        open_trial(&t[k], *state, STEP, STREAMS, 1, "");
    for (size_t i = 0; i < STEPS; i++)
        assert_near((loss_at(&t[0], 2 * i, 1) + loss_at(&t[1], 2 * i + 1, 1)) / 2, loss[i]);
    close_trial(&t[0]);
    close_trial(&t[1]);
}

/* The records held out are the end; the rest is streams, of which the second begins elsewhere. */
static void test_the_end_is_held_out(void **state)
{
    struct trial t;
    open_trial(&t, *state, STEP, STREAMS, STREAMS, "validation: 4");
    const struct dataset *set = t.corpus.set;
    assert_int_equal(set[SET_TRAIN].count, 12);
    assert_int_equal(set[SET_VALIDATION].count, 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(set[SET_VALIDATION].choice[i], 12 + i);
    const struct batch *records;
    static const uint64_t expected[] = {0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11};
    for (size_t i = 0; i < 12; i += 2) {
        assert_int_equal(loader_take(&t.ws->loader, i, 2, &records, &t.err), OK);
        assert_memory_equal(records->records, expected + i, 2 * sizeof *expected);
    }
    close_trial(&t);
}

/* A learner that takes the states of another one continues its streams, as far as its records
 * follow theirs. */
static void test_states_move_to_another_learner(void **state)
{
    double loss[STEPS];
    struct trial t[2];
    float saved[256];
    read_losses(*state, STEP, "", loss);
    for (size_t k = 0; k < 2; k++)
        open_trial(&t[k], *state, STEP, STREAMS, STREAMS, "");
    loss_at(&t[0], 0, STREAMS);
    loss_at(&t[0], STREAMS, STREAMS);
    struct carried_state *carried = &t[1].l.carried;
    size_t floats = carried_state_floats(carried->streams, carried->row);
    assert_true(floats == STREAMS * (5 + 5 + 4 + 2) && floats <= sizeof saved / sizeof *saved);
    carried_state_export(&t[0].l.carried, NULL, saved);
    carried_state_import(carried, saved, true);
    assert_near(loss_at(&t[1], 2 * STREAMS, STREAMS), loss[2]);
    double zero = loss_at(&t[0], 5 * STREAMS, STREAMS);
    carried_state_import(carried, saved, true);
    assert_near(loss_at(&t[1], 5 * STREAMS, STREAMS), zero);
    for (uint64_t next = UINT64_C(0xffff); next <= UINT64_C(1) << 32; next = next * 2 + next % 7) {
        carried->next[1] = next;
        carried_state_export(carried, NULL, saved);
        carried->next[1] = 0;
        carried_state_import(carried, saved, true);
        assert_true(carried->next[1] == next);
    }
    for (size_t i = 0; i < floats; i++) /* no record's */
        saved[i] = i % 2 ? (float)NAN : -1;
    carried_state_import(carried, saved, true);
    assert_near(loss_at(&t[1], 0, STREAMS), loss[0]);
    close_trial(&t[0]);
    close_trial(&t[1]);
}

/* A checkpoint keeps of an open lease what its holder has not reported. That is granted again, as a
 * lease of its own: its streams begin with 0, whatever the holder had trained meanwhile. So is a
 * lease behind one of another worker; one that continues the worker's last lease continues its
 * streams, too. */
static void test_leases_begin_with_0(void **state)
{
    enum { STEPS_HELD = 4 };
    static struct lease_table table, resumed;
    struct lease given[LEASE_HELD_MAX];
    struct buf text = {0};
    struct trial t[2], alone;
    double loss[STEPS], zero[2];
    read_losses(*state, STEP, "", loss);
    for (size_t k = 0; k < 2; k++) {
        open_trial(&t[k], *state, STEP, STREAMS, STREAMS, "");
        open_trial(&alone, *state, STEP, STREAMS, STREAMS, "");
        zero[k] = loss_at(&alone, (k == 0 ? 1 : STEPS_HELD + 1) * STREAMS, STREAMS);
        close_trial(&alone);
    }
    assert_true(lease_open(&table, 0, 0, STREAMS));
    lease_add_node(&table, 0);
    lease_grant_first(&table, 0, STEPS_HELD * STREAMS);
    for (uint64_t i = 0; i < 3; i++)
        assert_near(loss_at(&t[0], i * STREAMS, STREAMS), loss[i]);
    lease_report_use(&table, 0, STREAMS, 0);
    lease_write(&table, &text);
    assert_string_equal((const char *)text.data, "8 0 0 2-8?");
    assert_true(lease_read(&resumed, (const char *)text.data, STREAMS));
    buf_release(&text);
    lease_add_node(&resumed, 1);
    assert_int_equal(lease_grant(&resumed, 1, (STEPS_HELD - 1) * STREAMS, given), 1);
    assert_true(given[0].from == STREAMS && given[0].to == STEPS_HELD * STREAMS);
    assert_near(loss_at(&t[1], given[0].from, STREAMS), zero[0]);
    assert_true(fabs(zero[0] - loss[1]) > 1e-3);
    /* The next lease is another worker's; then one follows that is not. */
    assert_near(loss_at(&t[0], (STEPS_HELD + 1) * STREAMS, STREAMS), zero[1]);
    assert_near(loss_at(&t[0], 0, STREAMS), loss[0]);
    assert_near(loss_at(&t[0], STREAMS, STREAMS), loss[1]);
    close_trial(&t[0]);
    close_trial(&t[1]);
}

/* ---- of several learners ---- */

enum { MANY = 6, ROW = 2 };

/* One that takes every second record, of the stream of all. */
static bool takes_odd(const void *user, uint64_t place)
{
    return place % 2 == *(const unsigned *)user;
}

static bool takes_any(const void *user, uint64_t place)
{
    (void)user;
    (void)place;
    return true;
}

static bool takes_none(const void *user, uint64_t place)
{
    (void)user;
    (void)place;
    return false;
}

static uint64_t record_at(const struct sampler *s, uint64_t place)
{
    return sampler_at(s, place / s->n, (size_t)(place % s->n));
}

/* The place of the next record of a stream, by looking at one after another. */
static uint64_t place_behind(const struct sampler *s, uint64_t from, size_t stream)
{
    while (from % s->n % s->streams != stream)
        from++;
    return from;
}

/* Of each two of which one counts, as slices add theirs up. */
static void add_up_tables(const struct carried_state *c, struct carried_selection *only, float *sum)
{
    float part[MANY * (ROW + 2)];
    memset(sum, 0, sizeof part);
    for (unsigned odd = 0; odd < 2; odd++)
        for (unsigned slice = 0; slice < 2; slice++) {
            only->user = &odd;
            carried_state_export(c, only, part);
            for (size_t i = slice; i < MANY * ROW; i += 2)
                part[i] = 0;
            carried_table_begin_sum(part, MANY, ROW, slice == 1);
            for (size_t i = 0; i < MANY * (ROW + 2); i++)
                sum[i] += part[i];
        }
    carried_table_end_sum(sum, MANY, ROW);
}

/* From each place on, over the end of an epoch that has no whole number of rows. */
static void test_learners_give_the_streams_that_they_continue(void **state)
{
    (void)state;
    float at[MANY * ROW], whole[MANY * (ROW + 2)], part[MANY * (ROW + 2)], sum[MANY * (ROW + 2)];
    uint64_t next[MANY];
    bool is_own[MANY];
    const struct sampler sampler = {.n = 4 * MANY + 3, .streams = MANY};
    struct carried_state c = {
        .streams = MANY, .row = ROW, .at = at, .next = next, .is_own = is_own};
    for (size_t i = 0; i < MANY * ROW; i++)
        at[i] = 1 + (float)i;
    for (uint64_t from = 0; from < 3 * sampler.n; from++) {
        struct carried_selection only = {.sampler = &sampler, .from = from, .takes = takes_any};
        for (size_t i = 0; i < MANY; i++)
            next[i] = record_at(&sampler, place_behind(&sampler, from, i));
        carried_state_export(&c, NULL, whole);
        carried_state_export(&c, &only, part);
        assert_memory_equal(part, whole, sizeof whole);
        carried_table_clear(sum, MANY, ROW);
        size_t given = 0;
        only.takes = takes_odd;
        for (unsigned odd = 0; odd < 2; odd++) { /* no two give the same stream */
            only.user = &odd;
            carried_state_export(&c, &only, part);
            given += carried_table_count(part, MANY, ROW);
            carried_table_merge(sum, part, MANY, ROW);
        }
        assert_int_equal(given, MANY);
        assert_memory_equal(sum, whole, sizeof whole);
        add_up_tables(&c, &only, sum);
        assert_memory_equal(sum, whole, sizeof whole);
        only.takes = takes_none;
        add_up_tables(&c, &only, sum);
        assert_int_equal(carried_table_count(sum, MANY, ROW), 0);
        next[1]++; /* a stream that continues elsewhere is nobody's */
        only.takes = takes_any;
        carried_state_export(&c, &only, part);
        assert_int_equal(carried_table_count(part, MANY, ROW), MANY - 1);
        carried_state_import(&c, part, true);
        assert_true(next[0] == record_at(&sampler, place_behind(&sampler, from, 0)));
        assert_true(next[1] > sampler.n && at[ROW] == 0 && at[0] == 1);
        at[ROW] = 1 + (float)ROW;
        at[ROW + 1] = 2 + (float)ROW;
    }
}

/* Evaluation begins each window with 0, and leaves the learner's state alone. */
static void test_streams_begin_again(void **state)
{
    double loss[STEPS];
    struct trial t;
    read_losses(*state, STEP, "", loss);
    open_trial(&t, *state, STEP, STREAMS, STREAMS, "");
    double zero = loss_at(&t, 3 * STREAMS, STREAMS);
    for (uint64_t i = 0; i < 3; i++)
        loss_at(&t, i * STREAMS, STREAMS);
    carried_state_reset(&t.l.carried);
    assert_near(loss_at(&t, 3 * STREAMS, STREAMS), zero);
    carried_state_reset(&t.l.carried);
    assert_near(loss_at(&t, 0, STREAMS), loss[0]);
    assert_near(loss_at(&t, STREAMS, STREAMS), loss[1]);
    close_trial(&t);
}

static void test_evaluation_carries_nothing(void **state)
{
    double loss[STEPS], zero = 0;
    struct trial t;
    struct net_result sum = {0};
    read_losses(*state, STEP, "", loss);
    for (size_t i = 0; i < STEPS; i++) {
        open_trial(&t, *state, STEP, STREAMS, STREAMS, "");
        zero += loss_at(&t, i * STREAMS, STREAMS) / STEPS;
        close_trial(&t);
    }
    open_trial(&t, *state, STEP, STREAMS, STREAMS, "");
    loss_at(&t, 0, STREAMS);
    const struct dataset *set = &t.corpus.set[SET_TRAIN];
    assert_int_equal(workspace_evaluate(t.ws, set, 0, set->count, &t.l.x, &t.l.s, &sum, &t.err),
                     OK);
    assert_near(evaluation_of(&sum).loss, zero);
    assert_near(loss_at(&t, STREAMS, STREAMS), loss[1]);
    close_trial(&t);
}

static void expect_refusal(const struct folder *folder, unsigned window, unsigned streams,
                           const char *more, const char *expected)
{
    struct trial t;
    assert_int_equal(try_trial(&t, folder, window, streams, 2, more), ERR_INPUT);
    if (!strstr(t.err.text, expected))
        fail_msg("\"%s\" should say \"%s\"", t.err.text, expected);
    close_trial(&t);
}

static void test_refusals(void **state)
{
    const struct folder *folder = *state;
    expect_refusal(folder, STEP, 17, "", "train_data.streams: there are 16 records for 17 streams");
    expect_refusal(folder, CHARACTERS, 1, "",
                   "has 83 characters, and a window of 83 with what follows it takes 84");
    put_text(folder, "plain.prototxt",
             "layer { name: 'text' type: 'Data' top: 'data' top: 'target' }\n"
             "layer { name: 'e' type: 'Embed' bottom: 'data' top: 'e' embed_param {\n"
             "  input_dim: 4 num_output: 4 } }\n"
             "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'e' bottom: 'target'\n"
             "  softmax_param { axis: 2 } }\n");
    expect_refusal(folder, STEP, 2, "name: 'plain'",
                   "train_data.streams: the net has no recurrent layer that carries a state");
}

static int setup(void **state)
{
    static struct folder folder;
    char text[CHARACTERS + 1] = "";
    uint32_t mixed = 1;
    for (size_t i = 0; i < CHARACTERS; i++) {
        mixed = mixed * 1664525u + 1013904223u;
        text[i] = "abcd"[mixed >> 30];
    }
    folder_make(&folder);
    put_text(&folder, "text", text);
    put_text(&folder, "net.prototxt", net);
    *state = &folder;
    return 0;
}

static int teardown(void **state)
{
    folder_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_are_one_long_one),
        cmocka_unit_test(test_a_group_carries_its_state),
        cmocka_unit_test(test_batches_of_a_step_carry_it),
        cmocka_unit_test(test_workers_share_streams_out),
        cmocka_unit_test(test_the_end_is_held_out),
        cmocka_unit_test(test_states_move_to_another_learner),
        cmocka_unit_test(test_leases_begin_with_0),
        cmocka_unit_test(test_learners_give_the_streams_that_they_continue),
        cmocka_unit_test(test_streams_begin_again),
        cmocka_unit_test(test_evaluation_carries_nothing),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
