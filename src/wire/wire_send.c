#include "wire/wire_send.h"

#include "base/fault.h"
#include "wire/wire_rules.h"

#include <string.h>

int wire_send(struct world *world, uint32_t node, uint64_t tag, const void *data, size_t len)
{
    PL_ASSERT(!wire_fault(world->self, node, tag, len));
    struct message *m = message_new(tag, 0, len);
    if (!m)
        return ERR_NOMEM;
    if (len > 0)
        memcpy(m->data, data, len);
    int rc = world_send(world, node, m, CLASS_CONTROL);
    if (rc != ERR_FULL)
        return rc;
    message_unref(m);
    return ERR_PEER;
}

int wire_send_buf(struct world *world, uint32_t node, enum wire_kind kind, uint32_t lane,
                  const struct buf *bytes)
{
    if (bytes->failed)
        return ERR_NOMEM;
    return wire_send(world, node, wire_tag(kind, lane, 0, 0), bytes->data, bytes->len);
}
