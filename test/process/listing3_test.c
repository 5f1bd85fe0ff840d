/* SparkNet's Listing 3 as a program: two rounds on images of its size, in the files that it opens.
 */
#include "tiny_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

enum { SIDE = 28, CLASSES = 10, TRAIN = 400, TEST = 100 };

/* Class c is a bright square, at one of ten positions. */
static uint8_t pixel_of(uint32_t i, uint32_t c, int row, int col)
{
    int top = 2 + (int)(c / 4) * 8, left = (int)(c % 4) * 7;
    bool inside = row >= top && row < top + 6 && col >= left && col < left + 6;
    uint64_t key = (uint64_t)i << 16 | (uint64_t)(row * SIDE + col);
    return (uint8_t)(rng_below(7, 3, key, 60) + (inside ? 180 : 0));
}

static void write_set(const struct tiny *t, const char *name, uint32_t count)
{
    char file[64];
    snprintf(file, sizeof file, "%s-images-idx3-ubyte.gz", name);
    FILE *images = tiny_open(t, file); /* an uncompressed file is read directly */
    snprintf(file, sizeof file, "%s-labels-idx1-ubyte.gz", name);
    FILE *labels = tiny_open(t, file);
    const uint32_t header[] = {0x803, count, SIDE, SIDE};
    for (int i = 0; i < 4; i++)
        tiny_put_be32(images, header[i]);
    tiny_put_be32(labels, 0x801);
    tiny_put_be32(labels, count);
    for (uint32_t i = 0; i < count; i++) {
        fputc((int)(i % CLASSES), labels);
        for (int row = 0; row < SIDE; row++)
            for (int col = 0; col < SIDE; col++)
                fputc(pixel_of(i, i % CLASSES, row, col), images);
    }
    fclose(images);
    fclose(labels);
}

static void test_two_rounds(void **state)
{
    (void)state;
    if (access(TEST_BUILD "/listing3", X_OK) != 0) {
        print_message("listing3 is not built\n");
        skip();
    }
    struct tiny t;
    char command[512], line[256];
    double error = 100;
    int rounds = 0, n;
    tiny_create(&t);
    write_set(&t, "train", TRAIN);
    write_set(&t, "t10k", TEST);
    snprintf(command, sizeof command, "OMP_WAIT_POLICY=passive '%s/listing3' '%s' 2", TEST_BUILD,
             t.folder);
    FILE *text = popen(command, "r");
    assert_non_null(text);
    while (fgets(line, sizeof line, text))
        rounds += sscanf(line, "round %d test error %lf", &n, &error) == 2 && n == rounds + 1;
    assert_int_equal(pclose(text), 0);
    assert_int_equal(rounds, 2);
    assert_true(error < 50);
    tiny_remove(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_rounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
