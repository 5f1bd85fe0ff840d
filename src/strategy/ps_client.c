#include "strategy/ps_client.h"

/* ---- one turn ---- */

static int tell_shard(struct ps_client *c, size_t shard, const struct ps_note *note)
{
    return ps_post_tell(&c->post, c->link[shard].host, PS_LANE_SERVER + (uint32_t)shard, note);
}

static int ask(struct ps_client *c, size_t shard)
{
    const struct ps_note note = {
        .op = PS_FETCH, .view = c->view, .number = c->pushed, .version = c->ok.version};
    c->link[shard].asked = c->link[shard].lacks = true;
    return tell_shard(c, shard, &note);
}

/* A server that is lost is for the view to tell. */
static int on_ended(struct ps_client *c, const struct transfer *ended)
{
    if (ended->status == ERR_PEER)
        return OK;
    for (size_t i = 0; i < c->how.place.shards; i++) {
        struct ps_link *link = &c->link[i];
        if (ended != &link->part)
            continue;
        if (ended->status != OK)
            return ended->status;
        link->lacks = false;
        link->version = link->comes;
        link->odd = link->odd_comes;
        vec_copy(&c->joint, &c->landing, link->range);
    }
    return OK;
}

/* Of the newest copy here, to who serves that shard now. */
static int offer(struct ps_client *c, size_t shard)
{
    const struct ps_note copy = {.op = PS_COPY,
                                 .flags = c->ended ? PS_LEFT : 0,
                                 .shard = (uint32_t)shard,
                                 .view = c->view,
                                 .number = c->pushed,
                                 .version = c->link[shard].version,
                                 .samples = c->samples,
                                 .ns = (int64_t)c->sent};
    return ps_post_tell(&c->post, ps_place_host(&c->how.place, shard),
                        PS_LANE_SERVER + (uint32_t)shard, &copy);
}

/* Has the driver, who is the server, come back since this worker dealt with it? */
static bool is_back(const struct ps_client *c)
{
    return !c->how.place.on_workers && c->how.place.now->incarnation != c->incarnation;
}

/* Some shards have moved: what this worker has of them may be the newest there is. If one has moved
 * here, its server starts. */
static int on_view(struct ps_client *c, const struct view *view)
{
    int rc = OK;
    c->view = view->number;
    c->how.place.now = view;
    if (!c->ended) /* else the worker's task, which tells a driver that is back of it, may read it
                    */
        c->m->course.who = (struct members){{0}};
    for (size_t i = 0; !c->ended && i < view->count; i++)
        members_add(&c->m->course.who, view->node[i]);
    for (size_t i = 0; rc == OK && i < c->how.place.shards; i++) {
        struct ps_link *link = &c->link[i];
        uint32_t host = ps_place_host(&c->how.place, i);
        if (host == link->host && !is_back(c) && !c->enters)
            continue;
        if (host == c->m->world->self && !link->server) {
            log_warn(c->m->group->log,
                     "shard %zu of the model: its server is gone, worker %u takes "
                     "over",
                     i, host);
            rc = ps_client_serve(c, i, true);
        }
        if (rc == OK)
            rc = offer(c, i);
    }
    return rc;
}

static int look_around(struct ps_client *c)
{
    const struct view *view = group_view(c->m->group);
    if (atomic_load(&c->m->group->over))
        return ERR_DRIVER;
    return view->number == c->view ? OK : on_view(c, view);
}

static int give(struct ps_client *c, const struct ps_note *asked)
{
    uint8_t bytes[PS_NOTE_MAX];
    struct ps_link *link = &c->link[asked->shard];
    const struct ps_note note = {
        .op = PS_GIVEN, .shard = asked->shard, .view = c->view, .who = link->odd};
    transfer_cancel(&link->give);
    transfer_send(&link->give, &c->post.parcels,
                  &(struct transfer_out){.to = ps_place_host(&c->how.place, asked->shard),
                                         .lane = PS_LANE_SERVER + asked->shard,
                                         .x = c->joint.at + link->range.from,
                                         .n = link->range.len,
                                         .header = bytes,
                                         .header_len = ps_note_encode(&note, bytes)});
    return OK;
}

/* All shards are served again. What has moved is dealt with by its new server: it is pushed what is
 * not decided, and asked for what is lacking. */
static int resume(struct ps_client *c, const struct ps_note *note)
{
    int rc = OK;
    bool new_clock = note->flags & PS_NEW, back = is_back(c);
    uint64_t open = c->pushed - c->covered;
    if (back && open > 1)
        log_warn(c->m->group->log,
                 "worker %u: of its last %llu pushes, which it has not fetched, some may be lost",
                 c->m->world->self, (unsigned long long)open);
    c->incarnation = c->how.place.now->incarnation;
    if (new_clock && !(note->flags & PS_LOST)) /* what counts is what the shards have applied */
        c->ok = (struct ps_note){.number = note->number, .node = c->m->world->self};
    if (new_clock)
        c->ok.version = note->version;
    bool undecided = c->ok.number < c->pushed && note->number < c->pushed;
    for (size_t i = 0; rc == OK && i < c->how.place.shards; i++) {
        struct ps_link *link = &c->link[i];
        uint32_t host = ps_place_host(&c->how.place, i);
        bool moved = host != link->host || back;
        link->host = host;
        link->again = undecided && (moved || link->again);
        if (!link->lacks || !(moved || (new_clock && link->asked)))
            continue;
        transfer_cancel(&link->part);
        rc = ask(c, i);
    }
    const struct ps_note leave = {.op = PS_LEAVE};
    return rc == OK && c->ended ? tell_shard(c, 0, &leave) : rc;
}

static int on_note(struct ps_client *c, struct message *m)
{
    struct ps_note note;
    uint32_t from = m->from;
    bool read =
        ps_note_decode(transfer_header_reader(m), &note) == OK && note.shard < c->how.place.shards;
    struct ps_link *link = read ? &c->link[note.shard] : NULL;
    if (read && note.op == PS_PART && from == link->host && link->asked) {
        const struct transfer_in in = {.x = c->landing.at + link->range.from, .n = link->range.len};
        link->asked = false;
        link->comes = note.version;
        link->odd_comes = note.who;
        transfer_accept(&link->part, &c->post.parcels, m, &in);
        return OK;
    }
    transfer_refuse(&c->post.parcels, m);
    if (!read)
        return OK;
    if (note.op == PS_OK && from == c->link[0].host)
        c->ok = note;
    if (note.op < PS_COPY)
        return OK;
    int rc = note.view > c->view
                 ? group_wait_view(c->m->group, note.view - 1,
                                   world_now(c->m->world) + c->m->group->timing.piece)
                 : OK;
    if (rc == OK)
        rc = look_around(c);
    if (rc != OK || note.view != c->view)
        return rc;
    return note.op == PS_GIVE ? give(c, &note) : note.op == PS_RESUME ? resume(c, &note) : OK;
}

static void send_push(struct ps_client *c)
{
    const struct ps_note note = {
        .op = PS_PUSH, .flags = c->lost ? PS_LOST : 0, .number = c->pushed, .samples = c->samples};
    for (size_t i = 0; i < c->how.place.shards; i++) {
        c->pusher.part[i].skip = !c->link[i].again;
        c->pusher.part[i].to = c->link[i].host;
        c->link[i].again = false;
    }
    ps_pusher_send(&c->pusher, &note, c->lost);
}

/* The last push once more, when it has left for those shards that have not moved. */
static void push_again(struct ps_client *c)
{
    bool some = false;
    for (size_t i = 0; i < c->how.place.shards; i++)
        some |= c->link[i].again;
    if (some && !ps_pusher_busy(&c->pusher))
        send_push(c);
}

/* One wait, one thing done, if what is waited for still holds. While something moves `patience` is
 * for the next piece of it. */
static int turn(struct ps_client *c, bool (*holds)(const struct ps_client *), int64_t patience)
{
    struct world *world = c->m->world;
    struct transfer_wake got;
    uint64_t seen = world_raised(world, SIGNAL_GROUP), moved = atomic_load(&c->m->group->moved);
    uint64_t pushed = world_raised(world, SIGNAL_PUSHED);
    int rc = look_around(c);
    push_again(c);
    if (rc != OK || (holds && !holds(c)))
        return rc;
    const struct wait_for own[] = {
        {.kind = WAIT_SIGNAL, .signal = SIGNAL_GROUP, .seen = seen},
        {.kind = WAIT_SIGNAL, .signal = SIGNAL_PUSHED, .seen = pushed},
    };
    int64_t deadline = patience < WORLD_FOREVER ? world_now(world) + patience : WORLD_FOREVER;
    rc = transfers_next(&c->post.parcels, own, 2, deadline, &got);
    bool stirs =
        atomic_load(&c->m->group->moved) != moved || atomic_load(&c->m->group->driver_missing);
    if (rc == ERR_TIMEOUT && patience > 0 && stirs)
        return OK;
    if (rc == OK && got.header)
        return on_note(c, got.header);
    return rc == OK && got.ended ? on_ended(c, got.ended) : rc;
}

int ps_client_step(struct ps_client *c)
{
    int rc = OK;
    while (rc == OK)
        rc = turn(c, NULL, 0);
    return rc == ERR_TIMEOUT ? OK : rc;
}

/* ---- pushing ---- */

static bool undecided(const struct ps_client *c)
{
    return c->ok.number < c->pushed;
}

static bool pushing(const struct ps_client *c)
{
    return ps_pusher_busy(&c->pusher) || undecided(c);
}

/* Who waits for others computes nothing, and is not expected to. */
static int wait_while(struct ps_client *c, bool (*holds)(const struct ps_client *),
                      int64_t patience)
{
    int rc = OK;
    bool busy = atomic_exchange(&c->m->group->busy, false);
    while (rc == OK && holds(c))
        rc = turn(c, holds, patience);
    atomic_store(&c->m->group->busy, busy);
    return rc;
}

int ps_client_flush(struct ps_client *c)
{
    int rc = wait_while(c, pushing, c->m->group->timing.piece);
    return rc == OK ? atomic_load(&c->pusher.status) : rc;
}

int ps_client_push(struct ps_client *c, uint64_t samples, bool lost)
{
    int rc = ps_client_flush(c);
    if (rc != OK)
        return rc;
    c->pushed++;
    c->lost = lost;
    c->samples = samples;
    c->sent += samples;
    for (size_t i = 0; i < c->how.place.shards; i++)
        c->link[i].again = true;
    send_push(c);
    return OK;
}

/* As long as those take whom the consistency waits for: they live by their heartbeats. */
int ps_client_await_ok(struct ps_client *c)
{
    int rc = wait_while(c, undecided, WORLD_FOREVER);
    return rc == OK && c->ok.flags & PS_LOST ? ERR_DIVERGED : rc;
}

/* ---- fetching ---- */

static bool lacking(const struct ps_client *c)
{
    for (size_t i = 0; i < c->how.place.shards; i++)
        if (c->link[i].lacks)
            return true;
    return false;
}

int ps_client_fetch(struct ps_client *c)
{
    int rc = OK;
    for (size_t i = 0; rc == OK && i < c->how.place.shards; i++)
        rc = ask(c, i);
    if (rc == OK)
        rc = wait_while(c, lacking, c->m->group->timing.piece);
    if (rc == OK)
        c->covered = c->pushed;
    return rc;
}

int ps_client_take(struct ps_client *c)
{
    struct learner *l = c->m->learner;
    vec_copy(&l->x, &c->x, vec_all(&c->x));
    if (!vec_finite(&l->s, vec_all(&l->s)))
        vec_copy(&l->s, &c->s, vec_all(&c->s));
    return world_copied(c->m->world, c->x.n * sizeof(float));
}

/* ---- the end ---- */

static bool telling(const struct ps_client *c)
{
    return ps_post_busy(&c->post);
}

static int linger(void *arg)
{
    struct ps_client *c = arg;
    int rc = OK;
    while (rc == OK)
        rc = turn(c, NULL, WORLD_FOREVER);
    return rc;
}

int ps_client_leave(struct ps_client *c)
{
    const struct ps_note note = {.op = PS_LEAVE};
    int rc = wait_while(c, undecided, WORLD_FOREVER);
    c->ended = true;
    if (rc == OK)
        rc = tell_shard(c, 0, &note);
    if (rc == OK)
        rc = wait_while(c, telling, c->m->group->timing.piece);
    return rc == OK ? world_spawn(c->m->world, "worker", linger, c, &c->lingering) : rc;
}

/* The clock first: it knows how far the others are to be. */
static int fetch_in_turn(struct ps_client *c)
{
    int rc = OK;
    for (size_t i = 0; rc == OK && i < c->how.place.shards; i++) {
        rc = ask(c, i);
        if (rc == OK)
            rc = wait_while(c, lacking, c->m->group->timing.piece);
        if (i == 0)
            c->ok.version = c->link[0].version;
    }
    return rc;
}

size_t ps_client_tell(const struct member *m, uint64_t word[ADMISSION_WORDS])
{
    const struct ps_client *c = m->own;
    return ps_place_tell(&c->how.place, word);
}

int ps_client_gather(struct member *m)
{
    struct ps_client *c = m->own;
    world_end_task(m->world, &c->lingering);
    return fetch_in_turn(c);
}

/* Should a shard be moving just now, its new server waits for a word from everybody: the copy here
 * is a sponsor's, and as old as any. */
int ps_client_enter(struct ps_client *c)
{
    int rc = OK;
    c->enters = true;
    for (size_t i = 0; rc == OK && i < c->how.place.shards; i++)
        rc = offer(c, i);
    if (rc == OK)
        rc = fetch_in_turn(c);
    c->enters = false;
    if (rc != OK)
        return rc;
    vec_copy(&c->m->learner->s, &c->s, vec_all(&c->s));
    return ps_client_take(c);
}
