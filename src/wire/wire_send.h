/* Small messages sent and waited for: what everybody who speaks to another node does. */
#ifndef PL_WIRE_WIRE_SEND_H
#define PL_WIRE_WIRE_SEND_H

#include "base/bytes.h"
#include "wire/catalogue.h"
#include "world/world.h"

/* Send a control message of view 0 to a node. `data` may be NULL when len is 0.
 * ERR_PEER  no such peer, or it is down, or it has not read what came before: it hangs, and will be
 *           cut
 * ERR_NOMEM; ERR_CANCELLED */
int wire_send(struct world *world, uint32_t node, uint64_t tag, const void *data, size_t len);

/* The same for what has been put into a buffer; ERR_NOMEM when that ran out of memory. */
int wire_send_buf(struct world *world, uint32_t node, enum wire_kind kind, uint32_t lane,
                  const struct buf *bytes);

/* The next control message of a kind, from a node or WORLD_ANY. */
static inline struct wait_for wire_from(uint32_t node, enum wire_kind kind)
{
    return (struct wait_for){
        .kind = WAIT_MESSAGE,
        .from = node,
        .tag = wire_tag(kind, 0, 0, 0),
        .mask = WIRE_KIND_MASK,
    };
}

#endif
