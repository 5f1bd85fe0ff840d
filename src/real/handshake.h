/* Admission of connections: the hellos at the beginning of every connection. */
#ifndef PL_REAL_HANDSHAKE_H
#define PL_REAL_HANDSHAKE_H

#include "real/address.h"
#include "real/link.h"

/* Say hello on a connection that we have made, to its peer. ERR_PEER */
int handshake_begin(struct node *node, struct link *link);

/* The other side's hello has come (link->in.head): take the connection or refuse it.
 * ERR_PEER, ERR_PROTOCOL: to be closed */
int handshake_take(struct node *node, struct link *link);

/* Connect to the driver, on the calling thread, and be given a number and the run.
 * ERR_PEER, ERR_IO */
int handshake_driver(struct node *node, const struct address *driver, struct stream *out,
                     struct err *err);

#endif
