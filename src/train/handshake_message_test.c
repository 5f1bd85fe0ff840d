/* Welcome and hello, from untrusted bytes. */
#include "train/handshake_message.h"

#include "base/rng.h"
#include "wire/catalogue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct hello sample = {
    .version = WIRE_VERSION,
    .release = "0.1.0",
    .job_hash = 0x0123456789abcdef,
    .segments_hash = 1,
    .threads = 16,
    .isa = "avx512_core",
    .kernels = "dnnl",
    .address = "127.0.0.1:65535",
    .machine = {"AMD EPYC 9004", 32, HELLO_MEMORY_MAX - 1},
    .records = {UINT64_MAX, {7, 600, "/data/train"}, {8, 100, "/data/test"}, {.schema = 0}},
};

/* Decode from memory of exactly that size, so that a sanitizer sees a read past it. */
static int read_hello(const void *bytes, size_t n, struct hello *out)
{
    void *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    if (n)
        memcpy(copy, bytes, n);
    int rc = hello_read(&(struct byte_reader){copy, n, false}, out);
    free(copy);
    return rc;
}

static int read_welcome(const void *bytes, size_t n, struct welcome *out)
{
    void *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    if (n)
        memcpy(copy, bytes, n);
    int rc = welcome_decode(&(struct byte_reader){copy, n, false}, out);
    free(copy);
    return rc;
}

static void test_hello_is_decoded_whole(void **state)
{
    struct buf bytes = {0};
    struct hello out;
    (void)state;
    hello_write(&sample, &bytes);
    assert_int_equal(read_hello(bytes.data, bytes.len, &out), OK);
    assert_true(out.version == sample.version && out.threads == sample.threads);
    assert_true(out.job_hash == sample.job_hash && out.records.hash == sample.records.hash);
    assert_true(out.segments_hash == sample.segments_hash);
    assert_string_equal(out.isa, sample.isa);
    assert_string_equal(out.kernels, sample.kernels);
    assert_string_equal(out.address, sample.address);
    assert_string_equal(out.machine.cpu, sample.machine.cpu);
    assert_true(out.machine.cores == 32 && out.machine.memory == HELLO_MEMORY_MAX - 1);
    assert_true(out.records.train.hash == sample.records.train.hash &&
                out.records.test.count == sample.records.test.count);
    assert_string_equal(out.records.train.path, sample.records.train.path);
    for (size_t n = 0; n < bytes.len; n++)
        assert_int_equal(read_hello(bytes.data, n, &out), ERR_PROTOCOL);
    buf_put_u8(&bytes, 0);
    assert_int_equal(read_hello(bytes.data, bytes.len, &out), ERR_PROTOCOL);
    buf_release(&bytes);
}

/* Texts that do not fit their fields, and lengths that lie. */
static void test_hello_refuses_long_texts(void **state)
{
    struct hello out;
    (void)state;
    for (int which = 0; which < 5; which++) {
        struct buf bytes = {0};
        char text[NODE_ADDRESS_MAX + 1];
        memset(text, 'w', sizeof text - 1);
        text[which < 2 ? HELLO_TEXT_MAX : which == 2 ? NODE_ADDRESS_MAX : HELLO_CPU_MAX] = '\0';
        buf_put_u32(&bytes, WIRE_VERSION);
        buf_put_text(&bytes, "1");
        for (int i = 0; i < 2; i++)
            buf_put_u64(&bytes, 1);
        buf_put_u32(&bytes, 1);
        buf_put_text(&bytes, which == 0 ? text : "isa");
        buf_put_text(&bytes, which == 1 ? text : "ref");
        buf_put_text(&bytes, "attic");
        buf_put_text(&bytes, which == 2 ? text : "127.0.0.1:1");
        buf_put_text(&bytes, which == 3 ? text : "EPYC");
        buf_put_u32(&bytes, 1);
        buf_put_u64(&bytes, 1);
        for (int i = 0; i < 19; i++) /* its records */
            buf_put_u32(&bytes, 0);
        assert_int_equal(read_hello(bytes.data, bytes.len, &out), which < 4 ? ERR_PROTOCOL : OK);
        bytes_put_le32(bytes.data + 29, UINT32_MAX); /* the length of the first */
        assert_int_equal(read_hello(bytes.data, bytes.len, &out), ERR_PROTOCOL);
        buf_release(&bytes);
    }
}

/* Anybody may describe the machine that people read of. */
static void test_hello_bounds_the_machine(void **state)
{
    static const struct {
        uint32_t cores;
        uint64_t memory;
        int rc;
    } cases[] = {
        {0, 0, OK},
        {HELLO_CORES_MAX, 1, OK},
        {HELLO_CORES_MAX + 1, 1, ERR_PROTOCOL},
        {1, HELLO_MEMORY_MAX, ERR_PROTOCOL},
        {UINT32_MAX, UINT64_MAX, ERR_PROTOCOL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hello out, in = sample;
        struct buf bytes = {0};
        strcpy(in.host, "a\033[31m\n\xff");
        strcpy(in.machine.cpu, "<b>\a\xc3\xa9\xc2\x9b");
        in.machine.cores = cases[i].cores;
        in.machine.memory = cases[i].memory;
        hello_write(&in, &bytes);
        assert_int_equal(read_hello(bytes.data, bytes.len, &out), cases[i].rc);
        assert_string_equal(out.host, "a?[31m??");
        assert_string_equal(out.machine.cpu, "<b>?????"); /* pages escape it */
        buf_release(&bytes);
    }
}

static void test_welcome_is_decoded_whole(void **state)
{
    static char job[] = "name: 'x'", folder[] = "jobs/";
    (void)state;
    for (int flags = 0; flags < 32; flags++) {
        struct buf bytes = {0};
        struct welcome out, in = {.job = job,
                                  .folder = folder,
                                  .busy_hosts = flags & 1,
                                  .resumes = flags & 2,
                                  .late = flags & 4,
                                  .traces = flags & 8,
                                  .checks = flags & 16,
                                  .incarnation = 7,
                                  .leases_from = 80,
                                  .records = sample.records};
        welcome_encode(&in, &bytes);
        assert_int_equal(read_welcome(bytes.data, bytes.len, &out), OK);
        assert_string_equal(out.job, job);
        assert_string_equal(out.folder, folder);
        assert_int_equal(out.incarnation, 7);
        assert_true(out.records.hash == sample.records.hash);
        assert_string_equal(out.records.test.path, sample.records.test.path);
        assert_true(out.busy_hosts == in.busy_hosts && out.resumes == in.resumes);
        assert_true(out.late == in.late);
        assert_true(out.traces == in.traces && out.checks == in.checks);
        welcome_release(&out);
        assert_true(!out.job && !out.folder);
        for (size_t n = 0; n < bytes.len; n++)
            assert_int_equal(read_welcome(bytes.data, n, &out), ERR_PROTOCOL);
        buf_put_u8(&bytes, 0);
        assert_int_equal(read_welcome(bytes.data, bytes.len, &out), ERR_PROTOCOL);
        bytes.data[8] ^= 1; /* of the release */
        assert_int_equal(read_welcome(bytes.data, bytes.len, &out), ERR_UNSUPPORTED);
        assert_string_not_equal(out.release, in.release);
        bytes.data[8] ^= 1;
        bytes_put_le32(bytes.data + 4, UINT32_MAX); /* nothing of that size is asked for */
        assert_int_equal(read_welcome(bytes.data, bytes.len, &out), ERR_PROTOCOL);
        buf_release(&bytes);
    }
}

static void test_handshake_survives_random_bytes(void **state)
{
    uint8_t bytes[160];
    (void)state;
    for (uint64_t k = 0; k < 20000; k++) {
        size_t n = rng_below(1, k, 0, sizeof bytes);
        struct hello hello;
        struct welcome welcome;
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)rng_below(2, k, i, k % 3 ? 256 : 3);
        read_hello(bytes, n, &hello);
        if (read_welcome(bytes, n, &welcome) == OK)
            welcome_release(&welcome);
    }
}

static void expect_refused(const struct hello *hello, const char *phrase)
{
    struct err err = {0};
    assert_int_equal(hello_check(hello, &sample, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, phrase));
}

static void test_hello_check_names_difference(void **state)
{
    struct err err = {0};
    struct hello hello = sample;
    (void)state;
    hello.threads = 1; /* these may differ */
    strcpy(hello.isa, "sse41");
    strcpy(hello.kernels, "ref");
    strcpy(hello.address, "127.0.0.1:2");
    assert_int_equal(hello_check(&hello, &sample, &err), OK);
    hello.segments_hash++;
    expect_refused(&hello, "net");
    hello.records.hash--;
    expect_refused(&hello, "data is fffffffffffffffe");
    hello.records.test.hash = 9;
    expect_refused(&hello, "test_data has as many records on both sides, 100, with other contents: "
                           "hash 0000000000000009 there (/data/test), 0000000000000008 at the "
                           "driver (/data/test)");
    hello.records.train = (struct hello_data){70, 599, "/mine\n/train"};
    expect_refused(&hello, "train_data has 599 records there (/mine?/train), 600 at the driver "
                           "(/data/train)");
    hello.job_hash++;
    expect_refused(&hello, "job is 0123456789abcdf0");
    hello.version++;
    expect_refused(&hello, "(protocol 21), the driver release 0.1.0 (protocol 20)");
    hello.version--;
    strcpy(hello.release, "0.0.9");
    expect_refused(&hello, "the worker is release 0.0.9 (protocol 20), the driver release 0.1.0 "
                           "(protocol 20); install the same release on both");
}

/* With local_data the records may be others, of one kind. */
static void test_hello_check_compares_kinds_of_local_records(void **state)
{
    struct hello own = sample, hello;
    struct buf bytes = {0};
    struct err err = {0};
    (void)state;
    own.records.local = (struct hello_local){.schema = 5,
                                             .classes = 10,
                                             .kind = "1x28x28 of 10 classes",
                                             .epoch_records = 60000,
                                             .holdings = 2,
                                             .holding = {{70, 500, false}, {71, UINT32_MAX, true}}};
    hello_write(&own, &bytes);
    assert_int_equal(read_hello(bytes.data, bytes.len, &hello), OK);
    buf_release(&bytes);
    assert_string_equal(hello.records.local.kind, own.records.local.kind);
    assert_true(hello.records.local.schema == 5 && hello.records.local.epoch_records == 60000 &&
                hello.records.local.holdings == 2 && hello.records.local.holding[1].hash == 71 &&
                hello.records.local.holding[1].count == UINT32_MAX &&
                hello.records.local.holding[1].grows);
    hello.records.train = (struct hello_data){99, 5, "/mine"};
    hello.records.hash++;
    hello.records.local.classes = 9;
    assert_int_equal(hello_check(&hello, &own, &err), OK);
    hello.records.local.classes = 11;
    assert_int_equal(hello_check(&hello, &own, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "train_data there (/mine) is 1x28x28 of 10 classes, the "
                                     "driver's (/data/train) is 1x28x28 of 10 classes"));
    hello.records.local.classes = 10;
    hello.records.local.schema++;
    assert_int_equal(hello_check(&hello, &own, &err), ERR_INPUT);
    hello.records.local = (struct hello_local){.schema = 5, .classes = 10};
    assert_int_equal(hello_check(&hello, &own, &err), ERR_INPUT);
    static const uint32_t counts[] = {HOLDINGS_MAX + 1, UINT32_MAX};
    for (size_t i = 0; i < 2; i++) { /* the number of holdings, before two of 17 bytes */
        hello_write(&own, &bytes);
        bytes_put_le32(bytes.data + bytes.len - 38, counts[i]);
        assert_int_equal(read_hello(bytes.data, bytes.len, &hello), ERR_PROTOCOL);
        assert_true(hello.records.local.holdings <= HOLDINGS_MAX);
        buf_release(&bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hello_is_decoded_whole),
        cmocka_unit_test(test_hello_refuses_long_texts),
        cmocka_unit_test(test_hello_bounds_the_machine),
        cmocka_unit_test(test_welcome_is_decoded_whole),
        cmocka_unit_test(test_handshake_survives_random_bytes),
        cmocka_unit_test(test_hello_check_names_difference),
        cmocka_unit_test(test_hello_check_compares_kinds_of_local_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
