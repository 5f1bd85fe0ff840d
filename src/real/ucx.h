/* Bytes through UCX, for those who build with it (PACELINE_UCX): RDMA where the fabric has it. The
 * hellos agree on it; then the connecting side says its UCX address on the socket, and the
 * accepting side its own, each as
 *
 *     length u32 ≤ UCX_ADDRESS_MAX | hash_bytes of it u64 | address …
 *
 * and from there the bytes go through UCX. The socket stays: it tells of the end at once, and of an
 * orderly one it has a word each way, how many bytes there were, and one more, that all have come.
 *
 * UCX itself checks little of what it is told: the hash finds garbage, not malice. Without the
 * library these do nothing. Everything here is for who serves (real/role.h). */
#ifndef PL_REAL_UCX_H
#define PL_REAL_UCX_H

#include "base/logger.h"
#include "real/frame.h"
#include "real/stream.h"

enum { UCX_ADDRESS_MAX = 4096, UCX_HEAD = 12 };

struct ucx; /* a world's */

#ifdef PACELINE_UCX

extern const struct transport_ops transport_ucx;

/* `local`: through loopback and memory alone. NULL, and a line in the log: it cannot be. */
struct ucx *ucx_open(const struct logger *log, bool local);
void ucx_close(struct ucx *ucx);   /* NULL allowed */
int ucx_fd(const struct ucx *ucx); /* for epoll */

/* Let UCX progress what is under way. */
void ucx_progress(struct ucx *ucx);
/* From now on the descriptor becomes readable when there is something. true: there is already. */
bool ucx_arm(struct ucx *ucx);

/* As those of real/shm.h. */
void ucx_offer(struct ucx *ucx, struct stream *s, struct hello *hello);
int ucx_answered(struct stream *s, const struct hello *answer);
void ucx_accept(struct ucx *ucx, struct stream *s, const struct hello *hello, struct hello *answer);
void ucx_begin(struct stream *s);

/* The stream is being closed. */
void ucx_end(struct stream *s);

#else

static inline struct ucx *ucx_open(const struct logger *log, bool local)
{
    (void)local;
    log_warn(log, "UCX: this is built without it; TCP is used");
    return NULL;
}
static inline void ucx_close(struct ucx *ucx)
{
    (void)ucx;
}
static inline int ucx_fd(const struct ucx *ucx)
{
    (void)ucx;
    return -1;
}
static inline void ucx_progress(struct ucx *ucx)
{
    (void)ucx;
}
static inline bool ucx_arm(struct ucx *ucx)
{
    (void)ucx;
    return false;
}
static inline void ucx_offer(struct ucx *ucx, struct stream *s, struct hello *hello)
{
    (void)ucx, (void)s, (void)hello;
}
static inline int ucx_answered(struct stream *s, const struct hello *answer)
{
    (void)s;
    return answer->ucx ? ERR_PROTOCOL : OK;
}
static inline void ucx_accept(struct ucx *ucx, struct stream *s, const struct hello *hello,
                              struct hello *answer)
{
    (void)ucx, (void)s, (void)hello, (void)answer;
}
static inline void ucx_begin(struct stream *s)
{
    (void)s;
}
static inline void ucx_end(struct stream *s)
{
    (void)s;
}

#endif
#endif
