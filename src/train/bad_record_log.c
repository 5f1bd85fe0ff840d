#include "train/bad_record_log.h"

#include <stdlib.h>

int bad_record_log_add(struct bad_record_log *log, uint64_t machine, const struct bad_record *bad,
                       bool *confirmed)
{
    struct err none;
    if (!log->seen) {
        log->seen = bad_records_create(BAD_RECORDS_MOST);
        log->machine = calloc(BAD_RECORDS_MOST + 1, sizeof *log->machine);
    }
    if (!log->seen || !log->machine)
        return ERR_NOMEM;
    size_t count = bad_records_count(log->seen);
    *confirmed = false;
    for (size_t i = 0; i < count; i++) {
        const struct bad_record *known = bad_records_at(log->seen, i);
        if (known->record == bad->record && known->of == bad->of) {
            *confirmed = log->machine[i] != machine;
            return OK;
        }
    }
    bad_records_add(log->seen, bad->of, bad->record, bad->cause, &none);
    if (bad_records_count(log->seen) > count)
        log->machine[count] = machine;
    return OK;
}

void bad_record_log_release(struct bad_record_log *log)
{
    bad_records_free(log->seen);
    free(log->machine);
    *log = (struct bad_record_log){0};
}
