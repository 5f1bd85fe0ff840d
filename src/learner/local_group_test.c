/* A group of learners is one learner with the whole batch: in turns, on tasks of a real world, and
 * in simulation, where it is a matter of time alone. */
#include "learner/learner.h"

#include "base/fault.h"
#include "bf16_needed.h"
#include "counted_malloc.h"
#include "data/source_fake.h"
#include "job/cluster.h"
#include "job/job.h"
#include "real/real.h"
#include "sim/sim.h"
#include "tiny_job.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

enum { FAILED = 10000, BATCH = 64, STEPS = 12, WARM = 3 };

enum setting { IN_TURNS, REAL, SIMULATED, SETTINGS };

/* One learner and what it needs, in some world. */
struct bench {
    enum setting setting;
    int (*story)(struct bench *b);
    const char *cluster; /* simulated: its node; NULL: of one core */
    struct world *world; /* NULL: in turns */
    Paceline__Job *job;
    struct corpus corpus;
    struct workspace *ws;
    struct arena arena;
    struct learner l;
    uint64_t start; /* what the story is about: a place, and records a step */
    size_t count;
    float *x;         /* its result */
    struct err fault; /* real: what broke the world */
};

/* In a story: continue only if. A story may be a task, which an assertion of cmocka's must not
 * leave. */
#define CHECK(condition)              \
    do {                              \
        if (!(condition))             \
            return FAILED + __LINE__; \
    } while (0)

/* ---- a bench ---- */

static const char plain_net[] = "net.prototxt", dropout_net[] = "dropout.prototxt";

static Paceline__Job *make_job(const struct tiny *t, const char *net, const char *train,
                               const char *fields)
{
    char text[1024];
    Paceline__Job *job = NULL;
    struct err err = {0};
    int n = snprintf(text, sizeof text,
                     "name: 'tiny' net { file: '%s' }"
                     "train_data { idx { images: '%s-images' labels: 'train-labels' }"
                     "  scale: 0.00390625 }"
                     "solver { base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed' } %s",
                     net, train, fields);
    assert_in_range(n, 1, sizeof text - 1);
    if (job_parse("job", text, (size_t)n, &job, &err) != OK ||
        job_resolve_paths(job, t->job, &err) != OK || job_finish(job, &err) != OK)
        fail_msg("%s: %s", fields, err.text);
    job->threads = job->has_threads ? job->threads : job->local;
    return job;
}

static void bench_open(struct bench *b, Paceline__Job *job)
{
    struct logger silent = {0};
    struct err err = {0};
    b->job = job;
    b->count = b->count ? b->count : job->batch;
    arena_init(&b->arena);
    kernels_set_threads(learner_threads(job));
    if (corpus_open(job, NULL, &b->corpus, &err) != OK ||
        workspace_create(job, &b->corpus, &silent, NULL, NULL, &b->ws, &err) != OK)
        fail_msg("%s", err.text);
}

static void bench_close(struct bench *b)
{
    workspace_free(b->ws);
    corpus_close(&b->corpus);
    arena_release(&b->arena);
    job_free(b->job);
    free(b->x);
}

static int play_real(void *arg)
{
    struct bench *b = arg;
    struct err err = {0};
    CHECK(learner_init(&b->l, b->world, b->job, &b->corpus, b->ws, &b->arena, NULL, &err) == OK);
    kernels_set_threads(learner_threads(b->job)); /* on this thread, whosever it is */
    b->l.step_seconds = b->setting == SIMULATED ? 0.08 : 0;
    int rc = b->world ? learner_start(&b->l, b->world, &err) : OK;
    if (rc == OK)
        rc = b->story(b);
    learner_stop(&b->l);
    return rc;
}

static int play_simulated(void *arg, struct world *w)
{
    struct bench *b = arg;
    b->world = w;
    return play_real(b);
}

static int in_simulation(struct bench *b)
{
    char text[128];
    Paceline__Cluster *cluster = NULL;
    struct sim *sim = NULL;
    struct err err;
    int n = snprintf(text, sizeof text, "node { } driver { %s }", b->cluster ? b->cluster : "");
    assert_int_equal(cluster_parse("test", text, (size_t)n, &cluster, &err), OK);
    assert_int_equal(cluster_finish(cluster, &err), OK);
    struct sim_options options = {.cluster = cluster, .node_main = play_simulated, .arg = b};
    assert_int_equal(sim_create(&options, &sim, &err), OK);
    int rc = sim_run(sim, 1000 * WORLD_SECOND);
    sim_free(sim);
    cluster_free(cluster);
    return rc;
}

static int in_reality(struct bench *b)
{
    assert_int_equal(real_open(&(struct real_options){0}, &b->world, &b->fault), OK);
    int rc = real_run(b->world, play_real, b, &b->fault);
    real_close(b->world);
    return rc;
}

static int play_bench(struct bench *b)
{
    return b->setting == REAL        ? in_reality(b)
           : b->setting == SIMULATED ? in_simulation(b)
                                     : play_real(b);
}

static void play_well(struct bench *b)
{
    int rc = play_bench(b);
    if (rc != OK)
        fail_msg("setting %d, local %u: %s %d", (int)b->setting, b->job->local,
                 rc > FAILED ? "line" : "status", rc > FAILED ? rc - FAILED : rc);
}

/* ---- stories ---- */

static int keep_vector(struct bench *b, const struct vec *v)
{
    b->x = malloc(v->n * sizeof *b->x);
    CHECK(b->x);
    vec_export(v, vec_all(v), b->x);
    return OK;
}

/* Some steps; what is left of it is x. */
static int train_bench(struct bench *b)
{
    for (uint64_t i = 0; i < STEPS; i++)
        CHECK(learner_step(&b->l, b->start + i * b->job->batch, b->count) == OK);
    CHECK(b->l.steps == STEPS && b->l.samples == STEPS * b->count);
    CHECK(isfinite(b->l.loss) && b->l.loss > 0);
    return keep_vector(b, &b->l.x);
}

/* One gradient. */
static int differentiate_bench(struct bench *b)
{
    CHECK(learner_gradient(&b->l, b->start, b->count) == OK);
    return keep_vector(b, &b->l.dx);
}

/* The result of a single learner, in turns or not. */
static void run_alone(struct bench *b, const struct tiny *t, const char *net, const char *fields,
                      int (*story)(struct bench *b))
{
    char text[128];
    snprintf(text, sizeof text, "local: 1 threads: 1 %s", fields);
    b->story = story;
    bench_open(b, make_job(t, net, "train", text));
    play_well(b);
}

static bool same_bits(const struct bench *a, const struct bench *b)
{
    return memcmp(a->x, b->x, a->l.x.n * sizeof *a->x) == 0;
}

/* max |a − b| / max |b| */
static double distance_of(const struct bench *a, const struct bench *b)
{
    double most = 0, largest = 0;
    for (size_t i = 0; i < b->l.x.n; i++) {
        most = fmax(most, fabs((double)a->x[i] - (double)b->x[i]));
        largest = fmax(largest, fabs((double)b->x[i]));
    }
    assert_true(largest > 0);
    return most / largest;
}

/* ---- the arithmetic ---- */

/* Batches that straddle epochs (540 records) included; masks are those of the whole batch. */
static void bits_are_those_of_one(const struct tiny *t, const char *net)
{
    static const char fields[] = "kernels: ref batch: 64 validation: 60";
    static const uint32_t local[] = {2, 4};
    struct bench one = {.setting = IN_TURNS, .start = 7};
    run_alone(&one, t, net, fields, train_bench);
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        for (enum setting s = IN_TURNS; s < SETTINGS; s++) {
            char text[128];
            struct bench b = {.setting = s, .story = train_bench, .start = 7};
            snprintf(text, sizeof text, "local: %u %s", local[i], fields);
            bench_open(&b, make_job(t, net, "train", text));
            play_well(&b);
            if (!same_bits(&b, &one))
                fail_msg("%s, %u learners, setting %d: %g", net, local[i], (int)s,
                         distance_of(&b, &one));
            bench_close(&b);
        }
    bench_close(&one);
}

static void test_local_group_has_the_bits_of_one(void **state)
{
    bits_are_those_of_one(*state, plain_net);
}

static void test_dropout_is_that_of_the_whole_batch(void **state)
{
    bits_are_those_of_one(*state, dropout_net);
}

/* The test of the test: other records, or another order of them, are other bits. */
static void test_other_records_are_other_bits(void **state)
{
    static const char fields[] = "kernels: ref batch: 64";
    struct bench one = {.setting = IN_TURNS}, other = {.setting = IN_TURNS, .start = 1};
    run_alone(&one, *state, plain_net, fields, differentiate_bench);
    run_alone(&other, *state, plain_net, fields, differentiate_bench);
    assert_false(same_bits(&one, &other));
    assert_true(distance_of(&one, &other) > 1e-2);
    bench_close(&one);
    bench_close(&other);
}

/* Parts that are no slices, numbers that are no powers of two, batches that are not full: what is
 * left is the rounding. */
static void test_a_gradient_is_the_mean_over_the_batch(void **state)
{
    static const struct {
        const char *fields;
        uint32_t local;
        size_t count;
    } cases[] = {
        {"kernels: ref batch: 48", 3, 48},   {"kernels: ref batch: 60", 5, 60},
        {"kernels: ref batch: 64", 4, 40},   {"kernels: ref batch: 64", 4, 16},
        {"kernels: ref batch: 64", 4, 1},    {"kernels: ref batch: 64", 64, 63},
        {"kernels: dnnl batch: 64", 4, 64},  {"kernels: dnnl batch: 64", 2, 64},
        {"kernels: dnnl batch: 64", 8, 50},  {"kernels: dnnl batch: 21", 7, 21},
        {"kernels: dnnl batch: 64", 16, 64},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (enum setting s = IN_TURNS; s < SETTINGS; s++) {
            char text[128];
            struct bench one = {.setting = IN_TURNS, .start = 3, .count = cases[i].count};
            struct bench b = {
                .setting = s, .story = differentiate_bench, .start = 3, .count = cases[i].count};
            run_alone(&one, *state, plain_net, cases[i].fields, differentiate_bench);
            snprintf(text, sizeof text, "local: %u %s", cases[i].local, cases[i].fields);
            bench_open(&b, make_job(*state, plain_net, "train", text));
            play_well(&b);
            if (!(distance_of(&b, &one) <= 1e-6) || !(fabs(b.l.loss / one.l.loss - 1) <= 1e-6))
                fail_msg("%s: %zu of %u, setting %d: %g", cases[i].fields, cases[i].count,
                         cases[i].local, (int)s, distance_of(&b, &one));
            bench_close(&b);
            bench_close(&one);
        }
}

/* In bf16, too: halves of a batch are rounded as it is whole, but where a sum of floats comes out
 * on the other side of where rounding parts. To round at all moves the gradient further. */
static void test_a_gradient_in_bf16_is_that_of_one(void **state)
{
    bf16_needed();
    for (enum setting s = IN_TURNS; s < SETTINGS; s++) {
        struct bench wide = {.setting = IN_TURNS, .start = 3};
        struct bench one = {.setting = IN_TURNS, .start = 3};
        struct bench b = {.setting = s, .story = differentiate_bench, .start = 3};
        run_alone(&wide, *state, plain_net, "kernels: dnnl batch: 64", differentiate_bench);
        run_alone(&one, *state, plain_net, "kernels: dnnl precision: bf16 batch: 64",
                  differentiate_bench);
        bench_open(&b, make_job(*state, plain_net, "train",
                                "local: 2 kernels: dnnl precision: bf16 batch: 64"));
        play_well(&b);
        print_message("    setting %d: %.1e; of floats: %.1e\n", (int)s, distance_of(&b, &one),
                      distance_of(&wide, &one));
        assert_true(distance_of(&b, &one) <= 1e-4 && distance_of(&wide, &one) > 1e-3);
        assert_true(fabs(b.l.loss / one.l.loss - 1) <= 1e-6);
        bench_close(&b), bench_close(&one), bench_close(&wide);
    }
}

/* With more threads than learners each has several. OpenMP's threads are not seen to meet by the
 * thread sanitizer. */
static void test_threads_are_shared_out(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    struct bench b = {.setting = REAL, .story = train_bench};
    bench_open(&b, make_job(*state, plain_net, "train", "local: 2 threads: 5 batch: 64"));
    assert_int_equal(learner_threads(b.job), 2);
    play_well(&b);
    bench_close(&b);
    struct bench few = {.setting = REAL, .story = train_bench};
    bench_open(&few, make_job(*state, plain_net, "train", "local: 4 batch: 64"));
    few.job->threads = 1; /* a machine's own choice may be fewer than learners */
    assert_int_equal(learner_threads(few.job), 1);
    play_well(&few);
    bench_close(&few);
}

/* ---- errors ---- */

/* Image 100 alone is not black, and as bright as a float can be. */
static const uint64_t bright = 100;

static bool has_bright(struct bench *b, uint64_t start)
{
    const struct batch *records;
    bool found = false;
    if (loader_take(&b->ws->loader, start, BATCH, &records, NULL) != OK)
        return false;
    for (size_t i = 0; i < BATCH; i++)
        found |= records->records[i] == bright;
    return found;
}

/* One of four learners diverges, whichever it is; the others' next gradients are as good as ever.
 */
static int diverge_bench(struct bench *b)
{
    int well = 0, badly = 0;
    for (uint64_t start = 0; start < 2 * TINY_TRAIN; start += 10) {
        bool bad = has_bright(b, start);
        CHECK(learner_gradient(&b->l, start, BATCH) == (bad ? ERR_DIVERGED : OK));
        CHECK(bad || vec_finite(&b->l.dx, vec_all(&b->l.dx)));
        *(bad ? &badly : &well) += 1;
    }
    CHECK(well > 50 && badly > 8);
    return OK;
}

static void write_bright(const struct tiny *t)
{
    FILE *images = tiny_open(t, "bright-images");
    tiny_put_be32(images, 0x803);
    tiny_put_be32(images, TINY_TRAIN);
    tiny_put_be32(images, TINY_SIDE);
    tiny_put_be32(images, TINY_SIDE);
    for (uint64_t i = 0; i < TINY_TRAIN; i++)
        for (int k = 0; k < TINY_SIDE * TINY_SIDE; k++)
            fputc(i == bright ? 255 : 0, images);
    fclose(images);
}

static void test_a_learner_that_diverges_ends_the_step(void **state)
{
    write_bright(*state);
    for (enum setting s = IN_TURNS; s < SETTINGS; s++) {
        struct bench b = {.setting = s, .story = diverge_bench};
        Paceline__Job *job =
            make_job(*state, plain_net, "bright", "local: 4 kernels: ref batch: 64");
        job->train_data->scale = 1e36f;
        bench_open(&b, job);
        play_well(&b);
        bench_close(&b);
    }
}

/* A failed assertion on one learner's task: an invalid label. */
static int fail_bench(struct bench *b)
{
    int rc = learner_gradient(&b->l, 0, BATCH);
    CHECK(rc == ERR_CANCELLED || rc == OK);
    return rc;
}

static void test_a_mistake_in_a_learner_ends_all(void **state)
{
    static uint32_t labels[BATCH];
    struct logger silent = {0};
    struct err err = {0};
    struct bench b = {.setting = REAL, .story = fail_bench};
    struct source_fake fake =
        source_fake_make(labels, BATCH, (struct shape){3, {1, TINY_SIDE, TINY_SIDE}});
    Paceline__Data spec = PACELINE__DATA__INIT;
    b.job = make_job(*state, plain_net, "train", "local: 4 kernels: ref batch: 64");
    arena_init(&b.arena);
    assert_int_equal(dataset_init(&b.corpus.set[SET_TRAIN], &fake.source, &spec, &err), OK);
    assert_int_equal(workspace_create(b.job, &b.corpus, &silent, NULL, NULL, &b.ws, &err), OK);
    const struct batch *records;
    assert_int_equal(loader_take(&b.ws->loader, 0, BATCH, &records, NULL), OK);
    labels[records->records[BATCH - 1]] = TINY_CLASSES; /* the last learner's */
    assert_int_equal(play_bench(&b), ERR_BUG);
    assert_non_null(strstr(b.fault.text, "task learner"));
    bench_close(&b);
}

/* ---- its tasks ---- */

static int count_threads(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static int train_for_ever(void *arg)
{
    struct bench *b = arg;
    for (uint64_t i = 0;; i++) {
        int rc = learner_step(&b->l, i * BATCH, BATCH);
        if (rc != OK)
            return rc;
    }
}

/* The training task is cancelled in the middle of a step. */
static int cancel_bench(struct bench *b)
{
    struct task *task;
    int result = OK;
    CHECK(world_spawn(b->world, "trainer", train_for_ever, b, &task) == OK);
    CHECK(world_sleep(b->world, world_now(b->world) + WORLD_SECOND / 50) == OK);
    world_cancel(b->world, task);
    CHECK(world_join(b->world, task, WORLD_FOREVER, &result) == OK);
    CHECK(result == ERR_CANCELLED);
    return OK;
}

/* A thread that was joined stays in the folder for a moment. */
static int count_settled_threads(void)
{
    int n = count_threads();
    for (int same = 0; same < 20;) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        int now = count_threads();
        same = now == n ? same + 1 : 0;
        n = now;
    }
    return n;
}

static void test_a_group_leaves_no_thread_behind(void **state)
{
    int before = count_settled_threads();
    for (int i = 0; i < 20; i++) {
        struct bench b = {.setting = i % 2 ? SIMULATED : REAL, .story = cancel_bench};
        bench_open(&b, make_job(*state, plain_net, "train", "local: 4 batch: 64 kernels: ref"));
        play_well(&b);
        bench_close(&b);
    }
    assert_int_equal(count_settled_threads(), before);
}

/* Stopped, it continues in turns; and can be started again. */
static int stop_and_go(struct bench *b)
{
    struct err err = {0};
    for (uint64_t i = 0; i < STEPS; i++) {
        CHECK(learner_step(&b->l, b->start + i * BATCH, BATCH) == OK);
        learner_stop(&b->l);
        if (i % 2)
            CHECK(learner_start(&b->l, b->world, &err) == OK);
    }
    return keep_vector(b, &b->l.x);
}

static void test_it_can_be_stopped_and_started(void **state)
{
    static const char fields[] = "kernels: ref batch: 64";
    struct bench one = {.setting = IN_TURNS};
    run_alone(&one, *state, plain_net, fields, train_bench);
    for (enum setting s = REAL; s < SETTINGS; s++) {
        struct bench b = {.setting = s, .story = stop_and_go};
        bench_open(&b, make_job(*state, plain_net, "train", "local: 4 kernels: ref batch: 64"));
        play_well(&b);
        assert_true(same_bits(&b, &one));
        bench_close(&b);
    }
    bench_close(&one);
}

static int count_allocations(struct bench *b)
{
    for (uint64_t i = 0; i < WARM; i++)
        CHECK(learner_step(&b->l, i * BATCH, BATCH) == OK);
    uint64_t before = atomic_load(&allocations);
    for (uint64_t i = 0; i < STEPS; i++)
        CHECK(learner_step(&b->l, i * BATCH, BATCH) == OK);
    CHECK(atomic_load(&allocations) == before);
    return OK;
}

static void test_a_step_allocates_nothing(void **state)
{
    if (!COUNTS)
        skip();
    for (enum setting s = IN_TURNS; s < SETTINGS; s++) {
        struct bench b = {.setting = s, .story = count_allocations};
        bench_open(&b, make_job(*state, plain_net, "train", "local: 4 kernels: ref batch: 64"));
        play_well(&b);
        bench_close(&b);
    }
}

/* ---- time ---- */

/* Is that what one step takes, in seconds? */
static bool takes_about(struct bench *b, size_t count, double seconds)
{
    int64_t begun = world_now(b->world);
    return learner_step(&b->l, 0, count) == OK &&
           fabs(world_seconds(world_now(b->world) - begun) - seconds) < 1e-7;
}

/* A step costs 0.08 s of one core. */
static int time_four_on_four(struct bench *b)
{
    CHECK(takes_about(b, 64, 0.02));
    CHECK(takes_about(b, 64, 0.02));
    CHECK(takes_about(b, 40, 0.0125)); /* each has 10 records */
    CHECK(takes_about(b, 8, 0.0025));
    CHECK(takes_about(b, 5, 0.0025)); /* two have 2 records, one 1, one none */
    return OK;
}

static int time_four_on_two(struct bench *b)
{
    CHECK(takes_about(b, 64, 0.04));
    CHECK(takes_about(b, 32, 0.02));
    return OK;
}

static int time_on_one(struct bench *b)
{
    CHECK(takes_about(b, 64, 0.08));
    CHECK(takes_about(b, 40, 0.05));
    return OK;
}

static int time_two_at_half_speed(struct bench *b)
{
    CHECK(takes_about(b, 64, 0.08));
    CHECK(takes_about(b, 40, 0.05));
    CHECK(takes_about(b, 16, 0.02));
    return OK;
}

/* The pace is that of the group: a step, not each learner's part of it. */
static int time_pace(struct bench *b)
{
    CHECK(takes_about(b, 64, 0.1));
    CHECK(takes_about(b, 64, 0.1));
    return OK;
}

static void test_a_step_costs_its_part_of_the_cores(void **state)
{
    static const struct {
        const char *fields, *cluster;
        int (*story)(struct bench *b);
    } cases[] = {
        {"local: 4", "cores: 1", time_on_one},
        {"local: 4", "cores: 2", time_four_on_two},
        {"local: 4", "cores: 4", time_four_on_four},
        {"local: 4", "cores: 8", time_four_on_four},
        {"local: 2", "cores: 8 speed: 0.5", time_two_at_half_speed},
        {"local: 1", "cores: 8", time_on_one},
        {"local: 4 pace: 0.1", "cores: 1", time_pace},
        {"local: 4 pace: 0.1", "cores: 4", time_pace},
        {"local: 1 pace: 0.1", "cores: 4", time_pace},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bench b = {
            .setting = SIMULATED, .story = cases[i].story, .cluster = cases[i].cluster};
        bench_open(&b, make_job(*state, plain_net, "train", cases[i].fields));
        int rc = play_bench(&b);
        if (rc != OK)
            fail_msg("%s, %s: line %d", cases[i].fields, cases[i].cluster, rc - FAILED);
        bench_close(&b);
    }
}

/* By the clock, with little to compute. */
static int keep_pace(struct bench *b)
{
    int64_t begun = world_now(b->world);
    for (uint64_t i = 0; i < 4; i++)
        CHECK(learner_step(&b->l, i * BATCH, BATCH) == OK);
    double seconds = world_seconds(world_now(b->world) - begun);
    CHECK(seconds >= 0.8 && seconds < 3.1); /* once a learner would be 3.2 */
    return OK;
}

static void test_pace_is_kept_once_a_step(void **state)
{
    struct bench b = {.setting = REAL, .story = keep_pace};
    bench_open(&b, make_job(*state, plain_net, "train", "local: 4 batch: 64 pace: 0.2"));
    play_well(&b);
    bench_close(&b);
}

static int setup(void **state)
{
    static struct tiny tiny;
    tiny_create(&tiny);
    FILE *f = tiny_open(&tiny, dropout_net);
    const char *ip = strstr(tiny_net, "layer { name: 'ip'");
    fwrite(tiny_net, 1, (size_t)(ip - tiny_net), f);
    fprintf(f, "layer { name: 'drop' type: 'Dropout' bottom: 'pool' top: 'pool' }\n%s", ip);
    fclose(f);
    *state = &tiny;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_local_group_has_the_bits_of_one),
        cmocka_unit_test(test_dropout_is_that_of_the_whole_batch),
        cmocka_unit_test(test_other_records_are_other_bits),
        cmocka_unit_test(test_a_gradient_is_the_mean_over_the_batch),
        cmocka_unit_test(test_a_gradient_in_bf16_is_that_of_one),
        cmocka_unit_test(test_threads_are_shared_out),
        cmocka_unit_test(test_a_learner_that_diverges_ends_the_step),
        cmocka_unit_test(test_a_mistake_in_a_learner_ends_all),
        cmocka_unit_test(test_a_group_leaves_no_thread_behind),
        cmocka_unit_test(test_it_can_be_stopped_and_started),
        cmocka_unit_test(test_a_step_allocates_nothing),
        cmocka_unit_test(test_a_step_costs_its_part_of_the_cores),
        cmocka_unit_test(test_pace_is_kept_once_a_step),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
