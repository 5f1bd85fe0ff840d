/* The coordinator's book of shared variables, as a pure step function: which tasks of which rounds
 * are committed, by whom, and when a round may be reduced. No clock, no messages: events go in,
 * orders come out, and any state can be built in a test. (Elastic §4.2: the "master process".)
 *
 * A round of a variable collects commits until each of its tasks is some member's. The first member
 * that commits a task has it; others who commit it are its spares. Then the round is started: every
 * member does the exchange of that number in the variable's lane. When all who are left have said
 * how it ended, the round is done, or void: a member that had tasks in it is lost, and its
 * contribution with it. A void round collects again: tasks of the lost go to spares, or wait to be
 * committed once more.
 *
 * Rounds of one variable are started in order, each when the one before is done. A lane's exchanges
 * are numbered in the order in which they are started. */
#ifndef PL_COLL_TASKS_H
#define PL_COLL_TASKS_H

#include "group/roster.h"

enum {
    TASKS_MAX = 16384, /* of a variable */
    TASKS_VARS_MAX = 256,
    TASKS_LANES = 8,   /* that variables share */
    TASKS_ROUNDS = 16, /* of a variable that are collected at once */
    TASKS_KEY_MAX = 64,
    TASKS_ORDERS_MAX = TASKS_VARS_MAX + VIEW_MEMBERS_MAX + 1,
};

#define TASKS_FLOATS_MAX UINT64_C(1000000000)
#define TASKS_NO_NODE    UINT32_MAX

enum tasks_op { TASKS_SUM, TASKS_MEAN, TASKS_LARGEST, TASKS_SMALLEST, TASKS_USER, TASKS_OPS };

/* The properties of a variable on which all members must agree. */
struct tasks_spec {
    char key[TASKS_KEY_MAX];
    uint64_t n; /* floats */
    uint32_t tasks;
    uint32_t op;    /* enum tasks_op */
    float identity; /* TASKS_USER: changes nothing under the reduction */
};

/* OK, or `status` with a message that names what is wrong. */
int tasks_spec_check(const struct tasks_spec *spec, int status, struct err *err);
void tasks_spec_encode(const struct tasks_spec *spec, struct buf *out);
void tasks_spec_decode(struct byte_reader *in, struct tasks_spec *out);

struct tasks_round {
    uint32_t *node;       /* by task: who has it, or TASKS_NO_NODE; NULL: nothing committed yet */
    struct members *have; /* by task: all who have committed it */
    uint32_t taken;       /* tasks that somebody has */
    bool running, voided;
    uint64_t number;            /* of the exchange, while it runs */
    struct members outstanding; /* who has not said yet how it ended */
    struct members witness;     /* who asked to part while it ran */
};

struct tasks_var {
    struct tasks_spec spec;
    uint32_t lane;
    struct members known;                   /* who has made it, too */
    uint64_t done;                          /* rounds below are done */
    struct tasks_round round[TASKS_ROUNDS]; /* round r in [r % TASKS_ROUNDS] */
};

struct task_table {
    struct members in, leaving; /* parting: no task is theirs any more */
    struct members waiting;     /* parting, and not told yet that they may go */
    uint32_t count;
    struct tasks_var *var[TASKS_VARS_MAX];
    uint64_t number[TASKS_LANES]; /* of the last exchange started */
};

enum tasks_event_kind {
    TASKS_MEMBERS, /* `members` are in, and nobody else */
    TASKS_INIT,    /* node wants a variable: request, spec */
    TASKS_COMMIT,  /* node has a vector: var, round, task */
    TASKS_ENDED,   /* node has ended an exchange: var, round, number, whole */
    TASKS_LEAVE,   /* node wants to go */
};

struct tasks_event {
    enum tasks_event_kind kind;
    uint32_t node;
    const struct members *members; /* borrowed */
    const struct tasks_spec *spec; /* borrowed */
    uint64_t request;
    uint32_t var, task;
    uint64_t round, number;
    bool whole; /* all tasks were in its result */
};

enum tasks_order_kind {
    TASKS_REPLY,     /* tell node: its request is variable `var` */
    TASKS_REFUSE,    /* tell node: its request cannot be met, with the orders' text */
    TASKS_START,     /* tell all: round `round` of `var`, as its book entry has it */
    TASKS_MAY_LEAVE, /* tell node: it may go */
};

struct tasks_order {
    enum tasks_order_kind kind;
    uint32_t node, var;
    uint64_t request, round;
};

struct tasks_orders {
    size_t count;
    struct tasks_order at[TASKS_ORDERS_MAX];
    struct err refusal;
};

void task_table_init(struct task_table *table);
void task_table_release(struct task_table *table);

/* Take one event in; what is to be done comes out in `out` (cleared first). Events that make no
 * sense (from strangers, repeated, of rounds that are over) are ignored. ERR_NOMEM: the book is
 * torn. */
int task_table_step(struct task_table *table, const struct tasks_event *event,
                    struct tasks_orders *out);

static inline struct tasks_round *tasks_round_of(struct tasks_var *var, uint64_t round)
{
    return &var->round[round % TASKS_ROUNDS];
}

#endif
