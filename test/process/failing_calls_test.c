/* The n-th allocation, call of a file or call of a socket fails, alone or with all that follow, in
 * the driver of a run or in one of its workers, when it begins and when it continues: the run ends
 * well without it, or ends with a message that names the error. Nothing crashes or hangs, no
 * resource is held at the end, and files that were written can be read.
 *
 *   failing_calls_test            some n of each kind
 *   failing_calls_test --seed S   some others
 *   failing_calls_test --all      every n until no call is left to fail: hours */
#include "real_run.h"

#include <sys/stat.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAN_FAIL 0 /* the sanitizer has malloc to itself */
#else
#define CAN_FAIL 1
#endif

enum { FEW = 7, LIMIT_S = 90 }; /* a group that does not form is given up after a minute */

struct failing {
    const char *in, *kind, *setting;
    bool always, resume;
};

/* The preloaded library's report at the end of the process. */
struct kept {
    long calls, failed, live, fds;
};

static bool all;
static uint64_t seed = 1;
static int runs, absorbed;

static bool read_kept(const char *path, struct kept *out)
{
    FILE *f = fopen(path, "r");
    int n = f ? fscanf(f, "calls %ld failed %ld live %ld fds %ld", &out->calls, &out->failed,
                       &out->live, &out->fds)
              : 0;
    if (f)
        fclose(f);
    return n == 4;
}

static void set_up(const struct failing *f, long n, const char *claim, const char *report)
{
    char at[32];
    snprintf(at, sizeof at, "%ld", n);
    setenv("FAIL_IN", f->in, 1);
    setenv("FAIL_KIND", f->kind, 1);
    setenv("FAIL_HOW", f->setting, 1);
    setenv("FAIL_AT", at, 1);
    setenv("FAIL_ALWAYS", f->always ? "1" : "0", 1);
    setenv("FAIL_CLAIM", claim, 1);
    setenv("FAIL_REPORT", report, 1);
    setenv("OMP_WAIT_POLICY", "passive", 1); /* or a busy machine's process begins twice */
    setenv("LD_PRELOAD", TEST_BUILD "/libfail_call.so", 1);
}

static void copy_run(const char *from, const char *to)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s'", to, from, to);
    assert_int_equal(system(command), 0);
}

static void remove_run(const char *dir)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s' '%s.claim' '%s.report'", dir, dir, dir);
    assert_int_equal(system(command), 0);
}

static void report_failure(const struct failing *f, long n, const struct process *p,
                           const char *what)
{
    fail_msg("%s %s %ld %s%s%s: %s; code %d, it said:\n%s", f->in, f->kind, n, f->setting,
             f->always ? " always" : "", f->resume ? " resumed" : "", what, p->code, p->err);
}

/* Every checkpoint that has its name is whole. */
static void expect_whole(const char *dir)
{
    char path[3][512];
    int count = run_checkpoints(dir, path);
    for (int i = 0; i < count && i < 3; i++) {
        struct safetensors st;
        run_model(dir, strstr(path[i], "checkpoint/"), &st);
        safetensors_release(&st);
    }
}

static void judge_run(const struct failing *f, long n, struct real_run *r, const struct kept *is,
                      const struct kept *base)
{
    const struct process *p = &r->p;
    const char *last = strstr(p->err, "paceline: ");
    if (p->code < 0 || p->code > 3)
        report_failure(f, n, p, "an end that is none");
    bool done = p->code == 0 || p->code == 3; /* exit code 3: the result names the model's file */
    if (!done && (!last || strstr(p->err, "internal error")))
        report_failure(f, n, p, "no message");
    if (done && !strstr(p->out, "\"kind\":\"end\""))
        report_failure(f, n, p, "no result");
    if (base && (is->live > base->live || is->fds > base->fds))
        report_failure(f, n, p,
                       is->fds > base->fds ? "descriptors are left open" : "memory is left");
    expect_whole(r->dir);
}

/* One run in which the n-th call fails. Did the run reach that call? */
static bool play_once(struct tiny *t, const struct failing *f, long n, const char *begun,
                      const struct kept *base, struct kept *is)
{
    struct real_run r = real_new(t);
    char claim[160], report[160];
    snprintf(claim, sizeof claim, "%s.claim", r.dir);
    snprintf(report, sizeof report, "%s.report", r.dir);
    if (f->resume)
        copy_run(begun, r.dir);
    set_up(f, n, claim, report);
    START(t, &r, "--workers", "2", "--set", "checkpoint.every_seconds=0.02", "--set",
          "checkpoint.wait_seconds=1", "--set", f->resume ? "stop.epochs=2" : "stop.epochs=1",
          f->resume ? "--resume" : "--set", f->resume ? NULL : "pace=0");
    unsetenv("LD_PRELOAD");
    process_wait(&r.p, LIMIT_S);
    *is = (struct kept){0};
    if (!read_kept(report, is))
        report_failure(f, n, &r.p, "it has not come to the end of its process");
    judge_run(f, n, &r, is, base);
    runs++;
    absorbed += is->failed > 0 && r.p.code == 0;
    process_release(&r.p);
    remove_run(r.dir);
    return is->failed > 0;
}

/* Each n that is tried, until nothing fails any more. */
static void sweep_calls(struct tiny *t, const struct failing *f, const char *begun)
{
    struct kept base, is;
    int before = runs, well = absorbed;
    assert_false(play_once(t, f, 0, begun, NULL, &base));
    if (base.calls <= 20 || base.live <= 0)
        fail_msg("%ld calls, %ld live, %ld fds", base.calls, base.live, base.fds);
    long stride = all || base.calls < FEW ? 1 : base.calls / FEW;
    uint64_t draw = rng_below(seed, (uint64_t)base.calls, (uint64_t)runs, (uint64_t)stride);
    long first = all ? 1 : 1 + (long)draw;
    for (long n = first; n <= base.calls; n += stride)
        play_once(t, f, n, begun, &base, &is);
    assert_false(play_once(t, f, 100 * base.calls, begun, &base, &is));
    print_message("    %s%s, %s, %s%s: %d of %ld; %d ended well\n", f->in,
                  f->resume ? " that resumes" : "", f->kind, f->setting,
                  f->always ? " from there on" : "", runs - before - 2, base.calls,
                  absorbed - well);
}

/* A run with checkpoints, to continue with. */
static void begin_run(struct tiny *t, struct real_run *r)
{
    *r = real_new(t);
    START(t, r, "--workers", "2", "--set", "stop.epochs=1");
    real_end(r, 0, "epochs");
    process_release(&r->p);
}

static void setup(void **state, const char *kind)
{
    static const struct {
        const char *setting;
        bool always;
    } hows[] = {{"error", false}, {"error", true}, {"short", true}, {"interrupted", false}};
    struct tiny *t = *state;
    struct real_run begun;
    begin_run(t, &begun);
    print_message("    seed %d\n", (int)seed);
    for (size_t i = 0; i < (kind[0] == 'm' ? 2 : 4); i++) {
        const struct failing in_driver = {"train", kind, hows[i].setting, hows[i].always, false};
        const struct failing in_worker = {"worker", kind, hows[i].setting, hows[i].always, false};
        sweep_calls(t, &in_driver, begun.dir);
        sweep_calls(t, &in_worker, begun.dir);
        if (i > 0 && !all)
            continue;
        struct failing resumed = in_driver;
        resumed.resume = true;
        sweep_calls(t, &resumed, begun.dir);
        if (!all)
            continue;
        resumed = in_worker;
        resumed.resume = true;
        sweep_calls(t, &resumed, begun.dir);
    }
    assert_true(absorbed > 0 && absorbed < runs); /* some failures matter, and some do not */
}

static void test_memory_runs_out(void **state)
{
    setup(state, "memory");
}

static void test_calls_of_files_fail(void **state)
{
    setup(state, "file");
}

static void test_calls_of_sockets_fail(void **state)
{
    setup(state, "socket");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_runs_out),
        cmocka_unit_test(test_calls_of_files_fail),
        cmocka_unit_test(test_calls_of_sockets_fail),
    };
    all = argc > 1 && strcmp(argv[1], "--all") == 0;
    if (argc > 2 && strcmp(argv[1], "--seed") == 0)
        seed = strtoull(argv[2], NULL, 10);
    if (!CAN_FAIL) {
        print_message("skipped: the sanitizer has malloc to itself\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
