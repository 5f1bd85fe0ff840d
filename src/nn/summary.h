/* The layers of a net, one by one, for printing. */
#ifndef PL_NN_SUMMARY_H
#define PL_NN_SUMMARY_H

#include "nn/net.h"

struct layer_summary {
    const char *name, *type; /* valid until net_free */
    struct shape top;        /* of its first top, for the planned batch; n = 0 for a number */
    size_t parameters;       /* floats of x; not those that another layer owns */
    size_t state;            /* floats of s */
    double products;         /* multiply-adds of its forward matrix product */
    const char *chosen;      /* the code of each direction, where there was a choice; else NULL */
};

/* How many layers the net has in its phase, and the ith of them in the order of the file. */
size_t net_layer_count(const struct net *net);
struct layer_summary net_layer_at(const struct net *net, size_t i);

#endif
