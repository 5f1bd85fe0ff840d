/* Archives byte by byte, whole and broken. */
#include "data/tar_file.h"

#include "tar_archive.h"

struct fixture {
    struct folder folder;
    struct archive archive;
    struct file_open file;
    struct tar tar;
    struct err err;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    folder_make(&f->folder);
    f->file.fd = -1;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    file_close(&f->file);
    folder_remove(&f->folder);
    free(f);
    return 0;
}

/* The first `n` bytes of the archive as a file, from its begin. */
static void open_begin(struct fixture *f, size_t n)
{
    char path[256];
    folder_put(&f->folder, "a.tar", f->archive.bytes, n);
    file_close(&f->file);
    assert_int_equal(file_open(folder_file(&f->folder, "a.tar", path), &f->file, &f->err), OK);
    f->tar = (struct tar){.file = &f->file, .path = "a.tar"};
    f->err = (struct err){0};
}

static void open_archive(struct fixture *f)
{
    archive_end(&f->archive);
    open_begin(f, f->archive.n);
}

/* The next member has that name and that body; NULL: there is none. */
static void expect_member(struct fixture *f, const char *name, const char *body)
{
    struct tar_member member;
    if (tar_next(&f->tar, &member, &f->err) != OK)
        fail_msg("%s", f->err.text);
    if (!name) {
        assert_null(member.name);
        return;
    }
    assert_string_equal(member.name, name);
    assert_int_equal(member.size, strlen(body));
    const uint8_t *bytes = tar_bytes(&f->tar, member.body, (size_t)member.size, &f->err);
    assert_non_null(bytes);
    assert_memory_equal(bytes, body, strlen(body));
}

static void expect_failure(struct fixture *f, const char *why)
{
    struct tar_member member;
    assert_int_equal(tar_next(&f->tar, &member, &f->err), ERR_INPUT);
    if (!strstr(f->err.text, why) || strncmp(f->err.text, "a.tar: ", 7) != 0)
        fail_msg("\"%s\" should say \"%s\"", f->err.text, why);
}

static void test_members_that_are_no_files_are_left_out(void **state)
{
    struct fixture *f = *state;
    struct archive *a = &f->archive;
    archive_put(a, "pax_global_header", 'g', "11 comment=", 11);
    archive_put(a, "dogs/", '5', "", 0);
    archive_text(a, "dogs/rex", "one");
    archive_header(a, "dogs/hard", '1', 4096); /* no body, whatever its size */
    archive_header(a, "dogs/soft", '2', 0);
    archive_header(a, "dogs/pipe", '6', 0);
    archive_put(a, "volume", 'V', "", 0);
    archive_put(a, "another", 'Z', "unknown", 7);
    archive_put(a, "old", '\0', "two", 3);
    archive_text(a, "empty", "");
    archive_put(a, "contiguous", '7', "three", 5);
    open_archive(f);
    expect_member(f, "dogs/rex", "one");
    expect_member(f, "old", "two");
    expect_member(f, "empty", "");
    expect_member(f, "contiguous", "three");
    expect_member(f, NULL, NULL);
    expect_member(f, NULL, NULL);
}

static void test_long_names(void **state)
{
    struct fixture *f = *state;
    struct archive *a = &f->archive;
    char text[160], name[101], line[256];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    memset(name, 'n', 100);
    name[100] = '\0';
    archive_text(a, name, "full"); /* no zero ends it */
    uint8_t *header = archive_text(a, "rex", "divided");
    memcpy(header + 345, "a/long/prefix", 13);
    archive_seal(header);
    header = archive_text(a, "rex", "GNU's"); /* has times where the prefix would be */
    memcpy(header + 257, "ustar  ", 8);
    memcpy(header + 345, "14000000000", 11);
    archive_seal(header);
    archive_put(a, "././@LongLink", 'L', text, sizeof text);
    archive_put(a, "././@LongLink", 'K', "target", 7);
    archive_text(a, "xxx", "long");
    archive_text(a, "short", "again");
    snprintf(line, sizeof line, "%d path=%s\n", 10 + 159, text);
    archive_put(a, "PaxHeaders/x", 'x', line, strlen(line));
    archive_put(a, "././@LongLink", 'L', "other", 6); /* pax's counts */
    archive_text(a, "xxx", "pax");
    archive_put(a, "PaxHeaders/x", 'x', line, strlen(line));
    archive_put(a, "dir/", '5', "", 0); /* whose name it is */
    archive_text(a, "last", "");
    open_archive(f);
    expect_member(f, name, "full");
    expect_member(f, "a/long/prefix/rex", "divided");
    expect_member(f, "rex", "GNU's");
    expect_member(f, text, "long");
    expect_member(f, "short", "again");
    expect_member(f, text, "pax");
    expect_member(f, "last", "");
    expect_member(f, NULL, NULL);
}

static void test_sizes_of_every_form(void **state)
{
    struct fixture *f = *state;
    struct archive *a = &f->archive;
    uint8_t *header = archive_text(a, "base256", "twelve bytes");
    memset(header + 124, 0, 12);
    header[124] = 0x80;
    header[135] = 12;
    archive_seal(header);
    header = archive_text(a, "spaces", "eight...");
    memcpy(header + 124, "         10 ", 12);
    archive_seal(header);
    header = archive_text(a, "nothing", "");
    memset(header + 124, 0, 12);
    archive_seal(header);
    archive_put(a, "x", 'x', "9 size=5\n", 9);
    header = archive_text(a, "pax", "fives");
    memcpy(header + 124, "00000000000", 11);
    archive_seal(header);
    open_archive(f);
    expect_member(f, "base256", "twelve bytes");
    expect_member(f, "spaces", "eight...");
    expect_member(f, "nothing", "");
    expect_member(f, "pax", "fives");
    expect_member(f, NULL, NULL);
}

/* Where the file ends early, that is found: at each header, in it, and in the bodies. */
static void test_truncation_is_found_everywhere(void **state)
{
    struct fixture *f = *state;
    struct archive *a = &f->archive;
    char body[700];
    memset(body, 'b', sizeof body);
    archive_text(a, "one", "1");
    archive_put(a, "././@LongLink", 'L', "a name", 7);
    archive_put(a, "two", '0', body, sizeof body);
    archive_put(a, "x", 'x', "9 size=5\n", 9);
    archive_text(a, "three", "fives");
    size_t whole = a->n;
    for (size_t n = 0; n < whole + ARCHIVE_BLOCK; n += n % ARCHIVE_BLOCK == 1 ? 255 : 1) {
        struct tar_member member = {.name = ""};
        archive_end(a);
        open_begin(f, n);
        a->n = whole;
        int rc = OK;
        while (rc == OK && member.name)
            rc = tar_next(&f->tar, &member, &f->err);
        if (rc != ERR_INPUT || !strstr(f->err.text, "a.tar: truncated"))
            fail_msg("%zu bytes: \"%s\"", n, f->err.text);
        assert_false(tar_resume(&f->tar));
    }
}

static void test_damaged_headers(void **state)
{
    struct fixture *f = *state;
    struct archive *a = &f->archive;
    archive_text(a, "one", "1");
    uint8_t *header = archive_text(a, "two", "the body is no header");
    header[0] ^= 1;
    archive_text(a, "three", "3");
    header = archive_text(a, "four", "4");
    memset(header + 148, 'x', 8); /* the sum itself */
    archive_end(a);
    open_archive(f);
    expect_member(f, "one", "1");
    expect_failure(f, "byte 1024: a damaged header: its checksum is wrong");
    expect_failure(f, "byte 1024: a damaged header"); /* and there it stays */
    assert_true(tar_resume(&f->tar));
    expect_member(f, "three", "3");
    expect_failure(f, "byte 3072: a damaged header");
    assert_false(tar_resume(&f->tar)); /* nobody knows what was there */
}

static void test_sizes_that_are_wrong(void **state)
{
    struct fixture *f = *state;
    static const struct {
        char size[12];
        const char *why;
    } bad[] = {
        {"77777777777", "truncated: the 8589934591 bytes of the member at byte 0"},
        {"777777777777", "truncated: the 68719476735 bytes"},
        {"00000002001", "truncated: the 1025 bytes"},
        {"0000000000x", "a size that cannot be read"},
        {"-0000000001", "a size that cannot be read"},
        {"\x80\0\0\0\0\xff\xff\xff\xff\xff\xff\xff", "truncated: the 72057594037927935 bytes"},
        {"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", "a size that cannot be read"},
        {"\x80\0\0\x01\0\0\0\0\0\0\0\0", "a size that cannot be read"},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "a size that cannot be read"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        f->archive.n = 0;
        uint8_t *header = archive_text(&f->archive, "one", "");
        memcpy(header + 124, bad[i].size, 12);
        archive_seal(header);
        open_archive(f);
        expect_failure(f, bad[i].why);
        assert_false(tar_resume(&f->tar));
    }
}

static void test_extended_headers_that_are_wrong(void **state)
{
    struct fixture *f = *state;
    static const struct {
        char type;
        const char *body, *why;
    } bad[] = {
        {'x', "9 size=5", "a pax header whose lines have a wrong length"},
        {'x', "99 size=5\n", "a pax header whose lines have a wrong length"},
        {'x', "1 size=5\n", "a pax header whose lines have a wrong length"},
        {'x', "2 size=5\n", "a pax header whose lines have a wrong length"},
        {'x', "size=5\n", "a pax header whose lines have a wrong length"},
        {'x', "000000009 size=5\n", "a pax header whose lines have a wrong length"},
        {'x', "9 size=x\n", "a pax header with a size that cannot be read"},
        {'x', "8 size=\n", "a pax header with a size that cannot be read"},
        {'x', "28 size=9999999999999999999\n", "a pax header with a size that cannot be read"},
        {'x', "27 size=999999999999999999\n", "truncated: the 999999999999999999 bytes"},
        {'x', "8 path=\n", "a name that is empty, too long, or has a zero byte"},
        {'x', "22 GNU.sparse.major=1\n", "a sparse file; make the archive without --sparse"},
        {'L', "", "a name that is empty, too long, or has a zero byte"},
        {'S', "", "a sparse file; make the archive without --sparse"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        f->archive.n = 0;
        archive_put(&f->archive, "x", bad[i].type, bad[i].body, strlen(bad[i].body));
        archive_text(&f->archive, "one", "fives");
        open_archive(f);
        expect_failure(f, bad[i].why);
    }
    static char text[TAR_WINDOW + 1];
    memset(text, 'x', sizeof text);
    const size_t sizes[] = {TAR_NAME_MAX, TAR_WINDOW + 1};
    for (size_t i = 0; i < 2; i++) {
        f->archive.n = 0;
        archive_put(&f->archive, "x", 'L', text, sizes[i]);
        open_archive(f);
        expect_failure(f, i == 0 ? "a name that is empty, too long" : "longer than 16,384 bytes");
    }
    f->archive.n = 0;
    archive_put(&f->archive, "x", 'x', "10 path=\0\n", 10);
    open_archive(f);
    expect_failure(f, "has a zero byte");
}

static void test_files_that_are_no_archives(void **state)
{
    struct fixture *f = *state;
    memset(f->archive.bytes, 'x', ARCHIVE_BLOCK);
    open_begin(f, ARCHIVE_BLOCK);
    expect_failure(f, "not a TAR archive");
    assert_false(tar_resume(&f->tar));
    memcpy(f->archive.bytes, "\x1f\x8b", 2);
    open_begin(f, ARCHIVE_BLOCK);
    expect_failure(f, "not a TAR archive, but gzip; unpack it with gunzip");
    f->archive.n = 0;
    open_archive(f); /* an archive of nothing is one */
    expect_member(f, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_members_that_are_no_files_are_left_out, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_long_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sizes_of_every_form, setup, teardown),
        cmocka_unit_test_setup_teardown(test_truncation_is_found_everywhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_headers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sizes_that_are_wrong, setup, teardown),
        cmocka_unit_test_setup_teardown(test_extended_headers_that_are_wrong, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files_that_are_no_archives, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
