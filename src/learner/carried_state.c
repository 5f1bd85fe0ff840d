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
        .batch = arena_array(arena, some, float),
    };
    return c->at && c->next && c->batch ? OK : ERR_NOMEM;
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
                       const struct batch *records)
{
    for (size_t i = 0; i < records->count && c->streams > 0; i++) {
        size_t stream = stream_at(c, sampler, start + i);
        memcpy(c->at + stream * c->row, c->batch + i * c->row, c->row * sizeof(float));
        c->next[stream] = records->records[i] + 1;
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

void carried_state_export(const struct carried_state *c, float *out)
{
    size_t n = c->streams * c->row;
    if (c->streams == 0)
        return;
    memcpy(out, c->at, n * sizeof *out);
    for (size_t i = 0; i < c->streams; i++) {
        float *mark = out + n + i * CARRIED_STATE_MARKS;
        PL_ASSERT(c->next[i] <= NO_RECORD); /* so both parts are exact */
        mark[0] = (float)(c->next[i] >> 16);
        mark[1] = (float)(c->next[i] & 0xffff);
    }
}

/* Marks of an untrusted file that are no such parts become NO_RECORD. */
static uint64_t read_mark(const float *mark)
{
    bool fits = mark[0] >= 0 && mark[0] < 0x1p16f && mark[1] >= 0 && mark[1] < 0x1p16f;
    return fits ? (uint64_t)mark[0] << 16 | (uint64_t)mark[1] : NO_RECORD;
}

void carried_state_import(struct carried_state *c, const float *in)
{
    size_t n = c->streams * c->row;
    if (c->streams == 0)
        return;
    memcpy(c->at, in, n * sizeof *in);
    for (size_t i = 0; i < c->streams; i++)
        c->next[i] = read_mark(in + n + i * CARRIED_STATE_MARKS);
}
