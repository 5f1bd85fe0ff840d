/* Invariants at every event: a view's number identifies one membership, and views arrive in order;
 * and at the end: the ledgers add up, the run has ended as required, and in time. */
#include "storm.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Longest that a run may take once the faults are over: the remaining work, and, while it forms or
 * workers are alone, a minute of patience (FORM_TIMEOUT, WELCOME_TIMEOUT). */
#define RESUME_PATIENCE (30 * WORLD_SECOND)
#define PATIENCE        (60 * WORLD_SECOND + RESUME_PATIENCE)
#define LONGEST         (10 * PATIENCE) /* of a run that advances: short steps, a lossy link */

/* The members could not be written: until the driver tries again. */
#define WRITTEN_TWICE (6 * WORLD_SECOND / 5)

void storm_report(struct storm *s, const char *format, ...)
{
    va_list args;
    if (!s->trace)
        return;
    fprintf(s->trace, "%11.6f  ", s->sim ? world_seconds(sim_now(s->sim)) : 0.0);
    va_start(args, format);
    vfprintf(s->trace, format, args);
    va_end(args);
    fputc('\n', s->trace);
}

void storm_break(struct storm *s, const char *format, ...)
{
    va_list args;
    if (s->broken[0])
        return;
    va_start(args, format);
    int n = snprintf(s->broken, sizeof s->broken,
                     "at %.6f s: ", s->sim ? world_seconds(sim_now(s->sim)) : 0.0);
    vsnprintf(s->broken + n, sizeof s->broken - (size_t)n, format, args);
    va_end(args);
    storm_report(s, "BROKEN: %s", s->broken);
}

/* ---- views ---- */

uint64_t watch_view(const struct storm *s, uint32_t number, bool *known)
{
    for (uint32_t i = 0; i < s->views; i++)
        if (s->view[i].number == number) {
            *known = true;
            return s->view[i].participants;
        }
    *known = false;
    return 0;
}

/* ---- a driver that dies, and one that returns ---- */

/* Its own results die with it. */
void watch_driver_dies(struct storm *s)
{
    s->driver_dead = true;
    atomic_store(&s->stop, 0); /* that was this driver's */
    s->died_at = sim_now(s->sim);
    s->exchanges_before = s->exchanges;
    if (s->driver && s->views > 0 && !s->used_known) {
        s->used_before = s->driver->start.resumed.used;
        s->used_known = true;
    }
    for (struct result *r = s->results; r; r = r->next)
        r->nodes &= ~(UINT64_C(1) << NODES_MAX);
}

/* A view that a driver made in its last moment, and that no living worker took, never was: the next
 * driver numbers its first view behind those that its workers know. */
static void forget_views_of_dead_driver(struct storm *s)
{
    struct storm_node *own = &s->node[NODES_MAX];
    uint32_t newest = 0, kept = 0;
    for (uint32_t i = 0; i < NODES_MAX; i++)
        if (!s->node[i].dead && !s->node[i].ended && s->node[i].view_number > newest)
            newest = s->node[i].view_number;
    if (newest == 0 || own->view_number <= newest)
        return;
    own->view_number = newest;
    for (uint32_t i = 0; i < s->views; i++)
        if (s->view[i].number <= newest)
            s->view[kept++] = s->view[i];
    s->views = kept;
}

void watch_driver_starts(struct storm *s)
{
    struct storm_node *own = &s->node[NODES_MAX];
    forget_views_of_dead_driver(s);
    s->driver_dead = s->absent = s->formed = false;
    s->disk.writing = false;
    own->view = NULL;
    for (uint32_t l = 0; l < LANES_WATCHED; l++)
        own->lane[l].seen = NULL;
    s->table->returned++;
}

static void release_results(struct storm *s)
{
    while (s->results) {
        struct result *next = s->results->next;
        free(s->results);
        s->results = next;
    }
}

/* No worker was left: others resume from the checkpoint, and views and exchanges are counted
 * again. */
static void record_resume(struct storm *s)
{
    storm_report(s, "it resumes from its checkpoint");
    s->went_backwards = true;
    for (uint32_t i = 0; i < NODES_MAX; i++) /* a driver whose disk was full does not know them */
        if (s->node[i].view_number > 0)
            members_add(&s->former, i);
    s->views = 0;
    s->node[NODES_MAX].view_number = 0;
    release_results(s);
    watch_servers_release(s);
}

/* ---- views, as nodes take them ---- */

static void record_view(struct storm *s, uint32_t position, const struct view *view)
{
    struct storm_node *n = &s->node[position];
    uint64_t nodes = 0, participants = 0, fresh = 0, was;
    bool known;
    if (view == n->view || !view)
        return;
    if (position == NODES_MAX && s->drivers > 1 && view->number == 1 && s->views > 0)
        record_resume(s);
    if (n->view_number >= view->number)
        storm_break(s, "%d goes from view %u to view %u",
                    position == NODES_MAX ? -1 : (int)position, n->view_number, view->number);
    n->view = view;
    n->view_number = view->number;
    for (size_t i = 0; i < view->count; i++)
        nodes |= UINT64_C(1) << view->node[i];
    for (size_t i = 0; i < view->count; i++) {
        if (!members_has(&view->leaves, view->node[i]))
            participants |= UINT64_C(1) << view->node[i];
        if (members_has(&view->fresh, view->node[i]))
            fresh |= UINT64_C(1) << view->node[i];
    }
    if (nodes & s->strangers)
        storm_break(s, "view %u holds a worker of another run", view->number);
    was = watch_view(s, view->number, &known);
    if (known && was != participants)
        storm_break(s, "two views have the number %u: %" PRIx64 " and %" PRIx64 " participate",
                    view->number, was, participants);
    if (!known && s->views < VIEWS_MAX) {
        s->view[s->views++] = (struct view_seen){view->number, participants, fresh};
        storm_report(s, "view %u: %" PRIx64 ", of which %" PRIx64 " participate", view->number,
                     nodes, participants);
        s->table->leaves += nodes != participants;
    }
    if (position < NODES_MAX && !(nodes >> position & 1))
        storm_break(s, "worker %u took view %u, which does not hold it", position, view->number);
}

/* ---- every event ---- */

static void count_exchanges(struct storm *s)
{
    const struct progress *now = &s->driver->ledger.last.progress,
                          *begin = &s->driver->start.resumed.progress;
    /* Where there are none, a step of all together counts as one. */
    bool none = s->driver->strategy && strcmp(s->driver->strategy->name, "gossip") == 0;
    uint64_t before = s->exchanges;
    s->exchanges = s->exchanges_before +
                   (none ? now->steps - begin->steps : now->exchanges - begin->exchanges);
    s->advanced = s->exchanges > before ? sim_now(s->sim) : s->advanced;
}

static void check_progress(struct storm *s)
{
    bool continues = s->driver && !s->driver_dead;
    int64_t now = sim_now(s->sim), since = s->advanced > s->calm ? s->advanced : s->calm;
    if (now - since > (continues && s->formed && !s->forms_again ? RESUME_PATIENCE : PATIENCE))
        storm_break(s, "the faults were over at %.3f s, and the run has not advanced since %.3f s",
                    world_seconds(s->calm), world_seconds(since));
    if (now - s->calm > LONGEST)
        storm_break(s, "the faults were over at %.3f s, and the run is not",
                    world_seconds(s->calm));
}

/* Each range is owned once, and the lease table adds up. */
static void check_leases(struct storm *s)
{
    const struct lease_table *table = &s->driver->leases.table;
    uint64_t sum =
        table->frontier + 3 * table->used + 5 * lease_pooled(table) + 7 * lease_held(table);
    if (!s->driver->leases.opened || sum == s->lease_sum)
        return;
    s->lease_sum = sum; /* it has changed */
    if (!lease_adds_up(table))
        storm_break(s,
                    "the leases up to %" PRIu64 " do not add up: %" PRIu64 " used, %" PRIu64
                    " held, %" PRIu64 " pooled, %" PRIu64 " lost",
                    table->frontier, table->used, lease_held(table), lease_pooled(table),
                    table->lost);
}

/* A worker's own leases are also its leases in the driver's table, as long as the table knows the
 * worker. */
static void check_cursor(struct storm *s, uint32_t node, const struct lease_cursor *cursor)
{
    const struct lease_holder *h = &s->driver->leases.table.holder[node];
    for (size_t i = 0; h->here && i < cursor->count; i++) {
        bool own = false;
        for (size_t k = 0; k < h->count; k++)
            own |= h->held[k].from <= cursor->lease[i].from && cursor->lease[i].to <= h->held[k].to;
        if (!own)
            storm_break(s, "worker %u goes over [%" PRIu64 ", %" PRIu64 "), which it was not given",
                        node, cursor->lease[i].from, cursor->lease[i].to);
    }
}

/* Has no replica of the newest view all slices with their state? */
static bool is_incomplete(const struct storm *s)
{
    const struct view *view = s->driver ? group_view(&s->driver->group) : NULL;
    uint32_t slices = s->plan->slices;
    for (uint32_t r = 0; view && r < NODES_MAX; r++) {
        uint32_t whole = 0;
        for (uint32_t f = 0; f < slices; f++) {
            uint32_t node = view_seated(view, r * slices + f);
            whole += node < NODES_MAX && !members_has(&view->fresh, node);
        }
        if (whole == slices)
            return false;
    }
    return true;
}

void watch_event(struct storm *s, uint32_t node)
{
    s->events++;
    check_progress(s);
    bool driven = s->driver && !s->driver_dead;
    if (node == WORLD_ANY || !(driven || (s->absent && node != WORLD_DRIVER)))
        return; /* else workers continue without a driver */
    if (node == WORLD_DRIVER) {
        const struct group *group = &s->driver->group;
        if (group->world) {
            record_view(s, NODES_MAX, group_view(group));
            s->formed |= group_view(group) != NULL;
            watch_exchanges(s, NODES_MAX);
        }
        count_exchanges(s);
        check_leases(s);
        s->incomplete = s->plan->slices > 0 && is_incomplete(s);
        s->forms_again =
            s->plan->slices > 0 && s->drivers > 1 && group->world && !group_view(group);
        return;
    }
    struct storm_node *n = &s->node[node];
    if (!n->worker || n->dead || !n->worker->group.world)
        return;
    const struct group *group = &n->worker->group;
    uint64_t progress = atomic_load(&group->work.progress);
    s->taken += (progress - n->progress) * s->records;
    n->progress = progress;
    record_view(s, node, group_view(group));
    watch_exchanges(s, node);
    if (driven)
        check_cursor(s, node, &n->worker->member.lease_cursor);
}

/* A joiner is rejected only if its donor is lost: the donor that admitted it has its initial
 * state. No node stands still for as long as a member that hangs. */
void watch_line(struct storm *s, const char *line)
{
    const char *node = strstr(line, "\"node\":");
    const struct roster *roster = s->driver ? &s->driver->server.roster : NULL;
    storm_report(s, "%s", line);
    if (strstr(line, "\"what\":\"hung\""))
        storm_break(s, "a member is taken for hung: %s", line);
    if (!roster || s->driver_dead || !node || !strstr(line, "\"what\":\"fenced\""))
        return;
    uint32_t number = (uint32_t)atoi(node + strlen("\"node\":")), donor = ROSTER_NO_NODE;
    for (size_t i = 0; i < roster->count; i++)
        if (roster->member[i].node == number)
            donor = roster->member[i].donor;
    for (size_t i = 0; i < roster->count; i++)
        if (roster->member[i].node == donor && roster_is_in(&roster->member[i]))
            storm_break(s, "joiner %u is fenced, and its donor %u is there", number, donor);
}

/* Faults are of machines and networks: a node that finds that another breaks the protocol, or that
 * replicas differ, has found a mistake. */
void watch_worker_end(struct storm *s, uint32_t node, int rc)
{
    bool known =
        rc == OK || rc == ERR_DRIVER || rc == ERR_PEER || rc == ERR_CANCELLED || rc == ERR_TIMEOUT;
    storm_report(s, "worker %u ends: %s", node, status_text(rc));
    if (!known && !s->node[node].dead && !s->over)
        storm_break(s, "worker %u ends: %s", node, status_text(rc));
}

/* ---- the end ---- */

/* The ledger counts the buckets of a step as one exchange: the last of them. */
static bool in_the_table(const struct storm *s, uint32_t lane)
{
    const struct strategy_ops *strategy = s->driver->strategy;
    if (s->plan->slices > 0)
        return lane == 0; /* the other one is of models */
    if (strcmp(strategy->name, "allreduce") != 0)
        return true;
    for (const struct result *r = s->results; r; r = r->next)
        if (r->lane > lane)
            return false;
    return true;
}

/* Of each exchange the result that stands: that of the latest view. */
static uint64_t committed_samples(const struct storm *s)
{
    uint64_t sum = 0;
    for (const struct result *r = s->results; r; r = r->next) {
        bool stands = in_the_table(s, r->lane);
        for (const struct result *o = s->results; o && stands; o = o->next)
            stands = o == r || o->lane != r->lane || o->n != r->n || o->view < r->view;
        sum += stands ? r->samples : 0;
    }
    return sum;
}

/* Where replicas agree at every commit point they do so at the last, in each slice of the model. */
static void check_replicas(struct storm *s)
{
    const struct view *view = group_view(&s->driver->group);
    uint32_t slices = s->plan->slices > 0 ? s->plan->slices : 1;
    uint64_t hash[NODES_MAX] = {0};
    bool known[NODES_MAX] = {false};
    for (size_t i = 0; i < view->count; i++) {
        const struct storm_node *n = &s->node[view->node[i]];
        const struct worker *w = moment_alive(s, view->node[i]) ? n->worker : NULL;
        if (!w || !w->member.model.x || !members_has(&s->driver->membership.done, view->node[i]))
            continue;
        uint64_t own = vec_hash(w->member.model.x, vec_all(w->member.model.x));
        uint32_t slice = view->seated[i] > 0 ? (view->seated[i] - 1) % slices : 0;
        if (known[slice] && own != hash[slice])
            storm_break(s, "worker %u ends with another model than those before it", view->node[i]);
        hash[slice] = own;
        known[slice] = true;
    }
}

/* The samples that workers have taken of their own records are steps of theirs, and counted once
 * (W2, W3). */
static void check_holdings(struct storm *s, uint64_t position)
{
    const struct holdings *book = &s->driver->holdings;
    const struct holding_count sum = holdings_sum(book, position);
    /* Taken in earlier sessions, of which a checkpoint may have more than its model. */
    uint64_t before = 0;
    for (size_t k = 0; k < book->count; k++)
        before += book->known[k].before;
    if (sum.taken > s->taken + before)
        storm_break(s, "%" PRIu64 " samples taken of holdings, and steps took %" PRIu64, sum.taken,
                    s->taken + before);
    if (sum.taken + sum.missed != sum.due + sum.repeated)
        storm_break(s,
                    "%" PRIu64 " samples of holdings and %" PRIu64 " missed are not %" PRIu64
                    " due and %" PRIu64 " repeated",
                    sum.taken, sum.missed, sum.due, sum.repeated);
}

void watch_ledger(struct storm *s)
{
    const struct ledger *ledger = &s->driver->ledger;
    uint64_t before = s->used_known ? s->used_before : s->driver->start.resumed.used;
    uint64_t position = ledger->last.progress.sample_offset;
    bool opened = s->driver->leases.opened; /* not where the run was stopped before it continued */
    uint64_t besides = s->driver->traits.takes_leases ? ledger->repeated_leases : ledger->missed;
    storm_report(s,
                 "the books: %" PRIu64 " used, %" PRIu64 " again, %" PRIu64 " missed, %" PRIu64
                 " in the progress, %" PRIu64 " taken",
                 ledger->used, ledger->repeated_leases, ledger->missed, position, s->taken);
    if (!s->driver_dead)
        count_exchanges(s);
    if (!s->driver_dead && !s->formed)
        return; /* its books are those of the checkpoint */
    if (s->driver_dead || ledger->used + besides != position) {
        if (!s->driver_dead)
            storm_break(s, "%" PRIu64 " records used and %" PRIu64 " besides are not %" PRIu64,
                        ledger->used, besides, position);
        return;
    }
    if (opened && ledger->used != s->driver->leases.table.used)
        storm_break(s, "%" PRIu64 " records used, and in leases %" PRIu64, ledger->used,
                    s->driver->leases.table.used);
    if (ledger->used > s->taken + before) /* a run that is resumed may have fewer than before */
        storm_break(s, "%" PRIu64 " records used, and steps took %" PRIu64 " after %" PRIu64,
                    ledger->used, s->taken, before);
    if (s->driver->job->local_data)
        check_holdings(s, position);
    if (s->driver->ending.kept)
        watch_servers_end(s);
    if (s->plan->frees || s->went_backwards)
        return;
    uint64_t sum = committed_samples(s);
    if (s->driver->ending.kept && s->driver->traits.replicas_agree)
        check_replicas(s);
    if (s->driver->ending.kept && sum + before != ledger->used)
        storm_break(s, "%" PRIu64 " records used, and exchanges held %" PRIu64 " after %" PRIu64,
                    ledger->used, sum, before);
}

/* May the run end so? */
static bool may_end(const struct storm *s, int rc)
{
    if (rc == OK || s->driver_dead)
        return true;
    if (strstr(s->err.text,
               "all workers are lost")) /* with the status of one that was refused, too */
        return s->lost_all;
    if (rc == ERR_STOP && strstr(s->err.text, "interrupted before training continued"))
        return atomic_load(&s->stop) && (s->drivers > 1 || s->resumes);
    if (rc == ERR_PEER && strstr(s->err.text, "the run has paused for"))
        return s->plan->pauses; /* no worker is left to replace one that is lost */
    if (s->plan->slices > 0 && strstr(s->err.text, "of the model is lost"))
        return s->incomplete; /* with the status of the last worker that was refused, if one was */
    if (rc == ERR_TIMEOUT && strstr(s->err.text, "no progress for"))
        return !s->formed || s->forms_again;
    if (s->drivers > 1 && strstr(s->err.text, "cannot be had")) /* it knows of no workers, */
        return s->disk.failed && s->died_at - s->disk.failed_at < WRITTEN_TWICE;
    return s->disk.failed && strstr(s->err.text, "the storm's disk: ");
}

void watch_end(struct storm *s, int rc)
{
    char why[ERR_TEXT_MAX];
    memcpy(why, s->err.text, sizeof why);
    storm_report(s, "the run ends: %s %s", status_text(rc), why);
    if (!may_end(s, rc))
        storm_break(s, "the run ends with %s (%s)", status_text(rc), why[0] ? why : "no word");
    s->table->ended_by_name += rc != OK && !s->driver_dead;
    s->table->lost += s->lost_all;
}

void watch_release(struct storm *s)
{
    release_results(s);
    watch_servers_release(s);
    for (uint32_t i = 0; i <= NODES_MAX; i++)
        for (uint32_t l = 0; l < LANES_WATCHED; l++)
            for (int k = 0; k < 2; k++)
                free(s->node[i].lane[l].entry[k].input);
}
