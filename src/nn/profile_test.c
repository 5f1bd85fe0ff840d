#include "nn/fixture.h"
#include "nn/profile.h"
#include "nn/summary.h"

#include <stdio.h>

static const char net_text[] =
    "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n"
    " convolution_param { num_output: 2 kernel_size: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool'\n"
    " pooling_param { pool: AVE global_pooling: true } }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'\n"
    " inner_product_param { num_output: 4 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

static const struct shape image = {3, {3, 9, 8}};

/* The calls of a probe: "+1" a layer begins, "-1" it ends; "<" after it in backward. */
struct story {
    char text[256];
};

static void record_time(struct story *story, char what, size_t layer, bool backward)
{
    size_t used = strlen(story->text);
    snprintf(story->text + used, sizeof story->text - used, "%c%zu%s", what, layer,
             backward ? "<" : "");
}

static void on_begin(void *user, size_t layer, bool backward)
{
    record_time(user, '+', layer, backward);
}

static void on_end(void *user, size_t layer, bool backward)
{
    record_time(user, '-', layer, backward);
}

static void test_probe_is_called_for_each_layer(void **state)
{
    (void)state;
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture f;
        struct story story = {""};
        const struct net_probe probe = {on_begin, on_end, &story};
        fixture_open(&f, net_text, PHASE_TRAIN, 5, image, fixture_kernels[k]);
        fixture_gradient(&f);
        assert_string_equal(story.text, "");
        net_set_probe(f.net, &probe);
        fixture_forward(&f);
        assert_string_equal(story.text, "+0-0+1-1+2-2+3-3+4-4");
        story.text[0] = '\0';
        assert_int_equal(net_backward(f.net, &f.x, &f.dx, NULL), OK);
        assert_string_equal(story.text, "+4<-4<+3<-3<+2<-2<+1<-1<");
        net_set_probe(f.net, NULL);
        fixture_gradient(&f);
        assert_string_equal(story.text, "+4<-4<+3<-3<+2<-2<+1<-1<");
        fixture_close(&f);
    }
}

/* By hand: 5 records, 2 outputs of 7×6 pixels from 27 values, 4 from 2; × 2 for a multiply-add;
 * twice that backward, but where the records enter. */
static void test_operations(void **state)
{
    static const double forward[] = {0, 5 * 2 * 42 * 27 * 2, 0, 5 * 4 * 2 * 2, 0},
                        backward[] = {0, 5 * 2 * 42 * 27 * 2, 0, 5 * 4 * 2 * 2 * 2, 0};
    (void)state;
    struct fixture f;
    double sum = 0;
    fixture_open(&f, net_text, PHASE_TRAIN, 5, image, &kernels_dnnl);
    assert_int_equal(net_layer_count(f.net), 5);
    for (size_t i = 0; i < 5; i++) {
        assert_true(net_layer_flops(f.net, i, false) == forward[i]);
        assert_true(net_layer_flops(f.net, i, true) == backward[i]);
        sum += forward[i] + backward[i];
    }
    assert_true(net_flops(f.net) == sum);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probe_is_called_for_each_layer),
        cmocka_unit_test(test_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
