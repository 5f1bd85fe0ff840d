/* The driver's side of the handshake: the welcome, and the hooks that the group's server calls. */
#include "base/plural.h"
#include "base/printable.h"
#include "job/text.h"
#include "model/load.h"
#include "train/driver.h"
#include "wire/wire_send.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the welcome ---- */

/* The job as remote workers receive it: with the contents of files that they cannot read, and
 * without the settings that are local to each machine. */
static int write_elsewhere(struct driver *d, struct buf *text)
{
    Caffe__NetParameter *net = NULL;
    Paceline__Job *copy = NULL;
    int rc = job_parse("job", (char *)text->data, strlen((char *)text->data), &copy, d->err);
    if (rc == OK && copy->net->source_case == PACELINE__NET__SOURCE_FILE) {
        rc = model_load_net(copy->net, &net, d->err);
        if (rc == OK)
            rc = model_define_net(&copy->net, net, d->err);
        if (net)
            caffe__net_parameter__free_unpacked(net, NULL);
    }
    if (rc == OK) {
        copy->has_threads = copy->has_threads && !d->options->open_threads;
        buf_release(text);
        text_write(&copy->base, text);
        buf_put_u8(text, 0);
        rc = job_hash(copy, &d->membership.own.job_hash, d->err);
    }
    job_free(copy);
    return rc;
}

int driver_write_welcome(struct driver *d)
{
    struct buf text = {0};
    text_write(&d->job->base, &text);
    buf_put_u8(&text, 0);
    int rc = d->options->elsewhere && !text.failed ? write_elsewhere(d, &text) : OK;
    if (rc != OK) {
        buf_release(&text);
        return rc;
    }
    if (!text.failed) {
        struct welcome welcome = {
            .job = (char *)text.data,
            .folder = (char *)(uintptr_t)d->options->folder,
            .busy_hosts = d->host->timing.silence_max > WORLD_SECOND,
            .resumes = d->start.floats != NULL || d->start.ranges != NULL,
            .traces = d->options->trace != NULL,
            .checks = d->options->elsewhere && d->host->check_address,
            .incarnation = d->claim.term.incarnation,
            .leases_from = d->leases.table.frontier,
            .records = d->membership.own.records,
        };
        welcome_encode(&welcome, &d->membership.welcome);
        welcome.resumes = false;
        welcome.late = true; /* a joiner receives its state from a donor */
        welcome_encode(&welcome, &d->membership.welcome_late);
    }
    bool failed = text.failed || d->membership.welcome.failed || d->membership.welcome_late.failed;
    buf_release(&text);
    return failed ? err_set(d->err, ERR_NOMEM, "job: out of memory") : OK;
}

/* ---- what the group's server asks of us, on its task ---- */

/* The worker waits for a message that cannot be sent, so disconnect it: it then tries again. */
static void disconnect_worker(struct driver *d, uint32_t node, const char *what, int rc)
{
    log_warn(d->host->log, "worker %u: the %s could not be sent: %s", node, what, status_text(rc));
    world_peer_drop(d->world, node);
}

void driver_welcome(struct driver *d, uint32_t node)
{
    driver_report_joiner(d, node, JOINER_CONNECTED, "");
    const struct buf *welcome =
        group_view(&d->group) ? &d->membership.welcome_late : &d->membership.welcome;
    int rc = driver_send(d, node, WIRE_WELCOME, welcome);
    if (rc != OK && rc != ERR_PEER)
        disconnect_worker(d, node, "welcome", rc);
}

static void on_arrived(void *user, uint32_t node)
{
    driver_welcome(user, node);
}

static void on_disconnect(void *user, uint32_t node)
{
    driver_report_joiner(user, node, JOINER_LEFT, "");
}

/* Reports to the main task, which suppresses repetitions. */
static void on_refused(void *user, uint32_t node, const struct err *why)
{
    struct driver *d = user;
    struct departure departure = {.status = why->status, .stage = DEPARTED_REFUSED};
    struct buf bytes = {0};
    if (node < VIEW_MEMBERS_MAX)
        departure.location = d->membership.location[node];
    memcpy(departure.text, why->text, sizeof departure.text);
    buf_put_u32(&bytes, node);
    departure_encode(&departure, &bytes);
    driver_send(d, WORLD_DRIVER, WIRE_DONE, &bytes);
    buf_release(&bytes);
}

/* Keeps the machine of a worker that sends its hello. */
static void keep_worker_location(struct driver *d, uint32_t node, const struct hello *hello)
{
    if (node >= VIEW_MEMBERS_MAX)
        return;
    struct worker_location *location = &d->membership.location[node];
    memcpy(location->host, hello->host, sizeof location->host);
    memcpy(location->address, hello->address, sizeof location->address);
    d->membership.machine[node] = hello->machine;
}

/* Keeps the records that it has, which the main task reads once a view has this worker. */
static int keep_worker_records(struct driver *d, uint32_t node, struct hello *hello,
                               struct err *err)
{
    if (!d->job->local_data || node >= VIEW_MEMBERS_MAX)
        return OK;
    struct hello_records **kept = &d->membership.records[node];
    *kept = *kept ? *kept : malloc(sizeof **kept);
    if (!*kept)
        return err_set(err, ERR_NOMEM, "out of memory for the list of its records");
    printable(hello->records.train.path);
    **kept = hello->records;
    return OK;
}

static int on_hello(void *user, uint32_t node, const void *bytes, size_t len, char *address,
                    struct err *err)
{
    struct driver *d = user;
    struct byte_reader in = {bytes, len, false};
    struct hello hello;
    if (hello_read(&in, &hello) != OK)
        return err_set(err, ERR_PROTOCOL, "its hello cannot be read");
    keep_worker_location(d, node, &hello);
    int rc = hello_check(&hello, &d->membership.own, err);
    if (rc != OK) {
        char here[NODE_ADDRESS_MAX];
        world_address(d->world, here, sizeof here);
        err_prefix(err, "it, at %s, and the driver, at %s, do not fit together", hello.address,
                   here);
        return rc;
    }
    if (group_view(&d->group) && !d->traits.joinable)
        return err_set(
            err, ERR_UNSUPPORTED,
            "the run is under way, and with strategy %s in this job no worker can join it then",
            d->strategy->name);
    rc = keep_worker_records(d, node, &hello, err);
    if (rc != OK)
        return rc;
    atomic_store(&d->membership.stirred, world_now(d->world));
    driver_report_joiner(d, node, JOINER_JOINED, "");
    memcpy(address, hello.address, sizeof hello.address);
    if (d->options->simulated)
        log_info(d->host->log, "worker %u is simulated: %s kernels, %s", node, hello.kernels,
                 hello.isa);
    else
        log_info(d->host->log, "worker %u is at %s: %s kernels, %s, %u thread%s", node,
                 hello.address, hello.kernels, hello.isa, hello.threads,
                 plural(hello.threads, "s"));
    return OK;
}

/* A worker has reconnected. The server's task stores its recovery report, and the main task reads
 * all reports once the first view exists. */
static int on_returned(void *user, uint32_t node, const void *bytes, size_t len,
                       const uint64_t *message, char *address, struct err *err)
{
    struct driver *d = user;
    struct byte_reader in = {bytes, len, false};
    struct hello hello;
    if (hello_read(&in, &hello) != OK || node >= VIEW_MEMBERS_MAX)
        return err_set(err, ERR_PROTOCOL, "its hello cannot be read");
    int rc = hello_check(&hello, &d->membership.own, err);
    if (rc != OK)
        return rc;
    keep_worker_location(d, node, &hello);
    driver_report_joiner(d, node, JOINER_JOINED, "");
    memcpy(address, hello.address, sizeof hello.address);
    atomic_store(&d->membership.stirred, world_now(d->world));
    if (group_view(&d->group))
        return OK; /* too late: the roster orders it to rejoin */
    rc = keep_worker_records(d, node, &hello, err);
    if (rc != OK)
        return rc;
    recovery_report_read(message, &d->recovery.report[node]);
    log_info(d->host->log, "worker %u is back, after exchange %" PRIu64, node,
             d->recovery.report[node].progress.exchanges);
    return OK;
}

/* Write the view to the term file, from which a later driver knows whom to wait for. */
static void on_formed(void *user, const struct view *view)
{
    struct driver *d = user;
    d->claim.term.view = view->number;
    d->claim.term.members = view_participants(view);
    for (size_t i = 0; i < view->count; i++) {
        if (view->node[i] >= d->claim.term.next)
            d->claim.term.next = view->node[i] + 1;
    }
    driver_write_term(d);
}

static void on_tick(void *user)
{
    driver_retry_term(user);
}

static void on_want(void *user, uint32_t workers)
{
    struct driver *d = user;
    atomic_store(&d->membership.missing, 0); /* the recovered driver has just requested them */
    int rc = driver_request_workers(d, workers);
    if (rc != OK)
        log_warn(d->host->log, "no workers for %u that have not returned: %s", workers,
                 status_text(rc));
}

/* "worker 3 (attic, 10.0.0.3:4711) is lost: no heartbeat, or no link, for 5 s" */
static void report_lost_worker(struct driver *d, uint32_t node, const char *what, const char *here)
{
    char line[ERR_TEXT_MAX], name[WORKER_HOST_MAX + NODE_ADDRESS_MAX + 32];
    char why[64] = "its connection has ended";
    if (strcmp(what, "cut") == 0)
        snprintf(why, sizeof why, "no heartbeat, or no link, for %g s",
                 world_seconds(d->host->timing.silence_max));
    else if (strcmp(what, "hung") == 0)
        snprintf(why, sizeof why, "it computes without progress");
    else if (strcmp(what, "fenced") == 0)
        snprintf(why, sizeof why, "its donor left before it had its state");
    worker_location_print(&d->membership.location[node], node, name, sizeof name);
    snprintf(line, sizeof line, "%s is lost: %s%s", name, why, here);
    driver_report_joiner(d, node, JOINER_LOST, line);
}

static void emit_member(struct driver *d, uint32_t node, const char *what, uint32_t view)
{
    bool known = strcmp(what, "join") == 0 && node < VIEW_MEMBERS_MAX;
    const char *host = known ? d->membership.location[node].host : "";
    struct hello_machine machine = {.cpu = ""};
    cJSON *event = events_new(&d->events, "member");
    cJSON_AddNumberToObject(event, "node", node);
    cJSON_AddStringToObject(event, "what", what);
    cJSON_AddNumberToObject(event, "view", view);
    if (known)
        machine = d->membership.machine[node];
    if (host[0])
        cJSON_AddStringToObject(event, "host", host);
    if (machine.cpu[0])
        cJSON_AddStringToObject(event, "cpu", machine.cpu);
    if (machine.cores > 0)
        cJSON_AddNumberToObject(event, "cores", machine.cores);
    if (machine.memory > 0)
        cJSON_AddNumberToObject(event, "memory", (double)machine.memory);
    events_emit(&d->events, event);
}

static void on_member(void *user, uint32_t node, const char *what, uint32_t view)
{
    struct driver *d = user;
    bool joins = strcmp(what, "join") == 0, leaves = strcmp(what, "leave") == 0;
    bool leaf = strcmp(what, "leaf") == 0, participates = strcmp(what, "participates") == 0;
    bool unseated = strcmp(what, "unseated") == 0, seated = strcmp(what, "seated") == 0;
    bool stays = leaf || participates || unseated || seated || strcmp(what, "back") == 0;
    bool lost = !joins && !leaves && !stays;
    bool forming = view == 0 || (view == 1 && joins);
    char here[48] = "";
    atomic_fetch_add(&d->membership.missing, lost);
    if (joins && view > 1)
        atomic_store(&d->reports.joined_at[node], world_now(d->world) - d->events.start);
    if (forming) {
        d->membership.first = joins ? d->membership.first + 1 : d->membership.first - 1;
        snprintf(here, sizeof here, "; %u of %u are here", d->membership.first, d->job->workers);
    }
    if (lost && node < VIEW_MEMBERS_MAX)
        report_lost_worker(d, node, what, here);
    else if (joins || leaves)
        log_info(d->host->log, "worker %u %s%s", node, joins ? "has joined" : "has left", here);
    else if (leaf)
        log_warn(d->host->log, "worker %u is a leaf now: its network would hold up the others",
                 node);
    else if (unseated)
        log_warn(d->host->log, "worker %u waits: its replica of the model has lost a slice", node);
    else if (seated)
        log_info(d->host->log, "worker %u has a slice of the model again", node);
    else if (participates)
        log_info(d->host->log, "worker %u takes part in exchanges again", node);
    emit_member(d, node, what, view);
}

/* ---- the group ---- */

int driver_start_group(struct driver *d)
{
    /* A worker that gave a reason for leaving will not reconnect. */
    bool workers_left = d->options->why_lost && d->options->why_lost->text[0];
    uint32_t last_view = workers_left ? 0 : d->claim.last_term.view;
    const struct roster_options roster = {
        .workers = d->job->workers,
        .workers_max = d->traits.joinable ? job_workers_max(d->job) : 0,
        .standby = d->job->standby,
        .slices = d->job->slices,
        .incarnation = d->claim.term.incarnation,
        .driver_takes_part = d->traits.driver_part,
        .silence_max = d->host->timing.silence_max,
        .stall_max = (int64_t)(d->job->stall_seconds * (double)WORLD_SECOND),
        .recovers = d->options->resume && !d->options->no_old_workers,
        .last_view = last_view,
        .last_incarnation = last_view ? d->claim.last_term.incarnation : 0,
        .last = d->claim.last_term.members,
    };
    const struct server_hooks hooks = {
        .arrived = on_arrived,
        .on_disconnect = on_disconnect,
        .refused = on_refused,
        .admit = on_hello,
        .member = on_member,
        .returned = on_returned,
        .formed = on_formed,
        .tick = on_tick,
        .want = on_want,
        .user = d,
    };
    group_init(&d->group, d->world, d->host->log, &d->host->timing);
    d->group.observer = train_observer(d->host);
    int rc = OK;
    if (d->options->elsewhere && d->host->check_address)
        rc = connectivity_start(d->world, d->host, &d->membership.connectivity);
    driver_welcome_arrivals(d);
    if (rc == OK)
        rc = server_start(&d->server, &d->group, &roster, &hooks);
    uint32_t workers = d->job->follow_batch ? d->job->workers : job_workers_max(d->job);
    workers += d->job->standby;
    if (roster.recovers && roster.last_view > 0)
        workers = 0; /* the previous workers may still be running */
    if (rc == OK)
        rc = driver_request_workers(d, workers);
    return rc == OK ? OK
                    : err_set(d->err, rc, "%u workers cannot be had: %s", workers, status_text(rc));
}
