/* When a worker that served a shard is gone. The next worker serves it, from the newest copy of its
 * range that any worker has pulled; what its optimizer remembered is lost and begins anew.
 *
 * With each new view all take stock (servers on workers alone):
 *
 *   1.  A server that takes over is offered a copy by every worker (COPY), asks for the newest
 *       (GIVE) and holds it (GIVEN).
 *
 *   2.  Every shard tells the clock how far it has come (STATE). Nothing is decided meanwhile.
 *
 *   3.  Is the clock new, some shards may have heard more of the orders of the one before than
 *       others: the one that has heard most hands them on (REPLAY). All its pushes are there: a
 *       shard that has said HAVE keeps a push until it is decided. So all that are left have
 *       applied the same.
 *
 *   4.  When all stand at one order the clock says so (SYNC), and each worker hears which of its
 *       pushes was the last to be decided (RESUME), from a shard that knows: it pushes once more to
 *       new servers what is not decided yet, and asks them once more for what it lacks.
 *
 * A new clock begins to count pushes anew, all workers alike, with nobody waiting. Should the next
 * view come meanwhile, all begins again at 1; notes of an older view mean nothing.
 *
 * A driver that served the model and has come back does the same alone: it takes the newest copy,
 * and resumes. With the copy comes of whom an odd number of pushes is in it. Who fetches between
 * two pushes has all in it but the last, perhaps: that is then pushed once more. (In `downpour` a
 * worker may push more often than it fetches. What else the copy lacks is lost.) The optimizer's
 * state is the newest checkpoint's, or begins afresh. */
#include "strategy/ps_server_parts.h"

/* ---- 1: copies ---- */

static int tell_worker(struct ps_server *s, uint32_t node, enum ps_op op, uint32_t flags,
                       uint64_t number)
{
    const struct ps_note note = {.op = op,
                                 .flags = flags,
                                 .shard = (uint32_t)s->how.index,
                                 .view = s->view,
                                 .number = number,
                                 .version = s->version};
    return ps_post_tell(&s->post, node, PS_LANE_WORKER, &note);
}

static bool covers(const struct members *all, const struct members *some)
{
    for (int i = 0; i < MEMBER_WORDS; i++)
        if (some->word[i] & ~all->word[i])
            return false;
    return true;
}

static int on_copy(struct ps_server *s, uint32_t from, const struct ps_note *note)
{
    if (note->flags & PS_LEFT)
        members_add(&s->left, from);
    if (s->guest[from])
        s->guest[from]->copy_of = *note;
    if (s->how.back && s->synced) /* it has seen this view before it heard where we go on */
        return tell_worker(s, from, PS_RESUME, PS_NEW, s->guest[from]->done);
    if (s->holds || members_has(&s->offered, from))
        return OK;
    bool better = s->giver == WORLD_ANY || note->version > s->best ||
                  (note->version == s->best && from < s->giver);
    members_add(&s->offered, from);
    if (better) {
        s->best = note->version;
        s->giver = from;
    }
    return covers(&s->offered, &s->known) ? tell_worker(s, s->giver, PS_GIVE, 0, 0) : OK;
}

int ps_on_copied(struct ps_server *s)
{
    struct ps_note note;
    s->holds = true;
    s->version = s->best;
    if (ps_note_decode(transfer_reader(&s->given), &note) == OK)
        s->odd = note.who;
    log_info(s->log, "shard %zu goes on at %s %u from worker %u's copy of order %llu", s->how.index,
             s->how.back ? "driver" : "worker", s->how.back ? 0 : s->world->self, s->giver,
             (unsigned long long)s->best);
    return ps_tell_stand(s);
}

/* ---- 3: the clock brings all to one order ---- */

/* Who knows which pushes are decided tells their workers, and the shards that are new. */
static int resume_all(struct ps_server *s, uint32_t flags)
{
    int rc = OK;
    for (uint32_t p = 0; rc == OK && p < VIEW_MEMBERS_MAX; p++) {
        if (!members_has(&s->known, p) || !s->guest[p])
            continue;
        const struct ps_note known = {.op = PS_KNOWN, .node = p, .number = s->guest[p]->done};
        for (size_t i = 0; rc == OK && !(flags & PS_LOST) && i < s->how.place.shards; i++)
            if (i != s->how.index)
                rc = ps_tell_shard(s, i, &known);
        if (rc == OK)
            rc = tell_worker(s, p, PS_RESUME, flags, s->guest[p]->done);
    }
    return rc;
}

static int on_known(struct ps_server *s, const struct ps_note *note)
{
    struct ps_guest *g = note->node < VIEW_MEMBERS_MAX ? s->guest[note->node] : NULL;
    if (!g || g->done >= note->number)
        return OK;
    g->done = note->number;
    if (g->here < g->done)
        g->here = g->done;
    return ps_answer_all(s);
}

/* The shard that has heard most of the clock before; the number of shards: none has. */
static size_t find_most(const struct ps_server *s)
{
    size_t most = s->how.place.shards;
    for (size_t i = 0; i < s->how.place.shards; i++)
        if (!s->stand[i].fresh &&
            (most == s->how.place.shards || s->stand[i].version > s->stand[most].version))
            most = i;
    return most;
}

/* Have those who lack orders sent them. True: nobody lacks any. */
static bool level(struct ps_server *s, size_t most, int *rc)
{
    bool done = true;
    for (size_t i = 1; i < s->how.place.shards; i++) {
        struct ps_stand *stand = &s->stand[i];
        if (stand->fresh || stand->version == s->stand[most].version)
            continue;
        const struct ps_note note = {.op = PS_REPLAY,
                                     .node = ps_place_host(&s->how.place, i),
                                     .shard = (uint32_t)i,
                                     .version = stand->version};
        done = false;
        if (!stand->replays && *rc == OK)
            *rc = ps_tell_shard(s, most, &note);
        stand->replays = true;
    }
    return done;
}

/* A driver that has come back: whose pushes the copy has all of, whose all but the last, and where
 * they have come to. */
static void learn_what_is_in(struct ps_server *s)
{
    for (uint32_t p = 0; p < VIEW_MEMBERS_MAX; p++) {
        struct ps_guest *g = members_has(&s->known, p) ? s->guest[p] : NULL;
        if (!g)
            continue;
        const struct ps_note *copy = &g->copy_of;
        bool lacks = copy->number > 0 && members_has(&s->odd, p) != (copy->number & 1);
        g->done = g->here = copy->number - lacks;
        s->place += (uint64_t)copy->ns - (lacks ? copy->samples : 0);
    }
}

/* Who has died with the clock may not have told the driver of its last push, which counted: the
 * others make up for it. */
static void go_on_from(struct ps_server *s, size_t most)
{
    struct members who = s->known;
    uint64_t told = s->how.start.place + s->how.push;
    if (most < s->how.place.shards) {
        s->version = s->stand[most].version;
        s->history = s->stand[most].history;
        s->place = s->stand[most].place;
    }
    for (int i = 0; i < MEMBER_WORDS; i++)
        who.word[i] &= ~s->left.word[i];
    if (s->how.back)
        learn_what_is_in(s);
    else if (s->place >= told)
        s->place -= s->how.push;
    ps_clock_go_on(s->clock, s->place, &who);
}

/* ---- 4 ---- */

/* Pushes that came to a driver before it knew how far it is. */
static int take_waiting(struct ps_server *s)
{
    int rc = OK;
    for (uint32_t p = 0; rc == OK && p < VIEW_MEMBERS_MAX; p++) {
        struct ps_guest *g = s->guest[p];
        if (!g || !g->next || g->here > g->done || g->push.all)
            continue;
        struct message *m = g->next;
        g->next = NULL;
        rc = ps_take_push(s, m);
    }
    return rc;
}

static int tell_all(struct ps_server *s, bool new_clock, size_t witness)
{
    int rc = OK;
    for (size_t i = 1; rc == OK && i < s->how.place.shards; i++) {
        const struct ps_note note = {.op = PS_SYNC,
                                     .flags =
                                         (new_clock ? PS_NEW : 0u) | (i == witness ? PS_LEFT : 0u),
                                     .number = s->history,
                                     .version = s->version,
                                     .samples = s->place};
        rc = ps_tell_shard(s, i, &note);
    }
    uint32_t flags = (new_clock ? PS_NEW : 0u) | (new_clock && !s->how.back ? PS_LOST : 0u);
    if (rc == OK && (!new_clock || witness == s->how.place.shards))
        rc = resume_all(s, flags);
    return rc == OK ? ps_answer_all(s) : rc;
}

/* Have all told how they stand? */
static int settle(struct ps_server *s)
{
    int rc = OK;
    bool new_clock = !s->synced;
    size_t most = s->how.place.shards;
    for (size_t i = 0; i < s->how.place.shards; i++)
        if (s->stand[i].view != s->view)
            return OK;
    if (s->settled == s->view)
        return OK;
    if (new_clock) {
        most = find_most(s);
        if (most < s->how.place.shards && !level(s, most, &rc))
            return rc;
        go_on_from(s, most);
    }
    for (size_t i = 1; i < s->how.place.shards; i++)
        if (s->stand[i].fresh)
            ps_clock_forget(s->clock, i);
    s->synced = true;
    s->settled = s->view;
    rc = tell_all(s, new_clock, most);
    return rc == OK && s->how.back ? take_waiting(s) : rc;
}

static int on_stand(struct ps_server *s, const struct ps_note *note)
{
    if (!s->clock || note->shard >= s->how.place.shards)
        return OK;
    s->stand[note->shard] = (struct ps_stand){
        .view = note->view,
        .fresh = note->flags & PS_NEW,
        .replays = s->stand[note->shard].view == note->view && s->stand[note->shard].replays,
        .version = note->version,
        .history = note->number,
        .place = note->samples,
    };
    return s->holds ? settle(s) : OK;
}

int ps_tell_stand(struct ps_server *s)
{
    const struct ps_note note = {.op = PS_STATE,
                                 .flags = s->synced ? 0 : PS_NEW,
                                 .shard = (uint32_t)s->how.index,
                                 .view = s->view,
                                 .number = s->history,
                                 .version = s->version,
                                 .samples = s->place};
    return s->clock ? on_stand(s, &note) : ps_tell_shard(s, 0, &note);
}

int ps_take_stock(struct ps_server *s)
{
    transfer_cancel(&s->given);
    s->offered = (struct members){{0}};
    s->giver = WORLD_ANY;
    return s->holds ? ps_tell_stand(s) : OK;
}

static int on_replay(struct ps_server *s, const struct ps_note *note)
{
    int rc = OK;
    for (uint64_t n = note->version + 1; rc == OK && n <= s->version; n++)
        rc = ps_tell_shard(s, note->shard, &s->orders[n % s->orders_kept]);
    return rc;
}

static int on_sync(struct ps_server *s, const struct ps_note *note)
{
    int rc = OK;
    if (!s->synced) {
        s->version = note->version;
        s->history = note->number;
        s->place = note->samples;
    }
    s->synced = true;
    s->settled = s->view;
    for (uint32_t p = 0; rc == OK && note->flags & PS_NEW && p < VIEW_MEMBERS_MAX; p++)
        if (s->guest[p] && members_has(&s->known, p) && s->guest[p]->here > s->guest[p]->done)
            rc = ps_have(s, p);
    if (rc == OK && note->flags & PS_LEFT)
        rc = resume_all(s, PS_NEW);
    return rc == OK ? ps_answer_all(s) : rc;
}

/* Who tells of a view that we have not seen has had it from the driver before us. */
int ps_on_stock(struct ps_server *s, struct message *m, const struct ps_note *note)
{
    uint32_t from = m->from;
    int rc = ps_see_view(s, note->view);
    if (rc == OK && note->view == s->view && note->op == PS_GIVEN && !s->holds &&
        from == s->giver) {
        const struct transfer_in in = {.x = s->shard.both.at, .n = s->shard.both.n};
        transfer_cancel(&s->given);
        transfer_accept(&s->given, &s->post.parcels, m, &in);
        return OK;
    }
    transfer_refuse(&s->post.parcels, m);
    if (rc != OK || note->view != s->view)
        return rc;
    switch (note->op) {
    case PS_COPY: return on_copy(s, from, note);
    case PS_STATE: return on_stand(s, note);
    case PS_REPLAY: return on_replay(s, note);
    case PS_SYNC: return on_sync(s, note);
    case PS_KNOWN: return on_known(s, note);
    default: return OK;
    }
}
