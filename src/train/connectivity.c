#include "train/connectivity.h"

#include "base/bytes.h"
#include "base/printable.h"
#include "group/view.h"
#include "wire/wire_send.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TRY_MAX   (3 * WORLD_SECOND) /* ns to wait for a connection */
#define REPLY_MAX (60 * WORLD_SECOND)
#define PAUSE     (WORLD_SECOND / 5)

enum { REQUESTS_MAX = 3 };

/* The driver's limits: requests answered together, and addresses tried at a time. */
enum { ROUND_MAX = 32, PROBES_MAX = 64 };

static const char advice[] = "open that port where a firewall stands between them, or give that "
                             "worker another address by --listen or --advertise";

static void add_advice(struct err *err)
{
    char text[ERR_TEXT_MAX];
    memcpy(text, err->text, sizeof text);
    err_set(err, ERR_PEER, "%s; %s", text, advice);
}

struct connectivity_entry {
    uint32_t node;
    char address[NODE_ADDRESS_MAX];
};

struct probe {
    const char *address;
    int rc;
    struct err *why; /* may be NULL */
};

struct connectivity_checker {
    struct connectivity_rate rate[CONNECTIVITY_MACHINES_MAX];
    struct world *world;
    const struct train_host *host;
    struct task *task;
    size_t count;
    struct connectivity_entry at[VIEW_MEMBERS_MAX]; /* workers that were found reachable */
    size_t pending;
    struct connectivity_entry requests[ROUND_MAX];
    struct err why[ROUND_MAX];
    size_t probes;
    struct probe probe[ROUND_MAX + VIEW_MEMBERS_MAX]; /* the requesting workers, then the known
                                                         ones */
    atomic_size_t next;                               /* index of the next probe to try */
};

static int try_address(const struct train_host *host, const char *address, struct err *err)
{
    return host->check_address(address, TRY_MAX, err);
}

/* ---- the driver's side ---- */

static int probe_task(void *arg)
{
    struct connectivity_checker *checker = arg;
    for (size_t i; (i = atomic_fetch_add(&checker->next, 1)) < checker->probes;)
        checker->probe[i].rc =
            try_address(checker->host, checker->probe[i].address, checker->probe[i].why);
    return OK;
}

/* Try all probes, many at a time: a silent address takes as long as all of them. */
static void try_them(struct connectivity_checker *checker)
{
    struct task *task[PROBES_MAX - 1];
    size_t n = 0;
    atomic_store(&checker->next, 0);
    while (n + 1 < checker->probes && n < PROBES_MAX - 1 &&
           world_spawn(checker->world, "probe", probe_task, checker, &task[n]) == OK)
        n++;
    probe_task(checker);
    while (n > 0)
        world_join(checker->world, task[--n], WORLD_FOREVER, NULL);
}

static void add_probe(struct connectivity_checker *checker, const char *address, struct err *why)
{
    checker->probe[checker->probes++] =
        (struct probe){.address = address, .rc = ERR_PEER, .why = why};
}

/* Try the known workers again and forget those that do not answer: they have left, or their loss is
 * reported by other means. */
static void try_all_known(struct connectivity_checker *checker)
{
    checker->probes = 0;
    for (size_t i = 0; i < checker->pending; i++)
        add_probe(checker, checker->requests[i].address, &checker->why[i]);
    for (size_t i = 0; i < checker->count; i++)
        add_probe(checker, checker->at[i].address, NULL);
    try_them(checker);
    size_t left = 0;
    for (size_t i = 0; i < checker->count; i++)
        if (checker->probe[checker->pending + i].rc == OK)
            checker->at[left++] = checker->at[i];
    checker->count = left;
}

/* A worker that repeats its request has one entry. */
static void forget_entry(struct connectivity_checker *checker, uint32_t node)
{
    size_t left = 0;
    for (size_t i = 0; i < checker->count; i++)
        if (checker->at[i].node != node)
            checker->at[left++] = checker->at[i];
    checker->count = left;
}

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]", 5) == 0 ||
           strncmp(address, "localhost:", 10) == 0;
}

int connectivity_check_loopback(const char *driver, uint32_t node, const char *address,
                                struct err *err)
{
    if (!*driver || is_loopback(driver) || !is_loopback(address))
        return OK;
    return err_set(err, ERR_PEER,
                   "worker %u listens on %s, which no other machine reaches, and the driver at %s "
                   "takes workers of other machines: --join the driver's address on the network, "
                   "or give that worker another address by --advertise",
                   node, address, driver);
}

/* Send the result; why NULL: the worker can be reached. */
static int send_result(struct connectivity_checker *checker,
                       const struct connectivity_entry *request, const struct err *why)
{
    struct buf bytes = {0};
    buf_put_text(&bytes, request->address);
    buf_put_u8(&bytes, !why);
    buf_put_text(&bytes, why ? why->text : "");
    buf_put_u32(&bytes, (uint32_t)checker->count);
    for (size_t i = 0; i < checker->count; i++) {
        buf_put_u32(&bytes, checker->at[i].node);
        buf_put_text(&bytes, checker->at[i].address);
    }
    int rc = wire_send_buf(checker->world, request->node, WIRE_CONNECT_RESULT, 0, &bytes);
    buf_release(&bytes);
    return rc;
}

/* Reply with the result, and with the addresses of the workers before it. The reply repeats the
 * requested address: the number may belong to another worker by now. */
static int reply_to_request(struct connectivity_checker *checker,
                            const struct connectivity_entry *request, int reached, struct err *why)
{
    char here[NODE_ADDRESS_MAX];
    world_address(checker->world, here, sizeof here);
    if (reached != OK) {
        err_prefix(why, "the driver at %s cannot reach worker %u at %s", here, request->node,
                   request->address);
        add_advice(why);
    } else {
        reached = connectivity_check_loopback(here, request->node, request->address, why);
    }
    forget_entry(checker, request->node);
    int rc = send_result(checker, request, reached == OK ? NULL : why);
    if (rc == OK && reached == OK && checker->count < VIEW_MEMBERS_MAX)
        checker->at[checker->count++] = *request;
    return rc == ERR_PEER ? OK : rc;
}

/* ---- how often a machine may ask ---- */

static bool is_over(const struct connectivity_rate *rate, int64_t now)
{
    return rate->requests == 0 || now - rate->since >= 60 * WORLD_SECOND;
}

/* The entry of that machine, or the oldest entry to replace. */
static struct connectivity_rate *find_rate(struct connectivity_rate *rates, const char *host,
                                           size_t n)
{
    struct connectivity_rate *oldest = &rates[0];
    for (size_t i = 0; i < CONNECTIVITY_MACHINES_MAX; i++) {
        if (rates[i].requests > 0 && strncmp(rates[i].host, host, n) == 0 && !rates[i].host[n])
            return &rates[i];
        if (rates[i].since < oldest->since)
            oldest = &rates[i];
    }
    *oldest = (struct connectivity_rate){.requests = 0};
    memcpy(oldest->host, host, n);
    return oldest;
}

uint32_t connectivity_count(struct connectivity_rate rates[CONNECTIVITY_MACHINES_MAX],
                            const char *address, int64_t now)
{
    const char *colon = strrchr(address, ':');
    size_t n = colon ? (size_t)(colon - address) : strlen(address);
    struct connectivity_rate *rate =
        find_rate(rates, address, n < NODE_ADDRESS_MAX ? n : NODE_ADDRESS_MAX - 1);
    if (is_over(rate, now)) {
        rate->since = now;
        rate->requests = 0;
    }
    return ++rate->requests;
}

/* Is this machine below its limit of tries? If not, the request is refused at once. */
static bool may_request(struct connectivity_checker *checker,
                        const struct connectivity_entry *request)
{
    struct err why;
    uint32_t requested =
        connectivity_count(checker->rate, request->address, world_now(checker->world));
    if (requested <= CONNECTIVITY_TRIES_MAX)
        return true;
    err_set(&why, ERR_PEER,
            "worker %u at %s: workers of its machine have connected more than %d times in a "
            "minute; start it again in a minute",
            request->node, request->address, CONNECTIVITY_TRIES_MAX);
    if (requested == CONNECTIVITY_TRIES_MAX + 1)
        log_warn(checker->host->log, "%s", why.text);
    (void)send_result(checker, request, &why);
    return false;
}

/* Take all requests that have arrived; wait for one at least. */
static int take_requests(struct connectivity_checker *checker)
{
    const struct wait_for requested = wire_from(WORLD_ANY, WIRE_CONNECT_CHECK);
    struct wake wake;
    int rc = OK;
    for (checker->pending = 0; checker->pending < ROUND_MAX;) {
        int64_t until = checker->pending == 0 ? WORLD_FOREVER : world_now(checker->world);
        rc = world_wait(checker->world, &requested, 1, until, &wake);
        if (rc != OK)
            break;
        struct byte_reader in = {wake.msg->data, wake.msg->len, false};
        struct connectivity_entry *request = &checker->requests[checker->pending];
        *request = (struct connectivity_entry){.node = wake.msg->from};
        read_text(&in, request->address, sizeof request->address);
        printable(request->address);
        checker->pending += byte_reader_done(&in) && may_request(checker, request);
        message_unref(wake.msg);
    }
    return rc == ERR_TIMEOUT ? OK : rc;
}

static int checker_task(void *arg)
{
    struct connectivity_checker *checker = arg;
    for (;;) {
        int rc = take_requests(checker);
        if (rc == OK)
            try_all_known(checker);
        for (size_t i = 0; rc == OK && i < checker->pending; i++)
            rc = reply_to_request(checker, &checker->requests[i], checker->probe[i].rc,
                                  &checker->why[i]);
        if (rc != OK)
            return rc;
    }
}

int connectivity_start(struct world *world, const struct train_host *host,
                       struct connectivity_checker **out)
{
    struct connectivity_checker *checker = calloc(1, sizeof *checker);
    if (!checker)
        return ERR_NOMEM;
    checker->world = world;
    checker->host = host;
    int rc = world_spawn(world, "reach", checker_task, checker, &checker->task);
    if (rc != OK) {
        free(checker);
        return rc;
    }
    *out = checker;
    return OK;
}

void connectivity_stop(struct connectivity_checker *checker)
{
    if (checker)
        world_end_task(checker->world, &checker->task);
    free(checker);
}

/* ---- a worker's ---- */

static bool is_about(const struct message *m, const char *address)
{
    char requested[NODE_ADDRESS_MAX];
    struct byte_reader in = {m->data, m->len, false};
    read_text(&in, requested, sizeof requested);
    return !in.failed && strcmp(requested, address) == 0;
}

static int await_result(struct world *world, const char *here, struct message **out)
{
    const struct wait_for set[] = {wire_from(WORLD_DRIVER, WIRE_CONNECT_RESULT),
                                   {.kind = WAIT_PEER}};
    int64_t deadline = world_now(world) + REPLY_MAX;
    struct wake wake;
    int rc;
    for (;;) {
        rc = world_wait(world, set, 2, deadline, &wake);
        if (rc == OK && wake.which == 0 && !is_about(wake.msg, here))
            message_unref(wake.msg); /* a reply to the previous worker of this number */
        else if (rc != OK || wake.which == 0 || (!wake.up && wake.peer == WORLD_DRIVER))
            break;
    }
    if (rc == OK && wake.which == 1)
        rc = ERR_DRIVER;
    if (rc == OK)
        *out = wake.msg;
    return rc;
}

/* Try the addresses of all earlier workers. */
static int try_all(struct world *world, const struct train_host *host, struct byte_reader *in,
                   struct err *err)
{
    char here[NODE_ADDRESS_MAX], there[NODE_ADDRESS_MAX];
    world_address(world, here, sizeof here);
    for (uint32_t left = read_u32(in); left > 0; left--) {
        uint32_t node = read_u32(in);
        read_text(in, there, sizeof there);
        if (in->failed)
            return err_set(err, ERR_PROTOCOL, "the driver's answer cannot be read");
        if (try_address(host, there, err) == OK)
            continue;
        err_prefix(err, "worker %u at %s cannot reach worker %u at %s", world->self, here, node,
                   there);
        add_advice(err);
        return ERR_PEER;
    }
    return OK;
}

/* *reached: the driver can reach this worker. */
static int take_result(struct world *world, const struct train_host *host, const struct message *m,
                       bool *reached, struct err *err)
{
    char requested[NODE_ADDRESS_MAX], why[ERR_TEXT_MAX];
    struct byte_reader in = {m->data, m->len, false};
    read_text(&in, requested, sizeof requested);
    *reached = read_u8(&in) != 0;
    read_text(&in, why, sizeof why);
    if (in.failed)
        return err_set(err, ERR_PROTOCOL, "the driver's answer cannot be read");
    return *reached ? try_all(world, host, &in, err) : err_set(err, ERR_PEER, "%s", why);
}

static int request_check(struct world *world, const struct train_host *host, bool *reached,
                         struct err *err)
{
    char here[NODE_ADDRESS_MAX];
    struct buf bytes = {0};
    struct message *m;
    world_address(world, here, sizeof here);
    buf_put_text(&bytes, here);
    int rc = wire_send_buf(world, WORLD_DRIVER, WIRE_CONNECT_CHECK, 0, &bytes);
    buf_release(&bytes);
    if (rc == OK)
        rc = await_result(world, here, &m);
    if (rc != OK)
        return err_set(err, rc == ERR_PEER ? ERR_DRIVER : rc,
                       "the driver does not report whether it can reach %s: %s", here,
                       status_text(rc));
    rc = take_result(world, host, m, reached, err);
    message_unref(m);
    return rc;
}

/* A worker that cannot be reached may have just left: then the driver's second reply does not list
 * it. */
int connectivity_check(struct world *world, const struct train_host *host, struct err *err)
{
    bool reached = false;
    int rc = request_check(world, host, &reached, err);
    for (int i = 1; rc == ERR_PEER && reached && i < REQUESTS_MAX; i++) {
        rc = world_sleep(world, world_now(world) + PAUSE);
        if (rc == OK)
            rc = request_check(world, host, &reached, err);
    }
    return rc;
}
