#include "tensor/tuner.h"

#include "base/array.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char first_line[] = "paceline kernels 1";

enum {
    ENTRIES_MAX = 16 * 1024,
    RUNS_MIN = 2,
    RUNS_MAX = 9,
    LONG = 30 * 1000 * 1000,   /* ns, to plan and to run once: such a candidate loses */
    ENOUGH = 20 * 1000 * 1000, /* ns of runs, once there are RUNS_MIN */
    WAKING = 500 * 1000,       /* ns: the time to wake threads is no disturbance, */
    WAKING_SHARE = 10,         /* nor is this part of a run */
    DISTURBED_RUNS = 12,       /* of a key; then it gets no choice */
    DISTURBED_KEYS = 3,        /* in a tuner's life, then it times nothing more */
    CHECK = 50 * 1000 * 1000,  /* ns of a tuner's life: no candidate is begun after them */
    CHECK_ONE_IN = 8,          /* processes, or more where there are many keys */
    FASTER = 10,               /* a rival replaces a choice if it is faster by this part */
};

struct entry {
    char key[TUNER_KEY_MAX + 1], name[TUNER_NAME_MAX + 1];
    int64_t ns; /* 0: there was no time for it, and there is no name */
};

struct tuner {
    struct tuner_host host;
    struct entry *at; /* in the order of keys */
    size_t count, cap;
    struct tuner_news news;
    int64_t spent; /* on new keys */
    int64_t total;
    int disturbed; /* keys that were given up */
    bool stopped;
    bool checking;      /* choices that are kept, */
    uint64_t number;    /* those of this process; */
    int64_t checked;    /* the time of the checks */
    bool held;          /* nothing is timed, but counted: */
    size_t passed_over; /* keys */
    const struct open_watch *watch;
    bool halted; /* by the watch */
    uint64_t runs;
};

struct tuner *tuner_create(const struct tuner_host *host)
{
    struct tuner *tuner = calloc(1, sizeof *tuner);
    if (tuner)
        tuner->host = *host;
    return tuner;
}

void tuner_free(struct tuner *tuner)
{
    if (tuner)
        free(tuner->at);
    free(tuner);
}

/* ---- the table ---- */

/* The first entry whose key is not before `key`. */
static size_t place_of(const struct tuner *tuner, const char *key)
{
    size_t low = 0, high = tuner->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (strcmp(tuner->at[mid].key, key) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool is_at(const struct tuner *tuner, size_t place, const char *key)
{
    return place < tuner->count && strcmp(tuner->at[place].key, key) == 0;
}

const char *tuner_find(const struct tuner *tuner, const char *key)
{
    size_t place = place_of(tuner, key);
    return is_at(tuner, place, key) && tuner->at[place].ns > 0 ? tuner->at[place].name : NULL;
}

int64_t tuner_time(const struct tuner *tuner, const char *key)
{
    size_t place = place_of(tuner, key);
    return is_at(tuner, place, key) ? tuner->at[place].ns : 0;
}

/* Replace the key's entry. false: there is no room, and the key is timed again. */
static bool put_entry(struct tuner *tuner, const struct entry *entry)
{
    size_t place = place_of(tuner, entry->key);
    if (!is_at(tuner, place, entry->key)) {
        if (tuner->count >= ENTRIES_MAX ||
            !array_grow(&tuner->at, tuner->count, &tuner->cap, sizeof *tuner->at))
            return false;
        struct entry *at = tuner->at + place;
        memmove(at + 1, at, (tuner->count - place) * sizeof *at);
        tuner->count++;
    }
    tuner->at[place] = *entry;
    return true;
}

/* ---- timing ---- */

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

struct trial {
    struct tuner *tuner;
    tuner_run run;
    void *user;
    int disturbed; /* runs of this key */
};

static int64_t delay_until_now(const struct tuner_host *host)
{
    return host->delay ? host->delay(host->user) : 0;
}

/* A run whose threads had to wait for a processor does not count, and is repeated.
 * ERR_TIMEOUT: there were too many of them. */
static int time_run(struct trial *t, size_t i, int64_t *ns)
{
    struct tuner *tuner = t->tuner;
    const struct tuner_host *host = &tuner->host;
    for (;;) {
        tuner->halted = open_watch_report(tuner->watch, "kernel timings", ++tuner->runs, 0, NULL);
        if (tuner->halted)
            return ERR_CANCELLED;
        int64_t delay = delay_until_now(host), start = host->now(host->user);
        int rc = t->run(t->user, i);
        *ns = host->now(host->user) - start;
        if (rc != OK || delay_until_now(host) - delay <= WAKING + *ns / WAKING_SHARE)
            return rc;
        if (++t->disturbed == DISTURBED_RUNS)
            return ERR_TIMEOUT;
    }
}

/* The median of candidate i's times. A candidate that is far behind `best` is not timed to the
 * end. */
static int time_candidate(struct trial *t, size_t i, int64_t best, int64_t *median)
{
    int64_t ns[RUNS_MAX], sum = 0, least;
    int n = 0, rc = time_run(t, i, median); /* plans, and touches its memory */
    if (rc != OK || (*median > LONG && *median / 4 > best))
        return rc;
    rc = time_run(t, i, median); /* warms */
    if (rc != OK || *median / 2 > best)
        return rc;
    least = *median;
    while (rc == OK && n < RUNS_MAX && (n < RUNS_MIN || sum < ENOUGH)) {
        rc = time_run(t, i, &ns[n]);
        sum += ns[n];
        least = ns[n] < least ? ns[n] : least;
        if (++n == 2 && least - least / 4 > best)
            break;
    }
    qsort(ns, (size_t)n, sizeof *ns, compare_times);
    *median = ns[(n - 1) / 2];
    return rc;
}

/* ---- checking what is kept ---- */

void tuner_check(struct tuner *tuner, uint64_t number)
{
    tuner->checking = tuner->host.delay != NULL;
    tuner->number = number;
}

/* About two keys of a net with all of the table's. Which are together is drawn again in each round,
 * since the first of them often takes all the time that there is. */
static uint64_t check_one_in(const struct tuner *tuner)
{
    return tuner->count / 2 > CHECK_ONE_IN ? tuner->count / 2 : CHECK_ONE_IN;
}

bool tuner_checks(const struct tuner *tuner, const char *key)
{
    uint64_t one_in = check_one_in(tuner), round = tuner->number / one_in;
    uint64_t turn = hash_mix(hash_bytes(key, strlen(key)), round) + tuner->number;
    return tuner->checking && !tuner->stopped && !tuner->halted && tuner->checked < CHECK &&
           turn % one_in == 0;
}

static bool is_ahead(int64_t ns, int64_t of)
{
    return ns < of - of / FASTER;
}

/* Each is timed before and after the other, so that what slows one for a while decides nothing. */
static bool is_faster(struct trial *t, size_t rival, size_t kept, int64_t kept_ns, int64_t *ns)
{
    int64_t again;
    return time_candidate(t, rival, kept_ns, ns) == OK && is_ahead(*ns, kept_ns) &&
           time_candidate(t, kept, INT64_MAX, &again) == OK && is_ahead(*ns, again) &&
           time_candidate(t, rival, kept_ns, ns) == OK &&
           is_ahead(*ns, again < kept_ns ? again : kept_ns);
}

/* The kept one, or the first that beats it, with its time. */
static size_t check_choice(struct trial *t, size_t kept, size_t n, int64_t *ns)
{
    struct tuner *tuner = t->tuner;
    const struct tuner_host *host = &tuner->host;
    int64_t start = host->now(host->user), kept_ns, took = 0;
    size_t first = (size_t)(tuner->number / check_one_in(tuner) % n), winner = kept;
    t->disturbed = DISTURBED_RUNS - 1; /* the first is one too many */
    int rc = time_candidate(t, kept, INT64_MAX, &kept_ns);
    for (size_t k = 0; rc == OK && k < n && winner == kept && t->disturbed < DISTURBED_RUNS &&
                       tuner->checked + took < CHECK;
         k++) {
        size_t rival = (first + k) % n;
        if (rival != kept && is_faster(t, rival, kept, kept_ns, ns))
            winner = rival;
        took = host->now(host->user) - start;
    }
    took = host->now(host->user) - start;
    tuner->spent += took;
    tuner->total += took;
    tuner->checked = t->disturbed == DISTURBED_RUNS ? CHECK : tuner->checked + took;
    return winner;
}

static void check_text(const char *text, size_t max)
{
    PL_ASSERT(text[0] && strlen(text) <= max && !strchr(text, '|'));
}

static void keep_choice(struct tuner *tuner, const char *key, const char *name, int64_t ns)
{
    struct entry entry = {.ns = ns > 0 ? ns : 1};
    check_text(key, TUNER_KEY_MAX);
    check_text(name, TUNER_NAME_MAX);
    strcpy(entry.key, key);
    strcpy(entry.name, name);
    put_entry(tuner, &entry);
}

/* The kept choice, or, if it is checked, its replacement. */
static size_t use_kept(struct trial *t, const char *key, const char *const *names, size_t n,
                       size_t kept)
{
    int64_t ns;
    size_t winner = tuner_checks(t->tuner, key) ? check_choice(t, kept, n, &ns) : kept;
    if (winner != kept) {
        keep_choice(t->tuner, key, names[winner], ns);
        t->tuner->news.mended++;
    }
    return winner;
}

size_t tuner_choose(struct tuner *tuner, const char *key, const char *const *names, size_t n,
                    tuner_run run, void *user)
{
    struct trial trial = {.tuner = tuner, .run = run, .user = user};
    const char *kept = tuner_find(tuner, key);
    for (size_t i = 0; kept && i < n; i++)
        if (strcmp(names[i], kept) == 0)
            return use_kept(&trial, key, names, n, i);
    const struct tuner_host *host = &tuner->host;
    int64_t start = host->now(host->user), best = INT64_MAX, ns;
    size_t winner = n;
    for (size_t i = 0; i < n && trial.disturbed < DISTURBED_RUNS && !tuner->halted; i++)
        if (time_candidate(&trial, i, best, &ns) == OK && (winner == n || ns < best - best / 50)) {
            best = ns;
            winner = i;
        }
    int64_t took = host->now(host->user) - start;
    tuner->spent += took;
    tuner->total += took;
    if (trial.disturbed == DISTURBED_RUNS) {
        tuner->disturbed++;
        tuner->news.disturbed++;
        return n;
    }
    if (winner == n || tuner->halted)
        return n;
    keep_choice(tuner, key, names[winner], best);
    tuner->news.timed++;
    return winner;
}

void tuner_stop(struct tuner *tuner)
{
    tuner->stopped = true;
}

void tuner_hold(struct tuner *tuner)
{
    tuner->held = true;
    tuner->passed_over = 0;
}

size_t tuner_continue(struct tuner *tuner)
{
    tuner->held = false;
    return tuner->passed_over;
}

void tuner_set_watch(struct tuner *tuner, const struct open_watch *watch)
{
    tuner->watch = watch;
    tuner->halted = false;
}

bool tuner_has_time(struct tuner *tuner, const char *key)
{
    if (tuner->stopped || tuner->halted)
        return false;
    bool quiet = tuner->disturbed < DISTURBED_KEYS;
    bool has_time = quiet && tuner->total < TUNER_SECONDS * INT64_C(1000000000);
    if (tuner->held) {
        tuner->passed_over += has_time;
        return false;
    }
    if (has_time)
        return true;
    if (is_at(tuner, place_of(tuner, key), key) && !tuner_find(tuner, key))
        return false;
    struct entry entry = {.ns = 0};
    check_text(key, TUNER_KEY_MAX);
    strcpy(entry.key, key);
    put_entry(tuner, &entry);
    if (quiet)
        tuner->news.left++;
    else
        tuner->news.disturbed++;
    return false;
}

double tuner_seconds(const struct tuner *tuner)
{
    return tuner ? (double)tuner->total * 1e-9 : 0;
}

void tuner_finish(struct tuner *tuner)
{
    struct tuner_news news = tuner->news;
    news.seconds = (double)tuner->spent * 1e-9;
    tuner->news = (struct tuner_news){0};
    tuner->spent = 0;
    bool any = news.timed > 0 || news.mended > 0 || news.left > 0 || news.disturbed > 0;
    if (any && tuner->host.keep)
        tuner->host.keep(tuner->host.user, tuner, &news);
}

/* ---- as text ---- */

static const char separator[] = " | ";

/* The bytes before the next separator into `out`, of `max` and a zero: printable, no bar. False
 * where they are none. *at moves past the separator. */
static bool take_field(const char **at, const char *end, char *out, size_t max)
{
    size_t n = 0, len = sizeof separator - 1;
    const char *p = *at;
    while (p < end && *p != '|' && *p >= ' ' && *p <= '~')
        p++;
    if (p == *at || p >= end || *p != '|' || (size_t)(p - *at) < 2)
        return false;
    n = (size_t)(p - *at) - 1; /* less the space before the bar */
    if (n > max || (*at)[n] != ' ' || (size_t)(end - (*at + n)) < len ||
        memcmp(*at + n, separator, len) != 0)
        return false;
    memcpy(out, *at, n);
    out[n] = '\0';
    *at += n + len;
    return true;
}

/* Digits, then " ns", and no more. */
static bool take_time(const char *at, const char *end, int64_t *ns)
{
    int64_t value = 0;
    const char *p = at;
    for (; p < end && *p >= '0' && *p <= '9' && p - at < 18; p++)
        value = 10 * value + (*p - '0');
    *ns = value;
    return value > 0 && end - p == 3 && memcmp(p, " ns", 3) == 0;
}

static bool read_line(const char *at, const char *end, struct entry *out)
{
    *out = (struct entry){0};
    return take_field(&at, end, out->key, TUNER_KEY_MAX) &&
           take_field(&at, end, out->name, TUNER_NAME_MAX) && take_time(at, end, &out->ns);
}

bool tuner_is_table(const char *text, size_t len)
{
    size_t name = sizeof first_line - 2; /* less the version */
    return len >= name && memcmp(text, first_line, name) == 0;
}

size_t tuner_load(struct tuner *tuner, const char *text, size_t len)
{
    const char *at = text, *stop = text + len;
    size_t taken = 0;
    for (bool first = true; at < stop; first = false) {
        const char *end = memchr(at, '\n', (size_t)(stop - at));
        struct entry entry;
        if (!end) /* the line was not finished */
            break;
        if (first && ((size_t)(end - at) != sizeof first_line - 1 ||
                      memcmp(at, first_line, sizeof first_line - 1) != 0))
            break;
        if (!first && read_line(at, end, &entry) && !tuner_find(tuner, entry.key))
            taken += put_entry(tuner, &entry);
        at = end + 1;
    }
    return taken;
}

int tuner_text(struct tuner *tuner, struct buf *out)
{
    buf_printf(out, "%s\n", first_line);
    for (size_t i = 0; i < tuner->count; i++) {
        const struct entry *e = &tuner->at[i];
        if (e->ns > 0)
            buf_printf(out, "%s%s%s%s%" PRId64 " ns\n", e->key, separator, e->name, separator,
                       e->ns);
    }
    return out->failed ? ERR_NOMEM : OK;
}
