/* Nodes that stand still, and ways between nodes that carry nothing, for a while or for good.
 * Messages on such a link wait and arrive when it is open again, in their order, as retransmission
 * ensures; but after some seconds without a reply both ends take the other to be dead, as TCP does
 * (src/real/tcp.c). */
#include "base/fault.h"
#include "base/rng.h"
#include "sim/state.h"

#define UNANSWERED_NS (5 * WORLD_SECOND)

/* ---- standing still ---- */

bool hold_stands(const struct node *node)
{
    return node->stands_until > node->sim->now && node->state == NODE_RUNNING;
}

void hold_pause(struct node *node, int64_t until)
{
    if (until > node->stands_until)
        node->stands_until = until;
    work_halt(node, true);
}

void hold_resume(struct node *node)
{
    if (!hold_stands(node))
        work_halt(node, false);
}

/* The pause ends: the node's tasks continue where they were. */
void hold_release(struct node *node)
{
    for (struct task *task = node->tasks; node->stands_until > 0 && task; task = task->next)
        if (!task->ended && !task->parked && !task->waiting && !task->working)
            heap_push(&node->sim->heap, &task->resume, node->sim->now);
    node->stands_until = 0;
}

/* ---- ways that are cut ---- */

int64_t hold_opens(const struct node *from, const struct node *to)
{
    return from->cut_until[to->slot];
}

bool hold_cut(const struct node *from, const struct node *to)
{
    return hold_opens(from, to) > from->sim->now;
}

void hold_cut_way(struct node *from, struct node *to, int64_t until)
{
    int64_t *opens = &from->cut_until[to->slot];
    if (from != to && until > *opens)
        *opens = until;
}

int64_t hold_unanswered(const struct sim *sim)
{
    return sim->now + UNANSWERED_NS;
}

void hold_part(struct node *a, struct node *b)
{
    peer_down(a, b);
    peer_down(b, a);
}

int64_t hold_arrival(const struct node *from, const struct node *to, int64_t arrival)
{
    int64_t opens = hold_opens(from, to);
    return opens > from->sim->now && arrival < opens ? opens : arrival;
}

int64_t hold_shuffle(const struct node *from)
{
    uint64_t draw = UINT64_C(3) << 62 | (uint64_t)from->slot << 40 | from->sent;
    if (from->shuffle <= 0)
        return 0;
    return sim_span(from->shuffle * (double)rng_uniform(from->sim->options.seed, RNG_SIM, draw));
}
