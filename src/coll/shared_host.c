/* The coordinator's side of shared variables: connects the task table to the mailbox. */
#include "base/fault.h"
#include "coll/shared_internal.h"

#include <string.h>

/* To all, in the order of the lane. */
static int report_start(struct shared_host *h, const struct tasks_order *o)
{
    struct tasks_var *var = h->table.var[o->var];
    const struct tasks_round *r = tasks_round_of(var, o->round);
    const struct view *view = h->master.view;
    struct buf bytes = {0};
    buf_put_u8(&bytes, REPORT_START);
    buf_put_u32(&bytes, view->number);
    buf_put_u32(&bytes, o->var);
    buf_put_u64(&bytes, o->round);
    buf_put_u32(&bytes, var->lane);
    buf_put_u64(&bytes, r->number);
    tasks_spec_encode(&var->spec, &bytes);
    for (uint32_t t = 0; t < var->spec.tasks; t++)
        buf_put_u32(&bytes, r->node[t]);
    int rc = OK;
    for (size_t i = 0; rc == OK && i < view->count; i++)
        rc = master_reply(&h->master, view->node[i], WIRE_SHARED_REPORT, &bytes);
    buf_release(&bytes);
    return rc;
}

static int report_order(struct shared_host *h, const struct tasks_order *o)
{
    struct buf bytes = {0};
    switch (o->kind) {
    case TASKS_REPLY:
        buf_put_u8(&bytes, REPORT_VAR);
        buf_put_u64(&bytes, o->request);
        buf_put_u32(&bytes, o->var);
        buf_put_u64(&bytes, h->table.var[o->var]->done);
        break;
    case TASKS_REFUSE:
        buf_put_u8(&bytes, REPORT_REFUSAL);
        buf_put_u64(&bytes, o->request);
        buf_put_text(&bytes, h->orders.refusal.text);
        break;
    default: buf_put_u8(&bytes, REPORT_MAY_LEAVE); break;
    }
    int rc = master_reply(&h->master, o->node, WIRE_SHARED_REPORT, &bytes);
    buf_release(&bytes);
    return rc;
}

/* The coordinator is the donor of joiners (roster_options.driver_admits). */
static int report_donor_ready(struct shared_host *h, const struct tasks_order *o)
{
    uint8_t bytes[4];
    bytes_put_le32(bytes, o->node);
    return wire_send(h->master.group->world, WORLD_DRIVER, wire_tag(WIRE_DONOR_READY, 0, 0, 0),
                     bytes, sizeof bytes);
}

static int carry_out(struct shared_host *h, const struct tasks_order *o)
{
    switch (o->kind) {
    case TASKS_START: return report_start(h, o);
    case TASKS_ADMIT: return report_donor_ready(h, o);
    default: return report_order(h, o);
    }
}

static int step_table(struct shared_host *h, const struct tasks_event *event)
{
    int rc = task_table_step(&h->table, event, &h->orders);
    for (size_t i = 0; rc == OK && i < h->orders.count; i++)
        rc = carry_out(h, &h->orders.at[i]);
    return rc;
}

static int on_members(void *service, const struct members *in)
{
    return step_table(service, &(struct tasks_event){.kind = TASKS_MEMBERS, .members = in});
}

static int on_request(void *service, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct tasks_event event = {.node = m->from};
    struct tasks_spec spec;
    switch (read_u8(&in)) {
    case REQUEST_INIT:
        event.kind = TASKS_INIT;
        event.request = read_u64(&in);
        tasks_spec_decode(&in, &spec);
        event.spec = &spec;
        break;
    case REQUEST_COMMIT:
        event.kind = TASKS_COMMIT;
        event.var = read_u32(&in);
        event.round = read_u64(&in);
        event.task = read_u32(&in);
        break;
    case REQUEST_ENDED:
        event.kind = TASKS_ENDED;
        event.var = read_u32(&in);
        event.round = read_u64(&in);
        event.number = read_u64(&in);
        event.whole = read_u8(&in) != 0;
        break;
    case REQUEST_LEAVE: event.kind = TASKS_LEAVE; break;
    default: return OK;
    }
    return byte_reader_done(&in) ? step_table(service, &event) : OK;
}

/* The roster has a joiner for the next view, or the last one that it had is gone. */
static int on_joiner(void *service, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct tasks_event event = {.node = read_u32(&in)};
    event.kind = read_u8(&in) ? TASKS_JOIN : TASKS_NO_JOIN;
    return byte_reader_done(&in) ? step_table(service, &event) : OK;
}

/* End visibly: otherwise callers would wait for a round for ever. */
static void on_failure(void *service)
{
    const struct master *master = &((struct shared_host *)service)->master;
    for (size_t i = 0; master->view && i < master->view->count; i++)
        wire_send(master->group->world, master->view->node[i], wire_tag(WIRE_BYE, 0, 0, 0), NULL,
                  0);
}

static const struct master_ops ops = {
    .task = "shared host",
    .title = "the coordinator of shared variables",
    .on_members = on_members,
    .source = {{WORLD_ANY, WIRE_SHARED_REQUEST, on_request},
               {WORLD_DRIVER, WIRE_ADMIT_JOINER, on_joiner}},
    .on_failure = on_failure,
};

int shared_host_start(struct shared_host *host, struct group *group)
{
    task_table_init(&host->table);
    return master_start(&host->master, group, &ops, host);
}

void shared_host_stop(struct shared_host *host)
{
    master_stop(&host->master);
    task_table_release(&host->table);
}
