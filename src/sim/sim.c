#include "sim/sim.h"

#include "base/fault.h"
#include "base/hash.h"
#include "job/cluster.h"
#include "sim/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SPAN_MAX 1e18 /* spans can be added without overflow */

enum { STUCK_LINES_MAX = 40, STUCK_TEXT_MAX = 512 };

void sim_record(struct sim *sim, enum trace_kind kind, const struct node *node, uint64_t tag,
                uint64_t len)
{
    const uint64_t what[] = {(uint64_t)sim->now, (uint64_t)kind << 32 | node->slot, tag, len};
    if (!sim->ending)
        sim->trace = hash_mix(sim->trace, hash_bytes(what, sizeof what));
}

int64_t sim_after(const struct sim *sim, double ns)
{
    return ns < 9e18 - (double)sim->now ? sim->now + llround(ns) : INT64_MAX;
}

int64_t sim_span(double ns)
{
    return llround(fmin(ns, SPAN_MAX));
}

const char *sim_node_name(uint32_t number, char out[SIM_NAME_MAX])
{
    if (number == WORLD_DRIVER || number == WORLD_ANY)
        return number == WORLD_ANY ? "anybody" : "the driver";
    snprintf(out, SIM_NAME_MAX, "node %" PRIu32, number);
    return out;
}

struct node *sim_node(struct sim *sim, uint32_t number)
{
    if (number == WORLD_DRIVER)
        return &sim->nodes[sim->slots - 1];
    return number < sim->slots - 1 ? &sim->nodes[number] : NULL;
}

/* In the failing task: record the fault and stop for ever; its stack stays for a debugger. */
static void fault_in_task(struct fault_sink *sink, const char *file, int line, const char *what)
{
    struct sim *sim = event_owner(sink, struct sim, sink);
    struct task *task = sim->running;
    sim->fault.file = file;
    sim->fault.line = line;
    sim->fault.what = what;
    task->parked = true;
    for (;;)
        task_yield(task);
}

static double seconds_a_byte(double gb_s)
{
    return gb_s > 0 ? 1e-9 / gb_s : 0;
}

static int make_nodes(struct sim *sim)
{
    const Paceline__Cluster *cluster = sim->options.cluster;
    const Paceline__Costs *costs = cluster->costs;
    sim->nodes = arena_array(&sim->arena, sim->slots, struct node);
    if (!sim->nodes)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < sim->slots; i++) {
        struct node *node = &sim->nodes[i];
        node->routes = arena_array(&sim->arena, sim->slots, struct route *);
        node->peer = arena_array(&sim->arena, sim->slots, uint8_t);
        node->cut_until = arena_array(&sim->arena, sim->slots, int64_t);
        if (!node->routes || !node->peer || !node->cut_until)
            return ERR_NOMEM;
        node_init(sim, i);
        if (costs)
            node->world.costs = (struct world_costs){
                .copy = seconds_a_byte(costs->copy_gb_s),
                .reduce = seconds_a_byte(costs->reduce_gb_s),
                .crypto = seconds_a_byte(costs->crypto_gb_s),
            };
        bool driver = i == sim->slots - 1;
        const Paceline__Node *worker = driver ? NULL : cluster_node(cluster, i);
        node->speed = driver ? cluster->driver->speed : worker->speed;
        node->cores = driver ? cluster->driver->cores : worker->cores;
        node->jitter = driver ? 0 : worker->jitter;
        node->link_speed =
            (!driver && worker->has_mbit ? worker->mbit : cluster->link->mbit) / 8000;
        for (int h = 0; h < HOPS; h++)
            node->link[h].speed = node->link_speed;
    }
    return OK;
}

static const struct coroutine_ops *coroutines_of(enum sim_backend backend)
{
#ifdef __SANITIZE_THREAD__
    return (void)backend, &coroutine_baton; /* it cannot follow a change of stacks */
#else
    return backend == SIM_BATON ? &coroutine_baton : &coroutine_fibres;
#endif
}

int sim_create(const struct sim_options *options, struct sim **out, struct err *err)
{
    const Paceline__Cluster *cluster = options->cluster;
    uint32_t workers = script_workers(cluster, options->workers);
    if (cluster_nodes(cluster) < workers)
        return err_set(err, ERR_INPUT, "cluster: has %" PRIu32 " nodes, the run needs %" PRIu32,
                       cluster_nodes(cluster), workers);
    struct sim *sim = calloc(1, sizeof *sim);
    if (!sim)
        return err_set(err, ERR_NOMEM, "simulator: out of memory");
    sim->options = *options;
    sim->slots = workers + 1;
    sim->latency = sim_span(cluster->link->latency_us * 1000);
    sim->loss = cluster->link->loss;
    sim->sink.fail = fault_in_task;
    sim->carry = coroutines_of(options->backend);
    arena_init(&sim->arena);
    int rc = sim->carry->open(&sim->host);
    if (rc == OK)
        rc = make_nodes(sim);
    if (rc != OK)
        err_set(err, rc, "simulator: out of memory for %" PRIu32 " nodes", sim->slots);
    else
        rc = script_read(sim, err);
    if (rc != OK)
        sim_free(sim);
    else
        *out = sim;
    return rc;
}

void sim_free(struct sim *sim)
{
    if (!sim)
        return;
    uint32_t made = 0;
    while (sim->nodes && made < sim->slots && sim->nodes[made].sim)
        made++;
    for (uint32_t i = 0; i < made; i++) /* messages first, since they arrived by other nodes'
                                           routes */
        mail_discard(&sim->nodes[i], NULL);
    for (uint32_t i = 0; i < made; i++)
        node_release(&sim->nodes[i]);
    pending_messages_release(sim);
    if (sim->host)
        sim->carry->close(sim->host);
    arena_release(&sim->arena);
    free(sim);
}

/* Log where every task waits. */
static void log_tasks(const struct sim *sim, const char *why)
{
    const struct logger *log = sim->options.log;
    log_error(log, "simulation stuck at %.9f s: %s", world_seconds(sim->now), why);
    int lines = 0, more = 0;
    for (uint32_t i = 0; i < sim->slots; i++)
        for (const struct task *task = sim->nodes[i].tasks; task; task = task->next) {
            if (task->ended)
                continue;
            if (++lines > STUCK_LINES_MAX) {
                more++;
                continue;
            }
            char text[STUCK_TEXT_MAX], name[SIM_NAME_MAX];
            task_describe(task, text, sizeof text);
            log_error(log, "%s, task %s: %s", sim_node_name(sim->nodes[i].world.self, name),
                      task->name, text);
        }
    if (more)
        log_error(log, "and %d tasks more", more);
}

/* Has the run ended: the driver's main, which does not return, and if all are to end by themselves,
 * every node's? */
static bool has_ended(const struct sim *sim, const struct node *driver)
{
    bool ended = driver->main->ended && !(driver->killed && sim->coming);
    for (uint32_t i = 0; ended && sim->options.to_the_last && i < sim->slots; i++)
        ended = sim->nodes[i].state != NODE_RUNNING;
    return ended;
}

/* Let things happen until the run has ended. */
static int run_until_end(struct sim *sim, const struct node *driver, int64_t limit)
{
    while (!has_ended(sim, driver)) {
        struct event *next = heap_top(&sim->heap);
        if (sim->dirty && (!next || next->at > sim->now)) {
            net_settle(sim);
            continue;
        }
        if (!next) {
            log_tasks(sim, "every task waits and nothing will ever happen");
            return ERR_TIMEOUT;
        }
        if (next->at > limit) {
            sim->now = limit > sim->now ? limit : sim->now;
            log_tasks(sim, "out of virtual time");
            return ERR_TIMEOUT;
        }
        heap_take(&sim->heap, next);
        sim->now = next->at;
        sim->acted = NULL;
        next->fire(next);
        if (sim->options.observe)
            sim->options.observe(sim->options.arg, sim->acted ? sim->acted->world.self : WORLD_ANY);
    }
    return driver->main->result;
}

/* Cancel the remaining tasks of every node, and let them unwind at the present time. */
static void unwind_nodes(struct sim *sim)
{
    sim->ending = true;
    for (uint32_t i = 0; i < sim->slots; i++)
        node_end(&sim->nodes[i], true);
    for (struct event *next; (next = heap_top(&sim->heap)) && next->at <= sim->now;) {
        heap_take(&sim->heap, next);
        if (next->fire == task_fire)
            task_fire(next);
    }
    char name[SIM_NAME_MAX];
    for (uint32_t i = 0; i < sim->slots; i++)
        for (const struct task *task = sim->nodes[i].tasks; task; task = task->next)
            if (!task->ended)
                log_error(sim->options.log, "%s, task %s: cancelled, but still waits",
                          sim_node_name(sim->nodes[i].world.self, name), task->name);
}

int sim_run(struct sim *sim, int64_t limit_ns)
{
    PL_ASSERT(!sim->ran);
    sim->ran = true;
    sim->outer = fault_bind(NULL);
    fault_bind(sim->outer);
    struct node *driver = &sim->nodes[sim->slots - 1];
    int rc = node_start(driver);
    if (rc != OK)
        return rc;
    rc = run_until_end(sim, driver, limit_ns);
    unwind_nodes(sim);
    return rc;
}

int64_t sim_now(const struct sim *sim)
{
    return sim->now;
}

uint64_t sim_trace(const struct sim *sim)
{
    return sim->trace;
}

uint64_t sim_sent(const struct sim *sim, uint32_t node)
{
    struct node *n = sim_node((struct sim *)sim, node);
    PL_ASSERT(n);
    return n->sent;
}
