/* Teams of processes, of which one is killed or stopped while vectors move: the remaining ones
 * detect it in time and continue. */
#define _GNU_SOURCE
#include "process.h"
#include "team_play.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWED 3
#else
#define SLOWED 1
#endif

#define DEAD_MAX_S (4.0 * SLOWED)
#define CUT_MAX_S  (8.0 * SLOWED) /* of silence: 5 s where members share cores */
#define LIMIT_S    30.0

enum { MEMBERS = 4, FLOATS = 200000 };

/* The child's reports to the test, in memory of both. */
struct reports {
    _Atomic uint32_t sums, whole; /* right ones; those that all took part in */
    _Atomic uint32_t losses;      /* calls that ended because a member was lost */
    _Atomic double lost_at;       /* the first of them */
    _Atomic uint32_t size, wrong;
    atomic_bool over;
};

struct scene {
    struct reports reported[MEMBERS];
    atomic_bool stop;
    char rendezvous[32];
    pid_t child[MEMBERS]; /* the parent's */
};

/* Sums right: of all members, or of all but one; the step's number from each of them. */
static bool is_right(const float *x, uint32_t number, float step)
{
    uint32_t member = (uint32_t)x[0], size = 0;
    for (uint32_t i = 0; i < MEMBERS; i++)
        size += member >> i & 1;
    bool all = (member & 1u << number) && member < 1u << MEMBERS && size >= MEMBERS - 1;
    for (size_t i = 3; i < FLOATS; i++)
        all &= x[i] == x[0];
    return all && x[2] == step * (float)size;
}

/* The remaining members agree where to continue: some have one sum more than others. */
static int after_loss(pl_team *team, struct reports *reported, float *step)
{
    const pl_reduction min = {.size = sizeof min, .op = PL_MIN};
    if (atomic_fetch_add(&reported->losses, 1) == 0)
        atomic_store(&reported->lost_at, process_now());
    return pl_team_size(team) > 0 ? pl_team_allreduce(team, step, 1, &min, NULL) : PL_ERR_PEER;
}

/* One float counts the members, the next is set by a member that wants to stop, so that all stop
 * after the same step. 1: stop. */
static int sum_once(pl_team *team, struct scene *s, uint32_t number, float *x, float *step)
{
    struct reports *reported = &s->reported[number];
    for (size_t i = 0; i < FLOATS; i++)
        x[i] = (float)(1u << number);
    x[1] = atomic_load(&s->stop);
    x[2] = *step;
    int rc = pl_team_allreduce(team, x, FLOATS, NULL, NULL);
    atomic_store(&reported->size, pl_team_size(team));
    if (rc == PL_ERR_PEER)
        return after_loss(team, reported, step);
    if (rc != PL_OK)
        return rc;
    bool well = is_right(x, number, *step);
    atomic_fetch_add(well ? &reported->sums : &reported->wrong, 1);
    atomic_fetch_add(&reported->whole, x[0] == (1u << MEMBERS) - 1);
    (*step)++;
    return well ? x[1] > 0 : PL_ERR_BUG;
}

static void run_child(struct scene *s, uint32_t number)
{
    pl_engine *engine;
    pl_team *team;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* whatever becomes of the test */
    float *x = calloc(FLOATS, sizeof *x), step = 0;
    const pl_team_options options = {.size = sizeof options,
                                     .rendezvous = s->rendezvous,
                                     .members = number == 0 ? MEMBERS : 0,
                                     .timeout_s = 20};
    int rc = pl_engine_create(NULL, &engine);
    if (!x || rc != PL_OK || pl_team_open(engine, &options, &team) != PL_OK)
        _exit(3);
    while (rc == PL_OK)
        rc = sum_once(team, s, number, x, &step);
    atomic_store(&s->reported[number].over, rc == PL_ERR_PEER);
    pl_team_close(team);
    pl_engine_destroy(engine);
    free(x);
    exit(rc == 1 || rc == PL_ERR_PEER ? 0 : 4);
}

static struct scene *start_team(void)
{
    struct scene *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    port_find(s->rendezvous);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            run_child(s, i);
        s->child[i] = pid;
    }
    return s;
}

/* All but `but` have got n more correct sums. */
static bool have_summed(const struct scene *s, uint32_t but, uint32_t sums)
{
    for (uint32_t i = 0; i < MEMBERS; i++)
        if (i != but && atomic_load(&s->reported[i].sums) < sums)
            return false;
    return true;
}

static bool all_lost(const struct scene *s, uint32_t but)
{
    for (uint32_t i = 0; i < MEMBERS; i++)
        if (i != but && atomic_load(&s->reported[i].losses) == 0)
            return false;
    return true;
}

static void end_team(struct scene *s, uint32_t killed)
{
    double until = process_now() + LIMIT_S;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        int status;
        while (waitpid(s->child[i], &status, WNOHANG) == 0) {
            if (process_now() > until)
                kill(s->child[i], SIGKILL);
            process_nap(0.002);
        }
        if (i != killed)
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    munmap(s, sizeof *s);
}

static void wait_until(bool (*holds)(const struct scene *, uint32_t, uint32_t),
                       const struct scene *s, uint32_t but, uint32_t sums)
{
    double limit = process_now() + LIMIT_S;
    while (!holds(s, but, sums)) {
        if (process_now() > limit) {
            for (uint32_t i = 0; i < MEMBERS; i++)
                kill(s->child[i], SIGKILL);
            fail_msg("not after %g s", LIMIT_S);
        }
        process_nap(0.002);
    }
}

static bool have_lost(const struct scene *s, uint32_t but, uint32_t sums)
{
    (void)sums;
    return all_lost(s, but);
}

/* The time in which the remaining members detected the fault of a member at `at`; they continue. */
static double see_loss(struct scene *s, uint32_t member, double at)
{
    double last = 0;
    wait_until(have_lost, s, member, 0);
    uint32_t most = 0;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        double when = atomic_load(&s->reported[i].lost_at);
        uint32_t sums = atomic_load(&s->reported[i].sums);
        if (i != member && when > last)
            last = when;
        most = sums > most ? sums : most;
    }
    wait_until(have_summed, s, member, most + 20);
    for (uint32_t i = 0; i < MEMBERS; i++)
        if (i != member) {
            assert_int_equal(s->reported[i].size, MEMBERS - 1);
            assert_int_equal(s->reported[i].losses, 1);
            assert_int_equal(s->reported[i].wrong, 0);
            assert_true(s->reported[i].sums >= s->reported[i].whole + 20);
        }
    return last - at;
}

static void test_a_member_is_killed(void **state)
{
    (void)state;
    struct scene *s = start_team();
    wait_until(have_summed, s, MEMBERS, 10);
    double at = process_now();
    kill(s->child[2], SIGKILL);
    double took = see_loss(s, 2, at);
    print_message("    seen by all after %.3f s\n", took);
    assert_true(took < DEAD_MAX_S);
    atomic_store(&s->stop, true);
    end_team(s, 2);
}

static void test_the_coordinator_is_killed(void **state)
{
    (void)state;
    struct scene *s = start_team();
    wait_until(have_summed, s, MEMBERS, 10);
    double at = process_now();
    kill(s->child[0], SIGKILL);
    wait_until(have_lost, s, 0, 0);
    print_message("    seen by all after %.3f s\n", process_now() - at);
    assert_true(process_now() - at < DEAD_MAX_S);
    for (uint32_t i = 1; i < MEMBERS; i++) {
        int status;
        assert_true(waitpid(s->child[i], &status, 0) == s->child[i] && status == 0);
        assert_true(s->reported[i].over && s->reported[i].size == 0 && s->reported[i].wrong == 0);
    }
    waitpid(s->child[0], NULL, 0);
    munmap(s, sizeof *s);
}

/* One that stands still is cut off; when it continues, its team is over. */
static void test_a_member_is_stopped(void **state)
{
    (void)state;
    struct scene *s = start_team();
    wait_until(have_summed, s, MEMBERS, 10);
    double at = process_now();
    kill(s->child[3], SIGSTOP);
    double took = see_loss(s, 3, at);
    print_message("    seen by all after %.3f s\n", took);
    assert_true(took < CUT_MAX_S);
    kill(s->child[3], SIGCONT);
    process_nap(0.2);
    atomic_store(&s->stop, true);
    end_team(s, MEMBERS);
}

/* ---- the example ---- */

static pid_t start_example(int out, const char *rendezvous, const char *members)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(out, STDOUT_FILENO);
        execl(TEST_BUILD "/team_allreduce", "team_allreduce", rendezvous, members, (char *)NULL);
        _exit(126);
    }
    return pid;
}

static void test_team_allreduce_example_runs(void **state)
{
    (void)state;
    if (access(TEST_BUILD "/team_allreduce", X_OK) != 0) {
        print_message("team_allreduce is not built\n");
        skip();
    }
    char rendezvous[32];
    int out = process_capture(), status;
    assert_true(fcntl(out, F_SETFL, O_APPEND) == 0);
    port_find(rendezvous);
    pid_t pid[3];
    for (int i = 0; i < 3; i++) /* the coordinator is last */
        pid[i] = start_example(out, rendezvous, i == 2 ? "3" : "0");
    for (int i = 0; i < 3; i++)
        assert_true(waitpid(pid[i], &status, 0) == pid[i] && status == 0);
    char *text = process_output(out);
    for (int r = 0; r < 3; r++) {
        char line[64]; /* 1 + 2 + 3 + 3·(i mod 1000) */
        snprintf(line, sizeof line, "rank %d of 3: 6 ... 3003, by chunked_ring\n", r);
        if (!strstr(text, line))
            fail_msg("expected %sin\n%s", line, text);
    }
    free(text);
    close(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_member_is_killed),
        cmocka_unit_test(test_the_coordinator_is_killed),
        cmocka_unit_test(test_a_member_is_stopped),
        cmocka_unit_test(test_team_allreduce_example_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
