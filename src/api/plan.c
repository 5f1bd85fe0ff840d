#include "paceline/plan.h"

#include "api/api.h"
#include "api/caffe_project.h"
#include "api/guard.h"
#include "api/option_size.h"
#include "api/plan_round.h"
#include "api/plan_simulate.h"
#include "api/plan_step.h"
#include "base/arena.h"
#include "base/minmax.h"
#include "base/status.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS_USUAL = 16 };

#define ALIKE      1.02
#define CARRIED    0.5 /* of a strategy's exchanges: else it is not what it is called */
#define AUTO_SHARE 5   /* tau_auto: parts of computing to one of exchanging (strategy/sync.c) */

struct planning {
    pl_engine *engine;
    const pl_job *given;
    const Paceline__Cluster *cluster;
    uint32_t least, most; /* workers */
    uint32_t slices;      /* of the job; a row of one worker has the whole model */
    double price;
    struct arena arena;
    const char *own; /* the strategy of the job, if it has one; else NULL */
    struct plan_steps steps;
    struct plan_round round; /* of the row under way */
    size_t rows_max, notes_max;
    pl_plan_report report;
};

/* ---- lines on what is missing ---- */

__attribute__((format(printf, 2, 3))) static void add_note(struct planning *p, const char *format,
                                                           ...)
{
    va_list args;
    char text[sizeof p->report.note->text];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (size_t i = 0; i < p->report.notes; i++)
        if (strcmp(p->report.note[i].text, text) == 0)
            return;
    if (p->report.notes < p->notes_max)
        memcpy(p->report.note[p->report.notes++].text, text, sizeof text);
}

static void note_cluster(struct planning *p)
{
    const Paceline__Cluster *c = p->cluster;
    if (c->n_fault > 0 || c->n_delay > 0)
        add_note(p, "the cluster's faults and delays are left out");
    if (c->link->loss > 0)
        add_note(p, "the loss of the cluster's links is left out");
    if (c->costs && (c->costs->has_copy_gb_s || c->costs->has_crypto_gb_s))
        add_note(p, "the cluster's costs of copies and of encryption are left out");
}

/* ---- a row ---- */

static uint64_t bytes_of(const struct round_node *node)
{
    return node->sent + node->received;
}

static uint64_t memory_of(const struct round_memory *m)
{
    return m->model + m->gradient + m->optimizer + m->strategy + m->exchange + m->messages +
           m->workspace;
}

/* Samples of a worker's step: its mean share where the workers share a batch out, and of the first
 * batch where it grows. */
static double step_samples(const Paceline__Job *job)
{
    if (!job_shares_batch(job))
        return job_step_records(job);
    uint32_t all = job->batch_growth ? job->batch_growth->first : job->global_batch;
    return (double)all / job->workers;
}

static void fill_row(const struct planning *p, const Paceline__Job *job,
                     const struct round_cost *cost, const struct round_node *node, pl_plan_row *row)
{
    double paces = 0, sum = 0;
    for (uint32_t i = 1; i <= row->workers; i++) {
        sum += node[i].utilisation;
        paces += node[i].pace;
        uint64_t bytes = bytes_of(&node[i]), memory = memory_of(&node[i].memory);
        row->worker_bytes = bytes > row->worker_bytes ? bytes : row->worker_bytes;
        row->worker_memory = memory > row->worker_memory ? memory : row->worker_memory;
    }
    row->algorithm = cost->algorithm == COLL_AUTO ? "" : coll_algorithm_name(cost->algorithm);
    row->step_s = cost->step;
    row->round_steps = cost->steps;
    row->round_s = cost->seconds;
    row->exchange_s = cost->exchange;
    row->carried = cost->carried;
    row->samples_per_s = step_samples(job) * cost->steps * paces / job->slices;
    row->utilisation = sum / row->workers;
    row->driver_bytes = bytes_of(&node[0]);
    row->epoch_s = (double)p->report.records / row->samples_per_s;
    row->epoch_cost = row->epoch_s / 3600 * p->price * row->workers;
}

/* τ of tau_auto follows from the time of an exchange. */
static int predict_round(struct round_config *config, const struct round_cluster *cluster,
                         const struct round_model *model, struct round_cost *cost,
                         struct round_node *node)
{
    bool automatic = config->tau == 0;
    config->tau = automatic ? 1 : config->tau;
    int rc = round_predict(config, cluster, model, cost, node);
    if (rc != OK || !automatic)
        return rc;
    double tau = round(AUTO_SHARE * (cost->seconds / cost->compute - 1));
    config->tau = tau > 1 ? (uint64_t)min_double(tau, UINT32_MAX) : 1;
    return round_predict(config, cluster, model, cost, node);
}

static int predict_row(struct planning *p, const Paceline__Job *job, struct plan_round *round,
                       const struct planned_batch *b, double seconds, pl_plan_row *row)
{
    size_t nodes = (size_t)row->workers + 1;
    double *memory = malloc(3 * nodes * sizeof *memory);
    struct round_node *node = malloc(nodes * sizeof *node);
    const struct round_model model = plan_model_of(&b->learner);
    struct round_cost cost;
    int rc = ERR_NOMEM;
    if (memory && node) {
        const struct round_cluster cluster = plan_cluster_of(
            p->cluster, job, seconds, row->step_from != PL_PLAN_MEASURED, row->workers, memory);
        rc = predict_round(&round->config, &cluster, &model, &cost, node);
        if (rc == OK)
            fill_row(p, job, &cost, node, row);
    }
    free(memory), free(node);
    return rc == OK ? OK : err_set(&p->engine->error, rc, "out of memory for %zu nodes", nodes);
}

/* A strategy that the job does not fit is a line; an error ends the planning. */
static int plan_candidate(struct planning *p, const Paceline__Job *job, const char *strategy)
{
    struct plan_round *round = &p->round;
    const struct planned_batch *b;
    double seconds;
    PL_ASSERT(p->report.rows < p->rows_max);
    pl_plan_row row = {
        .strategy = strategy, .workers = job->workers, .batch = job_step_records(job)};
    int rc = plan_step_find(&p->steps, job, &b, &seconds, &row.step_from);
    if (rc != OK)
        return rc;
    p->report.records =
        job->local_data && job->has_epoch_records ? (size_t)job->epoch_records : b->learner.records;
    const char *why = plan_round_of(job, &b->learner, round);
    if (why) {
        add_note(p, "%s: %s", strategy, why);
        return OK;
    }
    rc = predict_row(p, job, round, b, seconds, &row);
    if (rc == OK && row.carried < CARRIED)
        add_note(p, "%s with %" PRIu32 " workers: the links carry only %.0f %% of its exchanges",
                 strategy, row.workers, 100 * row.carried);
    if (rc == OK)
        p->report.row[p->report.rows++] = row;
    return rc;
}

/* ---- the candidates ---- */

/* The job with so many workers, and another strategy than its own with that one's defaults. */
static int copy_candidate(struct planning *p, const char *strategy, uint32_t workers, pl_job **out)
{
    struct err *err = &p->engine->error;
    char taken[JOB_TAKEN_MAX], text[32];
    int rc = api_job_copy(p->given, out);
    if (rc != OK)
        return rc;
    snprintf(text, sizeof text, "workers=%" PRIu32, workers);
    if (!p->own || strcmp(p->own, strategy) != 0)
        rc = job_set_strategy((*out)->message, strategy, err);
    if (rc == OK)
        rc = job_override((*out)->message, text, taken, err);
    if (rc == OK && workers == 1 && p->slices > 1)
        rc = job_override((*out)->message, "slices=1", taken, err);
    if (rc != OK)
        pl_job_free(*out);
    return rc;
}

static int make_candidate(struct planning *p, const char *strategy, uint32_t workers,
                          Paceline__Job **out)
{
    struct err *err = &p->engine->error;
    pl_job *copy;
    const struct strategy_ops *ops;
    struct strategy_traits traits;
    int rc = copy_candidate(p, strategy, workers, &copy);
    if (rc != OK)
        return rc;
    rc = api_job_finish(copy, 1, out);
    pl_job_free(copy);
    if (rc == OK)
        rc = strategy_find(*out, &ops, &traits, err);
    if (rc != OK)
        job_free(*out), *out = NULL;
    return rc;
}

static int plan_strategy(struct planning *p, const char *strategy, uint32_t workers)
{
    Paceline__Job *job = NULL;
    if ((workers == 1) != (strcmp(strategy, "single") == 0))
        return OK; /* one worker has nothing to exchange */
    if (workers > 1 && workers % p->slices != 0)
        return OK; /* a replica would lack slices */
    int rc = make_candidate(p, strategy, workers, &job);
    if (rc == ERR_INPUT || rc == ERR_UNSUPPORTED) {
        add_note(p, "%s: %s", strategy, p->engine->error.text);
        return OK;
    }
    if (rc == OK)
        rc = plan_candidate(p, job, strategy);
    job_free(job);
    return rc;
}

static int plan_rows(struct planning *p)
{
    int rc = OK;
    for (uint32_t k = p->least; rc == OK && k <= p->most; k++)
        for (size_t i = 0; rc == OK && plan_modelled[i]; i++)
            rc = plan_strategy(p, plan_modelled[i], k);
    if (rc == OK && p->report.rows == 0)
        rc = err_set(&p->engine->error, ERR_UNSUPPORTED, "nothing can be planned: %s",
                     p->report.notes ? p->report.note[0].text : "there is no strategy");
    return rc;
}

/* The fastest row of `least` workers or more, of a strategy that is not among the `count` first
 * ones of `left_out`; of those that are about as fast, the one with the fewest workers. */
static size_t find_best(const pl_plan_report *r, uint32_t least, const char *const *left_out,
                        size_t count)
{
    double most = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < r->rows; i++) {
            const pl_plan_row *row = &r->row[i];
            size_t same = 0;
            while (same < count && strcmp(row->strategy, left_out[same]) != 0)
                same++;
            if (row->workers < least || row->carried < CARRIED || same < count)
                continue;
            if (pass == 1 && row->samples_per_s * ALIKE >= most)
                return i;
            most = max_double(most, row->samples_per_s);
        }
    return SIZE_MAX;
}

static void choose_best(pl_plan_report *r)
{
    r->best = find_best(r, 1, NULL, 0);
    r->several = find_best(r, 2, NULL, 0);
    r->single = r->row[0].workers == 1 ? 0 : SIZE_MAX;
}

/* ---- rows that are simulated ---- */

/* Bytes of all nodes: each has its vectors, and they share the nets. */
static uint64_t bytes_of_nodes(const pl_plan_row *row, const struct planned_batch *b)
{
    uint64_t shared = plan_model_of(&b->learner).workspace, all = row->worker_memory;
    uint64_t own = all > shared ? all - shared : all;
    return own * (row->workers + 1) + shared;
}

/* A measured step is that of the whole machine; a simulated node divides it among its cores. */
static int make_trial(struct planning *p, pl_plan_row *row, struct plan_trial *out)
{
    const Paceline__Node *first = cluster_node(p->cluster, 0);
    const struct planned_batch *b;
    pl_plan_source from;
    Paceline__Job *job;
    double seconds;
    *out = (struct plan_trial){.row = row};
    int rc = make_candidate(p, row->strategy, row->workers, &job);
    if (rc != OK)
        return rc;
    rc = plan_step_find(&p->steps, job, &b, &seconds, &from);
    if (rc == OK)
        rc = plan_step_learner(&p->steps, job, true, &b);
    if (rc == OK) {
        uint32_t cores = first->cores < job->local ? first->cores : job->local;
        out->step_s = seconds / job->iter_size * (from == PL_PLAN_MEASURED ? cores : 1);
        out->record_s = b->seconds / job_step_records(job);
        out->bytes = bytes_of_nodes(row, b);
        rc = copy_candidate(p, row->strategy, row->workers, &out->job);
    }
    job_free(job);
    return rc;
}

/* One machine alone, and the best row of each of the best strategies. */
static size_t choose_trials(pl_plan_report *r, pl_plan_row *row[PLAN_TRIALS_MAX])
{
    const char *taken[PLAN_TRIALS_MAX];
    size_t count = 0;
    if (r->single != SIZE_MAX)
        row[count++] = &r->row[r->single];
    for (size_t n = 0; n < PLAN_TRIALS_MAX - 1; n++) {
        size_t next = find_best(r, 2, taken, n);
        if (next == SIZE_MAX)
            break;
        row[count++] = &r->row[next];
        taken[n] = r->row[next].strategy;
    }
    return count;
}

static void note_trials(struct planning *p, const struct plan_trials *t, double wanted)
{
    if (t->shortened)
        add_note(p,
                 "simulated for %.3g s in place of %g s, which would take about %.0f s here: "
                 "--simulate-limit %.0f simulates all of it",
                 t->seconds, wanted, t->whole_s, ceil(t->whole_s));
    for (size_t i = 0; i < t->count; i++)
        if (t->trial[i].note[0])
            add_note(p, "%s", t->trial[i].note);
}

static int simulate_rows(struct planning *p, const pl_plan_options *options)
{
    pl_plan_row *row[PLAN_TRIALS_MAX];
    struct plan_trials t = {
        .engine = p->engine,
        .cluster = p->cluster,
        .options = options,
        .records = p->report.records,
    };
    size_t count = choose_trials(&p->report, row);
    int rc = OK;
    for (; rc == OK && t.count < count; t.count += rc == OK)
        rc = make_trial(p, row[t.count], &t.trial[t.count]);
    if (rc == OK)
        rc = plan_simulate(&t);
    if (rc == OK) {
        p->report.simulated_s = t.seconds;
        p->report.evaluated = PLAN_EVALUATED;
        p->report.interrupted = t.interrupted;
        note_trials(p, &t, options->simulate_s);
    }
    for (size_t i = 0; i < t.count; i++)
        pl_job_free(t.trial[i].job);
    return rc;
}

/* ---- the call ---- */

static bool is_span(double seconds)
{
    return seconds >= 0 && seconds <= 1e9;
}

static int planning_open(struct planning *p, const pl_plan_options *options)
{
    struct err *err = &p->engine->error;
    uint32_t nodes = cluster_nodes(p->cluster);
    bool chooses = job_is_auto(p->given->message);
    Paceline__Job *base;
    size_t strategies = 0;
    int rc = api_job_finish(p->given, 1, &base);
    if (rc != OK)
        return rc;
    p->slices = base->slices;
    uint32_t usual = chooses ? job_workers_max(base) : WORKERS_USUAL, job_batch = base->batch;
    job_free(base);
    p->least = options->workers_min ? options->workers_min : 1;
    p->most = options->workers_max ? options->workers_max : nodes < usual ? nodes : usual;
    if (!options->workers_max && p->most < p->least)
        p->most = p->least;
    p->price = options->price;
    if (p->most > nodes || p->least > p->most)
        return err_set(err, ERR_USAGE,
                       "workers: from %" PRIu32 " to %" PRIu32 ", but the cluster has %" PRIu32
                       " node%s; write 1..%" PRIu32,
                       p->least, p->most, nodes, nodes == 1 ? "" : "s", nodes);
    if (!is_span(options->simulate_s) || !is_span(options->simulate_limit_s))
        return err_set(err, ERR_USAGE,
                       "simulate: seconds must be from 0 to 1e9, are %g, with a limit of %g",
                       options->simulate_s, options->simulate_limit_s);
    if (!(p->price >= 0))
        return err_set(err, ERR_USAGE, "price: must not be negative, is %g", p->price);
    p->steps = (struct plan_steps){
        .engine = p->engine,
        .given = p->given,
        .cluster = p->cluster,
        .arena = &p->arena,
        .job_batch = job_batch,
        .room = p->most + 2,
        .batch = arena_array(&p->arena, p->most + 2, struct planned_batch),
    };
    const Paceline__Strategy *own = p->given->message->strategy;
    p->own = own && own->algorithm_case && !chooses ? job_strategy_name(p->given->message) : NULL;
    while (plan_modelled[strategies])
        strategies++;
    p->rows_max = (size_t)p->most * strategies;
    p->notes_max = p->rows_max + 10 + PLAN_TRIALS_MAX;
    p->report.row = calloc(p->rows_max, sizeof *p->report.row);
    p->report.note = calloc(p->notes_max, sizeof *p->report.note);
    return p->report.row && p->report.note && p->steps.batch
               ? OK
               : err_set(err, ERR_NOMEM, "out of memory for a plan");
}

static void note_rest(struct planning *p, const pl_plan_options *options)
{
    uint32_t nodes = cluster_nodes(p->cluster);
    note_cluster(p);
    if (p->given->message->batch_growth)
        add_note(p, "batch_growth: all rows are for its first batch, %" PRIu32,
                 p->given->message->batch_growth->first);
    if (p->most < nodes && !options->workers_max)
        add_note(p,
                 "the cluster has %" PRIu32 " nodes: --workers %" PRIu32 "..%" PRIu32
                 " plans them all",
                 nodes, p->least, nodes);
}

static int plan_job(pl_engine *engine, const pl_job *job, const Paceline__Cluster *cluster,
                    const pl_plan_options *given, pl_plan_report *report)
{
    struct planning p = {.engine = engine, .given = job, .cluster = cluster};
    pl_plan_options own, *options = &own;
    arena_init(&p.arena);
    int rc = OPTIONS_TAKE(pl_plan_options, &own, given, &engine->error);
    if (rc == OK)
        rc = api_check_solver_data(job);
    if (rc == OK)
        rc = planning_open(&p, options);
    if (rc == OK)
        rc = plan_rows(&p);
    if (rc == OK) {
        note_rest(&p, options);
        choose_best(&p.report);
    }
    if (rc == OK && options->simulate_s > 0)
        rc = simulate_rows(&p, options);
    if (rc == OK)
        *report = p.report;
    else
        pl_plan_release(&p.report);
    arena_release(&p.arena);
    return rc;
}

int pl_plan(pl_engine *engine, const pl_job *job, const pl_cluster *cluster,
            const pl_plan_options *options, pl_plan_report *report)
{
    RETURN_GUARDED(engine, plan_job(engine, job, api_cluster(cluster), options, report));
}

void pl_plan_release(pl_plan_report *report)
{
    free(report->row), free(report->note);
    report->row = NULL, report->note = NULL;
    report->rows = 0, report->notes = 0;
}
