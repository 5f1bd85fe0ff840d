/* A worker's reports outside of training: the progress of opening its data, and the reason why it
 * cannot continue. Both name the machine, because a worker's number means little to a person. */
#ifndef PL_TRAIN_WORKER_REPORT_H
#define PL_TRAIN_WORKER_REPORT_H

#include "base/bytes.h"
#include "base/err.h"
#include "group/view.h"

/* Where a worker runs: the name of its machine and the address it listens at, each "" when unknown.
 */
struct worker_location {
    char host[WORKER_HOST_MAX], address[NODE_ADDRESS_MAX];
};

/* Opening: `done` of `total` things of a stage; total 0: unknown. */
struct opening_report {
    struct worker_location location;
    char stage[WORKER_STAGE_MAX]; /* "train_data", "planning" */
    uint64_t done, total;
};

/* "120 of 600 pictures", or "7 kernel timings" where the total is unknown. */
enum { OPENING_TEXT_MAX = 96 };
void opening_print(const char *stage, uint64_t done, uint64_t total, char out[OPENING_TEXT_MAX]);

void opening_encode(const struct opening_report *report, struct buf *out);
/* ERR_PROTOCOL */
int opening_decode(struct byte_reader *in, struct opening_report *out);

enum departure_stage { DEPARTED_OPENING, DEPARTED_JOINING, DEPARTED_REFUSED, DEPARTED_TRAINING };

/* The end of a worker's work: status OK when its loop has ended in order. */
struct departure {
    int status;
    enum departure_stage stage;
    struct worker_location location;
    char text[ERR_TEXT_MAX]; /* what failed, where, and the remedy */
};

void departure_encode(const struct departure *departure, struct buf *out);
/* ERR_PROTOCOL. Texts are fit to be printed. */
int departure_decode(struct byte_reader *in, struct departure *out);

/* "worker 3 (host, 10.0.0.3:4711)" into `out`; what is unknown is left out. */
void worker_location_print(const struct worker_location *location, uint32_t node, char *out,
                           size_t size);

/* "worker 3 (host, address) left while opening: TEXT", with the departure's status. */
void departure_explain(const struct departure *departure, uint32_t node, struct err *out);

/* Departures that were reported lately: the same host with the same cause is reported at most once
 * in DEPARTURE_PAUSE. Bounded: the oldest is forgotten for a new one. Zeroed: empty. */
enum { DEPARTURES_MAX = 64 };
#define DEPARTURE_PAUSE INT64_C(60000000000) /* ns */

struct departures {
    struct {
        uint64_t cause; /* hash of the host and of the text without digits; 0: a free entry */
        int64_t reported;
        uint32_t silent; /* since then */
    } at[DEPARTURES_MAX];
};

/* Is this departure to be reported at `now`? If so, *silent is the number of equal ones that were
 * not reported since the last one. */
bool departure_is_news(struct departures *departures, const struct departure *departure,
                       int64_t now, uint32_t *silent);

#endif
