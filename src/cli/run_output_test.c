/* The result of a run on stdout, as scripts read it. */
#include "cli/run_output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The command's, for runs that fail: none does here. */
int cli_fail(const pl_engine *engine, int status)
{
    (void)engine, (void)status;
    fail();
    return EXIT_FAILED;
}

/* The text that the end of such a run prints to stdout. */
static char *end_run(struct run_output *output, const pl_run_report *report, int *code)
{
    static char text[1 << 16];
    FILE *file = tmpfile();
    int out = dup(STDOUT_FILENO);
    assert_true(file && out >= 0);
    fflush(stdout);
    assert_true(dup2(fileno(file), STDOUT_FILENO) >= 0);
    *code = cli_run_ended(NULL, PL_OK, output, report);
    fflush(stdout);
    assert_true(dup2(out, STDOUT_FILENO) >= 0);
    close(out);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

/* Of any length, and followed by any output. */
static void test_json_prints_the_end_event(void **state)
{
    enum { LONG = 5000 };
    static struct run_output output;
    static char line[LONG + 200];
    static const pl_run_report report = {.reason = "epochs", .net = "net", .directory = "runs/a"};
    char name[LONG + 1];
    int code;
    (void)state;
    memset(name, 'x', LONG);
    name[LONG] = '\0';
    run_output_init(&output, true);
    run_output_event(&output, "{\"t\":1,\"kind\":\"loss\",\"loss\":1}");
    snprintf(line, sizeof line,
             "{\"t\":2,\"kind\":\"end\",\"reason\":\"epochs\",\"bad_record\":[\"%s\"]}", name);
    run_output_event(&output, line);
    run_output_event(&output, "{\"t\":3,\"kind\":\"fault\",\"what\":\"kill\",\"node\":1}");
    cJSON *end = cJSON_Parse(end_run(&output, &report, &code));
    assert_int_equal(code, EXIT_DONE);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(end, "kind")), "end");
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(end, "directory")), "runs/a");
    assert_string_equal(
        cJSON_GetStringValue(cJSON_GetArrayItem(cJSON_GetObjectItem(end, "bad_record"), 0)), name);
    cJSON_Delete(end);
}

/* A run that was complete before took no sample, and has no speed. */
static void test_result_makes_up_no_speed(void **state)
{
    static struct run_output output;
    pl_run_report report = {.reason = "epochs", .session_s = 0.5, .epochs = 1, .wall_s = 2};
    int code;
    (void)state;
    run_output_init(&output, false);
    assert_null(strstr(end_run(&output, &report, &code), "speed"));
    report.samples = 100;
    assert_non_null(strstr(end_run(&output, &report, &code), "speed       200 samples/s\n"));
    assert_int_equal(code, EXIT_DONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_prints_the_end_event),
        cmocka_unit_test(test_result_makes_up_no_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
