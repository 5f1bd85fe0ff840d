/* Opening a job's data, of each kind that a test can make, watched and cancelled at every step. */
#include "learner/corpus.h"

#include "base/file.h"
#include "data/source_pictures.h"
#include "data/stats.h"
#include "job/job.h"
#include "pictures.h"
#include "watching.h"

#include <zlib.h>

enum { SIDE = 4, RECORDS = 3, CIFAR_RECORD = 3073, LARGE = 6 << 20 };

static int setup(void **state)
{
    struct folder *f = calloc(1, sizeof *f);
    assert_non_null(f);
    folder_make(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    folder_remove(*state);
    free(*state);
    return 0;
}

/* ---- data ---- */

static void put_idx(const struct folder *f)
{
    static const uint8_t images[16 + RECORDS * SIDE * SIDE] = {
        0, 0, 8, 3, 0, 0, 0, RECORDS, 0, 0, 0, SIDE, 0, 0, 0, SIDE,
    };
    static const uint8_t labels[8 + RECORDS] = {0, 0, 8, 1, 0, 0, 0, RECORDS, 0, 1, 1};
    char path[256];
    gzFile gz = gzopen(folder_file(f, "images", path), "wb");
    assert_non_null(gz);
    assert_int_equal(gzwrite(gz, images, sizeof images), sizeof images);
    assert_int_equal(gzclose(gz), Z_OK);
    folder_put(f, "labels", labels, sizeof labels);
}

static void put_cifar(const struct folder *f)
{
    static uint8_t bytes[2 * CIFAR_RECORD];
    char name[32];
    for (int b = 1; b <= 5; b++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", b);
        folder_put(f, name, bytes, sizeof bytes);
    }
    folder_put(f, "test_batch.bin", bytes, sizeof bytes);
}

static void put_pictures(const struct folder *f)
{
    static const char *const names[] = {"set/a/1.png", "set/a/2.png", "set/b/1.png"};
    static const char list[] = "set/a/1.png 0\nset/a/2.png 0\nset/b/1.png 1\n";
    static const char *const folders[] = {"set", "set/a", "set/b"};
    uint8_t pixels[SIDE * SIDE] = {0};
    char path[256];
    for (int i = 0; i < 3; i++)
        assert_int_equal(mkdir(folder_file(f, folders[i], path), 0700), 0);
    for (int i = 0; i < 3; i++)
        picture_put_png(f, names[i], pixels, SIDE, SIDE, PNG_COLOR_TYPE_GRAY, 8, SIDE, false);
    folder_put(f, "list", list, sizeof list - 1);
}

/* ---- opening it ---- */

static Paceline__Job *make_job(const struct folder *f, const char *format)
{
    char text[1024], sibling[256];
    struct err err;
    Paceline__Job *job = NULL;
    int n = snprintf(text, sizeof text,
                     "name: 'watched' net { zoo: 'lenet' } solver { base_lr: 0.01 } batch: 1 %s",
                     format);
    assert_in_range(n, 1, sizeof text - 1);
    if (job_parse("job", text, (size_t)n, &job, &err) != OK ||
        job_resolve_paths(job, folder_file(f, "job", sibling), &err) != OK)
        fail_msg("%s", err.text);
    return job;
}

static int open_and_close(void *user, const struct open_watch *watch, struct err *err)
{
    struct corpus corpus;
    int rc = corpus_open(user, watch, &corpus, err);
    if (rc == OK)
        corpus_close(&corpus);
    return rc;
}

static void watch_job(const struct folder *f, const char *format, const char *stages)
{
    Paceline__Job *job = make_job(f, format);
    watching_story(open_and_close, job, stages);
    job_free(job);
}

static void test_idx_is_watched_and_cancelled(void **state)
{
    put_idx(*state);
    watch_job(*state, "train_data { idx { images: 'images' labels: 'labels' } }",
              "bytes bytes bytes hashed ");
}

static void test_cifar_is_watched_and_cancelled(void **state)
{
    put_cifar(*state);
    watch_job(*state, "train_data { cifar10 { path: '.' } } test_data { cifar10 { path: '.' } }",
              "bytes bytes hashed bytes bytes hashed bytes bytes hashed bytes bytes hashed bytes "
              "bytes hashed bytes bytes hashed ");
}

static void test_pictures_are_watched_and_cancelled(void **state)
{
    put_pictures(*state);
    watch_job(*state,
              "train_data { images { list: 'list' color: gray } } "
              "test_data { images { list: 'set' color: gray } }",
              "bytes pictures folders pictures ");
}

static int open_by_paths(void *user, const struct open_watch *watch, struct err *err)
{
    char path[256];
    const char *paths[] = {folder_file(user, "set/a/1.png", path), path};
    struct source *source;
    int rc = source_pictures_open(paths, 2, PACELINE__DATA__COLOR__gray, watch, &source, err);
    if (rc == OK)
        source_close(source);
    return rc;
}

static void test_paths_are_watched_and_cancelled(void **state)
{
    put_pictures(*state);
    watching_story(open_by_paths, *state, "pictures ");
}

/* ---- records that are held out ---- */

static void expect_sets(const Paceline__Job *job, bool worker, size_t train, size_t validation)
{
    const struct source_config config = {.only_training = worker};
    struct corpus corpus;
    struct err err;
    if (corpus_open_with(&config, job, &corpus, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(corpus.set[SET_TRAIN].count, train);
    assert_int_equal(corpus.set[SET_VALIDATION].count, validation);
    corpus_close(&corpus);
}

/* Each node takes its own out, or the driver has them, and workers train on all that they have. */
static void test_validation_is_of_each_node_or_the_drivers(void **state)
{
    put_idx(*state);
    Paceline__Job *job = make_job(*state, "train_data { idx { images: 'images' labels: 'labels' } }"
                                          " local_data: true validation: 1");
    expect_sets(job, false, RECORDS - 1, 1);
    expect_sets(job, true, RECORDS - 1, 1);
    job->driver_validates = true;
    expect_sets(job, false, RECORDS, RECORDS);
    expect_sets(job, true, RECORDS, 0);
    job_free(job);
}

/* ---- and reading all of it ---- */

static int measure_open(void *user, const struct open_watch *watch, struct err *err)
{
    struct stats stats;
    int rc = stats_of(user, 0, watch, &stats, err);
    if (rc == OK)
        stats_release(&stats);
    return rc;
}

static void test_statistics_are_watched_and_cancelled(void **state)
{
    struct corpus corpus;
    put_pictures(*state);
    Paceline__Job *job = make_job(*state, "train_data { images { list: 'set' color: gray } }");
    assert_int_equal(corpus_open(job, NULL, &corpus, NULL), OK);
    watching_story(measure_open, corpus.train_source, "records ");
    corpus_close(&corpus);
    job_free(job);
}

/* A file of some megabytes is reported more than once. */
static void test_a_long_file_is_watched_on_its_way(void **state)
{
    const struct folder *f = *state;
    char path[256];
    struct watching w;
    struct file_bytes bytes;
    uint8_t *data = calloc(1, LARGE);
    assert_non_null(data);
    folder_put(f, "long", data, LARGE);
    free(data);
    watching_begin(&w, 0);
    assert_int_equal(file_read_watched(folder_file(f, "long", path), LARGE, &w.watch, &bytes, NULL),
                     OK);
    assert_true(w.calls >= 3 && w.done == LARGE && w.total == LARGE);
    file_release(&bytes);
}

/* ---- broken records ---- */

enum { SKIPPED = 6 };

/* Six pictures, number i of value i; those whose bit is set in `broken` break off in their body, in
 * `headless` in their head. Every second one is of class b. */
static void put_broken(const struct folder *f, unsigned broken, unsigned headless)
{
    char list[256] = "", name[32], path[256];
    for (unsigned i = 0; i < SKIPPED; i++) {
        uint8_t pixels[SIDE * SIDE];
        memset(pixels, (int)i, sizeof pixels);
        snprintf(name, sizeof name, "%u.png", i);
        picture_put_png(f, name, pixels, SIDE, SIDE, PNG_COLOR_TYPE_GRAY, 8, SIDE, false);
        if ((broken | headless) >> i & 1)
            assert_int_equal(truncate(folder_file(f, name, path), broken >> i & 1 ? 45 : 6), 0);
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s %u\n", name, i % 2);
    }
    folder_put(f, "list", list, strlen(list));
}

static int open_broken(const struct folder *f, const char *more, struct corpus *out,
                       struct err *err)
{
    char text[256];
    snprintf(text, sizeof text, "train_data { images { list: 'list' color: gray } } %s", more);
    Paceline__Job *job = make_job(f, text);
    int rc = job_finish(job, err);
    if (rc == OK)
        rc = corpus_open(job, NULL, out, err);
    job_free(job);
    return rc;
}

/* The value of the picture that is read as record i of a set; -1: none. */
static int read_value(const struct dataset *set, size_t i, struct err *err)
{
    struct scratch scratch = {0};
    float x[SIDE * SIDE];
    uint32_t label;
    uint64_t record;
    int rc = dataset_read(set, i, NULL, &scratch, x, &label, &record, err);
    scratch_release(&scratch);
    if (rc != OK)
        return -1;
    assert_int_equal(label, (unsigned)x[0] % 2);
    return (int)x[0];
}

static void test_a_broken_record_stops_by_default(void **state)
{
    struct corpus corpus;
    struct err err;
    put_broken(*state, 1u << 2, 0);
    assert_int_equal(open_broken(*state, "", &corpus, &err), OK);
    assert_int_equal(read_value(&corpus.set[SET_TRAIN], 2, &err), -1);
    assert_int_equal(err.status, ERR_INPUT);
    assert_non_null(strstr(err.text, "2.png"));
    corpus_close(&corpus);
}

/* In whatever order records are read, the same ones stand in, behind the last one the first; each
 * broken one is counted once. */
static void test_skipped_records_have_the_same_stand_ins(void **state)
{
    static const int expected[SKIPPED] = {0, 1, 4, 4, 4, 0};
    struct corpus forth, back;
    struct err err;
    put_broken(*state, 1u << 2 | 1u << 3 | 1u << 5, 0);
    assert_int_equal(open_broken(*state, "on_bad_record: skip", &forth, &err), OK);
    assert_int_equal(open_broken(*state, "on_bad_record: skip", &back, &err), OK);
    assert_int_equal(forth.hash, back.hash);
    for (size_t round = 0; round < 2; round++)
        for (size_t i = 0; i < SKIPPED; i++) {
            size_t j = SKIPPED - 1 - i;
            assert_int_equal(read_value(&forth.set[SET_TRAIN], i, &err), expected[i]);
            assert_int_equal(read_value(&back.set[SET_TRAIN], j, &err), expected[j]);
        }
    assert_int_equal(bad_records_count(forth.bad), 3);
    assert_int_equal(bad_records_count(back.bad), 3);
    assert_int_equal(bad_records_at(forth.bad, 0)->record, 2);
    assert_non_null(strstr(bad_records_at(forth.bad, 0)->cause, "2.png"));
    corpus_close(&forth);
    corpus_close(&back);
}

/* The held-out records stay separate: a stand-in comes from the same set. */
static void test_stand_ins_stay_in_their_set(void **state)
{
    struct corpus corpus;
    struct err err;
    put_broken(*state, 1u << 1 | 1u << 2, 0);
    assert_int_equal(open_broken(*state, "on_bad_record: skip validation: 2", &corpus, &err), OK);
    for (int which = SET_TRAIN; which <= SET_VALIDATION; which++) {
        const struct dataset *set = &corpus.set[which];
        for (size_t i = 0; i < set->count; i++) {
            int value = read_value(set, i, &err);
            bool own = value < 0; /* a set of broken ones alone has none */
            for (size_t k = 0; k < set->count; k++)
                own = own || set->choice[k] == (uint32_t)value;
            assert_true(own);
        }
    }
    corpus_close(&corpus);
}

static void test_a_broken_head_is_left_out(void **state)
{
    struct corpus corpus;
    struct err err;
    put_broken(*state, 0, 1u << 1);
    assert_int_equal(open_broken(*state, "", &corpus, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "1.png"));
    assert_int_equal(open_broken(*state, "on_bad_record: skip", &corpus, &err), OK);
    assert_int_equal(corpus.set[SET_TRAIN].count, SKIPPED - 1);
    assert_int_equal(read_value(&corpus.set[SET_TRAIN], 1, &err), 2);
    assert_int_equal(bad_records_count(corpus.bad), 1);
    assert_true(bad_records_at(corpus.bad, 0)->record & BAD_AT_OPENING);
    corpus_close(&corpus);
    put_broken(*state, 0, (1u << SKIPPED) - 1);
    assert_int_equal(open_broken(*state, "on_bad_record: skip", &corpus, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "none of its 6 records can be read; the last: "));
}

static void test_more_broken_records_than_allowed_are_refused(void **state)
{
    struct corpus corpus;
    struct err err;
    put_broken(*state, 1u << 2 | 1u << 4, 1u);
    assert_int_equal(open_broken(*state, "on_bad_record: skip bad_records_max: 2", &corpus, &err),
                     OK);
    assert_int_equal(read_value(&corpus.set[SET_TRAIN], 1, &err), 3); /* 0 is left out */
    assert_int_equal(read_value(&corpus.set[SET_TRAIN], 3, &err), -1);
    assert_int_equal(err.status, ERR_INPUT);
    assert_non_null(strstr(err.text, "3 broken records, more than bad_records_max: 2; first: "));
    assert_non_null(strstr(err.text, "0.png"));
    assert_non_null(strstr(err.text, "paceline data verify"));
    corpus_close(&corpus);
    assert_int_equal(open_broken(*state, "on_bad_record: skip bad_records_max: 0", &corpus, &err),
                     ERR_INPUT);
}

/* A deleted file is an error of this machine, and not of the data: no record replaces it. */
static void test_a_missing_file_is_not_skipped(void **state)
{
    struct corpus corpus;
    struct err err;
    char path[256];
    put_broken(*state, 0, 0);
    assert_int_equal(open_broken(*state, "on_bad_record: skip", &corpus, &err), OK);
    assert_int_equal(unlink(folder_file(*state, "3.png", path)), 0);
    assert_int_equal(read_value(&corpus.set[SET_TRAIN], 3, &err), -1);
    assert_int_equal(err.status, ERR_IO);
    assert_int_equal(bad_records_count(corpus.bad), 0);
    corpus_close(&corpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_idx_is_watched_and_cancelled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cifar_is_watched_and_cancelled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pictures_are_watched_and_cancelled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_paths_are_watched_and_cancelled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_validation_is_of_each_node_or_the_drivers, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_statistics_are_watched_and_cancelled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_long_file_is_watched_on_its_way, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_broken_record_stops_by_default, setup, teardown),
        cmocka_unit_test_setup_teardown(test_skipped_records_have_the_same_stand_ins, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_stand_ins_stay_in_their_set, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_broken_head_is_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(test_more_broken_records_than_allowed_are_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_missing_file_is_not_skipped, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
