/* Inputs as the world may hand them over: plain, packed, cut, broken, or no file at all. */
#define _DEFAULT_SOURCE /* mincore */

#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

enum { LIMIT = 1 << 20 };

struct fixture {
    char folder[64], path[96];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    strcpy(f->folder, "/tmp/paceline_file_XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%s/input", f->folder);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    remove(f->path);
    rmdir(f->folder);
    free(f);
    return 0;
}

static void write_whole_file(const char *path, const void *data, size_t len)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

/* `data` packed as one gzip member: its bytes into `out`, returns how many. */
static size_t pack_gzip(const struct fixture *f, const void *data, size_t len, uint8_t *out,
                        size_t size)
{
    gzFile gz = gzopen(f->path, "wb");
    assert_non_null(gz);
    assert_int_equal(gzwrite(gz, data, (unsigned)len), len);
    assert_int_equal(gzclose(gz), Z_OK);
    FILE *file = fopen(f->path, "rb");
    assert_non_null(file);
    size_t packed = fread(out, 1, size, file);
    assert_true(packed < size);
    fclose(file);
    return packed;
}

static void expect_bytes(const struct fixture *f, size_t max, const void *data, size_t len)
{
    struct file_bytes bytes;
    struct err err;
    if (file_read(f->path, max, &bytes, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(bytes.len, len);
    assert_memory_equal(bytes.data, data, len);
    assert_int_equal(bytes.data[len], 0);
    file_release(&bytes);
    assert_null(bytes.data);
}

/* Refused as bad input, naming the file, with nothing written. */
static void expect_refusal(const struct fixture *f, size_t max, const char *why)
{
    struct file_bytes bytes = {.len = 77};
    struct err err = {0};
    assert_int_equal(file_read(f->path, max, &bytes, &err), ERR_INPUT);
    assert_null(bytes.data);
    assert_int_equal(bytes.len, 77);
    if (strncmp(err.text, f->path, strlen(f->path)) != 0 || !strstr(err.text, why))
        fail_msg("\"%s\" should name the file and say \"%s\"", err.text, why);
}

/* Compressible, but not to nothing. */
static void fill_compressible(uint8_t *data, size_t len)
{
    uint32_t v = 1;
    for (size_t i = 0; i < len; i++) {
        v = v * 1664525u + 1013904223u;
        data[i] = (uint8_t)('a' + (v >> 28));
    }
}

static void test_plain_files(void **state)
{
    struct fixture *f = *state;
    write_whole_file(f->path, "name: \"x\"\n", 10);
    expect_bytes(f, LIMIT, "name: \"x\"\n", 10);
    write_whole_file(f->path, "", 0);
    expect_bytes(f, LIMIT, "", 0);
    expect_bytes(f, 0, "", 0);
    write_whole_file(f->path, "\x1f", 1); /* the first byte of gzip, alone, is a byte */
    expect_bytes(f, LIMIT, "\x1f", 1);
    uint8_t *large = malloc(300000);
    assert_non_null(large);
    fill_compressible(large, 300000);
    write_whole_file(f->path, large, 300000);
    expect_bytes(f, LIMIT, large, 300000);
    write_whole_file(f->path, large, 65536); /* as long as the first buffer */
    expect_bytes(f, LIMIT, large, 65536);
    free(large);
}

static void test_no_such_file(void **state)
{
    struct fixture *f = *state;
    expect_refusal(f, LIMIT, "No such file");
}

static void test_a_fifo_is_refused_at_once(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(mkfifo(f->path, 0600), 0);
    expect_refusal(f, LIMIT, "not a regular file");
}

static void test_a_folder_is_refused(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(mkdir(f->path, 0700), 0);
    expect_refusal(f, LIMIT, "not a regular file");
    rmdir(f->path);
}

static void test_an_unreadable_file_is_refused(void **state)
{
    struct fixture *f = *state;
    write_whole_file(f->path, "x", 1);
    assert_int_equal(chmod(f->path, 0), 0);
    if (access(f->path, R_OK) == 0) {
        print_message("root may read everything: skipped\n");
        skip();
    }
    expect_refusal(f, LIMIT, "cannot open");
}

static void test_the_limit_is_exact(void **state)
{
    struct fixture *f = *state;
    uint8_t data[1000], packed[2000];
    fill_compressible(data, sizeof data);
    write_whole_file(f->path, data, sizeof data);
    expect_bytes(f, 1000, data, 1000);
    expect_refusal(f, 999, "longer than the limit of 999 bytes");
    expect_refusal(f, 0, "longer");
    size_t len = pack_gzip(f, data, sizeof data, packed, sizeof packed);
    assert_true(len < 900);
    expect_bytes(f, 1000, data, 1000);
    expect_refusal(f, 999, "longer"); /* unpacked bytes count */
}

/* 64 MiB of zeros pack into 64 KiB; with a limit of 1 MiB they are not unpacked to their end. */
static void test_a_bomb_stops_at_the_limit(void **state)
{
    struct fixture *f = *state;
    gzFile gz = gzopen(f->path, "wb1");
    assert_non_null(gz);
    static const uint8_t zeros[1 << 16];
    for (int i = 0; i < 1024; i++)
        assert_int_equal(gzwrite(gz, zeros, sizeof zeros), sizeof zeros);
    assert_int_equal(gzclose(gz), Z_OK);
    expect_refusal(f, LIMIT, "longer than the limit of 1048576 bytes");
}

static void test_gzip_is_unpacked(void **state)
{
    struct fixture *f = *state;
    uint8_t *data = malloc(200000), *packed = malloc(400000);
    assert_true(data && packed);
    fill_compressible(data, 200000);
    size_t len = pack_gzip(f, data, 200000, packed, 400000);
    expect_bytes(f, LIMIT, data, 200000);
    /* Members one after another are one file, as gzip(1) has it. */
    memcpy(packed + len, packed, len);
    write_whole_file(f->path, packed, 2 * len);
    struct file_bytes bytes;
    struct err err;
    assert_int_equal(file_read(f->path, LIMIT, &bytes, &err), OK);
    assert_int_equal(bytes.len, 400000);
    assert_memory_equal(bytes.data + 200000, data, 200000);
    file_release(&bytes);
    pack_gzip(f, "", 0, packed, 400000);
    expect_bytes(f, LIMIT, "", 0);
    free(data);
    free(packed);
}

static void test_every_truncation_of_gzip_is_an_error(void **state)
{
    struct fixture *f = *state;
    uint8_t data[600], packed[1000];
    fill_compressible(data, sizeof data);
    size_t len = pack_gzip(f, data, sizeof data, packed, sizeof packed);
    for (size_t cut = 2; cut < len; cut++) {
        write_whole_file(f->path, packed, cut);
        expect_refusal(f, LIMIT, "gzip");
    }
    /* The same within a second member. */
    memcpy(packed + len, packed, len < sizeof packed - len ? len : sizeof packed - len);
    for (size_t more = 2; more < len && len + more <= sizeof packed; more += 7) {
        write_whole_file(f->path, packed, len + more);
        expect_refusal(f, LIMIT, "gzip");
    }
}

/* Cut where a whole number of buffers has been unpacked, and far from the end. */
static void test_a_large_gzip_file_cut_short(void **state)
{
    struct fixture *f = *state;
    uint8_t *data = malloc(400000), *packed = malloc(400000);
    assert_true(data && packed);
    fill_compressible(data, 400000);
    size_t len = pack_gzip(f, data, 400000, packed, 400000);
    const size_t cuts[] = {len - 1, len - 8, len - 9, len / 2, 131072, 1000};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        write_whole_file(f->path, packed, cuts[i]);
        expect_refusal(f, LIMIT, "gzip");
    }
    free(data);
    free(packed);
}

/* Any byte of the header's marks, of the data or of the checksums changed is noticed. */
static void test_broken_gzip_is_an_error(void **state)
{
    struct fixture *f = *state;
    uint8_t data[600], packed[1000];
    fill_compressible(data, sizeof data);
    size_t len = pack_gzip(f, data, sizeof data, packed, sizeof packed);
    for (size_t at = 2; at < len; at++) {
        if (at >= 4 && at < 10)
            continue; /* time, flags and system of the packer: free to be anything */
        packed[at] ^= 0x55;
        write_whole_file(f->path, packed, len);
        expect_refusal(f, LIMIT, "");
        packed[at] ^= 0x55;
    }
    write_whole_file(f->path, packed, len);
    expect_bytes(f, LIMIT, data, sizeof data);
}

static void test_file_sibling_path(void **state)
{
    (void)state;
    static const struct {
        const char *sibling, *path, *want;
    } known[] = {
        {"/jobs/a.prototxt", "net.prototxt", "/jobs/net.prototxt"},
        {"jobs/a.prototxt", "../net.prototxt", "jobs/../net.prototxt"},
        {"/a.prototxt", "net", "/net"},
        {"a.prototxt", "net", "net"},
        {"/jobs/a.prototxt", "/data/x", "/data/x"},
        {NULL, "net", "net"},
    };
    char out[64];
    struct err err;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        assert_int_equal(file_resolve(known[i].sibling, known[i].path, out, sizeof out, &err), OK);
        assert_string_equal(out, known[i].want);
    }
    assert_int_equal(file_resolve("/jobs/a", "net", out, 10, &err), OK); /* nine and the zero */
    assert_int_equal(file_resolve("/jobs/a", "net", out, 9, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "9 bytes"));
}

static void test_pieces_of_an_open_file(void **state)
{
    const struct fixture *f = *state;
    struct file_open file;
    struct err err;
    char bytes[8] = "";
    write_whole_file(f->path, "0123456789", 10);
    assert_int_equal(file_open(f->path, &file, &err), OK);
    assert_int_equal(file.len, 10);
    assert_int_equal(file_part(&file, 4, bytes, 3), OK);
    assert_string_equal(bytes, "456");
    assert_int_equal(file_part(&file, 10, bytes, 0), OK);
    assert_int_equal(truncate(f->path, 5), 0);
    assert_int_equal(file_part(&file, 4, bytes, 3), ERR_IO);
    file_close(&file);
    assert_true(file_is_regular(f->path) && !file_is_folder(f->path));
    assert_true(!file_is_regular(f->folder) && file_is_folder(f->folder));
    assert_int_equal(file_open(f->folder, &file, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "not a regular file"));
}

static void test_names_of_a_folder(void **state)
{
    const struct fixture *f = *state;
    static const char *const names[] = {"b", "a", "B", ".hidden", "a\xff"};
    struct file_names list = {0};
    struct err err;
    char path[128];
    for (size_t i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", f->folder, names[i]);
        write_whole_file(path, "", 0);
    }
    assert_int_equal(file_list(f->folder, 3, &list, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "holds more than 3 names"));
    assert_int_equal(file_list(f->folder, 4, &list, &err), OK);
    assert_int_equal(list.count, 4);
    assert_string_equal(list.at[0], "B");
    assert_string_equal(list.at[1], "a");
    assert_string_equal(list.at[2], "a\xff");
    assert_string_equal(list.at[3], "b");
    file_names_release(&list);
    assert_int_equal(file_list(path, 4, &list, &err), ERR_INPUT); /* a file */
    for (size_t i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", f->folder, names[i]);
        remove(path);
    }
}

static void test_what_lies_under_a_folder(void **state)
{
    const struct fixture *f = *state;
    char root[128], path[192], link[160];
    struct err err = {0};
    write_whole_file(f->path, "x", 1);
    snprintf(path, sizeof path, "%s/.", f->folder);
    assert_int_equal(file_canonical(path, root, sizeof root, &err), OK);
    assert_string_equal(root, f->folder);
    assert_int_equal(file_canonical(path, root, 4, &err), ERR_INPUT);
    assert_int_equal(file_canonical(f->path, root, sizeof root, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "not a folder"));
    snprintf(root, sizeof root, "%s", f->folder);
    assert_int_equal(file_check_under(NULL, "/etc/passwd", &err), OK);
    assert_int_equal(file_check_under("/", "/etc/passwd", &err), OK);
    assert_int_equal(file_check_under(root, root, &err), OK);
    assert_int_equal(file_check_under(root, f->path, &err), OK);
    assert_int_equal(file_check_under(root, "/etc/passwd", &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "/etc/passwd: lies outside of the data root"));
    snprintf(path, sizeof path, "%s/../../etc/passwd", f->folder);
    assert_int_equal(file_check_under(root, path, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, path));
    snprintf(link, sizeof link, "%s/link", f->folder);
    assert_int_equal(symlink("/etc/passwd", link), 0);
    assert_int_equal(file_check_under(root, link, &err), ERR_INPUT);
    unlink(link);
    assert_int_equal(symlink("input", link), 0);
    assert_int_equal(file_check_under(root, link, &err), OK);
    unlink(link);
    assert_int_equal(file_check_under(root, link, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "cannot open"));
    /* A path that does not exist is distinguished from one that exists only under the root. */
    static const char *const nowhere[] = {
        "/none/at/all",        "/etc/passwd/none",         "/etc/none",
        "%s/../none",          "%s/none/../../etc/passwd", "%s/./.././none",
        "%s/none/../none/..//"};
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
        snprintf(path, sizeof path, nowhere[i], f->folder);
        assert_int_equal(file_check_under(root, path, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, "lies outside of the data root"));
    }
    static const char *const targets[] = {"/none", "../none", "/etc/none/x", "link"};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        assert_int_equal(symlink(targets[i], link), 0);
        assert_int_equal(file_check_under(root, link, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, "lies outside of the data root"));
        snprintf(path, sizeof path, "%s/in/it", link);
        assert_int_equal(file_check_under(root, path, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, "lies outside of the data root"));
        unlink(link);
    }
    static const char *const inside[] = {"%s/none", "%s/none/at//all/", "%s/./none"};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        snprintf(path, sizeof path, inside[i], f->folder);
        assert_int_equal(file_check_under(root, path, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, "cannot open: No such file"));
    }
    assert_int_equal(symlink("none", link), 0);
    assert_int_equal(file_check_under(root, link, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "cannot open: No such file"));
    unlink(link);
    root[strlen(root) - 1] = '\0'; /* a folder whose name this one's begins with */
    assert_int_equal(file_check_under(root, f->path, &err), ERR_INPUT);
}

/* Are all pages of the file in memory, so that a read does not wait? */
static bool is_in_memory(int fd, size_t len)
{
    unsigned char page[64] = {0};
    long page_bytes = sysconf(_SC_PAGESIZE);
    size_t pages = (len + (size_t)page_bytes - 1) / (size_t)page_bytes, found = 0;
    assert_true(pages <= sizeof page);
    void *at = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    assert_int_equal(mincore(at, len, page), 0);
    munmap(at, len);
    for (size_t i = 0; i < pages; i++)
        found += page[i] & 1;
    return found == pages;
}

static void test_a_prefetched_part_is_in_memory(void **state)
{
    const struct fixture *f = *state;
    enum { LEN = 64 << 10, PATIENCE_MS = 20000 };
    static uint8_t bytes[LEN];
    struct file_open file;
    write_whole_file(f->path, bytes, sizeof bytes);
    assert_int_equal(file_open(f->path, &file, NULL), OK);
    assert_int_equal(fsync(file.fd), 0);
    assert_int_equal(posix_fadvise(file.fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    file_prefetch(&file, 0, LEN);
    int waited = 0;
    for (; !is_in_memory(file.fd, LEN) && waited < PATIENCE_MS; waited++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_true(waited < PATIENCE_MS);
    file_close(&file);
}

int main(void)
{
#define FILES(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        FILES(test_plain_files),
        FILES(test_no_such_file),
        FILES(test_a_fifo_is_refused_at_once),
        FILES(test_a_folder_is_refused),
        FILES(test_an_unreadable_file_is_refused),
        FILES(test_the_limit_is_exact),
        FILES(test_a_bomb_stops_at_the_limit),
        FILES(test_gzip_is_unpacked),
        FILES(test_every_truncation_of_gzip_is_an_error),
        FILES(test_a_large_gzip_file_cut_short),
        FILES(test_broken_gzip_is_an_error),
        cmocka_unit_test(test_file_sibling_path),
        cmocka_unit_test_setup_teardown(test_pieces_of_an_open_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names_of_a_folder, setup, teardown),
        FILES(test_what_lies_under_a_folder),
        cmocka_unit_test_setup_teardown(test_a_prefetched_part_is_in_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
