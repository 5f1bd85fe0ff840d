/* Contributions that did not count (`reject: outliers`): the servers' reports of pushes, and the
 * end of a worker whose contributions are refused one after another. */
#include "train/driver.h"
#include "wire/wire_send.h"

#include <stdio.h>

/* One that is sound in between begins the count again, so chance ends no worker. */
enum { REFUSALS_MAX = 5 };

/* The worker ends with that reason. One that does not is disconnected at its next refusal. */
static void end_worker(struct driver *d, uint32_t node)
{
    struct departure departure = {.status = ERR_PROTOCOL, .stage = DEPARTED_TRAINING};
    struct buf bytes = {0};
    if (members_has(&d->membership.ended, node)) {
        world_peer_drop(d->world, node);
        return;
    }
    members_add(&d->membership.ended, node);
    departure.location = d->membership.location[node];
    snprintf(departure.text, sizeof departure.text,
             "%d of its contributions in a row were refused: they differ from those of the others; "
             "check that machine's memory and data",
             REFUSALS_MAX);
    driver_take_departure(d, node, &departure);
    buf_put_text(&bytes, departure.text);
    driver_send(d, node, WIRE_REFUSED, &bytes);
    buf_release(&bytes);
}

void driver_check_refused(struct driver *d)
{
    const struct view *view = group_view(&d->group);
    for (size_t i = 0; d->ledger.rejects && view && i < view->count; i++)
        if (d->ledger.refused[view->node[i]] >= REFUSALS_MAX)
            end_worker(d, view->node[i]);
}

void driver_on_rejected(struct driver *d, const struct message *m)
{
    const struct view *view = group_view(&d->group);
    struct byte_reader in = {m->data, m->len, false};
    struct rejection rejection = {.node = read_u32(&in)};
    rejection.n = read_u64(&in);
    uint32_t in_a_row = read_u32(&in);
    rejection.outlier = read_u8(&in) != 0;
    if (!byte_reader_done(&in) || !d->ledger.rejects || !d->traits.is_async ||
        !group_was_member(&d->group, rejection.node)) {
        wire_guard_count(&d->group.guard, m->from, WIRE_REJECTED, "it refuses nobody's push");
        return;
    }
    if (view_rank(view, rejection.node) < 0) /* it is gone meanwhile */
        return;
    d->ledger.refused[rejection.node] = in_a_row;
    ledger_reject(&d->ledger, &rejection);
    if (in_a_row >= REFUSALS_MAX)
        end_worker(d, rejection.node);
}
