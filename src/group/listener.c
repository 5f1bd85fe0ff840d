/* What the driver says, and what becomes of a member whose driver says nothing any more. */
#include "group/listener.h"

#include "base/fault.h"
#include "wire/post.h"

#include <stdlib.h>
#include <string.h>

#define CALL_FIRST \
    (WORLD_SECOND / 50) /* between two calls for a driver that is gone; then longer */
#define CALL_MAX (WORLD_SECOND / 2)

/* A driver that is silent for so many times what a member may be is given up: it may only have
 * stood still, and who gives it up then is given up itself. */
enum { LOOKS_PER_SILENCE = 8, SILENCES = 4 };

/* Where a member stands with its driver. */
enum standing {
    HEARD,   /* it is there */
    CALLED,  /* it is gone, and called again and again */
    ANSWERED /* somebody is there, who has not said yet who */
};

struct listener {
    struct group *group;
    struct group_ear ear;
    enum standing standing;
    int64_t gone_at, call_at, pause;
    size_t calls; /* since it has gone */
};

bool group_ear_deaf(struct group_ear *ear, int64_t now, int64_t period, int64_t silence_max)
{
    int64_t late = now - ear->looked - period;
    ear->looked = now;
    if (late > period)
        ear->heard += late;
    return now - ear->heard > silence_max;
}

int group_return_decode(const void *data, size_t len, struct group_return *out)
{
    struct cut in = {data, len, false};
    out->view = cut_u32(&in);
    out->incarnation = cut_u32(&in);
    members_decode(&in, &out->who);
    out->hello_len = cut_u32(&in);
    out->hello = cut_take(&in, out->hello_len);
    for (size_t i = 0; i < GROUP_NOTE; i++)
        out->note[i] = cut_u64(&in);
    return cut_done(&in) ? OK : ERR_PROTOCOL;
}

/* ---- a driver that is gone ---- */

/* Without a view there is nothing to go on with, nor before the first commit point; and a driver
 * that hangs up on a member that has left does what it was asked for. */
static bool may_wait(const struct group *group)
{
    return group->retry > 0 && group->meeting.meet && group_view(group) &&
           atomic_load(&group->noted) > 0 && !atomic_load(&group->left) &&
           !atomic_load(&group->bye) && !atomic_load(&group->over);
}

/* The driver is gone. ERR_DRIVER: and that is the end. */
static int lose_driver(struct listener *l, const char *how)
{
    struct group *group = l->group;
    int64_t now = world_now(group->world);
    if (!may_wait(group))
        return ERR_DRIVER;
    if (l->standing == HEARD) {
        log_warn(group->log,
                 "the driver %s: this worker goes on without it, and calls it for %.0f s", how,
                 world_seconds(group->retry));
        l->gone_at = now;
        l->call_at = now + CALL_FIRST;
        l->pause = 2 * CALL_FIRST;
        l->calls = 0;
    } else if (l->standing ==
               ANSWERED) { /* whoever it was has hung up: no word is to be waited for */
        l->call_at = now + l->pause;
    }
    l->standing = CALLED;
    atomic_store(&group->away, true);
    atomic_store(&group->ward, ROSTER_NOBODY);
    group_changed(group);
    return OK;
}

/* Where it is called next: at one address after the other. */
static const char *next_address(struct listener *l)
{
    const char *const *at = l->group->drivers;
    size_t n = 0;
    while (at && at[n])
        n++;
    return n > 0 ? at[l->calls++ % n] : NULL;
}

/* Call it again, less and less often. ERR_DRIVER: it has been long enough. */
static int call_driver(struct listener *l)
{
    struct group *group = l->group;
    int64_t now = world_now(group->world);
    if (now - l->gone_at >= group->retry) {
        log_error(group->log, "no driver has come back in %.0f s", world_seconds(group->retry));
        atomic_store(&group->given_up, true);
        return ERR_DRIVER;
    }
    const char *address = next_address(l);
    bool several = address && group->drivers[1];
    /* Who has answered has said nothing since; or, of several, this one does not answer. */
    if (l->standing == ANSWERED || several)
        world_peer_drop(group->world, WORLD_DRIVER);
    l->standing = CALLED;
    l->call_at = now + l->pause;
    l->pause = 2 * l->pause < CALL_MAX ? 2 * l->pause : CALL_MAX;
    int rc = world_peer_add(group->world, WORLD_DRIVER, address);
    if (rc == ERR_FULL) { /* the call before is being closed yet: the same place, soon */
        l->calls -= address != NULL;
        l->call_at = now + CALL_FIRST;
    }
    return rc == ERR_NOMEM || rc == ERR_FULL ? OK : rc; /* next time, perhaps */
}

static int say_return(struct group *group, const struct buf *hello)
{
    const struct view *view = group_view(group);
    struct members who = {{0}};
    uint64_t note[GROUP_NOTE];
    struct buf bytes = {0};
    for (size_t i = 0; i < view->count; i++)
        members_add(&who, view->node[i]);
    buf_put_u32(&bytes, view->number);
    buf_put_u32(&bytes, view->incarnation);
    members_encode(&who, &bytes);
    buf_put_u32(&bytes, (uint32_t)hello->len);
    buf_put(&bytes, hello->data, hello->len);
    bool noted = group_read_note(group, note);
    PL_ASSERT(noted);
    for (size_t i = 0; i < GROUP_NOTE; i++)
        buf_put_u64(&bytes, note[i]);
    int rc = wire_post_buf(group->world, WORLD_DRIVER, WIRE_RETURN, 0, &bytes);
    buf_release(&bytes);
    return rc;
}

/* Another member's connection broke: the driver cannot see it, and must know, or the two would wait
 * for each other for ever. */
static int lose_peer(struct group *group, uint32_t peer)
{
    const struct view *view = group_view(group);
    if (!view || view_rank(view, peer) < 0)
        return OK;
    members_add(&group->broken, peer);
    int rc = group_say_node(group, WIRE_LOST, peer);
    return rc == ERR_DRIVER ? OK : rc; /* that is heard by itself */
}

/* A welcome may be read before the news of the calls that led to it: the last of them counts.
 * ERR_PEER: who said it is gone again. */
static int hear_old_news(struct group *group)
{
    const struct wait_for news = {.kind = WAIT_PEER};
    bool up = true;
    struct wake wake;
    int rc;
    while ((rc = world_wait(group->world, &news, 1, world_now(group->world), &wake)) == OK) {
        if (wake.peer == WORLD_DRIVER)
            up = wake.up;
        else if (!wake.up && (rc = lose_peer(group, wake.peer)) != OK)
            return rc;
    }
    return rc != ERR_TIMEOUT ? rc : up ? OK : ERR_PEER;
}

/* A driver has said who it is. One that is no newer than the view's own has given this worker up,
 * or is to be given up itself. */
static int meet_driver(struct listener *l, const struct message *welcome)
{
    struct group *group = l->group;
    uint32_t incarnation = 0, own = group_view(group)->incarnation;
    struct buf hello = {0};
    int rc = hear_old_news(group);
    if (rc == OK)
        rc = group->meeting.meet(group->meeting.user, welcome, &incarnation, &hello);
    if (rc == OK && incarnation > own)
        rc = say_return(group, &hello);
    else if (rc == OK && incarnation == own)
        rc = ERR_DRIVER;
    buf_release(&hello);
    if (rc == ERR_PEER || (rc == OK && incarnation < own)) {
        world_peer_drop(group->world, WORLD_DRIVER);
        l->standing = CALLED;
        return OK;
    }
    if (rc != OK)
        return rc == ERR_CANCELLED ? rc : ERR_DRIVER;
    log_info(group->log, "the driver is back after %.2f s, as number %u",
             world_seconds(world_now(group->world) - l->gone_at), incarnation);
    l->standing = HEARD;
    l->ear = (struct group_ear){world_now(group->world), world_now(group->world)};
    atomic_store(&group->away, false);
    atomic_fetch_add(&group->met, 1);
    group_changed(group);
    return OK;
}

/* ---- what is said ---- */

/* Links that broke while there was nobody to tell, or another driver: if both ends are in the view,
 * this one must know, too. */
static int say_broken(struct group *group)
{
    const struct view *view = group_view(group);
    int rc = OK;
    for (size_t i = 0; rc == OK && i < view->count; i++)
        if (members_has(&group->broken, view->node[i]))
            rc = group_say_node(group, WIRE_LOST, view->node[i]);
    return rc == ERR_DRIVER ? OK : rc;
}

static int take_view(struct group *group, const struct message *m)
{
    struct view *view = malloc(sizeof *view);
    if (!view)
        return ERR_NOMEM;
    const struct view *old = group_view(group);
    struct cut in = {m->data, m->len, false};
    int rc = view_decode(&in, view);
    if (rc == OK)
        rc = group_set_view(group, view);
    free(view);
    bool other = old && group_view(group)->incarnation > old->incarnation;
    return rc == OK && other ? say_broken(group) : rc;
}

static void ask_for_model(struct group *group, const struct message *m)
{
    struct cut in = {m->data, m->len, false};
    uint32_t uses = cut_u32(&in);
    if (cut_done(&in))
        atomic_fetch_or(&group->wanted, uses);
    group_changed(group);
}

static void take_ward(struct group *group, const struct message *m)
{
    struct cut in = {m->data, m->len, false};
    uint32_t node = cut_u32(&in);
    bool comes = cut_u8(&in) != 0;
    if (!cut_done(&in))
        return;
    if (comes)
        atomic_store(&group->ward, node);
    else
        atomic_compare_exchange_strong(&group->ward, &node, ROSTER_NOBODY);
    group_changed(group);
}

static void take_refusal(struct group *group, const struct message *m)
{
    struct cut in = {m->data, m->len, false};
    cut_text(&in, group->refusal, sizeof group->refusal);
    atomic_store(&group->refused, true);
}

/* The run is over. The message may say why: "epochs", for one. */
static void take_bye(struct group *group, const struct message *m)
{
    struct cut in = {m->data, m->len, false};
    char reason[sizeof group->end_reason] = "";
    if (m->len > 0)
        cut_text(&in, reason, sizeof reason);
    for (char *at = reason; *at; at++)
        *at = (char)(*at >= 'a' && *at <= 'z' ? *at : '?');
    if (!in.failed)
        memcpy(group->end_reason, reason, sizeof reason);
    atomic_store(&group->bye, true);
}

static void take_beat(struct listener *l, const struct message *m)
{
    struct cut in = {m->data, m->len, false};
    uint64_t words[GROUP_ASIDE];
    for (int i = 0; i < GROUP_ASIDE; i++)
        words[i] = cut_u64(&in);
    for (int i = 0; cut_done(&in) && i < GROUP_ASIDE; i++)
        atomic_store(&l->group->aside[i], words[i]);
    l->ear.heard = world_now(l->group->world);
    if (l->ear.looked == 0)
        l->ear.looked = l->ear.heard;
}

static int take_change(struct listener *l, const struct wake *wake)
{
    if (wake->peer != WORLD_DRIVER)
        return wake->up ? OK : lose_peer(l->group, wake->peer);
    if (!wake->up)
        return lose_driver(l, "is gone");
    if (l->standing == CALLED) {
        l->standing = ANSWERED;
        l->call_at = world_now(l->group->world) + l->group->timing.silence_max;
    }
    return OK;
}

static int hear(struct listener *l, const struct wake *wake)
{
    struct group *group = l->group;
    switch (wake->which) {
    case 0: return take_view(group, wake->msg);
    case 1: atomic_store(&group->stop, true); return OK;
    case 2: ask_for_model(group, wake->msg); return OK;
    case 3: take_bye(group, wake->msg); return ERR_END;
    case 4: take_refusal(group, wake->msg); return ERR_DRIVER;
    case 5: take_ward(group, wake->msg); return OK;
    case 6: take_beat(l, wake->msg); return OK;
    case 7: return l->standing == HEARD ? OK : meet_driver(l, wake->msg);
    case 8:
        log_warn(group->log, "the driver has no place any more for what this worker has");
        return ERR_DRIVER;
    case 9:
        atomic_store(&group->parted, true);
        atomic_store(&group->leaving, true);
        group_changed(group);
        return OK;
    default: return take_change(l, wake);
    }
}

/* When it has to look up from listening. */
static int64_t look_at(const struct listener *l)
{
    if (l->standing != HEARD)
        return l->call_at;
    if (l->ear.looked == 0) /* drivers that beat are listened for from their first beat on */
        return WORLD_FOREVER;
    return l->ear.looked + l->group->timing.silence_max / LOOKS_PER_SILENCE;
}

static int look_up(struct listener *l)
{
    struct group *group = l->group;
    int64_t now = world_now(group->world);
    if (now < look_at(l))
        return OK;
    if (l->standing != HEARD)
        return call_driver(l);
    int64_t silence_max = group->timing.silence_max;
    if (!group_ear_deaf(&l->ear, now, silence_max / LOOKS_PER_SILENCE, SILENCES * silence_max))
        return OK;
    world_peer_drop(group->world, WORLD_DRIVER);
    return lose_driver(l, "is silent");
}

static int listen_once(struct listener *l)
{
    enum { MESSAGES = 10 };
    const struct wait_for set[] = {
        wire_from(WORLD_DRIVER, WIRE_VIEW),
        wire_from(WORLD_DRIVER, WIRE_STOP),
        wire_from(WORLD_DRIVER, WIRE_WANT_MODEL),
        wire_from(WORLD_DRIVER, WIRE_BYE),
        wire_from(WORLD_DRIVER, WIRE_REFUSED),
        wire_from(WORLD_DRIVER, WIRE_SPONSOR),
        wire_from(WORLD_DRIVER, WIRE_BEAT),
        wire_from(WORLD_DRIVER, WIRE_WELCOME),
        wire_from(WORLD_DRIVER, WIRE_AFRESH),
        wire_from(WORLD_DRIVER, WIRE_PART),
        {.kind = WAIT_PEER},
    };
    struct wake wake;
    int rc = world_wait(l->group->world, set, MESSAGES + 1, look_at(l), &wake);
    if (rc == ERR_TIMEOUT)
        return look_up(l);
    if (rc != OK)
        return rc;
    rc = hear(l, &wake);
    if (wake.which < MESSAGES)
        message_unref(wake.msg);
    return rc == OK ? look_up(l) : rc;
}

int group_listener(void *arg)
{
    struct group *group = arg;
    struct listener l = {.group = group};
    for (;;) {
        int rc = listen_once(&l);
        if (rc == OK)
            continue;
        if (rc != ERR_CANCELLED)
            group_end(group);
        return rc;
    }
}
