/* Control messages from another node, each read by the decoder of its kind. One that is accepted
 * has the same meaning after encoding and decoding.
 *
 *   u8 an index of `controls`, then the message */
#include "support/fuzz.h"

#include "base/bytes.h"
#include "coll/tasks.h"
#include "group/group.h"
#include "group/roster.h"
#include "group/view.h"
#include "strategy/ps_message.h"
#include "train/handshake_message.h"
#include "train/holdings.h"
#include "train/lease_server.h"
#include "train/ledger.h"
#include "train/tracer.h"
#include "train/worker_report.h"
#include "wire/wire_rules.h"

#include <stdlib.h>
#include <string.h>

struct control {
    enum wire_kind kind;
    size_t size; /* of the struct */
    int (*decode)(struct byte_reader *in, void *out);
    void (*encode)(const void *value, struct buf *out); /* NULL: other messages are made of it */
    void (*release)(void *value);                       /* NULL: it owns nothing */
};

/* The functions of one type, called as those of any type. */
#define CONTROL(name, type, read, write)                          \
    static int decode_##name(struct byte_reader *in, void *out)   \
    {                                                             \
        return read(in, (type *)out);                             \
    }                                                             \
    static void encode_##name(const void *value, struct buf *out) \
    {                                                             \
        write((const type *)value, out);                          \
    }

static int read_tasks(struct byte_reader *in, struct tasks_spec *out)
{
    struct err err = {0};
    tasks_spec_decode(in, out);
    return in->failed ? ERR_PROTOCOL : tasks_spec_check(out, ERR_PROTOCOL, &err);
}

static int read_progress(struct byte_reader *in, struct progress *out)
{
    progress_decode(in, out);
    return in->failed ? ERR_PROTOCOL : OK;
}

static void write_span(const struct trace_span *span, struct buf *out)
{
    tracer_encode(span, 1, out);
}

static int decode_return(struct byte_reader *in, void *out)
{
    struct group_return *back = out;
    int rc = group_return_decode(in->at, in->left, back);
    if (rc == OK)
        PL_ASSERT(back->hello_len <= in->left && (!back->hello_len || back->hello));
    for (uint32_t node = 0; rc == OK && node < VIEW_MEMBERS_MAX; node++)
        PL_ASSERT(back->seated[node] <= VIEW_MEMBERS_MAX);
    return rc;
}

static int decode_orders(struct byte_reader *in, void *out)
{
    return ps_message_decode(*in, out);
}

static void release_welcome(void *value)
{
    welcome_release(value);
}

CONTROL(hello, struct hello, hello_read, hello_write)
CONTROL(welcome, struct welcome, welcome_decode, welcome_encode)
CONTROL(view, struct view, view_decode, view_encode)
CONTROL(lane_go, struct lane_go, lane_go_decode, lane_go_encode)
CONTROL(committed, struct committed, committed_decode, committed_encode)
CONTROL(opening, struct opening_report, opening_decode, opening_encode)
CONTROL(departure, struct departure, departure_decode, departure_encode)
CONTROL(grant, struct lease_grant, lease_grant_decode, lease_grant_encode)
CONTROL(share, struct share_message, share_decode, share_encode)
CONTROL(span, struct trace_span, tracer_decode, write_span)
CONTROL(tasks, struct tasks_spec, read_tasks, tasks_spec_encode)
CONTROL(progress, struct progress, read_progress, progress_encode)

#define ROW(kind, name, type)                                         \
    {                                                                 \
        WIRE_##kind, sizeof(type), decode_##name, encode_##name, NULL \
    }

static const struct control controls[] = {
    ROW(HELLO, hello, struct hello),
    {WIRE_WELCOME, sizeof(struct welcome), decode_welcome, encode_welcome, release_welcome},
    ROW(VIEW, view, struct view),
    ROW(LANE_GO, lane_go, struct lane_go),
    ROW(COMMITTED, committed, struct committed),
    ROW(OPENING, opening, struct opening_report),
    ROW(DONE, departure, struct departure),
    ROW(LEASE, grant, struct lease_grant),
    ROW(SHARE, share, struct share_message),
    ROW(TRACE, span, struct trace_span),
    ROW(SHARED_REQUEST, tasks, struct tasks_spec),
    ROW(TRANSFER, progress, struct progress),
    {WIRE_RETURN, sizeof(struct group_return), decode_return, NULL, NULL},
    {WIRE_TRANSFER, sizeof(struct ps_message), decode_orders, NULL, NULL},
};

enum { CONTROLS = sizeof controls / sizeof *controls };

static int read_message(const struct control *control, const uint8_t *bytes, size_t n, void *value)
{
    struct byte_reader in = {bytes, n, false};
    int rc = control->decode(&in, value);
    PL_ASSERT(rc == OK || rc == ERR_PROTOCOL || rc == ERR_UNSUPPORTED || rc == ERR_NOMEM);
    return rc;
}

static void judge_codes(const struct control *control, const void *value)
{
    struct buf once = {0}, again = {0};
    void *back = calloc(1, control->size);
    control->encode(value, &once);
    PL_ASSERT(back && !once.failed && read_message(control, once.data, once.len, back) == OK);
    control->encode(back, &again);
    PL_ASSERT(again.len == once.len && memcmp(again.data, once.data, once.len) == 0);
    if (control->release)
        control->release(back);
    free(back);
    buf_release(&once);
    buf_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n == 0)
        return 0;
    const struct control *control = &controls[bytes[0] % CONTROLS];
    const struct wire_rule *rule = wire_rule_of(control->kind);
    if (n - 1 < rule->least || n - 1 > rule->most)
        return 0; /* the guard drops it */
    void *value = calloc(1, control->size);
    PL_ASSERT(value);
    if (read_message(control, bytes + 1, n - 1, value) == OK) {
        if (control->encode)
            judge_codes(control, value);
        if (control->release)
            control->release(value);
    }
    free(value);
    return 0;
}
