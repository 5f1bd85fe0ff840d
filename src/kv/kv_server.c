#include "kv/kv_server.h"

#include "kv/kv_message.h"

#include <string.h>

/* A member knows the others' addresses; a joiner does not. */
static void reply_addresses(const struct kv_server *s, uint32_t to, struct kv_reply *reply)
{
    if (!s->view || view_rank(s->view, to) >= 0)
        return;
    for (uint32_t i = 0; i < reply->count; i++) {
        int rank = view_rank(s->view, reply->node[i]);
        if (rank >= 0)
            memcpy(reply->address[i], s->view->address[rank], NODE_ADDRESS_MAX);
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
    int rc = wire_send_buf(s->group->world, o->node, WIRE_KV_REPLY, 0, &bytes);
    buf_release(&bytes);
    return rc == ERR_PEER ? OK : rc; /* it is about to be lost by another event */
}

static int step_table(struct kv_server *s, const struct kv_event *event)
{
    int rc = kv_table_step(&s->table, event, &s->orders);
    for (size_t i = 0; rc == OK && i < s->orders.count; i++) {
        const struct kv_order *o = &s->orders.at[i];
        if (o->kind == KV_REFUSED && s->orders.refusal.status == ERR_REPLICAS)
            log_error(s->group->log, "%s", s->orders.refusal.text);
        rc = send_reply(s, o);
    }
    return rc;
}

/* Give the table the members of the group's view. */
static int follow_view(struct kv_server *s)
{
    const struct view *view = group_view(s->group);
    if (!view || view == s->view)
        return OK;
    const struct members in = view_members(view);
    s->view = view;
    return step_table(s, &(struct kv_event){.kind = KV_MEMBERS, .members = &in});
}

/* A message that cannot be decoded is ignored. */
static int take_request(struct kv_server *s, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct kv_request request;
    int rc = kv_request_decode(&in, &request);
    if (rc != OK) {
        log_warn(s->group->log, "node %u sent the key-value store an invalid request", m->from);
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
        log_error(s->group->log, "the key-value store has no memory for a request of node %u",
                  m->from);
        return OK;
    }
    return rc;
}

static int serve_requests(struct kv_server *s)
{
    struct world *world = s->group->world;
    for (;;) {
        const struct wait_for set[] = {
            wait_signal(world, SIGNAL_GROUP),
            wire_from(WORLD_ANY, WIRE_KV_REQUEST),
        };
        struct wake wake;
        int rc = follow_view(s);
        if (rc == OK)
            rc = world_wait(world, set, 2, WORLD_FOREVER, &wake);
        if (rc == OK && wake.which == 1) {
            rc = follow_view(s); /* the requesting node may be a member by now */
            if (rc == OK)
                rc = take_request(s, wake.msg);
            message_unref(wake.msg);
        }
        if (rc != OK)
            return rc;
    }
}

/* The master's task. If it fails, nodes keep their copies, and their calls end at their deadlines.
 */
static int server_task(void *arg)
{
    struct kv_server *s = arg;
    int rc = serve_requests(s);
    if (rc != ERR_CANCELLED)
        log_error(s->group->log, "the key-value store's master cannot continue: %s",
                  status_text(rc));
    return rc;
}

int kv_server_start(struct kv_server *server, struct group *group)
{
    server->group = group;
    server->view = NULL;
    kv_table_init(&server->table);
    int rc = world_spawn(group->world, "kv server", server_task, server, &server->task);
    if (rc != OK)
        server->group = NULL;
    return rc;
}

void kv_server_stop(struct kv_server *server)
{
    if (!server->group)
        return;
    world_end_task(server->group->world, &server->task);
    kv_table_release(&server->table);
    server->group = NULL;
}
