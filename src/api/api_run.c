#include "paceline/run.h"

#include "api/api_key.h"
#include "api/caffe_project.h"
#include "api/guard.h"
#include "api/option_size.h"
#include "base/file.h"
#include "real/census.h"
#include "real/disk.h"
#include "real/real.h"
#include "real/secret.h"
#include "train/driver_term_file.h"
#include "train/work_progress.h"

_Static_assert((int)PL_WORK_JOINED == (int)WORK_JOINED && (int)PL_WORK_OVER == (int)WORK_OVER,
               "stages of a worker in the public header and in train differ");

#include <math.h>
#include <string.h>

enum { PATH_TEXT_MAX = 4096, HOST_NAME_SIZE = 64, HOST_CPU_SIZE = 128 };

#define ALONE_SILENCE (60 * WORLD_SECOND)

/* A run as its driver's process holds it. */
struct driving {
    const pl_run_options *options;
    struct train_options train;
    struct train_host host;
    struct train_report report;
    struct api_sink sink;
    struct world *world;
    char address[128];
    char cpu[HOST_CPU_SIZE];
    char name[HOST_NAME_SIZE]; /* of this machine */
    bool reported;             /* where it listens */
    struct err *err;
};

static int want_nodes(void *user, uint32_t n)
{
    struct driving *d = user;
    char address[128];
    world_address(d->world, address, sizeof address);
    if (d->options->start_workers && n == 0)
        return OK;
    if (d->options->start_workers)
        return d->options->start_workers(d->options->user, n, address) == 0 ? OK : ERR_IO;
    if (d->options->listens && !d->reported) /* workers are started elsewhere */
        d->options->listens(d->options->user, address);
    d->reported = true;
    return OK;
}

static int drive_run(void *arg)
{
    struct driving *d = arg;
    return train_drive(d->world, &d->host, &d->train, &d->report, d->err);
}

/* Heartbeats may be late where more threads compute than there are cores, or on unknown hosts. A
 * lone worker delays no other, and giving it up on a busy machine would lose the run. */
static struct group_timing timing_for(const Paceline__Job *job, bool elsewhere)
{
    bool crowded = job_workers_max(job) * job->threads > (uint32_t)real_cores();
    if (job->heartbeat == PACELINE__JOB__HEARTBEAT__lan)
        return group_timing_lan();
    bool busy = job->heartbeat == PACELINE__JOB__HEARTBEAT__busy;
    struct group_timing timing =
        busy || crowded || elsewhere ? group_timing_busy() : group_timing_lan();
    if (!busy && job_is_alone(job))
        timing.silence_max = ALONE_SILENCE;
    return timing;
}

/* A run that is continued with keeps its number, so that workers that are still there know it. */
static void find_run(const struct driving *d, const struct logger *log, struct real_options *real)
{
    struct driver_term before;
    struct err err;
    int rc = driver_term_read(&d->sink.dir, &before, &err);
    if (rc == OK && before.view > 0) {
        real->run = before.run;
        real->first_number = before.next;
    } else if (rc != OK && rc != ERR_NOT_FOUND) {
        log_warn(log, "%s", err.text);
    }
}

enum { SHORT_ATTEMPTS = 3 };

#define SHORT_LIFE (30 * WORLD_SECOND)

/* One driver's life, at the same address as the one before. */
static int live_once(struct driving *d, const struct logger *log, struct real_options *real)
{
    if (d->train.resume)
        find_run(d, log, real);
    int rc = real_open(real, &d->world, d->err);
    if (rc != OK)
        return rc;
    world_address(d->world, d->address, sizeof d->address);
    real->listen = d->address;
    d->train.run = real_run_of(d->world);
    rc = real_run(d->world, drive_run, d, d->err);
    real_close(d->world);
    return rc;
}

/* All workers are lost: the run waits for others, as a driver does that is started again, and
 * resumes from its newest checkpoint. Not when joiners are lost again and again. */
static int run_on(struct driving *d, const struct logger *log, struct real_options *real)
{
    bool lost_all = false;
    struct err why_lost = {0};
    d->train.why_lost = &why_lost;
    for (int attempts = 0;;) {
        int64_t begun = real_now();
        attempts = attempts + 1;
        bool waits = d->train.elsewhere && !d->sink.no_files && attempts < SHORT_ATTEMPTS;
        d->train.lost_all = waits ? &lost_all : NULL;
        int rc = live_once(d, log, real);
        if (!lost_all)
            return rc;
        log_warn(log, "%s: the run waits for others, and resumes from its newest checkpoint",
                 d->err->text);
        attempts = real_now() - begun < SHORT_LIFE ? attempts : 0;
        lost_all = false;
        d->train.resume = true;
        d->train.before += world_seconds(real_now() - begun);
        d->train.snapshot = NULL;
        d->train.begin = NULL;
        d->err->text[0] = '\0';
    }
}

static int run_here(struct driving *d, const pl_job *job, const struct logger *log)
{
    const pl_run_options *o = d->options;
    struct real_options real = {
        .log = log,
        .listen = o->listen,
        .port = o->port,
        .insecure = o->insecure,
        .key = o->key,
        .max_mbit = o->max_mbit,
        .seed = d->train.job->seed,
        .numbers = VIEW_MEMBERS_MAX,
        .want_nodes = want_nodes,
        .user = d,
    };
    char *own_key;
    int rc = api_key_choose(log, d->err, o->key, o->listen, &own_key, &real.key);
    if (rc == OK)
        rc = api_sink_open(&d->sink, job, o, &d->train, log, d->err);
    if (rc == OK)
        rc = run_on(d, log, &real);
    secret_free(own_key);
    return rc;
}

int api_run(pl_engine *engine, const pl_job *job, const pl_run_options *options,
            const struct api_observer *observer, pl_run_report *report)
{
    Paceline__Job *finished;
    int rc = api_check_solver_data(job);
    if (rc == OK)
        rc = api_job_finish(job, 0, &finished);
    if (rc != OK)
        return rc;
    struct driving d = {
        .options = options,
        .train = {.job = finished},
        .host = {.log = &engine->log,
                 .check_address = real_reach,
                 .cores = (uint32_t)real_cores(),
                 .tuner = api_tuner(&engine->tuning, &engine->log),
                 .bindings = &engine->bindings,
                 .remote = engine->remote,
                 .timing = timing_for(finished, options && options->listen)},
        .err = &engine->error,
    };
    real_host_name(d.name, sizeof d.name);
    d.host.name = d.name;
    real_cpu_name(d.cpu, sizeof d.cpu);
    d.host.cpu = d.cpu;
    d.host.memory = real_memory_bytes();
    d.train.stop = api_flag(d.options->stop);
    d.train.workers = api_flag(d.options->workers);
    d.train.elsewhere = !d.options->start_workers;
    d.train.host_follows = d.options->follows_batch;
    d.train.no_old_workers = d.options->workers_lost != NULL;
    d.train.open_threads = d.train.elsewhere && !job->message->has_threads;
    d.train.dry = d.options->dry_run;
    d.train.open_end = !observer && api_job_is_open_ended(job);
    d.train.folder = job->folder;
    d.train.chosen = d.options->chosen;
    d.train.patience_s = d.options->patience_s;
    d.sink.no_files = observer != NULL;
    d.sink.observer = observer;
    d.train.evaluate_records = observer ? 1 : 0;
    rc = run_here(&d, job, &engine->log);
    if (rc == OK)
        api_report(&d.sink, &d.report, report);
    api_sink_close(&d.sink);
    job_free(finished);
    return rc;
}

static int run_job(pl_engine *engine, const pl_job *job, const pl_run_options *given,
                   pl_run_report *report)
{
    pl_run_options options;
    int rc = OPTIONS_TAKE(pl_run_options, &options, given, &engine->error);
    return rc == OK ? api_run(engine, job, &options, NULL, report) : rc;
}

int pl_run(pl_engine *engine, const pl_job *job, const pl_run_options *options,
           pl_run_report *report)
{
    RETURN_GUARDED(engine, run_job(engine, job, options, report));
}

enum { STRIPES = 4 };

#define PAUSE_STEP   (WORLD_SECOND / 20)
#define PAUSE_FIRST  (WORLD_SECOND / 10)
#define PAUSED_STEP  (WORLD_SECOND / 4)
#define PAUSE_MAX    (5 * WORLD_SECOND)
#define REPORT_EVERY (10 * WORLD_SECOND)

struct working {
    const pl_work_options *options;
    struct work_watch watch;
    struct world *world;
    struct train_host host;
};

static void on_work(void *user, const struct work_progress *p)
{
    const struct working *w = user;
    const pl_work_progress progress = {
        .stage = (pl_work_stage)p->stage,
        .run = p->run,
        .driver = w->host.drivers[0],
        .worker = p->self,
        .workers = p->workers,
        .steps = p->steps,
        .loss = p->loss,
        .samples_per_s = p->samples_per_s,
        .reason = p->reason,
    };
    w->options->progress(w->options->user, &progress);
}

static int work_task(void *arg)
{
    struct working *w = arg;
    return train_work(w->world, &w->host);
}

/* It lasts, and is on a disk, where /tmp may be in memory. */
#define CACHE_DIRECTORY "/var/tmp"

enum { DRIVERS_MAX = 16, DRIVERS_TEXT_MAX = 1024 };

/* Where the driver is, or may be when it has returned: tried in turn. */
struct drivers {
    char text[DRIVERS_TEXT_MAX];
    const char *at[DRIVERS_MAX];
    size_t count, turn;
};

static int find_drivers(struct drivers *d, const char *text, bool keyed, struct err *err)
{
    int rc = OK;
    *d = (struct drivers){.count = 0};
    if (!text || strlen(text) >= sizeof d->text)
        return err_set(err, ERR_INPUT, text ? "driver: that is too long" : "driver: no address");
    memcpy(d->text, text, strlen(text) + 1);
    for (char *at = d->text; at; d->count++) {
        char *comma = strchr(at, ',');
        if (d->count == DRIVERS_MAX)
            return err_set(err, ERR_INPUT, "driver: %d addresses at most", DRIVERS_MAX);
        if (comma)
            *comma++ = '\0';
        rc = rc == OK ? real_check_driver(at, keyed, err) : rc;
        d->at[d->count] = at;
        at = comma;
    }
    return rc;
}

/* The driver addresses, from the one whose turn it is on; NULL ends the list. */
static void in_turn(const struct drivers *d, const char *out[DRIVERS_MAX + 1])
{
    for (size_t i = 0; i < d->count; i++)
        out[i] = d->at[(d->turn + i) % d->count];
    out[d->count] = NULL;
}

/* The folder to stay in, by its whole name; "": there is none. */
static int find_root(const pl_work_options *options, const struct drivers *drivers, char *root,
                     size_t size, struct err *err)
{
    const char *folder = options->data_root;
    bool near = true;
    for (size_t i = 0; i < drivers->count; i++)
        near &= real_is_loopback(drivers->at[i]);
    const char *urls = options->data_urls;
    root[0] = '\0';
    if (urls && (!remote_is_url(urls) || urls[strlen(urls) - 1] != '/'))
        return err_set(err, ERR_INPUT,
                       "data URLs: expected the begin of URLs with a slash at its end, as in "
                       "https://host/data/");
    if (!folder && near)
        return OK;
    int rc = file_canonical(folder ? folder : ".", root, size, err);
    if (rc != OK)
        err_prefix(err, "data root");
    return rc;
}

/* How a stay with the driver has ended. */
struct stay {
    bool connected;      /* the driver was there */
    bool given_up;       /* it was lost since and did not return in time */
    bool left;           /* this worker has left the run, as it was to, */
    bool asked_to_leave; /* by the driver */
};

/* Longer than a life is for ever. */
static int64_t retry_time(const pl_work_options *options)
{
    return (int64_t)(fmin(fmax(options->retry_s, 0), 1e9) * 1e9);
}

/* A worker sometimes measures again whether the earlier runs' choices are still the best. */
static struct tuner *checking_tuner(pl_engine *engine)
{
    struct tuner *tuner = api_tuner(&engine->tuning, &engine->log);
    if (tuner)
        tuner_check(tuner, (uint64_t)real_now() / WORLD_SECOND);
    return tuner;
}

/* The caller's part of a worker's host. */
static struct train_host worker_host(pl_engine *engine, const pl_work_options *options,
                                     const char *root)
{
    const char *cache = options->cache_directory ? options->cache_directory : CACHE_DIRECTORY;
    return (struct train_host){
        .data_root = root[0] ? root : NULL,
        .data_urls = options->data_urls,
        .remote = engine->remote,
        .bindings = &engine->bindings,
        .cache_disk = real_disk(),
        .cache_folder = cache,
        .run_disk = real_disk(),
        .run_folder = options->run_directory,
        .one_machine = options->one_machine,
        .check_address = real_reach,
        .delay = census_delay,
        .threads = options->threads,
        .cores = (uint32_t)real_cores(),
        .log = &engine->log,
        .tuner = checking_tuner(engine),
        .timing = group_timing_lan(),
        .retry = retry_time(options),
        .leave = api_flag(options->leave),
        .pause = api_flag(options->pause),
    };
}

static int join_and_work(pl_engine *engine, const pl_work_options *options,
                         const struct drivers *drivers, const char *root, struct stay *stay)
{
    atomic_bool alone = false;
    const char *addresses[DRIVERS_MAX + 1];
    char name[HOST_NAME_SIZE], cpu[HOST_CPU_SIZE];
    struct err why = {.status = OK};
    in_turn(drivers, addresses);
    real_host_name(name, sizeof name);
    real_cpu_name(cpu, sizeof cpu);
    struct working w = {.host = worker_host(engine, options, root)};
    w.host.name = name;
    w.host.cpu = cpu;
    w.host.memory = real_memory_bytes();
    w.host.drivers = addresses;
    w.host.given_up = &alone;
    w.host.left = &stay->left;
    w.host.asked_to_leave = &stay->asked_to_leave;
    w.host.why = &why;
    w.options = options;
    w.watch = (struct work_watch){on_work, &w};
    w.host.work = options->progress ? &w.watch : NULL;
    const struct real_options real = {
        .log = &engine->log,
        .listen = options->listen,
        .advertise = options->advertise,
        .insecure = options->insecure,
        .key = options->key,
        .numbers = VIEW_MEMBERS_MAX,
        .max_mbit = options->max_mbit,
        .nice = options->nice,
        .driver = addresses[0],
        .stripes = STRIPES, /* the job, which sets the number in use, is not known yet */
    };
    int rc = real_open(&real, &w.world, &engine->error);
    stay->connected = rc == OK;
    if (rc != OK)
        return rc;
    engine->error.text[0] = '\0';
    w.host.run = real_run_of(w.world);
    rc = real_run(w.world, work_task, &w, &engine->error);
    uint32_t self = w.world->self;
    real_close(w.world);
    stay->given_up = rc != OK && atomic_load(&alone);
    if (stay->given_up)
        rc = err_set(&engine->error, ERR_PEER, "driver at %s: it has not returned in %g s",
                     options->driver, options->retry_s);
    if (rc != OK && engine->error.text[0] == '\0')
        err_set(&engine->error, rc, "worker %u%s: %s", self, rc == why.status ? "" : " ended",
                rc == why.status ? why.text : status_text(rc));
    return rc;
}

static bool is_leaving(const pl_work_options *options)
{
    return options->leave && pl_flag_get(options->leave);
}

static bool is_paused(const pl_work_options *options)
{
    return options->pause && pl_flag_get(options->pause);
}

static void wait_briefly(const pl_work_options *options, int64_t ns)
{
    real_sleep(ns);
    if (options->tick)
        options->tick(options->user);
}

/* false: it is to leave for good. */
static bool wait_while_paused(pl_engine *engine, const pl_work_options *options)
{
    bool paused = is_paused(options);
    if (paused)
        log_info(&engine->log, "paused: this worker waits until it is resumed");
    while (is_paused(options) && !is_leaving(options))
        wait_briefly(options, PAUSED_STEP);
    if (paused && !is_leaving(options))
        log_info(&engine->log, "resumed: it joins the run again");
    return !paused || !is_leaving(options);
}

/* Each pause is longer than the last, since other workers reconnect, too. */
static void pause_for(const pl_work_options *options, int64_t *pause)
{
    int64_t until = real_now() + *pause;
    while (!is_leaving(options) && real_now() < until)
        wait_briefly(options, PAUSE_STEP < until - real_now() ? PAUSE_STEP : until - real_now());
    *pause = *pause == 0 ? PAUSE_FIRST : 2 * *pause < PAUSE_MAX ? 2 * *pause : PAUSE_MAX;
}

/* Report at once, and then at intervals, for a user who watches. */
static void report_retry(const struct logger *log, const char *why, int64_t since, int64_t patience,
                         int64_t *reported_at)
{
    int64_t now = real_now(), every = patience / 6 < REPORT_EVERY ? patience / 6 : REPORT_EVERY;
    double left = world_seconds(since + patience - now);
    if (*reported_at > 0 && now - *reported_at < every)
        return;
    if (*reported_at == 0)
        log_warn(log, "%s; it tries again for %.0f s", why, left);
    else
        log_warn(log, "%s; it has tried for %.0f s, and tries again for %.0f s", why,
                 world_seconds(now - since), left);
    *reported_at = now;
}

/* A worker that finds no driver yet, or has lost its driver, tries to rejoin; one that the driver
 * refuses does not. */
static int keep_working(pl_engine *engine, pl_work_options *options, char **own_key)
{
    int64_t lost_at = real_now(), pause = 0, patience = retry_time(options), reported_at = 0;
    bool before = patience > 0;
    char root[PATH_TEXT_MAX];
    struct drivers drivers;
    int found = find_drivers(&drivers, options->driver, options->key, &engine->error);
    if (found == OK && !options->key) /* they are at loopback */
        found = api_key_choose(&engine->log, &engine->error, NULL, NULL, own_key, &options->key);
    if (found == OK)
        found = find_root(options, &drivers, root, sizeof root, &engine->error);
    if (found != OK)
        return found;
    for (;;) {
        struct stay stay = {0};
        int64_t paused_at = is_paused(options) ? real_now() : 0;
        if (!wait_while_paused(engine, options))
            return OK;
        if (paused_at > 0)
            lost_at += real_now() - paused_at;
        int rc = join_and_work(engine, options, &drivers, root, &stay);
        if (rc == OK && stay.left && !is_leaving(options)) { /* for a pause, or room for others */
            lost_at = real_now();                            /* as at the beginning */
            pause = 0;
            continue;
        }
        bool lost = stay.connected && rc == ERR_DRIVER && patience > 0;
        if (rc == OK || stay.given_up || (stay.connected && !lost) ||
            (!stay.connected && (!before || rc != ERR_PEER)))
            return rc;
        if (lost) {
            lost_at = real_now();
            pause = 0;
            log_warn(
                &engine->log,
                "the driver is lost, or has given this worker up: it joins again as a new one");
        } else if (real_now() - lost_at >= patience) {
            return rc;
        } else {
            report_retry(&engine->log, engine->error.text, lost_at, patience, &reported_at);
        }
        int64_t rest = lost_at + patience - real_now();
        pause = pause < rest ? pause : rest;
        drivers.turn = (drivers.turn + !stay.connected) % drivers.count;
        if (stay.connected || drivers.turn == 0)
            pause_for(options, &pause);
        if (is_leaving(options))
            return OK;
    }
}

static int work_by(pl_engine *engine, const pl_work_options *given)
{
    pl_work_options options;
    char *own_key = NULL;
    int rc = OPTIONS_TAKE(pl_work_options, &options, given, &engine->error);
    if (rc == OK)
        rc = keep_working(engine, &options, &own_key);
    secret_free(own_key);
    return rc;
}

int pl_work(pl_engine *engine, const pl_work_options *options)
{
    RETURN_GUARDED(engine, work_by(engine, options));
}
