/* The driver's book of the records that workers have, where each has its own (local_data).
 *
 * A holding is a set of records with an identity, its hash. A worker says with its hello which
 * holdings it has. Those that several members of a view have are shared out among them in equal
 * ranges; of the others their only owner takes all. A holding may grow: its owner takes what has
 * arrived. A worker may get further holdings, which its next report names. Each worker reports how
 * many samples it has taken of each of its holdings.
 *
 * An epoch of the run is epoch_records samples: the records of all holdings of the first view.
 * After a run of P samples a holding of n records is due n · P / epoch_records samples. Samples
 * that were taken beyond that are repeated, those that lack are missed. So at any time
 *
 *     Σ taken = P − unreported,   Σ taken + Σ missed − Σ repeated = Σ due
 *
 * where unreported samples are those that died with their worker before it could report them.
 * Pure: no messages, no clock. The driver's main task alone uses it. */
#ifndef PL_TRAIN_HOLDINGS_H
#define PL_TRAIN_HOLDINGS_H

#include "group/view.h"
#include "tensor/vec.h"
#include "train/handshake_message.h"

struct known_holding {
    struct holding is;
    uint64_t before;            /* samples taken in earlier sessions of the run */
    char path[HELLO_PATH_MAX];  /* of its newest owner's data, and */
    char host[WORKER_HOST_MAX]; /* its machine, for messages */
    struct members owners;      /* all workers that have had it, */
    uint32_t owner;             /* and the newest of them */
    bool served;                /* a member of the newest view has it */
};

/* Samples that a worker had taken of holding k, by a checkpoint of this session or an earlier
 * one. */
struct past_taking {
    uint32_t k, node;
    uint64_t taken;
};

/* The holdings of a worker, as indices, and the samples that it has taken of each. */
struct worker_holdings {
    uint32_t count;
    uint32_t index[HOLDINGS_MAX];
    uint64_t taken[HOLDINGS_MAX];
};

struct holdings {
    uint64_t epoch_records; /* 0: not known yet */
    struct known_holding *known;
    size_t count, room;
    struct past_taking *past; /* read from a checkpoint, until the first view */
    size_t pasts, pasts_room;
    struct worker_holdings *worker[VIEW_MEMBERS_MAX]; /* NULL: it has not been a member */
    uint32_t view;                                    /* the newest that was processed */
    struct members here;                              /* its members */
    struct members unsent; /* members that do not have their share of this view yet */
};

void holdings_release(struct holdings *book);

/* A worker has become a member. No effect if it is known. ERR_NOMEM */
int holdings_add(struct holdings *book, uint32_t node, const struct hello_records *records,
                 const char *host);

/* Process a view, whose members are all known: which holdings are served now? If the first view is
 * not numbered 1, its members are those of an earlier driver, and continue their counts. */
void holdings_process_view(struct holdings *book, const struct view *view);

/* The worker's share of each of its holdings in that view, in the order of its hello; a range is
 * empty where a holding has fewer records than owners. Returns their number. */
size_t holdings_share(const struct holdings *book, const struct view *view, uint32_t node,
                      struct range share[HOLDINGS_MAX]);

/* The worker's totals since it began, and how many records have arrived. Holdings beyond those that
 * it had are new: it owns them, too, and all their owners are to get new shares. Reports of an
 * unknown worker, of fewer holdings, or for which there is no memory, change nothing. Returns how
 * many are new. */
uint32_t holdings_report(struct holdings *book, uint32_t node, const struct holding_use *use,
                         uint32_t count);

/* Of one holding, after `samples` samples of the run. */
struct holding_count {
    uint64_t taken, due, repeated, missed;
};
struct holding_count holdings_count(const struct holdings *book, size_t k, uint64_t samples);

/* The sums over all. */
struct holding_count holdings_sum(const struct holdings *book, uint64_t samples);

/* As a text for a checkpoint: `EPOCH_RECORDS`, then HASH:RECORDS:BEFORE:NODE=TAKEN,…:PATH of
 * each; blanks, `"`, `\` and control characters of a path become `_`. */
void holdings_write(const struct holdings *book, struct buf *out);
/* Such a text into an empty book. ERR_INPUT, ERR_NOMEM */
int holdings_read(struct holdings *book, const char *text);

/* A message SHARE: of which view, the samples of an epoch, and a range of each holding. */
struct share_message {
    uint32_t view;
    uint64_t epoch_records;
    uint32_t count;
    struct range range[HOLDINGS_MAX];
};

void share_encode(const struct share_message *share, struct buf *out);
/* ERR_PROTOCOL */
int share_decode(struct byte_reader *in, struct share_message *out);

#endif
