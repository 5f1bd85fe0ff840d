/* The key of a run: what each node proves that it has, and what the keys of connections come from.
 *
 * K is HMAC-SHA-256 of the key's text, and from K come, by HMAC with a label each, the id that is
 * shown to everybody, a key for proofs and a key for sessions. A proof is an HMAC of its side's
 * label and of all bytes of the handshake so far, the accepting side's fresh challenge included: it
 * is of no use on any other connection, nor for the other side. The session key is an HMAC of the
 * whole handshake, so every connection has its own; TLS adds a key exchange to it (real/seal.h). */
#ifndef PL_REAL_RUN_KEY_H
#define PL_REAL_RUN_KEY_H

#include "base/err.h"
#include "real/frame.h"

enum { RUN_KEY_SIZE = 32, KEY_ID_TEXT_MAX = 2 * KEY_ID_SIZE + 1 };

struct run_key {
    uint8_t id[KEY_ID_SIZE];
    uint8_t proof[RUN_KEY_SIZE], session[RUN_KEY_SIZE];
};

/* The bytes of a handshake, in order. */
struct hellos {
    uint8_t challenge[HELLO_SIZE];
    uint8_t first[FIRST_SIZE];
    uint8_t reply[REPLY_SIZE];
};

/* ERR_NOMEM */
int run_key_derive(struct run_key *key, const char *text);
void run_key_forget(struct run_key *key);

/* The id in hexadecimal digits, which people compare. */
void run_key_print(const uint8_t id[KEY_ID_SIZE], char out[KEY_ID_TEXT_MAX]);

/* Write the id, a new nonce and the proof behind the hello in hellos->first, or the proof behind
 * the one in hellos->reply. ERR_NOMEM, ERR_IO */
int run_key_prove_first(const struct run_key *key, struct hellos *hellos);
int run_key_prove_reply(const struct run_key *key, struct hellos *hellos);

/* Is it right? The comparison takes the same time for any two proofs. */
bool run_key_accepts_first(const struct run_key *key, const struct hellos *hellos);
bool run_key_accepts_reply(const struct run_key *key, const struct hellos *hellos);

/* The key of this connection's session, after both hellos. ERR_NOMEM */
int run_key_session(const struct run_key *key, const struct hellos *hellos,
                    uint8_t out[RUN_KEY_SIZE]);

/* Random bytes. ERR_IO */
int run_key_draw(uint8_t *out, size_t n);

#endif
