/* Text: windows and their targets by hand, characters of every length, vocabularies, and text that
 * is wrong. */
#include "data/source_text.h"

#include "data/reading.h"
#include "data/vocabulary.h"
#include "folder.h"
#include "job/job.h"
#include "job/text.h"

struct text {
    const struct folder *folder;
    struct source *source;
    Paceline__Data *spec;
    struct err err;
};

static int open_with(struct text *t, const char *name, const void *bytes, size_t n,
                     const char *fields, const struct source_config *config)
{
    char text[1024], path[256];
    ProtobufCMessage *message;
    folder_put(t->folder, name, bytes, n);
    snprintf(text, sizeof text, "text { path: '%s' %s }", folder_file(t->folder, name, path),
             fields);
    assert_int_equal(
        text_parse(&paceline__data__descriptor, "data", text, strlen(text), &message, &t->err), OK);
    t->spec = (Paceline__Data *)message;
    t->source = NULL;
    int rc = job_check_data(t->spec, "data", &t->err);
    return rc == OK ? source_open_with(config, t->spec, &t->source, &t->err) : rc;
}

static const struct source_config plain;

static struct text open_text(const struct folder *folder, const char *bytes, const char *fields)
{
    struct text t = {.folder = folder};
    if (open_with(&t, "t.txt", bytes, strlen(bytes), fields, &plain) != OK)
        fail_msg("%s", t.err.text);
    return t;
}

static void close_text(struct text *t)
{
    source_close(t->source);
    protobuf_c_message_free_unpacked(&t->spec->base, NULL);
}

/* The inputs of record i, and the unit behind the last one: targets are the inputs, one later. */
static void expect_window(const struct text *t, size_t i, const int *units)
{
    const struct fields *fields = &t->source->fields;
    size_t window = fields->field[0].shape.dim[0];
    float x[256];
    uint32_t label;
    assert_in_range(window, 1, 128);
    read_raw(t->source, i, x, &label);
    assert_int_equal(label, 0);
    for (size_t k = 0; k < window; k++)
        if (x[k] != (float)units[k] || x[window + k] != (float)units[k + 1])
            fail_msg("record %zu, place %zu is %g, %g and not %d, %d", i, k, (double)x[k],
                     (double)x[window + k], units[k], units[k + 1]);
}

/* ---- windows ---- */

static void test_windows_of_bytes(void **state)
{
    struct text t = open_text(*state, "a\r\n\xff\x01z!", "window: 2");
    const struct fields *fields = &t.source->fields;
    assert_int_equal(t.source->count, 3);
    assert_int_equal(t.source->classes, 0);
    assert_int_equal(fields->n, 2);
    assert_string_equal(fields->field[0].name, "data");
    assert_string_equal(fields->field[1].name, "target");
    assert_true(fields->field[0].shape.n == 1 && fields->field[1].shape.n == 1);
    assert_true(fields->field[0].is_integer && fields->field[1].is_integer);
    assert_int_equal(fields->field[1].from, 2);
    expect_window(&t, 0, (const int[]){'a', '\r', '\n'});
    expect_window(&t, 1, (const int[]){'\n', 255, 1});
    expect_window(&t, 2, (const int[]){1, 'z', '!'});
    close_text(&t);
}

/* Windows overlap, or leave units out; the last one has a unit behind it. */
static void test_strides(void **state)
{
    static const struct {
        const char *fields;
        size_t count;
        int last; /* unit of the last record */
    } cases[] = {{"window: 3 stride: 1", 7, 6}, {"window: 3 stride: 2", 4, 6},
                 {"window: 3 stride: 4", 2, 4}, {"window: 9", 1, 0},
                 {"window: 1", 9, 8},           {"window: 4 stride: 100", 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text t = open_text(*state, "0123456789", cases[i].fields);
        int units[10];
        for (int k = 0; k < 10; k++)
            units[k] = '0' + cases[i].last + k;
        assert_int_equal(t.source->count, cases[i].count);
        expect_window(&t, cases[i].count - 1, units);
        close_text(&t);
    }
}

static void test_a_window_by_default(void **state)
{
    char bytes[2 * TEXT_WINDOW + 2];
    memset(bytes, 'x', sizeof bytes - 1);
    bytes[sizeof bytes - 1] = '\0';
    struct text t = open_text(*state, bytes, "");
    assert_int_equal(t.source->count, 2);
    assert_int_equal(t.source->shape.dim[0], 2 * TEXT_WINDOW);
    close_text(&t);
}

/* ---- characters ---- */

/* LF, CR, a, e with an acute accent, the euro sign, a clef: 1 to 4 bytes. */
static const char mixed[] = "\xe2\x82\xac"
                            "a\r\n"
                            "\xf0\x9d\x84\x9e"
                            "a"
                            "\xc3\xa9"
                            "\xe2\x82\xac";
static const char mixed_vocabulary[] = "\n\ra"
                                       "\xc3\xa9"
                                       "\xe2\x82\xac"
                                       "\xf0\x9d\x84\x9e";

static void test_windows_of_characters(void **state)
{
    struct text t = open_text(*state, mixed, "unit: character window: 3 stride: 2");
    assert_string_equal(source_text_settled(t.source)->vocabulary, mixed_vocabulary);
    assert_int_equal(t.source->count, 3);
    expect_window(&t, 0, (const int[]){4, 2, 1, 0});
    expect_window(&t, 1, (const int[]){1, 0, 5, 2});
    expect_window(&t, 2, (const int[]){5, 2, 3, 4});
    close_text(&t);
}

static uint32_t code_at(size_t i)
{
    static const uint32_t code[] = {'b', 0x10348, 'a', 0xfeff, 0xdf};
    return code[i % 6 % 5];
}

/* Records on both sides of places in the index and of a block, whose border divides a character. */
static void test_long_texts(void **state)
{
    enum { CHARACTERS = 800000, WINDOW = 100, STRIDE = 37 };
    static const int ids[] = {1, 4, 0, 3, 2};
    static uint8_t bytes[CHARACTERS * UTF8_BYTES_MAX];
    size_t n = 0;
    for (size_t i = 0; i < CHARACTERS; i++)
        n += utf8_put(code_at(i), bytes + n);
    struct text t = {.folder = *state};
    if (open_with(&t, "t.txt", bytes, n, "unit: character window: 100 stride: 37", &plain) != OK)
        fail_msg("%s", t.err.text);
    assert_int_equal(t.source->count, (CHARACTERS - WINDOW - 1) / STRIDE + 1);
    for (size_t i = 0; i < t.source->count; i += i + 200 < t.source->count ? 13 : 1) {
        int units[WINDOW + 1];
        for (size_t k = 0; k <= WINDOW; k++)
            units[k] = ids[(i * STRIDE + k) % 6 % 5];
        expect_window(&t, i, units);
    }
    close_text(&t);
}

/* ---- vocabularies ---- */

/* The training data's is the test data's, by way of the job; so are unit and window. */
static void test_the_vocabulary_of_a_run(void **state)
{
    struct text t = open_text(*state, "banana cd", "unit: character window: 2");
    struct text o = {.folder = *state};
    struct err err;
    assert_int_equal(open_with(&o, "o.txt", "dab", 3, "", &plain), ERR_INPUT); /* 64 bytes */
    assert_int_equal(source_settle(t.source, o.spec, &err), OK);
    assert_string_equal(o.spec->text->vocabulary, " abcdn");
    if (source_open(o.spec, SOURCE_TEST, &o.source, &err) != OK)
        fail_msg("%s", err.text);
    expect_window(&o, 0, (const int[]){4, 1, 2});
    /* ... and from job to job, and what is given stays */
    Paceline__Job from = PACELINE__JOB__INIT, to = PACELINE__JOB__INIT;
    from.train_data = o.spec;
    to.train_data = (Paceline__Data *)text_copy(&t.spec->base);
    to.test_data = (Paceline__Data *)text_copy(&t.spec->base);
    to.test_data->text->window = 1;
    assert_int_equal(job_settle(&to, from.train_data, &err), OK);
    assert_string_equal(to.train_data->text->vocabulary, " abcdn");
    assert_string_equal(to.test_data->text->vocabulary, " abcdn");
    assert_int_equal(to.test_data->text->window, 1);
    protobuf_c_message_free_unpacked(&to.train_data->base, NULL);
    protobuf_c_message_free_unpacked(&to.test_data->base, NULL);
    close_text(&o);
    close_text(&t);
}

/* Refused when the text is opened, or, where bad records are left out, when its record is read. */
static void test_characters_outside_of_the_vocabulary(void **state)
{
    static const char bytes[] = "aab\xe2\x82\xac"
                                "aab";
    static const char why[] = "t.txt: byte 3: character U+20AC is none of the 2 in the vocabulary";
    static const char fields[] = "unit: character vocabulary: 'ab' window: 1 stride: 3";
    struct text t = {.folder = *state};
    struct bad_records *bad = bad_records_create(1);
    const struct source_config leaves = {.bad = bad};
    struct scratch scratch = {0};
    struct raw raw;
    assert_int_equal(open_with(&t, "t.txt", bytes, strlen(bytes), fields, &plain), ERR_INPUT);
    if (!strstr(t.err.text, why) || !strstr(t.err.text, "on_bad_record=skip"))
        fail_msg("%s", t.err.text);
    protobuf_c_message_free_unpacked(&t.spec->base, NULL);
    if (open_with(&t, "t.txt", bytes, strlen(bytes), fields, &leaves) != OK)
        fail_msg("%s", t.err.text);
    assert_int_equal(t.source->count, 2);
    expect_window(&t, 0, (const int[]){0, 0});
    assert_int_equal(t.source->ops->read(t.source, 1, &scratch, &raw, &t.err), ERR_INPUT);
    assert_non_null(strstr(t.err.text, why));
    scratch_release(&scratch);
    bad_records_free(bad);
    close_text(&t);
}

/* The hash is of the text, and of how it is divided and numbered. */
static void test_hashes(void **state)
{
    static const char *const other[] = {
        "unit: character window: 3",
        "unit: character window: 2 stride: 1",
        "unit: character window: 2 vocabulary: 'abc'",
        "window: 2",
    };
    struct text t = open_text(*state, "abab", "unit: character window: 2");
    struct text u = open_text(*state, "abab", "unit: character window: 2 vocabulary: 'ab'");
    assert_int_equal(t.source->hash, u.source->hash);
    close_text(&u);
    u = open_text(*state, "abba", "unit: character window: 2");
    assert_int_not_equal(t.source->hash, u.source->hash);
    close_text(&u);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        u = open_text(*state, "abab", other[i]);
        assert_int_not_equal(t.source->hash, u.source->hash);
        close_text(&u);
    }
    close_text(&t);
}

/* ---- what is wrong ---- */

static void expect_refusal(const struct folder *folder, const char *bytes, size_t n,
                           const char *fields, const char *why)
{
    struct text t = {.folder = folder};
    int rc = open_with(&t, "t.txt", bytes, n, fields, &plain);
    if (rc != ERR_INPUT || !strstr(t.err.text, why))
        fail_msg("%d, '%s' does not say '%s'", rc, rc == OK ? "" : t.err.text, why);
    protobuf_c_message_free_unpacked(&t.spec->base, NULL);
}

static void test_texts_that_are_wrong(void **state)
{
    static const char *const bad[][3] = {
        {"", "", "t.txt: has 0 bytes, and a window of 64 with what follows it takes 65"},
        {"abc", "window: 3", "t.txt: has 3 bytes, and a window of 3"},
        {"\xc3\xa9\xc3\xa9", "unit: character window: 2", "t.txt: has 2 characters"},
        {"ab\x80"
         "c",
         "unit: character window: 1", "t.txt: byte 2 (\\x80) is no character of UTF-8"},
        {"ab\xc3", "unit: character window: 1", "byte 2 (\\xc3) is no"},
        {"\xc3\xa9\xe2\x82", "unit: character window: 1", "byte 2 (\\xe2) is no"},
        {"\xc0\x80"
         "ab",
         "unit: character window: 1", "byte 0 (\\xc0) is no"},
        {"a\xed\xa0\x80", "unit: character window: 1", "byte 1 (\\xed) is no"},
        {"a\xf4\x90\x80\x80", "unit: character window: 1", "byte 1 (\\xf4) is no"},
        {"ab", "window: 0", "data.text.window: must be"},
        {"ab", "window: 65537", "data.text.window: must be"},
        {"ab", "vocabulary: 'ab'", "data.text.vocabulary: is for `unit: character`"},
        {"ab", "unit: character vocabulary: 'ba'", "text.vocabulary: has its characters not in"},
        {"ab", "unit: character vocabulary: 'aa'", "text.vocabulary: has its characters not in"},
        {"ab", "unit: character vocabulary: '\\377'", "text.vocabulary: is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(*state, bad[i][0], strlen(bad[i][0]), bad[i][1], bad[i][2]);
    expect_refusal(*state, "a\0b", 3, "unit: character window: 1", "byte 1 (\\x00) is no");
}

static void test_too_many_characters(void **state)
{
    static uint8_t bytes[(VOCABULARY_MAX + 1) * UTF8_BYTES_MAX];
    size_t n = 0;
    for (uint32_t code = 0x10000; code < 0x10000 + VOCABULARY_MAX; code++)
        n += utf8_put(code, bytes + n);
    struct text t = {.folder = *state};
    if (open_with(&t, "t.txt", bytes, n, "unit: character window: 1", &plain) != OK)
        fail_msg("%s", t.err.text);
    expect_window(&t, VOCABULARY_MAX - 2, (const int[]){VOCABULARY_MAX - 2, VOCABULARY_MAX - 1});
    close_text(&t);
    bytes[n++] = 'a';
    expect_refusal(*state, (const char *)bytes, n, "unit: character window: 1",
                   "t.txt: more than 65536 different characters");
}

static void test_a_file_that_changes(void **state)
{
    static const char *const other[] = {"ab",
                                        "ab\xff"
                                        "def",
                                        "abcd\xc3"};
    for (size_t i = 0; i < 3; i++) {
        struct text t = open_text(*state, "abcdef", "unit: character window: 5");
        struct scratch scratch = {0};
        struct raw raw;
        folder_put(*state, "t.txt", other[i], strlen(other[i]));
        assert_int_equal(t.source->ops->read(t.source, 0, &scratch, &raw, &t.err), ERR_IO);
        assert_non_null(strstr(t.err.text, "; the file has changed"));
        scratch_release(&scratch);
        close_text(&t);
    }
}

static bool cancel_opening(void *user, const char *stage, uint64_t done, uint64_t total)
{
    (void)user;
    assert_string_equal(stage, "bytes");
    assert_true(done == 3 && total == 3);
    return false;
}

static void test_opening_is_cancelled_and_bounded_by_a_root(void **state)
{
    struct text t = {.folder = *state};
    const struct open_watch watch = {.progress = cancel_opening};
    const struct source_config watched = {.watch = &watch}, rooted = {.root = "/usr"};
    assert_int_equal(open_with(&t, "t.txt", "abc", 3, "window: 1", &watched), ERR_CANCELLED);
    assert_int_equal(source_open_with(&rooted, t.spec, &t.source, &t.err), ERR_INPUT);
    protobuf_c_message_free_unpacked(&t.spec->base, NULL);
}

static int setup(void **state)
{
    static struct folder folder;
    folder_make(&folder);
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
        cmocka_unit_test(test_windows_of_bytes),
        cmocka_unit_test(test_strides),
        cmocka_unit_test(test_a_window_by_default),
        cmocka_unit_test(test_windows_of_characters),
        cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_the_vocabulary_of_a_run),
        cmocka_unit_test(test_characters_outside_of_the_vocabulary),
        cmocka_unit_test(test_hashes),
        cmocka_unit_test(test_texts_that_are_wrong),
        cmocka_unit_test(test_too_many_characters),
        cmocka_unit_test(test_a_file_that_changes),
        cmocka_unit_test(test_opening_is_cancelled_and_bounded_by_a_root),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
