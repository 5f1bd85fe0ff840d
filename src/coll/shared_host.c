/* The coordinator's side of shared variables: connects the task table to the mailbox. */
#include "base/fault.h"
#include "coll/shared_internal.h"

#include <string.h>

static int send_report(struct shared_host *h, uint32_t node, const struct buf *bytes)
{
    int rc = wire_send_buf(h->group->world, node, WIRE_SHARED_REPORT, 0, bytes);
    return rc == ERR_PEER ? OK : rc; /* it is about to be lost by another event */
}

/* To all, in the order of the lane. */
static int report_start(struct shared_host *h, const struct tasks_order *o)
{
    struct tasks_var *var = h->table.var[o->var];
    const struct tasks_round *r = tasks_round_of(var, o->round);
    const struct view *view = h->view;
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
        rc = send_report(h, view->node[i], &bytes);
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
    int rc = send_report(h, o->node, &bytes);
    buf_release(&bytes);
    return rc;
}

/* The coordinator is the donor of joiners (roster_options.driver_admits). */
static int report_donor_ready(struct shared_host *h, const struct tasks_order *o)
{
    uint8_t bytes[4];
    bytes_put_le32(bytes, o->node);
    return wire_send(h->group->world, WORLD_DRIVER, wire_tag(WIRE_DONOR_READY, 0, 0, 0), bytes,
                     sizeof bytes);
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

/* Give the task table the members of the group's view. */
static int follow_view(struct shared_host *h)
{
    const struct view *view = group_view(h->group);
    if (!view || view == h->view)
        return OK;
    const struct members in = view_members(view);
    h->view = view;
    return step_table(h, &(struct tasks_event){.kind = TASKS_MEMBERS, .members = &in});
}

static int take_request(struct shared_host *h, const struct message *m)
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
    return byte_reader_done(&in) ? step_table(h, &event) : OK;
}

/* The roster has a joiner for the next view, or the last one that it had is gone. */
static int take_joiner(struct shared_host *h, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct tasks_event event = {.node = read_u32(&in)};
    event.kind = read_u8(&in) ? TASKS_JOIN : TASKS_NO_JOIN;
    return byte_reader_done(&in) ? step_table(h, &event) : OK;
}

static int serve_requests(struct shared_host *h)
{
    struct world *world = h->group->world;
    for (;;) {
        const struct wait_for set[] = {
            wait_signal(world, SIGNAL_GROUP),
            wire_from(WORLD_ANY, WIRE_SHARED_REQUEST),
            wire_from(WORLD_DRIVER, WIRE_ADMIT_JOINER),
        };
        struct wake wake;
        int rc = follow_view(h);
        if (rc == OK)
            rc = world_wait(world, set, 3, WORLD_FOREVER, &wake);
        if (rc == OK && wake.which > 0) {
            rc = follow_view(h);
            if (rc == OK)
                rc = wake.which == 1 ? take_request(h, wake.msg) : take_joiner(h, wake.msg);
            message_unref(wake.msg);
        }
        if (rc != OK)
            return rc;
    }
}

static int host_task(void *arg)
{
    struct shared_host *h = arg;
    int rc = serve_requests(h);
    if (rc == ERR_CANCELLED)
        return rc;
    /* End visibly: otherwise callers would wait for a round for ever. */
    log_error(h->group->log, "shared variables cannot continue: %s", status_text(rc));
    for (size_t i = 0; h->view && i < h->view->count; i++)
        wire_send(h->group->world, h->view->node[i], wire_tag(WIRE_BYE, 0, 0, 0), NULL, 0);
    return rc;
}

int shared_host_start(struct shared_host *host, struct group *group)
{
    host->group = group;
    host->view = NULL;
    task_table_init(&host->table);
    return world_spawn(group->world, "shared host", host_task, host, &host->task);
}

void shared_host_stop(struct shared_host *host)
{
    if (!host->group)
        return;
    world_end_task(host->group->world, &host->task);
    task_table_release(&host->table);
}
