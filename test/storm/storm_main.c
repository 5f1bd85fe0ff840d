#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
/* storm [--seeds N] [--seconds N] [--from N] [--seed N] [--only TEXT] [--timing N] [--verbose]
 * [--least N] [--twice N]: plays seeds, on two processes; the first that breaks something is named,
 * with the command that replays it. `--seconds` begins no seed after that time, and the last line
 * has the seed to continue from. `--only` leaves out plans whose settings do not contain the text.
 * `--timing` plays the same plans with other links and jitter, and so with other orders of
 * messages. */
#include "base/fault.h"
#include "storm.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CREWS = 2, GAP_LEAST = 20, BACKENDS = 8 };

struct wish {
    uint64_t from, seeds, twice, least, timing, seconds;
    time_t until; /* with seconds */
    const char *only;
    bool one, verbose, loud, threads;
};

/* State that the processes share. */
struct share {
    struct table table[CREWS];
    uint64_t seed[CREWS]; /* under way; in the end the first that is not played */
    bool broken[CREWS], done[CREWS];
};

static uint64_t *under_way;

static void on_fault(struct fault_sink *sink, const char *file, int line, const char *what)
{
    (void)sink;
    printf("seed %" PRIu64 ": %s:%d: %s does not hold\n", *under_way, file, line, what);
    fflush(stdout);
    _exit(3);
}

/* The same seed takes the same path, whatever carries its tasks. */
static bool play_twice(struct ground *ground, const struct plan *plan, uint64_t trace)
{
    struct outcome second;
    struct table scratch = {0};
    enum sim_backend backend = plan->seed % BACKENDS == 0 ? SIM_BATON : SIM_FIBRES;
    storm_play(ground, plan, backend, &scratch, NULL, &second);
    if (second.trace == trace)
        return true;
    printf("seed %" PRIu64 ": two runs took two paths%s\n", plan->seed,
           backend == SIM_BATON ? ", on fibres and on threads" : "");
    return false;
}

static bool play_seed(struct ground *ground, const struct wish *wish, uint64_t seed,
                      struct table *table)
{
    struct plan plan;
    struct outcome outcome;
    plan_draw(&plan, seed, wish->timing);
    if (wish->only && !plan_has(&plan, wish->only))
        return true;
    if (wish->verbose) {
        printf("seed %" PRIu64 "\n", seed);
        plan_print(&plan, stdout);
        fflush(stdout);
    }
    storm_play(ground, &plan, wish->threads ? SIM_BATON : SIM_FIBRES, table,
               wish->verbose ? stdout : NULL, &outcome);
    if (wish->verbose)
        printf("trace %016" PRIx64 "\n", outcome.trace);
    if (!outcome.passed) {
        printf("seed %" PRIu64 ": %s\n  storm --seed %" PRIu64 " --timing %" PRIu64 " --verbose\n",
               seed, outcome.why, seed, wish->timing);
        if (!wish->verbose)
            plan_print(&plan, stdout);
        fflush(stdout);
        return false;
    }
    return !(wish->twice && seed % wish->twice == 0) || play_twice(ground, &plan, outcome.trace);
}

/* Memory that is allocated once and kept is allocated before anything is counted. */
static void warm_up(struct ground *ground)
{
    struct plan plan;
    struct table scratch = {0};
    struct outcome outcome;
    plan_draw(&plan, 0, 0);
    plan.strikes = plan.last = 0;
    plan.steps = 10;
    for (int k = 0; k < GROUND_NETS; k++) {
        plan.net = k;
        storm_play(ground, &plan, SIM_FIBRES, &scratch, NULL, &outcome);
    }
}

/* Every other seed. */
static int run_crew(const struct wish *wish, struct share *share, int me)
{
    struct ground ground;
    struct fault_sink sink = {on_fault};
    under_way = &share->seed[me];
    fault_bind(&sink);
    ground_open(&ground, wish->loud);
    warm_up(&ground);
    for (uint64_t i = (uint64_t)me;; i += CREWS) {
        *under_way = wish->from + i;
        if (i >= wish->seeds || (wish->seconds > 0 && time(NULL) >= wish->until))
            break;
        bool others = false;
        for (int k = 0; k < CREWS; k++)
            others |= share->broken[k];
        if (others && !getenv("STORM_GO_ON"))
            break;
        if (!play_seed(&ground, wish, *under_way, &share->table[me]))
            share->broken[me] = true;
    }
    share->done[me] = true;
    ground_close(&ground);
    fflush(stdout);
    return share->broken[me] ? 1 : 0;
}

static int run_campaign(const struct wish *wish, struct share *share)
{
    pid_t child[CREWS];
    int failed = 0;
    fflush(stdout);
    for (int i = 0; i < CREWS; i++) {
        child[i] = fork();
        if (child[i] == 0)
            _exit(run_crew(wish, share, i));
        if (child[i] < 0)
            abort();
    }
    for (int i = 0; i < CREWS; i++) {
        int status;
        waitpid(child[i], &status, 0);
        if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && !share->done[i]))
            printf("seed %" PRIu64 ": the process is lost (status %d)\n  storm --seed %" PRIu64
                   " --timing %" PRIu64 " --verbose\n",
                   share->seed[i], status, share->seed[i], wish->timing);
        failed |= status != 0;
    }
    return failed;
}

static int print_verdict(const struct wish *wish, const struct share *share)
{
    struct table sum = {0};
    for (int i = 0; i < CREWS; i++)
        table_add(&sum, &share->table[i]);
    int few = table_print(&sum, wish->least);
    double gap = (double)sum.exchanges / (double)(sum.faults ? sum.faults : 1);
    uint64_t next = share->seed[0];
    for (int i = 1; i < CREWS; i++)
        next = share->seed[i] < next ? share->seed[i] : next;
    printf("%" PRIu64 " seeds, %" PRIu64 " faults, %.1f exchanges committed between two, %" PRIu64
           " events; %" PRIu64 " drivers returned, %" PRIu64 " runs resumed, %" PRIu64
           " ended by name, %" PRIu64 " without a worker left, %" PRIu64 " views with leaves\n",
           sum.seeds, sum.faults, gap, sum.events, sum.returned, sum.resumed, sum.ended_by_name,
           sum.lost, sum.leaves);
    if (wish->seconds > 0)
        printf("continue from seed %" PRIu64 "\n", next);
    if (few > 0)
        printf("VOID: %d pairs have fewer than %" PRIu64 " hits\n", few, wish->least);
    if (gap < GAP_LEAST)
        printf("VOID: fewer than %d exchanges between two faults\n", GAP_LEAST);
    return few > 0 || gap < GAP_LEAST;
}

static uint64_t read_number(const char *name, const char *text)
{
    char *end = NULL;
    uint64_t value = text ? strtoull(text, &end, 10) : 0;
    if (!text || end == text || *end) {
        fprintf(stderr, "storm: %s takes a number\n", name);
        exit(2);
    }
    return value;
}

static void read_wish(struct wish *wish, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (strcmp(name, "--verbose") == 0)
            wish->verbose = true;
        else if (strcmp(name, "--threads") == 0)
            wish->threads = true;
        else if (strcmp(name, "--log") == 0)
            wish->loud = true;
        else if (strcmp(name, "--seeds") == 0)
            wish->seeds = read_number(name, argv[++i]);
        else if (strcmp(name, "--seconds") == 0)
            wish->seconds = read_number(name, argv[++i]);
        else if (strcmp(name, "--from") == 0)
            wish->from = read_number(name, argv[++i]);
        else if (strcmp(name, "--timing") == 0)
            wish->timing = read_number(name, argv[++i]);
        else if (strcmp(name, "--only") == 0 && argv[i + 1])
            wish->only = argv[++i];
        else if (strcmp(name, "--twice") == 0)
            wish->twice = read_number(name, argv[++i]);
        else if (strcmp(name, "--least") == 0)
            wish->least = read_number(name, argv[++i]);
        else if (strcmp(name, "--seed") == 0)
            wish->from = read_number(name, argv[++i]), wish->one = true;
        else
            fprintf(stderr, "storm: cannot %s\n", name), exit(2);
    }
}

int main(int argc, char **argv)
{
    struct wish wish = {.from = 1, .seeds = 200, .twice = 50};
    read_wish(&wish, argc, argv);
    wish.until = time(NULL) + (time_t)wish.seconds;
    struct share *share =
        mmap(NULL, sizeof *share, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (share == MAP_FAILED)
        return 1;
    memset(share, 0, sizeof *share);
    printf("seeds from %" PRIu64 "\n", wish.from);
    if (wish.one) {
        wish.seeds = 1;
        wish.twice = 1;
        return run_crew(&wish, share, 0);
    }
    int failed = run_campaign(&wish, share);
    return print_verdict(&wish, share) || failed;
}
