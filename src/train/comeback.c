#include "train/comeback.h"

enum {
    AT_PLACE,
    AT_STEPS,
    AT_EXCHANGES,
    AT_USED,
    AT_SAMPLES,
    AT_OWN,
    AT_ASIDE,
    AT_WORDS = AT_ASIDE + GROUP_ASIDE,
    AT_WORD
};

_Static_assert(AT_WORD + ADMISSION_WORDS + MEMBER_WORDS <= GROUP_NOTE, "a note has room for all");

void comeback_note(const struct comeback *back, uint64_t note[GROUP_NOTE])
{
    const struct course *course = &back->course;
    for (int i = 0; i < GROUP_NOTE; i++)
        note[i] = 0;
    note[AT_PLACE] = course->place;
    note[AT_STEPS] = course->steps;
    note[AT_EXCHANGES] = course->exchanges;
    note[AT_USED] = course->used;
    note[AT_SAMPLES] = back->samples;
    note[AT_OWN] = back->exchanges;
    for (int i = 0; i < GROUP_ASIDE; i++)
        note[AT_ASIDE + i] = back->aside[i];
    note[AT_WORDS] = back->words;
    for (uint64_t i = 0; i < back->words; i++)
        note[AT_WORD + i] = back->word[i];
    for (int i = 0; i < MEMBER_WORDS; i++)
        note[AT_WORD + ADMISSION_WORDS + i] = course->who.word[i];
}

void comeback_read(const uint64_t note[GROUP_NOTE], struct comeback *back)
{
    struct course *course = &back->course;
    course->place = note[AT_PLACE];
    course->steps = note[AT_STEPS];
    course->exchanges = note[AT_EXCHANGES];
    course->used = note[AT_USED];
    back->samples = note[AT_SAMPLES];
    back->exchanges = note[AT_OWN];
    for (int i = 0; i < GROUP_ASIDE; i++)
        back->aside[i] = note[AT_ASIDE + i];
    back->words = note[AT_WORDS] <= ADMISSION_WORDS ? note[AT_WORDS] : 0;
    for (int i = 0; i < ADMISSION_WORDS; i++)
        back->word[i] = note[AT_WORD + i];
    for (int i = 0; i < MEMBER_WORDS; i++)
        course->who.word[i] = note[AT_WORD + ADMISSION_WORDS + i];
}
