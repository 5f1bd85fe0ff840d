/* The handshake of a worker and the driver: the driver sends every connecting worker a welcome with
 * the job; the worker opens the data, plans the net, and sends a hello with the values that must
 * agree. */
#ifndef PL_TRAIN_HANDSHAKE_MESSAGE_H
#define PL_TRAIN_HANDSHAKE_MESSAGE_H

#include "base/bytes.h"
#include "base/err.h"
#include "base/release.h"
#include "group/view.h"
#include "job/job.h"
#include "train/worker_report.h"

enum { HELLO_TEXT_MAX = 32, HELLO_PATH_MAX = 200 };

/* A source of records as a node has it, for a message that says how two differ. */
struct hello_data {
    uint64_t hash, count;
    char path[HELLO_PATH_MAX]; /* cut where it does not fit; opened by nobody */
};

/* The data of a job as a node has it. */
struct hello_records {
    uint64_t hash; /* of all of it */
    struct hello_data train, test;
};

struct welcome {
    uint32_t version;          /* WIRE_VERSION */
    char release[RELEASE_MAX]; /* the driver's */
    char *job;                 /* the finished job as text; both owned, freed by welcome_release */
    char *folder; /* of the job file, with its slash: relative paths of data were taken from it */
    bool busy_hosts;      /* heartbeats at the pace of busy or shared hosts */
    bool resumes;         /* what it begins with is not drawn (bootstrap.h) */
    bool late;            /* the run is under way: others have what this worker begins with */
    bool traces;          /* say where your time goes (tracer.h) */
    bool checks;          /* ask the driver whether all can reach each other (connectivity.h) */
    uint32_t incarnation; /* of the driver */
    uint64_t leases_from; /* where the first leases begin (lease_server.h) */
    struct hello_records records; /* the driver's: who has others need not plan a net for them */
};

struct hello {
    uint32_t version; /* WIRE_VERSION */
    char release[RELEASE_MAX];
    uint64_t job_hash, segments_hash;
    uint32_t threads;
    char isa[HELLO_TEXT_MAX], kernels[HELLO_TEXT_MAX];
    char host[WORKER_HOST_MAX], address[NODE_ADDRESS_MAX];
    struct hello_records records;
};

struct corpus;

/* The data that `job` names, as this node has it. */
void hello_take_records(struct hello_records *own, const Paceline__Job *job,
                        const struct corpus *corpus);

/* Are they the driver's? ERR_INPUT: how much of it there is, where, and that contents differ. */
int hello_check_records(const struct hello_records *theirs, const struct hello_records *drivers,
                        struct err *err);

void welcome_encode(const struct welcome *welcome, struct buf *out);
/* ERR_PROTOCOL, ERR_NOMEM; ERR_UNSUPPORTED: the driver is another release, and `out` holds its
 * version and release alone. */
int welcome_decode(struct byte_reader *in, struct welcome *out);
void welcome_release(struct welcome *welcome);

/* A worker and its driver are of different releases. ERR_INPUT naming both, and the remedy. */
int release_differs(uint32_t version, const char *release, uint32_t driver_version,
                    const char *driver, struct err *err);

void hello_write(const struct hello *hello, struct buf *out);
/* ERR_PROTOCOL */
int hello_read(struct byte_reader *in, struct hello *out);

/* Does a worker that says `hello` fit a run whose own hello would be `own`? ERR_INPUT naming what
 * differs. */
int hello_check(const struct hello *hello, const struct hello *own, struct err *err);

#endif
