#include "world/world.h"

#include "base/fault.h"

#include <stdatomic.h>
#include <stdlib.h>

/* The header is followed by its bytes, in one allocation. */
static struct message *message_make(uint64_t tag, uint32_t view, size_t len, size_t room)
{
    PL_ASSERT(len <= WORLD_MESSAGE_MAX);
    struct message *m = malloc(sizeof *m + room);
    if (!m)
        return NULL;
    *m = (struct message){.tag = tag, .view = view, .len = len, .references = 1};
    if (room)
        m->data = m + 1;
    return m;
}

struct message *message_new(uint64_t tag, uint32_t view, size_t len)
{
    return message_make(tag, view, len, len ? len : 1);
}

struct message *message_phantom(uint64_t tag, uint32_t view, size_t len)
{
    return message_make(tag, view, len, 0);
}

struct message *message_ref(struct message *m)
{
    atomic_fetch_add(&m->references, 1);
    return m;
}

void message_unref(struct message *m)
{
    if (!m || atomic_fetch_sub(&m->references, 1) != 1)
        return;
    if (m->release)
        m->release(m);
    else
        free(m);
}

int world_sleep(struct world *w, int64_t until)
{
    struct wake wake;
    int rc = world_wait(w, NULL, 0, until, &wake);
    return rc == ERR_TIMEOUT ? OK : rc;
}

void world_end_task(struct world *w, struct task **task)
{
    if (!*task)
        return;
    world_cancel(w, *task);
    world_join(w, *task, WORLD_FOREVER, NULL);
    *task = NULL;
}
