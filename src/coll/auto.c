#include "coll/auto.h"

#include "base/minmax.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    SHORT_FLOATS = 16 * 1024,      /* below, latency is most of the time */
    LONG_FLOATS = 2 * 1024 * 1024, /* from here on a probe is soon paid for */
    CHUNK_FLOATS = 256 * 1024,     /* of them, unless something better is known */
    REST_MAX = 64,
};

/* A link within this part of the fastest is taken to be as fast: probes are short. */
#define ALIKE 0.8

/* Several connections are used if a vector takes less than this part of its time with one. */
#define WORTH_STRIPES 0.95

/* A time beyond this factor of the expected one is not noise. */
#define GREAT 1.6

static bool power_of_two(size_t ranks)
{
    return (ranks & (ranks - 1)) == 0;
}

enum coll_algorithm auto_rule(enum codec codec, size_t ranks, size_t n)
{
    if (codec_drops(codec)) /* each sum is coded once */
        return COLL_SCATTER_GATHER;
    if (n < SHORT_FLOATS)
        return codec == CODEC_F32 && power_of_two(ranks) ? COLL_BUTTERFLY : COLL_TREE;
    return power_of_two(ranks) && n < LONG_FLOATS ? COLL_HALVING_DOUBLING : COLL_CHUNKED_RING;
}

size_t auto_chunk(enum coll_algorithm algorithm, enum codec codec, bool driver, size_t chunk)
{
    bool whole = algorithm == COLL_HALVING_DOUBLING && codec == CODEC_F32 && !driver;
    return whole ? max_size(chunk, CHUNK_FLOATS) : chunk;
}

bool auto_measures(size_t n)
{
    return n >= LONG_FLOATS;
}

void auto_meta_init(struct auto_meta *meta, const struct coll *c, double took)
{
    *meta = (struct auto_meta){.took = took, .busy = atomic_load(&c->group->collectives) > 0};
}

void auto_meta_merge(struct auto_meta *meta, const struct auto_meta *other)
{
    meta->took = other->took > meta->took ? other->took : meta->took;
    meta->busy = other->busy > meta->busy ? other->busy : meta->busy;
}

double auto_took(const struct coll *c, double seconds, uint64_t moved, uint64_t own)
{
    uint64_t all = atomic_load(&c->group->moved) - moved;
    return all > own ? seconds * (double)own / (double)all : seconds;
}

/* Find the record of that vector length and move it to the front; NULL: there is none. */
static struct auto_length *find_length(struct coll_auto *a, const struct coll *c, size_t n)
{
    if (a->view != c->view->number)
        return NULL;
    if (a->length[0].n != n && a->length[1].n == n) {
        struct auto_length latest = a->length[1];
        a->length[1] = a->length[0];
        a->length[0] = latest;
    }
    return a->length[0].n == n ? &a->length[0] : NULL;
}

/* A crowded host is now slower and now faster, and measuring it each time only makes it worse. */
static bool has_drifted(struct coll_auto *a, const struct auto_length *l)
{
    if (a->calm > 0) {
        a->calm--;
        return l->count > 0 && l->took[2] > GREAT * l->expected;
    }
    return cost_drifted(l->expected, l->took + 3 - l->count, l->count);
}

static void remember_time(struct auto_length *l, double took)
{
    memmove(l->took, l->took + 1, sizeof l->took - sizeof *l->took);
    l->took[2] = took;
    l->count += l->count < 3;
}

/* One connection may not fill a fast link, and several are no faster on a slow one. So the second
 * vector uses all connections, and the faster choice stays. */
static void try_stripes(struct auto_length *l, uint32_t stripes, double took)
{
    if (l->trial == STRIPES_TRIED || stripes < 2 || l->count == 0)
        return;
    if (l->trial == STRIPES_UNTRIED) {
        l->trial = STRIPES_ON_TRIAL;
        l->single = took;
        l->stripes = stripes;
    } else {
        bool better = took < WORTH_STRIPES * l->single;
        l->trial = STRIPES_TRIED;
        l->stripes = better ? stripes : 1;
        l->expected = better ? took : l->single;
    }
    l->count = 0;
}

static bool must_measure(struct coll_auto *a, const struct coll *c, struct auto_length *l,
                         const struct auto_meta *meta)
{
    if (meta->busy || c->ranks->count < 2)
        return false;
    if (a->view == c->view->number)
        return l && has_drifted(a, l);
    if (a->rest > 0) {
        a->rest--;
        return false;
    }
    return true;
}

void auto_decide(struct coll_auto *a, const struct coll *c, size_t n, uint32_t stripes,
                 struct auto_meta *meta)
{
    struct auto_length *l = find_length(a, c, n);
    if (l && meta->took > 0)
        remember_time(l, meta->took);
    meta->measure = must_measure(a, c, l, meta);
    meta->stripes = 1;
    if (!l || meta->measure)
        return;
    if (!meta->busy && meta->took > 0)
        try_stripes(l, stripes, meta->took);
    meta->stripes = l->stripes;
}

static void log_choice(const struct coll_auto *a, const struct auto_length *l, const struct coll *c)
{
    double fastest = 0, slowest = INFINITY;
    size_t slow = 0;
    for (size_t i = 0; i < a->probe.ranks; i++) {
        double rate = a->probe.rate[i];
        fastest = rate > fastest ? rate : fastest;
        slow = rate < slowest ? i : slow;
        slowest = rate < slowest ? rate : slowest;
    }
    log_info(c->group->log,
             "all-reduce of %zu floats: %s in pieces of %zu KiB, %.3f s expected (links %.0f to "
             "%.0f MB/s, the slowest of node %" PRIu32 "; latency %.0f us)",
             l->n, coll_algorithm_name(l->choice.algorithm), l->choice.chunk * sizeof(float) / 1024,
             l->expected, slowest * 1e-6, fastest * 1e-6, c->ranks->node[slow],
             a->probe.latency * 1e6);
}

static void level_rates(struct probe *probe)
{
    double fastest = 0;
    for (size_t i = 0; i < probe->ranks; i++)
        fastest = probe->rate[i] > fastest ? probe->rate[i] : fastest;
    for (size_t i = 0; i < probe->ranks; i++)
        probe->rate[i] = probe->rate[i] > ALIKE * fastest ? fastest : probe->rate[i];
}

int auto_measure(struct coll_auto *a, struct coll *c, size_t n, enum codec codec,
                 const struct auto_meta *meta)
{
    const struct auto_length *l = find_length(a, c, n);
    enum coll_algorithm before = l ? l->choice.algorithm : COLL_AUTO;
    struct cost_choice choice;
    const size_t *cut;
    a->view = 0;
    int rc = probe_links(c, 0, &a->probe);
    if (rc != OK)
        return rc;
    if (!a->probe.alone) {
        a->resting = a->resting < REST_MAX ? 2 * a->resting + 1 : REST_MAX;
        a->rest = a->resting;
        return OK;
    }
    a->resting = 0;
    level_rates(&a->probe);
    a->view = c->view->number;
    a->length[0].n = a->length[1].n = 0;
    rc = auto_choose(a, c, n, codec, &choice, &cut);
    bool stays = rc == OK && choice.algorithm == before;
    if (stays && meta->took > 0)
        a->length[0].expected = meta->took;
    a->calming = stays ? (a->calming < REST_MAX ? 2 * a->calming + 4 : REST_MAX) : 0;
    a->calm = a->calming;
    return rc;
}

/* The rate of a link in floats a second. */
static double floats_rate(double rate, enum codec codec)
{
    return rate * CODEC_TOPK_BLOCK * sizeof(float) / (double)codec_bytes(codec, CODEC_TOPK_BLOCK);
}

struct cost_links auto_links(const struct cost_links *links, enum codec codec, double *rate)
{
    struct cost_links coded = *links;
    double *send = rate, *recv = rate + links->ranks;
    for (size_t i = 0; i < links->ranks; i++) {
        send[i] = floats_rate(links->send_rate[i], codec);
        recv[i] = floats_rate(links->recv_rate[i], codec);
    }
    coded.send_rate = send;
    coded.recv_rate = recv;
    return coded;
}

struct cost_choice auto_choose_on(const struct cost_links *links, size_t n, enum codec codec,
                                  size_t *cut)
{
    double rate[2 * (VIEW_MEMBERS_MAX + 1)];
    /* A ring of whole vectors takes too much memory. Halving moves as much as a chunked ring, but
     * leaves links idle for a moment between rounds, which the model does not see. */
    unsigned allowed = COST_ANY & ~(1u << COLL_RING) & ~(1u << COLL_HALVING_DOUBLING);
    if (codec != CODEC_F32)
        allowed &= ~(1u << COLL_BUTTERFLY);
    if (codec_drops(codec))
        allowed = 1u << COLL_SCATTER_GATHER;
    const struct cost_links coded = auto_links(links, codec, rate);
    return cost_choose(&coded, n, allowed, cut);
}

static int choose_for(struct coll_auto *a, struct auto_length *l, size_t n, enum codec codec)
{
    const struct cost_links links = {
        .ranks = a->probe.ranks,
        .send_rate = a->probe.rate,
        .recv_rate = a->probe.rate,
        .latency = a->probe.latency,
        .reduce_rate = INFINITY,
    };
    l->choice = auto_choose_on(&links, n, codec, l->cut);
    if (l->choice.algorithm == COLL_AUTO)
        return ERR_NOMEM;
    l->n = n;
    l->expected = l->choice.seconds;
    l->count = 0;
    l->stripes = 1;
    l->trial = STRIPES_UNTRIED;
    return OK;
}

int auto_choose(struct coll_auto *a, const struct coll *c, size_t n, enum codec codec,
                struct cost_choice *choice, const size_t **cut)
{
    *choice = (struct cost_choice){.algorithm = auto_rule(codec, c->ranks->count, n),
                                   .chunk = CHUNK_FLOATS};
    *cut = NULL;
    if (a->view != c->view->number)
        return OK;
    if (!find_length(a, c, n)) {
        a->length[1] = a->length[0];
        a->length[0].n = 0;
        int rc = choose_for(a, &a->length[0], n, codec);
        if (rc != OK)
            return rc;
        if (c->ranks->me == 0)
            log_choice(a, &a->length[0], c);
    }
    *choice = a->length[0].choice;
    *cut = a->length[0].cut;
    return OK;
}
