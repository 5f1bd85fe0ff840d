/* Hundreds of trials, each with a death at another message, and a count of each outcome. */
#ifndef PL_LIB_EXCHANGE_SWEEP_H
#define PL_LIB_EXCHANGE_SWEEP_H

#include "exchange_judge.h"

/* Counts of each outcome in a sweep. */
struct tallied {
    size_t runs, unformed, went_on, adopted, apart, complaints;
};

static void count_up(struct tallied *sum, const struct trial *t)
{
    char complaint[COMPLAINT_MAX];
    bool went_on = false, adopted = false, apart = false;
    for (uint64_t n = 1; n <= t->exchanges; n++)
        for (uint32_t place = 0; place < NODES; place++) {
            const struct record *r = &t->record[place][n];
            bool whole = members_count(&r->meta.participants) == members_count(&r->members);
            went_on |= r->there && r->view > 1 && whole;
            adopted |= r->there && !whole;
            for (uint32_t other = 0; other < place; other++)
                apart |=
                    r->there && t->record[other][n].there && !same_outcome(r, &t->record[other][n]);
        }
    sum->runs++;
    sum->unformed += !t->formed;
    sum->went_on += went_on;
    sum->adopted += adopted;
    sum->apart += apart;
    sum->complaints += !all_is_well(t, complaint);
}

static void print_tallied(const char *what, const struct tallied *sum)
{
    print_message("%s: %zu runs; %zu never formed, %zu continued without, %zu adopted, %zu where "
                  "the dead held another result, %zu complaints\n",
                  what, sum->runs, sum->unformed, sum->went_on, sum->adopted, sum->apart,
                  sum->complaints);
}

/* Every worker is killed at every message that he sends; or, with a stride, at some of them. */
static void sweep_messages(struct trial t, uint64_t stride, struct tallied *sum)
{
    const struct trial fresh = t;
    for (uint32_t node = 0; node < t.workers; node++)
        for (uint64_t k = 1 + node % stride;; k += stride) {
            t = fresh;
            t.kill_node = node;
            t.kill_send = k;
            members_add(&t.victims, node);
            run_trial(&t);
            if (t.rc == OK && t.sent[node] >= k)
                fail_msg("worker %u sent message %u and was not killed", node, (unsigned)k);
            if (t.rc == OK && t.formed && dead(&t) == 0)
                break;
            count_up(sum, &t);
            if (t.subject == &sound)
                expect_well(&t);
        }
}

#endif
