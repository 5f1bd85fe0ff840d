/* Max-min fair rates of flows, each of which takes a part of its sender's link and of its
 * receiver's (Bertsekas and Gallager, "Data Networks", 6.5.2), as the simulator has them. */
#ifndef PL_COLL_FAIR_LINKS_H
#define PL_COLL_FAIR_LINKS_H

#include "coll/cost.h"
#include "group/members.h"

enum { FAIR_LINKS_MAX = VIEW_MEMBERS_MAX + 1 };

struct fair_flow {
    uint32_t from, to;
    double rate; /* bytes/s */
};

/* Set the rates of `open` flows on at most FAIR_LINKS_MAX ranks. The list is used up. */
void fair_links_share(const struct cost_links *links, struct fair_flow **flow, size_t open);

#endif
