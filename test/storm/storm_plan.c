/* A seed becomes a plan. Pairs of a fault and a moment are dealt out in turn, so that all get their
 * share; the rest is drawn. */
#include "storm.h"

#include <inttypes.h>
#include <string.h>

enum {
    JOINED = 1,   /* it can be joined under way */
    FREE = 2,     /* the strategy is asynchronous */
    LANES = 4,    /* by exchanges with the commit rule */
    UNSYNCED = 8, /* joiners adopt their initial state, so there are adoptions to strike at */
    SEATS = 16,   /* replicas of a model in slices: no donor is asked */
    STREAMS = 32, /* of a recurrent net */
    BRANCHES = 64,
};

struct way {
    const char *set[4];
    uint64_t round; /* steps between two exchanges */
    unsigned is;
};

/* `single` is not among them: it has no worker to lose. */
static const struct way ways[] = {
    {{"strategy.sync={tau:2}"}, 2, JOINED | LANES},
    {{"strategy.sync={tau:3 on_replace:average}"}, 3, JOINED | LANES},
    {{"strategy.sync={tau_auto:true}"}, 10, JOINED | LANES},
    {{"strategy.sync={seconds:0.01}"}, 3, JOINED | LANES},
    {{"strategy.sync={tau:2}"}, 2, JOINED | LANES | STREAMS},
    {{"strategy.allreduce={}"}, 1, JOINED | LANES},
    {{"strategy.allreduce={}"}, 1, JOINED | LANES | STREAMS},
    {{"strategy.allreduce={bucket_kb:1}", "collective.algorithm=ring"}, 1, JOINED | LANES},
    {{"strategy.allreduce={}", "batch_growth={first:12 last:48 epochs:2}", "batch"},
     1,
     JOINED | LANES},
    {{"strategy.allreduce={}", "reject=outliers"}, 1, JOINED | LANES},
    {{"strategy.async_allreduce={}"}, 1, JOINED | LANES},
    {{"strategy.async_allreduce={method:1 sync_every_epochs:0.3}"}, 1, JOINED | LANES},
    {{"strategy.async_allreduce={warmup_epochs:0.5 sync_every_epochs:0}"}, 1, JOINED | LANES},
    {{"strategy.diloco={tau:2}"}, 2, JOINED | LANES},
    {{"strategy.diloco={tau:3 fragments:3}"}, 1, JOINED | LANES},
    {{"strategy.diloco={tau:4 fragments:2 overlap:1 on_replace:average}"}, 2, JOINED | LANES},
    {{"strategy.easgd={mode:sync tau:2}"}, 2, JOINED | LANES},
    /* A step has all of the 400 records: with this batch it takes about as long as those of others.
     */
    {{"strategy.full_batch={tolerance:0}", "solver={type:'CG'}", "batch=100"}, 1, JOINED | LANES},
    {{"strategy.allreduce={bucket_kb:1}", "slices=2"}, 1, JOINED | LANES | SEATS},
    {{"strategy.allreduce={}", "slices=2"}, 1, JOINED | LANES | SEATS | STREAMS},
    {{"strategy.sync={tau:2}", "slices=2"}, 2, JOINED | LANES | SEATS | BRANCHES},
    {{"strategy.sync={tau:2}", "slices=2"}, 2, JOINED | LANES | SEATS | STREAMS},
    {{"strategy.allreduce={}", "slices=3"}, 1, JOINED | LANES | SEATS | BRANCHES},
    {{"strategy.diloco={tau:2}", "slices=2"}, 2, JOINED | LANES | SEATS},
    {{"strategy.easgd={mode:sync tau:2}", "slices=2"}, 2, JOINED | LANES | SEATS},
    {{"strategy.easgd={tau:2}"}, 2, JOINED | FREE},
    {{"strategy.mpca={}"}, 1, JOINED | FREE | LANES | UNSYNCED},
    {{"strategy.mpca={coordination:symmetric shards:5}"}, 1, JOINED | FREE | LANES | UNSYNCED},
    {{"strategy.mpca={phases:1 shards:1 penalty:gradient adopt:arrival}"},
     1,
     JOINED | FREE | LANES | UNSYNCED},
    {{"strategy.pace={}"}, 1, JOINED | FREE | LANES | UNSYNCED},
    {{"strategy.pace={coordination:symmetric shards:3}"}, 1, JOINED | FREE | LANES | UNSYNCED},
    {{"strategy.gossip={p:0.3}"}, 1, JOINED | FREE},
    {{"strategy.ps={consistency:bsp}"}, 1, JOINED | FREE},
    {{"strategy.ps={consistency:asp}"}, 1, JOINED | FREE},
    {{"strategy.ps={consistency:asp servers:2}", "reject=outliers"}, 1, JOINED | FREE},
    {{"strategy.ps={consistency:ssp staleness:2}"}, 1, JOINED | FREE},
    {{"strategy.ps={consistency:asp}", "solver.type=Adam"}, 1, JOINED | FREE},
    {{"strategy.ps={consistency:dssp colocated:true}"}, 1, JOINED | FREE},
    {{"strategy.ps={consistency:bsp servers:2}", "solver.type=Adam"}, 1, JOINED | FREE},
    {{"strategy.downpour={n_push:2 n_fetch:2}", "solver.momentum=0"}, 1, JOINED | FREE},
    {{"strategy.downpour={n_push:1 n_fetch:12 server_adagrad:true}", "solver.momentum=0"},
     1,
     JOINED | FREE},
    {{"strategy.downpour={n_push:2 n_fetch:2 colocated:true}", "solver.momentum=0"},
     1,
     JOINED | FREE},
    {{"strategy.downpour={n_push:2 n_fetch:4}", "solver.type=Adam", "solver.base_lr=0.005"},
     1,
     JOINED | FREE},
    {{"strategy.downpour={n_push:2 n_fetch:2 servers:2 learning_rule:server}", "solver.type=Adam",
      "solver.base_lr=0.005"},
     1,
     JOINED | FREE},
};

enum { WAYS = sizeof ways / sizeof *ways, GAP = 22, STRIKES = 4 };

uint32_t plan_ways(void)
{
    return WAYS;
}

/* The traits that a strategy must have for such a moment to occur. */
static unsigned needs_of(const struct strike *strike)
{
    switch (strike->aim) {
    case MOMENT_ADOPTS: return JOINED | LANES | UNSYNCED;
    case MOMENT_REPORTS: return JOINED | LANES;
    case MOMENT_REDUCES: return LANES;
    case MOMENT_WAITS:
    case MOMENT_DONATES:
    case MOMENT_JOIN_PENDING:
    case MOMENT_LEAVES: return JOINED;
    default: return strike->fault == FAULT_FLOOD ? JOINED : 0;
    }
}

/* The phase of a run in which a strike happens. */
static int phase_of(const struct strike *strike)
{
    return strike->aim == MOMENT_FORMS ? 0 : strike->aim == MOMENT_HANDS_OVER ? 2 : 1;
}

/* The pairs that can be are dealt like cards: each once, in an order drawn again for every deal. */
static void pair_of(uint64_t number, struct strike *strike)
{
    struct strike card[FAULTS * MOMENTS];
    uint32_t cards = 0;
    for (int f = 0; f < FAULTS; f++)
        for (int m = 0; m < MOMENTS; m++)
            if (!table_impossible((enum fault_kind)f, (enum moment)m))
                card[cards++] = (struct strike){.fault = (enum fault_kind)f, .aim = (enum moment)m};
    struct dice dice = {.seed = number / cards};
    uint32_t at = (uint32_t)(number % cards);
    for (uint32_t i = 0; i <= at; i++) {
        uint32_t k = i + dice_roll(&dice, cards - i);
        struct strike t = card[i];
        card[i] = card[k];
        card[k] = t;
    }
    strike->fault = card[at].fault;
    strike->aim = card[at].aim;
}

static void draw_strike(struct strike *strike, struct dice *dice)
{
    static const double longest[FAULTS] = {
        [FAULT_PAUSE] = 3,     [FAULT_SLOW] = 0.4, [FAULT_PARTITION] = 7,
        [FAULT_ONE_WAY] = 7,   [FAULT_CLOG] = 0.4, [FAULT_REORDER] = 0.4,
        [FAULT_DISK_FULL] = 1, [FAULT_SYNC] = 1,   [FAULT_LEAP] = 4,
    };
    strike->after = GAP + dice_roll(dice, 5);
    /* Half of them pass before anybody is suspected. */
    strike->lasts = dice_roll(dice, 2) ? dice_real(dice, 0.02, 0.8)
                                       : dice_real(dice, 0.02, longest[strike->fault] + 0.03);
    if (strike->lasts > longest[strike->fault])
        strike->lasts = longest[strike->fault];
    strike->returns =
        dice_roll(dice, 3) ? dice_real(dice, 0.001, 0.05) : dice_real(dice, 0.05, 1.5);
    strike->factor = 2 + dice_roll(dice, 30);
    strike->draw = dice_roll(dice, 1 << 20);
}

static void sort_strikes(struct plan *plan)
{
    for (uint32_t i = 1; i < plan->strikes; i++)
        for (uint32_t j = i; j > 0; j--) {
            struct strike *a = &plan->strike[j - 1], *b = &plan->strike[j], t = *a;
            if (phase_of(a) <= phase_of(b))
                break;
            *a = *b;
            *b = t;
        }
}

static const struct way *draw_way(const struct plan *plan, struct dice *dice)
{
    for (;;) {
        const struct way *way = &ways[dice_roll(dice, WAYS)];
        unsigned needs = 0;
        bool seats = true;
        for (uint32_t i = 0; i < plan->strikes; i++) {
            needs |= needs_of(&plan->strike[i]);
            seats &= plan->strike[i].aim != MOMENT_DONATES;
        }
        if ((way->is & needs) == needs && (seats || !(way->is & SEATS)))
            return way;
    }
}

/* The same nodes with other links and steps, wider apart. */
static int draw_timing(struct plan *plan, uint64_t timing)
{
    struct dice dice = {.seed = timing, .n = plan->seed << 8};
    return snprintf(plan->cluster, sizeof plan->cluster,
                    "node { count: %u jitter: %.2f } step_seconds: 0.004 link { mbit: %u "
                    "latency_us: %u loss: %.4f }",
                    plan->nodes, dice_real(&dice, 0, 0.9), 10 << dice_roll(&dice, 7),
                    20 + dice_roll(&dice, 1000), 0.003 * dice_roll(&dice, 4));
}

/* In every other seed the host replaces lost workers; in others all join at given times. */
static void draw_cluster(struct plan *plan, struct dice *dice, uint64_t timing)
{
    static const int mbit[] = {20, 100, 1000};
    bool hosts = dice_roll(dice, 2);
    int n = snprintf(plan->cluster, sizeof plan->cluster,
                     "node { count: %u jitter: %.2f } step_seconds: 0.004 link { mbit: %d "
                     "latency_us: %u loss: %.4f }",
                     plan->nodes, 0.3 * dice_roll(dice, 3), mbit[dice_roll(dice, 3)],
                     50 + dice_roll(dice, 400), dice_roll(dice, 4) ? 0 : 0.0005);
    if (timing > 0)
        n = draw_timing(plan, timing);
    uint32_t until = hosts ? plan->workers_max : plan->nodes;
    for (uint32_t i = plan->workers; plan->joinable && i < until; i++)
        n += snprintf(plan->cluster + n, sizeof plan->cluster - (size_t)n,
                      " fault { at: 1e6 join: %u }", i);
}

void plan_draw(struct plan *plan, uint64_t seed, uint64_t timing)
{
    struct dice dice = {.seed = seed};
    bool adopts = false;
    *plan = (struct plan){.seed = seed};
    for (uint32_t i = 0; i < STRIKES; i++) {
        struct strike *strike = &plan->strike[plan->strikes];
        pair_of(seed * STRIKES + i, strike);
        draw_strike(strike, &dice);
        plan->strikes++;
    }
    sort_strikes(plan);
    const struct way *way = draw_way(plan, &dice);
    memcpy(plan->set, way->set, sizeof plan->set);
    plan->joinable = way->is & JOINED;
    plan->frees = way->is & FREE;
    plan->net = way->is & STREAMS ? NET_RECURRENT : way->is & BRANCHES ? NET_BRANCHES : NET_PLAIN;
    plan->local_data = rng_below(seed, 0, 77, 3) == 0;               /* apart from the dice */
    plan->pauses = plan->joinable && rng_below(seed, 0, 78, 6) == 0; /* likewise */
    plan->workers = 3 + dice_roll(&dice, 3);
    if (!(way->is & JOINED))
        plan->workers = 5 + dice_roll(&dice, 2);
    if (way->is & SEATS) {
        plan->slices = (uint32_t)(strchr(way->set[1], '=')[1] - '0');
        plan->workers = plan->slices * (plan->workers < 5 ? 2 : 3) > 6 ? 6 : plan->slices * 2;
        plan->local_data = plan->pauses = false;
    }
    plan->workers_max = plan->workers + ((way->is & JOINED) ? 2 + dice_roll(&dice, 3) : 0);
    plan->nodes = (way->is & JOINED) ? NODES_MAX : plan->workers;
    plan->steps = (uint64_t)(GAP + 4) * (plan->strikes + 3) * way->round;
    for (uint32_t i = 0; i < plan->strikes; i++)
        adopts |= plan->strike[i].aim == MOMENT_ADOPTS;
    if (adopts && way->is & UNSYNCED) /* a joiner must come before its adoption is struck */
        plan->steps *= 2;
    draw_cluster(plan, &dice, timing);
    plan->stops = seed % 8 != 0;
    while (plan->last < plan->strikes && phase_of(&plan->strike[plan->last]) < 2)
        plan->last++;
    /* A fault at the end of a stopped run finds known issues (docs/KNOWN-ISSUES.md). */
    plan->stops &= plan->last == plan->strikes;
}

bool plan_has(const struct plan *plan, const char *text)
{
    for (int i = 0; i < 4 && plan->set[i]; i++)
        if (strstr(plan->set[i], text))
            return true;
    return false;
}

void plan_print(const struct plan *plan, FILE *out)
{
    static const char *const nets[GROUND_NETS] = {"", " recurrent", " branches"};
    fprintf(out, "  %s%s%s%s%s%s, %u to %u workers, %" PRIu64 " steps\n  %s\n", plan->set[0],
            plan->set[1] ? " " : "", plan->set[1] ? plan->set[1] : "", nets[plan->net],
            plan->local_data ? " local_data" : "", plan->pauses ? " pauses" : "", plan->workers,
            plan->workers_max, plan->steps, plan->cluster);
    for (uint32_t i = 0; i < plan->strikes; i++) {
        const struct strike *s = &plan->strike[i];
        fprintf(out, "  %s at one that %s, %" PRIu64 " exchanges on, for %.3f s, back after %.3f\n",
                fault_names[s->fault], moment_names[s->aim], s->after, s->lasts, s->returns);
    }
}
