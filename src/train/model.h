/* A copy of a model on its way to who evaluates or keeps it: where the run stood, then the vectors,
 * in pieces. It belongs to no view: a change of membership does not stop it. */
#ifndef PL_TRAIN_MODEL_H
#define PL_TRAIN_MODEL_H

#include "strategy/strategy.h"

struct model_note {
    struct course course;
    bool final;      /* the run's last */
    uint64_t floats; /* that follow: x, then s */
};

/* A model being sent by a task of its own, from a copy, so that training goes on. */
struct publisher {
    struct world *world;
    uint32_t to;
    struct model_note note;
    float *copy;
    size_t room; /* floats */
    struct task *task;
    atomic_bool busy;
};

/* Room for x and s from the arena. ERR_NOMEM */
int publisher_init(struct publisher *p, struct world *world, uint32_t to, size_t floats,
                   struct arena *arena);

/* Copy x and s and start sending them. Returns without sending, and says false, while the one
 * before is still on its way: training never waits for the network. */
bool publisher_start(struct publisher *p, const struct course *course, bool final,
                     const struct vec *x, const struct vec *s);

/* Wait until what was started has been handed over. OK, ERR_TIMEOUT, ERR_PEER, ERR_CANCELLED */
int publisher_finish(struct publisher *p, int64_t deadline);
void publisher_release(struct publisher *p);

/* Wait for a model from anyone and take its x and s into `into`, `floats` long together.
 * ERR_TIMEOUT, ERR_CANCELLED; ERR_PEER: it broke off, the next may come; ERR_PROTOCOL: a length
 * that does not fit */
int model_receive(struct world *world, float *into, size_t floats, struct model_note *note,
                  int64_t deadline);

#endif
