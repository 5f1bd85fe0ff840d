/* Every optimizer against PyTorch (optim.py wrote optim.golden): where it takes five weights in 50
 * steps, with rates that fall and segments that learn at their own pace. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/file.h"
#include "golden_hash.h"
#include "job/text.h"
#include "optim/optim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 50, WEIGHTS = 3, BIASES = 2, ALL = WEIGHTS + BIASES, START = 100 };

/* Caffe's words for the settings of optim.py. */
static const struct example {
    const char *name, *solver;
} examples[] = {
    {"sgd", "type: 'SGD' base_lr: 0.1 lr_policy: 'fixed' momentum: 0.9 weight_decay: 0.01"},
    {"nesterov",
     "type: 'Nesterov' base_lr: 0.1 lr_policy: 'fixed' momentum: 0.9 weight_decay: 0.01"},
    {"adagrad", "type: 'AdaGrad' base_lr: 0.3 lr_policy: 'step' gamma: 0.5 stepsize: 8 delta: 1e-3 "
                "weight_decay: 0.01"},
    {"rmsprop", "type: 'RMSProp' base_lr: 0.05 lr_policy: 'step' gamma: 0.5 stepsize: 8 "
                "rms_decay: 0.9 delta: 0.01 weight_decay: 0.01"},
    {"adadelta", "type: 'AdaDelta' base_lr: 1 lr_policy: 'step' gamma: 0.5 stepsize: 8 "
                 "momentum: 0.9 delta: 1e-3 weight_decay: 0.01"},
    {"clipped", "type: 'SGD' base_lr: 0.1 lr_policy: 'fixed' momentum: 0.9 weight_decay: 0.01 "
                "clip_gradients: 1.5"},
    {"clipped_of_four", "type: 'SGD' base_lr: 0.1 lr_policy: 'fixed' momentum: 0.9 "
                        "weight_decay: 0.01 clip_gradients: 5 iter_size: 4"},
    {"l1", "type: 'SGD' base_lr: 0.1 lr_policy: 'fixed' momentum: 0.9 weight_decay: 0.2 "
           "regularization_type: 'L1'"},
    {"l1_adadelta", "type: 'AdaDelta' base_lr: 1 lr_policy: 'fixed' momentum: 0.9 delta: 1e-3 "
                    "weight_decay: 0.2 regularization_type: 'L1'"},
    {"adam", "type: 'Adam' base_lr: 0.1 lr_policy: 'step' gamma: 0.5 stepsize: 8 momentum: 0.9 "
             "momentum2: 0.999 delta: 0.05 weight_decay: 0.01"},
    {"adamw", "type: 'AdamW' base_lr: 0.1 lr_policy: 'step' gamma: 0.5 stepsize: 8 momentum: 0.8 "
              "momentum2: 0.98 delta: 0.05 weight_decay: 0.1"},
    {"lars", "type: 'LARS' base_lr: 2 lr_policy: 'step' gamma: 0.5 stepsize: 8 momentum: 0.9 "
             "trust: 0.02 weight_decay: 0.01"},
    {"lars_as_it_comes", "type: 'LARS' base_lr: 8 lr_policy: 'fixed' momentum: 0.9"},
    {"adamw_as_it_comes", "type: 'AdamW' base_lr: 0.01 lr_policy: 'fixed'"},
};

static char *golden; /* the whole file */

static void expected_values(const char *name, double want[STEPS * ALL])
{
    char key[64];
    snprintf(key, sizeof key, "%s %d ", name, STEPS * ALL);
    char *line = golden;
    while (line && strncmp(line, key, strlen(key)) != 0) {
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    if (!line)
        fail_msg("optim.golden has no %s", key);
    char *at = line + strlen(key);
    for (size_t i = 0; i < STEPS * ALL; i++)
        want[i] = strtod(at, &at);
}

static struct segments make_table(struct arena *arena)
{
    struct segments table = {0};
    struct shape w = {1, {WEIGHTS}}, b = {1, {BIASES}};
    assert_non_null(segments_add(&table, arena, "ip.0", &w, 1, 1));
    assert_non_null(segments_add(&table, arena, "ip.1", &b, 2, 0));
    return table;
}

static size_t weight_index(uint32_t i)
{
    return i < WEIGHTS ? i : SEGMENT_ALIGN + i - WEIGHTS;
}

static void follow_example(struct optim *optim, const struct segments *table, struct arena *arena,
                           const char *name)
{
    double want[STEPS * ALL];
    struct vec x, dx;
    expected_values(name, want);
    assert_int_equal(vec_init(&x, arena, table->total), OK);
    assert_int_equal(vec_init(&dx, arena, table->total), OK);
    for (uint32_t i = 0; i < ALL; i++)
        x.at[weight_index(i)] = hash_unit(START, i) * 4;
    for (uint32_t t = 0; t < STEPS; t++) {
        for (uint32_t i = 0; i < ALL; i++)
            dx.at[weight_index(i)] = x.at[weight_index(i)] / 2 + hash_unit(t, i) * 4;
        optim_update(optim, t, &x, &dx, table);
        for (uint32_t i = 0; i < ALL; i++) {
            double value = (double)x.at[weight_index(i)], here = want[t * ALL + i];
            if (!(fabs(value - here) <= 1e-6 * fmax(1, fabs(here))))
                fail_msg("%s, step %u: weight %u is %.9g, PyTorch says %.9g", name, t, i, value,
                         here);
        }
    }
}

static void test_example(void **state)
{
    const struct example *example = *state;
    struct err err = {0};
    ProtobufCMessage *msg = NULL;
    if (text_parse(&caffe__solver_parameter__descriptor, "solver", example->solver,
                   strlen(example->solver), &msg, &err) != OK)
        fail_msg("%s", err.text);
    struct arena arena;
    struct optim optim;
    arena_init(&arena);
    struct segments table = make_table(&arena);
    if (optim_init(&optim, (Caffe__SolverParameter *)msg, table.total, &arena, &err) != OK)
        fail_msg("%s", err.text);
    follow_example(&optim, &table, &arena, example->name);
    arena_release(&arena);
    protobuf_c_message_free_unpacked(msg, NULL);
}

enum { EXAMPLES = sizeof examples / sizeof *examples };

int main(void)
{
    struct file_bytes file;
    struct err err = {0};
    if (file_read(TEST_ROOT "/test/golden/optim.golden", 1 << 20, &file, &err) != OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    golden = (char *)file.data;
    static struct example own[EXAMPLES];
    struct CMUnitTest tests[EXAMPLES];
    memcpy(own, examples, sizeof own);
    for (size_t i = 0; i < EXAMPLES; i++)
        tests[i] = (struct CMUnitTest){own[i].name, test_example, NULL, NULL, &own[i]};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    file_release(&file);
    return failed;
}
