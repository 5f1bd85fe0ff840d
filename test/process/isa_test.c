/* PACELINE_ISA limits a process to narrower instructions than its processor has, and an unknown
 * name is refused. */
#include "process.h"

#include <cJSON.h>

enum { LIMIT_S = 120 };

static const char *const isas[] = {"sse2", "avx2", "avx512"};

enum { SSE2, AVX2, AVX512, ISAS };

static void run_command(struct process *p, const char *isa, const char *const *argv)
{
    setenv("PACELINE_ISA", isa, 1);
    process_start(p, "/", argv);
    unsetenv("PACELINE_ISA");
    process_wait(p, LIMIT_S);
}

#define RUN(p, isa, ...)                                                                 \
    run_command((p), (isa),                                                              \
                (const char *const[]){"bench", "step", "--net", "lenet", "--batch", "4", \
                                      __VA_ARGS__, NULL})

static int widest_isa(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
        return AVX512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? AVX2 : SSE2;
#else
    return -1;
#endif
}

static void test_isa_step_reports_its_isa(void **state)
{
    (void)state;
    if (widest_isa() < 0) {
        print_message("skipped: no such instructions here\n");
        skip();
    }
    for (int i = 0; i < ISAS; i++) {
        struct process p;
        RUN(&p, isas[i], "--steps", "2", "--json");
        if (p.code != 0)
            fail_msg("code %d:\n%s", p.code, p.err);
        cJSON *line = cJSON_Parse(p.out);
        const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(line, "isa"));
        assert_string_equal(text, isas[i < widest_isa() ? i : widest_isa()]);
        cJSON_Delete(line);
        process_release(&p);
    }
}

static void test_isa_unknown_name_is_refused(void **state)
{
    (void)state;
    struct process p;
    RUN(&p, "avx1024", "--steps", "1");
    assert_int_equal(p.code, 2);
    assert_non_null(strstr(p.err, "PACELINE_ISA"));
    assert_non_null(strstr(p.err, "avx1024"));
    process_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_isa_step_reports_its_isa),
        cmocka_unit_test(test_isa_unknown_name_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
