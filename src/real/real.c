#define _GNU_SOURCE
#include "real/real.h"

#include "base/rng.h"
#include "real/handshake.h"
#include "real/interface.h"
#include "real/node.h"
#include "real/seal.h"
#include "real/secret.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define HELLO_MAX (5 * WORLD_SECOND)
#define FLUSH_MAX (2 * WORLD_SECOND)
#define REST      (5 * WORLD_SECOND)

/* ---- small slots of the seam ---- */

static int64_t node_now(struct world *w)
{
    (void)w;
    return real_now();
}

static uint64_t node_random(struct world *w, uint64_t stream, uint64_t counter)
{
    return rng_u64(node_of(w)->random_seed, stream, counter);
}

static void node_raise(struct world *w, uint32_t signal)
{
    PL_ASSERT(signal < WORLD_SIGNALS);
    struct node *node = node_of(w);
    node_lock(node);
    node->signals[signal]++;
    task_wake(node, WAIT_SIGNAL, &signal);
    node_unlock(node);
}

static uint64_t node_raised(struct world *w, uint32_t signal)
{
    PL_ASSERT(signal < WORLD_SIGNALS);
    struct node *node = node_of(w);
    node_lock(node);
    uint64_t times = node->signals[signal];
    node_unlock(node);
    return times;
}

static void node_address(struct world *w, char *out, size_t size)
{
    const struct node *node = node_of(w);
    address_print(node->advertised.len ? &node->advertised : &node->address, out, size);
}

static int node_want_nodes(struct world *w, uint32_t n)
{
    struct node *node = node_of(w);
    return node->want_nodes ? node->want_nodes(node->user, n) : ERR_UNSUPPORTED;
}

static int node_work(struct world *w, const struct cost *cost)
{
    (void)w;
    (void)cost;
    return OK;
}

static const struct world_ops ops = {
    .now = node_now,
    .random = node_random,
    .spawn = task_spawn,
    .cancel = task_cancel,
    .join = task_join,
    .wait = task_wait,
    .raise = node_raise,
    .raised = node_raised,
    .send = peer_send,
    .post_recv = mailbox_post,
    .unpost = mailbox_unpost,
    .post_send = outbox_post,
    .unsend = outbox_unsend,
    .abort = mailbox_abort,
    .peer_add = peer_add,
    .peer_drop = peer_drop,
    .address = node_address,
    .want_nodes = node_want_nodes,
    .busy_poll = role_busy_poll,
    .work = node_work,
};

/* ---- opening ---- */

static int parse_allowed(bool keyed, const char *what, const char *text, struct address *out,
                         struct err *err)
{
    int rc = address_parse(text, out, err);
    if (rc != OK)
        err_prefix(err, "%s", what);
    else if (!keyed && !address_is_loopback(out))
        rc = err_set(err, ERR_INPUT,
                     "%s %s: beyond this host a key is required; make one with `paceline keygen "
                     "FILE`, and give --key FILE to the driver and to each worker",
                     what, text);
    return rc;
}

static int parse_address(struct node *node, const char *what, const char *text, struct address *out,
                         struct err *err)
{
    int rc = parse_allowed(node->keyed, what, text, out, err);
    if (rc == OK && node->plain && !address_is_loopback(out))
        node->io.warn_plain = real_now();
    return rc;
}

static int parse_advertised(struct node *node, const char *text, struct err *err)
{
    int rc = parse_address(node, "advertise", text, &node->advertised, err);
    bool nowhere = rc == OK &&
                   (address_is_wildcard(&node->advertised) || address_port(&node->advertised) == 0);
    return nowhere
               ? err_set(err, ERR_INPUT, "advertise %s: this address accepts no connections", text)
               : rc;
}

/* Choose the address to listen at: the option's, or that of the interface that leads to the driver.
 */
static int choose_listen(struct node *node, const struct real_options *options,
                         const struct address *driver, struct err *err)
{
    const char *reported = options->listen;
    if (!reported && driver->len > 0 && !address_is_loopback(driver))
        return interface_towards(driver, &node->address, err);
    int rc =
        parse_address(node, "listen", reported ? reported : "127.0.0.1:0", &node->address, err);
    node->any_port = !reported && options->port > 0;
    if (rc == OK && node->any_port)
        address_set_port(&node->address, options->port);
    return rc;
}

static void report_address(const struct node *node)
{
    char where[ADDRESS_TEXT_MAX], interface[INTERFACE_TEXT_MAX], others[ADDRESS_TEXT_MAX];
    address_print(&node->address, where, sizeof where);
    interface_name(&node->address, interface);
    if (node->advertised.len) {
        address_print(&node->advertised, others, sizeof others);
        log_info(&node->log, "listens on %s (%s), to be reached at %s", where, interface, others);
    } else {
        bool far = !address_is_loopback(&node->address); /* on loopback, which needs no log line */
        log_write(&node->log, far ? LOG_INFO : LOG_DEBUG, "listens on %s (%s)", where, interface);
    }
}

static int draw_run(uint64_t *run, struct err *err)
{
    for (*run = 0; *run == 0;)
        if (getrandom(run, sizeof *run, 0) != sizeof *run && errno != EINTR)
            return err_set(err, ERR_IO, "no random bytes: %s", strerror(errno));
    return OK;
}

/* Get a number, the run, and an I/O thread. */
static int go_live(struct node *node, const struct real_options *options, struct err *err)
{
    struct address driver = {.len = 0};
    struct stream stream;
    int rc = OK;
    node->world.self = options->driver ? WORLD_ANY : WORLD_DRIVER;
    if (options->driver)
        rc = parse_address(node, "driver", options->driver, &driver, err);
    if (rc == OK && options->driver)
        node->driver_port = address_port(&driver);
    if (rc == OK)
        rc = choose_listen(node, options, &driver, err);
    if (rc == OK && options->advertise)
        rc = parse_advertised(node, options->advertise, err);
    if (rc == OK)
        rc = io_open(node, err);
    node->run = options->run;
    node->resumed_at = options->run != 0;
    node->peers.kept = node->peers.next_number = options->first_number;
    node->peers.numbers = options->numbers > 0 ? options->numbers : WORLD_DRIVER;
    if (rc == OK && options->driver)
        rc = handshake_driver(node, &driver, &stream, err);
    else if (rc == OK && node->run == 0)
        rc = draw_run(&node->run, err);
    if (rc != OK)
        return rc;
    report_address(node);
    node->random_seed = rng_u64(options->seed, RNG_NODE, node->world.self);
    struct peer *self = peer_make(node, node->world.self);
    if (self)
        self->state = PEER_UP;
    rc = io_start(node, options->driver ? &stream : NULL, &driver, err);
    if (rc == OK && !self) {
        io_stop(node);
        rc = err_set(err, ERR_NOMEM, "out of memory for the address book");
    }
    return rc;
}

static void node_free(struct node *node)
{
    tasks_release(node);
    io_release(node);
    peers_release(node);
    mailbox_release(node);
    message_queue_release(&node->pending);
    pool_close(node->pool);
    seal_maker_free(node->seal_maker);
    secret_free(node->key);
    pthread_mutex_destroy(&node->lock);
    free(node);
}

struct seal_maker *node_seal_maker(struct node *node)
{
    if (!node->seal_maker)
        node->seal_maker = seal_maker_create();
    return node->seal_maker;
}

static struct node *node_new(void)
{
    struct node *node = calloc(1, sizeof *node);
    if (!node)
        return NULL;
    node->world.ops = &ops;
    node->io.listener = node->io.event = node->io.epoll = node->io.spare = -1;
    node->io.role.holder = &node->io.task; /* as soon as it runs */
    if (pthread_mutex_init(&node->lock, NULL) != 0)
        goto free_node;
    if (tasks_init(&node->tasks) != OK)
        goto destroy_lock;
    if (mailbox_init(&node->mailbox) != OK)
        goto destroy_tasks;
    if (peers_init(&node->peers) != OK)
        goto destroy_mailbox;
    node->pool = pool_create();
    if (!node->pool)
        goto destroy_peers;
    return node;
destroy_peers:
    pthread_cond_destroy(&node->peers.paused);
destroy_mailbox:
    pthread_cond_destroy(&node->mailbox.landed);
destroy_tasks:
    pthread_cond_destroy(&node->tasks.ended);
    pthread_cond_destroy(&node->tasks.nursery);
destroy_lock:
    pthread_mutex_destroy(&node->lock);
free_node:
    free(node);
    return NULL;
}

static int check_options(const struct real_options *options, struct err *err)
{
    size_t key = options->key ? strlen(options->key) : RUN_KEY_TEXT_MIN;
    if (options->stripes > STRIPES_MAX)
        return err_set(err, ERR_INPUT, "stripes: 1 to %d, not %u", STRIPES_MAX, options->stripes);
    if (key < RUN_KEY_TEXT_MIN || key > RUN_KEY_TEXT_MAX)
        return err_set(err, ERR_INPUT, "key: %d to %d characters, not %zu", RUN_KEY_TEXT_MIN,
                       RUN_KEY_TEXT_MAX, key);
    return OK;
}

static int take_key(struct node *node, const char *text)
{
    node->key = secret_alloc(sizeof *node->key);
    return node->key ? run_key_derive(node->key, text) : ERR_NOMEM;
}

int node_open(const struct real_options *options, const struct node_limits *limits,
              struct world **out, struct err *err)
{
    int rc = check_options(options, err);
    if (rc != OK)
        return rc;
    struct node *node = node_new();
    if (!node)
        return err_set(err, ERR_NOMEM, "out of memory for a world");
    if (options->log)
        node->log = *options->log;
    node->limits = *limits;
    node->keyed = options->key != NULL;
    node->plain = options->insecure;
    node->no_shm = options->no_shm || options->advertise || options->max_mbit > 0;
    node->ucx = options->ucx && options->max_mbit <= 0;
    pacer_init(&node->io.pace_out, options->max_mbit, real_now());
    pacer_init(&node->io.pace_in, options->max_mbit, real_now());
    node->stripes = options->stripes ? options->stripes : 1;
    if (node->keyed && take_key(node, options->key) != OK) {
        node_free(node);
        return err_set(err, ERR_NOMEM, "out of memory for the run's key");
    }
    node->nice = options->nice;
    node->want_nodes = options->want_nodes;
    node->user = options->user;
    rc = go_live(node, options, err);
    if (rc != OK) {
        node_free(node);
        return rc;
    }
    *out = &node->world;
    return OK;
}

int real_check_driver(const char *address, bool keyed, struct err *err)
{
    struct address a;
    int rc = parse_allowed(keyed, "driver", address, &a, err);
    bool nowhere = rc == OK && address_port(&a) == 0;
    return nowhere ? err_set(err, ERR_INPUT, "driver %s: no port to call", address) : rc;
}

bool real_is_loopback(const char *address)
{
    struct address a;
    return address_parse(address, &a, NULL) == OK && address_is_loopback(&a);
}

int real_open(const struct real_options *options, struct world **out, struct err *err)
{
    const struct node_limits limits = {.hello = HELLO_MAX, .flush = FLUSH_MAX, .rest = REST};
    return node_open(options, &limits, out, err);
}

uint64_t real_run_of(const struct world *world)
{
    return ((const struct node *)world)->run;
}

int real_run(struct world *world, task_fn fn, void *arg, struct err *err)
{
    return task_run_main(node_of(world), fn, arg, err);
}

void real_close(struct world *world)
{
    struct node *node = node_of(world);
    io_stop(node);
    node_free(node);
}
