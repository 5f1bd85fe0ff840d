#include "data/lease_cursor.h"

#include "base/fault.h"

#include <string.h>

void lease_cursor_begin(struct lease_cursor *cursor, uint64_t grain, struct lease first,
                        uint64_t size)
{
    PL_ASSERT(grain > 0 && size >= grain && size % grain == 0);
    *cursor = (struct lease_cursor){.grain = grain, .request = 1, .granted = size, .want = size};
    cursor->last = (struct lease){.from = first.from, .to = first.from + size};
    cursor->at = first.from;
    cursor->pending = first.from == first.to;
    if (cursor->pending)
        return;
    cursor->lease[cursor->count++] = cursor->last = first;
    cursor->highest = first.to;
}

uint64_t lease_cursor_offset(const struct lease_cursor *cursor)
{
    return cursor->count > 0 ? cursor->lease[0].from : cursor->at;
}

static void repeat_step(struct lease_cursor *cursor)
{
    cursor->repeated += cursor->grain;
    cursor->at += cursor->grain;
    if (cursor->at + cursor->grain > cursor->last.to)
        cursor->at = cursor->last.from;
}

void lease_cursor_step(struct lease_cursor *cursor)
{
    struct lease *now = &cursor->lease[0];
    if (cursor->count == 0) {
        repeat_step(cursor);
        return;
    }
    cursor->taken += cursor->grain;
    now->from += cursor->grain;
    if (now->from < now->to)
        return;
    memmove(now, now + 1, --cursor->count * sizeof *now);
    if (cursor->count > 0)
        cursor->last = *now;
    cursor->at = cursor->last.from;
}

size_t lease_cursor_next_offsets(const struct lease_cursor *cursor, uint64_t *offset, size_t most)
{
    struct lease_cursor then = *cursor;
    size_t n = 0;
    do {
        lease_cursor_step(&then);
        offset[n++] = lease_cursor_offset(&then);
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
    if (cursor->pending || (2 * left > cursor->granted && left > cursor->grain))
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
