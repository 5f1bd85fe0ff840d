/* How long a driver waits for workers. */
#include "train/driver.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* The host's word counts before the job's; what does not fit into the world's clock is for long. */
static void test_driver_patience_is_bounded(void **state)
{
    static const struct {
        double given, jobs, want_s;
    } cases[] = {{0, 600, 600},   {0.5, 600, 0.5},  {-1, 600, 600},  {(double)NAN, 600, 600},
                 {1e9, 600, 1e9}, {1e10, 600, 1e9}, {1e300, 1, 1e9}, {(double)INFINITY, 1, 1e9},
                 {0, 1e9, 1e9}};
    struct driver *d = calloc(1, sizeof *d);
    Paceline__Job job = PACELINE__JOB__INIT;
    struct train_options options = {.job = &job};
    (void)state;
    assert_non_null(d);
    d->job = &job;
    d->options = &options;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        options.patience_s = cases[i].given;
        job.patience_seconds = cases[i].jobs;
        assert_true(driver_patience(d) == (int64_t)(cases[i].want_s * 1e9));
    }
    free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_driver_patience_is_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
