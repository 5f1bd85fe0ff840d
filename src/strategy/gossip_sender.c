#include "strategy/gossip_sender.h"

#include "base/fault.h"

#include <stdatomic.h>

enum { MESSAGE_BYTES = 9 };

/* ---- weights ---- */

uint64_t gossip_halve(uint64_t *w)
{
    uint64_t half = *w / 2;
    *w -= half;
    return half;
}

float gossip_add(uint64_t *w, uint64_t w_m)
{
    *w += w_m;
    return *w ? (float)((double)w_m / (double)*w) : 0.0f;
}

/* ---- the post's own task ---- */

static void wake_training(struct gossip_sender *p)
{
    world_raise(p->world, SIGNAL_GOSSIP_NEWS);
}

static void send_message(struct gossip_sender *p, struct transfer *transfer,
                         const struct gossip_message *l, uint32_t lane)
{
    uint8_t message[MESSAGE_BYTES] = {(uint8_t)l->kind};
    bytes_put_le64(message + 1, l->w);
    transfer_send(transfer, &p->transfers,
                  &(struct transfer_out){.to = l->peer,
                                         .lane = lane,
                                         .x = l->both.at,
                                         .n = l->both.n,
                                         .header = message,
                                         .header_len = sizeof message});
}

static void begin_posted(struct gossip_sender *p, struct gossip_message *l)
{
    if (atomic_load(&l->at) == SLOT_POSTED && !l->transfer.all)
        send_message(p, &l->transfer, l, p->transfers.lane);
}

/* Accept a message without a vector. false: there is no free slot. */
static bool take_weight(struct gossip_sender *p, struct message *message)
{
    for (size_t i = 0; i < GOSSIP_SMALL; i++)
        if (!p->small[i].all) {
            transfer_accept(&p->small[i], &p->transfers, message, &(struct transfer_in){0});
            return true;
        }
    return false;
}

static bool let_in(struct gossip_sender *p, struct message *message, uint64_t w)
{
    for (size_t i = 0; !atomic_load(&p->closing) && i < GOSSIP_INBOX; i++) {
        struct gossip_message *l = &p->in[i];
        if (atomic_load(&l->at) != SLOT_FREE)
            continue;
        l->peer = message->from;
        l->w = w;
        l->announced = world_now(p->world);
        atomic_store(&l->at, SLOT_LANDING);
        transfer_accept(&l->transfer, &p->transfers, message,
                        &(struct transfer_in){.x = l->both.at, .n = l->both.n});
        return true;
    }
    return false;
}

static bool is_healthy(struct gossip_sender *p)
{
    return !atomic_load(&p->closing) && !atomic_load(&p->lost);
}

/* Send the final model to the member that collects it. If that one dies, another one requests
 * it. */
static bool hand_out(struct gossip_sender *p, struct message *message)
{
    struct gossip_message copy = {.peer = message->from, .w = p->w, .both = p->out.both};
    uint32_t lane = transfer_header_lane(message);
    if (!atomic_load(&p->complete) || atomic_load(&p->lost) || !take_weight(p, message))
        return false;
    transfer_cancel(&p->copy);
    send_message(p, &p->copy, &copy, lane);
    return true;
}

static bool take_message(struct gossip_sender *p, struct message *message)
{
    struct byte_reader in = transfer_header_reader(message);
    uint8_t kind = read_u8(&in);
    uint64_t w = read_u64(&in);
    uint32_t from = message->from;
    size_t n = kind == GOSSIP_MODEL ? p->out.both.n : 0;
    if (!byte_reader_done(&in) || transfer_header_floats(message) != n)
        return false;
    switch (kind) {
    case GOSSIP_MODEL: return let_in(p, message, w);
    case GOSSIP_WANT: return hand_out(p, message);
    case GOSSIP_REQUEST:
        if (!is_healthy(p) || !take_weight(p, message))
            return false;
        atomic_store(&p->requested, from + 1);
        return true;
    case GOSSIP_RETURN:
        if (atomic_load(&p->closing) || !take_weight(p, message))
            return false;
        atomic_fetch_add(&p->returned, w);
        return true;
    default: return false;
    }
}

static void take_ended(struct gossip_sender *p, const struct transfer *ended)
{
    struct gossip_message *const going[] = {&p->out, &p->word};
    for (size_t i = 0; i < 2; i++)
        if (ended == &going[i]->transfer) {
            going[i]->status = ended->status;
            atomic_store(&going[i]->at, SLOT_ENDED);
            wake_training(p);
        }
    for (size_t i = 0; i < GOSSIP_INBOX; i++)
        if (ended == &p->in[i].transfer) {
            p->in[i].number = ++p->arrivals;
            atomic_store(&p->in[i].at, ended->status == OK ? SLOT_THERE : SLOT_FREE);
            wake_training(p);
        }
}

static void grow_quiet(struct gossip_sender *p)
{
    bool busy = atomic_load(&p->out.at) == SLOT_POSTED || atomic_load(&p->word.at) == SLOT_POSTED;
    for (size_t i = 0; i < GOSSIP_INBOX; i++)
        busy |= atomic_load(&p->in[i].at) == SLOT_LANDING;
    if (!busy && atomic_load(&p->closing) && !atomic_exchange(&p->quiet, true))
        wake_training(p);
}

static int sender_main(void *arg)
{
    struct gossip_sender *p = arg;
    int rc = OK;
    while (rc == OK) {
        uint64_t seen = world_raised(p->world, SIGNAL_GOSSIP_SENDER);
        struct transfer_wake got;
        begin_posted(p, &p->out);
        begin_posted(p, &p->word);
        grow_quiet(p);
        const struct wait_for posted = {
            .kind = WAIT_SIGNAL, .signal = SIGNAL_GOSSIP_SENDER, .seen = seen};
        rc = transfers_next(&p->transfers, &posted, 1, WORLD_FOREVER, &got);
        if (rc == OK && got.header && !take_message(p, got.header))
            transfer_refuse(&p->transfers, got.header);
        else if (rc == OK && got.ended)
            take_ended(p, got.ended);
    }
    transfers_close(&p->transfers);
    return rc;
}

int gossip_sender_open(struct gossip_sender *p, struct world *world, struct group *group, size_t n,
                       size_t chunk, struct arena *arena)
{
    p->world = world;
    p->group = group;
    p->w = GOSSIP_WORKER;
    transfers_init(&p->transfers, world, group, 0);
    p->transfers.chunk = chunk;
    int rc = vec_init(&p->out.both, arena, n);
    for (size_t i = 0; rc == OK && i < GOSSIP_INBOX; i++)
        rc = vec_init(&p->in[i].both, arena, n);
    return rc == OK ? world_spawn(world, "post", sender_main, p, &p->task) : rc;
}

void gossip_sender_close(struct gossip_sender *p)
{
    if (p->world)
        world_end_task(p->world, &p->task);
}

/* ---- training's side ---- */

static void queue_message(struct gossip_sender *p, struct gossip_message *l, enum gossip_kind kind,
                          uint32_t to, uint64_t w)
{
    l->kind = kind;
    l->peer = to;
    l->w = w;
    atomic_store(&l->at, SLOT_POSTED);
    world_raise(p->world, SIGNAL_GOSSIP_SENDER);
}

static bool finish_message(struct gossip_sender *p, struct gossip_message *l)
{
    if (atomic_load(&l->at) != SLOT_ENDED)
        return false;
    if (l->status != OK)
        p->w += l->w;
    atomic_store(&l->at, SLOT_FREE);
    return true;
}

bool gossip_drain(struct gossip_sender *p)
{
    finish_message(p, &p->out);
    p->w += atomic_exchange(&p->returned, 0);
    return finish_message(p, &p->word);
}

bool gossip_share(struct gossip_sender *p, uint32_t to, const struct vec *model)
{
    if (atomic_load(&p->out.at) != SLOT_FREE || p->w < 2 || !vec_finite(model, vec_all(model)))
        return false;
    vec_copy(&p->out.both, model, vec_all(model));
    queue_message(p, &p->out, GOSSIP_MODEL, to, gossip_halve(&p->w));
    return true;
}

uint32_t gossip_requested(struct gossip_sender *p)
{
    return atomic_exchange(&p->requested, 0) - 1;
}

bool gossip_request(struct gossip_sender *p, uint32_t whom)
{
    if (atomic_load(&p->word.at) != SLOT_FREE)
        return false;
    queue_message(p, &p->word, GOSSIP_REQUEST, whom, 0);
    return true;
}

static struct gossip_message *oldest_message(struct gossip_sender *p)
{
    struct gossip_message *found = NULL;
    for (size_t i = 0; i < GOSSIP_INBOX; i++) {
        struct gossip_message *l = &p->in[i];
        if (atomic_load(&l->at) == SLOT_THERE && (!found || l->number < found->number))
            found = l;
    }
    return found;
}

/* A model that is not finite is dropped, and its weight returns to its sender. At the end of the
 * run, or while the previous message is under way, the weight stays here. */
static void return_share(struct gossip_sender *p, const struct gossip_message *l)
{
    log_warn(p->group ? p->group->log : NULL,
             "worker %u: its model for worker %u is not finite and is left out", l->peer,
             p->world->self);
    if (atomic_load(&p->word.at) == SLOT_FREE && !atomic_load(&p->quiet))
        queue_message(p, &p->word, GOSSIP_RETURN, l->peer, l->w);
    else
        p->w += l->w;
}

/* x ← (w x + w_m x_m)/(w + w_m), w ← w + w_m. */
static void merge_message(struct gossip_sender *p, const struct gossip_message *l,
                          struct vec *model)
{
    float share = gossip_add(&p->w, l->w);
    if (atomic_exchange(&p->lost, false))
        vec_copy(model, &l->both, vec_all(model));
    else
        vec_lerp(model, share, &l->both, vec_all(model));
}

bool gossip_take(struct gossip_sender *p, struct vec *model, struct gossip_taken *taken)
{
    for (struct gossip_message *l; (l = oldest_message(p));) {
        bool finite = vec_finite(&l->both, vec_all(&l->both));
        *taken = (struct gossip_taken){l->peer, l->announced, l->both.n * sizeof(float)};
        if (finite)
            merge_message(p, l, model);
        else
            return_share(p, l);
        atomic_store(&l->at, SLOT_FREE);
        if (finite)
            return true;
    }
    return false;
}

int gossip_await(struct gossip_sender *p, uint64_t seen, int64_t deadline)
{
    const struct wait_for news[] = {
        {.kind = WAIT_SIGNAL, .signal = SIGNAL_GOSSIP_NEWS, .seen = seen},
        {.kind = WAIT_TASK, .task = p->task},
    };
    struct wake wake;
    int rc = world_wait(p->world, news, 2, deadline, &wake);
    return rc == OK && wake.which == 1 ? ERR_CANCELLED : rc; /* the post ends with its node */
}

int gossip_finish(struct gossip_sender *p, struct vec *model, int64_t deadline)
{
    atomic_store(&p->closing, true);
    world_raise(p->world, SIGNAL_GOSSIP_SENDER);
    int rc = OK;
    for (;;) {
        uint64_t seen = world_raised(p->world, SIGNAL_GOSSIP_NEWS);
        if (rc != OK || atomic_load(&p->quiet))
            break;
        rc = gossip_await(p, seen, deadline);
    }
    if (rc != OK)
        return rc;
    gossip_drain(p);
    for (struct gossip_taken taken; gossip_take(p, model, &taken);)
        continue;
    vec_copy(&p->out.both, model, vec_all(model));
    if (!vec_finite(&p->out.both, vec_all(&p->out.both)))
        atomic_store(&p->lost, true); /* by its last update */
    atomic_store(&p->complete, true);
    return OK;
}

/* ---- after the end ---- */

static bool is_member(struct gossip_sender *p, uint32_t node)
{
    return view_rank(group_view(p->group), node) >= 0;
}

/* Its model may arrive before or after the reply to the request. */
static int receive_from(struct gossip_sender *p, struct transfers *own, uint32_t node,
                        const struct transfer_wake *got, bool *there)
{
    struct gossip_message *l = &p->in[0];
    *there = got->ended == &l->transfer;
    if (got->header && got->header->from == node && !l->transfer.all) {
        struct byte_reader in = transfer_header_reader(got->header);
        (void)read_u8(&in);
        l->w = read_u64(&in);
        transfer_accept(&l->transfer, own, got->header,
                        &(struct transfer_in){.x = l->both.at, .n = l->both.n});
    } else if (got->header) {
        transfer_refuse(own, got->header);
    }
    return got->ended ? got->ended->status : is_member(p, node) ? OK : ERR_PEER;
}

int gossip_fetch(struct gossip_sender *p, struct transfers *own, uint32_t node, int64_t deadline)
{
    const uint8_t message[MESSAGE_BYTES] = {GOSSIP_WANT};
    struct transfer want = {0};
    bool there = false;
    PL_ASSERT(atomic_load(&p->complete));
    transfer_send(
        &want, own,
        &(struct transfer_out){.to = node, .header = message, .header_len = sizeof message});
    int rc = OK;
    while (rc == OK && !there) {
        const struct wait_for change = wait_signal(p->world, SIGNAL_GROUP);
        struct transfer_wake got;
        if (!is_member(p, node))
            rc = ERR_PEER;
        if (atomic_load(&p->group->end.over))
            rc = ERR_DRIVER;
        if (rc == OK)
            rc = transfers_next(own, &change, 1, deadline, &got);
        if (rc == OK)
            rc = receive_from(p, own, node, &got, &there);
    }
    transfer_cancel(&want);
    transfer_cancel(&p->in[0].transfer);
    return rc;
}
