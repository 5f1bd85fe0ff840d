/* Faults strike at their target moments, after a number of commits since the previous one. If such
 * a moment needs a join or leave, one is made to happen. */
#include "base/rng.h"
#include "storm.h"
#include "wire/wire_rules.h"

#include <inttypes.h>
#include <stdlib.h>

static void start_fault(struct storm *s, Paceline__Fault f)
{
    f.has_for_ = f.for_ > 0;
    if (sim_strike(s->sim, &f) != OK)
        storm_break(s, "the storm's own fault: it cannot strike");
}

static Paceline__Fault empty_fault(Paceline__Fault__WhatCase what, double lasts)
{
    Paceline__Fault f = PACELINE__FAULT__INIT;
    f.what_case = what;
    f.for_ = lasts;
    return f;
}

static int32_t number_of(uint32_t slot)
{
    return slot == NODES_MAX ? -1 : (int32_t)slot;
}

static void start_worker(struct storm *s, uint32_t node)
{
    Paceline__Fault f = empty_fault(PACELINE__FAULT__WHAT_JOIN, 0);
    f.join = (int32_t)node;
    s->joining[node] = INT64_MAX;
    start_fault(s, f);
}

/* The lowest that has never run; NODES_MAX: none is left. */
static uint32_t spare_node(const struct storm *s)
{
    uint32_t node = s->plan->workers;
    while (node < s->plan->nodes && (s->node[node].ran || s->joining[node]))
        node++;
    return node < s->plan->nodes && s->plan->joinable ? node : NODES_MAX;
}

static void start_worker_later(struct storm *s, double seconds)
{
    uint32_t node = spare_node(s);
    if (node < NODES_MAX)
        s->joining[node] = sim_now(s->sim) + (int64_t)(seconds * 1e9);
}

static uint32_t members_alive(const struct storm *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < NODES_MAX; i++)
        n += moment_alive(s, i);
    return n;
}

/* ---- the strikes themselves ---- */

static void kill_node(struct storm *s, uint32_t node)
{
    Paceline__Fault f = empty_fault(PACELINE__FAULT__WHAT_KILL, 0);
    f.kill = number_of(node);
    start_fault(s, f);
}

/* Half of the drivers return, when there is a worker to return to; by then a member may be lost. */
static void kill_driver(struct storm *s, const struct strike *k, uint32_t node)
{
    s->absent = k->draw & 1 && s->views > 0;
    Paceline__Fault f = empty_fault(PACELINE__FAULT__WHAT_KILL, s->absent ? k->returns : 0);
    f.kill = -1;
    start_fault(s, f);
    if (!s->absent)
        return;
    if ((k->draw >> 1 & 3) == 0 && node < NODES_MAX && members_alive(s) > 2)
        kill_node(s, node);
    s->calm = sim_now(s->sim) + (int64_t)(k->returns * 1e9);
}

/* Separate this node and, by draw, some others from the rest. */
static void partition_node(struct storm *s, const struct strike *k, uint32_t node)
{
    uint32_t alive = members_alive(s), cut_count = 0, side[NODES_MAX + 1] = {0};
    for (uint32_t i = 0; i < NODES_MAX; i++) {
        bool cut_off = i == node || (moment_alive(s, i) && cut_count + 2 < (alive + 1) / 2 &&
                                     (k->draw >> (i + 4) & 1));
        side[i] = cut_off;
        cut_count += cut_off;
    }
    for (uint32_t i = 0; i < NODES_MAX; i++)
        for (uint32_t j = 0; side[i] && j <= NODES_MAX; j++) {
            if (side[j] || !moment_alive(s, i) || !moment_alive(s, j))
                continue;
            Paceline__Fault f = empty_fault(PACELINE__FAULT__WHAT_PART, k->lasts);
            f.part = number_of(i);
            f.to = number_of(j);
            start_fault(s, f);
        }
}

/* Only members of one view know each other: before, there is no way between two workers. */
static bool in_view(const struct storm *s, uint32_t node)
{
    const struct driver *d = s->driver;
    const struct view *view = d->group.world ? group_view(&d->group) : NULL;
    return view && view_rank(view, node) >= 0 && s->node[node].view;
}

/* Another that is alive, or the driver. */
static uint32_t another_node(const struct storm *s, const struct strike *k, uint32_t node)
{
    if (node == NODES_MAX || !in_view(s, node))
        return NODES_MAX;
    for (uint32_t i = 0; i < NODES_MAX && (k->draw & 3) != 0; i++) {
        uint32_t other = (k->draw / 4 + i) % NODES_MAX;
        if (other != node && moment_alive(s, other) && in_view(s, other))
            return other;
    }
    return NODES_MAX;
}

static void one_way(struct storm *s, const struct strike *k, uint32_t node)
{
    uint32_t other = another_node(s, k, node);
    bool there = k->draw & 64;
    Paceline__Fault f = empty_fault(PACELINE__FAULT__WHAT_MUTE, k->lasts);
    f.mute = number_of(there ? node : other);
    f.to = number_of(there ? other : node);
    start_fault(s, f);
}

static void reset_links(struct storm *s, const struct strike *k, uint32_t node)
{
    Paceline__Fault f = empty_fault(PACELINE__FAULT__WHAT_RESET, 0);
    f.reset = number_of(node);
    f.to = number_of(k->draw & 32 ? NODES_MAX : another_node(s, k, node));
    start_fault(s, f);
    start_worker_later(s, k->returns);
}

/* Messages that a worker may not send, or not so, to the driver: as a broken program would. The
 * third of them disconnects it. */
static void send_wrong(struct storm *s, const struct strike *k, uint32_t node)
{
    static const struct {
        enum wire_kind kind;
        size_t len;
    } wrong[] = {
        {WIRE_HEARTBEAT, 16}, {WIRE_LANE_AT, 18},  {WIRE_COMMITTED, 40}, {WIRE_DONE, 60},
        {WIRE_LEAVE, 2},      {WIRE_OPENING, 100}, {WIRE_LOST, 0},       {WIRE_DONOR_READY, 5},
    };
    enum { KINDS = sizeof wrong / sizeof *wrong };
    struct world *world = node < NODES_MAX ? s->node[node].worker->world : NULL;
    for (uint32_t i = 0; world && i < WIRE_ERRORS_MAX; i++) {
        uint32_t which = (k->draw + i * 3) % KINDS;
        struct message *m = message_new(wire_tag(wrong[which].kind, 0, 0, 0), 0, wrong[which].len);
        if (!m)
            abort();
        for (size_t b = 0; b < wrong[which].len; b++)
            ((uint8_t *)m->data)[b] = (uint8_t)rng_u64(k->draw, i, b);
        if (world_send(world, WORLD_DRIVER, m, CLASS_CONTROL) == ERR_FULL)
            message_unref(m);
    }
    start_worker_later(s, k->returns);
}

/* Half of them as far as other faults last, others for longer than any time limit of a member. */
static void leap_clock(struct storm *s, const struct strike *k, uint32_t node)
{
    Paceline__Fault f = empty_fault(PACELINE__FAULT__WHAT_LEAP, 0);
    f.leap = number_of(node);
    f.seconds = k->lasts * (k->draw & 1 ? 1 : 30);
    start_fault(s, f);
    start_worker_later(s, k->returns);
}

/* It takes the place of a worker that would have joined later. */
static void start_stranger(struct storm *s)
{
    uint32_t node = spare_node(s);
    s->strangers |= UINT64_C(1) << node;
    s->node[node].ran = true;
    start_worker(s, node);
}

static void start_lasting(struct storm *s, const struct strike *k, uint32_t node)
{
    Paceline__Fault f = empty_fault(PACELINE__FAULT__WHAT_SLOW, k->lasts);
    f.factor = k->factor;
    if (k->fault == FAULT_PAUSE) {
        f.what_case = PACELINE__FAULT__WHAT_PAUSE;
    } else if (k->fault == FAULT_CLOG) {
        f.what_case = PACELINE__FAULT__WHAT_CLOG;
        f.factor *= f.factor;
    } else if (k->fault == FAULT_REORDER) {
        f.what_case = PACELINE__FAULT__WHAT_SHUFFLE;
        f.seconds = 0.0005 * k->factor;
    }
    f.slow = number_of(node); /* a union: whichever it is */
    start_fault(s, f);
}

static void flood_driver(struct storm *s)
{
    for (uint32_t node; (node = spare_node(s)) < NODES_MAX;)
        start_worker(s, node);
}

static bool strikes_disk(enum fault_kind fault)
{
    return fault == FAULT_DISK_FULL || fault == FAULT_SYNC;
}

static void strike_node(struct storm *s, const struct strike *k, uint32_t node)
{
    bool lasts = false;
    switch (k->fault) {
    case FAULT_CRASH:
        kill_node(s, node);
        if (members_alive(s) < 3 || k->draw & 1 || k->aim == MOMENT_FORMS)
            start_worker_later(s, 1 + k->returns);
        break;
    case FAULT_RESTART:
        kill_node(s, node);
        start_worker_later(s, k->returns);
        break;
    case FAULT_PARTITION: partition_node(s, k, node), lasts = true; break;
    case FAULT_ONE_WAY: one_way(s, k, node), lasts = true; break;
    case FAULT_DUPLICATE: reset_links(s, k, node); break;
    case FAULT_DISK_FULL: s->disk.full = lasts = true; break;
    case FAULT_SYNC: s->disk.unsynced = lasts = true; break;
    case FAULT_WRONG: send_wrong(s, k, node); break;
    case FAULT_TWIN:
        if (imposter_doubles(s, k, node))
            start_worker_later(s, k->returns);
        break;
    case FAULT_OTHER: start_stranger(s); break;
    case FAULT_LEAP: leap_clock(s, k, node); break;
    case FAULT_DRIVER: kill_driver(s, k, node); return;
    case FAULT_FLOOD: flood_driver(s); break;
    default: start_lasting(s, k, node), lasts = true;
    }
    /* A node that may be excluded for it rejoins, under another number. */
    if (lasts && !strikes_disk(k->fault) && k->fault != FAULT_SLOW && k->lasts > 0.7)
        start_worker_later(s, k->lasts + k->returns);
    int64_t ends = sim_now(s->sim) + (int64_t)((lasts ? k->lasts : 0) * 1e9);
    s->calm = ends > s->calm ? ends : s->calm;
}

/* ---- when and whom ---- */

static bool is_fatal(enum fault_kind fault)
{
    return fault != FAULT_SLOW && fault != FAULT_CLOG && fault != FAULT_REORDER &&
           !strikes_disk(fault) && fault != FAULT_DRIVER && fault != FAULT_FLOOD &&
           fault != FAULT_OTHER && fault != FAULT_LEAP;
}

/* A fault that does not end a node may strike the driver, while a node is in that moment. */
static bool strikes_driver(const struct strike *k)
{
    return (k->fault == FAULT_PAUSE || k->fault == FAULT_SLOW || k->fault == FAULT_CLOG ||
            k->fault == FAULT_REORDER || k->fault == FAULT_LEAP) &&
           (k->draw >> 10 & 3) == 0;
}

/* A node in that moment; NODES_MAX + 1: none. */
static uint32_t choose_target(const struct storm *s, const struct strike *k)
{
    uint32_t found[NODES_MAX + 1], n = 0;
    bool any = strikes_disk(k->fault) || k->fault == FAULT_DRIVER || k->fault == FAULT_FLOOD ||
               k->fault == FAULT_OTHER || k->fault == FAULT_LEAP || k->fault == FAULT_SLOW ||
               k->fault == FAULT_CLOG || k->fault == FAULT_REORDER;
    enum moment all = moment_of_all(s); /* asked at each event: spare the search if it can */
    bool never = all != MOMENTS ? all != k->aim
                                : k->aim == MOMENT_SAVES || k->aim == MOMENT_FORMS ||
                                      (k->aim == MOMENT_HANDS_OVER && !moment_run_ends(s));
    for (uint32_t i = 0; !never && i <= NODES_MAX; i++)
        if ((i < NODES_MAX || any) && moment_alive(s, i) && moment_of(s, i) == k->aim &&
            (k->fault != FAULT_TWIN || imposter_has_original(s, i)))
            found[n++] = i;
    return n > 0 ? found[k->draw % n] : NODES_MAX + 1;
}

/* From the first one, which may serve a shard of the model, or from the last one. */
static void request_leave(struct storm *s)
{
    uint32_t node = NODES_MAX;
    for (uint32_t i = 0; i < NODES_MAX; i++)
        if (moment_alive(s, i) && in_view(s, i) && !atomic_load(&s->leave[i]) &&
            (node == NODES_MAX || s->plan->seed % 2 == 0))
            node = i;
    if (node < NODES_MAX && members_alive(s) > 2)
        atomic_store(&s->leave[node], 1);
}

static bool has_room(const struct storm *s)
{
    const struct driver *d = s->driver;
    const struct view *view = d->group.world ? group_view(&d->group) : NULL;
    return spare_node(s) < NODES_MAX && view && view->count < s->plan->workers_max;
}

/* Make a node join, or request a leave, so that such a moment occurs. */
static void prepare_strike(struct storm *s, const struct strike *k)
{
    uint32_t node = spare_node(s);
    if (s->staged)
        return;
    s->staged = true;
    switch (k->aim) {
    case MOMENT_REPORTS:
    case MOMENT_ADOPTS:
    case MOMENT_WAITS:
    case MOMENT_DONATES:
    case MOMENT_JOIN_PENDING:
        if (!has_room(s))
            request_leave(s); /* a joiner, or a waiting worker, replaces it */
        if (node < NODES_MAX)
            start_worker(s, node);
        break;
    case MOMENT_LEAVES: request_leave(s); break;
    default: break;
    }
}

static void join_worker(struct storm *s)
{
    for (uint32_t i = 0; i < s->plan->nodes; i++)
        if (s->joining[i] > 0 && s->joining[i] <= sim_now(s->sim) && !s->node[i].ran) {
            s->joining[i] = INT64_MAX;
            start_worker(s, i);
        }
}

void strike_all_down(struct storm *s)
{
    s->over = true;
    for (uint32_t i = 0; i <= NODES_MAX; i++)
        if (i == NODES_MAX || i < s->plan->nodes)
            kill_node(s, i);
}

/* The run has shown that it continues: its remaining steps would show nothing more. */
static void stop_run(struct storm *s)
{
    enum { CONTINUED = 30 }; /* exchanges */
    const struct driver *d = s->driver;
    if (!s->plan->stops || atomic_load(&s->stop) || sim_now(s->sim) <= s->calm ||
        s->exchanges < s->struck_at + CONTINUED || !d->group.world || !group_view(&d->group) ||
        group_view(&d->group)->count == 0 || moment_run_ends(s))
        return;
    storm_report(s, "the user stops the run");
    atomic_store(&s->stop, 1);
}

/* A run that pauses gets one worker after another, as long as there are any. */
static void relieve_pause(struct storm *s)
{
    const struct view *view = s->driver->group.world ? group_view(&s->driver->group) : NULL;
    if (!s->plan->pauses || !view || view->count == 0 || view->count >= s->plan->workers)
        return;
    for (uint32_t i = 0; i < NODES_MAX; i++)
        if (s->joining[i] > 0 && s->joining[i] < INT64_MAX)
            return;
    start_worker_later(s, 1);
}

void strike_if_scheduled(struct storm *s)
{
    if (!s->driver || s->driver_dead)
        return;
    join_worker(s);
    relieve_pause(s);
    if (sim_now(s->sim) >= s->calm)
        s->disk.full = s->disk.unsynced = false;
    if (s->struck >= s->plan->last)
        stop_run(s);
    if (s->struck >= s->plan->strikes)
        return;
    const struct strike *k = &s->plan->strike[s->struck];
    bool early = k->aim == MOMENT_FORMS || k->aim == MOMENT_HANDS_OVER;
    if (!early && s->exchanges < s->struck_at + k->after)
        return;
    prepare_strike(s, k);
    uint32_t node = choose_target(s, k);
    bool formed = s->driver->group.world && group_view(&s->driver->group);
    bool lacks = k->fault == FAULT_OTHER && spare_node(s) == NODES_MAX;
    if (node > NODES_MAX || lacks || (is_fatal(k->fault) && members_alive(s) < 2)) {
        /* Its moment may never occur; then the next one is due. */
        if ((k->aim == MOMENT_FORMS && formed) ||
            (!early && s->exchanges > s->struck_at + 2 * k->after)) {
            s->struck++;
            s->staged = false;
        }
        return;
    }
    storm_report(s, "%s strikes %s%d, which %s", fault_names[k->fault],
                 strikes_driver(k) ? "the driver, not " : "", number_of(node),
                 moment_names[k->aim]);
    s->table->hits[k->fault][k->aim]++;
    s->table->faults++;
    s->struck++;
    s->staged = false;
    s->struck_at = s->exchanges;
    strike_node(s, k, strikes_driver(k) ? NODES_MAX : node);
}
