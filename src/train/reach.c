#include "train/reach.h"

#include "base/bytes.h"
#include "base/printable.h"
#include "group/view.h"
#include "wire/post.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY_MAX    (3 * WORLD_SECOND) /* for a connection */
#define ANSWER_MAX (60 * WORLD_SECOND)
#define PAUSE      (WORLD_SECOND / 5)

enum { QUESTIONS = 3 };

static const char advice[] = "open that port where a firewall stands between them, or give that "
                             "worker another address by --listen or --advertise";

struct reach_entry {
    uint32_t node;
    char address[NODE_ADDRESS_MAX];
};

struct reach_book {
    struct world *world;
    const struct train_host *host;
    struct task *task;
    size_t count;
    struct reach_entry at[VIEW_MEMBERS_MAX]; /* who has asked, and could be reached since */
};

static int try(const struct train_host *host, const char *address, struct err *err)
{
    return host->reach(address, TRY_MAX, err);
}

/* ---- the driver's side ---- */

/* Whoever cannot be reached any more has gone, or is lost soon by other means; and who asks once
 * more is in it once. */
static void forget_gone(struct reach_book *book, uint32_t asks)
{
    size_t left = 0;
    for (size_t i = 0; i < book->count; i++)
        if (book->at[i].node != asks && try(book->host, book->at[i].address, NULL) == OK)
            book->at[left++] = book->at[i];
    book->count = left;
}

/* Can the newcomer be reached? And who was before it? */
static int answer(struct reach_book *book, const struct reach_entry *asks)
{
    char here[NODE_ADDRESS_MAX];
    struct buf bytes = {0};
    struct err why = {0};
    world_address(book->world, here, sizeof here);
    int reached = try(book->host, asks->address, &why);
    if (reached != OK) {
        err_prefix(&why, "the driver at %s cannot reach worker %u at %s", here, asks->node,
                   asks->address);
        log_warn(book->host->log, "%s; %s", why.text, advice);
    }
    forget_gone(book, asks->node);
    buf_put_u8(&bytes, reached == OK);
    buf_put_text(&bytes, reached == OK ? "" : why.text);
    buf_put_u32(&bytes, (uint32_t)book->count);
    for (size_t i = 0; i < book->count; i++) {
        buf_put_u32(&bytes, book->at[i].node);
        buf_put_text(&bytes, book->at[i].address);
    }
    int rc = wire_post_buf(book->world, asks->node, WIRE_REACHED, 0, &bytes);
    buf_release(&bytes);
    if (rc == OK && reached == OK && book->count < VIEW_MEMBERS_MAX)
        book->at[book->count++] = *asks;
    return rc == ERR_PEER ? OK : rc;
}

static int reach_task(void *arg)
{
    struct reach_book *book = arg;
    for (;;) {
        const struct wait_for asked = wire_from(WORLD_ANY, WIRE_REACH);
        struct wake wake;
        int rc = world_wait(book->world, &asked, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
        struct cut in = {wake.msg->data, wake.msg->len, false};
        struct reach_entry asks = {.node = wake.msg->from};
        cut_text(&in, asks.address, sizeof asks.address);
        printable(asks.address);
        message_unref(wake.msg);
        rc = cut_done(&in) ? answer(book, &asks) : OK;
        if (rc != OK)
            return rc;
    }
}

int reach_start(struct world *world, const struct train_host *host, struct reach_book **out)
{
    struct reach_book *book = calloc(1, sizeof *book);
    if (!book)
        return ERR_NOMEM;
    book->world = world;
    book->host = host;
    int rc = world_spawn(world, "reach", reach_task, book, &book->task);
    if (rc != OK) {
        free(book);
        return rc;
    }
    *out = book;
    return OK;
}

void reach_stop(struct reach_book *book)
{
    if (book)
        world_end_task(book->world, &book->task);
    free(book);
}

/* ---- a worker's ---- */

static int await_answer(struct world *world, struct message **out)
{
    const struct wait_for set[] = {wire_from(WORLD_DRIVER, WIRE_REACHED), {.kind = WAIT_PEER}};
    int64_t deadline = world_now(world) + ANSWER_MAX;
    struct wake wake;
    int rc;
    do
        rc = world_wait(world, set, 2, deadline, &wake);
    while (rc == OK && wake.which == 1 && wake.up);
    if (rc == OK && wake.which == 1)
        rc = ERR_DRIVER;
    if (rc == OK)
        *out = wake.msg;
    return rc;
}

/* Everyone who came before. */
static int try_all(struct world *world, const struct train_host *host, struct cut *in,
                   struct err *err)
{
    char here[NODE_ADDRESS_MAX], there[NODE_ADDRESS_MAX];
    world_address(world, here, sizeof here);
    for (uint32_t left = cut_u32(in); left > 0; left--) {
        uint32_t node = cut_u32(in);
        cut_text(in, there, sizeof there);
        if (in->failed)
            return err_set(err, ERR_PROTOCOL, "the driver's answer cannot be read");
        if (try(host, there, err) == OK)
            continue;
        err_prefix(err, "worker %u at %s cannot reach worker %u at %s", world->self, here, node,
                   there);
        char text[ERR_TEXT_MAX];
        memcpy(text, err->text, sizeof text);
        return err_set(err, ERR_PEER, "%s; %s", text, advice);
    }
    return OK;
}

/* *reached: the driver can reach this worker. */
static int take_answer(struct world *world, const struct train_host *host, const struct message *m,
                       bool *reached, struct err *err)
{
    char why[ERR_TEXT_MAX];
    struct cut in = {m->data, m->len, false};
    *reached = cut_u8(&in) != 0;
    cut_text(&in, why, sizeof why);
    if (in.failed)
        return err_set(err, ERR_PROTOCOL, "the driver's answer cannot be read");
    return *reached ? try_all(world, host, &in, err)
                    : err_set(err, ERR_PEER, "%s; %s", why, advice);
}

static int ask(struct world *world, const struct train_host *host, bool *reached, struct err *err)
{
    char here[NODE_ADDRESS_MAX];
    struct buf bytes = {0};
    struct message *m;
    world_address(world, here, sizeof here);
    buf_put_text(&bytes, here);
    int rc = wire_post_buf(world, WORLD_DRIVER, WIRE_REACH, 0, &bytes);
    buf_release(&bytes);
    if (rc == OK)
        rc = await_answer(world, &m);
    if (rc != OK)
        return err_set(err, rc == ERR_PEER ? ERR_DRIVER : rc,
                       "the driver does not say whether it can reach %s: %s", here,
                       status_text(rc));
    rc = take_answer(world, host, m, reached, err);
    message_unref(m);
    return rc;
}

/* Who could not be reached may have left just then: the driver, asked again, has forgotten it. */
int reach_check(struct world *world, const struct train_host *host, struct err *err)
{
    bool reached = false;
    int rc = ask(world, host, &reached, err);
    for (int i = 1; rc == ERR_PEER && reached && i < QUESTIONS; i++) {
        rc = world_sleep(world, world_now(world) + PAUSE);
        if (rc == OK)
            rc = ask(world, host, &reached, err);
    }
    return rc;
}
