#include "coll/fair_links.h"

#include "base/fault.h"
#include "base/minmax.h"

#include <math.h>

/* One direction of a rank's link, while rates are shared out. */
struct shared_link {
    double rest;
    size_t open; /* flows without a rate */
};

static double part_of(const struct shared_link *l)
{
    return l->open > 0 ? l->rest / (double)l->open : INFINITY;
}

static void settle_rate(struct shared_link *up, struct shared_link *down, struct fair_flow *f,
                        double rate)
{
    f->rate = rate;
    up[f->from].rest = max_double(0, up[f->from].rest - rate);
    down[f->to].rest = max_double(0, down[f->to].rest - rate);
    up[f->from].open--;
    down[f->to].open--;
}

/* Water-filling: the flows on the tightest link get equal parts of it, and so on. */
void fair_links_share(const struct cost_links *links, struct fair_flow **flow, size_t open)
{
    struct shared_link up[FAIR_LINKS_MAX], down[FAIR_LINKS_MAX];
    size_t ranks = links->ranks;
    PL_ASSERT(ranks <= FAIR_LINKS_MAX);
    for (size_t r = 0; r < ranks; r++) {
        up[r] = (struct shared_link){links->send_rate[r], 0};
        down[r] = (struct shared_link){links->recv_rate[r], 0};
    }
    for (size_t i = 0; i < open; i++) {
        up[flow[i]->from].open++;
        down[flow[i]->to].open++;
    }
    while (open > 0) {
        double least = INFINITY;
        size_t left = 0;
        for (size_t r = 0; r < ranks; r++)
            least = min_double(least, min_double(part_of(&up[r]), part_of(&down[r])));
        for (size_t i = 0; i < open; i++) {
            struct fair_flow *f = flow[i];
            if (min_double(part_of(&up[f->from]), part_of(&down[f->to])) <= least)
                settle_rate(up, down, f, least);
            else
                flow[left++] = f;
        }
        PL_ASSERT(left < open);
        open = left;
    }
}
