#include "real/run_key.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum {
    PROOF_OF_FIRST =
        HELLO_SIZE + KEY_ID_SIZE + KEY_NONCE_SIZE, /* where it is, and what it covers */
    PROOF_OF_REPLY = HELLO_SIZE,
    LABEL_SIZE = 16,
    PROVED_MAX = LABEL_SIZE + sizeof(struct hellos),
};

static const char first_label[LABEL_SIZE] = "paceline first",
                  reply_label[LABEL_SIZE] = "paceline reply",
                  session_label[LABEL_SIZE] = "paceline tls";

static int hash_keyed(const void *key, size_t key_size, const void *bytes, size_t n,
                      uint8_t out[RUN_KEY_SIZE])
{
    unsigned size = RUN_KEY_SIZE;
    return HMAC(EVP_sha256(), key, (int)key_size, bytes, n, out, &size) ? OK : ERR_NOMEM;
}

static int hash_text(const void *key, size_t key_size, const char *text, uint8_t out[RUN_KEY_SIZE])
{
    return hash_keyed(key, key_size, text, strlen(text), out);
}

int run_key_derive(struct run_key *key, const char *text)
{
    static const char salt[] = "paceline run key";
    uint8_t root[RUN_KEY_SIZE], id[RUN_KEY_SIZE];
    int rc = hash_text(salt, sizeof salt - 1, text, root);
    rc = rc == OK ? hash_text(root, sizeof root, "id", id) : rc;
    rc = rc == OK ? hash_text(root, sizeof root, "proof", key->proof) : rc;
    rc = rc == OK ? hash_text(root, sizeof root, "session", key->session) : rc;
    memcpy(key->id, id, sizeof key->id);
    OPENSSL_cleanse(root, sizeof root);
    return rc;
}

void run_key_forget(struct run_key *key)
{
    OPENSSL_cleanse(key, sizeof *key);
}

void run_key_print(const uint8_t id[KEY_ID_SIZE], char out[KEY_ID_TEXT_MAX])
{
    for (size_t i = 0; i < KEY_ID_SIZE; i++)
        snprintf(out + 2 * i, 3, "%02x", id[i]);
}

int run_key_draw(uint8_t *out, size_t n)
{
    for (size_t have = 0; have < n;) {
        ssize_t k = getrandom(out + have, n - have, 0);
        if (k < 0 && errno != EINTR)
            return ERR_IO;
        have += k > 0 ? (size_t)k : 0;
    }
    return OK;
}

/* HMAC of the label and of the handshake up to `until` bytes of the reply, or of the first hello if
 * there is no reply yet. */
static int hash_hellos(const uint8_t key[RUN_KEY_SIZE], const char label[LABEL_SIZE],
                       const struct hellos *hellos, size_t first, size_t reply,
                       uint8_t out[RUN_KEY_SIZE])
{
    uint8_t bytes[PROVED_MAX];
    size_t n = 0;
    memcpy(bytes, label, LABEL_SIZE);
    n += LABEL_SIZE;
    memcpy(bytes + n, hellos->challenge, HELLO_SIZE);
    n += HELLO_SIZE;
    memcpy(bytes + n, hellos->first, first);
    n += first;
    memcpy(bytes + n, hellos->reply, reply);
    return hash_keyed(key, RUN_KEY_SIZE, bytes, n + reply, out);
}

static int prove_first(const struct run_key *key, const struct hellos *hellos,
                       uint8_t out[PROOF_SIZE])
{
    return hash_hellos(key->proof, first_label, hellos, PROOF_OF_FIRST, 0, out);
}

static int prove_reply(const struct run_key *key, const struct hellos *hellos,
                       uint8_t out[PROOF_SIZE])
{
    return hash_hellos(key->proof, reply_label, hellos, FIRST_SIZE, PROOF_OF_REPLY, out);
}

int run_key_prove_first(const struct run_key *key, struct hellos *hellos)
{
    memcpy(hellos->first + HELLO_SIZE, key->id, KEY_ID_SIZE);
    int rc = run_key_draw(hellos->first + HELLO_SIZE + KEY_ID_SIZE, KEY_NONCE_SIZE);
    return rc == OK ? prove_first(key, hellos, hellos->first + PROOF_OF_FIRST) : rc;
}

int run_key_prove_reply(const struct run_key *key, struct hellos *hellos)
{
    return prove_reply(key, hellos, hellos->reply + PROOF_OF_REPLY);
}

bool run_key_accepts_first(const struct run_key *key, const struct hellos *hellos)
{
    uint8_t proof[PROOF_SIZE];
    return prove_first(key, hellos, proof) == OK &&
           CRYPTO_memcmp(proof, hellos->first + PROOF_OF_FIRST, PROOF_SIZE) == 0;
}

bool run_key_accepts_reply(const struct run_key *key, const struct hellos *hellos)
{
    uint8_t proof[PROOF_SIZE];
    return prove_reply(key, hellos, proof) == OK &&
           CRYPTO_memcmp(proof, hellos->reply + PROOF_OF_REPLY, PROOF_SIZE) == 0;
}

int run_key_session(const struct run_key *key, const struct hellos *hellos,
                    uint8_t out[RUN_KEY_SIZE])
{
    return hash_hellos(key->session, session_label, hellos, FIRST_SIZE, REPLY_SIZE, out);
}
