/* A plan is played: the driver and the workers of train, on simulated machines, with the storm
 * looking on. Where the driver dies for good the run resumes from its checkpoint, with others. */
#include "job/cluster.h"
#include "learner/learner.h"
#include "live.h"
#include "real/disk.h"
#include "storm.h"
#include "tensor/kernels.h"
#include "wire/catalogue.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIMIT (200 * WORLD_SECOND)

/* Workers wait for a lost driver for longer than any is away. */
#define RETRY (9 * WORLD_SECOND / 5)

/* ---- the ground ---- */

enum { SIDE = 6, TRAIN = 400, TEST = 12, CLASSES = 3 };

static const char net_text[] =
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
    "layer { name: 'ip1' type: 'InnerProduct' bottom: 'data' top: 'ip1'\n"
    "  inner_product_param { num_output: 24 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'ip1' top: 'ip1' }\n"
    "layer { name: 'ip2' type: 'InnerProduct' bottom: 'ip1' top: 'ip2'\n"
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip2' bottom: 'label' top: 'loss' }\n";

/* A record is three steps of twelve pixels. */
static const char recurrent_text[] =
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
    "layer { name: 'steps' type: 'Reshape' bottom: 'data' top: 'steps'\n"
    "  reshape_param { shape { dim: 0 dim: 3 dim: 12 } } }\n"
    "layer { name: 'units' type: 'LSTM' bottom: 'steps' top: 'units' recurrent_param {\n"
    "  num_output: 8 weight_filler { type: 'uniform' min: -0.3 max: 0.3 } } }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'units' top: 'ip'\n"
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

static const char branches_text[] =
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
    "layer { name: 'ip1' type: 'InnerProduct' bottom: 'data' top: 'ip1'\n"
    "  inner_product_param { num_output: 12 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'ip1' top: 'ip1' }\n"
    "layer { name: 'left' type: 'InnerProduct' bottom: 'ip1' top: 'left'\n"
    "  inner_product_param { num_output: 9 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'right' type: 'InnerProduct' bottom: 'ip1' top: 'right'\n"
    "  inner_product_param { num_output: 9 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'sum' type: 'Eltwise' bottom: 'left' bottom: 'right' top: 'sum' }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'sum' top: 'ip'\n"
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

static const struct {
    const char *file, *text;
} nets[GROUND_NETS] = {
    [NET_PLAIN] = {"net.prototxt", net_text},
    [NET_RECURRENT] = {"recurrent.prototxt", recurrent_text},
    [NET_BRANCHES] = {"branches.prototxt", branches_text},
};

static const char job_text[] =
    "name: 'storm' net { file: '%s/%s' }\n"
    "train_data { idx { images: '%s/train-images' labels: '%s/train-labels' } scale: 0.004 %s }\n"
    "test_data { idx { images: '%s/test-images' labels: '%s/test-labels' } scale: 0.004 }\n"
    "batch: 2 threads: 1 kernels: ref collective { chunk_kb: 1 }\n"
    "solver { base_lr: 0.02 momentum: 0.9 lr_policy: 'fixed' }\n"
    "evaluate { every_exchanges: 100000 } checkpoint { every_seconds: 0.08 }\n";

static FILE *open_in(const struct ground *ground, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", ground->folder, name);
    FILE *f = fopen(path, "wb");
    if (!f)
        abort();
    return f;
}

static void put_be32(FILE *f, uint32_t v)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        fputc((int)(v >> shift & 0xff), f);
}

static void write_set(const struct ground *ground, const char *name, uint32_t count)
{
    char file[32];
    snprintf(file, sizeof file, "%s-images", name);
    FILE *images = open_in(ground, file);
    snprintf(file, sizeof file, "%s-labels", name);
    FILE *labels = open_in(ground, file);
    put_be32(images, 0x803), put_be32(images, count), put_be32(images, SIDE);
    put_be32(images, SIDE), put_be32(labels, 0x801), put_be32(labels, count);
    for (uint32_t i = 0; i < count; i++) {
        fputc((int)(i % CLASSES), labels);
        for (uint32_t p = 0; p < SIDE * SIDE; p++)
            fputc((int)(rng_u64(9, i, p) % 100 + (p % CLASSES == i % CLASSES ? 150 : 0)), images);
    }
    fclose(images);
    fclose(labels);
}

static void expect_ok(int rc, const struct err *err)
{
    if (rc == OK)
        return;
    fprintf(stderr, "storm: %s\n", err->text);
    abort();
}

static void on_log(void *user, enum log_level level, const char *line)
{
    const struct ground *ground = user;
    (void)level;
    if (ground->loud)
        fprintf(stderr, "             | %s\n", line);
}

static Paceline__Job *new_job(const struct ground *ground, enum ground_nets net)
{
    char text[2048];
    struct err err = {0};
    Paceline__Job *job = NULL;
    const char *f = ground->folder;
    snprintf(text, sizeof text, job_text, f, nets[net].file, f, f,
             net == NET_RECURRENT ? "streams: 24" : "", f, f);
    expect_ok(job_parse("storm.job", text, strlen(text), &job, &err), &err);
    return job;
}

static void write_net(const struct ground *ground, const char *name, const char *text)
{
    FILE *net = open_in(ground, name);
    fputs(text, net);
    fclose(net);
}

static void open_net(struct ground *ground, enum ground_nets which)
{
    struct ground_net *net = &ground->net[which];
    struct err err = {0};
    net->job = new_job(ground, which);
    expect_ok(job_set(net->job, "workers=4", &err), &err);
    expect_ok(job_set(net->job, "stop.steps=1", &err), &err);
    expect_ok(job_finish(net->job, &err), &err);
    expect_ok(corpus_open(net->job, NULL, &net->corpus, &err), &err);
    expect_ok(workspace_create(net->job, &net->corpus, &ground->log, NULL, NULL, &net->ws, &err),
              &err);
    expect_ok(vec_init(&net->dx, &ground->arena, net_segments(net->ws->train)->total), &err);
}

void ground_open(struct ground *ground, bool loud)
{
    bool shm = access("/dev/shm", W_OK) == 0;
    *ground = (struct ground){.loud = loud, .log = {.write = on_log, .user = ground}};
    ground->log.level = loud ? LOG_DEBUG : LOG_ERROR;
    snprintf(ground->folder, sizeof ground->folder, "%s/paceline-storm-XXXXXX",
             shm ? "/dev/shm" : "/tmp");
    if (!mkdtemp(ground->folder))
        abort();
    write_set(ground, "train", TRAIN);
    write_set(ground, "test", TEST);
    kernels_set_threads(1);
    arena_init(&ground->arena);
    for (int k = 0; k < GROUND_NETS; k++) {
        write_net(ground, nets[k].file, nets[k].text);
        open_net(ground, k);
    }
}

static void remove_tree(const char *path)
{
    char command[160];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0)
        fprintf(stderr, "storm: %s stays behind\n", path);
}

void ground_close(struct ground *ground)
{
    for (int k = 0; k < GROUND_NETS; k++) {
        workspace_free(ground->net[k].ws);
        corpus_close(&ground->net[k].corpus);
        job_free(ground->net[k].job);
    }
    arena_release(&ground->arena);
    remove_tree(ground->folder);
}

/* ---- one run ---- */

/* The node's state begins or ends. */
static void forget_exchanges(struct storm_node *node)
{
    for (uint32_t l = 0; l < LANES_WATCHED; l++)
        node->lane[l].e = NULL;
}

static void on_driver(void *user, const struct driver *d)
{
    struct storm *s = user;
    if (!d && s->driver)
        watch_ledger(s);
    s->driver = d;
    forget_exchanges(&s->node[NODES_MAX]);
}

static void on_worker(void *user, uint32_t node, const struct worker *w)
{
    struct storm *s = user;
    s->node[node].worker = w;
    s->node[node].ran = true;
    forget_exchanges(&s->node[node]);
}

static void on_exchange_opened(void *user, uint32_t node, const struct exchange *e)
{
    struct storm *s = user;
    if (e->lane < LANES_WATCHED)
        s->node[node == WORLD_DRIVER ? NODES_MAX : node].lane[e->lane].e = e;
}

static void on_served(void *user, const struct ps_server *server, bool recovered)
{
    watch_server(user, server, recovered);
}

static void on_pushed(void *user, uint32_t node, const struct ps_client *client)
{
    watch_client(user, node, client);
}

static int node_main(void *arg, struct world *world)
{
    struct storm *s = arg;
    kernels_set_threads(1);
    if (world->self != WORLD_DRIVER && s->strangers >> world->self & 1) {
        int end = imposter_main(s, world);
        s->node[world->self].ended = true;
        return end;
    }
    const struct train_watch watch = {
        .driver = on_driver,
        .worker = on_worker,
        .user = s,
        .exchanges = {
            .opened = on_exchange_opened, .user = s, .served = on_served, .pushed = on_pushed}};
    struct ground_net *net = &s->ground->net[s->plan->net];
    struct train_host host = {
        .log = &s->ground->log,
        .timing = group_timing_lan(),
        .step_seconds = 0.004,
        .corpus = &net->corpus,
        .ws = net->ws,
        .dx = &net->dx,
        .watch = &watch,
    };
    if (s->plan->slices > 0) /* they wait for each other, and the shared net is of no slices */
        host.ws = NULL;
    if (world->self == WORLD_DRIVER) {
        struct train_options train = s->train;
        train.resume |= s->drivers++ > 0;
        s->disk.world = world;
        s->disk.sim = s->sim;
        s->err.text[0] = '\0';
        return train_drive(world, &host, &train, &s->report, &s->err);
    }
    host.retry = RETRY;
    host.leave = &s->leave[world->self];
    int rc = train_work(world, &host);
    s->node[world->self].rc = rc;
    s->node[world->self].ended = true;
    watch_worker_end(s, world->self, rc);
    return rc;
}

static void on_fault(void *arg, const struct sim_fault *fault)
{
    struct storm *s = arg;
    bool driver = fault->node == WORLD_DRIVER;
    storm_report(s, "%s %d", fault->what, driver ? -1 : (int)fault->node);
    if (strcmp(fault->what, "back") == 0 && driver)
        watch_driver_starts(s);
    if (strcmp(fault->what, "kill") == 0 && driver)
        watch_driver_dies(s);
    if (strcmp(fault->what, "kill") == 0 && !driver)
        s->node[fault->node].dead = true;
}

/* Is no node left that is alive and has not ended by itself? */
static bool all_lost(const struct storm *s)
{
    const struct driver *d = s->driver;
    return d && d->group.world && group_view(&d->group) && group_view(&d->group)->count == 0;
}

static void on_event(void *arg, uint32_t node)
{
    struct storm *s = arg;
    watch_event(s, node);
    if (node == WORLD_DRIVER)
        s->lost_all |= all_lost(s);
    if (s->broken[0] && !s->over)
        strike_all_down(s);
    else if (node != WORLD_ANY) /* no task ran, so no node is in another moment than before */
        strike_if_scheduled(s);
}

static uint32_t kind_of(const char *name)
{
    return (uint32_t)wire_kind_find(name);
}

static void on_line(void *user, const char *line)
{
    watch_line(user, line);
}

static Paceline__Job *job_of(const struct ground *ground, const struct plan *plan)
{
    char field[64];
    struct err err = {0};
    Paceline__Job *job = new_job(ground, plan->net);
    for (int i = 0; i < 4 && plan->set[i]; i++)
        expect_ok((strchr(plan->set[i], '=') ? job_set : job_unset)(job, plan->set[i], &err), &err);
    if (plan->slices > 0) {
        snprintf(field, sizeof field, "standby=%u", plan->workers_max - plan->workers);
        expect_ok(job_set(job, field, &err), &err);
        snprintf(field, sizeof field, "workers_min=%u", plan->workers);
        expect_ok(job_set(job, field, &err), &err);
        snprintf(field, sizeof field, "workers_max=%u", plan->workers);
    } else if (plan->joinable) {
        snprintf(field, sizeof field, "workers_min=%u", plan->workers);
        expect_ok(job_set(job, field, &err), &err);
        snprintf(field, sizeof field, "workers_max=%u", plan->workers_max);
        if (plan->pauses) {
            expect_ok(job_set(job, field, &err), &err);
            expect_ok(job_set(job, "pause_patience_seconds=8", &err), &err);
            snprintf(field, sizeof field, "pause_below=%u", plan->workers);
        }
    } else {
        snprintf(field, sizeof field, "workers=%u", plan->workers);
    }
    expect_ok(job_set(job, field, &err), &err);
    snprintf(field, sizeof field, "stop.steps=%llu", (unsigned long long)plan->steps);
    expect_ok(job_set(job, field, &err), &err);
    snprintf(field, sizeof field, "seed=%llu", (unsigned long long)(plan->seed & 0xffff));
    expect_ok(job_set(job, field, &err), &err);
    if (plan->local_data)
        expect_ok(job_set(job, "local_data=true", &err), &err);
    expect_ok(job_finish(job, &err), &err);
    return job;
}

/* Memory that its tasks have left. */
static void check_leaks(struct storm *s, int64_t before)
{
    int64_t left = live_count() - before;
    if (left != 0)
        storm_break(s, "%lld allocations are left behind", (long long)left);
}

static void play_seed(struct storm *s, enum sim_backend backend, const struct rundir *dir,
                      uint64_t *trace)
{
    const struct plan *plan = s->plan;
    struct err err = {0};
    Paceline__Cluster *cluster = NULL;
    int64_t before = live_count();
    Paceline__Job *job = job_of(s->ground, plan);
    expect_ok(cluster_parse("storm.cluster", plan->cluster, strlen(plan->cluster), &cluster, &err),
              &err);
    expect_ok(cluster_finish(cluster, &err), &err);
    s->records = job_takes_all(job)  ? s->ground->net[0].corpus.set[SET_TRAIN].count /* at most */
                 : job->batch_growth ? job->batch_growth->last
                                     : job_step_records(job);
    s->train = (struct train_options){.job = job,
                                      .dir = dir,
                                      .resume = s->resumes,
                                      .line = on_line,
                                      .user = s,
                                      .patience_s = 60,
                                      .stop = &s->stop};
    const struct sim_options options = {
        .cluster = cluster,
        .workers = plan->nodes,
        .seed = plan->seed,
        .backend = backend,
        .log = &s->ground->log,
        .node_main = node_main,
        .arg = s,
        .kind_of = kind_of,
        .fault = on_fault,
        .observe = on_event,
        .to_the_last = true,
    };
    expect_ok(sim_create(&options, &s->sim, &err), &err);
    int rc = sim_run(s->sim, LIMIT);
    *trace = sim_trace(s->sim);
    watch_end(s, rc);
    sim_free(s->sim);
    s->sim = NULL;
    watch_release(s);
    cluster_free(cluster);
    job_free(job);
    if (backend == SIM_FIBRES) /* threads leave their stacks with the C library */
        check_leaks(s, before);
}

static void add_up(struct table *table, const struct storm *s)
{
    table->exchanges += s->exchanges;
    table->events += s->events;
}

static void remove_one(void *user, const char *name)
{
    char path[RUNDIR_PATH_MAX + 300];
    struct err err;
    snprintf(path, sizeof path, "%s/%s", (const char *)user, name);
    real_disk()->ops->remove(real_disk(), path, &err);
}

static void clear_folder(const char *folder)
{
    char sub[RUNDIR_PATH_MAX + 64];
    struct err err;
    snprintf(sub, sizeof sub, "%s/checkpoint", folder);
    real_disk()->ops->list(real_disk(), sub, remove_one, sub, &err);
    rmdir(sub);
    real_disk()->ops->list(real_disk(), folder, remove_one, (void *)folder, &err);
    rmdir(folder);
}

/* Once, and as often again as the driver dies. A fault that was still to strike does so then. */
void storm_play(struct ground *ground, const struct plan *plan, enum sim_backend backend,
                struct table *table, FILE *trace, struct outcome *out)
{
    struct rundir dir = {0};
    uint32_t struck = 0;
    bool resumed = false;
    *out = (struct outcome){.passed = true};
    snprintf(dir.path, sizeof dir.path, "%s/run", ground->folder);
    mkdir(dir.path, 0700);
    table->seeds++;
    do {
        uint64_t path;
        struct storm *s = calloc(1, sizeof *s);
        if (!s)
            abort();
        *s = (struct storm){.plan = plan, .ground = ground, .table = table, .trace = trace};
        s->resumes = resumed;
        s->struck = struck;
        storm_disk_init(&s->disk);
        dir.disk = &s->disk.disk;
        table->resumed += resumed;
        play_seed(s, backend, &dir, &path);
        add_up(table, s);
        out->trace = out->trace * 31 + path;
        out->passed = s->broken[0] == '\0';
        memcpy(out->why, s->broken, sizeof out->why);
        resumed = s->driver_dead;
        struck = s->struck;
        free(s);
        if (resumed && trace)
            fprintf(trace, "and on, from the newest checkpoint\n");
    } while (resumed && out->passed);
    clear_folder(dir.path);
}
