#include "real/pacer.h"

/* An Ethernet frame carries 1448 bytes of data in 1514. Sleeping is exact to a millisecond or two;
 * the rate of an overslept time is not lost. */
static const double HEADERS = 1514.0 / 1448.0, SLEPT_NS = 20e6;

void pacer_init(struct pacer *pacer, double mbit, int64_t now)
{
    *pacer = (struct pacer){.rate = mbit * 1e6 / 8 / 1e9 / HEADERS, .at = now};
}

static void drain_bucket(struct pacer *pacer, int64_t now)
{
    double least = -pacer->rate * SLEPT_NS;
    pacer->debt -= pacer->rate * (double)(now - pacer->at);
    pacer->debt = pacer->debt > least ? pacer->debt : least;
    pacer->at = now;
}

bool pacer_is_open(struct pacer *pacer, int64_t now)
{
    if (pacer->rate <= 0)
        return true;
    drain_bucket(pacer, now);
    return pacer->debt <= 0;
}

void pacer_take(struct pacer *pacer, size_t bytes, int64_t now)
{
    if (pacer->rate <= 0)
        return;
    drain_bucket(pacer, now);
    pacer->debt += (double)bytes;
}

int64_t pacer_opens(const struct pacer *pacer)
{
    return pacer->rate > 0 && pacer->debt > 0 ? pacer->at + (int64_t)(pacer->debt / pacer->rate) + 1
                                              : pacer->at;
}
