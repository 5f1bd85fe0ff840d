/* The clock of a parameter server: the order in which pushes are applied, when their workers may
 * continue, and when the run ends. A pure step machine around consistency.h, which decides which
 * workers may continue; it knows no weights or messages, and no time but that of its inputs.
 *
 * The model is served in shards, and a push counts when all have its part. Then the clock decides
 * it, for all shards alike: it is applied, or dropped when a part was not finite. A push that only
 * some shards have received when its worker dies is never decided. */
#ifndef PL_STRATEGY_PS_CLOCK_H
#define PL_STRATEGY_PS_CLOCK_H

#include "strategy/consistency.h"
#include "strategy/strategy.h"

struct ps_clock_config {
    struct consistency_config consistency;
    const Paceline__Job *job;
    size_t shards;
    size_t records; /* of the training set */
    bool endless;   /* train ends the run, by the samples that workers report */
};

/* A refused one is finite: it is dropped, and its worker's model is not lost. */
enum push_state { PUSH_SOUND, PUSH_REFUSED, PUSH_INFINITE };

struct ps_clock_worker {
    struct members have; /* shards that have its next push in full */
    int64_t arrived;     /* that push: when the last of them had it */
    uint64_t samples;    /* of its last push */
};

struct ps_clock {
    struct ps_clock_config config;
    struct consistency consistency;
    struct progress start, progress; /* of all that is decided */
    uint64_t first;                  /* workers that began */
    double base;                     /* clock value at the last change of members */
    uint64_t since;                  /* and records since then */
    struct members coming;           /* joiners that are not members yet */
    struct members ready, bad;       /* pushes that wait to be decided; those to be dropped, */
    struct members infinite;         /* and of these the ones that are not finite */
    struct members lost;             /* workers whose last push was not finite */
    uint32_t latest;                 /* the worker whose push became ready last */
    struct ps_clock_worker worker[VIEW_MEMBERS_MAX];
};

struct ps_decision {
    struct members applied, dropped;
    double t;          /* clock value to apply at */
    struct members ok; /* workers that may continue now */
    uint32_t by;       /* the worker whose push decided it */
    bool stop;         /* the run has all its samples */
    bool diverged;     /* no worker has a finite model any more */
};

void ps_clock_init(struct ps_clock *clock, const struct ps_clock_config *config,
                   const struct progress *start, const struct members *members);

/* `node` has joined the run. No worker waits for it until its first push has arrived; in bsp, where
 * all pushes belong to the same weights, from its first fetch on. */
void ps_clock_join(struct ps_clock *clock, uint32_t node);
void ps_clock_fetched(struct ps_clock *clock, uint32_t node);

/* A shard has received the next push of `node`, of `samples` samples. Invalid events (of a
 * non-member, of a waiting worker) are ignored. */
void ps_clock_have(struct ps_clock *clock, uint32_t node, size_t shard, uint64_t samples,
                   enum push_state state, int64_t now);

/* Decide all ready pushes; in bsp, once all workers have pushed. false: there is nothing to
 * decide. */
bool ps_clock_decide(struct ps_clock *clock, int64_t now, struct ps_decision *out);

/* `node` has died, or its loop has ended: no worker waits for it any more. */
void ps_clock_leave(struct ps_clock *clock, uint32_t node, bool died, struct ps_decision *out);

/* Continue from this sample offset, which a clock had reached before. All of `members` start over,
 * with equal numbers of pushes and none waiting. */
void ps_clock_resume(struct ps_clock *clock, uint64_t offset, const struct members *members);

/* The rate's clock, and its value after ps_clock_resume where that is known. */
double ps_clock_value(const struct ps_clock *clock);
void ps_clock_set(struct ps_clock *clock, double value);

/* Is the run over with a further push of each worker, of so many samples? */
bool ps_clock_ends_with(struct ps_clock *clock, uint64_t samples);

/* How long the decided push of `node` has been there. */
int64_t ps_clock_waited(const struct ps_clock *clock, uint32_t node, int64_t now);

#endif
