/* Tables: how rows are divided, against what Python's csv module wrote; the kinds of columns; and
 * tables that are wrong. */
#include "data/source_csv.h"

#include "data/csv_columns.h"
#include "data/reading.h"
#include "folder.h"
#include "job/job.h"
#include "job/text.h"

struct table {
    const struct folder *folder;
    struct source *source;
    Paceline__Data *spec;
    struct err err;
    char path[256];
    bool unlabelled;
};

/* Open `bytes` as a table that `fields` describe, with the policy of `bad` (NULL: none). */
static int open_bytes(struct table *t, const char *name, const void *bytes, size_t n,
                      const char *fields, struct bad_records *bad)
{
    char text[1024];
    ProtobufCMessage *message;
    FILE *f = fopen(folder_file(t->folder, name, t->path), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    snprintf(text, sizeof text, "csv { path: '%s' %s %s }", t->path,
             t->unlabelled ? "" : "label: 'label'", fields);
    assert_int_equal(
        text_parse(&paceline__data__descriptor, "data", text, strlen(text), &message, &t->err), OK);
    t->spec = (Paceline__Data *)message;
    t->source = NULL;
    return source_open_with(&(struct source_config){.bad = bad}, t->spec, &t->source, &t->err);
}

static struct table open_table(const struct folder *folder, const char *text, const char *fields)
{
    struct table t = {.folder = folder};
    if (open_bytes(&t, "t.csv", text, strlen(text), fields, NULL) != OK)
        fail_msg("%s", t.err.text);
    return t;
}

static void close_table(struct table *t)
{
    source_close(t->source);
    protobuf_c_message_free_unpacked(&t->spec->base, NULL);
}

static void expect_record(const struct table *t, size_t i, const float *want, uint32_t label)
{
    float x[64];
    uint32_t is;
    assert_in_range(t->source->shape.dim[0], 1, 64);
    read_raw(t->source, i, x, &is);
    assert_int_equal(is, label);
    for (size_t k = 0; k < t->source->shape.dim[0]; k++)
        if (x[k] != want[k])
            fail_msg("record %zu, input %zu is %g and not %g", i, k, (double)x[k], (double)want[k]);
}

static const Paceline__Data__Column *column_of(const struct table *t, const char *name)
{
    const Paceline__Data__Csv *csv = source_csv_columns(t->source);
    for (size_t i = 0; i < csv->n_column; i++)
        if (strcmp(csv->column[i]->name, name) == 0)
            return csv->column[i];
    fail_msg("no column %s", name);
    return NULL;
}

/* ---- rows ---- */

/* The same table by csv.writer: as it is; with QUOTE_ALL and line ends of one byte; with tabs. */
static const char *const written[] = {
    "id,text,x,label\r\n"
    "1,plain,1.5,red\r\n"
    "2,\"a,b\",-2,green\r\n"
    "3,\"say \"\"hi\"\"\",3e2,red\r\n"
    "4,\"two\nlines\",0.25,\"blue, dark\"\r\n"
    "5,\"two\r\nlines\",7,green\r\n"
    "6,\"\"\"\",007,red\r\n"
    "7, spaced ,1e-3,red\r\n"
    "8,caf\303\251,+4,green\r\n",
    "\"id\",\"text\",\"x\",\"label\"\n"
    "\"1\",\"plain\",\"1.5\",\"red\"\n"
    "\"2\",\"a,b\",\"-2\",\"green\"\n"
    "\"3\",\"say \"\"hi\"\"\",\"3e2\",\"red\"\n"
    "\"4\",\"two\nlines\",\"0.25\",\"blue, dark\"\n"
    "\"5\",\"two\r\nlines\",\"7\",\"green\"\n"
    "\"6\",\"\"\"\",\"007\",\"red\"\n"
    "\"7\",\" spaced \",\"1e-3\",\"red\"\n"
    "\"8\",\"caf\303\251\",\"+4\",\"green\"\n",
    "id\ttext\tx\tlabel\n"
    "1\tplain\t1.5\tred\n"
    "2\ta,b\t-2\tgreen\n"
    "3\t\"say \"\"hi\"\"\"\t3e2\tred\n"
    "4\t\"two\nlines\"\t0.25\tblue, dark\n"
    "5\t\"two\r\nlines\"\t7\tgreen\n"
    "6\t\"\"\"\"\t007\tred\n"
    "7\t spaced \t1e-3\tred\n"
    "8\tcaf\303\251\t+4\tgreen\n",
};

/* In the order of bytes. */
static const char *const texts[] = {" spaced ", "\"",         "a,b",        "caf\303\251",
                                    "plain",    "say \"hi\"", "two\nlines", "two\r\nlines"};
static const float numbers[] = {1.5f, -2, 300, 0.25f, 7, 7, 1e-3f, 4};
static const uint32_t place[] = {4, 2, 5, 6, 7, 1, 0, 3}, colors[] = {2, 1, 2, 0, 1, 2, 2, 1};

static void expect_written(const struct table *t)
{
    assert_int_equal(t->source->count, 8);
    assert_int_equal(t->source->classes, 3);
    assert_true(shape_equal(&t->source->shape, &(struct shape){3, {9, 1, 1}}));
    const Paceline__Data__Column *text = column_of(t, "text");
    assert_int_equal(text->n_categories, 8);
    for (size_t i = 0; i < 8; i++)
        assert_string_equal(text->categories[i], texts[i]);
    for (size_t i = 8; i-- > 0;) {
        float want[9] = {0};
        want[place[i]] = 1;
        want[8] = numbers[i];
        expect_record(t, i, want, colors[i]);
    }
}

static void test_rows_as_python_writes_them(void **state)
{
    for (int i = 0; i < 3; i++)
        for (int variant = 0; variant < 3; variant++) { /* as it is; with a BOM; no last line end */
            struct table t = {.folder = *state};
            char bytes[512];
            int n = snprintf(bytes, sizeof bytes, "%s%s", variant == 1 ? "\xef\xbb\xbf" : "",
                             written[i]);
            n -= variant < 2 ? 0 : i == 0 ? 2 : 1;
            if (open_bytes(&t, i == 2 ? "t.tsv" : "t.csv", bytes, (size_t)n, "ignore: 'id'",
                           NULL) != OK)
                fail_msg("%s", t.err.text);
            expect_written(&t);
            close_table(&t);
        }
}

/* Wherever a block of the file ends, rows are the same. */
static void test_rows_in_pieces(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(written[i]);
        for (size_t end = 0; end <= n; end++) {
            char copy[512];
            struct csv_field field[4], again[4];
            struct csv_row row = {.field = field, .room = 4}, whole = {.field = again, .room = 4};
            memcpy(copy, written[i], n);
            bool some = csv_divide(copy, end, false, ',', &row);
            char all[512];
            memcpy(all, written[i], n);
            assert_true(csv_divide(all, n, false, ',', &whole));
            if (!some) {
                assert_memory_equal(copy, written[i], n);
                assert_true(end <= whole.bytes);
                continue;
            }
            assert_int_equal(row.bytes, whole.bytes);
            assert_int_equal(row.fields, 4);
        }
    }
}

static void test_line_ends_and_empty_lines(void **state)
{
    static const char *const same[] = {"a,label\n1,0\n2,1\n", "a,label\r1,0\r2,1",
                                       "\n\na,label\r\n\r\n1,0\r\n\n2,1\n\n\n"};
    for (size_t i = 0; i < 3; i++) {
        struct table t = open_table(*state, same[i], "");
        assert_int_equal(t.source->count, 2);
        expect_record(&t, 0, (float[]){1}, 0);
        expect_record(&t, 1, (float[]){2}, 1);
        close_table(&t);
    }
}

/* ---- numbers ---- */

static void expect_number(const char *text, bool is)
{
    float v = 0;
    char *end;
    if (csv_number((struct csv_field){text, strlen(text)}, &v) != is)
        fail_msg("`%s` is %s", text, is ? "a number" : "no number");
    if (is)
        assert_true(v == (float)strtod(text, &end));
}

static void test_numbers(void **state)
{
    (void)state;
    static const char *const are[] = {"0",
                                      "-0.5",
                                      "+3",
                                      " 12 ",
                                      "1e5",
                                      "1E-3",
                                      ".5",
                                      "5.",
                                      "007",
                                      "00.5",
                                      "123456789012345678901234567890",
                                      "1e-40",
                                      "0.1",
                                      "3.4e38",
                                      "0.30000000000000004",
                                      "-1.00000005960464477539",
                                      "16777217"};
    static const char *const are_not[] = {"",     " ",   "-",    "+-1", "1.2.3", "1f",
                                          "0x10", "nan", "inf",  "1e",  "1,5",   "1 2",
                                          "e5",   ".",   "4e38", "--1", "1-",    "1e+-3"};
    for (size_t i = 0; i < sizeof are / sizeof *are; i++)
        expect_number(are[i], true);
    for (size_t i = 0; i < sizeof are_not / sizeof *are_not; i++)
        expect_number(are_not[i], false);
}

/* ---- columns ---- */

static void test_kinds(void **state)
{
    /* `late` is of numbers until the last row; `n` has a gap */
    static const char text[] = "late,n,label\n1,2,1\n10,,0\n2,6,1\nx,4,0\n";
    struct table t = open_table(*state, text, "missing: -1");
    const Paceline__Data__Column *late = column_of(&t, "late");
    assert_int_equal(late->kind, PACELINE__DATA__COLUMN__KIND__category);
    assert_int_equal(late->n_categories, 4);
    assert_string_equal(late->categories[1], "10");
    assert_int_equal(column_of(&t, "n")->kind, PACELINE__DATA__COLUMN__KIND__number);
    expect_record(&t, 1, (float[]){0, 1, 0, 0, -1}, 0);
    expect_record(&t, 3, (float[]){0, 0, 0, 1, 4}, 0);
    assert_true(source_csv_columns(t.source)->all_listed);
    close_table(&t);
    t = open_table(*state, text,
                   "missing: 0 column { name: 'late' categories: 'x' categories: '2' "
                   "categories: '10' categories: '1' categories: 'other' }");
    expect_record(&t, 3, (float[]){1, 0, 0, 0, 0, 4}, 0);
    expect_record(&t, 0, (float[]){0, 0, 0, 1, 0, 2}, 1);
    close_table(&t);
}

static void test_columns_without_names(void **state)
{
    struct table t = {.folder = *state};
    char text[512];
    ProtobufCMessage *message;
    folder_put(*state, "n.csv", "1;a;0\n2;b;1\n", 12);
    snprintf(text, sizeof text, "csv { path: '%s' label: '3' header: false delimiter: ';' }",
             folder_file(*state, "n.csv", t.path));
    assert_int_equal(
        text_parse(&paceline__data__descriptor, "d", text, strlen(text), &message, &t.err), OK);
    t.spec = (Paceline__Data *)message;
    if (source_open(t.spec, SOURCE_TRAIN, &t.source, &t.err) != OK)
        fail_msg("%s", t.err.text);
    expect_record(&t, 0, (float[]){1, 1, 0}, 0);
    expect_record(&t, 1, (float[]){2, 0, 1}, 1);
    close_table(&t);
}

static void test_standardized(void **state)
{
    struct table t =
        open_table(*state, "a,b,label\n2,5,0\n4,5,1\n4,5,0\n4,5,1\n5,5,0\n5,5,1\n7,5,0\n9,5,1\n",
                   "standardize: true");
    assert_true(column_of(&t, "a")->mean == 5 && column_of(&t, "a")->scale == 0.5f);
    expect_record(&t, 0, (float[]){-1.5f, 0}, 0);
    expect_record(&t, 7, (float[]){2, 0}, 1);
    close_table(&t);
}

/* The columns of one table are another's, whose columns are in another order. */
static void test_columns_of_a_run(void **state)
{
    struct table t = open_table(*state, "color,x,label\nred,1,yes\ngreen,2,no\nblue,3,yes\n", "");
    Paceline__Data *spec = (Paceline__Data *)text_copy(&t.spec->base);
    struct source *other;
    struct err err;
    char path[256];
    assert_int_equal(source_settle(t.source, spec, &err), OK);
    assert_int_equal(spec->csv->n_column, 3);
    folder_put(*state, "o.csv", "more,label,x,color\n9,yes,4,green\n", 33);
    free(spec->csv->path);
    spec->csv->path = strdup(folder_file(*state, "o.csv", path));
    if (source_open(spec, SOURCE_TEST, &other, &err) != OK)
        fail_msg("%s", err.text);
    struct table o = {.source = other};
    assert_int_equal(other->classes, 2);
    expect_record(&o, 0, (float[]){0, 1, 0, 4}, 1);
    source_close(other);
    folder_put(*state, "o.csv", "label,x,color\nyes,4,pink\n", 25);
    assert_int_equal(source_open(spec, SOURCE_TEST, &other, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "line 2, column 3 (color): `pink` is none of its categories"));
    protobuf_c_message_free_unpacked(&spec->base, NULL);
    close_table(&t);
}

/* ---- what is wrong ---- */

static void expect_refusal(const struct folder *folder, const void *bytes, size_t n,
                           const char *fields, const char *text)
{
    struct table t = {.folder = folder};
    int rc = open_bytes(&t, "t.csv", bytes, n, fields, NULL);
    if (rc != ERR_INPUT || !strstr(t.err.text, text) || !strstr(t.err.text, t.path))
        fail_msg("%d, '%s' does not say '%s'", rc, rc == OK ? "" : t.err.text, text);
    protobuf_c_message_free_unpacked(&t.spec->base, NULL);
}

/* Without a label, `label` is a column as the others. */
static void test_without_a_label(void **state)
{
    struct table t = {.folder = *state, .unlabelled = true};
    const char *text = "a,label\n1,2\n3,4\n";
    if (open_bytes(&t, "t.csv", text, strlen(text), "", NULL) != OK)
        fail_msg("%s", t.err.text);
    assert_int_equal(t.source->classes, 0);
    expect_record(&t, 0, (const float[]){1, 2}, 0);
    expect_record(&t, 1, (const float[]){3, 4}, 0);
    close_table(&t);
}

/* Targets lie behind the inputs, in the order of their names in the job, and as they are. */
static void test_targets(void **state)
{
    struct table t = {.folder = *state, .unlabelled = true};
    const char *text = "w,a,kind,p\n10,1,x,0.5\n20,3,y,-0.5\n";
    if (open_bytes(&t, "t.csv", text, strlen(text), "target: 'p' target: 'w' standardize: true",
                   NULL) != OK)
        fail_msg("%s", t.err.text);
    const struct fields *fields = &t.source->fields;
    assert_int_equal(fields->n, 2);
    assert_string_equal(fields->field[0].name, "data");
    assert_string_equal(fields->field[1].name, "target");
    assert_true(fields->field[0].shape.dim[0] == 3 && fields->field[1].from == 3);
    expect_record(&t, 0, (const float[]){-1, 1, 0, 0.5f, 10}, 0);
    expect_record(&t, 1, (const float[]){1, 0, 1, -0.5f, 20}, 0);
    close_table(&t);
    static const struct {
        const char *fields, *why;
    } bad[] = {{"target: 'kind'", "no number that could be a target is `kind`"},
               {"target: 'q'", "there is no column `q`"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(open_bytes(&t, "t.csv", text, strlen(text), bad[i].fields, NULL),
                         ERR_INPUT);
        if (!strstr(t.err.text, bad[i].why))
            fail_msg("%s", t.err.text);
        protobuf_c_message_free_unpacked(&t.spec->base, NULL);
    }
}

static void test_tables_that_are_wrong(void **state)
{
    static const char *const bad[][3] = {
        {"", "", "is empty"},
        {"\n\r\n", "", "is empty"},
        {"a,label\n", "", "has no row of values"},
        {"a,b\n1,2\n", "", "there is no column `label`; they are a, b"},
        {"a,a,label\n1,2,0\n", "", "there are two columns `a`"},
        {"label\n1\n", "", "there is no column but the label's"},
        {"a;label\n1;0\n", "", "there is no column `label`; they are a;label"},
        {"a,label\n1,0\n1,0,3\n", "", "line 3: 3 fields, and the first row has 2"},
        {"a,label\n1,0\n7\n", "", "line 3: 1 fields"},
        {"a,label\n1,0\n,1\n", "", "line 3, column 1 (a): is empty; `missing: 0` would"},
        {"a,label\n\"x\ny\",0\n1,\n", "", "line 4, column 2 (label): `` is no class"},
        {"a,label\n1,0\nx,1\n", "column { name: 'a' kind: number }",
         "line 3, column 1 (a): `x` is not a number"},
        {"a,label\nx,0\ny,1\n", "column { name: 'a' categories: 'x' }",
         "`y` is none of its categories; repair or remove it"},
        {"a,label\n1,0\n", "column { name: 'b' }", "there is no column `b`"},
        {"a,label\n1,0\n", "ignore: 'b'", "there is no column `b` that could be ignored"},
        {"a,label\n1,0\n", "column { name: 'a' } all_listed: true", "no column `label`"},
        {"a,label\n1,0\n\"x\" y,1\n", "", "line 3: there is text behind a closing quote"},
        {"a,label\n1,0\n\"x,1\n2,0\n", "", "line 3: a quote is opened and not closed"},
        {"a,label\n1,-1\n", "column { name: 'label' kind: number }", "`-1` is no class"},
        {"a,label\nx,0\n", "column { name: 'a' categories: 'x' categories: 'x' }",
         "there are two categories `x`"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(*state, bad[i][0], strlen(bad[i][0]), bad[i][1], bad[i][2]);
    expect_refusal(*state, "a,label\n1,0\n\0,1\n", 16, "", "line 3: a byte of it is zero");
}

/* With a policy for bad records they are left out. */
static void test_rows_that_are_left_out(void **state)
{
    static const char text[] = "a,label\n1,0\n\"x\" y,1\n2\n3,1\nx,0\n";
    struct bad_records *bad = bad_records_create(3);
    struct table t = {.folder = *state};
    if (open_bytes(&t, "t.csv", text, strlen(text), "column { name: 'a' kind: number }", bad) != OK)
        fail_msg("%s", t.err.text);
    assert_int_equal(t.source->count, 2);
    expect_record(&t, 1, (float[]){3}, 1);
    assert_int_equal(bad_records_count(bad), 3);
    assert_non_null(strstr(bad_records_at(bad, 1)->cause, "line 4: 1 fields"));
    close_table(&t);
    bad_records_free(bad);
}

static void test_sizes_that_are_hostile(void **state)
{
    enum { FIELDS = 1000000 };
    size_t n = 0;
    char *bytes = malloc(CSV_ROW_MAX + (1 << 22)), *at = bytes;
    assert_non_null(bytes);
    at += sprintf(at, "a,label\n1,0\n");
    for (int i = 0; i < FIELDS; i++, n++)
        at += sprintf(at, "7,");
    expect_refusal(*state, bytes, (size_t)(at - bytes), "",
                   "line 3: 1000001 fields, and the first row has 2");
    expect_refusal(*state, bytes + 12, (size_t)(at - bytes) - 12, "", "16384 can be read");
    at = bytes + sprintf(bytes, "a,label\n"); /* 1025 categories */
    for (int i = 0; i <= CSV_CATEGORIES_MAX; i++)
        at += sprintf(at, "c%d,0\n", i);
    expect_refusal(*state, bytes, (size_t)(at - bytes), "",
                   "column 1 (a) is no column of numbers (see line 2)");
    at = bytes + sprintf(bytes, "a,label\n1,0\n\"");
    memset(at, 'x', CSV_ROW_MAX + (1 << 21));
    expect_refusal(*state, bytes, CSV_ROW_MAX + (1 << 21), "", "line 3: a row of more than");
    uint32_t noise = 1;
    for (size_t i = 0; i < 1 << 16; i++) {
        noise = noise * 1664525 + 1013904223;
        bytes[i] = (char)(noise >> 24);
    }
    expect_refusal(*state, bytes, 1 << 16, "", "");
    free(bytes);
}

/* A table that is cut anywhere is one with fewer rows, or a bad one: nothing is read beyond it. */
static void test_tables_that_are_cut(void **state)
{
    for (size_t n = 0; n < strlen(written[0]); n++) {
        struct table t = {.folder = *state};
        int rc = open_bytes(&t, "t.csv", written[0], n, "", NULL);
        assert_true(rc == OK ? t.source->count <= 8
                             : rc == ERR_INPUT && strstr(t.err.text, t.path));
        if (rc == OK)
            close_table(&t);
        else
            protobuf_c_message_free_unpacked(&t.spec->base, NULL);
    }
}

static void test_a_file_that_changes(void **state)
{
    struct table t = open_table(*state, "a,label\n12,0\n34,1\n", "");
    struct scratch scratch = {0};
    struct raw raw;
    static const char *const other[] = {"a,label\n12,0\n3", "a,label\n12,0\n34,0\n",
                                        "a,label\n12,0\n3\n,1\n", "a,label\n12,0\nx4,1\n"};
    for (size_t i = 0; i < 4; i++) {
        folder_put(*state, "t.csv", other[i], strlen(other[i]));
        assert_int_equal(t.source->ops->read(t.source, 1, &scratch, &raw, &t.err), ERR_IO);
        assert_non_null(strstr(t.err.text, "record 1 cannot be read; the file has changed"));
    }
    scratch_release(&scratch);
    close_table(&t);
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
        cmocka_unit_test(test_rows_as_python_writes_them),
        cmocka_unit_test(test_rows_in_pieces),
        cmocka_unit_test(test_line_ends_and_empty_lines),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_columns_without_names),
        cmocka_unit_test(test_standardized),
        cmocka_unit_test(test_columns_of_a_run),
        cmocka_unit_test(test_without_a_label),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_tables_that_are_wrong),
        cmocka_unit_test(test_rows_that_are_left_out),
        cmocka_unit_test(test_sizes_that_are_hostile),
        cmocka_unit_test(test_tables_that_are_cut),
        cmocka_unit_test(test_a_file_that_changes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
