/* A model in slices between real processes: the whole model's training, and the bits of the
 * simulation; the end of a run that loses a slice; and what is refused before the start. */
#include "machines.h"
#include "refusal.h"
#include "sliced_job.h"

#include <signal.h>
#include <sys/resource.h>

#define SAME_MAX 1e-5 /* max |a − b| / max |b| */

static void test_slices_train_as_the_whole_model(void **state)
{
    struct tiny *t = *state;
    char whole[128], sliced[128], simulated[128];
    tiny_cluster(t, "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }\n");
    EXECUTE(t, "train", t->job, whole, "stop.steps=20", "workers=1", "strategy.single={}");
    for (int slices = 2; slices <= 4; slices++) {
        char count[32], workers[32];
        snprintf(count, sizeof count, "slices=%d", slices);
        snprintf(workers, sizeof workers, "workers=%d", slices);
        EXECUTE(t, "train", t->job, sliced, "stop.steps=20", count, workers,
                "strategy.allreduce={}", "evaluate.every_steps=5");
        double apart = run_difference(sliced, whole);
        print_message("    %d slices: %.2g\n", slices, apart);
        assert_true(apart <= SAME_MAX);
        assert_true(run_number(sliced, "end", 0, "used") == 20 * 16);
        if (slices == 3)
            continue;
        EXECUTE(t, "sim", t->job, simulated, "stop.steps=20", count, workers,
                "strategy.allreduce={}");
        assert_true(run_same_bits(sliced, simulated, "final.safetensors"));
    }
}

/* Two to four slices of such a net and range, as the whole model, and to the bit as simulated. */
static void expect_same(struct tiny *t, const char *net, const char *from, const char *to)
{
    char whole[128], sliced[128], simulated[128];
    tiny_cluster(t, "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }\n");
    EXECUTE(t, "train", t->job, whole, "stop.steps=20", "workers=1", "strategy.single={}", net);
    for (int slices = 2; slices <= 4; slices++) {
        char count[32], workers[32];
        snprintf(count, sizeof count, "slices=%d", slices);
        snprintf(workers, sizeof workers, "workers=%d", slices);
        EXECUTE(t, "train", t->job, sliced, "stop.steps=20", count, workers,
                "strategy.allreduce={}", net, from, to);
        double apart = run_difference(sliced, whole);
        print_message("    %s, %d slices: %.2g\n", net, slices, apart);
        assert_true(apart <= SAME_MAX);
        if (slices == 3)
            continue;
        EXECUTE(t, "sim", t->job, simulated, "stop.steps=20", count, workers,
                "strategy.allreduce={}", net, from, to);
        assert_true(run_same_bits(sliced, simulated, "final.safetensors"));
    }
}

static void test_slices_of_a_range_train_as_the_whole_model(void **state)
{
    expect_same(*state, "net.file=mixed.prototxt", "slices_from=one", "slices_to=two");
}

static void test_slices_of_units_train_as_the_whole_model(void **state)
{
    expect_same(*state, "net.file=sequence.prototxt", "slices_from=lstm", "slices_to=ip");
    expect_same(*state, "net.file=states.prototxt", "slices_from=data", "slices_to=ip");
}

/* Feature maps, with layers by channel and the state of one of them. */
static void test_slices_of_maps_train_as_the_whole_model(void **state)
{
    tiny_write(*state, "channels.prototxt", sliced_channels);
    expect_same(*state, "net.file=channels.prototxt", "slices_from=conv", "slices_to=ip");
}

static void test_slices_of_one_layer_have_its_bits(void **state)
{
    struct tiny *t = *state;
    char whole[128], sliced[128];
    EXECUTE(t, "train", t->job, whole, "stop.steps=20", "workers=1", "strategy.single={}",
            "net.file=one.prototxt");
    EXECUTE(t, "train", t->job, sliced, "stop.steps=20", "slices=4", "workers=4",
            "strategy.allreduce={}", "net.file=one.prototxt");
    assert_true(run_same_bits(sliced, whole, "final.safetensors"));
}

/* With oneDNN's kernels and some threads, and a layer of the size at which kernels are blocked. */
static void test_fast_kernels_take_slices(void **state)
{
    struct tiny *t = *state;
    char whole[128], sliced[128], net[2048];
    snprintf(net, sizeof net, "%s",
             SLICED_DATA SLICED_INNER(
                 "one", "data", "one",
                 480) "layer { name: 's1' type: 'Sigmoid' bottom: 'one' top: 'one' "
                      "}\n" SLICED_INNER("two", "one", "two",
                                         160) "layer { name: 's2' type: 'Sigmoid' bottom: 'two' "
                                              "top: 'two' }\n" SLICED_INNER("ip", "two", "ip", 10)
                                                  SLICED_ENDS);
    tiny_write(t, "large.prototxt", net);
    EXECUTE(t, "train", t->job, whole, "stop.steps=20", "workers=1", "strategy.single={}",
            "net.file=large.prototxt", "kernels=dnnl", "batch=64");
    EXECUTE(t, "train", t->job, sliced, "stop.steps=20", "slices=3", "workers=3",
            "strategy.allreduce={}", "net.file=large.prototxt", "kernels=dnnl", "batch=64");
    double apart = run_difference(sliced, whole);
    print_message("    3 slices: %.2g\n", apart);
    assert_true(apart <= SAME_MAX);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LIMITED_MB = 0 }; /* their shadow memory has more addresses */
#else
enum { LIMITED_MB = 300 };
#endif

static rlim_t limit_addresses(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    return before;
}

static void expect_refused(struct tiny *t, const char *slices, const char *phrase)
{
    char count[32], out[64];
    struct process p;
    snprintf(count, sizeof count, "slices=%s", slices);
    snprintf(out, sizeof out, "%s/refused", t->folder);
    const char *const argv[] = {"train",      t->job,
                                "--out",      "refused",
                                "--workers",  slices,
                                "--set",      count,
                                "--set",      "net.file=wide.prototxt",
                                "--set",      "solver.momentum=0.9",
                                "--strategy", "allreduce",
                                NULL};
    process_start(&p, t->folder, argv);
    process_wait(&p, REAL_LIMIT_S);
    assert_int_equal(p.code, 1);
    if (!strstr(p.err, phrase) || !strstr(p.err, "RLIMIT_AS"))
        fail_msg("it said:\n%s", p.err);
    assert_int_not_equal(access(out, F_OK), 0);
    process_release(&p);
}

/* 70 MB of weights and as much optimizer state, of processes that have 300 MB of addresses, the
 * driver too: with the gradients the whole model does not fit, with the memory that each process
 * needs anyway. It trains, is evaluated, written to checkpoints and read from them by another
 * number of slices, and its weights begin another run. Fewer slices than fit are refused before the
 * start. */
static void test_slices_have_room_for_their_part_alone(void **state)
{
    struct tiny *t = *state;
    char whole[128], dir[128], begun[128], weights[160];
    struct process p;
    if (LIMITED_MB == 0)
        skip();
    tiny_write(t, "wide.prototxt",
               SLICED_DATA SLICED_INNER("one", "data", "one", 4096)
                   SLICED_INNER("two", "one", "two", 4096) SLICED_INNER("ip", "two", "ip", 5)
                       SLICED_ENDS);
    EXECUTE(t, "train", t->job, whole, "stop.steps=6", "workers=1", "strategy.single={}",
            "net.file=wide.prototxt", "kernels=dnnl", "solver.momentum=0.9");
    rlim_t before = limit_addresses((rlim_t)LIMITED_MB << 20);
    EXECUTE(t, "train", t->job, dir, "stop.steps=4", "slices=4", "workers=4",
            "strategy.allreduce={}", "net.file=wide.prototxt", "kernels=dnnl",
            "solver.momentum=0.9");
    assert_true(run_number(dir, "end", 0, "test_loss") > 0);
    assert_int_equal(run_count(dir, "checkpoint", NULL, NULL), 1);
    RUN(t, &p, "resume", dir, "--set", "slices=5", "--set", "workers=5", "--set", "stop.steps=6");
    process_release(&p);
    snprintf(weights, sizeof weights, "weights=%s/final.safetensors", whole);
    EXECUTE(t, "train", t->job, begun, "stop.steps=1", "slices=4", "workers=4",
            "strategy.allreduce={}", "net.file=wide.prototxt", "kernels=dnnl",
            "solver.momentum=0.9", weights);
    expect_refused(t, "1", "2 slices at least");
    limit_addresses((rlim_t)LIMITED_MB << 19);
    expect_refused(t, "1", "its parameters alone need 139");
    limit_addresses(before);
    double apart = run_difference(dir, whole);
    print_message("    4 slices, then 5: %.2g\n", apart);
    assert_true(apart <= SAME_MAX);
}

static void test_a_slice_is_killed(void **state)
{
    struct tiny *t = *state;
    char whole[128];
    struct real_run r = real_new(t);
    pid_t worker[PROCESS_CHILDREN_MAX];
    START(t, &r, "--set", "slices=3", "--set", "workers=3", "--set", "strategy.allreduce={}",
          "--set", "pace=0.02", "--set", "stop.steps=100", "--set", "checkpoint.every_seconds=0.1");
    real_workers(&r, 3, worker);
    UNTIL(REAL_LIMIT_S, run_count(r.dir, "checkpoint", NULL, NULL) >= 1);
    double killed = process_now();
    kill(worker[1], SIGKILL);
    process_wait(&r.p, REAL_LIMIT_S);
    print_message("    ended after %.3f s\n", process_now() - killed);
    assert_int_equal(r.p.code, 1);
    if (!strstr(r.p.err, "of 3 of the model is lost") || !strstr(r.p.err, "paceline resume"))
        fail_msg("it said:\n%s", r.p.err);
    assert_true(real_has_ended(worker, 3));
    process_release(&r.p);
    struct process p;
    RUN(t, &p, "resume", r.dir);
    process_release(&p);
    EXECUTE(t, "train", t->job, whole, "stop.steps=100", "workers=1", "strategy.single={}");
    assert_true(run_difference(r.dir, whole) <= SAME_MAX);
}

static void test_replicas_train_as_replicas(void **state)
{
    struct tiny *t = *state;
    char whole[128], sliced[128], simulated[128];
    tiny_cluster(t, "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }\n");
    static const char *const strategies[] = {"strategy.allreduce={bucket_kb:1}",
                                             "strategy.sync={tau:3}"};
    for (int i = 0; i < 2; i++) {
        EXECUTE(t, "train", t->job, whole, "stop.steps=20", "workers=2", strategies[i]);
        EXECUTE(t, "train", t->job, sliced, "stop.steps=20", "slices=2", "workers=4",
                strategies[i]);
        EXECUTE(t, "sim", t->job, simulated, "stop.steps=20", "slices=2", "workers=4",
                strategies[i]);
        assert_true(run_difference(sliced, whole) <= SAME_MAX);
        assert_true(run_same_bits(sliced, simulated, "final.safetensors"));
    }
}

/* ---- a slice of two replicas is killed ---- */

#define LATE_MAX_S  0.5
#define WHOLE_MAX_S 2.0

enum { EXCHANGES_MAX = 4096, EXCHANGES_BEFORE = 10, EXCHANGES_AFTER = 10 };

struct exchanges {
    int n;
    double t[EXCHANGES_MAX], bytes[EXCHANGES_MAX];
};

static void read_exchanges(const char *dir, struct exchanges *x)
{
    char path[512], line[4096];
    snprintf(path, sizeof path, "%s/events.jsonl", dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (x->n = 0; x->n < EXCHANGES_MAX && fgets(line, sizeof line, f);) {
        cJSON *event = cJSON_Parse(line);
        if (strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(event, "kind")), "exchange") == 0) {
            x->t[x->n] = cJSON_GetObjectItem(event, "t")->valuedouble;
            x->bytes[x->n++] = cJSON_GetObjectItem(event, "bytes")->valuedouble;
        }
        cJSON_Delete(event);
    }
    fclose(f);
}

/* A number of the nth such change of the membership. */
static double read_change(const char *dir, const char *what, int nth, const char *key)
{
    cJSON *event = run_event(dir, "member", "what", what, nth);
    assert_non_null(event);
    double value = cJSON_GetObjectItem(event, key)->valuedouble;
    cJSON_Delete(event);
    return value;
}

/* A replica that has no step gathers nothing: an exchange with fewer bytes than those before the
 * death is of one replica, and the next with as many is of both. */
static void expect_soon(const char *dir)
{
    static struct exchanges x;
    double dead = read_change(dir, "dead", 0, "t"), longest = 0;
    int last = 0;
    read_exchanges(dir, &x);
    while (last + 1 < x.n && x.t[last + 1] <= dead)
        last++;
    assert_true(last >= EXCHANGES_BEFORE - 1 && last + 3 < x.n);
    double usual = (x.t[last - 1] - x.t[1]) / (last - 2), all = x.bytes[1];
    int alone = last, whole;
    for (int i = last - 1; i <= last + 1; i++)
        longest = fmax(longest, x.t[i + 1] - x.t[i]);
    while (alone < x.n && x.bytes[alone] >= all)
        alone++;
    for (whole = alone; whole < x.n && x.bytes[whole] < all; whole++)
        continue;
    assert_true(whole < x.n);
    print_message("    every %.4f s; one %.4f s late; whole again after %.4f s\n", usual,
                  longest - usual, x.t[whole] - x.t[last - 1]);
    assert_true(longest <= LATE_MAX_S + 4 * usual);
    assert_true(x.t[whole] - x.t[last - 1] <= WHOLE_MAX_S + 4 * usual);
}

/* Of two replicas one slice is killed, and a worker that stands by takes its place. */
static void test_a_killed_slice_is_replaced(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    struct process standby;
    pid_t worker[PROCESS_CHILDREN_MAX];
    char address[32];
    port_find(address);
    START(t, &r, "--listen", address, "--unset", "workers", "--set", "slices=2", "--set",
          "workers_min=4", "--set", "workers_max=4", "--set", "strategy.allreduce={}", "--set",
          "pace=0.01", "--set", "stop.steps=100000", "--unset", "stop.epochs");
    real_workers(&r, 4, worker);
    UNTIL(REAL_LIMIT_S, real_exchanges(&r) >= 1);
    process_start(&standby, t->folder, (const char *const[]){"worker", "--join", address, NULL});
    UNTIL(REAL_LIMIT_S, machines_log(&r.p, "worker 4 is at")); /* four are all: it waits */
    UNTIL(REAL_LIMIT_S, real_exchanges(&r) >= EXCHANGES_BEFORE);
    assert_int_equal(real_members(&r, "join"), 4);
    kill(worker[1], SIGKILL);
    UNTIL(REAL_LIMIT_S, real_members(&r, "join") == 5);
    int joined = real_exchanges(&r);
    UNTIL(REAL_LIMIT_S, real_exchanges(&r) > joined + EXCHANGES_AFTER);
    kill(r.p.pid, SIGINT);
    real_end(&r, 130, "interrupted");
    process_release(&r.p);
    process_wait(&standby, REAL_LIMIT_S);
    process_release(&standby);
    assert_int_equal(real_members(&r, "seated"), 1);
    assert_int_equal(real_members(&r, "join"), 5);
    assert_true(read_change(r.dir, "join", 4, "node") == 4); /* the one that stood by */
    assert_true(run_number(r.dir, "end", 0, "missed") <= 16);
    assert_true(run_is_finite(r.dir, "final.safetensors"));
    expect_soon(r.dir);
}

/* `batch` records are a replica's. */
static void test_the_command_names_slices_and_replicas(void **state)
{
    struct tiny *t = *state;
    static const struct {
        const char *workers, *line;
    } runs[] = {{"2", "a step      16 records x 1 replica of 2 slices, 34 steps an epoch\n"},
                {"4", "a step      16 records x 2 replicas of 2 slices, 17 steps an epoch\n"}};
    for (int i = 0; i < 2; i++) {
        struct process p;
        RUN(t, &p, "train", t->job, "--dry-run", "--workers", runs[i].workers, "--set", "slices=2",
            "--strategy", "allreduce");
        assert_int_equal(p.code, 0);
        if (!strstr(p.err, runs[i].line))
            fail_msg("it said:\n%s", p.err);
        process_release(&p);
    }
}

static void test_slices_are_refused_before_the_start(void **state)
{
    struct tiny *t = *state;
    tiny_write(t, "deconv.prototxt", sliced_deconv);
    REFUSED(t, "layer \"ip\": slices: 7 are more than its 5 outputs", "train", t->job, "--out",
            "run", "--set", "slices=7", "--set", "workers=7", "--strategy", "allreduce");
    REFUSED(t, "layer \"p\": slices: weights of type \"Deconvolution\"", "train", t->job, "--out",
            "run", "--set", "slices=2", "--set", "workers=2", "--strategy", "allreduce", "--set",
            "net.file=deconv.prototxt");
    REFUSED(t, "slices: strategy mpca is not for slices", "train", t->job, "--out", "run", "--set",
            "slices=4", "--strategy", "mpca");
    REFUSED(t, "each replica of the model has as many workers", "train", t->job, "--out", "run",
            "--set", "slices=2", "--set", "workers=3", "--strategy", "allreduce");
    REFUSED(t, "strategy.sync.tau_auto: not with slices", "train", t->job, "--out", "run", "--set",
            "slices=2", "--set", "workers=4", "--set", "strategy.sync={tau_auto:true}");
    REFUSED(t, "collective.wire: not with slices", "train", t->job, "--out", "run", "--set",
            "slices=4", "--strategy", "allreduce", "--set", "collective.wire=bf16");
    REFUSED(t, "slices: solver.type needs the whole gradient", "train", t->job, "--out", "run",
            "--set", "slices=4", "--strategy", "allreduce", "--set", "solver.type=LARS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_train_as_the_whole_model),
        cmocka_unit_test(test_slices_of_a_range_train_as_the_whole_model),
        cmocka_unit_test(test_slices_of_units_train_as_the_whole_model),
        cmocka_unit_test(test_slices_of_maps_train_as_the_whole_model),
        cmocka_unit_test(test_slices_of_one_layer_have_its_bits),
        cmocka_unit_test(test_fast_kernels_take_slices),
        cmocka_unit_test(test_slices_have_room_for_their_part_alone),
        cmocka_unit_test(test_a_slice_is_killed),
        cmocka_unit_test(test_replicas_train_as_replicas),
        cmocka_unit_test(test_a_killed_slice_is_replaced),
        cmocka_unit_test(test_the_command_names_slices_and_replicas),
        cmocka_unit_test(test_slices_are_refused_before_the_start),
    };
    return cmocka_run_group_tests(tests, sliced_setup, tiny_teardown);
}
