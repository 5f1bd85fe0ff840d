/* Layers and ranges that slices cannot have are refused by name, of a slice and of the whole
 * net, as the driver makes it. */
#include "nn/sliced_fixture.h"

static const char row[] = DATA INNER("a", "data", "h", 13) UNIT("Sigmoid", "h")
    INNER("b", "h", "g", 9) UNIT("ReLU", "g") UNIT("Dropout", "g") INNER("c", "g", "ip", 5) LOSS;
static void test_layers_that_slices_cannot_share_out(void **state)
{
    (void)state;
    static const struct fixture_refusal list[] = {
        {DATA INNER("a", "data", "ip", 3) LOSS, ERR_INPUT,
         "layer \"a\": slices: 4 are more than its 3 outputs"},
        {DATA "layer { name: 'k' type: 'Deconvolution' bottom: 'data' top: 'k' "
              "convolution_param { num_output: 8 kernel_size: 3 } }" INNER("a", "k", "ip", 8) LOSS,
         ERR_UNSUPPORTED, "layer \"k\": slices: weights of type \"Deconvolution\""},
        {DATA "layer { name: 'k' type: 'Convolution' bottom: 'data' top: 'k' "
              "convolution_param { num_output: 8 kernel_size: 3 group: 2 } }" INNER("a", "k", "ip",
                                                                                    8) LOSS,
         ERR_INPUT, "layer \"k\": slices: 4 are more than its 2 groups"},
        {STEPS UNITS("u", "LSTM", "recurrent_param", "bottom: 'x'", 3) INNER("c", "u", "ip", 5)
             LOSS,
         ERR_INPUT, "layer \"u\": slices: 4 are more than its 3 units"},
        {STEPS "layer { name: 'e' type: 'Embed' bottom: 'x' top: 'e' embed_param { num_output: 3\n"
               " input_dim: 9 } }\n" LOSS,
         ERR_UNSUPPORTED, "layer \"e\": bottom \"x\""},
        {DATA "layer { name: 'e' type: 'Embed' bottom: 'label' top: 'e' embed_param {\n"
              " num_output: 3 input_dim: 9 } }\n" LOSS,
         ERR_INPUT, "layer \"e\": slices: 4 are more than its 3 outputs"},
        {DATA "layer { name: 'a' type: 'InnerProduct' bottom: 'data' top: 'ip' "
              "inner_product_param { num_output: 8 axis: 3 } }" LOSS,
         ERR_UNSUPPORTED, "layer \"a\": slices: inner_product_param.axis: 3"},
        {DATA "layer { name: 'a' type: 'InnerProduct' bottom: 'data' top: 'a' param { name: 'w' } "
              "inner_product_param { num_output: 40 bias_term: false } }"
              "layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'ip' param { name: 'w' } "
              "inner_product_param { num_output: 40 bias_term: false } }" LOSS,
         ERR_UNSUPPORTED, "layer \"b\": slices: weights that layers share by name (\"w\")"},
    };
    const size_t index[] = {0, 3, SLICE_ALL}; /* the whole net, as the driver makes it, too */
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (size_t k = 0; k < sizeof index / sizeof *index; k++) {
            struct net *net = NULL;
            struct err err = {0};
            const struct sliced_net text = {list[i].net, NULL, NULL};
            int rc = try_slice(&text, index[k], 4, &kernels_ref, &net, &err);
            if (rc != list[i].status || !strstr(err.text, list[i].expected))
                fail_msg("status %d, \"%s\": not %d, \"%s\"", rc, err.text, list[i].status,
                         list[i].expected);
        }
}

static void test_ranges_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        struct sliced_net net;
        size_t count;
        enum status status;
        const char *phrase;
    } list[] = {
        {{row, "z", NULL}, 2, ERR_INPUT, "slices_from: the net has no layer \"z\""},
        {{row, "a", "y"}, 2, ERR_INPUT, "slices_to: the net has no layer \"y\""},
        {{row, "c", "a"}, 2, ERR_INPUT, "slices_to: layer \"a\" is before \"c\""},
        {{row, "c", NULL}, 7, ERR_INPUT, "slices: 7 are more than the 6 records of a batch"},
        {{row, "c", NULL}, 6, ERR_INPUT, "slices: 6 are more than its 5 outputs"},
        {{DATA INNER("a", "data", "ip", 7) LOSS INNER("b", "ip", "b", 7), "b", NULL},
         2,
         ERR_UNSUPPORTED,
         "layer \"loss\": slices: a loss or an Accuracy before"},
        {{DATA INNER("a", "data", "ip", 7) LOSS
          "layer { name: 't' type: 'InnerProduct' bottom: 'ip' top: 't' loss_weight: 1 "
          "inner_product_param { num_output: 4 } }\n",
          NULL, NULL},
         2,
         ERR_UNSUPPORTED,
         "layer \"t\": slices: loss_weight"},
        {{DATA "layer { name: 'a' type: 'InnerProduct' bottom: 'data' top: 'a' param { name: 'w' } "
               "inner_product_param { num_output: 40 bias_term: false } }"
               "layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'ip' param { name: 'w' } "
               "inner_product_param { num_output: 40 bias_term: false } }" LOSS,
          "b", "b"},
         2,
         ERR_UNSUPPORTED,
         "layer \"b\": slices: weights that layers share by name"},
    };
    const size_t index[] = {0, 1, SLICE_ALL};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (size_t k = 0; k < sizeof index / sizeof *index; k++) {
            struct net *net = NULL;
            struct err err = {0};
            int rc = try_slice(&list[i].net, index[k], list[i].count, &kernels_ref, &net, &err);
            if (rc != (int)list[i].status || !strstr(err.text, list[i].phrase))
                fail_msg("status %d, \"%s\": not \"%s\"", rc, err.text, list[i].phrase);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_that_slices_cannot_share_out),
        cmocka_unit_test(test_ranges_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
