/* How the bytes of a connection move. Every connection has a TCP socket; the bytes go through it,
 * in plain or in records of TLS (real/seal.h), or past it through memory that both ends share or
 * through UCX, and then the socket carries
 * doorbells and tells of the end. Links use what the table says and know no transport by name. */
#ifndef PL_REAL_STREAM_H
#define PL_REAL_STREAM_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct seal;
struct ucx_line;
struct shm;
struct stream;

/* Results of send, receive and peek that are not a number of bytes. */
enum {
    STREAM_NONE = 0,     /* not now */
    STREAM_END = -1,     /* the other side has closed, and all that it sent has been read */
    STREAM_BROKEN = -2,  /* it was lost */
    STREAM_UNSOUND = -3, /* the other side violated the protocol of shared memory */
    STREAM_CORRUPT = -4, /* bytes were changed on their way: a record's seal is wrong */
};

struct transport_ops {
    const char *name;
    size_t align; /* frames begin at multiples of it: a power of two, at most 8 */
    bool sums;    /* data is followed by its checksum, since hardware on the way may damage it */

    /* Take as many bytes as there is room for. */
    ssize_t (*send)(struct stream *s, const struct iovec *part, size_t parts);
    /* Bytes that were taken may wait here until the socket has room: send them. OK: all are sent;
     * ERR_FULL, ERR_PEER. NULL: none wait */
    int (*flush)(struct stream *s);

    /* Bytes are received in one of two ways: into the caller's memory, */
    ssize_t (*receive)(struct stream *s, const struct iovec *part, size_t parts);
    /* Can more be received although the socket has nothing? NULL: no */
    bool (*holds)(const struct stream *s);
    /* or, where `receive` is NULL, by a look at the transport's own memory, which is then released.
     */
    ssize_t (*peek)(struct stream *s, const uint8_t **bytes);
    void (*consume)(struct stream *s, size_t n);

    /* `left` bytes of a message are still to arrive, and not needed one by one. NULL allowed */
    void (*expect)(struct stream *s, size_t left);

    /* Readiness. Without these the socket's is meant. EPOLLIN, and EPOLLOUT if that is wanted: now,
     * without asking the kernel; */
    uint32_t (*ready)(const struct stream *s, bool wants_out);
    /* the same, and from now on the socket becomes readable when there is something; */
    uint32_t (*arm)(struct stream *s, bool wants_out);
    /* the socket has become readable: a doorbell, or the end. */
    void (*on_message)(struct stream *s);

    /* End sending: the other side reads the rest, and then STREAM_END. */
    int (*shut)(struct stream *s);
};

struct stream {
    const struct transport_ops *ops;
    int fd;                /* the socket; epoll watches it */
    struct shm *shm;       /* offered, or in use; NULL: none */
    struct ucx_line *line; /* the same through UCX */
    struct seal *seal;     /* of TLS in the socket; NULL: none */
    int low_water;         /* SO_RCVLOWAT; 0: never set */
    bool ended;            /* the socket has ended; bytes may be left in shared memory */
};

extern const struct transport_ops transport_tcp, transport_shm;

/* The stream of a socket; sets its options. */
struct stream stream_tcp(int fd);
/* Between two processes of one host: both ends are at one address, or at loopback's. */
bool stream_is_local(const struct stream *s);
void stream_close(struct stream *s);

#endif
