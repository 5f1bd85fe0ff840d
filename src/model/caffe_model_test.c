/* Caffemodels, put together byte by byte: what is read of them, what is refused, and what is
 * written. */
#include "model/caffe_model.h"

#include "caffe_bytes.h"
#include "folder.h"
#include "real/disk.h"

#include <math.h>

static const float SIX[] = {0.5f, -1.0f, 3.25f, 1e-3f, -0.0f, 7.0f};
static const float TWO[] = {8.0f, -9.0f};
static const uint64_t DIMS[] = {2, 1, 3, 1}, TALL[] = {1, 1, 3, 2}, LONE[] = {2};

/* Parse a copy that ends exactly where its memory does, so that a read past it is seen. */
static int parse_model(const void *bytes, size_t len, struct caffe_model *model, uint8_t **copy,
                       struct err *err)
{
    *copy = malloc(len ? len : 1);
    assert_non_null(*copy);
    memcpy(*copy, bytes, len);
    int rc = caffe_model_parse("x.caffemodel", *copy, len, model, err);
    if (rc != OK)
        free(*copy);
    return rc;
}

static void expect_refusal(const struct piece *net, int status, const char *words)
{
    struct caffe_model model;
    struct err err = {0};
    uint8_t *copy;
    assert_int_equal(parse_model(net->at, net->n, &model, &copy, &err), status);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" says nothing of \"%s\"", err.text, words);
    assert_non_null(strstr(err.text, "x.caffemodel"));
}

/* conv1 with two blobs, relu1 with none, of the new syntax. */
static struct piece small_new(void)
{
    struct piece net = {.n = 0}, conv = layer_new("conv1", "Convolution");
    struct piece relu = layer_new("relu1", "ReLU");
    struct piece w = blob_new(DIMS, 4, SIX, 6), b = blob_new(LONE, 1, TWO, 2);
    piece_text(&net, 1, "small");
    piece_in(&conv, 7, &w);
    piece_in(&conv, 7, &b);
    piece_in(&net, 100, &conv);
    piece_in(&net, 100, &relu);
    return net;
}

/* An inner product as V1 has it. */
static struct piece small_v1(void)
{
    struct piece net = {.n = 0}, ip = layer_v1("ip1", 14), relu = layer_v1("relu1", 18);
    struct piece w = blob_old(TALL, SIX, 6);
    piece_text(&net, 1, "small");
    piece_in(&ip, 6, &w);
    piece_in(&net, 2, &ip);
    piece_in(&net, 2, &relu);
    return net;
}

static void expect_blob(const struct caffe_blob *blob, const char *shape, const float *data)
{
    float copy[8];
    char text[64];
    assert_string_equal(shape_text(&blob->shape, text, sizeof text), shape);
    assert_in_range(blob->count, 1, 8);
    caffe_blob_copy(blob, copy);
    assert_memory_equal(copy, data, blob->count * sizeof *data);
}

/* ---- reading ---- */

static void test_both_syntaxes(void **state)
{
    (void)state;
    const struct piece fresh = small_new(), v1 = small_v1();
    struct caffe_model model;
    struct err err = {0};
    uint8_t *copy;
    assert_int_equal(parse_model(fresh.at, fresh.n, &model, &copy, &err), OK);
    assert_int_equal(model.n, 2);
    assert_string_equal(model.layer[0].type, "Convolution");
    assert_int_equal(model.layer[0].n, 2);
    expect_blob(&model.layer[0].blob[0], "2x1x3x1", SIX);
    expect_blob(&model.layer[0].blob[1], "2", TWO);
    assert_ptr_equal(caffe_model_find(&model, "conv1"), &model.layer[0]);
    assert_null(caffe_model_find(&model, "relu1")); /* it has no blobs */
    assert_null(caffe_model_find(&model, "conv"));
    caffe_model_release(&model);
    free(copy);
    assert_int_equal(parse_model(v1.at, v1.n, &model, &copy, &err), OK);
    assert_true(model.v1);
    assert_string_equal(model.layer[0].name, "ip1");
    assert_string_equal(model.layer[0].type, "InnerProduct");
    assert_string_equal(model.layer[1].type, "ReLU");
    assert_true(model.layer[0].blob[0].old);
    expect_blob(&model.layer[0].blob[0], "1x1x3x2", SIX);
    caffe_model_release(&model);
    free(copy);
}

static struct piece with_blob(const struct piece *blob)
{
    struct piece net = {.n = 0}, layer = {.n = 0};
    piece_in(&layer, 7, blob); /* the name may come after */
    piece_text(&layer, 1, "conv1");
    piece_in(&net, 100, &layer);
    return net;
}

static void expect_parsed_blob(const struct piece *blob, const char *shape, const float *data)
{
    const struct piece net = with_blob(blob);
    struct caffe_model model;
    struct err err = {0};
    uint8_t *copy;
    if (parse_model(net.at, net.n, &model, &copy, &err) != OK)
        fail_msg("%s", err.text);
    expect_blob(&model.layer[0].blob[0], shape, data);
    caffe_model_release(&model);
    free(copy);
}

/* Numbers each a field, or in two pieces; a shape whose numbers are not packed; differences, too;
 * unknown fields. */
static void test_forms_of_numbers(void **state)
{
    (void)state;
    struct piece blob = {.n = 0}, shape = {.n = 0};
    for (size_t i = 0; i < 2; i++)
        piece_number(&shape, 1, i + 2);
    piece_in(&blob, 7, &shape);
    piece_byte(&blob, 5 * 8 + 5);
    piece_bytes(&blob, &SIX[0], sizeof SIX[0]);
    piece_block(&blob, 5, &SIX[1], 3 * sizeof SIX[0]);
    piece_block(&blob, 6, TWO, sizeof TWO); /* diff */
    piece_block(&blob, 5, &SIX[4], 2 * sizeof SIX[0]);
    piece_text(&blob, 77, "later versions");
    expect_parsed_blob(&blob, "2x3", SIX);

    const double wide[] = {0.5, -1.0, 3.25, 0.1};
    const float narrow[] = {0.5f, -1.0f, 3.25f, 0.1f};
    struct piece doubles = {.n = 0};
    shape.n = 0;
    piece_number(&shape, 1, 4);
    piece_in(&doubles, 7, &shape);
    piece_block(&doubles, 8, wide, 3 * sizeof wide[0]);
    piece_byte(&doubles, 8 * 8 + 1);
    piece_bytes(&doubles, &wide[3], sizeof wide[3]);
    expect_parsed_blob(&doubles, "4", narrow);
}

static void test_what_is_no_number(void **state)
{
    (void)state;
    const uint32_t strange[] = {0x7fc01234u, 0x3f800000u}; /* a NaN with a payload */
    float data[2], back[2];
    memcpy(data, strange, sizeof data);
    struct piece blob = blob_new(LONE, 1, data, 2);
    const struct piece net = with_blob(&blob);
    struct caffe_model model;
    struct err err = {0};
    uint8_t *copy;
    assert_int_equal(parse_model(net.at, net.n, &model, &copy, &err), OK);
    caffe_blob_copy(&model.layer[0].blob[0], back);
    assert_memory_equal(back, strange, sizeof back);
    assert_false(caffe_blob_finite(&model.layer[0].blob[0]));
    caffe_model_release(&model);
    free(copy);
}

static void test_shapes_that_fit(void **state)
{
    (void)state;
    const struct shape old = {4, {1, 1, 10, 64}}, two = {2, {10, 64}}, turned = {2, {64, 10}};
    const struct shape one = {4, {1, 1, 1, 10}}, bias = {1, {10}}, deep = {4, {10, 64, 1, 1}};
    assert_true(caffe_shapes_fit(&old, &two) && caffe_shapes_fit(&two, &old));
    assert_true(caffe_shapes_fit(&one, &bias));
    assert_true(caffe_shapes_fit(&two, &two));
    assert_false(caffe_shapes_fit(&old, &turned));
    assert_false(caffe_shapes_fit(&deep, &two));
    assert_false(caffe_shapes_fit(&two, &bias));
}

/* ---- hostile files ---- */

static void test_blobs_that_are_wrong(void **state)
{
    (void)state;
    struct piece net, blob;
    const uint64_t huge[] = {1u << 30, 1u << 30, 1u << 30, 4}, none[] = {2, 0},
                   negative[] = {(uint64_t)-1}, many[] = {1, 1, 1, 1, 1, 1, 1, 1, 6};
    blob = blob_new(DIMS, 4, SIX, 5);
    net = with_blob(&blob);
    expect_refusal(&net, ERR_INPUT, "layer \"conv1\", blob 0: x.caffemodel: byte ");
    expect_refusal(&net, ERR_INPUT, "2x1x3x1 with 5 numbers");
    blob = blob_new(huge, 4, SIX, 6);
    net = with_blob(&blob);
    expect_refusal(&net, ERR_INPUT, "with 6 numbers");
    blob = blob_new(none, 2, SIX, 0);
    net = with_blob(&blob);
    expect_refusal(&net, ERR_INPUT, "dimension 0");
    blob = blob_new(negative, 1, SIX, 1);
    net = with_blob(&blob);
    expect_refusal(&net, ERR_INPUT, "dimension -1");
    blob = blob_new(many, 9, SIX, 6);
    net = with_blob(&blob);
    expect_refusal(&net, ERR_INPUT, "more than 8 dimensions");
    blob = (struct piece){.n = 0};
    piece_block(&blob, 5, SIX, sizeof SIX);
    net = with_blob(&blob);
    expect_refusal(&net, ERR_INPUT, "without a shape");
    blob = blob_new(LONE, 1, TWO, 2);
    piece_block(&blob, 5, "abc", 3);
    net = with_blob(&blob);
    expect_refusal(&net, ERR_INPUT, "3 bytes do not divide into numbers of 4");
    blob = blob_new(LONE, 1, TWO, 1);
    piece_block(&blob, 8, "12345678", 8);
    net = with_blob(&blob);
    expect_refusal(&net, ERR_INPUT, "both data and double_data");
    blob = (struct piece){.n = 0};
    piece_number(&blob, 5, 3);
    net = with_blob(&blob);
    expect_refusal(&net, ERR_INPUT, "data: expected a length and bytes, not a number");
}

static void test_nets_that_are_wrong(void **state)
{
    (void)state;
    struct piece net = small_new(), layer = layer_v1("ip1", 14), blob, empty = {.n = 0};
    const struct piece twice = small_new();
    piece_bytes(&net, twice.at, twice.n);
    expect_refusal(&net, ERR_INPUT, "layer \"conv1\": given twice");
    net = small_new();
    piece_in(&net, 2, &layer);
    expect_refusal(&net, ERR_INPUT, "both `layer` and `layers`");
    net = (struct piece){.n = 0};
    piece_in(&layer, 1, &empty);
    piece_in(&net, 2, &layer);
    expect_refusal(&net, ERR_UNSUPPORTED, "V0LayerParameter");
    net = (struct piece){.n = 0};
    layer = layer_v1("odd", 40);
    piece_in(&net, 2, &layer);
    expect_refusal(&net, ERR_INPUT, "no type 40");
    net = layer = (struct piece){.n = 0};
    blob = blob_new(LONE, 1, TWO, 2);
    piece_in(&layer, 7, &blob);
    piece_in(&net, 100, &layer);
    expect_refusal(&net, ERR_INPUT, "no name");
    net = layer = (struct piece){.n = 0};
    piece_block(&layer, 1, "a\0b", 3);
    piece_in(&net, 100, &layer);
    expect_refusal(&net, ERR_INPUT, "zero byte");
    net = (struct piece){.n = 0};
    expect_refusal(&net, ERR_INPUT, "no layers");
    piece_text(&net, 1, "only a name");
    expect_refusal(&net, ERR_INPUT, "no layers");
    net = (struct piece){.n = 0};
    piece_bytes(&net, "\211HDF\r\n\032\n", 8);
    expect_refusal(&net, ERR_UNSUPPORTED, "HDF5");
    net = (struct piece){.n = 0};
    piece_bytes(&net, "name: \"text\"\nlayer {\n}\n", 23);
    expect_refusal(&net, ERR_INPUT, "byte ");
}

static void test_bytes_that_are_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *words;
    } cases[] = {
        {"\x0a", 1, "byte 1: a number is cut short"},
        {"\x0a\x05small", 6, "byte 0: field 1 has 5 bytes, 4 are left"},
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "bytes, 0 are left"},
        {"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 12, "longer than 64 bits"},
        {"\x80", 1, "byte 0: a number is cut short"},
        {"\x02\x00", 2, "there is no field 0"},
        {"\x0b", 1, "there is no kind 3"},
        {"\x0f", 1, "there is no kind 7"},
        {"\xfa\xff\xff\xff\x7f\x00", 6, "there is no field"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct piece net = {.n = 0};
        piece_bytes(&net, cases[i].bytes, cases[i].n);
        expect_refusal(&net, ERR_INPUT, cases[i].words);
    }
}

/* Wherever the file ends, or one byte is another: read, or refused with a place. */
static void test_every_byte(void **state)
{
    (void)state;
    const struct piece nets[] = {small_new(), small_v1()};
    size_t refusals = 0;
    for (size_t which = 0; which < 2; which++)
        for (size_t i = 0; i < nets[which].n; i++)
            for (unsigned change = 0; change < 257; change++) {
                struct piece net = nets[which];
                struct caffe_model model;
                struct err err = {0};
                uint8_t *copy;
                if (change == 256)
                    net.n = i;
                else
                    net.at[i] = (uint8_t)change;
                int rc = parse_model(net.at, net.n, &model, &copy, &err);
                if (rc == OK) {
                    Caffe__NetParameter *param;
                    if (caffe_model_net(&model, &param, &err) == OK)
                        caffe__net_parameter__free_unpacked(param, NULL);
                    caffe_model_release(&model);
                    free(copy);
                } else {
                    assert_true(rc == ERR_INPUT || rc == ERR_UNSUPPORTED);
                    assert_non_null(strstr(err.text, "x.caffemodel"));
                    refusals++;
                }
            }
    assert_true(refusals > 1000);
}

/* Many layers in few bytes do not take much memory. */
static void test_too_many_layers(void **state)
{
    (void)state;
    size_t n = 3 * (CAFFE_LAYERS_MAX + 1);
    uint8_t *bytes = malloc(n);
    struct caffe_model model;
    struct err err = {0};
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i += 3)
        memcpy(bytes + i, "\xa2\x06\x00", 3);
    assert_int_equal(caffe_model_parse("x", bytes, n, &model, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "more than 16384 layers"));
    assert_int_equal(caffe_model_parse("x", bytes, n - 3, &model, &err), OK);
    caffe_model_release(&model);
    free(bytes);
}

/* ---- the net, without its numbers ---- */

static Caffe__NetParameter *net_of(const struct piece *net)
{
    struct caffe_model model;
    struct err err = {0};
    uint8_t *copy;
    Caffe__NetParameter *param = NULL;
    assert_int_equal(parse_model(net->at, net->n, &model, &copy, &err), OK);
    if (caffe_model_net(&model, &param, &err) != OK)
        fail_msg("%s", err.text);
    caffe_model_release(&model);
    free(copy);
    return param;
}

static void test_the_net_without_numbers(void **state)
{
    (void)state;
    struct piece net = small_new();
    Caffe__NetParameter *param = net_of(&net);
    assert_string_equal(param->name, "small");
    assert_int_equal(param->n_layer, 2);
    assert_int_equal(param->layer[0]->n_blobs, 2);
    assert_int_equal(param->layer[0]->blobs[0]->n_data, 0);
    assert_int_equal(param->layer[0]->blobs[0]->shape->n_dim, 4);
    assert_int_equal(param->layer[0]->blobs[0]->shape->dim[2], 3);
    caffe__net_parameter__free_unpacked(param, NULL);
    net = small_v1();
    param = net_of(&net);
    assert_int_equal(param->n_layers, 0);
    assert_string_equal(param->layer[0]->type, "InnerProduct");
    assert_int_equal(param->layer[0]->blobs[0]->height, 3);
    assert_int_equal(param->layer[0]->blobs[0]->n_data, 0);
    caffe__net_parameter__free_unpacked(param, NULL);
}

/* As Caffe writes a net that trains: phases, spent rules, Splits. */
static void test_a_snapshot_is_settled(void **state)
{
    (void)state;
    struct piece net = {.n = 0}, rule = {.n = 0};
    struct piece data = layer_new("data", "Input"), split = layer_new("data_split", "Split");
    struct piece again = layer_new("again", "Split"), sum = layer_new("sum", "Eltwise");
    piece_number(&rule, 1, 0); /* TRAIN */
    piece_text(&data, 4, "data");
    piece_in(&data, 8, &rule);
    piece_text(&split, 3, "data");
    piece_text(&split, 4, "data_0");
    piece_text(&split, 4, "data_1");
    piece_text(&again, 3, "data_1");
    piece_text(&again, 4, "again_0");
    piece_text(&sum, 3, "data_0");
    piece_text(&sum, 3, "again_0");
    piece_text(&sum, 4, "sum");
    struct piece *const all[] = {&data, &split, &again, &sum};
    for (size_t i = 0; i < 4; i++) {
        piece_number(all[i], 10, 0);
        piece_in(&net, 100, all[i]);
    }
    Caffe__NetParameter *param = net_of(&net);
    assert_int_equal(param->n_layer, 2);
    assert_int_equal(param->layer[0]->n_include, 0);
    assert_false(param->layer[0]->has_phase);
    assert_string_equal(param->layer[1]->name, "sum");
    assert_string_equal(param->layer[1]->bottom[0], "data");
    assert_string_equal(param->layer[1]->bottom[1], "data");
    caffe__net_parameter__free_unpacked(param, NULL);
}

/* Numbers of fields as Caffe's schema has them. Level by level from the layer: fields that hold
 * messages, then one that holds a word. */
static const struct {
    unsigned v1, path[4];
    uint64_t value;
    const char *phrase;
} WORDS[] = {
    {0, {110, 1}, 7, "layer \"y\": eltwise_param.operation: 7 is none of PROD, SUM, MAX"},
    {0, {121, 1}, 7, "layer \"y\": pooling_param.pool: 7 is none of MAX, AVE, STOCHASTIC"},
    {0,
     {118, 4},
     7,
     "layer \"y\": lrn_param.norm_region: 7 is none of ACROSS_CHANNELS, WITHIN_CHANNEL"},
    {0,
     {117, 3, 8},
     9,
     "layer \"y\": inner_product_param.weight_filler.variance_norm: 9 is none of "},
    {0, {123, 2}, 7, "layer \"y\": relu_param.engine: 7 is none of DEFAULT, CAFFE, CUDNN"},
    {0, {114, 1}, 9, "layer \"y\": hinge_loss_param.norm: 9 is none of L1, L2"},
    {0, {101, 3}, 9, "layer \"y\": loss_param.normalization: 9 is none of "},
    {0, {10}, 9, "layer \"y\": phase: 9 is none of TRAIN, TEST"},
    {0, {10}, (uint64_t)-1, "layer \"y\": phase: -1 is none of TRAIN, TEST"},
    {0, {8, 1}, 9, "layer \"y\": include[0].phase: 9 is none of TRAIN, TEST"},
    {1, {1002}, 2, "layers \"y\": blob_share_mode: 2 is none of STRICT, PERMISSIVE"},
};

static struct piece with_text(size_t i)
{
    struct piece net = {.n = 0}, field = {.n = 0};
    struct piece layer = WORDS[i].v1 ? layer_v1("y", 18) : layer_new("y", "ReLU");
    size_t depth = 0;
    while (depth < 4 && WORDS[i].path[depth])
        depth++;
    piece_number(&field, WORDS[i].path[depth - 1], WORDS[i].value);
    while (--depth > 0) {
        const struct piece inner = field;
        field = (struct piece){.n = 0};
        piece_in(&field, WORDS[i].path[depth - 1], &inner);
    }
    piece_bytes(&layer, field.at, field.n);
    piece_in(&net, WORDS[i].v1 ? 2 : 100, &layer);
    return net;
}

static void test_words_there_are_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        const struct piece net = with_text(i);
        struct caffe_model model;
        struct err err = {0};
        uint8_t *copy;
        Caffe__NetParameter *param;
        assert_int_equal(parse_model(net.at, net.n, &model, &copy, &err), OK);
        assert_int_equal(caffe_model_net(&model, &param, &err), ERR_INPUT);
        assert_memory_equal(err.text, "x.caffemodel: ", 14);
        if (strncmp(err.text + 14, WORDS[i].phrase, strlen(WORDS[i].phrase)) != 0)
            fail_msg("\"%s\", not \"%s\"", err.text, WORDS[i].phrase);
        caffe_model_release(&model);
        free(copy);
    }
}

static void test_a_long_description(void **state)
{
    (void)state;
    size_t n = (1 << 20) + 200, at = 0;
    uint8_t *bytes = calloc(1, n);
    struct caffe_model model;
    struct err err = {0};
    Caffe__NetParameter *param;
    assert_non_null(bytes);
    /* layer { name: "aaa..." }, 2^20 + 100 characters: lengths of three bytes */
    size_t text = (1 << 20) + 100, layer = text + 4;
    const uint8_t head[] = {0xa2,
                            0x06,
                            (uint8_t)(layer | 128),
                            (uint8_t)(layer >> 7 | 128),
                            (uint8_t)(layer >> 14),
                            0x0a,
                            (uint8_t)(text | 128),
                            (uint8_t)(text >> 7 | 128),
                            (uint8_t)(text >> 14)};
    memcpy(bytes, head, sizeof head);
    at = sizeof head;
    memset(bytes + at, 'a', text);
    assert_int_equal(caffe_model_parse("x", bytes, at + text, &model, &err), OK);
    assert_int_equal(caffe_model_net(&model, &param, &err), ERR_UNSUPPORTED);
    caffe_model_release(&model);
    free(bytes);
}

/* ---- writing ---- */

static bool give_tensor(void *user, size_t i, size_t k, struct caffe_tensor *out)
{
    (void)user;
    if (i != 0 || k > 1)
        return false;
    *out = k == 0 ? (struct caffe_tensor){.shape = {4, {2, 1, 3, 1}}, .data = SIX}
                  : (struct caffe_tensor){.shape = {4, {1, 1, 1, 2}}, .old = true, .data = TWO};
    return true;
}

/* The bytes, by hand from protobuf's rules. */
static void test_written_bytes(void **state)
{
    const struct folder *folder = *state;
    static uint8_t bytes[FOLDER_BYTES_MAX];
    struct piece net = small_new(), wanted = {.n = 0}, conv = layer_new("conv1", "Convolution");
    struct piece relu = layer_new("relu1", "ReLU"), w = {.n = 0}, b = {.n = 0};
    const struct caffe_blobs blobs = {give_tensor, NULL};
    Caffe__NetParameter *param = net_of(&net);
    char path[256];
    struct err err = {0};
    piece_bytes(&w, "\x3a\x06\x0a\x04\x02\x01\x03\x01\x2a\x18", 10);
    piece_bytes(&w, SIX, sizeof SIX);
    piece_bytes(&b, "\x08\x01\x10\x01\x18\x01\x20\x02\x2a\x08", 10);
    piece_bytes(&b, TWO, sizeof TWO);
    piece_text(&wanted, 1, "small");
    piece_in(&conv, 7, &w);
    piece_in(&conv, 7, &b);
    piece_in(&wanted, 100, &conv);
    piece_in(&wanted, 100, &relu);
    folder_file(folder, "out.caffemodel", path);
    if (caffe_model_write(param, &blobs, real_disk(), path, &err) != OK)
        fail_msg("%s", err.text);
    size_t n = folder_get(folder, "out.caffemodel", bytes);
    assert_int_equal(n, wanted.n);
    assert_memory_equal(bytes, wanted.at, n);
    caffe__net_parameter__free_unpacked(param, NULL);
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
        cmocka_unit_test(test_both_syntaxes),
        cmocka_unit_test(test_forms_of_numbers),
        cmocka_unit_test(test_what_is_no_number),
        cmocka_unit_test(test_shapes_that_fit),
        cmocka_unit_test(test_blobs_that_are_wrong),
        cmocka_unit_test(test_nets_that_are_wrong),
        cmocka_unit_test(test_bytes_that_are_wrong),
        cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_too_many_layers),
        cmocka_unit_test(test_the_net_without_numbers),
        cmocka_unit_test(test_a_snapshot_is_settled),
        cmocka_unit_test(test_words_there_are_not),
        cmocka_unit_test(test_a_long_description),
        cmocka_unit_test(test_written_bytes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
