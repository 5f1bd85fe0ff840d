/* A token bucket: its long-term rate, and the cost of sleeping too long. */
#include "real/pacer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MS INT64_C(1000000)

/* Pieces go whenever it is open, looked at every so many ms: bytes that went in ten seconds. */
static double bytes_moved(double mbit, size_t piece, int64_t look_ms)
{
    struct pacer p;
    double bytes = 0;
    pacer_init(&p, mbit, 5 * MS);
    for (int64_t t = 5 * MS; t < 10005 * MS; t += look_ms * MS)
        while (pacer_is_open(&p, t)) {
            pacer_take(&p, piece, t);
            bytes += (double)piece;
        }
    return bytes;
}

static void test_the_rate_holds(void **state)
{
    (void)state;
    /* 10 Mbit/s are 12,500,000 bytes in ten seconds, of which 1448 of 1514 are ours. */
    double ours = 12500000.0 * 1448 / 1514;
    const size_t piece[] = {100, 1448, 65536, 262144};
    for (int i = 0; i < 4; i++)
        for (int64_t look = 1; look <= 16; look *= 4) {
            double got = bytes_moved(10, piece[i], look);
            assert_true(got > 0.99 * ours && got < 1.01 * ours + 2 * (double)piece[i]);
        }
    assert_true(bytes_moved(1000, 65536, 1) > 99 * ours &&
                bytes_moved(1000, 65536, 1) < 101 * ours);
}

static void test_no_limit(void **state)
{
    struct pacer p;
    (void)state;
    pacer_init(&p, 0, 0);
    pacer_take(&p, 1 << 30, 1);
    assert_true(pacer_is_open(&p, 1) && pacer_opens(&p) <= 1);
}

static void test_when_it_opens(void **state)
{
    struct pacer p;
    (void)state;
    pacer_init(&p, 8 * 1514.0 / 1448, 0); /* a byte of ours a microsecond */
    assert_true(pacer_is_open(&p, 0));
    pacer_take(&p, 5000, 0);
    assert_true(!pacer_is_open(&p, 1));
    int64_t opens = pacer_opens(&p);
    assert_true(opens >= 5 * MS && opens < 5 * MS + 10);
    assert_true(!pacer_is_open(&p, opens - 1000) && pacer_is_open(&p, opens));
    /* An hour's sleep is worth twenty milliseconds. */
    assert_true(pacer_is_open(&p, 3600000 * MS));
    pacer_take(&p, 20000 + 1000, 3600000 * MS);
    opens = pacer_opens(&p) - 3600000 * MS;
    assert_true(opens > MS - 1000 && opens < MS + 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_rate_holds),
        cmocka_unit_test(test_no_limit),
        cmocka_unit_test(test_when_it_opens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
