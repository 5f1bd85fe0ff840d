#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/mesh.h"

#include <math.h>

/* A message of 110 bytes with its frame takes a second alone. */
#define RATE    150.0
#define LATENCY 1.0

enum { RANKS = 3, SECOND = 110 };

static const double rate[RANKS] = {RATE, RATE, RATE};
static const struct cost_links links = {RANKS, rate, rate, LATENCY, INFINITY, 0};

static void send_second(struct mesh *mesh, uint32_t from, uint32_t to, enum mesh_class class,
                        uint64_t number)
{
    mesh_send(mesh, &(struct mesh_message){
                        .from = from, .to = to, .class = class, .bytes = SECOND, .number = number});
}

/* The next message arrives at that time. */
static void expect_arrival(struct mesh *mesh, uint64_t number, double at)
{
    struct mesh_message m;
    double now = 0;
    while (!mesh_take(mesh, &m)) {
        now = mesh_next(mesh);
        assert_true(isfinite(now));
        mesh_advance(mesh, now);
    }
    assert_int_equal(m.number, number);
    if (now > 0 && fabs(now - at) > 1e-6)
        fail_msg("message %d at %.6f, by hand %.6f", (int)number, now, at);
}

/* Bulk follows bulk; a notice shares the link with the first of it, each at half the rate. */
static void test_mesh_of_two_nodes(void **state)
{
    (void)state;
    struct mesh *mesh = mesh_new(&links);
    send_second(mesh, 0, 1, MESH_BULK, 1);
    send_second(mesh, 0, 1, MESH_BULK, 2);
    send_second(mesh, 0, 1, MESH_CONTROL, 3);
    expect_arrival(mesh, 1, 2 + LATENCY);
    expect_arrival(mesh, 3, 2 + LATENCY); /* has left at the same time */
    expect_arrival(mesh, 2, 3 + LATENCY);
    assert_true(mesh_next(mesh) == INFINITY && !mesh_failed(mesh));
    mesh_free(mesh);
}

/* One sender's link takes both, the other's only one: a third that comes to the same receiver gets
 * what is left. Links have both directions. */
static void test_mesh_of_three_nodes(void **state)
{
    (void)state;
    const double fast[RANKS] = {2 * RATE, RATE, RATE};
    const struct cost_links uneven = {RANKS, fast, rate, 0, INFINITY, 0};
    struct mesh *mesh = mesh_new(&uneven);
    send_second(mesh, 0, 1, MESH_BULK, 1); /* half of node 1's link */
    send_second(mesh, 2, 1, MESH_BULK, 2);
    send_second(mesh, 0, 2, MESH_BULK, 3); /* all of node 2's link */
    expect_arrival(mesh, 3, 1);
    expect_arrival(mesh, 1, 2);
    expect_arrival(mesh, 2, 2);
    send_second(mesh, 1, 1, MESH_BULK, 4); /* takes no link */
    expect_arrival(mesh, 4, 2 + 1e-6);
    mesh_free(mesh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mesh_of_two_nodes),
        cmocka_unit_test(test_mesh_of_three_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
