/* Processes of one command: nobody else gets the port where they meet, and together they have no
 * more threads than the command may use processors. */
#define _GNU_SOURCE
#include "cli/ranks.h"

#include "cli/predict_slices.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { TAKEN = 7, UNOPENED };

/* main.c's */
pl_engine *cli_engine(void)
{
    pl_engine *engine = NULL;
    assert_int_equal(pl_engine_create(NULL, &engine), PL_OK);
    return engine;
}

int cli_fail(const pl_engine *engine, int status)
{
    fail_msg("%d: %s", status, pl_engine_error(engine));
    return EXIT_FAILED;
}

/* Can a socket like those of other programs have the rendezvous? */
static bool is_free(const struct ranks_place *place)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    at.sin_port = htons((uint16_t)strtoul(strchr(place->rendezvous, ':') + 1, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) == 0 || errno != EADDRINUSE;
    close(fd);
    return bound;
}

/* Before rank 0 has the port, and while it does. */
static int meet_others(const struct ranks_place *place, void *arg)
{
    pl_engine *engine;
    pl_team *team;
    (void)arg;
    if (is_free(place))
        return TAKEN;
    if (pl_engine_create(NULL, &engine) != PL_OK || ranks_open(engine, place, &team) != PL_OK)
        return UNOPENED;
    int code = is_free(place) ? TAKEN : EXIT_DONE;
    pl_team_close(team);
    pl_engine_destroy(engine);
    return code;
}

static void test_ranks_hold_their_port(void **state)
{
    const struct ranks_place place = {.count = 3};
    (void)state;
    assert_int_equal(ranks_start(&place, meet_others, NULL), EXIT_DONE);
}

static void test_threads_obey_affinity(void **state)
{
    const struct ranks_place here = {.count = 2};
    cpu_set_t before, one;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (size_t i = 0; CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(predict_slices_threads(&here, 1), 1);
    assert_int_equal(predict_slices_threads(&here, 2), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_hold_their_port),
        cmocka_unit_test(test_threads_obey_affinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
