#include "data/lease_cursor.h"

#include "base/fault.h"

#include <string.h>

void lease_cursor_begin(struct lease_cursor *cursor, uint64_t grain, struct lease first,
                        uint64_t size)
{
    PL_ASSERT(grain > 0 && size >= grain && size % grain == 0);
    *cursor = (struct lease_cursor){
        .grain = grain, .step = grain, .request = 1, .granted = size, .want = size};
    cursor->last = (struct lease){.from = first.from, .to = first.from + size};
    cursor->at = first.from;
    cursor->pending = first.from == first.to;
    if (cursor->pending)
        return;
    cursor->lease[cursor->count++] = cursor->last = first;
    cursor->highest = first.to;
}

/* Samples of the next step, where `left` remain. */
static uint64_t piece_of(uint64_t left, uint64_t step)
{
    uint64_t pieces = (left + step / 2) / step;
    return pieces > 1 ? (left + pieces - 1) / pieces : left;
}

struct stretch lease_cursor_share(const struct lease_cursor *cursor)
{
    const struct lease *lease = cursor->count > 0 ? &cursor->lease[0] : &cursor->last;
    uint64_t from = cursor->count > 0 ? lease->from : cursor->at;
    return (struct stretch){from, piece_of(lease->to - from, cursor->step)};
}

void lease_cursor_step(struct lease_cursor *cursor)
{
    struct lease *now = &cursor->lease[0];
    uint64_t n = lease_cursor_share(cursor).count;
    if (cursor->count == 0) {
        cursor->repeated += n;
        cursor->at += n;
        cursor->at = cursor->at < cursor->last.to ? cursor->at : cursor->last.from;
        return;
    }
    cursor->taken += n;
    now->from += n;
    if (now->from < now->to)
        return;
    memmove(now, now + 1, --cursor->count * sizeof *now);
    if (cursor->count > 0)
        cursor->last = *now;
    cursor->at = cursor->last.from;
}

size_t lease_cursor_following(const struct lease_cursor *cursor, struct stretch *next, size_t most)
{
    struct lease_cursor then = *cursor;
    size_t n = 0;
    do {
        lease_cursor_step(&then);
        next[n++] = lease_cursor_share(&then);
    } while (n < most && then.count > 0);
    return n;
}

uint64_t lease_cursor_left(const struct lease_cursor *cursor)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < cursor->count; i++)
        sum += cursor->lease[i].to - cursor->lease[i].from;
    return sum;
}

bool lease_cursor_should_request(struct lease_cursor *cursor, uint64_t want)
{
    uint64_t left = lease_cursor_left(cursor);
    if (cursor->pending || (2 * left > cursor->granted && left > cursor->step))
        return false;
    cursor->request++;
    cursor->pending = true;
    cursor->want = want;
    return true;
}

void lease_cursor_forget_request(struct lease_cursor *cursor)
{
    cursor->pending = false;
}

static bool are_valid(const struct lease_cursor *cursor, const struct lease *given, size_t count)
{
    bool is = count > 0 && count <= LEASE_HELD_MAX;
    for (size_t i = 0; is && i < count; i++)
        is = given[i].from < given[i].to && (given[i].to - given[i].from) % cursor->grain == 0;
    return is;
}

bool lease_cursor_take_grant(struct lease_cursor *cursor, uint32_t request,
                             const struct lease *given, size_t count)
{
    if (!cursor->pending || request != cursor->request)
        return false;
    cursor->pending = false;
    if (!are_valid(cursor, given, count))
        return false;
    if (cursor->count == 0) {
        cursor->last = given[0];
        cursor->at = given[0].from;
    }
    cursor->granted = 0;
    for (size_t i = 0; i < count && cursor->count < LEASE_HELD_MAX; i++) {
        cursor->lease[cursor->count++] = given[i];
        cursor->granted += given[i].to - given[i].from;
        cursor->highest = given[i].to > cursor->highest ? given[i].to : cursor->highest;
    }
    return true;
}
