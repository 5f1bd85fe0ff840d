/* A worker's side of leases (data/lease_cursor.h), where workers run free: it asks in its reports,
 * and looks between two steps whether an answer has come. */
#ifndef PL_TRAIN_LESSEE_H
#define PL_TRAIN_LESSEE_H

#include "strategy/strategy.h"
#include "train/comeback.h"
#include "train/ledger.h"

struct lessee {
    uint64_t from;  /* where the book ended when the run began, as the driver said */
    int64_t since;  /* when it last asked, or began, */
    uint64_t steps; /* and its steps since */
    uint32_t met;   /* drivers that it had returned to by then */
    bool ends;      /* it takes no more steps */
};

/* Bring m->hold: the first lease, which a member of the first view knows; a newcomer (entered) is
 * being sent one, and until it comes goes over what others have, about where they are. */
void lessee_begin(struct lessee *lessee, struct member *m, bool entered);

/* Take an answer that has come. */
void lessee_look(struct lessee *lessee, struct member *m);

/* After a step: the same. True: it is time to ask, by a report now. */
bool lessee_stepped(struct lessee *lessee, struct member *m);

/* What a driver that comes back is to know of them. */
void lessee_note(const struct member *m, struct comeback *back);

/* What a report says of its leases. */
struct lease_word lessee_word(const struct lessee *lessee, const struct member *m);

#endif
