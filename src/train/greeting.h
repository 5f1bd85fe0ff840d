/* How a worker and the driver meet: the driver welcomes whoever connects with the job; the worker
 * opens the data, plans the net, and says hello with what must agree. */
#ifndef PL_TRAIN_GREETING_H
#define PL_TRAIN_GREETING_H

#include "base/bytes.h"
#include "base/err.h"
#include "group/view.h"

enum { GREETING_WORD_MAX = 32 };

struct welcome {
    char *job;    /* the finished job as text; both owned, freed by welcome_release */
    char *folder; /* of the job file, with its slash: relative paths of data were taken from it */
    bool busy_hosts; /* heartbeats at the pace of busy or shared hosts */
    bool resumes;    /* ask the driver for the model to start from */
    bool traces;     /* say where your time goes (tracer.h) */
};

struct hello {
    uint32_t version; /* WIRE_VERSION */
    uint64_t job_hash, data_hash, segments_hash;
    uint32_t threads;
    char isa[GREETING_WORD_MAX], kernels[GREETING_WORD_MAX];
    char address[NODE_ADDRESS_MAX];
};

void welcome_encode(const struct welcome *welcome, struct buf *out);
/* ERR_PROTOCOL, ERR_NOMEM */
int welcome_decode(struct cut *in, struct welcome *out);
void welcome_release(struct welcome *welcome);

void hello_write(const struct hello *hello, struct buf *out);
/* ERR_PROTOCOL */
int hello_read(struct cut *in, struct hello *out);

/* Does a worker that says `hello` fit a run whose own hello would be `own`? ERR_INPUT naming what
 * differs. */
int hello_check(const struct hello *hello, const struct hello *own, struct err *err);

#endif
