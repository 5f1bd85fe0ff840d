/* Completion of a parsed job so that it can run: every check that needs no file, then the
 * defaults. */
#include "job/check.h"
#include "job/job.h"
#include "job/job_slices.h"
#include "job/job_solver.h"
#include "job/job_strategy.h"
#include "job/text.h"
#include "job/text_field.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { WORKERS_MAX = 1024, THREADS_MAX = 1024, BATCH_MAX = 65536, LOCAL_MAX = 64 };
enum { BAD_RECORDS_MAX = 10000 };
enum { RECORDS_MAX = 1 << 24 };
enum { SAMPLE_LENGTH_MAX = 100000 };           /* units in one line of events.jsonl */
enum { STRIPES_MAX = 4, CHUNK_KB_MAX = 4096 }; /* a piece is one message: world.h */

/* Make the sub-messages that every reader of a finished job may rely on. */
static int make_parts(Paceline__Job *job, struct err *err)
{
    static const char *const parts[] = {"strategy", "collective", "evaluate", "checkpoint", "stop"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const ProtobufCFieldDescriptor *field =
            text_field_find(job->base.descriptor, parts[i], strlen(parts[i]));
        int rc =
            text_field_is_set(&job->base, field) ? OK : text_set(&job->base, parts[i], "{}", err);
        if (rc != OK)
            return rc;
    }
    if (job->strategy->algorithm_case)
        return OK;
    const char *usual = job_is_alone(job) ? "single" : job->slices > 1 ? "allreduce" : "sync";
    return job_set_strategy(job, usual, err);
}

static bool is_filled(const char *text)
{
    return text && *text;
}

static int check_net(const Paceline__Job *job, struct err *err)
{
    const Paceline__Net *net = job->net;
    if (!net || !net->source_case)
        return err_set(err, ERR_INPUT, "net: is missing; give `net { zoo: \"lenet\" }` or a file");
    if (net->source_case == PACELINE__NET__SOURCE_DEFINE)
        return check_given("net.define.layer", net->define->n_layer > 0, err);
    if (net->source_case == PACELINE__NET__SOURCE_ZOO)
        return check_given("net.zoo", is_filled(net->zoo), err);
    return check_given("net.file", is_filled(net->file), err);
}

/* A rule that can never be judged is no rule: the run would not end where it is to. */
static int check_stop_error(const char *field, double value, const char *measured, struct err *err)
{
    int rc = OK;
    if (value > 1)
        rc = err_set(err, ERR_INPUT, "%s: is a share of the records, at most 1, is %g; write %g",
                     field, value, value / 100);
    return rc == OK && measured ? err_set(err, ERR_INPUT, "%s: %s", field, measured) : rc;
}

static int check_stop(const Paceline__Job *job, struct err *err)
{
    const Paceline__Stop *stop = job->stop;
    const struct {
        const char *field, *remedy;
        bool set;
        double value;
    } ends[] = {
        {"stop.epochs", "; --unset stop.epochs takes it away", stop->has_epochs, stop->epochs},
        {"stop.steps", "; --unset stop.steps takes it away", stop->has_steps, (double)stop->steps},
        {"stop.seconds", "; --unset stop.seconds takes it away", stop->has_seconds, stop->seconds},
        {"stop.validation_error", "; --unset stop.validation_error takes it away",
         stop->has_validation_error, stop->validation_error},
        {"stop.test_error", "; --unset stop.test_error takes it away", stop->has_test_error,
         stop->test_error},
    };
    int rc = OK;
    for (size_t i = 0; rc == OK && i < sizeof ends / sizeof *ends; i++)
        if (ends[i].set)
            rc = check_remedied(check_positive(ends[i].field, ends[i].value, err), ends[i].remedy,
                                err);
    if (rc == OK && stop->has_validation_error)
        rc = check_stop_error("stop.validation_error", stop->validation_error,
                              job->validation > 0
                                  ? NULL
                                  : "there is no validation data to measure it on; hold records of "
                                    "the training data out for it by `validation: N`",
                              err);
    if (rc == OK && stop->has_test_error)
        rc = check_stop_error(
            "stop.test_error", stop->test_error,
            job->test_data ? NULL : "there is no test data to measure it on; give test_data", err);
    return rc;
}

static int check_growth(const Paceline__Job *job, struct err *err)
{
    const Paceline__BatchGrowth *g = job->batch_growth;
    int rc = check_given("batch_growth.first", g->has_first, err);
    if (rc == OK)
        rc = check_given("batch_growth.last", g->has_last, err);
    if (rc == OK)
        rc = check_range("batch_growth.first", g->first, job_workers_max(job), RECORDS_MAX, err);
    if (rc == OK)
        rc = check_range("batch_growth.last", g->last, g->first, RECORDS_MAX, err);
    if (rc == OK)
        rc = check_positive("batch_growth.power", g->power, err);
    if (rc == OK && g->has_epochs)
        rc = check_positive("batch_growth.epochs", g->epochs, err);
    if (rc == OK && job->iter_size != 1)
        rc = err_set(err, ERR_INPUT,
                     "iter_size: must be 1 with batch_growth, which has the records of a step, is "
                     "%" PRIu32,
                     job->iter_size);
    return rc;
}

static int check_shared_batch(const Paceline__Job *job, struct err *err)
{
    const char *field = job->batch_growth ? "batch_growth" : "global_batch";
    if (job->has_batch)
        return err_set(err, ERR_INPUT,
                       "%s: `batch` is set, and one of the two may be; --unset one of them", field);
    if (!job->batch_growth)
        return check_range("global_batch", job->global_batch, job_workers_max(job), RECORDS_MAX,
                           err);
    if (job->has_global_batch)
        return err_set(
            err, ERR_INPUT,
            "batch_growth: `global_batch` is set, and one of the two may be; --unset one "
            "of them");
    return check_growth(job, err);
}

/* The largest share of a worker at the start, in whole records of each of its learners. A larger
 * one, when the batch has grown or workers are lost, is computed in parts: a net takes the time of
 * the records that it is planned for, also for fewer. */
static uint32_t first_share(const Paceline__Job *job)
{
    uint32_t all = job->batch_growth ? job->batch_growth->first : job->global_batch;
    uint32_t local = job->local > 0 && job->local <= LOCAL_MAX ? job->local : 1;
    uint32_t share = (all + job->workers - 1) / job->workers;
    share = (share + local - 1) / local * local;
    return share <= BATCH_MAX ? share : BATCH_MAX / local * local;
}

static int check_follow(const Paceline__Job *job, struct err *err)
{
    const Paceline__FollowBatch *f = job->follow_batch;
    if (!f)
        return OK;
    if (!job_shares_batch(job))
        return err_set(err, ERR_INPUT,
                       "follow_batch: needs a batch of all workers, global_batch or batch_growth");
    int rc = check_remedied(check_given("workers_max", job->has_workers_max, err),
                            "; follow_batch needs it", err);
    if (rc == OK && !f->has_samples_per_s && (f->exchange_s != 0 || f->exchange_s_per_worker != 0))
        rc = check_remedied(check_given("follow_batch.samples_per_s", false, err),
                            "; exchange_s and exchange_s_per_worker need it, and without all three "
                            "the run measures them",
                            err);
    if (rc == OK && f->has_samples_per_s)
        rc = check_positive("follow_batch.samples_per_s", f->samples_per_s, err);
    if (rc == OK && f->has_ratio)
        rc = check_positive("follow_batch.ratio", f->ratio, err);
    if (rc == OK && f->ratio_form == PACELINE__FOLLOW_BATCH__RATIO_FORM__printed && !f->has_ratio)
        rc = check_remedied(check_given("follow_batch.ratio", false, err), "; ratio_form needs it",
                            err);
    if (rc == OK)
        rc = check_not_negative("follow_batch.exchange_s", f->exchange_s, err);
    if (rc == OK)
        rc =
            check_not_negative("follow_batch.exchange_s_per_worker", f->exchange_s_per_worker, err);
    if (rc == OK)
        rc = check_not_negative("follow_batch.change_s", f->change_s, err);
    return rc == OK ? check_fraction("follow_batch.gain", f->gain, err) : rc;
}

static int finish_batch(Paceline__Job *job, struct err *err)
{
    if (job_takes_all(job) && (job_shares_batch(job) || job->iter_size != 1))
        return err_set(err, ERR_INPUT,
                       "%s: strategy full_batch takes all records in each step, `batch` of which a "
                       "worker computes at once; leave it out",
                       job->batch_growth       ? "batch_growth"
                       : job->has_global_batch ? "global_batch"
                                               : "iter_size");
    if (!job_shares_batch(job))
        return check_range("batch", job->batch, 1, BATCH_MAX, err);
    int rc = check_shared_batch(job, err);
    if (rc == OK)
        job->batch = first_share(job);
    return rc;
}

/* `batch` and `threads` are the worker's: its learners share both. */
static int check_local(const Paceline__Job *job, struct err *err)
{
    int rc = check_range("local", job->local, 1, LOCAL_MAX, err);
    if (rc == OK && job->batch % job->local != 0)
        rc = err_set(err, ERR_INPUT, "local: must divide batch, which is %" PRIu32 ", is %" PRIu32,
                     job->batch, job->local);
    if (rc == OK && job->has_threads && job->threads < job->local)
        rc = err_set(err, ERR_INPUT,
                     "local: must be at most threads, which is %" PRIu32 ", is %" PRIu32,
                     job->threads, job->local);
    return rc;
}

/* With a lossy code the two partners of a butterfly would end with different sums. */
static int check_collective(const Paceline__Collective *c, struct err *err)
{
    bool lossy = c->wire != PACELINE__COLLECTIVE__WIRE__f32;
    if (lossy && (c->algorithm == PACELINE__COLLECTIVE__ALGORITHM__butterfly ||
                  c->algorithm == PACELINE__COLLECTIVE__ALGORITHM__ring))
        return err_set(err, ERR_INPUT,
                       "collective.wire: butterfly and ring need f32: with less, workers would end "
                       "with different models");
    bool drops = c->wire == PACELINE__COLLECTIVE__WIRE__topk16 ||
                 c->wire == PACELINE__COLLECTIVE__WIRE__topk64;
    if (drops && c->algorithm != PACELINE__COLLECTIVE__ALGORITHM__auto &&
        c->algorithm != PACELINE__COLLECTIVE__ALGORITHM__scatter_gather)
        return err_set(
            err, ERR_INPUT,
            "collective.wire: topk16 and topk64 need algorithm: scatter_gather, or auto; "
            "others code partial sums again, and each time most of the numbers are left "
            "out");
    int rc = check_range("collective.chunk_kb", c->chunk_kb, 1, CHUNK_KB_MAX, err);
    return rc == OK ? check_range("collective.stripes", c->stripes, 1, STRIPES_MAX, err) : rc;
}

/* Of a step of one worker. */
static int check_records(const Paceline__Job *job, struct err *err)
{
    return (uint64_t)job->batch * job->iter_size <= RECORDS_MAX
               ? OK
               : err_set(err, ERR_INPUT,
                         "iter_size: a step may take %d records, batch * iter_size is %" PRIu64,
                         RECORDS_MAX, (uint64_t)job->batch * job->iter_size);
}

/* A field that sets when or on which records to evaluate; NULL: none is set. */
static const char *find_evaluation(const Paceline__Evaluate *e)
{
    return e->has_every_exchanges           ? "evaluate.every_exchanges"
           : e->has_every_steps             ? "evaluate.every_steps"
           : e->has_at_start && e->at_start ? "evaluate.at_start"
                                            : NULL;
}

static int check_evaluate(const Paceline__Job *job, struct err *err)
{
    const Paceline__Evaluate *e = job->evaluate;
    const char *field = find_evaluation(e);
    int rc = OK;
    if (e->has_every_exchanges)
        rc = check_range("evaluate.every_exchanges", e->every_exchanges, 1, UINT32_MAX, err);
    if (rc == OK && e->has_every_steps)
        rc = check_positive("evaluate.every_steps", (double)e->every_steps, err);
    if (rc == OK && e->has_every_exchanges && e->has_every_steps)
        rc = err_set(err, ERR_INPUT,
                     "evaluate.every_steps: every_exchanges is set, and one of the two may be");
    if (rc == OK && e->has_test_records)
        rc = check_range("evaluate.test_records", e->test_records, 1, UINT32_MAX, err);
    if (rc == OK)
        rc = check_range("evaluate.sample_length", e->sample_length, 0, SAMPLE_LENGTH_MAX, err);
    if (rc == OK && field && job->validation == 0 && !job->test_data)
        rc = err_set(err, ERR_INPUT,
                     "%s: there is nothing to evaluate on; hold records of the training data out "
                     "by `validation: N`, or give test_data",
                     field);
    if (rc == OK && e->has_test_records && !job->test_data)
        rc =
            err_set(err, ERR_INPUT, "evaluate.test_records: there is no test data; give test_data");
    return rc;
}

static int check_parts(Paceline__Job *job, struct err *err)
{
    int rc = job_finish_strategy(job, err);
    if (rc == OK)
        rc = check_collective(job->collective, err);
    if (rc == OK)
        rc = check_evaluate(job, err);
    if (rc == OK)
        rc = check_not_negative("checkpoint.every_seconds", job->checkpoint->every_seconds, err);
    if (rc == OK)
        rc = check_wait("checkpoint.wait_seconds", job->checkpoint->wait_seconds, err);
    if (rc == OK)
        rc = check_range("checkpoint.keep", job->checkpoint->keep, 1, 1000, err);
    return rc != OK ? rc : check_stop(job, err);
}

static void finish_stop(Paceline__Stop *stop)
{
    if (stop->has_epochs || stop->has_steps || stop->has_seconds || stop->has_validation_error ||
        stop->has_test_error)
        return;
    stop->epochs = 1;
    stop->has_epochs = true;
}

static int finish_growth(const Paceline__Job *job, struct err *err)
{
    Paceline__BatchGrowth *g = job->batch_growth;
    if (!g || g->has_epochs)
        return OK;
    g->epochs = job->stop->epochs;
    g->has_epochs = true;
    return check_remedied(check_given("batch_growth.epochs", job->stop->has_epochs, err),
                          "; without stop.epochs it says for how long the batch grows", err);
}

/* Not in the net: each layer defines the meaning of its missing fields. */
static int fill_defaults(Paceline__Job *job, struct err *err)
{
    Paceline__Net *net = job->net;
    job->net = NULL;
    bool filled_in = text_fill_defaults(&job->base);
    job->net = net;
    job->has_batch = job->has_batch && !job_shares_batch(job);
    job_leave_out_elsewhere(job->solver);
    return filled_in ? OK : err_set(err, ERR_NOMEM, "job: out of memory");
}

/* Settle workers_min, workers_max and `workers`, the number that the run begins with. A job that
 * has been finished before has all of them. */
static int finish_workers(Paceline__Job *job, struct err *err)
{
    int rc = OK;
    if (!job->has_workers_min && !job->has_workers_max) {
        rc = check_range("workers", job->workers, 1, WORKERS_MAX, err);
    } else if (job->has_workers && !(job->has_workers_min && job->workers == job->workers_min)) {
        const char *other = job->has_workers_min ? "workers_min" : "workers_max";
        rc = err_set(err, ERR_INPUT,
                     "workers: not allowed with %s; --unset %s fixes the number, --unset workers "
                     "lets it change",
                     other, other);
    } else {
        rc = check_remedied(check_given("workers_max", job->has_workers_max, err),
                            "; with workers_min it is the largest number of workers", err);
        job->workers = job->workers_min = job->has_workers_min ? job->workers_min : 1;
        job->has_workers_min = true;
    }
    if (rc == OK && job->has_workers_max)
        rc = check_range("workers_max", job->workers_max, 1, WORKERS_MAX, err);
    if (rc == OK && job->has_workers_max)
        rc = check_range("workers_min", job->workers, 1, job->workers_max, err);
    if (rc == OK && !(job->patience_seconds > 0 && job->patience_seconds <= 1e9))
        rc = err_set(err, ERR_INPUT,
                     "patience_seconds: expected more than 0, 1e9 at most, is %g; write "
                     "patience_seconds: 600",
                     job->patience_seconds);
    if (rc == OK)
        rc = check_range("stall_seconds", job->stall_seconds, 1, 1e9, err);
    return rc == OK ? check_range("standby", job->standby, 0, WORKERS_MAX, err) : rc;
}

/* A pause ends when joiners have come, so there must be room for them. */
static int check_pause(const Paceline__Job *job, struct err *err)
{
    if (!(job->pause_patience_seconds > 0 && job->pause_patience_seconds <= 1e9))
        return err_set(err, ERR_INPUT,
                       "pause_patience_seconds: expected more than 0, 1e9 at most, is %g; write "
                       "pause_patience_seconds: 600",
                       job->pause_patience_seconds);
    if (!job->has_pause_below)
        return OK;
    if (job->slices > 1)
        return err_set(err, ERR_UNSUPPORTED,
                       "pause_below: not with slices, whose rounds need all slices of a replica; "
                       "leave it out");
    if (!job->has_workers_max)
        return err_set(err, ERR_INPUT,
                       "pause_below: needs workers_max, since no lost worker is replaced without "
                       "it; write workers_min: %" PRIu32 " workers_max: %" PRIu32
                       " in place of `workers`",
                       job->workers, job->workers);
    return check_range("pause_below", job->pause_below, 1, job->workers, err);
}

static int check_cache(const Paceline__Job *job, struct err *err)
{
    uint64_t bytes;
    int rc = job_memory_budget(job, UINT64_MAX >> 16, &bytes, err);
    if (rc == OK && job->cache == PACELINE__CACHE__memory && bytes == 0)
        return err_set(err, ERR_INPUT, "memory_budget: is missing; `cache: memory` needs it");
    return rc;
}

static int check_local_data(const Paceline__Job *job, struct err *err)
{
    if (job->has_epoch_records && !job->local_data)
        return err_set(err, ERR_INPUT, "epoch_records: only with local_data; leave it out");
    if (job->driver_validates && (!job->local_data || job->validation == 0))
        return err_set(err, ERR_INPUT,
                       "driver_validates: only with local_data and validation; leave it out");
    return job->has_epoch_records && job->epoch_records == 0
               ? err_set(err, ERR_INPUT, "epoch_records: is 0, and must be above it")
               : OK;
}

int job_finish(Paceline__Job *job, struct err *err)
{
    int rc = check_given("name", is_filled(job->name), err);
    if (rc == OK)
        rc = check_net(job, err);
    if (rc == OK)
        rc = job_check_data(job->train_data, "train_data", err);
    if (rc == OK && job->test_data)
        rc = job_check_data(job->test_data, "test_data", err);
    if (rc == OK)
        rc = job_finish_solver(job, err);
    if (rc == OK)
        rc = job_settle_slices(job, err);
    if (rc == OK)
        rc = finish_workers(job, err);
    if (rc == OK)
        rc = check_pause(job, err);
    if (rc == OK && job->has_threads)
        rc = check_range("threads", job->threads, 1, THREADS_MAX, err);
    if (rc == OK)
        rc = check_not_negative("pace", job->pace, err);
    if (rc == OK)
        rc = finish_batch(job, err);
    if (rc == OK)
        rc = check_follow(job, err);
    if (rc == OK)
        rc = check_records(job, err);
    if (rc == OK)
        rc = check_local(job, err);
    if (rc == OK)
        rc = check_cache(job, err);
    if (rc == OK)
        rc = check_local_data(job, err);
    if (rc == OK)
        rc = check_range("bad_records_max", job->bad_records_max, 1, BAD_RECORDS_MAX, err);
    if (rc == OK)
        rc = make_parts(job, err);
    if (rc == OK)
        rc = check_parts(job, err);
    if (rc == OK)
        rc = job_check_slices(job, err);
    if (rc != OK)
        return rc;
    finish_stop(job->stop);
    rc = finish_growth(job, err);
    return rc == OK ? fill_defaults(job, err) : rc;
}
