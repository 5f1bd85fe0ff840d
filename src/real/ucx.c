#define _GNU_SOURCE
#include "real/ucx.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "real/real.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>

enum {
    SLOT_BYTES = 64 * 1024,
    SLOTS = 16,         /* sends of a connection under way */
    PROGRESS_TIMES = 8, /* at most, then others have their turn */
    ARM_TIMES = 4,
    WORD = 8,
};

#define CLOSE_MAX WORLD_SECOND
#define UNKNOWN   (UINT64_MAX - 1)
#define ALL_HERE  UINT64_MAX /* control word: all that the other side sent has arrived */

struct ucx {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_len;
    int fd;
    struct ucx_line *closing; /* lines whose memory UCX may still use */
};

/* A copy of sent bytes, which UCX uses until the send completes. */
struct slot {
    struct ucx_line *line;
    struct slot *next;
    uint8_t bytes[SLOT_BYTES];
};

struct ucx_line {
    struct ucx *ucx;
    ucp_ep_h ep; /* NULL: the other side's address has not arrived */
    bool dialled;
    bool introduced; /* our address has been sent */
    bool broken, unsound;

    /* The end: bytes sent and received, and the other side's total. */
    uint64_t sent, got, total;
    bool shut, end_sent, end_received;

    const uint8_t *data; /* received bytes, in UCX's memory */
    size_t len, at;

    size_t have; /* bytes of the control message on the socket */
    uint8_t in[UCX_HEAD + UCX_ADDRESS_MAX];

    void *last_request; /* of the flush, then of the close */
    struct ucx_line *next;
    unsigned busy;
    struct slot *free;
    struct slot slot[SLOTS];
};

/* ---- a world's ---- */

static ucs_status_t open_context(struct ucx *ucx, bool local)
{
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES,
        .features = UCP_FEATURE_STREAM | UCP_FEATURE_WAKEUP,
    };
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return status;
    if (local)
        status = ucp_config_modify(config, "NET_DEVICES", "lo");
    if (status == UCS_OK)
        status = ucp_init(&params, config, &ucx->context);
    ucp_config_release(config);
    return status;
}

/* One thread at a time uses it, but not always the same. */
static ucs_status_t open_worker(struct ucx *ucx)
{
    const ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
        .events = UCP_WAKEUP_TX | UCP_WAKEUP_RX,
    };
    ucs_status_t status = ucp_worker_create(ucx->context, &params, &ucx->worker);
    if (status == UCS_OK)
        status = ucp_worker_get_efd(ucx->worker, &ucx->fd);
    if (status == UCS_OK)
        status = ucp_worker_get_address(ucx->worker, &ucx->address, &ucx->address_len);
    if (status == UCS_OK && ucx->address_len > UCX_ADDRESS_MAX)
        status = UCS_ERR_EXCEEDS_LIMIT;
    return status;
}

struct ucx *ucx_open(const struct logger *log, bool local)
{
    struct ucx *ucx = calloc(1, sizeof *ucx);
    ucs_status_t status = ucx ? open_context(ucx, local) : UCS_ERR_NO_MEMORY;
    if (status == UCS_OK)
        status = open_worker(ucx);
    if (status == UCS_OK)
        return ucx;
    log_warn(log, "UCX: %s; TCP is used", ucs_status_string(status));
    ucx_close(ucx);
    return NULL;
}

int ucx_fd(const struct ucx *ucx)
{
    return ucx->fd;
}

/* ---- lines that are closed ---- */

/* Has the line's request completed? It is freed then. */
static bool has_completed(struct ucx_line *line)
{
    if (line->last_request && ucp_request_check_status(line->last_request) == UCS_INPROGRESS)
        return false;
    if (line->last_request)
        ucp_request_free(line->last_request);
    line->last_request = NULL;
    return true;
}

static void *request_of(ucs_status_ptr_t request)
{
    return UCS_PTR_IS_PTR(request) ? request : NULL;
}

/* Close the endpoint of a line that has ended, after its flush: UCX's TCP may read a freed endpoint
 * if both sides close while bytes wait to be sent. `at_once`: do not wait for the flush. Returns
 * whether UCX needs the line no longer. */
static bool close_line(struct ucx_line *line, bool at_once)
{
    if (line->ep && (has_completed(line) || line->broken || at_once)) {
        const ucp_request_param_t param = {
            .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
            .flags = UCP_EP_CLOSE_FLAG_FORCE,
        };
        if (line->last_request)
            ucp_request_free(line->last_request);
        line->last_request = request_of(ucp_ep_close_nbx(line->ep, &param));
        line->ep = NULL;
    }
    return !line->ep && line->busy == 0 && has_completed(line);
}

static void free_closed_lines(struct ucx *ucx, bool at_once)
{
    for (struct ucx_line **at = &ucx->closing; *at;) {
        struct ucx_line *line = *at;
        if (close_line(line, at_once)) {
            *at = line->next;
            free(line);
        } else {
            at = &line->next;
        }
    }
}

/* Close all lines that have ended; give up after CLOSE_MAX. */
static void close_lines(struct ucx *ucx, bool at_once)
{
    for (int64_t until = real_now() + CLOSE_MAX; ucx->closing && real_now() < until;) {
        ucp_worker_progress(ucx->worker);
        free_closed_lines(ucx, at_once);
    }
}

void ucx_close(struct ucx *ucx)
{
    if (!ucx)
        return;
    close_lines(ucx, false);
    close_lines(ucx, true);
    if (ucx->address)
        ucp_worker_release_address(ucx->worker, ucx->address);
    if (ucx->worker)
        ucp_worker_destroy(ucx->worker);
    for (struct ucx_line *line = ucx->closing, *next; line; line = next) {
        next = line->next;
        free(line);
    }
    if (ucx->context)
        ucp_cleanup(ucx->context);
    free(ucx);
}

void ucx_progress(struct ucx *ucx)
{
    if (!ucx)
        return;
    for (int i = 0; i < PROGRESS_TIMES && ucp_worker_progress(ucx->worker); i++)
        ;
    if (ucx->closing)
        free_closed_lines(ucx, false);
}

bool ucx_arm(struct ucx *ucx)
{
    for (int i = 0; ucx && i < ARM_TIMES; i++) {
        if (ucp_worker_arm(ucx->worker) == UCS_OK)
            return false;
        ucx_progress(ucx);
    }
    return ucx != NULL;
}

/* ---- hellos and addresses ---- */

static struct ucx_line *line_new(struct ucx *ucx, bool dialled)
{
    struct ucx_line *line = calloc(1, sizeof *line);
    if (!line)
        return NULL;
    line->ucx = ucx;
    line->dialled = dialled;
    line->total = UNKNOWN;
    for (int i = 0; i < SLOTS; i++) {
        line->slot[i].line = line;
        line->slot[i].next = line->free;
        line->free = &line->slot[i];
    }
    return line;
}

/* The few bytes that go there have room in the socket. */
static void send_bytes(const struct stream *s, const uint8_t *bytes, size_t n)
{
    if (send(s->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
        s->line->broken = true;
}

static void send_word(const struct stream *s, uint64_t word)
{
    uint8_t bytes[WORD];
    bytes_put_le64(bytes, word);
    send_bytes(s, bytes, sizeof bytes);
}

static void send_address(const struct stream *s)
{
    const struct ucx *ucx = s->line->ucx;
    uint8_t bytes[UCX_HEAD + UCX_ADDRESS_MAX];
    bytes_put_le32(bytes, (uint32_t)ucx->address_len);
    bytes_put_le64(bytes + 4, hash_bytes(ucx->address, ucx->address_len));
    memcpy(bytes + UCX_HEAD, ucx->address, ucx->address_len);
    send_bytes(s, bytes, UCX_HEAD + ucx->address_len);
    s->line->introduced = true;
    if (s->line->shut)
        send_word(s, s->line->sent);
}

void ucx_offer(struct ucx *ucx, struct stream *s, struct hello *hello)
{
    if (!ucx || hello->shm)
        return;
    s->line = line_new(ucx, true);
    hello->ucx = s->line != NULL;
}

int ucx_answered(struct stream *s, const struct hello *answer)
{
    if (!s->line)
        return answer->ucx ? ERR_PROTOCOL : OK;
    if (!answer->ucx) {
        ucx_end(s);
        return OK;
    }
    ucx_begin(s);
    send_address(s);
    return OK;
}

void ucx_accept(struct ucx *ucx, struct stream *s, const struct hello *hello, struct hello *answer)
{
    if (!ucx || !hello->ucx)
        return;
    s->line = line_new(ucx, false);
    answer->ucx = s->line != NULL;
}

void ucx_begin(struct stream *s)
{
    s->ops = &transport_ucx;
}

static void on_error(void *user, ucp_ep_h ep, ucs_status_t status)
{
    struct ucx_line *line = user;
    (void)ep, (void)status;
    line->broken = true;
}

static void connect_line(const struct stream *s, const uint8_t *address)
{
    struct ucx_line *line = s->line;
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_error, .arg = line},
    };
    if (ucp_ep_create(line->ucx->worker, &params, &line->ep) != UCS_OK) {
        line->ep = NULL;
        line->broken = true;
        return;
    }
    if (!line->dialled)
        send_address(s);
}

/* ---- what comes on the socket ---- */

static size_t control_bytes_wanted(const struct ucx_line *line)
{
    if (line->ep)
        return WORD;
    return line->have < UCX_HEAD ? (size_t)UCX_HEAD : UCX_HEAD + bytes_le32(line->in);
}

/* The control message is complete. */
static void on_control(const struct stream *s)
{
    struct ucx_line *line = s->line;
    if (line->ep) {
        uint64_t word = bytes_le64(line->in);
        line->have = 0;
        line->unsound = word == UNKNOWN || (word == ALL_HERE ? !line->shut || line->end_received
                                                             : line->total != UNKNOWN);
        if (word == ALL_HERE)
            line->end_received = true;
        else
            line->total = word;
        return;
    }
    size_t len = bytes_le32(line->in);
    if (len == 0 || len > UCX_ADDRESS_MAX) {
        line->unsound = true;
    } else if (line->have == UCX_HEAD + len) {
        line->have = 0;
        line->unsound = hash_bytes(line->in + UCX_HEAD, len) != bytes_le64(line->in + 4);
        if (!line->unsound)
            connect_line(s, line->in + UCX_HEAD);
    }
}

static void ucx_on_message(struct stream *s)
{
    struct ucx_line *line = s->line;
    while (!line->unsound && !line->broken && !s->ended) {
        size_t want = control_bytes_wanted(line);
        ssize_t n = recv(s->fd, line->in + line->have, want - line->have, MSG_DONTWAIT);
        if (n > 0) {
            line->have += (size_t)n;
            if (line->have == want)
                on_control(s);
        } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
            s->ended = true;
        } else {
            return;
        }
    }
}

/* ---- the stream ---- */

static void slot_back(struct slot *slot)
{
    slot->next = slot->line->free;
    slot->line->free = slot;
    slot->line->busy--;
}

static void on_sent(void *request, ucs_status_t status, void *user)
{
    struct slot *slot = user;
    if (status != UCS_OK)
        slot->line->broken = true;
    slot_back(slot);
    ucp_request_free(request);
}

static struct slot *slot_take(struct ucx_line *line)
{
    if (!line->free)
        ucp_worker_progress(line->ucx->worker);
    struct slot *slot = line->free;
    if (slot) {
        line->free = slot->next;
        line->busy++;
    }
    return slot;
}

static void submit_slot(struct ucx_line *line, struct slot *slot, size_t n)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = on_sent,
        .user_data = slot,
    };
    ucs_status_ptr_t request = ucp_stream_send_nbx(line->ep, slot->bytes, n, &param);
    if (UCS_PTR_IS_PTR(request))
        return;
    line->broken = line->broken || UCS_PTR_IS_ERR(request);
    slot_back(slot);
}

/* Copy bytes of the parts, behind those already taken. */
static size_t copy_to_slot(struct slot *slot, const struct iovec *part, size_t parts, size_t before)
{
    size_t n = 0;
    for (size_t i = 0; i < parts && n < SLOT_BYTES; i++) {
        if (before >= part[i].iov_len) {
            before -= part[i].iov_len;
            continue;
        }
        size_t rest = part[i].iov_len - before;
        size_t k = rest < SLOT_BYTES - n ? rest : SLOT_BYTES - n;
        memcpy(slot->bytes + n, (const uint8_t *)part[i].iov_base + before, k);
        n += k;
        before = 0;
    }
    return n;
}

static ssize_t ucx_send(struct stream *s, const struct iovec *part, size_t parts)
{
    struct ucx_line *line = s->line;
    size_t all = 0, taken = 0;
    for (size_t i = 0; i < parts; i++)
        all += part[i].iov_len;
    while (line->ep && !line->broken && taken < all) {
        struct slot *slot = slot_take(line);
        if (!slot)
            break;
        size_t n = copy_to_slot(slot, part, parts, taken);
        submit_slot(line, slot, n);
        taken += n;
    }
    line->sent += taken;
    return line->broken ? STREAM_BROKEN : (ssize_t)taken;
}

static void fetch_data(struct ucx_line *line)
{
    if (line->data || !line->ep || line->broken)
        return;
    size_t len = 0;
    ucs_status_ptr_t data = ucp_stream_recv_data_nb(line->ep, &len);
    if (UCS_PTR_IS_ERR(data)) {
        line->broken = true;
    } else if (data) {
        line->data = data;
        line->len = len;
        line->at = 0;
    }
}

/* Has the stream ended? A side that closes, too, waits until the other side has all of its bytes.
 */
static bool is_over(const struct stream *s)
{
    struct ucx_line *line = s->line;
    if (s->ended)
        return true;
    if (line->total == UNKNOWN || line->got < line->total)
        return false;
    if (!line->shut)
        return true;
    if (!line->end_sent)
        send_word(s, ALL_HERE);
    line->end_sent = true;
    return line->end_received;
}

static ssize_t ucx_peek(struct stream *s, const uint8_t **bytes)
{
    struct ucx_line *line = s->line;
    fetch_data(line);
    if (line->unsound || (line->total != UNKNOWN && line->got > line->total))
        return STREAM_UNSOUND;
    if (line->broken)
        return STREAM_BROKEN;
    if (line->data) {
        *bytes = line->data + line->at;
        return (ssize_t)(line->len - line->at);
    }
    return is_over(s) ? STREAM_END : STREAM_NONE;
}

static void release_data(struct ucx_line *line)
{
    if (line->data)
        ucp_stream_data_release(line->ep, (void *)(uintptr_t)line->data);
    line->data = NULL;
}

static void ucx_consume(struct stream *s, size_t n)
{
    struct ucx_line *line = s->line;
    line->at += n;
    line->got += n;
    if (line->at == line->len)
        release_data(line);
}

static uint32_t ucx_ready(const struct stream *s, bool wants_out)
{
    struct ucx_line *line = s->line;
    fetch_data(line);
    bool in = line->data || line->unsound || line->broken || is_over(s);
    bool out = wants_out && line->ep && line->busy <= SLOTS / 2;
    return (in ? EPOLLIN : 0) | (out ? EPOLLOUT : 0);
}

static uint32_t ucx_arm_line(struct stream *s, bool wants_out)
{
    return ucx_ready(s, wants_out); /* ucx_arm is for all of them */
}

static int ucx_shut(struct stream *s)
{
    struct ucx_line *line = s->line;
    line->shut = true;
    if (line->introduced)
        send_word(s, line->sent);
    return line->broken ? ERR_PEER : OK;
}

void ucx_end(struct stream *s)
{
    struct ucx_line *line = s->line;
    if (!line)
        return;
    s->line = NULL;
    release_data(line);
    if (line->ep)
        line->last_request = request_of(ucp_ep_flush_nbx(line->ep, &(ucp_request_param_t){0}));
    line->next = line->ucx->closing;
    line->ucx->closing = line;
    free_closed_lines(line->ucx, false);
}

const struct transport_ops transport_ucx = {
    .name = "ucx",
    .align = 1,
    .send = ucx_send,
    .peek = ucx_peek,
    .consume = ucx_consume,
    .ready = ucx_ready,
    .arm = ucx_arm_line,
    .on_message = ucx_on_message,
    .shut = ucx_shut,
};
