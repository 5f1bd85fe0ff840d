/* Admission of connections: the challenge, the hellos and the TLS handshake at the beginning of a
 * connection (real/frame.h). A side with a key requires it of the other, in both directions. */
#ifndef PL_REAL_HANDSHAKE_H
#define PL_REAL_HANDSHAKE_H

#include "real/address.h"
#include "real/link.h"

/* Send the challenge on an accepted connection. ERR_PEER, ERR_IO */
int handshake_challenge(struct node *node, struct link *link);

/* The message that the link's state expects has arrived (link->in.head): reply to a challenge,
 * accept or refuse a connection, or begin to use ours. ERR_PEER, ERR_PROTOCOL: the caller closes it
 */
int handshake_take(struct node *node, struct link *link);

/* Continue the TLS handshake of a link in LINK_SEALING, and open the link when that is over. Errors
 * as handshake_take. */
int handshake_seal(struct node *node, struct link *link);

/* Connect to the driver, on the calling thread, and be given a number and the run.
 * ERR_PEER, ERR_IO, ERR_INPUT: the keys differ */
int handshake_driver(struct node *node, const struct address *driver, struct stream *out,
                     struct err *err);

#endif
