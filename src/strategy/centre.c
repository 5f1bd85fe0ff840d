#include "strategy/centre.h"

#include "coll/parcel.h"

/* A worker as the centre sees it: it fetches, then gives, so that one vector serves both. */
struct client {
    struct parcel parcel;   /* x̃ on its way out, or d on its way in */
    bool gives;             /* the latter */
    bool asks;              /* for x̃, as soon as d is in */
    struct message *giving; /* the note of d, as soon as x̃ is out */
    struct vec both;
};

struct centre {
    struct leader *l;
    struct parcels post;
    struct client *client[VIEW_MEMBERS_MAX]; /* by node; made when it first comes */
};

static struct client *client_of(struct centre *c, uint32_t node)
{
    const struct leader *l = c->l;
    struct client *client = node < VIEW_MEMBERS_MAX ? c->client[node] : NULL;
    if (client || node >= VIEW_MEMBERS_MAX)
        return client;
    client = arena_new(l->arena, struct client);
    if (!client || vec_init(&client->both, l->arena, l->x.n + l->s.n) != OK)
        return NULL;
    return c->client[node] = client;
}

/* Begin what the client waits for, if its vector is free. */
static int serve(struct centre *c, struct client *client, uint32_t node)
{
    const struct leader *l = c->l;
    struct vec *both = &client->both;
    if (client->parcel.all || (!client->giving && !client->asks))
        return OK;
    client->gives = client->giving != NULL;
    if (client->gives) {
        parcel_accept(&client->parcel, &c->post, client->giving,
                      &(struct parcel_in){.x = both->at, .n = both->n});
        client->giving = NULL;
        return OK;
    }
    client->asks = false;
    vec_export(&l->x, vec_all(&l->x), both->at);
    vec_export(&l->s, vec_all(&l->s), both->at + l->x.n);
    parcel_send(&client->parcel, &c->post,
                &(struct parcel_out){node, CENTRE_LANE_VISIT, both->at, both->n, NULL, 0});
    return world_copied(l->world, both->n * sizeof(float));
}

static int take_note(struct centre *c, struct message *note)
{
    uint32_t node = note->from;
    struct client *client = client_of(c, node);
    bool gives = parcel_note_floats(note) > 0;
    if (gives && client && !client->giving) {
        client->giving = note;
    } else {
        parcel_refuse(&c->post, note);
        if (client && !gives)
            client->asks = true;
    }
    return client ? serve(c, client, node) : ERR_NOMEM;
}

/* Eq. 3, if what came is numbers. */
static int take_given(struct centre *c, struct client *client)
{
    struct leader *l = c->l;
    struct vec x = centre_x(&client->both, l->x.n), s = centre_s(&client->both, l->x.n);
    if (!vec_finite(&client->both, vec_all(&client->both))) {
        log_warn(l->log, "worker %u: what it gave was not finite and is left out",
                 client->parcel.peer);
        return OK;
    }
    double seconds = l->world->costs.reduce * (double)(client->both.n * sizeof(float));
    int rc = world_work(l->world, &(struct cost){seconds});
    if (rc != OK)
        return rc;
    vec_axpy(&l->x, 1.0f, &x, vec_all(&x));
    vec_axpy(&l->s, 1.0f, &s, vec_all(&s));
    return l->committed(l, NULL);
}

static int take_ended(struct centre *c, const struct parcel *ended)
{
    struct client *client = c->client[ended->peer];
    int rc = client->gives && ended->status == OK ? take_given(c, client) : OK;
    client->gives = false;
    return rc == OK ? serve(c, client, ended->peer) : rc;
}

/* All workers' loops have ended, and what they gave has left them: is some of it on its way here?
 */
static bool is_complete(const struct centre *c)
{
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++)
        if (c->client[node] && (c->client[node]->gives || c->client[node]->giving))
            return false;
    return atomic_load(&c->l->finish);
}

int centre_run(struct leader *l)
{
    struct centre *c = arena_new(l->arena, struct centre);
    if (!c)
        return ERR_NOMEM;
    c->l = l;
    parcels_init(&c->post, l->world, l->group, CENTRE_LANE_VISIT);
    int rc = OK;
    while (rc == OK) {
        uint64_t seen = world_raised(l->world, SIGNAL_GROUP);
        if (is_complete(c))
            break;
        const struct wait_for change = {.kind = WAIT_SIGNAL, .signal = SIGNAL_GROUP, .seen = seen};
        struct parcel_wake got;
        rc = parcels_next(&c->post, &change, 1, WORLD_FOREVER, &got);
        if (rc == OK && got.note)
            rc = take_note(c, got.note);
        else if (rc == OK && got.ended)
            rc = take_ended(c, got.ended);
    }
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++)
        if (c->client[node])
            message_unref(c->client[node]->giving);
    parcels_close(&c->post);
    return rc;
}
