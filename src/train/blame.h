/* Why the members of an exchange have waited for one of them: it came late because its step was
 * long, or its data came late; or it came in time and its link was slow. Pure: the driver decides
 * it on what the members report. */
#ifndef PL_TRAIN_BLAME_H
#define PL_TRAIN_BLAME_H

#include "group/members.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BLAME_WINDOW = 32 };

/* A member's totals since it joined, as of the exchange that it reports, and the exchange
 * itself. */
struct blame_report {
    double steps_s; /* seconds of its steps, */
    double data_s;  /* of which it has waited for records */
    double waited_s;
    double arrival_mbit;   /* rate of the message that took longest to arrive; 0: unknown */
    uint32_t arrival_from; /* its sender */
};

/* The same between two reports. */
struct blame_use {
    uint32_t node;
    double step_s, data_s; /* steps without the waits for records, and these */
    double waited_s;
    double arrival_mbit;
    uint32_t arrival_from;
};

enum blame_cause { BLAME_NONE, BLAME_STEP, BLAME_DATA, BLAME_LINK };

struct blame_verdict {
    enum blame_cause cause;
    uint32_t node; /* the member that held the exchange up */
    /* BLAME_STEP: its time as a multiple of its own median, or, where it always takes so long, of
     * the others' median in this exchange. */
    double factor;
    bool of_others;
    double late_s; /* BLAME_STEP, BLAME_DATA: how much later it was than the median of the others */
    double mbit;   /* BLAME_LINK */
};

/* A worker's last steps, for its median. */
struct blame_history {
    struct blame_report last;
    bool has_last;
    float step_s[BLAME_WINDOW];
    unsigned count; /* of all that were put in */
};

/* The use of `node` since its last report, which this one replaces; false: it is the first one, or
 * its totals have begun again. */
bool blame_take(struct blame_history *history, uint32_t node, const struct blame_report *report,
                struct blame_use *use);

/* `use` has the `count` members of the exchange that are known, `history` all nodes by number. The
 * member that came latest is to blame if that explains half of the longest wait. Else messages were
 * late: the slow link is that of the member at most ends of the slowest arrivals, since all that it
 * sends and receives is slow. BLAME_NONE: nobody waited for as much as a tenth of a step, several
 * links are slow alike, or too few are known. */
struct blame_verdict blame_find(const struct blame_history *history, const struct blame_use *use,
                                size_t count);

/* "its step took 2.1 × its median"; "": BLAME_NONE. */
enum { BLAME_TEXT_MAX = 80 };
void blame_print(const struct blame_verdict *verdict, char out[BLAME_TEXT_MAX]);

/* The cause in events: "step", "data", "link"; NULL: BLAME_NONE. */
const char *blame_word(enum blame_cause cause);

#endif
