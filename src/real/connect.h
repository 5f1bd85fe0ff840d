/* Connections: how each begins, is watched, and ends. All functions are for the thread that serves
 * (real/role.h), with the lock released. */
#ifndef PL_REAL_CONNECT_H
#define PL_REAL_CONNECT_H

#include "real/link.h"

struct io;
struct peer;

enum { NAME_SIZE = 24 };

/* "worker 3", "the driver" */
const char *peer_name(const struct peer *peer, char name[NAME_SIZE]);

bool connect_watch(struct io *io, int op, int fd, uint32_t events, void *ptr);

/* A link for a connection, or one that is being made; takes the stream. NULL: no memory */
struct link *connect_link(struct node *node, const struct stream *stream, enum link_state state,
                          struct peer *peer);
/* Its stream has become one with readiness of its own, or is such a one. */
void connect_mapped(struct io *io, struct link *link);
/* The other side has ended this one of several connections, or does not take it: wait a while for
 * the others to end. */
void connect_ended(struct node *node, struct link *link);
/* The connection is over, by either end, and with it all others to the peer. */
void connect_end(struct node *node, struct link *link, bool was_handshake);
/* After something was sent or received: keep watching as is needed, or end it. */
void connect_finish(struct node *node, struct link *link, int rc, bool was_handshake);
bool link_is_in_handshake(const struct link *link);

/* Send the queue, and watch for more room in the stream. Errors as link_write. */
int connect_send(struct node *node, struct link *link);

/* The first connection to a peer, or, when that is open, the others. */
void connect_dial(struct node *node, struct peer *peer);
int connect_made(struct node *node, struct link *link); /* or not: ERR_PEER */

/* It has proved that it belongs to the run: it gives its place to others that have not yet. */
void connect_known(struct node *node, struct link *link);
/* A connection that is no peer's is about to be closed, for that reason, a literal: the log has
 * one a second for each reason, and how many there were. Further connections from its network have
 * less time for their hellos for a while. */
void connect_report_stranger(struct node *node, const struct link *link, const char *why);

void connect_listening(struct io *io, bool on);
/* Accept waiting connections, some at a time. Silent connections cannot fill all room for long: see
 * HALF_OPEN_MAX and EVICT_AGE. May close links. */
void connect_accept(struct node *node);
/* Close connections without a hello in time, and accept again after a pause. */
void connect_sweep(struct node *node);
/* When the next sweep is due; WORLD_FOREVER: never. */
int64_t connect_deadline(const struct io *io);

#endif
