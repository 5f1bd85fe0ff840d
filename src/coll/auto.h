/* `auto` chooses the algorithm and the pieces of an all-reduce. For short vectors a rule of ranks
 * and length decides. For long ones the links are measured, and the cost model (cost.h) decides.
 * When exchanges take a different time than before, the links are measured again before the next
 * one. */
#ifndef PL_COLL_AUTO_H
#define PL_COLL_AUTO_H

#include "coll/cost.h"
#include "coll/probe.h"
#include "tensor/codec.h"

/* The rule. The rule for short vectors: on a power of two of ranks, sums in the tree's order. */
enum coll_algorithm auto_rule(enum codec codec, size_t ranks, size_t n);

/* Floats of a piece under the rule, where a job wants `chunk`. Blocks of halves go to two peers at
 * once. In small pieces both take as long as the later one needs, and the earlier one's receiver
 * waits for it: at 100 Mbit/s four ranks took a sixth longer. Codecs work while other pieces
 * travel, and a driver's heartbeats wait for a piece: there it stays `chunk`. */
size_t auto_chunk(enum coll_algorithm algorithm, enum codec codec, bool driver, size_t chunk);

/* Long enough to be worth measuring for. */
bool auto_measures(size_t n);

/* The choice for a vector length, and the times that it took. */
struct auto_length {
    size_t n; /* 0: none */
    struct cost_choice choice;
    size_t cut[VIEW_MEMBERS_MAX + 2];
    double expected; /* s */
    double took[3];  /* the last exchanges, oldest first, by rank 0's knowledge */
    size_t count;
    /* Rank 0's: connections to each peer, 1 or, after they have been tried and found faster, all.
     */
    uint32_t stripes;
    enum { STRIPES_UNTRIED, STRIPES_ON_TRIAL, STRIPES_TRIED } trial;
    double single; /* s, with one */
};

/* The measurements of one lane or channel; zeroed at first. */
struct coll_auto {
    uint32_t view; /* in which `probe` and the choices hold; 0: nothing is known */
    struct probe probe;
    struct auto_length length[2]; /* the last two, the latest first */
    /* Rank 0's: probes that were not alone are not repeated at once; nor, for less than a great
     * change, those that have changed nothing. */
    uint32_t rest, resting, calm, calming;
};

/* The choice for a long vector on links with these rates. `cut` (links->ranks + 1 places) is as in
 * cost_choose. COLL_AUTO: out of memory. */
struct cost_choice auto_choose_on(const struct cost_links *links, size_t n, enum codec codec,
                                  size_t *cut);

/* Links as a codec uses them: their rates become bytes of floats a second. `rate` has room for
 * twice as many numbers as there are ranks, and must live as long as the result. */
struct cost_links auto_links(const struct cost_links *links, enum codec codec, double *rate);

/* The metadata that ranks reduce before a long vector. */
struct auto_meta {
    double took;      /* max: auto_took of the last one, 0: none */
    uint64_t busy;    /* max: other collectives are under way */
    uint64_t measure; /* rank 0: the links, first */
    uint64_t stripes; /* rank 0: over how many connections to each peer */
};

void auto_meta_init(struct auto_meta *meta, const struct coll *c, double took);
void auto_meta_merge(struct auto_meta *meta, const struct auto_meta *other);

/* The time that the vector would have taken alone: other collectives of this node moved bytes in
 * the same seconds and shared its link. `moved` is group->moved when it began, `own` its own
 * bytes. */
double auto_took(const struct coll *c, double seconds, uint64_t moved, uint64_t own);

/* On rank 0, before a long vector: decide for all from the merged metadata. `stripes`: connections
 * to each peer. */
void auto_decide(struct coll_auto *a, const struct coll *c, size_t n, uint32_t stripes,
                 struct auto_meta *meta);

/* On all ranks: measure the links as rank 0 decided. If the choice for n stays the same, the last
 * time becomes the expected one. Errors of probe_links. */
int auto_measure(struct coll_auto *a, struct coll *c, size_t n, enum codec codec,
                 const struct auto_meta *meta);

/* The choice for n floats, or the rule where nothing is known: the same on all ranks, for links do
 * not depend on n. *cut: the parts of a scatter_gather, valid until the next call for another n;
 * NULL for equal ones. ERR_NOMEM */
int auto_choose(struct coll_auto *a, const struct coll *c, size_t n, enum codec codec,
                struct cost_choice *choice, const size_t **cut);

#endif
