/* A world with a stopped clock: its time is the one that the test sets, and it keeps a node's
 * messages to itself, line by line. */
#ifndef PL_LIB_LISTENING_WORLD_H
#define PL_LIB_LISTENING_WORLD_H

#include "train/events.h"
#include "wire/catalogue.h"

#include <string.h>

struct listening_world {
    struct world world; /* first */
    int64_t now;
    int fails; /* the status of the next send, instead of OK */
    int lines;
    char log_text[8192]; /* each ended by a newline */
};

static int64_t listening_now(struct world *w)
{
    return ((struct listening_world *)w)->now;
}

static int listening_send(struct world *w, uint32_t peer, struct message *m, enum world_class class)
{
    struct listening_world *l = (struct listening_world *)w;
    (void)class;
    if (l->fails != ERR_FULL) { /* then the message stays the caller's */
        size_t n = strlen(l->log_text);
        if (l->fails == OK && peer == w->self && wire_kind_of(m->tag) == WIRE_EVENT &&
            n + m->len < sizeof l->log_text) {
            memcpy(l->log_text + n, events_line(m), m->len);
            strcat(l->log_text, "\n");
            l->lines++;
        }
        message_unref(m);
    }
    int rc = l->fails;
    l->fails = OK;
    return rc;
}

static inline void listening_init(struct listening_world *l)
{
    static const struct world_ops ops = {.now = listening_now, .send = listening_send};
    *l = (struct listening_world){.world = {&ops, WORLD_DRIVER}};
}

#endif
