#include "kv/kv_server.h"

#include "kv/kv_message.h"

#include <string.h>

/* A member knows the others' addresses; a joiner does not. */
static void reply_addresses(const struct kv_server *s, uint32_t to, struct kv_reply *reply)
{
    const struct view *view = s->master.view;
    if (!view || view_rank(view, to) >= 0)
        return;
    for (uint32_t i = 0; i < reply->count; i++) {
        int rank = view_rank(view, reply->node[i]);
        if (rank >= 0)
            memcpy(reply->address[i], view->address[rank], NODE_ADDRESS_MAX);
    }
}

static int send_reply(struct kv_server *s, const struct kv_order *o)
{
    struct kv_reply reply = {
        .what = o->kind, .request = o->request, .meta = o->meta, .count = o->count};
    struct buf bytes = {0};
    for (uint32_t i = 0; i < o->count; i++)
        reply.node[i] = o->location[i];
    if (o->kind == KV_REFUSED)
        reply.refusal = s->orders.refusal;
    reply_addresses(s, o->node, &reply);
    kv_reply_encode(&reply, &bytes);
    int rc = master_reply(&s->master, o->node, WIRE_KV_REPLY, &bytes);
    buf_release(&bytes);
    return rc;
}

static int step_table(struct kv_server *s, const struct kv_event *event)
{
    int rc = kv_table_step(&s->table, event, &s->orders);
    for (size_t i = 0; rc == OK && i < s->orders.count; i++) {
        const struct kv_order *o = &s->orders.at[i];
        if (o->kind == KV_REFUSED && s->orders.refusal.status == ERR_REPLICAS)
            log_error(s->master.group->log, "%s", s->orders.refusal.text);
        rc = send_reply(s, o);
    }
    return rc;
}

static int on_members(void *service, const struct members *in)
{
    return step_table(service, &(struct kv_event){.kind = KV_MEMBERS, .members = in});
}

/* A message that cannot be decoded is ignored. */
static int on_request(void *service, const struct message *m)
{
    struct kv_server *s = service;
    struct byte_reader in = {m->data, m->len, false};
    struct kv_request request;
    int rc = kv_request_decode(&in, &request);
    if (rc != OK) {
        log_warn(s->master.group->log, "node %u sent the key-value store an invalid request",
                 m->from);
        return OK;
    }
    rc = step_table(s, &(struct kv_event){.kind = request.what,
                                          .node = m->from,
                                          .request = request.request,
                                          .key = request.key,
                                          .meta = request.meta,
                                          .patient = request.patient});
    if (rc == ERR_NOMEM) { /* the request gets no reply, and ends at its deadline; the table is
                              intact */
        log_error(s->master.group->log,
                  "the key-value store has no memory for a request of node %u", m->from);
        return OK;
    }
    return rc;
}

/* If it fails, nodes keep their copies, and their calls end at their deadlines. */
static const struct master_ops ops = {
    .task = "kv server",
    .title = "the key-value store's master",
    .on_members = on_members,
    .source = {{WORLD_ANY, WIRE_KV_REQUEST, on_request}},
};

int kv_server_start(struct kv_server *server, struct group *group)
{
    kv_table_init(&server->table);
    return master_start(&server->master, group, &ops, server);
}

void kv_server_stop(struct kv_server *server)
{
    master_stop(&server->master);
    kv_table_release(&server->table);
}
