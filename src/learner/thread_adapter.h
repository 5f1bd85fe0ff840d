/* Lets a learner compute with fewer threads while other processes use its processors. It measures
 * steps, thread_count.h decides, and the net that is planned for the new number of threads is used
 * from the next step on. Off until it is started. */
#ifndef PL_LEARNER_THREAD_ADAPTER_H
#define PL_LEARNER_THREAD_ADAPTER_H

#include "base/logger.h"
#include "learner/thread_count.h"
#include "learner/workspace.h"

struct local_group;

struct thread_adapter {
    bool is_on;
    struct thread_count count;
    const Paceline__Job *job;
    const struct logger *log;
    /* ns that threads of this process were ready to run and had no processor, until now */
    int64_t (*delay)(void);
    int64_t delay_before; /* at the window's begin */
    int64_t computed;     /* ns, in this window, */
    uint64_t records;     /* records computed meanwhile */
    int steps;
};

/* From now on. Nothing where the job's results must not depend on the number of threads
 * (`deterministic`), where steps have a pace, where there is one thread or several `local`
 * learners, and where `delay` is NULL. All is borrowed. */
void thread_adapter_start(struct thread_adapter *a, const Paceline__Job *job, int threads,
                          int64_t (*delay)(void), const struct logger *log);

/* Record that a batch of `records` took `ns`. */
void thread_adapter_record(struct thread_adapter *a, int64_t ns, size_t records);

/* Between two steps, at time `now`: if a window is full, let the learner use the next net and
 * number of threads. A change is logged. */
void thread_adapter_apply(struct thread_adapter *a, int64_t now, struct workspace *ws,
                          struct local_group *group);

#endif
