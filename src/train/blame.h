/* Why the members of an exchange have waited for one of them: it came late because its step was
 * long, its data came late, or it stood still; or it came in time and its link was slow; or the
 * driver was evaluating. Pure: the driver decides it on what the members report and on what it has
 * seen itself. */
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
    double silent_s;     /* the longest time between two of its heartbeats */
    bool on_driver_host; /* on the driver's machine */
};

/* Knowledge of the driver itself about an exchange. */
struct blame_driver {
    bool takes_part;
    double beat_s;      /* between two heartbeats of a member */
    double evaluated_s; /* that it has evaluated in since the exchange before */
    double waited_s;    /* the longest wait of this exchange, and */
    double usual_s;     /* the median of those without an evaluation; < 0: unknown */
};

enum blame_cause {
    BLAME_NONE,
    BLAME_STEP,
    BLAME_DATA,
    BLAME_LINK,
    BLAME_STOP,
    BLAME_EVALUATION,
    BLAME_CAUSES
};

struct blame_verdict {
    enum blame_cause cause;
    uint32_t node; /* the member, or the driver, that held the exchange up */
    /* BLAME_STEP: its time as a multiple of its own median, or, where it always takes so long, of
     * the others' median in this exchange. */
    double factor;
    bool of_others;
    double late_s; /* BLAME_STEP, BLAME_DATA: how much later it was than the median of the others */
    double mbit;   /* BLAME_LINK */
    double silent_s;    /* BLAME_STOP */
    double evaluated_s; /* BLAME_EVALUATION */
};

/* The last numbers of a kind, for their median. */
struct blame_window {
    float value[BLAME_WINDOW];
    unsigned count; /* of all that were put in */
};

void blame_put(struct blame_window *window, double value);
double blame_median(const struct blame_window *window); /* 0: it is empty */

/* A worker's last steps. */
struct blame_history {
    struct blame_report last;
    bool has_last;
    struct blame_window step_s, data_s;
    double silent_s; /* the longest silence before its last report */
};

/* The use of `node` since its last report, which this one replaces; false: it is the first one, or
 * its totals have begun again. */
bool blame_take(struct blame_history *history, uint32_t node, const struct blame_report *report,
                struct blame_use *use);

/* `use` has the `count` members of the exchange that are known, `history` all nodes by number. A
 * member that alone was silent for as long as the others waited stood still. Else the member that
 * came latest is to blame if that explains half of the longest wait; on the host of a driver that
 * evaluated meanwhile, the driver is. Else messages were late: a driver that takes part and
 * evaluates is to blame if exchanges without an evaluation have waits of about half the length.
 * Else the slow link is that of the member whose messages, sent and received, took longest, since
 * all of them are slow. BLAME_NONE: nobody waited for as much as a tenth of a step, several links
 * are slow alike, or too few are known. */
struct blame_verdict blame_find(const struct blame_history *history, const struct blame_use *use,
                                size_t count, const struct blame_driver *driver);

/* A wait in the own exchange of an asynchronous worker. */
struct blame_wait {
    uint32_t by, on;
    bool at_bound; /* `on` is a worker that is too far behind; else a server of a model */
    double seconds;
    double bytes;    /* of the exchange */
    double silent_s; /* `on`: the time since its last heartbeat */
};

/* At a bound the other worker is to blame if it stands still, or if its steps, or waits for
 * records, are long against the median of all others'. At a server the link is, or an evaluation
 * that the server makes meanwhile. */
struct blame_verdict blame_find_async(const struct blame_history history[VIEW_MEMBERS_MAX],
                                      const struct blame_wait *wait,
                                      const struct blame_driver *driver);

/* "its step took 2.1 × its median"; "": BLAME_NONE. */
enum { BLAME_TEXT_MAX = 80 };
void blame_print(const struct blame_verdict *verdict, char out[BLAME_TEXT_MAX]);

/* The cause in events: "step", "data", "link", "stop", "evaluation"; NULL: BLAME_NONE. */
const char *blame_word(enum blame_cause cause);

#endif
