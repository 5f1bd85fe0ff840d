/* `paceline train` in bf16: it learns as well as in f32, resumes from its checkpoint to the bit,
 * and is refused by name where it is not supported. */
#include "bf16_needed.h"
#include "real_run.h"
#include "refusal.h"

/* Alone, by the kernels that have bf16. */
#define TRAIN(t, r, precision, ...)                                                   \
    START(t, r, "--set", "strategy.single={}", "--workers", "1", "--kernels", "dnnl", \
          "--precision", precision, __VA_ARGS__)

static void end_run(struct real_run *r)
{
    real_end(r, 0, "epochs");
    process_release(&r->p);
}

static void test_it_learns(void **state)
{
    struct tiny *t = *state;
    struct real_run wide = real_new(t), half = real_new(t);
    bf16_needed();
    TRAIN(t, &wide, "f32", "--set", "stop.epochs=8");
    end_run(&wide);
    TRAIN(t, &half, "bf16", "--set", "stop.epochs=8");
    end_run(&half);
    double apart = run_difference(half.dir, wide.dir);
    double error = run_number(half.dir, "end", 0, "test_error");
    print_message("    error %.3f; weights are %.2g apart\n", error, apart);
    assert_true(error < 0.1);
    assert_true(apart > 0 && apart < 0.05);
}

/* The model of the whole run, to the bit, by way of a checkpoint in the middle. */
static void test_it_resumes(void **state)
{
    struct tiny *t = *state;
    struct real_run whole = real_new(t), parts = real_new(t);
    char path[3][512];
    bf16_needed();
    TRAIN(t, &whole, "bf16", "--set", "stop.epochs=4");
    end_run(&whole);
    TRAIN(t, &parts, "bf16", "--set", "stop.epochs=2");
    end_run(&parts);
    assert_true(run_checkpoints(parts.dir, path) >= 1);
    assert_false(run_same_bits(parts.dir, whole.dir, "final.safetensors"));
    TRAIN(t, &parts, "bf16", "--set", "stop.epochs=4", "--resume");
    end_run(&parts);
    assert_true(run_number(parts.dir, "start", 1, "resumed_after") > 0);
    assert_true(run_same_bits(parts.dir, whole.dir, "final.safetensors"));
}

static void test_refusals(void **state)
{
    struct tiny *t = *state;
    REFUSED(t, "precision: kernels \"ref\" have no bf16", "train", t->job, "--out", "run",
            "--precision", "bf16");
    REFUSED(t, "expected one of f32, bf16, not `f16`", "train", t->job, "--out", "run",
            "--precision", "f16");
    tiny_write_changed(t, "bad.job", tiny_job, "kernels: ref", "precision: bf61");
    REFUSED(t, "bf61", "train", "bad.job", "--out", "run");
}

/* A narrower instruction set lacks bf16 and says so, whatever the processor has; kernels: auto is
 * refused, too. */
static void test_narrow_instructions(void **state)
{
#ifdef __x86_64__
    struct tiny *t = *state;
    static const char *const kernels[] = {"dnnl", "auto"};
    setenv("PACELINE_ISA", "avx2", 1);
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        REFUSED(t, "precision: bf16 needs a processor with AVX-512", "train", t->job, "--out",
                "run", "--precision", "bf16", "--kernels", kernels[i]);
    unsetenv("PACELINE_ISA");
#else
    (void)state;
    print_message("    skipped: no such instructions here\n");
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_learns),
        cmocka_unit_test(test_it_resumes),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_narrow_instructions),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
