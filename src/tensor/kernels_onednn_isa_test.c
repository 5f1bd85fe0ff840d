/* oneDNN's instruction set is the whole process's: it is held down where PACELINE_ISA asks for
 * that, and else left to the program that we are a worker of. Each case is a process of its own,
 * since the setting is made once in a process's life. */
#include "tensor/isa.h"
#include "tensor/kernels_onednn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void assert_in_child(const char *isa, bool (*holds)(void))
{
    pid_t child = fork();
    int status = 0;
    assert_true(child >= 0);
    if (child == 0) {
        if (isa)
            setenv("PACELINE_ISA", isa, 1);
        else
            unsetenv("PACELINE_ISA");
        onednn_limit_isa();
        _exit(holds() ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#ifdef __x86_64__
/* The program's own choice is still to be made: a second one is refused. */
static bool program_can_choose(void)
{
    return dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41) == dnnl_success &&
           dnnl_get_effective_cpu_isa() == dnnl_cpu_isa_sse41;
}

static bool is_held_down(void)
{
    return !isa_is_limited() || (dnnl_set_max_cpu_isa(dnnl_cpu_isa_all) != dnnl_success &&
                                 dnnl_get_effective_cpu_isa() == dnnl_cpu_isa_sse41);
}
#else
static bool program_can_choose(void)
{
    return !isa_is_limited();
}

static bool is_held_down(void)
{
    return true;
}
#endif

static void test_library_is_left_alone_without_a_limit(void **state)
{
    (void)state;
    assert_in_child(NULL, program_can_choose);
    assert_in_child("avx512", program_can_choose); /* no limit: it is the widest */
}

static void test_library_is_held_down_by_a_limit(void **state)
{
    (void)state;
    assert_in_child("sse2", is_held_down);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_library_is_left_alone_without_a_limit),
        cmocka_unit_test(test_library_is_held_down_by_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
