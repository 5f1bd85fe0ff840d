#define _GNU_SOURCE
#include "real/shm.h"

#include "real/seal.h"
#include "real/ucx.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) /* or it could vanish under us */

struct shm {
    struct segment *segment;
    int file; /* the connecting side's, until the reply arrives; else -1 */
    struct ring in, out;
};

/* ---- memory ---- */

static void shm_free(struct shm *shm)
{
    if (!shm)
        return;
    if (shm->segment)
        munmap(shm->segment, sizeof *shm->segment);
    if (shm->file >= 0)
        close(shm->file);
    free(shm);
}

static struct ring ring_of(struct segment *segment, int which)
{
    return (struct ring){
        .ends = &segment->ends[which], .bytes = segment->bytes[which], .size = SHM_RING_BYTES};
}

/* Map `file`, which the caller keeps. */
static struct shm *shm_map(int file, int out)
{
    struct shm *shm = calloc(1, sizeof *shm);
    if (!shm)
        return NULL;
    shm->file = -1;
    void *at = mmap(NULL, sizeof(struct segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) {
        free(shm);
        return NULL;
    }
    shm->segment = at;
    shm->out = ring_of(shm->segment, out);
    shm->in = ring_of(shm->segment, 1 - out);
    return shm;
}

static bool draw_nonce(uint8_t nonce[HELLO_NONCE])
{
    return getrandom(nonce, HELLO_NONCE, 0) == HELLO_NONCE;
}

/* ---- hellos ---- */

void shm_offer(struct stream *s, struct hello *hello)
{
    int file = memfd_create("paceline", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0)
        return;
    struct shm *shm = NULL;
    if (ftruncate(file, sizeof(struct segment)) == 0 && fcntl(file, F_ADD_SEALS, SEALS) == 0)
        shm = shm_map(file, 0);
    if (!shm || !draw_nonce(hello->nonce)) {
        shm_free(shm);
        close(file);
        return;
    }
    memcpy(shm->segment->nonce[0], hello->nonce, HELLO_NONCE);
    shm->file = file;
    s->shm = shm;
    hello->shm = true;
    hello->process = (uint32_t)getpid();
    hello->file = (uint32_t)file;
}

int shm_answered(struct stream *s, const struct hello *answer)
{
    struct shm *shm = s->shm;
    if (!shm)
        return answer->shm ? ERR_PROTOCOL : OK;
    close(shm->file);
    shm->file = -1;
    if (!answer->shm) {
        s->shm = NULL;
        shm_free(shm);
        return OK;
    }
    if (memcmp(shm->segment->nonce[1], answer->nonce, HELLO_NONCE) != 0)
        return ERR_PROTOCOL;
    shm_begin(s);
    return OK;
}

/* Nothing is opened that is not such memory: to open some things is to do something to them. */
static int find_file(const struct hello *hello)
{
    static const char expected[] = "/memfd:paceline";
    char path[64], to[sizeof expected];
    struct stat stat_of;
    snprintf(path, sizeof path, "/proc/%u/fd/%u", hello->process, hello->file);
    if (readlink(path, to, sizeof to) < (ssize_t)sizeof expected - 1 ||
        memcmp(to, expected, sizeof expected - 1) != 0 || stat(path, &stat_of) != 0 ||
        !S_ISREG(stat_of.st_mode))
        return -1;
    int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return -1;
    int seals = fcntl(file, F_GET_SEALS);
    if (seals == -1 || (seals & SEALS) != SEALS || fstat(file, &stat_of) != 0 ||
        stat_of.st_uid != geteuid() || stat_of.st_size != sizeof(struct segment)) {
        close(file);
        return -1;
    }
    return file;
}

void shm_accept(struct stream *s, const struct hello *hello, struct hello *answer)
{
    int file = hello->shm && stream_is_local(s) ? find_file(hello) : -1;
    if (file < 0)
        return;
    struct shm *shm = shm_map(file, 1);
    close(file);
    if (!shm || memcmp(shm->segment->nonce[0], hello->nonce, HELLO_NONCE) != 0 ||
        !draw_nonce(answer->nonce)) {
        shm_free(shm);
        return;
    }
    memcpy(shm->segment->nonce[1], answer->nonce, HELLO_NONCE);
    answer->shm = true;
    s->shm = shm;
}

void shm_begin(struct stream *s)
{
    s->ops = &transport_shm;
}

/* ---- the stream ---- */

/* When the socket takes no more the other side has something to read there. */
static void ring_bell(const struct stream *s)
{
    (void)!send(s->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t shm_send(struct stream *s, const struct iovec *part, size_t parts)
{
    bool wake = false;
    ptrdiff_t n = ring_put(&s->shm->out, part, parts, &wake);
    if (wake)
        ring_bell(s);
    return n < 0 ? STREAM_UNSOUND : n;
}

static ssize_t shm_peek(struct stream *s, const uint8_t **bytes)
{
    bool ended = s->ended; /* read before the ring: nothing is written after the end */
    ptrdiff_t n = ring_peek(&s->shm->in, bytes);
    if (n < 0)
        return STREAM_UNSOUND;
    return n == 0 && ended ? STREAM_END : n;
}

static void shm_consume(struct stream *s, size_t n)
{
    if (ring_consume(&s->shm->in, (uint32_t)n))
        ring_bell(s);
}

static uint32_t shm_ready(const struct stream *s, bool wants_out)
{
    uint32_t in = s->ended || ring_has_bytes(&s->shm->in) ? EPOLLIN : 0;
    return in | (wants_out && ring_has_room(&s->shm->out) ? EPOLLOUT : 0);
}

static uint32_t shm_arm(struct stream *s, bool wants_out)
{
    ring_want_bytes(&s->shm->in);
    if (wants_out)
        ring_want_room(&s->shm->out);
    return shm_ready(s, wants_out);
}

static void shm_on_message(struct stream *s)
{
    char bells[64];
    ssize_t n = recv(s->fd, bells, sizeof bells, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        s->ended = true;
}

static int shm_shut(struct stream *s)
{
    return transport_tcp.shut(s);
}

const struct transport_ops transport_shm = {
    .name = "shm",
    .align = 8,
    .send = shm_send,
    .peek = shm_peek,
    .consume = shm_consume,
    .ready = shm_ready,
    .arm = shm_arm,
    .on_message = shm_on_message,
    .shut = shm_shut,
};

void stream_close(struct stream *s)
{
    shm_free(s->shm);
    s->shm = NULL;
    seal_end(s);
    ucx_end(s);
    close(s->fd);
}
