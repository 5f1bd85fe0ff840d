#include "real/seal.h"

#include "real/secret.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    RECORD_BYTES = 16 * 1024,     /* the largest, without its seal */
    RECORD_ROOM = 17 * 1024,      /* with it */
    IN_BYTES = 128 * 1024,        /* read at once */
    OUT_BYTES = 16 * RECORD_ROOM, /* sealed and then sent, while the cache has them */
    TURN_BYTES_MAX = 1024 * 1024, /* at a time, so that others have their turn */
};

struct seal_maker {
    SSL_CTX *context;
    BIO_METHOD *memory;
};

struct seal {
    SSL *ssl;
    uint8_t *key; /* in memory for secrets, until the session is open */
    uint32_t records, records_max;
    bool ended;      /* the socket has: no more bytes will arrive */
    ssize_t failure; /* found behind bytes that could be opened; 0: none */
    size_t in_at, in_end, out_at, out_end;
    uint8_t record[RECORD_BYTES]; /* of a frame's small parts */
    uint8_t in[IN_BYTES], out[OUT_BYTES];
};

/* ---- OpenSSL's side of the two buffers ---- */

static int memory_read(BIO *bio, char *to, int n)
{
    struct seal *seal = BIO_get_data(bio);
    size_t have = seal->in_end - seal->in_at, k = (size_t)n < have ? (size_t)n : have;
    BIO_clear_retry_flags(bio);
    if (k == 0) {
        if (!seal->ended)
            BIO_set_retry_read(bio);
        return seal->ended ? 0 : -1;
    }
    memcpy(to, seal->in + seal->in_at, k);
    seal->in_at += k;
    return (int)k;
}

static int memory_write(BIO *bio, const char *from, int n)
{
    struct seal *seal = BIO_get_data(bio);
    size_t room = sizeof seal->out - seal->out_end, k = (size_t)n < room ? (size_t)n : room;
    BIO_clear_retry_flags(bio);
    if (k == 0) {
        BIO_set_retry_write(bio);
        return -1;
    }
    memcpy(seal->out + seal->out_end, from, k);
    seal->out_end += k;
    return (int)k;
}

static long memory_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

/* ---- the key ---- */

/* The only session that either side accepts: TLS 1.3, with the connection's key. */
static SSL_SESSION *make_session(SSL *ssl)
{
    static const unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};
    const struct seal *seal = SSL_get_app_data(ssl);
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
    SSL_SESSION *session = cipher ? SSL_SESSION_new() : NULL;
    if (session && SSL_SESSION_set1_master_key(session, seal->key, RUN_KEY_SIZE) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

/* Both sides know the connection, so the identity tells nothing. */
static const unsigned char identity[] = "paceline";

static int offer_key(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_size,
                     SSL_SESSION **session)
{
    (void)md;
    *id = identity;
    *id_size = sizeof identity - 1;
    *session = make_session(ssl);
    return *session != NULL;
}

static int find_key(SSL *ssl, const unsigned char *id, size_t id_size, SSL_SESSION **session)
{
    bool known = id_size == sizeof identity - 1 && memcmp(id, identity, id_size) == 0;
    *session = known ? make_session(ssl) : NULL;
    return !known ||
           *session; /* without a session no handshake succeeds: there is no certificate */
}

/* ---- what the sessions have in common ---- */

static bool configure_context(SSL_CTX *context)
{
    SSL_CTX_set_options(context,
                        SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_psk_use_session_callback(context, offer_key);
    SSL_CTX_set_psk_find_session_callback(context, find_key);
    return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 &&
           SSL_CTX_set1_groups_list(context, "X25519") == 1 &&
           SSL_CTX_set_num_tickets(context, 0) == 1;
}

struct seal_maker *seal_maker_create(void)
{
    struct seal_maker *maker = calloc(1, sizeof *maker);
    if (!maker)
        return NULL;
    maker->context = SSL_CTX_new(TLS_method());
    maker->memory = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "paceline");
    if (maker->context && maker->memory && configure_context(maker->context) &&
        BIO_meth_set_read(maker->memory, memory_read) == 1 &&
        BIO_meth_set_write(maker->memory, memory_write) == 1 &&
        BIO_meth_set_ctrl(maker->memory, memory_control) == 1)
        return maker;
    seal_maker_free(maker);
    ERR_clear_error();
    return NULL;
}

void seal_maker_free(struct seal_maker *maker)
{
    if (!maker)
        return;
    SSL_CTX_free(maker->context);
    BIO_meth_free(maker->memory);
    free(maker);
}

/* ---- a session ---- */

int seal_begin(struct seal_maker *maker, struct stream *s, bool connects,
               const uint8_t key[RUN_KEY_SIZE])
{
    struct seal *seal = calloc(1, sizeof *seal);
    uint8_t *copy = seal ? secret_alloc(RUN_KEY_SIZE) : NULL;
    BIO *bio = copy ? BIO_new(maker->memory) : NULL;
    SSL *ssl = bio ? SSL_new(maker->context) : NULL;
    if (!ssl) {
        BIO_free(bio);
        secret_free(copy);
        free(seal);
        ERR_clear_error();
        return ERR_NOMEM;
    }
    BIO_set_data(bio, seal);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_app_data(ssl, seal);
    if (connects) {
        SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL); /* no certificate is good enough */
        SSL_set_connect_state(ssl);
    } else {
        SSL_set_accept_state(ssl);
    }
    seal->ssl = ssl;
    seal->records_max = SEAL_RECORDS_MAX;
    seal->key = memcpy(copy, key, RUN_KEY_SIZE);
    s->seal = seal;
    s->ops = &transport_seal;
    return OK;
}

void seal_set_records_max(struct stream *s, uint32_t records)
{
    s->seal->records_max = records;
}

void seal_end(struct stream *s)
{
    struct seal *seal = s->seal;
    if (!seal)
        return;
    s->seal = NULL;
    SSL_free(seal->ssl);
    secret_free(seal->key);
    OPENSSL_cleanse(seal, sizeof *seal);
    free(seal);
}

/* ---- the socket's side of the two buffers ---- */

/* Send what is sealed. OK: all of it; ERR_FULL, ERR_PEER */
static int seal_flush(struct stream *s)
{
    struct seal *seal = s->seal;
    while (seal->out_at < seal->out_end) {
        ssize_t n = send(s->fd, seal->out + seal->out_at, seal->out_end - seal->out_at,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? ERR_FULL : ERR_PEER;
        seal->out_at += (size_t)n;
    }
    seal->out_at = seal->out_end = 0;
    return OK;
}

/* Receive what has arrived, into a buffer that has been read. OK: some bytes, or the end;
 * ERR_FULL: nothing yet; ERR_PEER */
static int refill_buffer(struct stream *s)
{
    struct seal *seal = s->seal;
    ssize_t n;
    if (seal->ended)
        return OK;
    do
        n = recv(s->fd, seal->in, sizeof seal->in, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? ERR_FULL : ERR_PEER;
    seal->in_at = 0;
    seal->in_end = (size_t)n;
    seal->ended = n == 0;
    return OK;
}

static void forget_errors(void)
{
    ERR_clear_error(); /* or the next call of this thread would report ours */
}

int seal_handshake(struct stream *s)
{
    struct seal *seal = s->seal;
    for (;;) {
        forget_errors();
        int done = SSL_do_handshake(seal->ssl), why = SSL_get_error(seal->ssl, done);
        int rc = seal_flush(s); /* some hundred bytes, or an alert that gives the reason */
        if (done == 1) {
            secret_free(seal->key);
            seal->key = NULL;
            bool keyed = SSL_session_reused(seal->ssl) == 1;
            return rc == ERR_PEER || !keyed ? ERR_PROTOCOL : OK;
        }
        if (why != SSL_ERROR_WANT_READ) {
            forget_errors();
            return seal->ended ? ERR_PEER : ERR_PROTOCOL;
        }
        if (rc != OK)
            return ERR_PEER; /* a socket that has sent next to nothing takes that much */
        rc = refill_buffer(s);
        if (rc != OK)
            return rc;
    }
}

/* ---- the stream ---- */

/* A record, whose room has been seen to. false: the session is broken */
static bool seal_record(struct seal *seal, const void *bytes, size_t n)
{
    size_t sealed;
    if (++seal->records >= seal->records_max) {
        seal->records = 0;
        if (SSL_key_update(seal->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
            return false;
    }
    return SSL_write_ex(seal->ssl, bytes, n, &sealed) == 1 && sealed == n;
}

/* Where in the parts the next record begins. */
struct place {
    const struct iovec *part;
    size_t parts, at;
};

/* The next record's bytes: where they lie, if there are enough of them, else a copy. */
static const void *take_bytes(struct place *from, uint8_t *copy, size_t *n)
{
    *n = 0;
    while (from->parts > 0) {
        const uint8_t *bytes = (const uint8_t *)from->part->iov_base + from->at;
        size_t have = from->part->iov_len - from->at, room = RECORD_BYTES - *n;
        size_t k = have < room ? have : room;
        bool whole = *n == 0 && (have >= RECORD_BYTES || from->parts == 1);
        if (!whole)
            memcpy(copy + *n, bytes, k);
        *n += k;
        from->at += k;
        if (from->at == from->part->iov_len) {
            from->part++;
            from->parts--;
            from->at = 0;
        }
        if (whole)
            return bytes;
        if (*n == RECORD_BYTES)
            break;
    }
    return copy;
}

static ssize_t seal_send(struct stream *s, const struct iovec *part, size_t parts)
{
    struct seal *seal = s->seal;
    struct place from = {.part = part, .parts = parts};
    size_t taken = 0, n;
    if (seal->failure)
        return seal->failure;
    forget_errors();
    for (int rc; taken < TURN_BYTES_MAX;) {
        if ((rc = seal_flush(s)) == ERR_PEER)
            return STREAM_BROKEN;
        if (rc == ERR_FULL || from.parts == 0)
            break;
        while (from.parts > 0 && sizeof seal->out - seal->out_end >= 2 * RECORD_ROOM) {
            const void *bytes = take_bytes(&from, seal->record, &n);
            if (n > 0 && !seal_record(seal, bytes, n))
                return STREAM_BROKEN;
            taken += n;
        }
    }
    return (ssize_t)taken;
}

/* Opened bytes; STREAM_NONE: the buffer has no whole record left. */
static ssize_t open_records(struct seal *seal, uint8_t *to, size_t room)
{
    size_t n = 0;
    int done = SSL_read_ex(seal->ssl, to, room, &n);
    if (done == 1)
        return (ssize_t)n;
    switch (SSL_get_error(seal->ssl, done)) {
    case SSL_ERROR_WANT_READ: return STREAM_NONE;
    case SSL_ERROR_ZERO_RETURN: return STREAM_END;
    default:
        return seal->ended ? STREAM_BROKEN : STREAM_CORRUPT; /* an end that was not announced */
    }
}

/* Fills the parts, or returns when all that has arrived is opened: what is left then is no whole
 * record, and the socket becomes readable when the rest arrives. */
static ssize_t seal_receive(struct stream *s, const struct iovec *part, size_t parts)
{
    struct seal *seal = s->seal;
    size_t total = 0, read = 0, at = 0;
    if (seal->failure)
        return seal->failure;
    forget_errors();
    while (parts > 0) {
        if (at == part->iov_len) {
            part++;
            parts--;
            at = 0;
            continue;
        }
        ssize_t n = open_records(seal, (uint8_t *)part->iov_base + at, part->iov_len - at);
        if (n == STREAM_NONE) {
            int rc = read < TURN_BYTES_MAX ? refill_buffer(s) : ERR_FULL;
            if (rc == ERR_FULL)
                break;
            if (rc != OK)
                return STREAM_BROKEN;
            read += seal->in_end;
            continue;
        }
        if (n < 0 && total > 0) {
            seal->failure = n; /* the next call reports it, also one to send */
            break;
        }
        if (n < 0)
            return n;
        at += (size_t)n;
        total += (size_t)n;
    }
    return (ssize_t)total;
}

/* More is open, can be opened or has failed to open, without another byte from the socket. */
static bool seal_holds(const struct stream *s)
{
    return s->seal->failure || SSL_pending(s->seal->ssl) > 0 || s->seal->in_at < s->seal->in_end;
}

/* Of the rest of a message some may be here, in a record that is not whole. */
static void seal_expect(struct stream *s, size_t left)
{
    transport_tcp.expect(s, left > RECORD_ROOM ? left - RECORD_ROOM : 0);
}

static int seal_shut(struct stream *s)
{
    forget_errors();
    SSL_shutdown(s->seal->ssl); /* that this is the end, and no other's doing */
    return seal_flush(s) == OK ? transport_tcp.shut(s) : ERR_PEER;
}

const struct transport_ops transport_seal = {
    .name = "tls",
    .align = 1,
    .send = seal_send,
    .flush = seal_flush,
    .receive = seal_receive,
    .holds = seal_holds,
    .expect = seal_expect,
    .shut = seal_shut,
};
