/* Checkpoints on a real folder: what was saved is loaded, and nothing damaged ever is. */
#include "train/checkpoint.h"

#include "checkpoint_sample.h"
#include "faulty_disk.h"
#include "model/safetensors.h"
#include "model/safetensors_format.h"
#include "train/checkpoint_ranges.h"

static void test_checkpoint_round_trips(void **state)
{
    struct sample *m = *state;
    sample_save(m, 7, 3);
    m->layout.has_state = false;
    sample_expect_loaded(m, 7);
    assert_true(m->layout.has_state);
    assert_string_equal(m->log, "");
    m->layout.has_state = false;
    sample_save(m, 8, 3);
    m->layout.has_state = true;
    sample_expect_loaded(m, 8);
    assert_false(m->layout.has_state);
}

/* A strategy's own vectors, with the optimizer's and without. */
static void test_checkpoint_keeps_strategy_vectors(void **state)
{
    struct sample *m = *state;
    m->layout.extras = 1;
    for (uint64_t n = 7; n < 9; n++) {
        m->layout.has_extra = true;
        sample_save(m, n, 3);
        m->layout.has_extra = false;
        sample_expect_loaded(m, n);
        assert_true(m->layout.has_extra);
        m->layout.has_state = false;
    }
    m->layout.has_extra = false;
    sample_save(m, 9, 3);
    sample_expect_loaded(m, 9);
    assert_false(m->layout.has_extra);
}

/* The state of a lone worker's streams, behind whatever else there is. */
static void test_checkpoint_keeps_carried_state(void **state)
{
    struct sample *m = *state;
    struct err err = {0};
    struct checkpoint_header header;
    float model[SAMPLE_ROOM];
    m->layout.streams = 3;
    m->layout.row = 5;
    for (uint64_t n = 7; n < 9; n++) {
        m->layout.has_carried = true;
        sample_save(m, n, 3);
        m->layout.has_carried = false;
        sample_expect_loaded(m, n);
        assert_true(m->layout.has_carried);
        m->layout.has_state = false;
    }
    m->layout.streams = 2; /* the job has other streams now, by force */
    m->layout.drops_carried = true;
    assert_int_equal(sample_load(m, model, &header, &err), OK);
    assert_false(m->layout.has_carried);
    m->layout.drops_carried = false;
    m->layout.streams = 3;
    m->layout.row = 0; /* no layer carries a state */
    assert_int_equal(sample_load(m, model, &header, &err), OK);
    assert_false(m->layout.has_carried);
    m->layout.row = 5;
    sample_save(m, 9, 3);
    sample_expect_loaded(m, 9);
    assert_false(m->layout.has_carried);
}

static void expect_refusal(struct sample *m, const char *expected)
{
    struct err err = {0};
    struct checkpoint_header header;
    struct checkpoint_ranges *r = NULL;
    float model[SAMPLE_ROOM];
    for (int i = 0; i < 2; i++) {
        int rc = i == 0 ? sample_load(m, model, &header, &err)
                        : checkpoint_open(&m->dir, &m->logger, &m->layout, &r, &header, &err);
        assert_int_equal(rc, ERR_INPUT);
        if (!strstr(err.text, expected))
            fail_msg("\"%s\" should say \"%s\"", err.text, expected);
    }
}

/* One of its tensors has another name: the file is written with that. */
static void rename_tensor(const struct sample *m, const char *from, const char *to)
{
    static uint8_t bytes[FOLDER_BYTES_MAX];
    static const char file[] = "checkpoint/00000007.safetensors";
    struct safetensors st;
    struct safetensors_writer w;
    struct buf out = {0};
    struct err err = {0};
    size_t n = folder_get(&m->folder, file, bytes);
    assert_int_equal(safetensors_look(file, bytes, n, true, &st, &err), OK);
    safetensors_begin(&w);
    for (size_t i = 0; i < st.meta_n; i++)
        if (strcmp(st.meta[i].key, SAFETENSORS_CHECK) != 0 &&
            strncmp(st.meta[i].key, SAFETENSORS_XXH3, strlen(SAFETENSORS_XXH3)) != 0)
            safetensors_meta(&w, st.meta[i].key, st.meta[i].value);
    for (size_t i = 0; i < st.n; i++)
        safetensors_tensor(&w, strcmp(st.item[i].name, from) == 0 ? to : st.item[i].name,
                           &st.item[i].shape, st.item[i].data);
    assert_int_equal(safetensors_image(&w, &out, &err), OK);
    folder_put(&m->folder, file, out.data, out.len);
    buf_release(&out);
    safetensors_end(&w);
    safetensors_release(&st);
}

/* States that are not those of the job's streams are refused by name, not passed over. */
static void test_checkpoint_of_other_streams_is_refused(void **state)
{
    struct sample *m = *state;
    m->layout.streams = 3;
    m->layout.row = 5;
    m->layout.has_carried = true;
    sample_save(m, 7, 3);
    m->layout.row = 6;
    expect_refusal(m, "00000007.safetensors: carried/state is 3x5, and the streams of this job's "
                      "net have 3x6; take another checkpoint, or begin the streams with 0 by "
                      "--force-change");
    m->layout.row = 5;
    m->layout.streams = 4;
    expect_refusal(m, "carried/state is 3x5, and the streams of this job's net have 4x5");
    m->layout.streams = 3;
    rename_tensor(m, "carried/record", "carried/other");
    expect_refusal(m, "00000007.safetensors: has no tensor carried/record next to carried/state");
    rename_tensor(m, "carried/state", "carried/record");
    expect_refusal(m, "00000007.safetensors: has no tensor carried/state next to carried/record");
}

/* ---- a model that is in no memory whole ---- */

/* The tensors of a model, one after another. */
struct pieces {
    const struct sample *m;
    float model[SAMPLE_ROOM], tensors[SAMPLE_ROOM];
    size_t floats, next;
    int begun, ended, fails_at; /* float at which its owner is gone; 0: never */
};

static void add_tensors(struct pieces *p, const struct segments *table, const float *at)
{
    for (size_t i = 0; i < table->count; i++) {
        memcpy(p->tensors + p->floats, at + table->at[i].offset,
               table->at[i].len * sizeof *p->tensors);
        p->floats += table->at[i].len;
    }
}

static int begin_pieces(void *user, const struct model_layout *layout, struct err *err)
{
    struct pieces *p = user;
    const float *at = p->model;
    (void)err;
    p->begun++;
    p->floats = p->next = 0;
    add_tensors(p, layout->x, at);
    at += layout->x->total;
    add_tensors(p, layout->s, at);
    at += layout->s->total;
    for (size_t i = 0; layout->has_state && i < layout->optim->states; i++, at += layout->x->total)
        add_tensors(p, layout->x, at);
    size_t carried = layout->has_carried ? carried_state_floats(layout->streams, layout->row) : 0;
    memcpy(p->tensors + p->floats, at, carried * sizeof *at);
    p->floats += carried;
    return OK;
}

static int next_piece(void *user, float *into, size_t n, struct err *err)
{
    struct pieces *p = user;
    if (p->fails_at > 0 && p->next + n > (size_t)p->fails_at)
        return err_set(err, ERR_PEER, "its owner is gone");
    memcpy(into, p->tensors + p->next, n * sizeof *into);
    p->next += n;
    return OK;
}

static void end_pieces(void *user)
{
    struct pieces *p = user;
    p->ended++;
}

static int save_pieces(const struct sample *m, struct pieces *p, uint64_t n, struct err *err)
{
    const struct model_source source = {begin_pieces, next_piece, end_pieces, p};
    struct checkpoint_header header = sample_header_of(n);
    struct model_layout layout = m->layout;
    uint64_t bytes;
    layout.source = &source;
    p->begun = p->ended = 0;
    sample_fill(m, n, p->model);
    return checkpoint_save(&m->dir, &header, &layout, NULL, 3, &bytes, err);
}

/* Its file has the bytes of one from memory, with the optimizer's state and without. */
static void test_checkpoint_is_written_from_a_source(void **state)
{
    struct sample *m = *state;
    static uint8_t a[FOLDER_BYTES_MAX], b[FOLDER_BYTES_MAX];
    struct pieces p = {.m = m};
    struct err err = {0};
    m->layout.streams = 3;
    m->layout.row = 5;
    for (int i = 0; i < 4; i++) {
        m->layout.has_state = i % 2;
        m->layout.has_carried = i / 2;
        sample_save(m, 7, 3);
        size_t n = folder_get(&m->folder, "checkpoint/00000007.safetensors", a);
        assert_int_equal(save_pieces(m, &p, 7, &err), OK);
        assert_int_equal(p.next, p.floats);
        assert_true(p.begun == 1 && p.ended == 1);
        assert_int_equal(folder_get(&m->folder, "checkpoint/00000007.safetensors", b), n);
        assert_memory_equal(a, b, n);
        sample_expect_loaded(m, 7);
    }
}

/* Its owner is lost on the way: what there was to resume from is still there. */
static void test_checkpoint_of_a_lost_source_is_not_kept(void **state)
{
    struct sample *m = *state;
    struct pieces p = {.m = m};
    struct err err = {0};
    sample_save(m, 7, 1);
    for (p.fails_at = 1; p.fails_at < 60; p.fails_at += 9) {
        assert_int_equal(save_pieces(m, &p, 9, &err), ERR_PEER);
        assert_true(p.begun == 1 && p.ended == 1);
        assert_false(folder_has(&m->folder, "checkpoint/00000009.safetensors"));
        assert_false(folder_has(&m->folder, "checkpoint/00000009.safetensors" DISK_UNFINISHED));
        sample_expect_loaded(m, 7);
    }
}

/* Any range of the layout, read from the file, is as in memory. */
static void test_checkpoint_is_read_by_ranges(void **state)
{
    struct sample *m = *state;
    struct checkpoint_ranges *r = NULL;
    struct checkpoint_header header;
    struct err err = {0};
    float want[SAMPLE_ROOM], got[SAMPLE_ROOM];
    static uint8_t bytes[FOLDER_BYTES_MAX];
    m->layout.streams = 3;
    m->layout.row = 5;
    m->layout.has_carried = true;
    sample_save(m, 7, 3);
    sample_fill(m, 7, want);
    m->layout.has_state = m->layout.has_carried = false;
    assert_int_equal(checkpoint_open(&m->dir, &m->logger, &m->layout, &r, &header, &err), OK);
    assert_true(m->layout.has_carried && m->layout.has_state && header.progress.exchanges == 7 &&
                header.updates == 12);
    size_t all = model_floats(&m->layout);
    for (size_t from = 0; from < all; from++)
        for (size_t n = 1; n <= all - from; n += 5) {
            assert_int_equal(checkpoint_range(r, from, n, got, &err), OK);
            assert_memory_equal(got, want + from, n * sizeof *got);
        }
    checkpoint_close(r);
    /* One byte of the newest is damaged: the one before it is taken. */
    sample_save(m, 9, 3);
    size_t n = folder_get(&m->folder, "checkpoint/00000009.safetensors", bytes);
    bytes[n - 5] ^= 4;
    folder_put(&m->folder, "checkpoint/00000009.safetensors", bytes, n);
    assert_int_equal(checkpoint_open(&m->dir, &m->logger, &m->layout, &r, &header, &err), OK);
    assert_int_equal(header.progress.exchanges, 7);
    assert_non_null(strstr(m->log, "passed over"));
    checkpoint_close(r);
}

static void test_checkpoint_bytes_are_deterministic(void **state)
{
    const struct sample *m = *state;
    static uint8_t a[FOLDER_BYTES_MAX], b[FOLDER_BYTES_MAX];
    sample_save(m, 7, 3);
    size_t n = folder_get(&m->folder, "checkpoint/00000007.safetensors", a);
    sample_save(m, 7, 3);
    assert_int_equal(folder_get(&m->folder, "checkpoint/00000007.safetensors", b), n);
    assert_memory_equal(a, b, n);
    assert_false(folder_has(&m->folder, "checkpoint/00000007.safetensors.paceline-new"));
}

static void test_checkpoint_keeps_the_newest(void **state)
{
    struct sample *m = *state;
    for (uint64_t n = 1; n <= 12; n++)
        sample_save(m, n * 9, 3);
    folder_put(&m->folder, "checkpoint/notes.txt", "mine", 4);
    sample_save(m, 100000000, 3); /* a digit more than names have */
    assert_false(folder_has(&m->folder, "checkpoint/00000090.safetensors"));
    assert_true(folder_has(&m->folder, "checkpoint/00000099.safetensors"));
    assert_true(folder_has(&m->folder, "checkpoint/00000108.safetensors"));
    assert_true(folder_has(&m->folder, "checkpoint/100000000.safetensors"));
    folder_expect(&m->folder, "checkpoint/notes.txt", "mine");
    sample_expect_loaded(m, 100000000);
}

/* A file that a crash has left half written is removed before the disk's room is measured. */
static void test_checkpoint_removes_unfinished_file(void **state)
{
    struct sample *m = *state;
    sample_save(m, 1, 3);
    folder_put(&m->folder, "checkpoint/00000002.safetensors.paceline-new", "half", 4);
    folder_put(&m->folder, "checkpoint/mine.safetensors.paceline-new", "mine", 4);
    struct faulty_disk faulty;
    struct err err = {0};
    faulty_init(&faulty);
    faulty.space = 500;
    assert_int_equal(sample_save_to(m, &faulty.disk, 3, 3, &err), ERR_FULL);
    assert_false(folder_has(&m->folder, "checkpoint/00000002.safetensors.paceline-new"));
    assert_true(folder_has(&m->folder, "checkpoint/mine.safetensors.paceline-new"));
    sample_expect_loaded(m, 1);
}

/* A run that has gone back behind a checkpoint, which could not be read, never resumes from it:
 * when one is reported as saved, those above it are gone for good, or it is not reported. */
static void test_checkpoint_removes_later_progress(void **state)
{
    struct sample *m = *state;
    int calls = 1;
    for (int n = 0; n <= calls; n++) {
        struct faulty_disk faulty;
        struct err err = {0};
        sample_save(m, 5, 3);
        sample_save(m, 9, 3);
        faulty_init(&faulty);
        faulty.fail_at = n;
        int rc = sample_save_to(m, &faulty.disk, 7, 3, &err);
        if (n == 0)
            calls = faulty.calls;
        assert_true(rc == OK ? !folder_has(&m->folder, "checkpoint/00000009.safetensors")
                             : rc == ERR_IO && err.text[0]);
        assert_true(n > 0 || strstr(faulty.reported, "remove sync_dir "));
        if (rc == OK)
            sample_expect_loaded(m, 7);
    }
    assert_true(calls >= 13);
}

/* The bytes in place of the newest checkpoint: it is passed over by name, the older one taken. */
static void expect_passed_over(struct sample *m, const uint8_t *bytes, size_t n)
{
    folder_put(&m->folder, "checkpoint/00000002.safetensors", bytes, n);
    sample_expect_loaded(m, 1);
    assert_non_null(strstr(m->log, "passed over: "));
    assert_non_null(strstr(m->log, "00000002.safetensors"));
}

static void test_checkpoint_rejects_changed_byte(void **state)
{
    struct sample *m = *state;
    static uint8_t bytes[FOLDER_BYTES_MAX];
    sample_save(m, 1, 3);
    sample_save(m, 2, 3);
    size_t n = folder_get(&m->folder, "checkpoint/00000002.safetensors", bytes);
    for (size_t i = 0; i < n; i++) {
        uint8_t was = bytes[i];
        bytes[i] = (uint8_t)(was ^ 1u << i % 8);
        expect_passed_over(m, bytes, n);
        bytes[i] = (uint8_t)~was;
        expect_passed_over(m, bytes, n);
        bytes[i] = was;
    }
    print_message("    %zu bytes, each changed twice\n", n);
    folder_put(&m->folder, "checkpoint/00000002.safetensors", bytes, n);
    sample_expect_loaded(m, 2);
}

static void test_checkpoint_rejects_changed_length(void **state)
{
    struct sample *m = *state;
    static uint8_t bytes[FOLDER_BYTES_MAX];
    sample_save(m, 1, 3);
    sample_save(m, 2, 3);
    size_t n = folder_get(&m->folder, "checkpoint/00000002.safetensors", bytes);
    for (size_t len = 0; len < n; len++)
        expect_passed_over(m, bytes, len);
    for (size_t more = 1; more <= 64; more += 21)
        expect_passed_over(m, bytes, n + more); /* zeros follow */
}

static void test_checkpoint_load_without_valid_file(void **state)
{
    struct sample *m = *state;
    float model[SAMPLE_ROOM];
    struct checkpoint_header header;
    struct err err = {0};
    assert_int_equal(sample_load(m, model, &header, &err), ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, m->dir.path));
    sample_save(m, 1, 3);
    sample_save(m, 2, 3);
    folder_put(&m->folder, "checkpoint/00000001.safetensors", "x", 1);
    folder_put(&m->folder, "checkpoint/00000002.safetensors", "x", 1);
    assert_int_equal(sample_load(m, model, &header, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "00000002.safetensors")); /* why the newest is not */
    assert_non_null(strstr(m->log, "00000001.safetensors"));
}

/* Loads as the net of other segments; the message holds `says`. */
static void expect_other_net(struct sample *m, const struct segments *x, const char *phrase)
{
    float model[SAMPLE_ROOM];
    struct checkpoint_header header;
    struct err err = {0};
    const struct segments *own = m->layout.x;
    m->layout.x = x;
    assert_int_equal(sample_load(m, model, &header, &err), ERR_INPUT);
    if (!strstr(err.text, phrase) || !strstr(err.text, "00000002.safetensors"))
        fail_msg("%s: %s", phrase, err.text);
    m->layout.x = own;
}

static void test_checkpoint_of_another_net_is_refused(void **state)
{
    struct sample *m = *state;
    struct segments shaped = {0}, named = {0}, more = {0}, fewer = {0};
    const struct shape weights = {4, {2, 1, 3, 3}}, wide = {1, {3}}, bias = {1, {2}};
    sample_save(m, 1, 3);
    sample_save(m, 2, 3);
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
    sample_expect_loaded(m, 2);
}

/* Its vectors are of no use, the model is. */
static void test_checkpoint_of_another_optimizer_resets_state(void **state)
{
    struct sample *m = *state;
    sample_save(m, 1, 3);
    m->optim.state_name[1] = "third";
    sample_expect_loaded(m, 1);
    assert_false(m->layout.has_state);
}

static void test_checkpoint_checks_space_before_writing(void **state)
{
    struct sample *m = *state;
    struct faulty_disk faulty;
    struct err err = {0};
    sample_save(m, 1, 3);
    faulty_init(&faulty);
    faulty.space = 500;
    assert_int_equal(sample_save_to(m, &faulty.disk, 2, 3, &err), ERR_FULL);
    assert_non_null(strstr(err.text, "500 bytes are left"));
    assert_null(strstr(faulty.reported, "open"));
    assert_null(strstr(faulty.reported, "remove"));
    sample_expect_loaded(m, 1);
}

/* Whatever call fails, alone or with all that follow: there is a whole checkpoint, and the next one
 * can be written. */
static void test_checkpoint_survives_each_disk_failure(void **state)
{
    struct sample *m = *state;
    for (int for_good = 0; for_good < 2; for_good++) {
        int calls = 0;
        for (int n = 1; n == 1 || n <= calls; n++) {
            struct faulty_disk faulty;
            struct err err = {0};
            sample_save(m, 1, 1); /* removes the others, too */
            faulty_init(&faulty);
            assert_int_equal(sample_save_to(m, &faulty.disk, 2, 1, &err), OK);
            calls = faulty.calls;
            sample_save(m, 1, 1);
            faulty_init(&faulty);
            faulty.fail_at = n;
            faulty.for_good = for_good;
            int rc = sample_save_to(m, &faulty.disk, 2, 1, &err);
            bool there = rc == OK || strstr(faulty.reported, "rename sync_dir");
            sample_expect_loaded(m, there ? 2 : 1);
            assert_true(rc == OK || (rc == ERR_IO && err.text[0]));
            sample_save(m, 3, 1);
            sample_expect_loaded(m, 3);
        }
        assert_true(calls >= 9);
    }
}

/* A model alone has no optimizer state, and replaces the one before. */
static void test_checkpoint_model_alone_has_no_state(void **state)
{
    struct sample *m = *state;
    float model[SAMPLE_ROOM];
    struct err err = {0};
    struct checkpoint_header header = sample_header_of(4);
    static uint8_t bytes[FOLDER_BYTES_MAX];
    sample_fill(m, 4, model);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            checkpoint_save_model(&m->dir, "best.safetensors", &header, &m->layout, model, &err),
            OK);
    size_t n = folder_get(&m->folder, "best.safetensors", bytes);
    struct safetensors st;
    assert_int_equal(safetensors_parse("best", bytes, n, true, &st, &err), OK);
    assert_int_equal(st.n, 3);
    assert_non_null(safetensors_find(&st, "joint/conv.0", NULL));
    assert_non_null(safetensors_find(&st, "s/norm.0", NULL));
    assert_null(safetensors_find(&st, "first/conv.0", NULL));
    safetensors_release(&st);
}

/* ---- of several drivers ---- */

static int save_as(const struct sample *m, struct disk *disk, uint64_t n, uint32_t incarnation,
                   struct err *err)
{
    float model[SAMPLE_ROOM];
    uint64_t bytes;
    struct rundir dir = m->dir;
    struct checkpoint_header header = sample_header_of(n);
    dir.disk = disk;
    header.incarnation = incarnation;
    sample_fill(m, n, model);
    return checkpoint_save(&dir, &header, &m->layout, model, 1, &bytes, err);
}

/* A driver that was stopped for a while, and does not know yet that another one has the run. */
static void test_checkpoint_keeps_those_of_a_later_driver(void **state)
{
    struct sample *m = *state;
    struct err err = {0};
    assert_int_equal(save_as(m, real_disk(), 5, 1, &err), OK);
    assert_int_equal(save_as(m, real_disk(), 9, 2, &err), OK);
    assert_int_equal(save_as(m, real_disk(), 7, 1, &err), ERR_FENCED);
    assert_non_null(strstr(err.text, "00000009.safetensors"));
    assert_true(folder_has(&m->folder, "checkpoint/00000009.safetensors"));
    assert_int_equal(save_as(m, real_disk(), 10, 1, &err), OK); /* the 7 is its own, the 9 not */
    assert_false(folder_has(&m->folder, "checkpoint/00000007.safetensors"));
    assert_true(folder_has(&m->folder, "checkpoint/00000009.safetensors"));
    assert_int_equal(save_as(m, real_disk(), 8, 3, &err), OK); /* the newest driver removes all */
    assert_false(folder_has(&m->folder, "checkpoint/00000010.safetensors"));
}

static const struct sample *being_taken; /* the run is taken over when its disk syncs */

static int sync_and_take_over(struct disk_file *file, struct err *err)
{
    folder_put(&being_taken->folder, "driver.2", "", 0);
    return real_disk()->ops->sync(file, err);
}

static void test_checkpoint_is_fenced_by_take_over(void **state)
{
    struct sample *m = *state;
    struct err err = {0};
    struct disk_ops ops = *real_disk()->ops;
    struct disk disk = {&ops};
    float model[SAMPLE_ROOM];
    struct checkpoint_header header = sample_header_of(8);
    ops.sync = sync_and_take_over;
    being_taken = m;
    assert_int_equal(save_as(m, real_disk(), 5, 1, &err), OK);
    assert_int_equal(save_as(m, &disk, 7, 1, &err), ERR_FENCED);
    assert_non_null(strstr(err.text, "a later driver has taken this run over"));
    assert_true(folder_has(&m->folder, "checkpoint/00000005.safetensors"));
    assert_false(folder_has(&m->folder, "checkpoint/00000007.safetensors"));
    assert_false(folder_has(&m->folder, "checkpoint/00000007.safetensors" DISK_UNFINISHED));
    assert_false(checkpoint_remove_oldest(&m->dir, 1));
    header.incarnation = 1;
    sample_fill(m, 8, model);
    assert_int_equal(
        checkpoint_save_model(&m->dir, "final.safetensors", &header, &m->layout, model, &err),
        ERR_FENCED);
    assert_false(folder_has(&m->folder, "final.safetensors"));
}

/* ---- a model elsewhere ---- */

static size_t count_matches(const char *text, const char *word)
{
    size_t n = 0;
    for (; (text = strstr(text, word)); text += strlen(word))
        n++;
    return n;
}

/* With copies of earlier runs in the folder; and a disk that cannot be written is tried once. */
static void test_checkpoint_copy_takes_the_next_name(void **state)
{
    struct sample *m = *state;
    struct faulty_disk faulty;
    struct err err = {0};
    float model[SAMPLE_ROOM];
    char path[512], want[512];
    struct checkpoint_header header = sample_header_of(4);
    sample_fill(m, 4, model);
    folder_put(&m->folder, "net-final-001.safetensors", "mine", 4);
    folder_put(&m->folder, "net-final-007.safetensors", "mine", 4);
    assert_int_equal(checkpoint_save_copy(real_disk(), m->folder.path, "net-final", &header,
                                          &m->layout, model, path, sizeof path, &err),
                     OK);
    snprintf(want, sizeof want, "%s/net-final-008.safetensors", m->folder.path);
    assert_string_equal(path, want);
    assert_int_equal(checkpoint_read_header(path, &header, &err), OK);
    assert_int_equal(header.progress.exchanges, 4);
    faulty_init(&faulty);
    faulty.fail_at = 4; /* free_space, list, open, write */
    assert_int_equal(checkpoint_save_copy(&faulty.disk, m->folder.path, "net-final", &header,
                                          &m->layout, model, path, sizeof path, &err),
                     ERR_IO);
    assert_int_equal(count_matches(faulty.reported, "open"), 1);
    assert_false(folder_has(&m->folder, "net-final-009.safetensors"));
}

/* Reading a header costs the header alone: the tensors may be damaged, but not missing. */
static void test_checkpoint_header_is_read_alone(void **state)
{
    struct sample *m = *state;
    static uint8_t bytes[FOLDER_BYTES_MAX];
    struct checkpoint_header header;
    struct err err = {0};
    char path[512];
    sample_save(m, 7, 3);
    checkpoint_path_of(&m->dir, 7, path, sizeof path);
    size_t n = folder_get(&m->folder, "checkpoint/00000007.safetensors", bytes);
    bytes[n - 1] ^= 1;
    folder_put(&m->folder, "checkpoint/00000007.safetensors", bytes, n);
    assert_int_equal(checkpoint_read_header(path, &header, &err), OK);
    assert_true(header.progress.sample_offset == 7 * 64 && header.incarnation == UINT32_MAX &&
                !header.books.leases);
    assert_true(
        checkpoint_model_is_of(&m->dir, "checkpoint/00000007.safetensors", &header.progress));
    header.progress.steps++;
    assert_false(
        checkpoint_model_is_of(&m->dir, "checkpoint/00000007.safetensors", &header.progress));
    for (size_t len = 0; len < n; len += len < 300 ? 1 : 97) {
        folder_put(&m->folder, "checkpoint/00000007.safetensors", bytes, len);
        assert_int_equal(checkpoint_read_header(path, &header, &err), ERR_INPUT);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, sample_setup, sample_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_checkpoint_round_trips),
        TEST(test_checkpoint_keeps_strategy_vectors),
        TEST(test_checkpoint_keeps_carried_state),
        TEST(test_checkpoint_of_other_streams_is_refused),
        TEST(test_checkpoint_bytes_are_deterministic),
        TEST(test_checkpoint_is_written_from_a_source),
        TEST(test_checkpoint_of_a_lost_source_is_not_kept),
        TEST(test_checkpoint_is_read_by_ranges),
        TEST(test_checkpoint_keeps_the_newest),
        TEST(test_checkpoint_removes_unfinished_file),
        TEST(test_checkpoint_removes_later_progress),
        TEST(test_checkpoint_rejects_changed_byte),
        TEST(test_checkpoint_rejects_changed_length),
        TEST(test_checkpoint_load_without_valid_file),
        TEST(test_checkpoint_of_another_net_is_refused),
        TEST(test_checkpoint_of_another_optimizer_resets_state),
        TEST(test_checkpoint_checks_space_before_writing),
        TEST(test_checkpoint_survives_each_disk_failure),
        TEST(test_checkpoint_model_alone_has_no_state),
        TEST(test_checkpoint_keeps_those_of_a_later_driver),
        TEST(test_checkpoint_is_fenced_by_take_over),
        TEST(test_checkpoint_copy_takes_the_next_name),
        TEST(test_checkpoint_header_is_read_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
