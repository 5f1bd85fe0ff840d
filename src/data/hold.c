#include "data/hold.h"

#include "base/fault.h"

#include <string.h>

void hold_begin(struct hold *hold, uint64_t grain, struct lease first, uint64_t size)
{
    PL_ASSERT(grain > 0 && size >= grain && size % grain == 0);
    *hold = (struct hold){.grain = grain, .ask = 1, .granted = size, .want = size};
    hold->last = (struct lease){.from = first.from, .to = first.from + size};
    hold->at = first.from;
    hold->waits = first.from == first.to;
    if (hold->waits)
        return;
    hold->lease[hold->count++] = hold->last = first;
    hold->high = first.to;
}

uint64_t hold_place(const struct hold *hold)
{
    return hold->count > 0 ? hold->lease[0].from : hold->at;
}

static void step_again(struct hold *hold)
{
    hold->again += hold->grain;
    hold->at += hold->grain;
    if (hold->at + hold->grain > hold->last.to)
        hold->at = hold->last.from;
}

void hold_step(struct hold *hold)
{
    struct lease *now = &hold->lease[0];
    if (hold->count == 0) {
        step_again(hold);
        return;
    }
    hold->taken += hold->grain;
    now->from += hold->grain;
    if (now->from < now->to)
        return;
    memmove(now, now + 1, --hold->count * sizeof *now);
    if (hold->count > 0)
        hold->last = *now;
    hold->at = hold->last.from;
}

uint64_t hold_follows(const struct hold *hold)
{
    struct hold then = *hold;
    hold_step(&then);
    return hold_place(&then);
}

uint64_t hold_left(const struct hold *hold)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < hold->count; i++)
        sum += hold->lease[i].to - hold->lease[i].from;
    return sum;
}

bool hold_asks(struct hold *hold, uint64_t want)
{
    uint64_t left = hold_left(hold);
    if (hold->waits || (2 * left > hold->granted && left > hold->grain))
        return false;
    hold->ask++;
    hold->waits = true;
    hold->want = want;
    return true;
}

void hold_forget(struct hold *hold)
{
    hold->waits = false;
}

static bool sound(const struct hold *hold, const struct lease *given, size_t count)
{
    bool is = count > 0 && count <= LEASE_HELD_MAX;
    for (size_t i = 0; is && i < count; i++)
        is = given[i].from < given[i].to && (given[i].to - given[i].from) % hold->grain == 0;
    return is;
}

bool hold_answer(struct hold *hold, uint32_t ask, const struct lease *given, size_t count)
{
    if (!hold->waits || ask != hold->ask)
        return false;
    hold->waits = false;
    if (!sound(hold, given, count))
        return false;
    if (hold->count == 0) {
        hold->last = given[0];
        hold->at = given[0].from;
    }
    hold->granted = 0;
    for (size_t i = 0; i < count && hold->count < LEASE_HELD_MAX; i++) {
        hold->lease[hold->count++] = given[i];
        hold->granted += given[i].to - given[i].from;
        hold->high = given[i].to > hold->high ? given[i].to : hold->high;
    }
    return true;
}
