#include "train/lease_client.h"

#include "train/lease_server.h"
#include "wire/wire_send.h"

void lease_client_begin(struct lease_client *client, struct member *m, bool joined)
{
    uint64_t step = job_step_records(m->job);
    size_t records = m->learner->epoch_records;
    const struct view *view = joined ? group_view(m->group) : group_first_view(m->group);
    struct lease first = {.from = m->start.sample_offset, .to = m->start.sample_offset};
    if (!joined)
        first = lease_server_first(client->from, view, m->world->self, step, records);
    lease_cursor_begin(&m->lease_cursor, strategy_lease_grain(m->job), first,
                       lease_server_first_size(view->count, step, records));
    m->lease_cursor.step = step;
    m->leased = true;
    client->since = world_now(m->world);
    client->reconnects = atomic_load(&m->group->driver.reconnects);
}

static void take_grant(struct member *m, const struct message *msg)
{
    struct byte_reader in = {msg->data, msg->len, false};
    struct lease_grant grant;
    if (lease_grant_decode(&in, &grant) != OK)
        log_warn(m->group->log, "worker %u: leases that cannot be read are ignored",
                 m->world->self);
    else
        lease_cursor_take_grant(&m->lease_cursor, grant.request, grant.lease,
                                grant.count); /* or the grant is an old one */
}

/* A worker that has reconnected to a driver repeats its request: the previous driver may not have
 * received it, and its grant does not count any more. */
void lease_client_poll(struct lease_client *client, struct member *m)
{
    const struct wait_for grant = wire_from(WORLD_DRIVER, WIRE_LEASE);
    uint32_t reconnects = atomic_load(&m->group->driver.reconnects);
    struct wake wake;
    if (reconnects != client->reconnects)
        lease_cursor_forget_request(&m->lease_cursor);
    client->reconnects = reconnects;
    while (m->lease_cursor.pending &&
           world_wait(m->world, &grant, 1, world_now(m->world), &wake) == OK) {
        take_grant(m, wake.msg);
        message_unref(wake.msg);
    }
}

bool lease_client_on_step(struct lease_client *client, struct member *m)
{
    if (!m->leased)
        return false;
    int64_t now = world_now(m->world);
    size_t records = m->learner->epoch_records;
    client->steps++;
    lease_client_poll(client, m);
    double step_s = world_seconds(now - client->since) / (double)client->steps;
    uint64_t want = lease_size(step_s, m->lease_cursor.step, records, group_view(m->group)->count);
    if (!lease_cursor_should_request(&m->lease_cursor, want))
        return false;
    client->since = now;
    client->steps = 0;
    return true;
}

void lease_client_recovery_report(const struct member *m, struct recovery_report *report)
{
    const struct lease_cursor *cursor = &m->lease_cursor;
    report->lease = (struct lease_holder){
        .taken = cursor->taken, .repeated = cursor->repeated, .count = cursor->count};
    for (size_t i = 0; i < cursor->count; i++)
        report->lease.held[i] = cursor->lease[i];
    report->lease_high = cursor->highest;
    report->lease_request = cursor->request;
}

struct lease_report lease_client_report(const struct lease_client *client, const struct member *m)
{
    const struct lease_cursor *cursor = &m->lease_cursor;
    return (struct lease_report){
        .taken = cursor->taken,
        .repeated = cursor->repeated,
        .want = cursor->pending && !client->ends ? cursor->want : 0,
        .request = cursor->request,
        .ends = client->ends,
    };
}
