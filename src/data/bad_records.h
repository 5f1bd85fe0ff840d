/* The bad records of a job's data, each counted once, and the limit of their number. With
 * `on_bad_record: skip` the next readable record of the same set replaces a bad one (dataset_read).
 * So a dataset's record i stays a pure function of source, maps, seed, epoch and i: no batch
 * depends on this list. May be used from any thread. */
#ifndef PL_DATA_BAD_RECORDS_H
#define PL_DATA_BAD_RECORDS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BAD_RECORDS_MOST = 10000, BAD_CAUSE_MAX = 240 };

/* Which source a record is of: the job's training data, or its test data. */
enum bad_source { BAD_OF_TRAIN, BAD_OF_TEST };

/* The remedy for a bad record, where none is allowed. */
#define BAD_RECORD_REMEDY                                                                        \
    "repair or remove it (paceline data verify SPEC lists all such), or leave such records out " \
    "of "                                                                                        \
    "training (--set on_bad_record=skip)"

/* Added to the number of a record that was left out when its source was opened. */
#define BAD_AT_OPENING (UINT64_C(1) << 63)

struct bad_record {
    uint64_t record; /* its number in the source */
    enum bad_source of;
    char cause[BAD_CAUSE_MAX]; /* the message of the read that failed, which names it */
};

struct bad_records;

/* `max` ≤ BAD_RECORDS_MOST may be broken. NULL: out of memory */
struct bad_records *bad_records_create(uint32_t max);
void bad_records_free(struct bad_records *bad); /* NULL is allowed */

/* Count a record once; `cause` is truncated to fit. ERR_INPUT: the limit is exceeded; the message
 * has the number, the first record, and the remedy. */
int bad_records_add(struct bad_records *bad, enum bad_source of, uint64_t record, const char *cause,
                    struct err *err);

bool bad_records_have(const struct bad_records *bad, enum bad_source of, uint64_t record);

/* How many there are, and number i of them in the order in which they were found, i < count. */
size_t bad_records_count(const struct bad_records *bad);
const struct bad_record *bad_records_at(const struct bad_records *bad, size_t i);

#endif
