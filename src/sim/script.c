/* The cluster file's script: delays of messages, and faults of nodes and links with their times;
 * and faults of the tests, which occur at once. */
#include "sim/state.h"

#include <inttypes.h>
#include <math.h>

struct delay_rule {
    uint32_t from, to; /* slots; WORLD_ANY */
    uint32_t kind;     /* 0: any */
    uint64_t nth, seen;
    int64_t ns;
};

struct fault_rule {
    struct fault_rule *next; /* of those that struck */
    struct sim *sim;
    struct node *node;
    Paceline__Fault__WhatCase what;
    bool active;
    double factor, seconds; /* seconds 0: to the end */
    struct node *to;        /* of a link's fault */
    double late;            /* shuffle, starve: ns */
    struct event begin, end, unanswered;
};

struct script {
    struct delay_rule *delay;
    struct fault_rule *fault, *struck;
    size_t delays, faults;
};

/* A node of the file as a slot, which the run need not have. */
static uint32_t slot_of(const struct sim *sim, bool given, int32_t node)
{
    if (!given)
        return WORLD_ANY;
    return node < 0                          ? sim->slots - 1
           : (uint32_t)node < sim->slots - 1 ? (uint32_t)node
                                             : WORLD_DRIVER;
}

int64_t script_delay(struct sim *sim, const struct node *from, const struct node *to, uint64_t tag)
{
    int64_t ns = 0;
    for (size_t i = 0; i < sim->script->delays; i++) {
        struct delay_rule *r = &sim->script->delay[i];
        if ((r->from != WORLD_ANY && r->from != from->slot) ||
            (r->to != WORLD_ANY && r->to != to->slot) || (r->kind && r->kind != tag >> 56))
            continue;
        r->seen++;
        if (r->nth == 0 || r->nth == r->seen)
            ns = sim_span((double)ns + (double)r->ns);
    }
    return ns;
}

static void announce_fault(struct fault_rule *rule, const char *what, enum trace_kind kind)
{
    const struct sim_options *o = &rule->sim->options;
    struct sim_fault fault = {what, rule->node->world.self, rule->factor};
    sim_record(rule->sim, kind, rule->node, rule->active, 0);
    if (o->fault)
        o->fault(o->arg, &fault);
}

static bool is_clog(const struct fault_rule *rule)
{
    return rule->what == PACELINE__FAULT__WHAT_CLOG;
}

/* Its names, when it begins and when it ends. */
static const char *const lasting[][2] = {
    [PACELINE__FAULT__WHAT_SLOW] = {"slow", "slow ends"},
    [PACELINE__FAULT__WHAT_CLOG] = {"clog", "clog ends"},
    [PACELINE__FAULT__WHAT_PAUSE] = {"pause", "pause ends"},
    [PACELINE__FAULT__WHAT_PART] = {"part", "part ends"},
    [PACELINE__FAULT__WHAT_MUTE] = {"mute", "mute ends"},
    [PACELINE__FAULT__WHAT_SHUFFLE] = {"shuffle", "shuffle ends"},
    [PACELINE__FAULT__WHAT_STARVE] = {"starve", "starve ends"},
};

/* The contribution of another fault to this one's kind of slowness. */
static double slow_factor(const struct fault_rule *other, const struct fault_rule *rule)
{
    return other->active && other->node == rule->node && other->what == rule->what ? other->factor
                                                                                   : 1;
}

/* Slowness of a node, or of its link: the product of all such faults that hold now, in the order of
 * the file. */
static void slow_down(struct fault_rule *rule, bool active)
{
    struct script *script = rule->sim->script;
    double slow = 1;
    rule->active = active;
    for (size_t i = 0; i < script->faults; i++)
        slow *= slow_factor(&script->fault[i], rule);
    for (const struct fault_rule *struck = script->struck; struck; struck = struck->next)
        slow *= slow_factor(struck, rule);
    if (is_clog(rule))
        net_pace(rule->node, slow);
    else
        work_pace(rule->node, slow);
}

static int64_t ends_at(const struct fault_rule *rule)
{
    return rule->seconds > 0 ? sim_after(rule->sim, rule->seconds * 1e9) : INT64_MAX;
}

/* Both ends of the way have waited in vain. A node that receives nothing does not receive that
 * either. */
static void fault_unanswered(struct event *unanswered)
{
    struct fault_rule *rule = event_owner(unanswered, struct fault_rule, unanswered);
    if (hold_cut(rule->node, rule->to))
        hold_part(rule->node, rule->to);
}

static void cut_ways(struct fault_rule *rule)
{
    struct sim *sim = rule->sim;
    hold_cut_way(rule->node, rule->to, ends_at(rule));
    if (rule->what == PACELINE__FAULT__WHAT_PART)
        hold_cut_way(rule->to, rule->node, ends_at(rule));
    heap_push(&sim->heap, &rule->unanswered, hold_unanswered(sim));
}

/* Faults that last for a while. */
static void begin_lasting(struct fault_rule *rule)
{
    rule->active = true;
    switch (rule->what) {
    case PACELINE__FAULT__WHAT_PAUSE: hold_pause(rule->node, ends_at(rule)); break;
    case PACELINE__FAULT__WHAT_PART:
    case PACELINE__FAULT__WHAT_MUTE: cut_ways(rule); break;
    case PACELINE__FAULT__WHAT_SHUFFLE: rule->node->shuffle = rule->late; break;
    case PACELINE__FAULT__WHAT_STARVE: rule->node->world.costs.batch = rule->late * 1e-9; break;
    default: slow_down(rule, true);
    }
    if (rule->seconds > 0)
        heap_push(&rule->sim->heap, &rule->end, ends_at(rule));
    announce_fault(rule, lasting[rule->what][0], TRACE_SLOW);
}

static void fault_begin(struct event *begin)
{
    struct fault_rule *rule = event_owner(begin, struct fault_rule, begin);
    struct sim *sim = rule->sim;
    if (rule->node->state == NODE_ENDED)
        return;
    if (rule->what == PACELINE__FAULT__WHAT_JOIN) {
        announce_fault(rule, "join", TRACE_PEER);
        rule->node->start.fire(&rule->node->start);
        return;
    }
    if (rule->what == PACELINE__FAULT__WHAT_LEAVE) {
        announce_fault(rule, "leave", TRACE_PEER); /* the host's callback tells the node */
        return;
    }
    if (rule->what == PACELINE__FAULT__WHAT_WANT) {
        announce_fault(rule, "want", TRACE_PEER); /* likewise, the driver */
        return;
    }
    if (rule->what == PACELINE__FAULT__WHAT_KILL) {
        announce_fault(rule, "kill", TRACE_KILL);
        node_end(rule->node, true);
        if (rule->seconds > 0) {
            sim->coming++;
            heap_push(&sim->heap, &rule->end,
                      sim_after(sim, fmax(rule->seconds * 1e9, 2.0 * (double)sim->latency)));
        }
        return;
    }
    if (rule->what == PACELINE__FAULT__WHAT_RESET) {
        announce_fault(rule, "reset", TRACE_HOLD);
        hold_part(rule->node, rule->to);
        return;
    }
    if (rule->what == PACELINE__FAULT__WHAT_LEAP) {
        announce_fault(rule, "leap", TRACE_HOLD);
        clock_leap(rule->node, sim_span(rule->late));
        return;
    }
    begin_lasting(rule);
}

static void fault_end(struct event *end)
{
    struct fault_rule *rule = event_owner(end, struct fault_rule, end);
    struct sim *sim = rule->sim;
    if (rule->what == PACELINE__FAULT__WHAT_KILL) {
        sim->coming--;
        announce_fault(rule, "back", TRACE_PEER);
        if (node_restart(rule->node) != OK)
            log_error(sim->options.log, "the driver cannot start again: out of memory");
        return;
    }
    rule->active = false;
    switch (rule->what) {
    case PACELINE__FAULT__WHAT_PAUSE: hold_resume(rule->node); break;
    case PACELINE__FAULT__WHAT_SHUFFLE: rule->node->shuffle = 0; break;
    case PACELINE__FAULT__WHAT_STARVE: rule->node->world.costs.batch = 0; break;
    case PACELINE__FAULT__WHAT_PART:
    case PACELINE__FAULT__WHAT_MUTE: break; /* the ways know until when */
    default: slow_down(rule, false);
    }
    if (rule->node->state != NODE_ENDED)
        announce_fault(rule, lasting[rule->what][1], TRACE_SLOW);
}

static int32_t node_of(const Paceline__Fault *f)
{
    switch (f->what_case) {
    case PACELINE__FAULT__WHAT_KILL: return f->kill;
    case PACELINE__FAULT__WHAT_SLOW: return f->slow;
    case PACELINE__FAULT__WHAT_JOIN: return f->join;
    case PACELINE__FAULT__WHAT_LEAVE: return f->leave;
    case PACELINE__FAULT__WHAT_WANT: return -1; /* the driver */
    case PACELINE__FAULT__WHAT_PAUSE: return f->pause;
    case PACELINE__FAULT__WHAT_PART: return f->part;
    case PACELINE__FAULT__WHAT_MUTE: return f->mute;
    case PACELINE__FAULT__WHAT_RESET: return f->reset;
    case PACELINE__FAULT__WHAT_SHUFFLE: return f->shuffle;
    case PACELINE__FAULT__WHAT_STARVE: return f->starve;
    case PACELINE__FAULT__WHAT_LEAP: return f->leap;
    default: return f->clog;
    }
}

uint32_t script_workers(const Paceline__Cluster *cluster, uint32_t workers)
{
    for (size_t i = 0; i < cluster->n_fault; i++) {
        const Paceline__Fault *f = cluster->fault[i];
        if (f->what_case == PACELINE__FAULT__WHAT_JOIN && (uint32_t)f->join >= workers)
            workers = (uint32_t)f->join + 1;
    }
    return workers;
}

/* A node with a join time in the script joins then, and once, even if it is requested earlier. */
static int read_join(struct fault_rule *rule, size_t i, struct err *err)
{
    struct node *node = rule->node;
    if (rule->what != PACELINE__FAULT__WHAT_JOIN)
        return OK;
    if (node->joins_later)
        return err_set(err, ERR_INPUT, "fault[%zu].join: node %" PRIu32 " is there already", i,
                       node->slot);
    node->joins_later = true;
    return OK;
}

/* False: it is of the cluster, but not of this run. */
static bool read_fault(struct sim *sim, const Paceline__Fault *f, struct fault_rule *rule)
{
    uint32_t slot = slot_of(sim, true, node_of(f)), to = slot_of(sim, true, f->to);
    if (slot == WORLD_DRIVER || to == WORLD_DRIVER)
        return false;
    *rule = (struct fault_rule){
        .sim = sim,
        .node = &sim->nodes[slot],
        .what = f->what_case,
        .factor = f->what_case == PACELINE__FAULT__WHAT_WANT ? f->want : f->factor,
        .seconds = f->has_for_ ? f->for_ : 0,
        .to = &sim->nodes[to],
        .late = f->seconds * 1e9,
        .begin.fire = fault_begin,
        .end.fire = fault_end,
        .unanswered.fire = fault_unanswered,
    };
    return true;
}

int sim_strike(struct sim *sim, const Paceline__Fault *fault)
{
    struct fault_rule *rule = arena_new(&sim->arena, struct fault_rule);
    if (!rule)
        return ERR_NOMEM;
    if (!read_fault(sim, fault, rule))
        return ERR_INPUT;
    bool joins = rule->what == PACELINE__FAULT__WHAT_JOIN;
    if (joins && (rule->node->state != NODE_ABSENT || rule->node->start.queued))
        return OK;
    rule->node->joins_later |= joins;
    rule->next = sim->script->struck;
    sim->script->struck = rule;
    fault_begin(&rule->begin);
    return OK;
}

static int read_delays(struct sim *sim, struct err *err)
{
    const Paceline__Cluster *cluster = sim->options.cluster;
    struct script *script = sim->script;
    for (size_t i = 0; i < cluster->n_delay; i++) {
        const Paceline__Delay *d = cluster->delay[i];
        uint32_t (*kind_of)(const char *) = sim->options.kind_of;
        uint32_t kind = d->tag && kind_of ? kind_of(d->tag) : 0;
        if (d->tag && kind == 0)
            return err_set(err, ERR_INPUT, "delay[%zu].tag: no kind of message is called \"%s\"", i,
                           d->tag);
        script->delay[script->delays++] = (struct delay_rule){
            .from = slot_of(sim, d->has_from, d->from),
            .to = slot_of(sim, d->has_to, d->to),
            .kind = kind,
            .nth = d->nth,
            .ns = sim_span(d->seconds * 1e9),
        };
    }
    return OK;
}

int script_read(struct sim *sim, struct err *err)
{
    const Paceline__Cluster *cluster = sim->options.cluster;
    struct script *script = arena_new(&sim->arena, struct script);
    if (!script)
        return err_set(err, ERR_NOMEM, "simulator: out of memory");
    script->delay = arena_array(&sim->arena, cluster->n_delay, struct delay_rule);
    script->fault = arena_array(&sim->arena, cluster->n_fault, struct fault_rule);
    if (!script->delay || !script->fault)
        return err_set(err, ERR_NOMEM, "simulator: out of memory");
    sim->script = script;
    for (size_t i = 0; i < cluster->n_fault; i++) {
        const Paceline__Fault *f = cluster->fault[i];
        struct fault_rule *rule = &script->fault[script->faults];
        if (!read_fault(sim, f, rule))
            continue;
        script->faults++;
        int rc = read_join(rule, i, err);
        if (rc != OK)
            return rc;
        heap_push(&sim->heap, &rule->begin, sim_after(sim, f->at * 1e9));
    }
    return read_delays(sim, err);
}
