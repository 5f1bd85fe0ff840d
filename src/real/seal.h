/* TLS 1.3 on a connection's socket, by a key that both sides have: no certificate, no name, no
 * resumption and no early data. The key of each connection is its own (real/run_key.h), and an
 * exchange of X25519 keys is added to it, so that what was recorded stays secret when the run's key
 * is found out (psk_dhe_ke). The connecting side is TLS's client. Records are encrypted and
 * authenticated by AES-128-GCM, so frames have no sums of their own.
 *
 * OpenSSL reads from and writes to memory of the stream, which the serving thread fills from the
 * socket and empties into it: some large system calls for many records. Sealed bytes count as sent;
 * `flush` sends the rest. The kernel's own TLS is not used: it needs OpenSSL on the socket itself,
 * and receives TLS 1.3 since OpenSSL 3.2 only. */
#ifndef PL_REAL_SEAL_H
#define PL_REAL_SEAL_H

#include "real/run_key.h"
#include "real/stream.h"

struct seal_maker;

enum {
    /* Records under one key: AES-GCM's limit for TLS is 2^24.5 (RFC 8446, 5.5). */
    SEAL_RECORDS_MAX = 1 << 22,
};

/* The settings that all sessions of a node have. NULL: no memory */
struct seal_maker *seal_maker_create(void);
void seal_maker_free(struct seal_maker *maker); /* NULL allowed */

/* Begin a session on the socket of `s`, which becomes a stream of records. The bytes before it have
 * been read, and none after. ERR_NOMEM */
int seal_begin(struct seal_maker *maker, struct stream *s, bool connects,
               const uint8_t key[RUN_KEY_SIZE]);

/* Continue the handshake with what has arrived. OK: the session is open; ERR_FULL: not yet.
 * ERR_PEER: the socket has ended or broken; ERR_PROTOCOL: the other side does not have the key, or
 * speaks another protocol */
int seal_handshake(struct stream *s);

/* Records that may be sent under one key from now on; for tests. */
void seal_set_records_max(struct stream *s, uint32_t records);

void seal_end(struct stream *s);

extern const struct transport_ops transport_seal;

#endif
