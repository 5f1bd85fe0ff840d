#include "train/worker_pause.h"

/* How often a paused worker looks at what raises no signal: the end of a model's copy, a leave. */
#define LOOK (WORLD_SECOND / 10)

/* A run that is to stop does not pause: its members stop together at the next commit point. */
static bool is_paused(const struct worker *w)
{
    const struct view *view = group_view(&w->group);
    return w->job->has_pause_below && view && view->count < w->job->pause_below &&
           !atomic_load(&w->group.stop) && !atomic_load(&w->group.end.over);
}

static bool may_be_donor(const struct worker *w)
{
    uint64_t word[JOIN_STATE_WORDS];
    return !w->strategy->export_join_state ||
           w->strategy->export_join_state(&w->member, word) != JOIN_STATE_NOT_HERE;
}

/* Whatever others may need of this worker meanwhile. */
static int serve_others(struct worker *w, bool committed)
{
    struct member *m = &w->member;
    int rc = worker_drain_lanes(w);
    if (rc == OK && group_is_leaving(&w->group)) {
        w->leave.left = true; /* at once: others that pause enter no exchange with it */
        return ERR_STOP;
    }
    if (rc == OK)
        rc = worker_admit_joiner(w);
    if (rc == OK)
        rc = worker_poll_share(w);
    uint32_t requests = atomic_load(&w->group.model_requests);
    if (rc == OK && requests && committed)
        worker_publish(w, &m->progress, requests);
    else if (rc == OK)
        worker_publish_urgent(w);
    return rc;
}

int worker_pause(struct worker *w, bool committed)
{
    struct group_work *work = &w->group.work;
    if (!is_paused(w) || !may_be_donor(w))
        return OK;
    int rc = OK;
    bool busy = atomic_exchange(&work->busy, false);
    atomic_store(&work->paused, true);
    while (rc == OK) {
        const struct wait_for change = wait_signal(w->world, SIGNAL_GROUP);
        struct wake wake;
        rc = serve_others(w, committed);
        if (rc != OK || !is_paused(w))
            break;
        rc = world_wait(w->world, &change, 1, world_now(w->world) + LOOK, &wake);
        rc = rc == ERR_TIMEOUT ? OK : rc;
    }
    atomic_store(&work->paused, false);
    atomic_store(&work->busy, busy);
    return rc == OK && atomic_load(&w->group.end.over) ? ERR_DRIVER : rc;
}
