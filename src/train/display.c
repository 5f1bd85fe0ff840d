#include "train/display.h"

#include "base/status.h"
#include "optim/schedule.h"

#include <inttypes.h>

int mean_loss_init(struct mean_loss *m, size_t most, struct arena *arena)
{
    *m = (struct mean_loss){.most = most};
    m->at = arena_array(arena, most, struct mean_loss_entry);
    return m->at ? OK : ERR_NOMEM;
}

void mean_loss_add(struct mean_loss *m, uint64_t steps, double loss)
{
    m->at[m->next] = (struct mean_loss_entry){steps, loss};
    m->next = (m->next + 1) % m->most;
    m->count += m->count < m->most;
}

double mean_loss(const struct mean_loss *m)
{
    double sum = 0;
    uint64_t steps = 0;
    for (size_t i = 0; i < m->count && steps < m->most; i++) {
        const struct mean_loss_entry *entry = &m->at[(m->next + m->most - 1 - i) % m->most];
        sum += entry->loss * (double)entry->steps;
        steps += entry->steps;
    }
    return steps > 0 ? sum / (double)steps : 0;
}

int display_init(struct display *d, const Paceline__Job *job, uint64_t steps, struct arena *arena)
{
    const Caffe__SolverParameter *solver = job->solver;
    *d = (struct display){.every = solver->has_display ? (uint64_t)solver->display : 0,
                          .steps = steps};
    return d->every > 0 ? mean_loss_init(&d->mean, (size_t)solver->average_loss, arena) : OK;
}

double display_rate(const Paceline__Job *job, const struct progress *progress, size_t records)
{
    if (job_takes_all(job))
        return 0;
    bool by_epoch = job->solver->clock == CAFFE__SOLVER_PARAMETER__CLOCK__epochs;
    double t =
        by_epoch ? (double)progress->sample_offset / (double)records : (double)progress->steps;
    uint64_t samples = strategy_step_samples(job, progress, records);
    float rate = schedule_rate(job->solver, t);
    return events_decimal((float)(strategy_rate_scale(job, samples) * (double)rate));
}

void display_report(struct display *d, const struct ledger *ledger, const Paceline__Job *job,
                    size_t records, bool lone, const struct logger *log)
{
    const struct progress *progress = &ledger->last.progress;
    if (d->every == 0 || progress->steps <= d->steps)
        return;
    double loss = lone ? ledger->recent : ledger->loss;
    if (!lone) {
        mean_loss_add(&d->mean, progress->steps - d->steps, loss);
        loss = mean_loss(&d->mean);
    }
    if (progress->steps / d->every > d->steps / d->every)
        log_info(log, "step %" PRIu64 ": loss %.6g, rate %.6g", progress->steps, loss,
                 display_rate(job, progress, records));
    d->steps = progress->steps;
}
