/* Work takes time. The working tasks of a node share its cores equally, at most one core each. All
 * are served at one pace, so a single number, the service of each since the first began, determines
 * when each is done. */
#include "base/fault.h"
#include "base/rng.h"
#include "sim/state.h"

static double node_pace(const struct node *node)
{
    if (node->halted)
        return 0;
    double part = node->active > node->cores ? (double)node->cores / node->active : 1.0;
    return node->speed / node->slow * part;
}

/* Serve up to now at the pace there was; called before anything changes it. */
static void serve_until_now(struct node *node)
{
    int64_t now = node->sim->now;
    node->service += node_pace(node) * (double)(now - node->service_at);
    node->service_at = now;
}

static struct task *first_done(const struct node *node)
{
    struct task *first = node->works;
    for (struct task *task = node->works; task; task = task->work_next)
        if (task->work_end < first->work_end)
            first = task;
    return first;
}

static void plan_work_done(struct node *node)
{
    struct heap *heap = &node->sim->heap;
    const struct task *first = first_done(node);
    if (!first || node->halted)
        heap_remove(heap, &node->work_done);
    if (!first)
        node->service = 0;
    if (!first || node->halted)
        return;
    double left = first->work_end - node->service;
    heap_push(heap, &node->work_done, sim_after(node->sim, left > 0 ? left / node_pace(node) : 0));
}

static void remove_work(struct task *task)
{
    struct node *node = task->node;
    struct task **at = &node->works;
    while (*at != task)
        at = &(*at)->work_next;
    *at = task->work_next;
    node->active--;
    task->working = false;
}

void work_finish(struct event *done)
{
    struct node *node = event_owner(done, struct node, work_done);
    serve_until_now(node);
    struct task *first = first_done(node);
    node->service = first->work_end; /* to the bit, whatever the clock's rounding */
    remove_work(first);
    plan_work_done(node);
    task_ready(first);
}

void work_drop(struct task *task)
{
    if (!task->working)
        return;
    serve_until_now(task->node);
    remove_work(task);
    plan_work_done(task->node);
    task_ready(task);
}

void work_halt(struct node *node, bool halted)
{
    serve_until_now(node); /* at the pace there was */
    node->halted = halted;
    plan_work_done(node);
}

void work_pace(struct node *node, double slow)
{
    serve_until_now(node);
    node->slow = slow;
    plan_work_done(node);
}

static double add_jitter(struct node *node, double ns)
{
    uint64_t draw = (uint64_t)node->slot << 40 | node->works_begun++;
    if (node->jitter <= 0)
        return ns;
    double u = (double)rng_uniform(node->sim->options.seed, RNG_SIM, draw);
    return ns * (1 + node->jitter * (2 * u - 1));
}

int work_do(struct world *w, const struct cost *cost)
{
    struct node *node = (struct node *)w;
    struct task *task = task_running(node);
    PL_ASSERT(cost->seconds >= 0);
    if (task_cancelled(task))
        return ERR_CANCELLED;
    serve_until_now(node);
    task->work_end = node->service + add_jitter(node, cost->seconds * 1e9);
    task->working = true;
    struct task **end = &node->works;
    while (*end)
        end = &(*end)->work_next;
    *end = task;
    task->work_next = NULL;
    node->active++;
    plan_work_done(node);
    task_yield(task);
    return task_cancelled(task) ? ERR_CANCELLED : OK;
}
