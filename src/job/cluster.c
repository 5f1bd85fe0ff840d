#include "job/cluster.h"

#include "base/fault.h"
#include "job/check.h"
#include "job/text.h"
#include "job/text_field.h"

#include <inttypes.h>
#include <stdio.h>

enum { CORES_MAX = 4096, FIELD_TEXT_MAX = 64 };

int cluster_parse(const char *name, const char *text, size_t len, Paceline__Cluster **out,
                  struct err *err)
{
    ProtobufCMessage *msg = NULL;
    int rc = text_parse(&paceline__cluster__descriptor, name, text, len, &msg, err);
    if (rc == OK)
        *out = (Paceline__Cluster *)msg;
    return rc;
}

void cluster_free(Paceline__Cluster *cluster)
{
    if (cluster)
        protobuf_c_message_free_unpacked(&cluster->base, NULL);
}

/* "node[2].speed" */
static const char *indexed_field(char out[FIELD_TEXT_MAX], const char *list, size_t i,
                                 const char *field)
{
    snprintf(out, FIELD_TEXT_MAX, "%s[%zu].%s", list, i, field);
    return out;
}

static int check_nodes(const Paceline__Cluster *cluster, struct err *err)
{
    char name[FIELD_TEXT_MAX];
    uint64_t total = 0;
    int rc = check_given("node", cluster->n_node > 0, err);
    for (size_t i = 0; rc == OK && i < cluster->n_node; i++) {
        const Paceline__Node *node = cluster->node[i];
        rc = check_range(indexed_field(name, "node", i, "count"), node->count, 1, CLUSTER_NODES_MAX,
                         err);
        if (rc == OK)
            rc = check_positive(indexed_field(name, "node", i, "speed"), node->speed, err);
        if (rc == OK)
            rc = check_fraction(indexed_field(name, "node", i, "jitter"), node->jitter, err);
        if (rc == OK)
            rc = check_range(indexed_field(name, "node", i, "cores"), node->cores, 1, CORES_MAX,
                             err);
        if (rc == OK && node->has_mbit)
            rc = check_positive(indexed_field(name, "node", i, "mbit"), node->mbit, err);
        total += node->count;
    }
    if (rc == OK && total > CLUSTER_NODES_MAX)
        rc = err_set(err, ERR_INPUT, "node: must be at most %d in all, is %" PRIu64,
                     CLUSTER_NODES_MAX, total);
    return rc;
}

static int check_machine(const Paceline__Cluster *cluster, struct err *err)
{
    int rc = check_positive("driver.speed", cluster->driver->speed, err);
    if (rc == OK)
        rc = check_range("driver.cores", cluster->driver->cores, 1, CORES_MAX, err);
    if (rc == OK && cluster->has_step_seconds)
        rc = check_positive("step_seconds", cluster->step_seconds, err);
    if (rc == OK)
        rc = check_positive("link.mbit", cluster->link->mbit, err);
    if (rc == OK)
        rc = check_not_negative("link.latency_us", cluster->link->latency_us, err);
    return rc != OK ? rc : check_fraction("link.loss", cluster->link->loss, err);
}

static int check_place(const char *field, int32_t node, uint32_t nodes, struct err *err)
{
    if (node >= CLUSTER_DRIVER && node < (int64_t)nodes)
        return OK;
    return err_set(err, ERR_INPUT,
                   "%s: no node %" PRId32 "; there are 0 to %" PRIu32 ", and -1, the driver", field,
                   node, nodes - 1);
}

static int check_delay(const Paceline__Delay *delay, size_t i, uint32_t nodes, struct err *err)
{
    char name[FIELD_TEXT_MAX];
    int rc = check_given(indexed_field(name, "delay", i, "seconds"), delay->has_seconds, err);
    if (rc == OK)
        rc = check_not_negative(name, delay->seconds, err);
    if (rc == OK && delay->has_from)
        rc = check_place(indexed_field(name, "delay", i, "from"), delay->from, nodes, err);
    if (rc == OK && delay->has_to)
        rc = check_place(indexed_field(name, "delay", i, "to"), delay->to, nodes, err);
    if (rc == OK && delay->tag)
        rc = check_given(indexed_field(name, "delay", i, "tag"), *delay->tag != '\0', err);
    return rc;
}

/* Checks a fault that has no degree and does not end. */
static int check_once(const Paceline__Fault *fault, const char *what, size_t i, struct err *err)
{
    if (!fault->has_factor && !fault->has_for_)
        return OK;
    return err_set(err, ERR_INPUT, "fault[%zu].%s: only for faults that last, not for `%s`", i,
                   fault->has_factor ? "factor" : "for", what);
}

/* `what` names it: `join` or `leave`. */
static int check_worker(const Paceline__Fault *fault, const char *what, int32_t node, size_t i,
                        uint32_t nodes, struct err *err)
{
    char name[FIELD_TEXT_MAX];
    int rc = check_once(fault, what, i, err);
    if (rc == OK && node == CLUSTER_DRIVER)
        rc = err_set(err, ERR_INPUT, "fault[%zu].%s: the driver cannot join or leave", i, what);
    return rc != OK ? rc : check_place(indexed_field(name, "fault", i, what), node, nodes, err);
}

static int check_kill(const Paceline__Fault *fault, size_t i, uint32_t nodes, struct err *err)
{
    char name[FIELD_TEXT_MAX];
    if (fault->kill == CLUSTER_DRIVER && fault->has_for_ && !fault->has_factor)
        return check_positive(indexed_field(name, "fault", i, "for"), fault->for_, err);
    if (fault->kill == CLUSTER_DRIVER && !fault->has_for_)
        return err_set(err, ERR_INPUT,
                       "fault[%zu].for: is missing: a run whose driver does not return is over", i);
    int rc = check_once(fault, "kill", i, err);
    return rc != OK ? rc
                    : check_place(indexed_field(name, "fault", i, "kill"), fault->kill, nodes, err);
}

/* A fault of the link to `to`, or of all that a node does, which may last. */
static int check_lasting(const Paceline__Fault *fault, const char *what, int32_t node, size_t i,
                         uint32_t nodes, struct err *err)
{
    char name[FIELD_TEXT_MAX];
    int rc = check_place(indexed_field(name, "fault", i, what), node, nodes, err);
    if (rc == OK)
        rc = check_place(indexed_field(name, "fault", i, "to"), fault->to, nodes, err);
    if (rc == OK && fault->has_for_)
        rc = check_positive(indexed_field(name, "fault", i, "for"), fault->for_, err);
    if (rc == OK)
        rc = check_positive(indexed_field(name, "fault", i, "seconds"), fault->seconds, err);
    return rc;
}

/* `what` names it: `slow` or `clog`. */
static int check_pace(const Paceline__Fault *fault, const char *what, int32_t node, size_t i,
                      uint32_t nodes, struct err *err)
{
    char name[FIELD_TEXT_MAX];
    int rc = check_place(indexed_field(name, "fault", i, what), node, nodes, err);
    if (rc == OK)
        rc = check_positive(indexed_field(name, "fault", i, "factor"), fault->factor, err);
    if (rc == OK && fault->has_for_)
        rc = check_positive(indexed_field(name, "fault", i, "for"), fault->for_, err);
    return rc;
}

static int check_fault(const Paceline__Fault *fault, size_t i, uint32_t nodes, struct err *err)
{
    char name[FIELD_TEXT_MAX];
    int rc = check_given(indexed_field(name, "fault", i, "at"), fault->has_at, err);
    if (rc == OK)
        rc = check_not_negative(name, fault->at, err);
    if (rc != OK)
        return rc;
    switch (fault->what_case) {
    case PACELINE__FAULT__WHAT_KILL: return check_kill(fault, i, nodes, err);
    case PACELINE__FAULT__WHAT_SLOW: return check_pace(fault, "slow", fault->slow, i, nodes, err);
    case PACELINE__FAULT__WHAT_CLOG: return check_pace(fault, "clog", fault->clog, i, nodes, err);
    case PACELINE__FAULT__WHAT_JOIN: return check_worker(fault, "join", fault->join, i, nodes, err);
    case PACELINE__FAULT__WHAT_LEAVE:
        return check_worker(fault, "leave", fault->leave, i, nodes, err);
    case PACELINE__FAULT__WHAT_WANT: return check_once(fault, "want", i, err);
    case PACELINE__FAULT__WHAT_PAUSE:
        return check_lasting(fault, "pause", fault->pause, i, nodes, err);
    case PACELINE__FAULT__WHAT_PART:
        return check_lasting(fault, "part", fault->part, i, nodes, err);
    case PACELINE__FAULT__WHAT_MUTE:
        return check_lasting(fault, "mute", fault->mute, i, nodes, err);
    case PACELINE__FAULT__WHAT_RESET:
        return check_lasting(fault, "reset", fault->reset, i, nodes, err);
    case PACELINE__FAULT__WHAT_SHUFFLE:
        return check_lasting(fault, "shuffle", fault->shuffle, i, nodes, err);
    case PACELINE__FAULT__WHAT_STARVE:
        return check_lasting(fault, "starve", fault->starve, i, nodes, err);
    case PACELINE__FAULT__WHAT_LEAP:
        return check_lasting(fault, "leap", fault->leap, i, nodes, err);
    default:
        return err_set(
            err, ERR_INPUT,
            "fault[%zu]: expected one of kill, slow, clog, leave, join, pause, part, mute, "
            "reset, shuffle, starve, leap, want",
            i);
    }
}

static int check_costs(const Paceline__Costs *costs, struct err *err)
{
    int rc = OK;
    if (costs && costs->has_copy_gb_s)
        rc = check_positive("costs.copy_gb_s", costs->copy_gb_s, err);
    if (rc == OK && costs && costs->has_reduce_gb_s)
        rc = check_positive("costs.reduce_gb_s", costs->reduce_gb_s, err);
    if (rc == OK && costs && costs->has_crypto_gb_s)
        rc = check_positive("costs.crypto_gb_s", costs->crypto_gb_s, err);
    return rc;
}

int cluster_finish(Paceline__Cluster *cluster, struct err *err)
{
    if (!cluster->driver)
        cluster->driver = (Paceline__Machine *)text_message_new(&paceline__machine__descriptor);
    if (!cluster->link)
        cluster->link = (Paceline__Link *)text_message_new(&paceline__link__descriptor);
    if (!cluster->driver || !cluster->link)
        return err_set(err, ERR_NOMEM, "cluster: out of memory");
    int rc = check_nodes(cluster, err);
    if (rc == OK)
        rc = check_machine(cluster, err);
    if (rc == OK)
        rc = check_costs(cluster->costs, err);
    uint32_t nodes = rc == OK ? cluster_nodes(cluster) : 0;
    for (size_t i = 0; rc == OK && i < cluster->n_delay; i++)
        rc = check_delay(cluster->delay[i], i, nodes, err);
    for (size_t i = 0; rc == OK && i < cluster->n_fault; i++)
        rc = check_fault(cluster->fault[i], i, nodes, err);
    return rc;
}

uint32_t cluster_nodes(const Paceline__Cluster *cluster)
{
    uint32_t n = 0;
    for (size_t i = 0; i < cluster->n_node; i++)
        n += cluster->node[i]->count;
    return n;
}

const Paceline__Node *cluster_node(const Paceline__Cluster *cluster, uint32_t i)
{
    for (size_t k = 0; k < cluster->n_node; k++) {
        if (i < cluster->node[k]->count)
            return cluster->node[k];
        i -= cluster->node[k]->count;
    }
    PL_ASSERT(!"a node of the cluster");
    return NULL;
}
