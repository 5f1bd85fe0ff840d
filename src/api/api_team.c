#include "paceline/team.h"

#include "api/api_key.h"
#include "api/guard.h"
#include "api/option_size.h"
#include "api/team.h"
#include "real/real.h"
#include "real/secret.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_KB = 256,
    CHUNK_KB_MAX = 4096,
    STRIPES = 4,
    STRIPES_MAX = 16,
    BRIEF_FLOATS = 16 * 1024
};

/* The shortest time of spinning: waking a sleeping core takes longer than a short vector does. */
#define BRIEF_SPIN    (30 * WORLD_SECOND / 1000000)

#define TIMEOUT_S     60.0
#define TIMEOUT_MAX_S 1e9
#define RETRY_NS      (WORLD_SECOND / 20)
#define FLOATS_MAX    1000000000u
#define SPIN_US_MAX   1e9

/* ---- coming together ---- */

static int host_main(void *arg)
{
    pl_team *team = arg;
    const struct group_timing timing = group_timing_busy();
    int rc = team_host_start(&team->host, team->host_world, &team->engine->log, &timing,
                             team->members, team->members_max);
    if (rc != OK)
        return rc;
    rc = kv_server_start(&team->kv_server, &team->host.group);
    if (rc != OK)
        team_host_stop(&team->host);
    return rc;
}

static int host_end(void *arg)
{
    pl_team *team = arg;
    kv_server_stop(&team->kv_server);
    team_host_stop(&team->host);
    return OK;
}

/* The coordinator's own world, next to that of its member. */
static int start_host(pl_team *team, const pl_team_options *o)
{
    struct err *err = &team->engine->error;
    const struct real_options real = {
        .log = &team->engine->log, .listen = o->rendezvous, .insecure = o->insecure, .key = o->key};
    int rc = real_open(&real, &team->host_world, err);
    if (rc == OK)
        rc = real_run(team->host_world, host_main, team, err);
    team->hosting = rc == OK;
    return rc;
}

/* Connect to the coordinator, which may not have started yet. */
static int find_host(pl_team *team, const pl_team_options *o)
{
    struct err *err = &team->engine->error;
    const struct real_options real = {
        .log = &team->engine->log,
        .listen = o->listen,
        .driver = o->rendezvous,
        .insecure = o->insecure,
        .key = o->key,
        .stripes = o->stripes ? o->stripes : STRIPES,
        .no_shm = o->no_shared_memory,
        .ucx = o->ucx,
    };
    for (;;) {
        int rc = real_open(&real, &team->world, err);
        if (rc != ERR_PEER)
            return rc;
        if (real_now() >= team->deadline)
            return err_set(err, ERR_TIMEOUT, "rendezvous %s: no team has its coordinator there",
                           o->rendezvous);
        real_sleep(RETRY_NS);
    }
}

static int member_main(void *arg)
{
    pl_team *team = arg;
    const struct group_timing timing = group_timing_busy();
    return team_join(&team->team, team->world, &team->engine->log, &timing, team->deadline);
}

static int open_team(pl_team *team, const pl_team_options *o)
{
    struct err *err = &team->engine->error;
    double timeout_s = o->timeout_s > 0 ? fmin(o->timeout_s, TIMEOUT_MAX_S) : TIMEOUT_S;
    team->members = o->members;
    team->members_max = o->members_max > o->members ? o->members_max : o->members;
    team->kv_bytes = o->kv_bytes;
    team->stripes = o->stripes ? o->stripes : STRIPES;
    team->deadline = real_now() + (int64_t)(timeout_s * (double)WORLD_SECOND);
    if (!o->rendezvous)
        return err_set(err, ERR_USAGE, "rendezvous: a team needs an address to meet at");
    if (o->members > VIEW_MEMBERS_MAX)
        return err_set(err, ERR_USAGE, "members: at most %d, is %u", VIEW_MEMBERS_MAX, o->members);
    if (o->members_max > VIEW_MEMBERS_MAX || (o->members_max > 0 && o->members_max < o->members))
        return err_set(err, ERR_USAGE, "members_max: %u (members) to %d, or 0, is %u", o->members,
                       VIEW_MEMBERS_MAX, o->members_max);
    int rc = o->members ? start_host(team, o) : OK;
    if (rc == OK)
        rc = find_host(team, o);
    if (rc != OK)
        return rc;
    err->text[0] = '\0';
    rc = real_run(team->world, member_main, team, err);
    team->joined = rc == OK;
    if (rc == ERR_TIMEOUT)
        return err_set(err, rc,
                       "rendezvous %s: not all members connected within %g s, or the team is full",
                       o->rendezvous, timeout_s);
    if (rc == ERR_DRIVER)
        return err_set(err, ERR_PEER, "rendezvous %s: the coordinator was lost, or refused",
                       o->rendezvous);
    return rc;
}

static int make_team(pl_engine *engine, const pl_team_options *options, pl_team **out)
{
    pl_team *team = calloc(1, sizeof *team);
    if (!team)
        return err_set(&engine->error, ERR_NOMEM, "out of memory for a team");
    team->engine = engine;
    atomic_flag_clear(&team->kv_opening);
    int rc = open_team(team, options);
    if (rc != OK) {
        struct err why = engine->error;
        pl_team_close(team);
        engine->error = why;
        return rc;
    }
    *out = team;
    return OK;
}

static int new_team(pl_engine *engine, const pl_team_options *given, pl_team **out)
{
    pl_team_options options;
    char *own_key = NULL;
    int rc = OPTIONS_TAKE(pl_team_options, &options, given, &engine->error);
    if (rc == OK)
        rc = api_key_choose(&engine->log, &engine->error, options.key, options.rendezvous, &own_key,
                            &options.key);
    if (rc == OK)
        rc = make_team(engine, &options, out);
    secret_free(own_key);
    return rc;
}

int pl_team_open(pl_engine *engine, const pl_team_options *options, pl_team **out)
{
    RETURN_GUARDED(engine, new_team(engine, options, out));
}

static int member_end(void *arg)
{
    pl_team *team = arg;
    kv_stop(&team->kv);
    team_leave(&team->team);
    return OK;
}

void pl_team_close(pl_team *team)
{
    struct err ignored;
    if (!team)
        return;
    if (team->joined)
        real_run(team->world, member_end, team, &ignored);
    if (team->world)
        real_close(team->world);
    if (team->hosting)
        real_run(team->host_world, host_end, team, &ignored);
    if (team->host_world)
        real_close(team->host_world);
    team_free_handles(team);
    free(team);
}

uint32_t pl_team_size(const pl_team *team)
{
    size_t rank;
    return (uint32_t)team_size(&team->team, &rank);
}

uint32_t pl_team_rank(const pl_team *team)
{
    size_t rank = 0;
    team_size(&team->team, &rank);
    return (uint32_t)rank;
}

const char *pl_team_error(const pl_team *team, uint32_t channel)
{
    return channel < PL_TEAM_CHANNELS ? team->error[channel].text : "no such channel";
}

const char *pl_team_algorithm(const pl_team *team, uint32_t channel)
{
    return coll_algorithm_name(team->team.channel[channel % PL_TEAM_CHANNELS].algorithm);
}

/* ---- calls ---- */

struct calling {
    pl_team *team;
    struct team_call call;
    int64_t spin;
    double weight; /* of a mean; < 0: no mean */
    bool weighted; /* the weights are to be summed first */
};

static int read_options(struct calling *c, const pl_call_options *o, struct err *err)
{
    enum coll_algorithm algorithm = coll_algorithm_find(o->algorithm ? o->algorithm : "auto");
    uint32_t chunk_kb = o->chunk_kb ? o->chunk_kb : CHUNK_KB;
    if (algorithm == COLL_ALGORITHMS)
        return err_set(err, ERR_USAGE, "algorithm: there is no %s", o->algorithm);
    if (o->wire && !codec_find(o->wire, &c->call.config.codec))
        return err_set(err, ERR_USAGE, "wire: there is no %s", o->wire);
    if (codec_drops(c->call.config.codec))
        return err_set(err, ERR_USAGE, "wire: %s leaves numbers out; f32, bf16 or int8", o->wire);
    if (c->call.config.codec != CODEC_F32 &&
        (algorithm == COLL_BUTTERFLY || algorithm == COLL_RING))
        return err_set(err, ERR_USAGE, "wire: %s needs f32", o->algorithm);
    if (chunk_kb > CHUNK_KB_MAX)
        return err_set(err, ERR_USAGE, "chunk_kb: at most %d, is %u", CHUNK_KB_MAX, chunk_kb);
    if (o->stripes > STRIPES_MAX)
        return err_set(err, ERR_USAGE, "stripes: at most %d, is %u", STRIPES_MAX, o->stripes);
    if (!(o->spin_us >= 0 && o->spin_us <= SPIN_US_MAX))
        return err_set(err, ERR_USAGE, "spin_us: 0 to %g, is %g", SPIN_US_MAX, o->spin_us);
    if (c->call.n > FLOATS_MAX)
        return err_set(err, ERR_USAGE, "n: at most %u floats", FLOATS_MAX);
    c->call.algorithm = algorithm;
    c->call.config.chunk = (size_t)chunk_kb * 1024 / sizeof(float);
    c->call.stripes = o->stripes ? o->stripes : algorithm == COLL_AUTO ? c->team->stripes : 1;
    c->call.stripes_given = o->stripes > 0;
    c->call.residual = o->residual;
    c->spin = (int64_t)(o->spin_us * 1e3);
    return OK;
}

static int read_reduction(struct calling *c, const pl_reduction *given, struct err *err)
{
    pl_reduction own, *r = &own;
    static const enum reduce_kind kinds[] = {[PL_SUM] = REDUCE_SUM,
                                             [PL_MEAN] = REDUCE_SUM,
                                             [PL_MAX] = REDUCE_MAX,
                                             [PL_MIN] = REDUCE_MIN,
                                             [PL_USER_OP] = REDUCE_USER};
    c->weight = -1;
    if (!given)
        return OK;
    int rc = OPTIONS_TAKE(pl_reduction, &own, given, err);
    if (rc != OK)
        return rc;
    if ((unsigned)r->op > PL_USER_OP || (r->op == PL_USER_OP && !r->fn))
        return err_set(err, ERR_USAGE,
                       "reduction: unknown operation, or no function for PL_USER_OP");
    c->call.config.reduction = (struct reduction){kinds[r->op], r->fn, r->user};
    if (r->op != PL_MEAN)
        return OK;
    if (!(r->weight >= 0) || !isfinite((float)r->weight))
        return err_set(err, ERR_USAGE, "weight: must be a number ≥ 0, is %g", r->weight);
    c->weight = r->weight;
    return OK;
}

/* Weights, and how many there are, of all: whatever the call, all members go by both. */
static int sum_of_weights(struct calling *c, float sum[2])
{
    struct team_call call = {.kind = TEAM_ALLREDUCE, .channel = c->call.channel, .x = sum, .n = 2};
    call.algorithm = COLL_AUTO;
    call.stripes = c->call.stripes;
    call.config.chunk = c->call.config.chunk;
    sum[0] = (float)c->weight;
    sum[1] = 1;
    int rc = team_run(&c->team->team, &call);
    c->call.view = c->team->team.channel[call.channel].view; /* the vector's, too */
    return rc;
}

/* By one thread: the other cores belong to the caller, which may run a member on each. */
static void scale_vector(float *x, size_t n, float by)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
}

static int call_mean(struct calling *c)
{
    float sum[2];
    int rc = sum_of_weights(c, sum);
    bool equal = rc == OK && sum[0] == 0;
    if (rc == OK && !equal)
        scale_vector(c->call.x, c->call.n, (float)c->weight);
    if (rc == OK)
        rc = team_run(&c->team->team, &c->call);
    if (rc == OK)
        scale_vector(c->call.x, c->call.n, 1.0f / sum[equal]);
    return rc;
}

static int call_main(void *arg)
{
    struct calling *c = arg;
    bool brief = c->call.n <= BRIEF_FLOATS;
    world_busy_poll(c->team->world, brief && c->spin < BRIEF_SPIN ? BRIEF_SPIN : c->spin);
    return c->weight >= 0 ? call_mean(c) : team_run(&c->team->team, &c->call);
}

/* Map every internal status of a collective to the public one. */
static int public_status(const pl_team *team, struct err *err, int rc)
{
    switch (rc) {
    case OK: return OK;
    case ERR_VIEW:
        return err_set(err, ERR_PEER, "a member was lost or has joined; there are %u now",
                       pl_team_size(team));
    case ERR_DRIVER:
    case ERR_CANCELLED:
        return err_set(err, ERR_PEER,
                       "the team is over: its coordinator is lost, or has given this member up");
    case ERR_USAGE: return err_set(err, rc, "the channel is in use, or the root is no rank");
    case ERR_UNSUPPORTED:
        return err_set(err, ERR_USAGE,
                       "the vector is too long for this algorithm on so many members");
    case ERR_PROTOCOL:
        return err_set(err, ERR_USAGE, "the members' calls do not fit together; this one has left");
    case ERR_BUG: return rc; /* the message is set */
    default: return err_set(err, rc, "the collective failed: %s", status_text(rc));
    }
}

static int run_call(pl_team *team, struct calling *c, const pl_reduction *reduction,
                    const pl_call_options *options)
{
    pl_call_options own = {.size = sizeof own};
    struct err why = {0};
    int taken = OPTIONS_TAKE(pl_call_options, &own, options, &why);
    if (own.channel >= PL_TEAM_CHANNELS)
        return ERR_USAGE;
    struct err *err = &team->error[own.channel];
    c->team = team;
    c->call.channel = own.channel;
    if (taken != OK)
        *err = why;
    int rc = taken == OK ? read_options(c, &own, err) : taken;
    if (rc == OK)
        rc = read_reduction(c, reduction, err);
    return rc == OK ? public_status(team, err, real_run(team->world, call_main, c, err)) : rc;
}

int pl_team_allreduce(pl_team *team, float *x, size_t n, const pl_reduction *reduction,
                      const pl_call_options *options)
{
    struct calling c = {.call = {.kind = TEAM_ALLREDUCE, .x = x, .n = n}};
    return run_call(team, &c, reduction, options);
}

int pl_team_broadcast(pl_team *team, uint32_t root, float *x, size_t n,
                      const pl_call_options *options)
{
    struct calling c = {.call = {.kind = TEAM_BROADCAST, .x = x, .n = n, .root = root}};
    return run_call(team, &c, NULL, options);
}

int pl_team_reduce(pl_team *team, uint32_t root, float *x, size_t n, const pl_reduction *reduction,
                   const pl_call_options *options)
{
    struct calling c = {.call = {.kind = TEAM_REDUCE, .x = x, .n = n, .root = root}};
    return run_call(team, &c, reduction, options);
}

size_t pl_team_part(size_t n, uint32_t members, uint32_t rank)
{
    return rank >= members ? n : schedule_cut(n, members, rank);
}

int pl_team_gather(pl_team *team, uint32_t root, float *x, size_t n, const pl_call_options *options)
{
    struct calling c = {.call = {.kind = TEAM_GATHER, .x = x, .n = n, .root = root}};
    return run_call(team, &c, NULL, options);
}

int pl_team_all_gather(pl_team *team, float *x, size_t n, const pl_call_options *options)
{
    struct calling c = {.call = {.kind = TEAM_ALL_GATHER, .x = x, .n = n}};
    return run_call(team, &c, NULL, options);
}

int pl_team_reduce_scatter(pl_team *team, float *x, size_t n, const pl_reduction *reduction,
                           const pl_call_options *options)
{
    struct calling c = {.call = {.kind = TEAM_REDUCE_SCATTER, .x = x, .n = n}};
    return run_call(team, &c, reduction, options);
}
