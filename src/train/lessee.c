#include "train/lessee.h"

#include "train/leases.h"
#include "wire/wire_send.h"

void lessee_begin(struct lessee *lessee, struct member *m, bool entered)
{
    uint64_t grain = job_step_records(m->job);
    size_t records = m->learner->corpus->set[SET_TRAIN].count;
    const struct view *view = entered ? group_view(m->group) : group_first_view(m->group);
    struct lease first = {.from = m->start.place, .to = m->start.place};
    if (!entered)
        first = leases_first(lessee->from, view, m->world->self, grain, records);
    lease_cursor_begin(&m->hold, grain, first, leases_first_size(view->count, grain, records));
    m->leased = true;
    lessee->since = world_now(m->world);
    lessee->met = atomic_load(&m->group->reconnects);
}

static void take(struct member *m, const struct message *msg)
{
    struct byte_reader in = {msg->data, msg->len, false};
    struct lease_grant grant;
    if (lease_grant_decode(&in, &grant) != OK)
        log_warn(m->group->log, "worker %u: leases that cannot be read are left aside",
                 m->world->self);
    else
        lease_cursor_take_grant(&m->hold, grant.ask, grant.lease,
                                grant.count); /* or it is an old one */
}

/* Who has come back to a driver puts its question anew: nobody knows whether the one before had
 * heard it, and no answer of its counts any more. */
void lessee_look(struct lessee *lessee, struct member *m)
{
    const struct wait_for answer = wire_from(WORLD_DRIVER, WIRE_LEASE);
    uint32_t met = atomic_load(&m->group->reconnects);
    struct wake wake;
    if (met != lessee->met)
        lease_cursor_forget_request(&m->hold);
    lessee->met = met;
    while (m->hold.pending && world_wait(m->world, &answer, 1, world_now(m->world), &wake) == OK) {
        take(m, wake.msg);
        message_unref(wake.msg);
    }
}

bool lessee_stepped(struct lessee *lessee, struct member *m)
{
    if (!m->leased)
        return false;
    int64_t now = world_now(m->world);
    size_t records = m->learner->corpus->set[SET_TRAIN].count;
    lessee->steps++;
    lessee_look(lessee, m);
    double step_s = world_seconds(now - lessee->since) / (double)lessee->steps;
    uint64_t want = lease_size(step_s, m->hold.grain, records, group_view(m->group)->count);
    if (!lease_cursor_should_request(&m->hold, want))
        return false;
    lessee->since = now;
    lessee->steps = 0;
    return true;
}

void lessee_note(const struct member *m, struct comeback *back)
{
    const struct lease_cursor *hold = &m->hold;
    back->lease = (struct lease_holder){
        .taken = hold->taken, .repeated = hold->repeated, .count = hold->count};
    for (size_t i = 0; i < hold->count; i++)
        back->lease.held[i] = hold->lease[i];
    back->lease_high = hold->highest;
    back->lease_ask = hold->request;
}

struct lease_word lessee_word(const struct lessee *lessee, const struct member *m)
{
    const struct lease_cursor *hold = &m->hold;
    return (struct lease_word){
        .taken = hold->taken,
        .again = hold->repeated,
        .want = hold->pending && !lessee->ends ? hold->want : 0,
        .ask = hold->request,
        .ends = lessee->ends,
    };
}
