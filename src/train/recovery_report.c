#include "train/recovery_report.h"

#include "base/minmax.h"

enum {
    AT_OFFSET,
    AT_STEPS,
    AT_EXCHANGES,
    AT_USED,
    AT_SAMPLES,
    AT_OWN,
    AT_DEPARTED,
    AT_WORDS = AT_DEPARTED + GROUP_TOTALS,
    AT_LEASE, /* taken, again, high, ask, then each from and to, 0 where there is none */
    AT_JOIN_STATE = AT_LEASE + 4 + 2 * LEASE_HELD_MAX
};

_Static_assert(AT_JOIN_STATE + JOIN_STATE_WORDS + MEMBER_WORDS <= GROUP_REPORT,
               "a header has room for all");

void recovery_report_write(const struct recovery_report *report, uint64_t words[GROUP_REPORT])
{
    const struct progress *progress = &report->progress;
    for (int i = 0; i < GROUP_REPORT; i++)
        words[i] = 0;
    words[AT_OFFSET] = progress->sample_offset;
    words[AT_STEPS] = progress->steps;
    words[AT_EXCHANGES] = progress->exchanges;
    words[AT_USED] = progress->samples_used;
    words[AT_SAMPLES] = report->samples;
    words[AT_OWN] = report->exchanges;
    for (int i = 0; i < GROUP_TOTALS; i++)
        words[AT_DEPARTED + i] = report->departed_totals[i];
    words[AT_LEASE] = report->lease.taken;
    words[AT_LEASE + 1] = report->lease.repeated;
    words[AT_LEASE + 2] = report->lease_high;
    words[AT_LEASE + 3] = report->lease_request;
    for (size_t i = 0; i < report->lease.count; i++) {
        words[AT_LEASE + 4 + 2 * i] = report->lease.held[i].from;
        words[AT_LEASE + 5 + 2 * i] = report->lease.held[i].to;
    }
    words[AT_WORDS] = report->words;
    for (uint64_t i = 0; i < report->words; i++)
        words[AT_JOIN_STATE + i] = report->join_state[i];
    for (int i = 0; i < MEMBER_WORDS; i++)
        words[AT_JOIN_STATE + JOIN_STATE_WORDS + i] = progress->sharers.word[i];
}

void recovery_report_read(const uint64_t words[GROUP_REPORT], struct recovery_report *report)
{
    struct progress *progress = &report->progress;
    progress->sample_offset = words[AT_OFFSET];
    progress->steps = words[AT_STEPS];
    progress->exchanges = words[AT_EXCHANGES];
    progress->samples_used = words[AT_USED];
    report->samples = words[AT_SAMPLES];
    report->exchanges = words[AT_OWN];
    for (int i = 0; i < GROUP_TOTALS; i++)
        report->departed_totals[i] = words[AT_DEPARTED + i];
    report->lease =
        (struct lease_holder){.taken = words[AT_LEASE], .repeated = words[AT_LEASE + 1]};
    report->lease_high = words[AT_LEASE + 2];
    report->lease_request = (uint32_t)words[AT_LEASE + 3];
    for (int i = 0; i < LEASE_HELD_MAX && words[AT_LEASE + 5 + 2 * i] > 0; i++)
        report->lease.held[report->lease.count++] =
            (struct lease){.from = words[AT_LEASE + 4 + 2 * i], .to = words[AT_LEASE + 5 + 2 * i]};
    report->words = words[AT_WORDS] <= JOIN_STATE_WORDS ? words[AT_WORDS] : 0;
    for (int i = 0; i < JOIN_STATE_WORDS; i++)
        report->join_state[i] = words[AT_JOIN_STATE + i];
    for (int i = 0; i < MEMBER_WORDS; i++)
        progress->sharers.word[i] = words[AT_JOIN_STATE + JOIN_STATE_WORDS + i];
}

struct recovery_sum recovery_sum(const struct recovery_report *reports, const struct members *nodes,
                                 const struct progress *least)
{
    struct recovery_sum sum = {.samples = 0};
    uint64_t departed[DEPARTED_COUNT] = {0}, repeated = 0;
    MEMBERS_EACH (node, nodes) {
        const struct recovery_report *report = &reports[node];
        sum.samples += report->samples;
        sum.exchanges += report->exchanges;
        repeated += report->lease.repeated;
        for (int k = 0; k < DEPARTED_COUNT; k++)
            departed[k] = max_size(departed[k], report->departed_totals[k]);
    }
    uint64_t own = sum.samples, before = least->sample_offset - least->samples_used;
    sum.samples = max_size(own + departed[DEPARTED_SAMPLES], least->sample_offset);
    sum.exchanges = max_size(sum.exchanges + departed[DEPARTED_EXCHANGES], least->exchanges);
    sum.untaken = sum.samples - own;
    bool lacks = own + departed[DEPARTED_SAMPLES] < least->sample_offset;
    uint64_t again = repeated + departed[DEPARTED_REPEATED_BY];
    sum.repeated_leases = min_size(lacks ? max_size(again, before) : again, sum.samples);
    sum.repeated = repeated + departed[DEPARTED_REPEATED];
    return sum;
}
