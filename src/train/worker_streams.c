/* A worker's part of the states of streams in a checkpoint (stream_parts.h). */
#include "base/fault.h"
#include "train/worker.h"

/* Is the record at that place this worker's, as long as the sharers stay? */
static bool takes_place(const void *worker, uint64_t place)
{
    const struct worker *w = worker;
    const struct progress *progress = &w->member.progress;
    uint64_t samples = strategy_step_samples(w->job, progress, w->learner.epoch_records);
    PL_ASSERT(place >= progress->sample_offset && samples > 0);
    uint64_t step = (place - progress->sample_offset) / samples;
    struct stretch own = strategy_share(progress, w->world->self, step, samples);
    return place >= own.start && place - own.start < own.count;
}

void worker_begin_streams(struct worker *w)
{
    const struct carried_state *carried = &w->learner.carried;
    w->member.keeps_streams = strategy_keeps_streams(
        w->job, &w->traits, carried_state_floats(carried->streams, carried->row));
}

struct carried_selection worker_streams(const struct worker *w)
{
    return (struct carried_selection){
        .sampler = &w->data.ws->loader.sampler,
        .from = w->member.progress.sample_offset,
        .takes = takes_place,
        .user = w,
    };
}

/* Slices offer theirs with the model. */
static bool has_streams_to_send(const struct worker *w)
{
    return w->member.keeps_streams && w->job->slices == 1;
}

/* Without a publisher that is free they are not sent: training waits for nothing. */
void worker_send_streams(struct worker *w)
{
    const struct carried_selection own = worker_streams(w);
    if (has_streams_to_send(w) && strategy_shares(&w->member, &w->member.progress))
        (void)publisher_start_streams(&w->publisher, &w->member.progress, &w->learner.carried,
                                      &own);
}

int worker_hand_over_streams(struct worker *w)
{
    if (!has_streams_to_send(w))
        return OK;
    int rc = publisher_finish(&w->publisher, WORLD_FOREVER);
    if (rc == ERR_CANCELLED)
        return rc;
    worker_send_streams(w);
    return OK;
}
