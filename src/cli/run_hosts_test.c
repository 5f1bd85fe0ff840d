/* The machines of a run, from events that are written here. */
#include "cli/run_hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static int setup(void **state)
{
    *state = calloc(1, sizeof(struct run_hosts));
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static void take_text(struct run_hosts *hosts, int node, const char *text)
{
    cJSON *event = cJSON_Parse(text);
    assert_non_null(event);
    run_hosts_take(hosts, node, event);
    cJSON_Delete(event);
}

static void expect_document(const struct run_hosts *hosts, const char *text)
{
    char *written = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&written, &size);
    assert_non_null(out);
    run_hosts_put(out, hosts);
    fclose(out);
    assert_string_equal(written, text);
    free(written);
}

#define ATTIC "{\"host\":\"attic\",\"cpu\":\"EPYC\",\"cores\":8,\"memory\":1024}"

static void test_a_machine_has_its_nodes(void **state)
{
    struct run_hosts *hosts = *state;
    expect_document(hosts, "\"hosts\":[]");
    take_text(hosts, -1, ATTIC);
    take_text(hosts, 1, ATTIC);
    take_text(hosts, 0, "{\"host\":\"cellar\"}"); /* a worker that knows no more */
    take_text(hosts, 2, "{\"cores\":4}");         /* simulated */
    expect_document(hosts, "\"hosts\":[[\"attic\",\"EPYC\",8,1024,[-1,1]],"
                           "[\"cellar\",null,null,null,[0]]]");
    take_text(hosts, 0, ATTIC); /* a recovered run has it elsewhere */
    expect_document(hosts, "\"hosts\":[[\"attic\",\"EPYC\",8,1024,[-1,0,1]]]");
}

static void test_text_of_others_is_cleaned(void **state)
{
    struct run_hosts *hosts = *state;
    char text[400] = "{\"host\":\"", name[200];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    strcat(strcat(text, name), "\",\"cpu\":7,\"cores\":-1,\"memory\":1e300}");
    take_text(hosts, 0, text);
    assert_int_equal(strlen(hosts->host[0].name), RUN_HOST_TEXT_MAX - 1);
    assert_string_equal(hosts->host[0].cpu, "");
    assert_true(hosts->host[0].cores == 0 && hosts->host[0].memory == 0);
    take_text(hosts, RUN_NODES_MAX, ATTIC);
    take_text(hosts, -2, ATTIC);
    assert_int_equal(hosts->count, 1);
    take_text(hosts, 0, "{\"host\":\"<b>&\\u0007\",\"cpu\":\"\\\"\"}");
    expect_document(hosts,
                    "\"hosts\":[[\"\\u003cb\\u003e\\u0026\\u0007\",\"\\\"\",null,null,[0]]]");
    for (int i = 0; i < 2 * RUN_HOSTS_MAX; i++) {
        snprintf(text, sizeof text, "{\"host\":\"h%d\"}", i);
        take_text(hosts, i, text);
    }
    assert_int_equal(hosts->count, RUN_HOSTS_MAX);
    assert_int_equal(hosts->of[2 * RUN_HOSTS_MAX], 0);
    take_text(hosts, 1, "{\"host\":\"one too many\"}"); /* it is where it was no more */
    assert_int_equal(hosts->of[2], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_machine_has_its_nodes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_text_of_others_is_cleaned, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
