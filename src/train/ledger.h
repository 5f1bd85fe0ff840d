/* The driver's book of exchanges: what members report of each becomes one `exchange` event, and the
 * records that counted and those that were lost add up. */
#ifndef PL_TRAIN_LEDGER_H
#define PL_TRAIN_LEDGER_H

#include "strategy/strategy.h"
#include "train/events.h"

/* What a member says of an exchange that it has committed. */
struct committed {
    uint32_t lane;
    uint64_t n;           /* 0: no exchange, only how far a worker is */
    bool free;            /* its own: workers run free */
    struct course course; /* after it */
    struct exchange_cost cost;
    uint64_t samples; /* in the exchange, of all; free: of this worker since its last report */
    double loss;      /* Σ over them */
    struct members who, took_part;
};

void committed_encode(const struct committed *c, struct buf *out);
/* ERR_PROTOCOL */
int committed_decode(struct cut *in, struct committed *out);

enum { LEDGER_OPEN_MAX = 8 };

struct ledger_entry {
    bool open;
    uint32_t slowest;     /* who came last: its exchange took the shortest, */
    double shortest_s;    /* so long */
    struct committed sum; /* of the first report; cost is the largest seconds and wait */
    size_t reports, expected;
};

/* What a worker that runs free has done itself. */
struct ledger_own {
    uint64_t samples, exchanges;
};

struct ledger {
    const struct events *events;
    const struct logger *log;
    const char *strategy;
    struct ledger_entry entry[LEDGER_OPEN_MAX]; /* by course.exchanges % LEDGER_OPEN_MAX: several
                                                   lanes may take turns */
    struct committed last; /* the newest exchange that was closed; n 0: none yet; where workers
                              run free, its course is that of them all */
    uint64_t step_samples; /* of a step of all together; free */
    uint64_t odd_samples;  /* beyond last.course.steps of those; free */
    struct ledger_own own[VIEW_MEMBERS_MAX];
    uint64_t used, missed; /* records */
    uint32_t slowest;      /* worker of the newest exchange */
    double loss;           /* mean loss of the newest exchange's records */
};

/* What `node` reports. An exchange is closed when all who took part have reported, or when all have
 * of the next, or when the next but one is reported: who has not spoken by then is dead. */
void ledger_report(struct ledger *ledger, uint32_t node, const struct committed *report);

/* The run goes on from there, whatever has been reported yet: a driver has come back. */
void ledger_go_on(struct ledger *ledger, const struct course *course);

/* Close what is open, in order. */
void ledger_close(struct ledger *ledger);

#endif
