/* Checkpoints on a real folder: what goes in comes out, and nothing that is damaged ever does. */
#include "train/checkpoint.h"

#include "base/rng.h"
#include "faulty_disk.h"
#include "folder.h"
#include "model/safetensors.h"

#include <math.h>

enum { ROOM = 512 };

/* A small model: two segments, one of state, an optimizer with two vectors. */
struct sample {
    struct folder folder;
    struct arena arena;
    struct segments x, s;
    struct optim_ops optim;
    struct rundir dir;
    struct model_layout layout;
    char log[4096];
    struct logger logger;
};

static void keep_line(void *user, enum log_level level, const char *line)
{
    struct sample *sample = user;
    size_t n = strlen(sample->log);
    (void)level;
    snprintf(sample->log + n, sizeof sample->log - n, "%s\n", line);
}

static int setup(void **state)
{
    struct sample *m = calloc(1, sizeof *m);
    assert_non_null(m);
    folder_make(&m->folder);
    arena_init(&m->arena);
    const struct shape weights = {4, {2, 1, 3, 3}}, bias = {1, {2}}, mean = {1, {3}};
    assert_non_null(segments_add(&m->x, &m->arena, "conv.0", &weights, 1, 1));
    assert_non_null(segments_add(&m->x, &m->arena, "conv.1", &bias, 1, 1));
    assert_non_null(segments_add(&m->s, &m->arena, "norm.0", &mean, 0, 0));
    static const char *const extra_name[] = {"own"};
    m->optim = (struct optim_ops){.type = "Two", .states = 2, .state_name = {"first", "second"}};
    m->layout = (struct model_layout){
        .x = &m->x, .s = &m->s, .optim = &m->optim, .has_state = true, .extra_name = extra_name};
    m->dir.disk = real_disk();
    snprintf(m->dir.path, sizeof m->dir.path, "%s", m->folder.path);
    m->logger = (struct logger){keep_line, m, LOG_DEBUG};
    assert_true(model_floats_most(&m->layout) <= ROOM);
    *state = m;
    return 0;
}

static int teardown(void **state)
{
    struct sample *m = *state;
    folder_remove(&m->folder);
    arena_release(&m->arena);
    free(m);
    return 0;
}

/* Values of the model of exchange n, the odd ones among them; padding is zero. */
static void fill(const struct sample *m, uint64_t n, float model[ROOM])
{
    memset(model, 0, ROOM * sizeof *model);
    const struct segments *part[] = {&m->x, &m->s, &m->x, &m->x};
    static const float odd[] = {-0.0f, INFINITY, NAN, 1e-42f, -3.4e38f};
    for (size_t p = 0, at = 0; p < 4; at += part[p++]->total)
        for (size_t i = 0; i < part[p]->count; i++)
            for (size_t k = 0; k < part[p]->at[i].len; k++) {
                uint64_t draw = rng_below(5, n, p * 1000 + i * 100 + k, 1000);
                model[at + part[p]->at[i].offset + k] =
                    draw < 50 ? odd[draw % 5] : (float)draw * 0.37f - 100;
            }
}

static struct checkpoint_note note_of(uint64_t n)
{
    return (struct checkpoint_note){
        .course = {.place = n * 64, .steps = n * 4, .exchanges = n},
        .updates = n + 5,
        .used = n * 64 - 3,
        .missed = 3,
        .seed = UINT64_MAX,
        .job_hash = 0xfedcba9876543210,
        .data_hash = n,
        .records = 540,
        .best_error = 0.1 + (double)n,
        .incarnation = UINT32_MAX,
    };
}

static int save_to(const struct sample *m, struct disk *disk, uint64_t n, uint32_t keep,
                   struct err *err)
{
    float model[ROOM];
    uint64_t bytes;
    struct rundir dir = m->dir;
    struct checkpoint_note note = note_of(n);
    dir.disk = disk;
    fill(m, n, model);
    return checkpoint_save(&dir, &note, &m->layout, model, keep, &bytes, err);
}

static void save(const struct sample *m, uint64_t n, uint32_t keep)
{
    struct err err = {0};
    if (save_to(m, real_disk(), n, keep, &err) != OK)
        fail_msg("%s", err.text);
}

static int load(struct sample *m, float model[ROOM], struct checkpoint_note *note, struct err *err)
{
    memset(model, 0, ROOM * sizeof *model);
    m->log[0] = '\0';
    return checkpoint_load(&m->dir, &m->logger, &m->layout, model, note, err);
}

/* The newest that can be loaded is that of exchange n, whole. */
static void expect_loaded(struct sample *m, uint64_t n)
{
    float model[ROOM], want[ROOM];
    struct err err = {0};
    struct checkpoint_note note, wrote = note_of(n);
    if (load(m, model, &note, &err) != OK)
        fail_msg("%s", err.text);
    fill(m, n, want);
    assert_int_equal(note.course.exchanges, n);
    assert_int_equal(note.course.place, wrote.course.place);
    assert_int_equal(note.course.steps, wrote.course.steps);
    assert_true(note.used == wrote.used && note.missed == wrote.missed);
    assert_int_equal(note.updates, m->layout.has_state ? wrote.updates : 0);
    assert_true(note.seed == wrote.seed && note.incarnation == wrote.incarnation);
    assert_true(note.job_hash == wrote.job_hash && note.data_hash == wrote.data_hash);
    size_t floats = model_floats(&m->layout);
    assert_memory_equal(model, want, floats * sizeof *model);
}

static void test_what_goes_in_comes_out(void **state)
{
    struct sample *m = *state;
    save(m, 7, 3);
    m->layout.has_state = false;
    expect_loaded(m, 7);
    assert_true(m->layout.has_state);
    assert_string_equal(m->log, "");
    m->layout.has_state = false;
    save(m, 8, 3);
    m->layout.has_state = true;
    expect_loaded(m, 8);
    assert_false(m->layout.has_state);
}

/* A strategy's own vectors, with the optimizer's and without. */
static void test_what_a_strategy_adds(void **state)
{
    struct sample *m = *state;
    m->layout.extras = 1;
    for (uint64_t n = 7; n < 9; n++) {
        m->layout.has_extra = true;
        save(m, n, 3);
        m->layout.has_extra = false;
        expect_loaded(m, n);
        assert_true(m->layout.has_extra);
        m->layout.has_state = false;
    }
    m->layout.has_extra = false;
    save(m, 9, 3);
    expect_loaded(m, 9);
    assert_false(m->layout.has_extra);
}

static void test_the_same_bytes_again(void **state)
{
    const struct sample *m = *state;
    static uint8_t a[FOLDER_BYTES_MAX], b[FOLDER_BYTES_MAX];
    save(m, 7, 3);
    size_t n = folder_get(&m->folder, "checkpoint/00000007.safetensors", a);
    save(m, 7, 3);
    assert_int_equal(folder_get(&m->folder, "checkpoint/00000007.safetensors", b), n);
    assert_memory_equal(a, b, n);
    assert_false(folder_has(&m->folder, "checkpoint/00000007.safetensors.new"));
}

static void test_the_newest_are_kept(void **state)
{
    struct sample *m = *state;
    for (uint64_t n = 1; n <= 12; n++)
        save(m, n * 9, 3);
    folder_put(&m->folder, "checkpoint/notes.txt", "mine", 4);
    save(m, 100000000, 3); /* a digit more than names have */
    assert_false(folder_has(&m->folder, "checkpoint/00000090.safetensors"));
    assert_true(folder_has(&m->folder, "checkpoint/00000099.safetensors"));
    assert_true(folder_has(&m->folder, "checkpoint/00000108.safetensors"));
    assert_true(folder_has(&m->folder, "checkpoint/100000000.safetensors"));
    folder_expect(&m->folder, "checkpoint/notes.txt", "mine");
    expect_loaded(m, 100000000);
}

/* The bytes in place of the newest checkpoint: it is passed over by name, the older one taken. */
static void expect_passed_over(struct sample *m, const uint8_t *bytes, size_t n)
{
    folder_put(&m->folder, "checkpoint/00000002.safetensors", bytes, n);
    expect_loaded(m, 1);
    assert_non_null(strstr(m->log, "passed over: "));
    assert_non_null(strstr(m->log, "00000002.safetensors"));
}

static void test_no_byte_can_change(void **state)
{
    struct sample *m = *state;
    static uint8_t bytes[FOLDER_BYTES_MAX];
    save(m, 1, 3);
    save(m, 2, 3);
    size_t n = folder_get(&m->folder, "checkpoint/00000002.safetensors", bytes);
    for (size_t i = 0; i < n; i++) {
        uint8_t was = bytes[i];
        bytes[i] = (uint8_t)(was ^ 1u << i % 8);
        expect_passed_over(m, bytes, n);
        bytes[i] = was;
    }
    print_message("    %zu bytes\n", n);
    folder_put(&m->folder, "checkpoint/00000002.safetensors", bytes, n);
    expect_loaded(m, 2);
}

static void test_no_byte_can_go_or_come(void **state)
{
    struct sample *m = *state;
    static uint8_t bytes[FOLDER_BYTES_MAX];
    save(m, 1, 3);
    save(m, 2, 3);
    size_t n = folder_get(&m->folder, "checkpoint/00000002.safetensors", bytes);
    for (size_t len = 0; len < n; len++)
        expect_passed_over(m, bytes, len);
    for (size_t more = 1; more <= 64; more += 21)
        expect_passed_over(m, bytes, n + more); /* zeros follow */
}

static void test_none_is_left(void **state)
{
    struct sample *m = *state;
    float model[ROOM];
    struct checkpoint_note note;
    struct err err = {0};
    assert_int_equal(load(m, model, &note, &err), ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, m->dir.path));
    save(m, 1, 3);
    save(m, 2, 3);
    folder_put(&m->folder, "checkpoint/00000001.safetensors", "x", 1);
    folder_put(&m->folder, "checkpoint/00000002.safetensors", "x", 1);
    assert_int_equal(load(m, model, &note, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "00000002.safetensors")); /* why the newest is not */
    assert_non_null(strstr(m->log, "00000001.safetensors"));
}

/* Loads as the net of other segments; the message holds `says`. */
static void expect_other_net(struct sample *m, const struct segments *x, const char *says)
{
    float model[ROOM];
    struct checkpoint_note note;
    struct err err = {0};
    const struct segments *own = m->layout.x;
    m->layout.x = x;
    assert_int_equal(load(m, model, &note, &err), ERR_INPUT);
    if (!strstr(err.text, says) || !strstr(err.text, "00000002.safetensors"))
        fail_msg("%s: %s", says, err.text);
    m->layout.x = own;
}

static void test_another_net_is_named(void **state)
{
    struct sample *m = *state;
    struct segments shaped = {0}, named = {0}, more = {0}, fewer = {0};
    const struct shape weights = {4, {2, 1, 3, 3}}, wide = {1, {3}}, bias = {1, {2}};
    save(m, 1, 3);
    save(m, 2, 3);
    segments_add(&fewer, &m->arena, "conv.0", &weights, 1, 1);
    segments_add(&shaped, &m->arena, "conv.0", &weights, 1, 1);
    segments_add(&shaped, &m->arena, "conv.1", &wide, 1, 1);
    segments_add(&named, &m->arena, "conv.0", &weights, 1, 1);
    segments_add(&named, &m->arena, "ip.1", &bias, 1, 1);
    segments_add(&more, &m->arena, "conv.0", &weights, 1, 1);
    segments_add(&more, &m->arena, "conv.1", &bias, 1, 1);
    assert_non_null(segments_add(&more, &m->arena, "ip.0", &bias, 1, 1));
    expect_other_net(m, &shaped, "joint/conv.1");
    expect_other_net(m, &named, "joint/ip.1");
    expect_other_net(m, &more, "joint/ip.0");
    expect_other_net(m, &fewer, "joint/conv.1");
    assert_string_equal(m->log, ""); /* a file that is whole is not passed over */
    expect_loaded(m, 2);
}

/* Its vectors are of no use, the model is. */
static void test_another_optimizer_starts_afresh(void **state)
{
    struct sample *m = *state;
    save(m, 1, 3);
    m->optim.state_name[1] = "third";
    expect_loaded(m, 1);
    assert_false(m->layout.has_state);
}

static void test_a_full_disk_is_refused_before_it_is_full(void **state)
{
    struct sample *m = *state;
    struct faulty_disk faulty;
    struct err err = {0};
    save(m, 1, 3);
    faulty_init(&faulty);
    faulty.space = 500;
    assert_int_equal(save_to(m, &faulty.disk, 2, 3, &err), ERR_IO);
    assert_non_null(strstr(err.text, "500 bytes are left"));
    assert_null(strstr(faulty.said, "open"));
    assert_null(strstr(faulty.said, "remove"));
    expect_loaded(m, 1);
}

/* Whatever call fails, alone or with all that follow: there is a whole checkpoint, and the next one
 * can be written. */
static void test_each_call_of_the_disk_fails(void **state)
{
    struct sample *m = *state;
    for (int for_good = 0; for_good < 2; for_good++) {
        int calls = 0;
        for (int n = 1; n == 1 || n <= calls; n++) {
            struct faulty_disk faulty;
            struct err err = {0};
            save(m, 1, 1); /* removes the others, too */
            faulty_init(&faulty);
            assert_int_equal(save_to(m, &faulty.disk, 2, 1, &err), OK);
            calls = faulty.calls;
            save(m, 1, 1);
            faulty_init(&faulty);
            faulty.fail_at = n;
            faulty.for_good = for_good;
            int rc = save_to(m, &faulty.disk, 2, 1, &err);
            bool there = rc == OK || strstr(faulty.said, "sync_dir"); /* it has been renamed */
            expect_loaded(m, there ? 2 : 1);
            assert_true(rc == OK || (rc == ERR_IO && err.text[0]));
            save(m, 3, 1);
            expect_loaded(m, 3);
        }
        assert_true(calls >= 9);
    }
}

/* A model alone has no optimizer state, and replaces the one before. */
static void test_a_model_alone(void **state)
{
    struct sample *m = *state;
    float model[ROOM];
    struct err err = {0};
    struct checkpoint_note note = note_of(4);
    static uint8_t bytes[FOLDER_BYTES_MAX];
    fill(m, 4, model);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            checkpoint_save_model(&m->dir, "best.safetensors", &note, &m->layout, model, &err), OK);
    size_t n = folder_get(&m->folder, "best.safetensors", bytes);
    struct safetensors st;
    assert_int_equal(safetensors_parse("best", bytes, n, true, &st, &err), OK);
    assert_int_equal(st.n, 3);
    assert_non_null(safetensors_find(&st, "joint/conv.0", NULL));
    assert_non_null(safetensors_find(&st, "s/norm.0", NULL));
    assert_null(safetensors_find(&st, "first/conv.0", NULL));
    safetensors_release(&st);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_goes_in_comes_out),
        TEST(test_what_a_strategy_adds),
        TEST(test_the_same_bytes_again),
        TEST(test_the_newest_are_kept),
        TEST(test_no_byte_can_change),
        TEST(test_no_byte_can_go_or_come),
        TEST(test_none_is_left),
        TEST(test_another_net_is_named),
        TEST(test_another_optimizer_starts_afresh),
        TEST(test_a_full_disk_is_refused_before_it_is_full),
        TEST(test_each_call_of_the_disk_fails),
        TEST(test_a_model_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
