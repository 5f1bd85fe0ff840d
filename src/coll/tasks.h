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
 * are numbered in the order in which they are started.
 *
 * A join or a leave changes the members between rounds, not within one: from the request until the
 * change, no round is started, and those that run end with the members that they began with. So no
 * exchange is repeated, and a joiner begins behind the last exchange of every lane, which all
 * members have ended. Only the loss of a member interrupts a round. */
#ifndef PL_COLL_TASKS_H
#define PL_COLL_TASKS_H

#include "group/roster.h"

enum {
    TASKS_LANES = 8,   /* that variables share */
    TASKS_ROUNDS = 16, /* of a variable that are collected at once */
    TASKS_ORDERS_MAX = TASKS_VARS_MAX + VIEW_MEMBERS_MAX + 2,
};

#define TASKS_NO_NODE UINT32_MAX

enum tasks_op { TASKS_SUM, TASKS_MEAN, TASKS_LARGEST, TASKS_SMALLEST, TASKS_USER, TASKS_OPS };

/* The properties of a variable on which all members must agree. */
struct tasks_spec {
    char key[TASKS_KEY_MAX];
    uint64_t n; /* floats */
    uint32_t tasks;
    uint32_t op;    /* enum tasks_op */
    float identity; /* TASKS_USER: changes nothing under the reduction */
};

/* OK, or `status` with a message that names the fault. */
int tasks_spec_check(const struct tasks_spec *spec, int status, struct err *err);
void tasks_spec_encode(const struct tasks_spec *spec, struct buf *out);
void tasks_spec_decode(struct byte_reader *in, struct tasks_spec *out);

struct tasks_round {
    uint32_t *node;       /* by task: its member, or TASKS_NO_NODE; NULL: nothing committed yet */
    struct members *have; /* by task: all members that have committed it */
    uint32_t taken;       /* tasks that a member has committed */
    bool running, voided;
    uint64_t number;            /* of the exchange, while it runs */
    struct members outstanding; /* members that have not reported how it ended */
};

struct tasks_var {
    struct tasks_spec spec;
    uint32_t lane;
    struct members known;                   /* members that have declared it */
    uint64_t done;                          /* rounds below are done */
    struct tasks_round round[TASKS_ROUNDS]; /* round r in [r % TASKS_ROUNDS] */
};

struct task_table {
    struct members in, leaving; /* leaving: no task is theirs any more */
    struct members waiting;     /* leaving members without permission to leave yet */
    uint32_t joiner;            /* a node that is to be admitted, or TASKS_NO_NODE */
    bool admitted;              /* the order to admit it is out */
    uint32_t count;
    struct tasks_var *var[TASKS_VARS_MAX];
    uint64_t number[TASKS_LANES]; /* of the last exchange started */
};

enum tasks_event_kind {
    TASKS_MEMBERS, /* the membership is `members` */
    TASKS_INIT,    /* node wants a variable: request, spec */
    TASKS_COMMIT,  /* node has a vector: var, round, task */
    TASKS_ENDED,   /* node has ended an exchange: var, round, number, whole */
    TASKS_LEAVE,   /* node wants to go */
    TASKS_JOIN,    /* node, no member, waits to be admitted */
    TASKS_NO_JOIN, /* that node is gone */
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
    TASKS_REPLY,     /* send node: its request is variable `var` */
    TASKS_REFUSE,    /* send node: its request is refused, with the orders' text */
    TASKS_START,     /* send all: round `round` of `var` starts, as the table has it */
    TASKS_MAY_LEAVE, /* send node: it may leave */
    TASKS_ADMIT,     /* no round runs: the next view may hold node */
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

/* Process one event. `out` is cleared and receives the orders. Events of unknown nodes, repeated
 * ones and those of ended rounds are ignored. ERR_NOMEM: the table is inconsistent, and must not be
 * used. */
int task_table_step(struct task_table *table, const struct tasks_event *event,
                    struct tasks_orders *out);

static inline struct tasks_round *tasks_round_of(struct tasks_var *var, uint64_t round)
{
    return &var->round[round % TASKS_ROUNDS];
}

#endif
