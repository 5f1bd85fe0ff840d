#include "learner/carried_state.h"

#include "base/fault.h"
#include "base/status.h"

#include <string.h>

#define NO_RECORD (UINT64_C(1) << 32) /* the numbers of records fit 32 bits */

int carried_state_init(struct carried_state *c, struct arena *arena, size_t streams, size_t row,
                       size_t most)
{
    size_t all, some;
    *c = (struct carried_state){0};
    if (streams == 0 || row == 0)
        return OK;
    if (__builtin_mul_overflow(streams, row, &all) || __builtin_mul_overflow(most, row, &some))
        return ERR_NOMEM;
    *c = (struct carried_state){
        .streams = streams,
        .row = row,
        .at = arena_array(arena, all, float),
        .next = arena_array(arena, streams, uint64_t),
        .is_own = arena_array(arena, streams, bool),
        .batch = arena_array(arena, some, float),
    };
    return c->at && c->next && c->is_own && c->batch ? OK : ERR_NOMEM;
}

/* The stream of the record at a place. */
static size_t stream_at(const struct carried_state *c, const struct sampler *sampler,
                        uint64_t place)
{
    return (size_t)(place % sampler->n) % c->streams;
}

/* At first all states belong to record 0, and are 0, as that one's must be. */
float *carried_state_begin(const struct carried_state *c, const struct sampler *sampler,
                           uint64_t start, const struct batch *records)
{
    size_t bytes = c->row * sizeof(float);
    if (c->streams == 0)
        return NULL;
    for (size_t i = 0; i < records->count; i++) {
        size_t stream = stream_at(c, sampler, start + i);
        if (c->next[stream] == records->records[i])
            memcpy(c->batch + i * c->row, c->at + stream * c->row, bytes);
        else
            memset(c->batch + i * c->row, 0, bytes);
    }
    return c->batch;
}

void carried_state_end(struct carried_state *c, const struct sampler *sampler, uint64_t start,
                       const struct batch *records, struct range own)
{
    for (size_t i = 0; i < records->count && c->streams > 0; i++) {
        size_t stream = stream_at(c, sampler, start + i);
        memcpy(c->at + stream * c->row, c->batch + i * c->row, c->row * sizeof(float));
        c->next[stream] = records->records[i] + 1;
        c->is_own[stream] = i >= own.from && i - own.from < own.len;
    }
}

void carried_state_reset(struct carried_state *c)
{
    if (c->streams == 0)
        return;
    memset(c->at, 0, c->streams * c->row * sizeof *c->at);
    memset(c->next, 0, c->streams * sizeof *c->next);
}

size_t carried_state_floats(size_t streams, size_t row)
{
    return row > 0 ? streams * (row + CARRIED_STATE_MARKS) : 0;
}

static float *mark_of(float *table, size_t streams, size_t row, size_t stream)
{
    return table + streams * row + stream * CARRIED_STATE_MARKS;
}

static void write_mark(float *mark, uint64_t record)
{
    PL_ASSERT(record <= NO_RECORD); /* so both parts are exact */
    mark[0] = (float)(record >> 16);
    mark[1] = (float)(record & 0xffff);
}

/* The place of the stream's next record: in the epoch of `from`, or in the one behind it. */
static uint64_t next_place(const struct carried_selection *only, size_t streams, size_t stream)
{
    uint64_t n = only->sampler->n, place = only->from % n, epoch = only->from - place;
    uint64_t next = place + (stream + streams - place % streams) % streams;
    return next < n ? epoch + next : epoch + n + stream;
}

static bool is_selected(const struct carried_state *c, const struct carried_selection *only,
                        size_t stream)
{
    uint64_t place = next_place(only, c->streams, stream), n = only->sampler->n;
    return only->takes(only->user, place) &&
           sampler_at(only->sampler, place / n, (size_t)(place % n)) == c->next[stream];
}

void carried_state_export(const struct carried_state *c, const struct carried_selection *only,
                          float *out)
{
    size_t bytes = c->row * sizeof *out;
    if (c->streams == 0)
        return;
    carried_table_clear(out, c->streams, c->row);
    for (size_t i = 0; i < c->streams; i++) {
        if (only && !is_selected(c, only, i))
            continue;
        memcpy(out + i * c->row, c->at + i * c->row, bytes);
        write_mark(mark_of(out, c->streams, c->row, i), c->next[i]);
    }
}

/* Marks of an untrusted file or node that are no such parts become NO_RECORD. */
static uint64_t read_mark(const float *mark)
{
    bool fits = mark[0] >= 0 && mark[0] < 0x1p16f && mark[1] >= 0 && mark[1] < 0x1p16f;
    return fits ? (uint64_t)mark[0] << 16 | (uint64_t)mark[1] : NO_RECORD;
}

void carried_state_import(struct carried_state *c, const float *in, bool are_own)
{
    size_t n = c->streams * c->row;
    if (c->streams == 0)
        return;
    memcpy(c->at, in, n * sizeof *in);
    for (size_t i = 0; i < c->streams; i++) {
        c->next[i] = read_mark(in + n + i * CARRIED_STATE_MARKS);
        c->is_own[i] = are_own;
    }
}

void carried_table_clear(float *table, size_t streams, size_t row)
{
    memset(table, 0, streams * row * sizeof *table);
    for (size_t i = 0; i < streams; i++)
        write_mark(mark_of(table, streams, row, i), NO_RECORD);
}

static bool has_state(const float *table, size_t streams, size_t row, size_t stream)
{
    return read_mark(table + streams * row + stream * CARRIED_STATE_MARKS) != NO_RECORD;
}

void carried_table_merge(float *table, const float *other, size_t streams, size_t row)
{
    for (size_t i = 0; i < streams; i++) {
        if (!has_state(other, streams, row, i))
            continue;
        memcpy(table + i * row, other + i * row, row * sizeof *table);
        memcpy(mark_of(table, streams, row, i), other + streams * row + i * CARRIED_STATE_MARKS,
               CARRIED_STATE_MARKS * sizeof *table);
    }
}

size_t carried_table_count(const float *table, size_t streams, size_t row)
{
    size_t count = 0;
    for (size_t i = 0; i < streams; i++)
        count += has_state(table, streams, row, i);
    return count;
}

/* In summands the marks of no record are 0, and those of others have an upper part of 1 more. */
void carried_table_begin_sum(float *table, size_t streams, size_t row, bool counts)
{
    for (size_t i = 0; i < streams; i++) {
        float *mark = mark_of(table, streams, row, i);
        if (counts && has_state(table, streams, row, i))
            mark[0] += 1;
        else
            memset(mark, 0, CARRIED_STATE_MARKS * sizeof *mark);
    }
}

void carried_table_end_sum(float *sum, size_t streams, size_t row)
{
    for (size_t i = 0; i < streams; i++) {
        float *mark = mark_of(sum, streams, row, i);
        if (mark[0] > 0)
            mark[0] -= 1;
        else
            write_mark(mark, NO_RECORD);
    }
}
