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

/* Records with an identity of their own, which a node has. */
struct holding {
    uint64_t hash, count;
    bool grows; /* `count` have arrived, and others may follow; no other node has them */
};

/* Of a holding: its identity, the records that have arrived, and the samples that a worker has
 * taken. */
struct holding_use {
    uint64_t hash, records, taken;
};

/* With local_data: what a node's records have in common with those of others, and which it has. */
struct hello_local {
    uint64_t schema;           /* dataset_schema */
    uint32_t classes;          /* at most the driver's */
    char kind[HELLO_KIND_MAX]; /* "1x28x28 of 10 classes", for messages */
    uint64_t epoch_records;    /* of the run, as this node knows it; 0: not yet */
    uint32_t holdings;         /* of its training set, in order; 0: not local_data */
    struct holding holding[HOLDINGS_MAX];
};

/* A node's source of records, for a message that names a difference. */
struct hello_data {
    uint64_t hash, count;
    char path[HELLO_PATH_MAX]; /* truncated where it does not fit; for messages only */
};

/* A node's data of the job. */
struct hello_records {
    uint64_t hash; /* of all of the data; with local_data of its schema */
    struct hello_data train, test;
    struct hello_local local;
};

struct welcome {
    uint32_t version;          /* WIRE_VERSION */
    char release[RELEASE_MAX]; /* the driver's */
    char *job;                 /* the finished job as text; both owned, freed by welcome_release */
    char *folder;    /* folder of the job file, with its slash: the base of relative data paths */
    bool busy_hosts; /* use the timing for busy or shared hosts */
    bool resumes;    /* the initial state is not drawn from the seed (bootstrap.h) */
    bool late;       /* the run is under way: a donor sends the state */
    bool traces;     /* the worker sends trace spans (tracer.h) */
    bool checks;     /* the worker must pass the connectivity check (connectivity.h) */
    uint32_t incarnation;         /* of the driver */
    uint64_t leases_from;         /* frontier at which the first leases begin (lease_server.h) */
    struct hello_records records; /* the driver's: a worker with other data need not plan a net */
};

/* A node's machine, for people. "" and 0: unknown, or simulated. */
struct hello_machine {
    char cpu[HELLO_CPU_MAX]; /* cut short where it does not fit */
    uint32_t cores;          /* that the node may use */
    uint64_t memory;         /* bytes; below HELLO_MEMORY_MAX, so that a double has it */
};

#define HELLO_MEMORY_MAX (UINT64_C(1) << 53)

struct hello {
    uint32_t version; /* WIRE_VERSION */
    char release[RELEASE_MAX];
    uint64_t job_hash, segments_hash;
    uint32_t threads;
    char isa[HELLO_TEXT_MAX], kernels[HELLO_TEXT_MAX];
    char host[WORKER_HOST_MAX], address[NODE_ADDRESS_MAX];
    struct hello_machine machine;
    struct hello_records records;
};

struct corpus;
struct dataset;

/* The holdings of a training set, into a list that has none: each part of its source, without the
 * records that are held out. */
void hello_list_holdings(struct hello_local *own, const struct dataset *set);

/* The data that `job` names, as this node has it. */
void hello_take_records(struct hello_records *own, const Paceline__Job *job,
                        const struct corpus *corpus);

/* Is it the driver's data, or with local_data of its kind? ERR_INPUT names both sizes and paths,
 * or that the contents differ. */
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
/* ERR_PROTOCOL. Names of the machine are fit for events. */
int hello_read(struct byte_reader *in, struct hello *out);

/* Does a worker's hello agree with the driver's `own` (H1)? ERR_INPUT naming the difference. */
int hello_check(const struct hello *hello, const struct hello *own, struct err *err);

#endif
