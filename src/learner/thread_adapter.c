#include "learner/thread_adapter.h"

#include "learner/local_group.h"

#include <inttypes.h>

void thread_adapter_start(struct thread_adapter *a, const Paceline__Job *job, int threads,
                          int64_t (*delay)(void), const struct logger *log)
{
    bool is_fixed = job->deterministic || job->pace > 0 || job->local > 1;
    *a = (struct thread_adapter){.job = job, .log = log, .delay = delay};
    if (!delay || is_fixed || threads == 1)
        return;
    a->is_on = true;
    a->delay_before = delay();
    thread_count_init(&a->count, threads);
}

void thread_adapter_record(struct thread_adapter *a, int64_t ns, size_t records)
{
    a->computed += ns;
    a->records += records;
    a->steps++;
}

static void log_change(const struct thread_adapter *a, const struct thread_change *c)
{
    double batch = a->job->batch, before = c->ns_before * batch * 1e-6,
           after = c->ns_after * batch * 1e-6;
    if (c->to < c->from)
        log_warn(
            a->log,
            "this machine is busy: threads were without a processor for %.0f %% of their time; "
            "%d of %d threads compute now, a batch takes %.3g ms instead of %.3g",
            100 * c->delayed, c->to, a->count.most, after, before);
    else
        log_info(a->log,
                 "processors are free again: %d threads compute now instead of %d, a batch takes "
                 "%.3g ms instead of %.3g",
                 c->to, c->from, after, before);
}

void thread_adapter_apply(struct thread_adapter *a, int64_t now, struct workspace *ws,
                          struct local_group *group)
{
    struct thread_change change;
    struct net *net;
    struct err err;
    int threads;
    if (a->computed < THREAD_COUNT_WINDOW_NS || a->steps < THREAD_COUNT_WINDOW_STEPS)
        return;
    /* A thread that has ended takes its share of the sum along. */
    int64_t delay = a->delay(), grown = delay - a->delay_before;
    const struct thread_window window = {now, a->computed, grown > 0 ? grown : 0, a->records};
    if (thread_count_next(&a->count, &window, &threads, &change))
        log_change(a, &change);
    if (workspace_net_for(ws, a->job, threads, &net, &err) == OK) {
        local_set_net(group, net);
    } else {
        log_warn(a->log, "cannot compute with %d threads instead of %d: %s", threads, a->count.now,
                 err.text);
        thread_count_stop(&a->count);
    }
    a->delay_before = a->delay();
    a->computed = 0;
    a->records = 0;
    a->steps = 0;
}
