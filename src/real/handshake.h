/* Admission of connections: the hellos at the beginning of every connection. */
#ifndef PL_REAL_HANDSHAKE_H
#define PL_REAL_HANDSHAKE_H

#include "real/address.h"
#include "real/link.h"

/* Send the hello on an outgoing connection. ERR_PEER */
int handshake_begin(struct node *node, struct link *link);

/* The other side's hello has arrived (link->in.head): accept or refuse the connection. ERR_PEER,
 * ERR_PROTOCOL: the caller closes it */
int handshake_take(struct node *node, struct link *link);

/* Connect to the driver, on the calling thread, and be given a number and the run.
 * ERR_PEER, ERR_IO */
int handshake_driver(struct node *node, const struct address *driver, struct stream *out,
                     struct err *err);

#endif
