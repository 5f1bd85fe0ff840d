#include "train/comeback.h"

enum {
    AT_PLACE,
    AT_STEPS,
    AT_EXCHANGES,
    AT_USED,
    AT_SAMPLES,
    AT_OWN,
    AT_ASIDE,
    AT_WORDS = AT_ASIDE + GROUP_TOTALS,
    AT_LEASE, /* taken, again, high, ask, then each from and to, 0 where there is none */
    AT_WORD = AT_LEASE + 4 + 2 * LEASE_HELD_MAX
};

_Static_assert(AT_WORD + ADMISSION_WORDS + MEMBER_WORDS <= GROUP_REPORT, "a note has room for all");

void comeback_note(const struct comeback *back, uint64_t note[GROUP_REPORT])
{
    const struct course *course = &back->course;
    for (int i = 0; i < GROUP_REPORT; i++)
        note[i] = 0;
    note[AT_PLACE] = course->place;
    note[AT_STEPS] = course->steps;
    note[AT_EXCHANGES] = course->exchanges;
    note[AT_USED] = course->used;
    note[AT_SAMPLES] = back->samples;
    note[AT_OWN] = back->exchanges;
    for (int i = 0; i < GROUP_TOTALS; i++)
        note[AT_ASIDE + i] = back->aside[i];
    note[AT_LEASE] = back->lease.taken;
    note[AT_LEASE + 1] = back->lease.repeated;
    note[AT_LEASE + 2] = back->lease_high;
    note[AT_LEASE + 3] = back->lease_ask;
    for (size_t i = 0; i < back->lease.count; i++) {
        note[AT_LEASE + 4 + 2 * i] = back->lease.held[i].from;
        note[AT_LEASE + 5 + 2 * i] = back->lease.held[i].to;
    }
    note[AT_WORDS] = back->words;
    for (uint64_t i = 0; i < back->words; i++)
        note[AT_WORD + i] = back->word[i];
    for (int i = 0; i < MEMBER_WORDS; i++)
        note[AT_WORD + ADMISSION_WORDS + i] = course->who.word[i];
}

void comeback_read(const uint64_t note[GROUP_REPORT], struct comeback *back)
{
    struct course *course = &back->course;
    course->place = note[AT_PLACE];
    course->steps = note[AT_STEPS];
    course->exchanges = note[AT_EXCHANGES];
    course->used = note[AT_USED];
    back->samples = note[AT_SAMPLES];
    back->exchanges = note[AT_OWN];
    for (int i = 0; i < GROUP_TOTALS; i++)
        back->aside[i] = note[AT_ASIDE + i];
    back->lease = (struct lease_holder){.taken = note[AT_LEASE], .repeated = note[AT_LEASE + 1]};
    back->lease_high = note[AT_LEASE + 2];
    back->lease_ask = (uint32_t)note[AT_LEASE + 3];
    for (int i = 0; i < LEASE_HELD_MAX && note[AT_LEASE + 5 + 2 * i] > 0; i++)
        back->lease.held[back->lease.count++] =
            (struct lease){.from = note[AT_LEASE + 4 + 2 * i], .to = note[AT_LEASE + 5 + 2 * i]};
    back->words = note[AT_WORDS] <= ADMISSION_WORDS ? note[AT_WORDS] : 0;
    for (int i = 0; i < ADMISSION_WORDS; i++)
        back->word[i] = note[AT_WORD + i];
    for (int i = 0; i < MEMBER_WORDS; i++)
        course->who.word[i] = note[AT_WORD + ADMISSION_WORDS + i];
}
