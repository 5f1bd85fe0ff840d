#include "train/stream_parts.h"

#include <inttypes.h>
#include <string.h>

#define LOOK_AGAIN (WORLD_SECOND / 4) /* whether those that are waited for are still members */

int stream_parts_init(struct stream_parts *p, struct world *world, struct group *group,
                      const struct logger *log, const struct model_layout *layout,
                      struct arena *arena)
{
    *p = (struct stream_parts){
        .world = world,
        .group = group,
        .log = log,
        .streams = layout->streams,
        .row = layout->row,
        .floats = layout->source ? 0 : carried_state_floats(layout->streams, layout->row),
    };
    if (p->floats == 0)
        return OK;
    p->table = arena_array(arena, p->floats, float);
    p->landing = arena_array(arena, p->floats, float);
    return p->table && p->landing ? OK : ERR_NOMEM;
}

/* Of two commit points only the later one can still be asked for. */
static void begin_table(struct stream_parts *p, uint64_t exchanges)
{
    p->exchanges = exchanges;
    p->here = (struct members){{0}};
    carried_table_clear(p->table, p->streams, p->row);
}

static bool is_member(const struct stream_parts *p, uint32_t node)
{
    const struct view *view = group_view(p->group);
    return view && node < VIEW_MEMBERS_MAX && view_rank(view, node) >= 0;
}

int stream_parts_take(struct stream_parts *p, uint32_t from, const struct model_header *header)
{
    uint64_t n = header->progress.exchanges;
    const char *why = NULL;
    int rc = ERR_PROTOCOL;
    if (!is_member(p, from))
        why = "it is no member";
    else if (p->floats == 0 || header->floats != p->floats)
        why = "they have the wrong length";
    else
        rc = model_receive_vectors(p->world, NULL, from, p->landing, p->floats, header,
                                   STREAM_PARTS_WAIT);
    if (rc == ERR_CANCELLED)
        return rc;
    if (rc != OK) {
        log_warn(p->log, "worker %u: the states of its streams are dropped: %s", from,
                 why ? why : status_text(rc));
        model_drop_chunks(p->world, from, p->floats, header);
    }
    if (why)
        return OK;
    if (n > p->exchanges || members_empty(&p->here))
        begin_table(p, n);
    if (n != p->exchanges)
        return OK;
    if (rc == OK)
        carried_table_merge(p->table, p->landing, p->streams, p->row);
    members_add(&p->here, from);
    return OK;
}

static struct members find_missing(const struct stream_parts *p, const struct members *sharers)
{
    struct members missing = members_without(sharers, &p->here);
    MEMBERS_EACH (node, &missing)
        if (!is_member(p, node))
            members_remove(&missing, node);
    return missing;
}

/* Until all are here, or it takes too long. */
static int await_missing(struct stream_parts *p, const struct members *sharers)
{
    int64_t until = world_now(p->world) + STREAM_PARTS_WAIT;
    struct members missing = find_missing(p, sharers);
    while (!members_empty(&missing) && world_now(p->world) < until) {
        struct model_header header = {0};
        uint32_t from;
        int64_t look = world_now(p->world) + LOOK_AGAIN;
        int rc = model_receive_streams_header(p->world, p->exchanges, &header, &from,
                                              look < until ? look : until);
        if (rc == OK)
            rc = stream_parts_take(p, from, &header);
        if (rc == ERR_CANCELLED)
            return rc;
        missing = find_missing(p, sharers);
    }
    return OK;
}

static void report_missing(const struct stream_parts *p, const struct members *sharers)
{
    struct members missing = members_without(sharers, &p->here);
    if (!members_empty(&missing))
        log_warn(p->log,
                 "exchange %" PRIu64 ": the states of the streams of %zu of %zu workers, of "
                 "worker %u first, have not arrived: in its checkpoint they begin with 0",
                 p->exchanges, members_count(&missing), members_count(sharers),
                 members_next(&missing, 0));
}

int stream_parts_complete(struct stream_parts *p, uint32_t from, struct model_header *header,
                          float *model, size_t room)
{
    const struct members *sharers = &header->progress.sharers;
    size_t own = header->has_carried ? p->floats : 0;
    if (p->floats == 0)
        return OK;
    if (header->floats < own || header->floats - own > room ||
        room - header->floats + own < p->floats)
        return ERR_PROTOCOL;
    float *behind = model + header->floats - own;
    if (header->progress.exchanges != p->exchanges || members_empty(&p->here))
        begin_table(p, header->progress.exchanges);
    if (own > 0) {
        carried_table_merge(p->table, behind, p->streams, p->row);
        members_add(&p->here, from);
    }
    int rc = await_missing(p, sharers);
    if (rc != OK)
        return rc;
    report_missing(p, sharers);
    memcpy(behind, p->table, p->floats * sizeof *behind);
    header->floats += p->floats - own;
    header->has_carried = true;
    return OK;
}
