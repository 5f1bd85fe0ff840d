/* The reader and writer of protobuf text, on the schemas of jobs and Caffe's nets and on one
 * message made by hand that has the kinds of field these lack. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "job/caffe.pb-c.h"
#include "job/job.pb-c.h"
#include "job/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sample {
    ProtobufCMessage base;
    protobuf_c_boolean has_small, has_big, has_fixed, has_raw, has_wide, has_flag;
    int32_t small;
    int64_t big;
    uint64_t fixed;
    ProtobufCBinaryData raw;
    size_t n_words;
    char **words;
    struct sample *child;
    double wide;
    protobuf_c_boolean flag;
};

static void sample_init(ProtobufCMessage *msg);
static const ProtobufCMessageDescriptor sample_type;

#define FIELD(id, name, label, kind, quantifier, type)                                            \
    {                                                                                             \
#name, id, PROTOBUF_C_LABEL_##label, PROTOBUF_C_TYPE_##kind,                              \
            offsetof(struct sample, quantifier), offsetof(struct sample, name), type, NULL, 0, 0, \
            NULL, NULL                                                                            \
    }

static const ProtobufCFieldDescriptor sample_fields[] = {
    FIELD(1, small, OPTIONAL, INT32, has_small, NULL),
    FIELD(2, big, OPTIONAL, SINT64, has_big, NULL),
    FIELD(3, fixed, OPTIONAL, FIXED64, has_fixed, NULL),
    FIELD(4, raw, OPTIONAL, BYTES, has_raw, NULL),
    FIELD(5, words, REPEATED, STRING, n_words, NULL),
    {"child", 6, PROTOBUF_C_LABEL_OPTIONAL, PROTOBUF_C_TYPE_MESSAGE, 0,
     offsetof(struct sample, child), &sample_type, NULL, 0, 0, NULL, NULL},
    FIELD(7, wide, OPTIONAL, DOUBLE, has_wide, NULL),
    FIELD(8, flag, OPTIONAL, BOOL, has_flag, NULL),
};
static const unsigned sample_by_name[] = {1, 5, 2, 7, 3, 0, 6, 4};
static const ProtobufCIntRange sample_ranges[] = {{1, 0}, {0, 8}};

static const ProtobufCMessageDescriptor sample_type = {
    .magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,
    .name = "Sample",
    .short_name = "Sample",
    .c_name = "Sample",
    .package_name = "",
    .sizeof_message = sizeof(struct sample),
    .n_fields = 8,
    .fields = sample_fields,
    .fields_sorted_by_name = sample_by_name,
    .n_field_ranges = 1,
    .field_ranges = sample_ranges,
    .message_init = sample_init,
};

static void sample_init(ProtobufCMessage *msg)
{
    struct sample *s = (struct sample *)msg;
    *s = (struct sample){.base = {.descriptor = &sample_type}};
}

static void free_message(void *msg)
{
    protobuf_c_message_free_unpacked(msg, NULL);
}

static void *parse_text(const ProtobufCMessageDescriptor *type, const char *text)
{
    struct err err = {0};
    ProtobufCMessage *msg = NULL;
    int rc = text_parse(type, "t", text, strlen(text), &msg, &err);
    if (rc != OK)
        fail_msg("%s", err.text);
    return msg;
}

static Paceline__Job *job_of(const char *text)
{
    return parse_text(&paceline__job__descriptor, text);
}

static struct sample *sample_of(const char *text)
{
    return parse_text(&sample_type, text);
}

static void expect_refusal(const ProtobufCMessageDescriptor *type, const char *text,
                           const char *message)
{
    struct err err = {0};
    ProtobufCMessage *msg = NULL;
    assert_int_equal(text_parse(type, "t", text, strlen(text), &msg, &err), ERR_INPUT);
    assert_null(msg);
    assert_int_equal(err.status, ERR_INPUT);
    assert_string_equal(err.text, message);
}

static void job_refuses(const char *text, const char *message)
{
    expect_refusal(&paceline__job__descriptor, text, message);
}

static void sample_refuses(const char *text, const char *message)
{
    expect_refusal(&sample_type, text, message);
}

static void test_empty_text_is_all_defaults(void **state)
{
    (void)state;
    Paceline__Job *j = job_of(" # nothing but a comment");
    assert_string_equal(j->name, "job");
    assert_false(j->has_batch);
    assert_int_equal(j->batch, 64);
    assert_null(j->net);
    free_message(j);
}

static void test_a_job_reads_as_written(void **state)
{
    (void)state;
    Paceline__Job *j =
        job_of("name: 'a' # the rest is not read: }{\r\n"
               "net { zoo: \"lenet\" }\n"
               "train_data: { idx < images: \"i\", labels: \"l\"; > mean: [1, 2.5] }\n"
               "batch:32,kernels:ref;deterministic: true pace: .5\n"
               "strategy { sync { } }");
    assert_string_equal(j->name, "a");
    assert_int_equal(j->net->source_case, PACELINE__NET__SOURCE_ZOO);
    assert_string_equal(j->net->zoo, "lenet");
    assert_string_equal(j->train_data->idx->labels, "l");
    assert_int_equal(j->train_data->n_mean, 2);
    assert_true(j->train_data->mean[1] == 2.5f);
    assert_true(j->has_batch && j->batch == 32);
    assert_int_equal(j->kernels, PACELINE__JOB__KERNELS__ref);
    assert_true(j->deterministic);
    assert_true(j->pace == 0.5);
    assert_int_equal(j->strategy->algorithm_case, PACELINE__STRATEGY__ALGORITHM_SYNC);
    assert_int_equal(j->strategy->sync->tau, 50);
    free_message(j);
}

static const char lenet_head[] =
    "name: \"two\"\n"
    "layer { name: \"mnist\" type: \"Data\" top: \"data\" top: \"label\"\n"
    "  include { phase: TRAIN } transform_param { scale: 0.00390625 }\n"
    "  data_param { source: \"examples/mnist/db\" batch_size: 64 backend: LMDB } }\n"
    "layer { name: \"conv1\" type: \"Convolution\" bottom: \"data\" top: \"conv1\"\n"
    "  param { lr_mult: 1 } param { lr_mult: 2 }\n"
    "  convolution_param { num_output: 20 kernel_size: 5 stride: 1\n"
    "    weight_filler { type: \"xavier\" } bias_filler { type: \"constant\" } } }\n"
    "layer { name: \"pool1\" type: \"Pooling\" bottom: \"conv1\" top: \"pool1\"\n"
    "  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }\n"
    "layer { name: \"loss\" type: \"SoftmaxWithLoss\" bottom: \"pool1\" bottom: \"label\" }\n";

static void test_a_caffe_net_reads_as_it_stands(void **state)
{
    (void)state;
    Caffe__NetParameter *net = parse_text(&caffe__net_parameter__descriptor, lenet_head);
    assert_int_equal(net->n_layer, 4);
    Caffe__LayerParameter *data = net->layer[0], *conv = net->layer[1], *pool = net->layer[2];
    assert_string_equal(data->top[1], "label");
    assert_int_equal(data->include[0]->phase, CAFFE__PHASE__TRAIN);
    assert_int_equal(data->data_param->backend, CAFFE__DATA_PARAMETER__DB__LMDB);
    assert_true(conv->param[1]->lr_mult == 2);
    assert_int_equal(conv->convolution_param->kernel_size[0], 5);
    assert_true(conv->convolution_param->bias_term);
    assert_string_equal(conv->convolution_param->bias_filler->type, "constant");
    assert_int_equal(pool->pooling_param->pool, CAFFE__POOLING_PARAMETER__POOL_METHOD__MAX);
    free_message(net);
}

static void test_caffe_numbers_are_the_public_ones(void **state)
{
    (void)state;
    /* Packed by hand from Caffe's schema: layer = 100 (tag 0xa2 0x06), name = 1, blobs = 7,
     * convolution_param = 106 (0xd2 0x06) with num_output = 1 and dilation = 18 (0x90 0x01);
     * in the blob, shape = 7 with dim = 1 packed and data = 5 packed. */
    static const uint8_t model[] = {0xa2, 0x06, 25, 0x0a, 1,    'c',  0x3a, 12,   0x3a, 4,    0x0a,
                                    2,    1,    1,  0x2a, 4,    0x00, 0x00, 0x80, 0x3f, 0xd2, 0x06,
                                    5,    0x08, 20, 0x90, 0x01, 2,    0x0a, 1,    'n'};
    Caffe__NetParameter *net = caffe__net_parameter__unpack(NULL, sizeof model, model);
    assert_non_null(net);
    assert_string_equal(net->name, "n");
    Caffe__LayerParameter *layer = net->layer[0];
    assert_string_equal(layer->name, "c");
    assert_int_equal(layer->blobs[0]->shape->n_dim, 2);
    assert_true(layer->blobs[0]->data[0] == 1.0f);
    assert_int_equal(layer->convolution_param->num_output, 20);
    assert_int_equal(layer->convolution_param->dilation[0], 2);
    free_message(net);
}

static void test_strings_escape_and_join(void **state)
{
    (void)state;
    Paceline__Job *j = job_of("name: \"a\\tb\" 'c\"\\'' # between\n \"\\x41\\102\\n\\\\\"");
    assert_string_equal(j->name, "a\tbc\"'AB\n\\");
    free_message(j);
    struct sample *s = sample_of("raw: \"\\000\\377z\" words: '' words: [\"x\", 'y' 'z']");
    assert_int_equal(s->raw.len, 3);
    assert_memory_equal(s->raw.data, "\0\377z", 3);
    assert_int_equal(s->n_words, 3);
    assert_string_equal(s->words[0], "");
    assert_string_equal(s->words[2], "yz");
    free_message(s);
}

static void test_integers_at_their_limits(void **state)
{
    (void)state;
    struct sample *s = sample_of("small: -2147483648 big: -9223372036854775808 "
                                 "fixed: 18446744073709551615");
    assert_true(s->small == INT32_MIN && s->big == INT64_MIN && s->fixed == UINT64_MAX);
    free_message(s);
    s = sample_of("small: 0x7fFF big: - 017 fixed: 0");
    assert_true(s->small == 32767 && s->big == -15 && s->fixed == 0);
    free_message(s);
    sample_refuses("small: 2147483648", "t:1:8: field `small` of Sample: expected an integer from "
                                        "-2147483648 to 2147483647, not `2147483648`");
    sample_refuses("small: -2147483649", "t:1:8: field `small` of Sample: expected an integer from "
                                         "-2147483648 to 2147483647, not `-2147483649`");
    sample_refuses("fixed: 18446744073709551616",
                   "t:1:8: field `fixed` of Sample: expected an integer from 0 to "
                   "18446744073709551615, not `18446744073709551616`");
    job_refuses("batch: -1", "t:1:8: field `batch` of Job: expected an integer from 0 to "
                             "4294967295, not `-1`");
    job_refuses("batch: 1.5", "t:1:8: field `batch` of Job: expected an integer from 0 to "
                              "4294967295, not `1.5`");
    job_refuses("batch: 089", "t:1:8: field `batch` of Job: expected an integer from 0 to "
                              "4294967295, not `089`");
}

static void test_floats(void **state)
{
    (void)state;
    struct sample *s = sample_of("wide: -1.25e+2");
    assert_true(s->wide == -125);
    free_message(s);
    s = sample_of("wide: 3F");
    assert_true(s->wide == 3);
    free_message(s);
    s = sample_of("wide: -Infinity");
    assert_true(isinf(s->wide) && s->wide < 0);
    free_message(s);
    s = sample_of("wide: nan");
    assert_true(isnan(s->wide));
    free_message(s);
    Paceline__Data *d = parse_text(&paceline__data__descriptor, "scale: 0.00390625f mean: 1e-3");
    assert_true(d->scale == 0.00390625f && d->mean[0] == 0.001f);
    free_message(d);
    sample_refuses("wide: 1e999", "t:1:7: field `wide` of Sample: expected a number that fits a "
                                  "double, not `1e999`");
    expect_refusal(&paceline__data__descriptor, "scale: 1e39",
                   "t:1:8: field `scale` of Data: expected a number that fits a float, not `1e39`");
    sample_refuses("wide: 1.2.3", "t:1:7: field `wide` of Sample: expected a number that fits a "
                                  "double, not `1.2.3`");
    sample_refuses("wide: 1e+", "t:1:7: field `wide` of Sample: expected a number that fits a "
                                "double, not `1e+`");
    sample_refuses("wide: 0x10", "t:1:7: field `wide` of Sample: expected a number that fits a "
                                 "double, not `0x10`");
    sample_refuses("wide: 012", "t:1:7: field `wide` of Sample: expected a number that fits a "
                                "double, not `012`");
}

static void test_flags_and_words(void **state)
{
    (void)state;
    struct sample *s = sample_of("flag: True");
    assert_true(s->flag);
    free_message(s);
    s = sample_of("flag: 0");
    assert_true(s->has_flag && !s->flag);
    free_message(s);
    sample_refuses("flag: yes", "t:1:7: field `flag` of Sample: expected true or false, not `yes`");
    sample_refuses("flag: -t", "t:1:7: field `flag` of Sample: expected true or false, not `-t`");
    sample_refuses("flag: 2", "t:1:7: field `flag` of Sample: expected true or false, not `2`");
    Paceline__Job *j = job_of("kernels: 2");
    assert_int_equal(j->kernels, PACELINE__JOB__KERNELS__dnnl);
    free_message(j);
    job_refuses("kernels: cuda", "t:1:10: field `kernels` of Job: expected one of auto, ref, dnnl, "
                                 "not `cuda`");
    job_refuses("kernels: 3", "t:1:10: field `kernels` of Job: expected one of auto, ref, dnnl, "
                              "not `3`");
}

static void test_twice_is_refused(void **state)
{
    (void)state;
    job_refuses("batch: 1\nbatch: 1", "t:2:1: field `batch` of Job: given twice; keep one");
    job_refuses("name: 'job' name: 'b'", "t:1:13: field `name` of Job: given twice; keep one");
    job_refuses("stop {} stop {}", "t:1:9: field `stop` of Job: given twice; keep one");
    job_refuses("net { zoo: 'a' zoo: 'b' }", "t:1:16: field `zoo` of Net: given twice; keep one");
}

static void test_two_members_of_a_oneof_are_refused(void **state)
{
    (void)state;
    job_refuses("net {\n zoo: 'a'\n file: 'b' }",
                "t:3:2: field `file` of Net: `zoo` is set, and one of the two may be");
    job_refuses("strategy { single {} sync { tau: 3 } }",
                "t:1:22: field `sync` of Strategy: `single` is set, and one of the two may be");
}

static void test_broken_marks(void **state)
{
    (void)state;
    job_refuses("stop {\n epochs: 1", "t:2:11: expected a field or `}` of Stop, not the end; "
                                      "`stop`, which begins in line 1, is not closed");
    job_refuses("stop < epochs: 1 }", "t:1:18: expected a field or `>` of Stop, not `}`");
    job_refuses("batch: 1 }", "t:1:10: expected a field of Job, not `}`");
    job_refuses("batch 1", "t:1:7: field `batch` of Job: expected `:` and a value, not `1`");
    job_refuses("batch:", "t:1:7: field `batch` of Job: expected an integer from 0 to 4294967295, "
                          "not the end");
    job_refuses("stop: 3", "t:1:7: field `stop` of Job: expected `{`, not `3`");
    job_refuses("batch: 1,, seed: 2", "t:1:10: expected a field of Job, not `,`");
    job_refuses("1: 2", "t:1:1: expected a field of Job, not `1`");
    job_refuses("batch: 1 \x01", "t:1:10: byte 0x01 is not allowed here; is this a text file? Text "
                                 "beyond ASCII must be quoted");
    job_refuses("batch: $", "t:1:8: field `batch` of Job: `$` is not allowed here");
}

static void test_broken_lists(void **state)
{
    (void)state;
    job_refuses("batch: [1]", "t:1:8: field `batch` of Job: expected one value, not a list");
    const ProtobufCMessageDescriptor *data = &paceline__data__descriptor;
    expect_refusal(data, "mean: [1 2]",
                   "t:1:10: field `mean` of Data: expected `,` or `]`, not `2`");
    expect_refusal(data, "mean: [1, ]",
                   "t:1:11: field `mean` of Data: expected a number that fits a float, not `]`");
    expect_refusal(data, "mean: [1",
                   "t:1:9: field `mean` of Data: expected `,` or `]`, not the end");
    Paceline__Data *d = parse_text(data, "mean: [] mean: 1 mean: [2, 3, 4, 5] mean: 6");
    assert_int_equal(d->n_mean, 6);
    assert_true(d->mean[5] == 6);
    free_message(d);
}

static void test_broken_strings(void **state)
{
    (void)state;
    job_refuses("name: \"abc\nseed: 1", "t:1:7: field `name` of Job: a string is not closed on its "
                                        "line; write the quote at its end");
    job_refuses("name: \"a\\q\"", "t:1:9: field `name` of Job: unknown escape in a string");
    job_refuses("name: \"a\\400\"", "t:1:9: field `name` of Job: unknown escape in a string");
    job_refuses("name: \"a\\x\"", "t:1:9: field `name` of Job: unknown escape in a string");
    job_refuses("name: \"a\\0\"", "t:1:7: field `name` of Job: a string cannot hold a zero byte");
    job_refuses("name: lenet", "t:1:7: field `name` of Job: expected a string in quotes, not "
                               "`lenet`");
    job_refuses("name: \"a\\", "t:1:7: field `name` of Job: a string is not closed on its line; "
                               "write the quote at its end");
}

static void test_columns_count_characters(void **state)
{
    (void)state;
    job_refuses("\xef\xbb\xbfname: \"\xc3\xa9\xe2\x82\xac\" x: 1", "t:1:12: Job has no field `x`");
    job_refuses("name: \xc3\xa9", "t:1:7: field `name` of Job: byte 0xc3 is not allowed here; is "
                                  "this a text file? Text beyond ASCII must be quoted");
}

static void test_depth_is_bounded(void **state)
{
    (void)state;
    char text[TEXT_DEPTH_MAX * 8 + 64] = "";
    for (int i = 0; i < TEXT_DEPTH_MAX; i++)
        strcat(text, "child{");
    size_t opened = strlen(text);
    for (int i = 0; i < TEXT_DEPTH_MAX; i++)
        strcat(text, "}");
    free_message(sample_of(text));
    strcpy(text + opened, "child{");
    sample_refuses(text, "t:1:198: field `child` of Sample: more than 32 messages deep");
}

static void test_size_is_bounded(void **state)
{
    (void)state;
    struct err err = {0};
    ProtobufCMessage *msg = NULL;
    char text[1] = "";
    int rc = text_parse(&sample_type, "t", text, (size_t)TEXT_BYTES_MAX + 1, &msg, &err);
    assert_int_equal(rc, ERR_INPUT);
    assert_string_equal(err.text, "t: 8388609 bytes of text, more than the limit of 8388608");
}

/* How often `unit`, repeated for as long as a text may be, is read before memory is refused. */
static size_t refused_after(const ProtobufCMessageDescriptor *type, const char *unit)
{
    struct err err = {0};
    ProtobufCMessage *msg = NULL;
    size_t size = strlen(unit), n = TEXT_BYTES_MAX / size, column = 0;
    char *text = malloc(n * size);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        memcpy(text + i * size, unit, size);
    int rc = text_parse(type, "t", text, n * size, &msg, &err);
    free(text);
    assert_int_equal(rc, ERR_INPUT);
    assert_int_equal(sscanf(err.text, "t:1:%zu: the messages", &column), 1);
    assert_non_null(strstr(err.text, "more than the limit of 256 MiB"));
    return (column - 1) / size;
}

/* Messages and strings each count, with their places in arrays. */
static void test_memory_is_bounded(void **state)
{
    (void)state;
    const ProtobufCMessageDescriptor *net = &caffe__net_parameter__descriptor;
    size_t most = TEXT_MEMORY_MAX, layer = sizeof(Caffe__LayerParameter);
    assert_in_range(refused_after(net, "layer{}") * (layer + sizeof(void *)), most / 2, most);
    /* A string has a buffer of its own. */
    assert_in_range(refused_after(&sample_type, "words:''"), most / 1024, most / 32);
}

static void expect_written(const void *msg, const char *text)
{
    struct buf out = {0};
    text_write(msg, &out);
    buf_put_u8(&out, 0);
    assert_false(out.failed);
    assert_string_equal((char *)out.data, text);
    buf_release(&out);
}

static void test_writing(void **state)
{
    (void)state;
    Paceline__Job *j =
        job_of("workers: 3 stop { epochs: 0.1 } name: \"a\\\"\\n\\001\xc3\xa9\" "
               "train_data { mean: [0.1, 16777216] scale: 1 } strategy { single {} }");
    expect_written(j, "name: \"a\\\"\\n\\001\xc3\xa9\"\n"
                      "train_data {\n  scale: 1\n  mean: 0.1\n  mean: 16777216\n}\n"
                      "strategy {\n  single {\n  }\n}\n"
                      "workers: 3\n"
                      "stop {\n  epochs: 0.1\n}\n");
    free_message(j);
    struct sample *s = sample_of("small: -5 big: -6 fixed: 7 raw: '\\377a' flag: false wide: inf");
    expect_written(s, "small: -5\nbig: -6\nfixed: 7\nraw: \"\\377a\"\nwide: inf\nflag: false\n");
    free_message(s);
}

static void check_round_trip(const ProtobufCMessage *msg)
{
    struct buf once = {0}, twice = {0};
    struct err err = {0};
    ProtobufCMessage *again = NULL;
    text_write(msg, &once);
    int rc = text_parse(msg->descriptor, "again", (char *)once.data, once.len, &again, &err);
    if (rc != OK)
        fail_msg("%s", err.text);
    text_write(again, &twice);
    assert_int_equal(once.len, twice.len);
    if (once.len)
        assert_memory_equal(once.data, twice.data, once.len);
    /* The binary form was written by other hands. */
    size_t n = protobuf_c_message_get_packed_size(msg);
    assert_int_equal(protobuf_c_message_get_packed_size(again), n);
    uint8_t *a = malloc(n + 1), *b = malloc(n + 1);
    protobuf_c_message_pack(msg, a);
    protobuf_c_message_pack(again, b);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
    buf_release(&once);
    buf_release(&twice);
    free_message(again);
}

static void test_round_trip(void **state)
{
    (void)state;
    Caffe__NetParameter *net = parse_text(&caffe__net_parameter__descriptor, lenet_head);
    check_round_trip(&net->base);
    free_message(net);
    struct sample *s =
        sample_of("raw: '\\0\\1\\2\"\\'\\\\' words: ['a\\nb', ''] child { child { wide: "
                  "4.9e-324 } wide: -0.0 } wide: 0.1");
    check_round_trip(&s->base);
    free_message(s);
}

static void test_floats_are_written_exactly(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 2000; i++) {
        uint64_t bits = rng_u64(1, 1, i);
        uint32_t low = (uint32_t)bits;
        struct sample s;
        sample_init(&s.base);
        s.has_wide = true;
        memcpy(&s.wide, &bits, sizeof bits);
        Paceline__Data d = PACELINE__DATA__INIT;
        d.has_scale = true;
        memcpy(&d.scale, &low, sizeof low);
        if (!isnan(s.wide))
            check_round_trip(&s.base);
        if (!isnan(d.scale))
            check_round_trip(&d.base);
    }
}

static void set_field(void *msg, const char *path, const char *value)
{
    struct err err = {0};
    if (text_set(msg, path, value, &err) != OK)
        fail_msg("%s", err.text);
}

static void test_set_makes_its_way(void **state)
{
    (void)state;
    Paceline__Job *j = job_of("strategy { single {} } stop { steps: 5 }");
    set_field(j, "stop.epochs", "2.5");
    set_field(j, "stop.epochs", "3");
    set_field(j, "name", "no quotes, [as] it stands");
    set_field(j, "kernels", "ref");
    set_field(j, "strategy.sync.tau", "7");
    set_field(j, "train_data.idx.images", "\"quo\\ted\"");
    set_field(j, "net", "{ zoo: 'mlp' }");
    set_field(j, "net.file", "");
    assert_true(j->stop->epochs == 3 && j->stop->steps == 5);
    assert_string_equal(j->name, "no quotes, [as] it stands");
    assert_int_equal(j->kernels, PACELINE__JOB__KERNELS__ref);
    assert_int_equal(j->strategy->algorithm_case, PACELINE__STRATEGY__ALGORITHM_SYNC);
    assert_int_equal(j->strategy->sync->tau, 7);
    assert_string_equal(j->train_data->idx->images, "quo\ted");
    assert_int_equal(j->net->source_case, PACELINE__NET__SOURCE_FILE);
    assert_string_equal(j->net->file, "");
    free_message(j);
}

static void test_set_replaces_lists(void **state)
{
    (void)state;
    Paceline__Data *d = parse_text(&paceline__data__descriptor, "mean: [1, 2, 3, 4, 5]");
    set_field(d, "mean", "6, 7");
    assert_int_equal(d->n_mean, 2);
    assert_true(d->mean[1] == 7);
    set_field(d, "mean", "[8]");
    assert_int_equal(d->n_mean, 1);
    set_field(d, "mean", "[]");
    assert_int_equal(d->n_mean, 0);
    free_message(d);
    struct sample *s = sample_of("words: 'a' words: 'b'");
    set_field(s, "words", "plain");
    assert_int_equal(s->n_words, 1);
    set_field(s, "words", "['x', 'y']");
    assert_string_equal(s->words[1], "y");
    free_message(s);
}

static void set_refuses(const char *path, const char *value, const char *message)
{
    struct err err = {0};
    Paceline__Job *j =
        job_of("strategy { single {} } stop { steps: 5 } train_data { mean: [1, 2] }");
    struct buf before = {0}, after = {0};
    text_write(&j->base, &before);
    assert_int_equal(text_set(&j->base, path, value, &err), ERR_INPUT);
    assert_string_equal(err.text, message);
    text_write(&j->base, &after);
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.data, after.data, before.len);
    buf_release(&before);
    buf_release(&after);
    free_message(j);
}

static void test_a_bad_set_changes_nothing(void **state)
{
    (void)state;
    set_refuses("workers", "-3",
                "workers: expected an integer from 0 to "
                "4294967295, not `-3`");
    set_refuses("strategy.sync.tau", "x",
                "strategy.sync.tau: expected an "
                "integer from 0 to 4294967295, not `x`");
    set_refuses("stop.epoch", "1",
                "stop.epoch: Stop has no field `epoch`; did you mean `stop.epochs`?");
    set_refuses("batchsize", "1", "batchsize: Job has no field `batchsize`; did you mean `batch`?");
    set_refuses("lr", "1", "lr: Job has no field `lr`; did you mean `solver.base_lr`?");
    set_refuses("solver.lr", "1",
                "solver.lr: SolverParameter has no field `lr`; did you mean `solver.base_lr`?");
    set_refuses("epochs", "1", "epochs: Job has no field `epochs`; did you mean `stop.epochs`?");
    set_refuses(
        "solver.epochs", "1",
        "solver.epochs: SolverParameter has no field `epochs`; did you mean `stop.epochs`?");
    set_refuses("solver.base_lr", "1/255",
                "solver.base_lr: `/` is not allowed here; nothing "
                "is computed here: write the number itself, as in 0.00390625");
    set_refuses("stop.steps", "1 2",
                "stop.steps: expected nothing after "
                "the value, not `2`");
    set_refuses("stop.steps", "",
                "stop.steps: expected an integer from 0 "
                "to 18446744073709551615, not the end");
    set_refuses("batch.size", "1", "batch.size: field `batch` of Job: has no single fields to set");
    set_refuses("train_data.mean", "[1, x]",
                "train_data.mean: expected a "
                "number that fits a float, not `x`");
    set_refuses("stop.", "1",
                "stop.: Stop has no field ``; it has epochs, steps, seconds, validation_error, "
                "test_error");
    set_refuses(".stop", "1", ".stop: Job has no field ``");
    set_refuses("", "1", "expected the name of a field of Job");
    set_refuses("stop", "5", "stop: expected `{`, not `5`");
}

static void test_unset_takes_a_field_back(void **state)
{
    (void)state;
    struct err err;
    bool was_set;
    Paceline__Job *j = job_of("batch: 8 stop { steps: 5 epochs: 2 } solver { base_lr: 1 } "
                              "train_data { mean: 1 mean: 2 } net { zoo: 'lenet' }");
    assert_int_equal(text_unset(&j->base, "batch", &was_set, &err), OK);
    assert_true(was_set && !j->has_batch && j->batch == 64);
    assert_int_equal(text_unset(&j->base, "batch", &was_set, &err), OK);
    assert_false(was_set);
    assert_int_equal(text_unset(&j->base, "stop.steps", &was_set, &err), OK);
    assert_true(was_set && !j->stop->has_steps && j->stop->has_epochs);
    assert_int_equal(text_unset(&j->base, "train_data.mean", &was_set, &err), OK);
    assert_true(was_set && j->train_data->n_mean == 0);
    assert_int_equal(text_unset(&j->base, "net.file", &was_set, &err), OK);
    assert_false(was_set);
    assert_string_equal(j->net->zoo, "lenet");
    assert_int_equal(text_unset(&j->base, "strategy.sync.tau", &was_set, &err), OK);
    assert_true(!was_set && !j->strategy);
    assert_int_equal(text_unset(&j->base, "solver", NULL, &err), OK);
    assert_null(j->solver);
    assert_int_equal(text_unset(&j->base, "stop.step", &was_set, &err), ERR_INPUT);
    assert_string_equal(err.text,
                        "stop.step: Stop has no field `step`; did you mean `stop.steps`?");
    free_message(j);
}

/* Change, drop, double or insert a few bytes. */
static size_t mutate_text(char *text, size_t n, size_t cap, uint64_t round)
{
    static const char spice[] = "{}<>[]:,;-\"'\\#.0x9eEf\n\xff\x80";
    uint64_t draws = 1 + rng_below(7, 1, round, 6);
    for (uint64_t k = 0; k < draws && n > 1; k++) {
        uint64_t counter = round * 32 + k * 4;
        size_t at = rng_below(7, 2, counter, n), len = 1 + rng_below(7, 2, counter + 1, 9);
        len = len < n - at ? len : n - at;
        switch (rng_below(7, 2, counter + 2, 4)) {
        case 0: text[at] = (char)rng_u64(7, 3, counter); break;
        case 1: text[at] = spice[rng_below(7, 3, counter, sizeof spice)]; break;
        case 2:
            memmove(text + at, text + at + len, n - at - len);
            n -= len;
            break;
        default:
            if (n + len > cap)
                break;
            memmove(text + at + len, text + at, n - at);
            n += len;
        }
    }
    return n;
}

static void test_mutated_texts_never_crash(void **state)
{
    (void)state;
    static const char job_text[] =
        "name: \"a\" 'b\\n\\x41' net { zoo: \"lenet\" } train_data { idx { images: \"i\" labels: "
        "\"l\" } scale: 0.0039 mean: [1, 2, 3e-2, -inf] }\nbatch: 64 kernels: auto # end\n"
        "strategy { sync { tau: 0x10 } } solver < base_lr: .5f stepvalue: [10, 20] clock: epochs >";
    int good = 0;
    for (uint64_t round = 0; round < 20000; round++) {
        bool caffe = round % 2;
        const char *seed = caffe ? lenet_head : job_text;
        size_t n = strlen(seed), cap = n + 64;
        char *text = malloc(cap);
        assert_non_null(text);
        memcpy(text, seed, n);
        n = mutate_text(text, n, cap, round);
        char *exact = malloc(n); /* so that a read past the end is seen */
        assert_non_null(exact);
        memcpy(exact, text, n);
        free(text);
        struct err err = {0};
        ProtobufCMessage *msg = NULL;
        const ProtobufCMessageDescriptor *type =
            caffe ? &caffe__net_parameter__descriptor : &paceline__job__descriptor;
        int rc = text_parse(type, "t", exact, n, &msg, &err);
        if (rc == OK) {
            good++;
            check_round_trip(msg);
            free_message(msg);
        } else {
            assert_int_equal(rc, ERR_INPUT);
            assert_null(msg);
            assert_memory_equal(err.text, "t:", 2);
        }
        free(exact);
    }
    assert_in_range(good, 100, 19000); /* both outcomes were seen often */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_text_is_all_defaults),
        cmocka_unit_test(test_a_job_reads_as_written),
        cmocka_unit_test(test_a_caffe_net_reads_as_it_stands),
        cmocka_unit_test(test_caffe_numbers_are_the_public_ones),
        cmocka_unit_test(test_strings_escape_and_join),
        cmocka_unit_test(test_integers_at_their_limits),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_flags_and_words),
        cmocka_unit_test(test_unset_takes_a_field_back),
        cmocka_unit_test(test_twice_is_refused),
        cmocka_unit_test(test_two_members_of_a_oneof_are_refused),
        cmocka_unit_test(test_broken_marks),
        cmocka_unit_test(test_broken_lists),
        cmocka_unit_test(test_broken_strings),
        cmocka_unit_test(test_columns_count_characters),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_size_is_bounded),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_writing),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_floats_are_written_exactly),
        cmocka_unit_test(test_set_makes_its_way),
        cmocka_unit_test(test_set_replaces_lists),
        cmocka_unit_test(test_a_bad_set_changes_nothing),
        cmocka_unit_test(test_mutated_texts_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
