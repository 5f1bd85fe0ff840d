/* Random records: their inputs, and their guarantees. */
#include "data/source_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

enum { CLASSES = 7, FLOATS = 2 * 3 * 5 };

static const struct shape image = {3, {2, 3, 5}};

static struct source *make_source(const struct shape *shape, uint64_t seed)
{
    struct source *source;
    struct err err = {0};
    assert_int_equal(source_random_open(shape, CLASSES, seed, &source, &err), OK);
    return source;
}

static const float *values_of(const struct source *source, size_t i)
{
    struct raw raw;
    struct err err = {0};
    assert_int_equal(source->ops->read(source, i, NULL, &raw, &err), OK);
    assert_int_equal(raw.form, RAW_FLOATS);
    assert_int_equal(raw.C * raw.H * raw.W, shape_count(&source->shape));
    return raw.at;
}

/* Uniform: n draws have a mean within 5 standard deviations, sqrt(1 / 12 n), of a half; each label
 * is as frequent within 5 of sqrt(n p (1 - p)). */
static void test_uniform(void **state)
{
    (void)state;
    struct source *s = make_source(&image, 1);
    assert_int_equal(s->count, SOURCE_RANDOM_RECORDS);
    assert_int_equal(s->classes, CLASSES);
    assert_true(shape_equal(&s->shape, &image));
    double sum = 0;
    size_t label[CLASSES] = {0};
    for (size_t i = 0; i < s->count; i++) {
        const float *x = values_of(s, i);
        for (size_t k = 0; k < FLOATS; k++)
            assert_true(x[k] >= 0.0f && x[k] < 1.0f);
        sum += (double)x[0];
        assert_true(s->ops->label(s, i) < CLASSES);
        label[s->ops->label(s, i)]++;
    }
    assert_true(fabs(sum / 4096 - 0.5) < 5 * 0.00451);
    for (size_t c = 0; c < CLASSES; c++)
        assert_true(fabs((double)label[c] - 585.1) < 5 * 22.4);
    source_close(s);
}

static void test_a_function_of_the_seed(void **state)
{
    (void)state;
    struct source *a = make_source(&image, 1), *b = make_source(&image, 1),
                  *other = make_source(&image, 2);
    size_t same = 0;
    for (size_t i = 0; i < a->count; i += 97) {
        assert_memory_equal(values_of(a, i), values_of(b, i), FLOATS * sizeof(float));
        assert_memory_not_equal(values_of(a, i), values_of(other, i), FLOATS * sizeof(float));
        assert_int_equal(a->ops->label(a, i), b->ops->label(b, i));
        same += a->ops->label(a, i) == other->ops->label(other, i);
    }
    assert_true(same < 30); /* of 43, a seventh is expected */
    assert_true(a->hash == b->hash && a->hash != other->hash);
    source_close(a);
    source_close(b);
    source_close(other);
}

/* The last one ends where the memory does: the sanitizers watch. */
static void test_records_of_one_dimension(void **state)
{
    (void)state;
    struct source *s = make_source(&(struct shape){1, {11}}, 3);
    assert_int_equal(s->shape.n, 3);
    assert_int_equal(s->shape.dim[0], 11);
    const float *last = values_of(s, s->count - 1);
    assert_true(last[10] >= 0.0f);
    assert_memory_not_equal(values_of(s, 0), values_of(s, 1), 11 * sizeof(float));
    source_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_a_function_of_the_seed),
        cmocka_unit_test(test_records_of_one_dimension),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
