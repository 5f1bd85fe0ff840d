#include "group/master_service.h"

/* ---- the master ---- */

static int follow_view(struct master *master)
{
    const struct view *view = group_view(master->group);
    if (!view || view == master->view)
        return OK;
    const struct members in = view_members(view);
    master->view = view;
    return master->ops->on_members(master->service, &in);
}

static int serve_messages(struct master *master)
{
    const struct master_ops *ops = master->ops;
    struct world *world = master->group->world;
    for (;;) {
        struct wait_for set[1 + MASTER_SOURCES] = {wait_signal(world, SIGNAL_GROUP)};
        int waits = 1;
        for (; waits <= MASTER_SOURCES && ops->source[waits - 1].on_message; waits++)
            set[waits] = wire_from(ops->source[waits - 1].from, ops->source[waits - 1].kind);
        struct wake wake;
        int rc = follow_view(master);
        if (rc == OK)
            rc = world_wait(world, set, waits, WORLD_FOREVER, &wake);
        if (rc == OK && wake.which > 0) {
            rc = follow_view(master); /* the sender may be a member by now */
            if (rc == OK)
                rc = ops->source[wake.which - 1].on_message(master->service, wake.msg);
            message_unref(wake.msg);
        }
        if (rc != OK)
            return rc;
    }
}

static int master_task(void *arg)
{
    struct master *master = arg;
    int rc = serve_messages(master);
    if (rc == ERR_CANCELLED)
        return rc;
    log_error(master->group->log, "%s cannot continue: %s", master->ops->title, status_text(rc));
    if (master->ops->on_failure)
        master->ops->on_failure(master->service);
    return rc;
}

int master_start(struct master *master, struct group *group, const struct master_ops *ops,
                 void *service)
{
    *master = (struct master){.group = group, .ops = ops, .service = service};
    int rc = world_spawn(group->world, ops->task, master_task, master, &master->task);
    if (rc != OK)
        master->group = NULL;
    return rc;
}

void master_stop(struct master *master)
{
    if (master->group)
        world_end_task(master->group->world, &master->task);
    master->group = NULL;
}

int master_reply(struct master *master, uint32_t node, enum wire_kind kind, const struct buf *bytes)
{
    int rc = wire_send_buf(master->group->world, node, kind, 0, bytes);
    return rc == ERR_PEER ? OK : rc;
}

/* ---- a node ---- */

void inbox_push(struct inbox *inbox, struct inbox_item *item)
{
    item->next = atomic_load(&inbox->newest);
    while (!atomic_compare_exchange_weak(&inbox->newest, &item->next, item))
        ;
}

void *inbox_take(struct inbox *inbox)
{
    struct inbox_item *newest = atomic_exchange(&inbox->newest, NULL), *oldest = NULL;
    while (newest) {
        struct inbox_item *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}
