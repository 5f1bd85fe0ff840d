#include "strategy/centre.h"

#include <inttypes.h>

/* The centre's record of a worker. A worker fetches, then sends an update, so one vector serves
 * both. */
struct client {
    struct transfer transfer; /* x̃ on its way out, or d on its way in */
    bool updates;             /* it carries d */
    bool requests;            /* it waits for x̃, which is sent when d has arrived */
    struct message *giving;   /* the header of d, which is accepted when x̃ has been sent */
    struct vec both;
    bool offered;          /* it has offered its copy to a recovered driver */
    struct message *offer; /* the header of that offer; NULL: it has no copy */
    uint64_t given;        /* updates that it had sent by then */
    bool owes;             /* the centre lacks the last of these */
};

struct centre {
    struct driver_part *l;
    struct transfers sender;
    struct client *client[VIEW_MEMBERS_MAX]; /* by node; made at its first message */
    uint64_t version;                        /* updates decided */
    struct members applied_parity;           /* workers with an odd number of decided updates */
    bool holds_centre;                       /* false: a recovered driver that has not received a
                                                copy yet */
    struct transfer taken;                   /* the newest copy, on its way in */
    struct vec copy;
};

/* ---- messages ---- */

size_t centre_message_encode(const struct centre_message *message, uint8_t out[CENTRE_MESSAGE])
{
    bytes_put_le64(out, message->op);
    bytes_put_le64(out + 8, message->number);
    bytes_put_le64(out + 16, message->version);
    for (int i = 0; i < MEMBER_WORDS; i++)
        bytes_put_le64(out + 24 + 8 * i, message->parity.word[i]);
    return CENTRE_MESSAGE;
}

int centre_message_decode(struct byte_reader in, struct centre_message *out)
{
    uint64_t op = read_u64(&in);
    *out = (struct centre_message){.op = (enum centre_op)op};
    out->number = read_u64(&in);
    out->version = read_u64(&in);
    members_decode(&in, &out->parity);
    return byte_reader_done(&in) && op >= CENTRE_REQUEST && op <= CENTRE_OFFER ? OK : ERR_PROTOCOL;
}

static bool parity_of(const struct centre *c, uint32_t node)
{
    return members_has(&c->applied_parity, node);
}

/* One more update of this worker is decided: it was added, or rejected for good. */
static void count_update(struct centre *c, uint32_t node)
{
    c->version++;
    members_put(&c->applied_parity, node, !members_has(&c->applied_parity, node));
}

/* ---- joining workers ---- */

static struct client *client_of(struct centre *c, uint32_t node)
{
    const struct driver_part *l = c->l;
    struct client *client = node < VIEW_MEMBERS_MAX ? c->client[node] : NULL;
    if (client || node >= VIEW_MEMBERS_MAX)
        return client;
    client = arena_new(l->arena, struct client);
    if (!client || vec_init(&client->both, l->arena, l->x.n + l->s.n) != OK)
        return NULL;
    return c->client[node] = client;
}

static void accept_given(struct centre *c, struct client *client)
{
    struct vec *both = &client->both;
    client->updates = true;
    transfer_accept(&client->transfer, &c->sender, client->giving,
                    &(struct transfer_in){.x = both->at, .n = both->n});
    client->giving = NULL;
}

static int reply_offer(struct centre *c, struct client *client, uint32_t node)
{
    const struct driver_part *l = c->l;
    struct vec *both = &client->both;
    const struct centre_message message = {
        .op = CENTRE_MODEL, .version = c->version, .parity = c->applied_parity};
    uint8_t bytes[CENTRE_MESSAGE];
    client->requests = false;
    vec_export(&l->x, vec_all(&l->x), both->at);
    vec_export(&l->s, vec_all(&l->s), both->at + l->x.n);
    transfer_send(&client->transfer, &c->sender,
                  &(struct transfer_out){.to = node,
                                         .lane = CENTRE_LANE_VISIT,
                                         .x = both->at,
                                         .n = both->n,
                                         .header = bytes,
                                         .header_len = centre_message_encode(&message, bytes)});
    return world_copied(l->world, both->n * sizeof(float));
}

/* Begin the transfer that the client waits for, if its vector is free. */
static int serve_client(struct centre *c, struct client *client, uint32_t node)
{
    if (!c->holds_centre || client->transfer.all)
        return OK;
    if (client->giving) {
        accept_given(c, client);
        return OK;
    }
    return client->requests ? reply_offer(c, client, node) : OK;
}

/* ---- a driver that has returned ---- */

static bool is_here(const struct centre *c, uint32_t node)
{
    return view_rank(group_view(c->l->group), node) >= 0;
}

/* Have all remaining members of the first view offered their copies? */
static bool all_have_offered(const struct centre *c)
{
    const struct view *first = group_first_view(c->l->group);
    for (size_t i = 0; i < first->count; i++) {
        uint32_t node = first->node[i];
        if (is_here(c, node) && !(c->client[node] && c->client[node]->offered))
            return false;
    }
    return true;
}

/* The node with the newest copy; WORLD_ANY: there is none. */
static uint32_t find_newest(const struct centre *c, struct centre_message *best)
{
    uint32_t from = WORLD_ANY;
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++) {
        struct centre_message message;
        if (!c->client[node] || !c->client[node]->offer)
            continue;
        int rc = centre_message_decode(transfer_header_reader(c->client[node]->offer), &message);
        if (rc == OK && (from == WORLD_ANY || message.version > best->version)) {
            from = node;
            *best = message;
        }
    }
    return from;
}

/* The centre exists again: refuse further offers, and serve waiting requests. */
static int serve_all(struct centre *c)
{
    int rc = OK;
    c->holds_centre = true;
    for (uint32_t node = 0; rc == OK && node < VIEW_MEMBERS_MAX; node++) {
        struct client *client = c->client[node];
        if (!client)
            continue;
        if (client->offer)
            transfer_refuse(&c->sender, client->offer);
        client->offer = NULL;
        client->owes = client->offered && (client->given & 1) != parity_of(c, node);
        rc = serve_client(c, client, node);
    }
    return rc;
}

/* When all have offered, take the newest copy, or, if there is none, this driver's initial state.
 * ERR_PEER: no worker is left that could have one */
static int choose_start(struct centre *c)
{
    struct centre_message best;
    if (c->holds_centre || c->taken.all)
        return OK;
    if (group_view(c->l->group)->count == 0)
        return ERR_PEER;
    if (!all_have_offered(c))
        return OK;
    uint32_t from = find_newest(c, &best);
    if (from == WORLD_ANY) {
        log_warn(c->l->log, "no worker has a copy of the centre: it is the checkpoint's");
        return serve_all(c);
    }
    transfer_accept(&c->taken, &c->sender, c->client[from]->offer,
                    &(struct transfer_in){.x = c->copy.at, .n = c->copy.n});
    c->client[from]->offer = NULL;
    c->version = best.version;
    c->applied_parity = best.parity;
    return OK;
}

/* The copy has arrived; or its worker is lost: then take the next best. */
static int take_copy(struct centre *c)
{
    struct driver_part *l = c->l;
    if (c->taken.status != OK)
        return choose_start(c);
    struct vec x = centre_x(&c->copy, l->x.n), s = centre_s(&c->copy, l->x.n);
    vec_copy(&l->x, &x, vec_all(&x));
    vec_copy(&l->s, &s, vec_all(&s));
    log_info(l->log, "the centre resumes from worker %u's copy, after %" PRIu64 " gifts",
             c->taken.peer, c->version);
    return serve_all(c);
}

static int take_offer(struct centre *c, struct client *client, const struct centre_message *message,
                      struct message *m)
{
    client->offered = true;
    client->given = message->number;
    if (client->offer)
        message_unref(client->offer);
    client->offer = NULL;
    if (c->holds_centre || transfer_header_floats(m) == 0)
        transfer_refuse(&c->sender, m);
    else
        client->offer = m;
    return choose_start(c);
}

/* ---- what comes in ---- */

/* A recovered driver refuses updates until it has the centre: they were sent to the previous
 * driver, and their workers send them again. Requests to the previous driver are ignored, since
 * their workers repeat them. */
static int take_message(struct centre *c, struct message *m)
{
    struct centre_message message;
    uint32_t node = m->from;
    struct client *client = client_of(c, node);
    bool read = centre_message_decode(transfer_header_reader(m), &message) == OK;
    if (client && read && message.op == CENTRE_OFFER)
        return take_offer(c, client, &message, m);
    if (client && read && message.op == CENTRE_UPDATE && c->holds_centre && !client->giving)
        client->giving = m;
    else
        transfer_refuse(&c->sender, m);
    if (client && read && message.op == CENTRE_REQUEST)
        client->requests |= message.number == group_view(c->l->group)->incarnation;
    return client ? serve_client(c, client, node) : ERR_NOMEM;
}

/* Eq. 3, if the update is finite. */
static int take_given(struct centre *c, struct client *client)
{
    struct driver_part *l = c->l;
    struct vec x = centre_x(&client->both, l->x.n), s = centre_s(&client->both, l->x.n);
    struct centre_message message;
    uint32_t from = client->transfer.peer;
    bool read = centre_message_decode(transfer_reader(&client->transfer), &message) == OK;
    if (!read || (message.number & 1) == parity_of(c, from)) {
        log_warn(l->log, "worker %u repeats an update that was added already", from);
        return OK;
    }
    count_update(c, from);
    client->owes = false;
    if (!vec_finite(&client->both, vec_all(&client->both))) {
        log_warn(l->log, "worker %u: its update is not finite and is left out", from);
        return OK;
    }
    double seconds = l->world->costs.reduce * (double)(client->both.n * sizeof(float));
    int rc = world_work(l->world, &(struct cost){seconds});
    if (rc != OK)
        return rc;
    vec_axpy(&l->x, 1.0f, &x, vec_all(&x));
    vec_axpy(&l->s, 1.0f, &s, vec_all(&s));
    return l->on_commit(l, NULL);
}

static int take_ended(struct centre *c, const struct transfer *ended)
{
    if (ended == &c->taken)
        return take_copy(c);
    struct client *client = c->client[ended->peer];
    int rc = client->updates && ended->status == OK ? take_given(c, client) : OK;
    client->updates = false;
    return rc == OK ? serve_client(c, client, ended->peer) : rc;
}

/* All workers' loops have ended and have sent their updates. Is none of these still on its way, or
 * to be sent again because the previous driver received it? */
static bool is_complete(const struct centre *c)
{
    if (!c->holds_centre || !atomic_load(&c->l->finish))
        return false;
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++) {
        const struct client *client = c->client[node];
        if (client && (client->updates || client->giving || (client->owes && is_here(c, node))))
            return false;
    }
    return true;
}

static void centre_close(struct centre *c)
{
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++) {
        if (!c->client[node])
            continue;
        message_unref(c->client[node]->giving);
        message_unref(c->client[node]->offer);
    }
    transfers_close(&c->sender);
}

int centre_run(struct driver_part *l)
{
    struct centre *c = arena_new(l->arena, struct centre);
    if (!c)
        return ERR_NOMEM;
    c->l = l;
    c->holds_centre = !l->lanes.needs_sync;
    if (!c->holds_centre && vec_init(&c->copy, l->arena, l->x.n + l->s.n) != OK)
        return ERR_NOMEM;
    transfers_init(&c->sender, l->world, l->group, CENTRE_LANE_VISIT);
    c->sender.chunk = strategy_chunk(l->job);
    int rc = OK;
    while (rc == OK) {
        const struct wait_for change = wait_signal(l->world, SIGNAL_GROUP);
        rc = choose_start(c);
        if (rc != OK || is_complete(c))
            break;
        struct transfer_wake got;
        rc = transfers_next(&c->sender, &change, 1, WORLD_FOREVER, &got);
        if (rc == OK && got.header)
            rc = take_message(c, got.header);
        else if (rc == OK && got.ended)
            rc = take_ended(c, got.ended);
    }
    centre_close(c);
    return rc;
}
