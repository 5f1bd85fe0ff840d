/* Mean images in every spelling that protobuf allows, and files that are none. */
#include "data/mean_file.h"

#include "base/status.h"
#include "folder.h"

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

static int read_bytes(const struct folder *f, const void *bytes, size_t n, struct mean_file *out,
                      struct err *err)
{
    char path[256];
    folder_put(f, "m", bytes, n);
    return mean_file_read(folder_file(f, "m", path), out, err);
}

#define ONE "\x00\x00\x80\x3f" /* 1.0f, 2.0f */
#define TWO "\x00\x00\x00\x40"

static void holds_one_and_two(const struct folder *f, const char *bytes, size_t n)
{
    struct mean_file mean;
    struct err err;
    if (read_bytes(f, bytes, n, &mean, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(mean.shape.n, 3);
    assert_int_equal(mean.shape.dim[0], 1);
    assert_int_equal(mean.shape.dim[1], 2);
    assert_int_equal(mean.shape.dim[2], 1);
    assert_true(mean.mean[0] == 1 && mean.mean[1] == 2);
    free(mean.mean);
}

static void test_spellings(void **state)
{
    static const char old[] = "\x08\x01\x10\x01\x18\x02\x20\x01\x2a\x08" ONE TWO;
    static const char unpacked[] = "\x2d" ONE "\x08\x01\x10\x01\x2d" TWO "\x18\x02\x20\x01";
    static const char shape[] = "\x3a\x05\x0a\x03\x01\x02\x01\x2a\x08" ONE TWO;
    static const char four[] = "\x3a\x06\x0a\x04\x01\x01\x02\x01\x2a\x08" ONE TWO;
    static const char loose[] = "\x3a\x06\x08\x01\x08\x02\x08\x01\x2a\x08" ONE TWO;
    static const char doubles[] = "\x3a\x05\x0a\x03\x01\x02\x01\x42\x10\0\0\0\0\0\0\xf0\x3f"
                                  "\0\0\0\0\0\0\0\x40";
    static const char diff[] = "\x3a\x05\x0a\x03\x01\x02\x01\x32\x04" ONE "\x2a\x08" ONE TWO;
    holds_one_and_two(*state, old, sizeof old - 1);
    holds_one_and_two(*state, unpacked, sizeof unpacked - 1);
    holds_one_and_two(*state, shape, sizeof shape - 1);
    holds_one_and_two(*state, four, sizeof four - 1);
    holds_one_and_two(*state, loose, sizeof loose - 1);
    holds_one_and_two(*state, doubles, sizeof doubles - 1);
    holds_one_and_two(*state, diff, sizeof diff - 1);
}

static void expect_refusal(const struct folder *f, const char *bytes, size_t n, const char *why)
{
    struct mean_file mean = {0};
    struct err err = {0};
    assert_int_equal(read_bytes(f, bytes, n, &mean, &err), ERR_INPUT);
    assert_null(mean.mean);
    if (!strstr(err.text, why) || !strstr(err.text, "/m: "))
        fail_msg("\"%s\" should name the file and say \"%s\"", err.text, why);
}

static void test_what_is_no_mean(void **state)
{
    static const char whole[] = "\x08\x01\x10\x01\x18\x02\x20\x01\x2a\x08" ONE TWO;
    static const char two[] = "\x08\x02\x10\x01\x18\x01\x20\x01\x2a\x08" ONE TWO;
    static const char nan[] = "\x08\x01\x10\x01\x18\x02\x20\x01\x2a\x08" ONE "\x00\x00\xc0\x7f";
    static const char huge[] = "\x08\x01\x10\xff\xff\xff\xff\x0f\x18\xff\xff\xff\xff\x0f\x20\x01";
    static const char dims[] = "\x3a\x07\x0a\x05\x01\x01\x01\x02\x01\x2a\x08" ONE TWO;
    expect_refusal(*state, "", 0, "expected the shape of one mean image");
    for (size_t n = 1; n < sizeof whole - 1; n++)
        expect_refusal(*state, whole, n, "");
    expect_refusal(*state, whole, 14, "no BlobProto: wrong at byte");
    expect_refusal(*state, two, sizeof two - 1, "expected the shape of one mean image");
    expect_refusal(*state, dims, sizeof dims - 1, "no BlobProto");
    expect_refusal(*state, nan, sizeof nan - 1, "value 1 is not a finite number");
    expect_refusal(*state, huge, sizeof huge - 1, "a mean of 4294967295 x 4294967295 x 1");
    expect_refusal(*state, "GIF89a", 6, "no BlobProto");
}

/* Any bit another: a mean or an error. */
static void test_every_bit_changed(void **state)
{
    char bytes[] = "\x3a\x05\x0a\x03\x01\x02\x01\x2a\x08" ONE TWO;
    size_t n = sizeof bytes - 1;
    for (size_t k = 0; k < 8 * n; k++) {
        struct mean_file mean;
        struct err err;
        bytes[k / 8] = (char)(bytes[k / 8] ^ 1 << k % 8);
        int rc = read_bytes(*state, bytes, n, &mean, &err);
        bytes[k / 8] = (char)(bytes[k / 8] ^ 1 << k % 8);
        assert_true(rc == OK || rc == ERR_INPUT);
        if (rc == OK)
            free(mean.mean);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_spellings, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_no_mean, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_bit_changed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
