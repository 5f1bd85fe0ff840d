#include "data/bad_records.h"

#include "base/fault.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct bad_records {
    uint32_t max;
    atomic_flag adding; /* held for the length of a copy */
    _Atomic size_t count;
    struct bad_record at[]; /* max + 1; those below `count` do not change any more */
};

struct bad_records *bad_records_create(uint32_t max)
{
    PL_ASSERT(max <= BAD_RECORDS_MOST);
    struct bad_records *bad = calloc(1, sizeof *bad + ((size_t)max + 1) * sizeof *bad->at);
    if (bad)
        bad->max = max;
    return bad;
}

void bad_records_free(struct bad_records *bad)
{
    free(bad);
}

size_t bad_records_count(const struct bad_records *bad)
{
    return atomic_load_explicit(&bad->count, memory_order_acquire);
}

const struct bad_record *bad_records_at(const struct bad_records *bad, size_t i)
{
    PL_ASSERT(i < bad_records_count(bad));
    return &bad->at[i];
}

bool bad_records_have(const struct bad_records *bad, enum bad_source of, uint64_t record)
{
    size_t count = bad_records_count(bad);
    for (size_t i = 0; i < count; i++)
        if (bad->at[i].record == record && bad->at[i].of == of)
            return true;
    return false;
}

int bad_records_add(struct bad_records *bad, enum bad_source of, uint64_t record, const char *cause,
                    struct err *err)
{
    while (atomic_flag_test_and_set_explicit(&bad->adding, memory_order_acquire))
        ;
    size_t count = bad_records_count(bad);
    if (count <= bad->max && !bad_records_have(bad, of, record)) {
        struct bad_record *at = &bad->at[count++];
        at->record = record;
        at->of = of;
        snprintf(at->cause, sizeof at->cause, "%.*s", (int)sizeof at->cause - 1, cause);
        atomic_store_explicit(&bad->count, count, memory_order_release);
    }
    atomic_flag_clear_explicit(&bad->adding, memory_order_release);
    if (count <= bad->max)
        return OK;
    return err_set(err, ERR_INPUT,
                   "%zu broken records, more than bad_records_max: %u; first: %s; repair them "
                   "(paceline data verify SPEC lists them) or raise the limit",
                   count, bad->max, bad->at[0].cause);
}
