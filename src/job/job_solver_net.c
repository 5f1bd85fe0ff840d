#include "job/job_solver_net.h"

#include "job/job_solver_data.h"
#include "job/text_field.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a net's state lets in ---- */

/* A phase of a net: the solver's words are added to the net's own. */
struct state {
    Caffe__Phase phase;
    int32_t level;
    const Caffe__NetState *said[2];
};

static int make_state(struct state *out, Caffe__Phase phase, const Caffe__NetState *net,
                      const Caffe__NetState *solver, const char *field, struct err *err)
{
    *out = (struct state){.phase = phase, .said = {net, solver}};
    for (int i = 0; i < 2; i++) {
        const Caffe__NetState *said = out->said[i];
        if (said && said->has_phase && said->phase != phase)
            return err_set(err, ERR_UNSUPPORTED, "%s.phase: a net runs in its own phase alone",
                           i == 0 ? "net: state" : field);
        if (said && said->has_level)
            out->level = said->level;
    }
    return OK;
}

static bool has_stage(const struct state *state, const char *stage)
{
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; state->said[i] && k < state->said[i]->n_stage; k++)
            if (strcmp(state->said[i]->stage[k], stage) == 0)
                return true;
    return false;
}

static bool rule_holds(const Caffe__NetStateRule *rule, const struct state *state)
{
    if ((rule->has_phase && rule->phase != state->phase) ||
        (rule->has_min_level && state->level < rule->min_level) ||
        (rule->has_max_level && state->level > rule->max_level))
        return false;
    for (size_t i = 0; i < rule->n_stage; i++)
        if (!has_stage(state, rule->stage[i]))
            return false;
    for (size_t i = 0; i < rule->n_not_stage; i++)
        if (has_stage(state, rule->not_stage[i]))
            return false;
    return true;
}

static bool included(const Caffe__LayerParameter *layer, const struct state *state)
{
    for (size_t i = 0; i < layer->n_exclude; i++)
        if (rule_holds(layer->exclude[i], state))
            return false;
    for (size_t i = 0; i < layer->n_include; i++)
        if (rule_holds(layer->include[i], state))
            return true;
    return layer->n_include == 0;
}

/* ---- copies ---- */

static ProtobufCMessage *copy_message(const ProtobufCMessage *message)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = malloc(len + 1);
    ProtobufCMessage *copy = NULL;
    if (bytes) {
        protobuf_c_message_pack(message, bytes);
        copy = protobuf_c_message_unpack(message->descriptor, NULL, len, bytes);
    }
    free(bytes);
    return copy;
}

static void clear(ProtobufCMessage *message, const char *field)
{
    text_field_clear(message, text_field_find(message->descriptor, field, strlen(field)));
}

/* The layer for one phase, or for both where `phase` is NULL. False when memory is out. */
static bool put_phase(Caffe__LayerParameter *layer, const Caffe__Phase *phase)
{
    clear(&layer->base, "include");
    clear(&layer->base, "exclude");
    if (!phase)
        return true;
    layer->include = malloc(sizeof *layer->include);
    Caffe__NetStateRule *rule =
        (Caffe__NetStateRule *)text_message_new(&caffe__net_state_rule__descriptor);
    if (!layer->include || !rule) {
        free(rule);
        return false;
    }
    rule->has_phase = true;
    rule->phase = *phase;
    layer->include[0] = rule;
    layer->n_include = 1;
    return true;
}

/* ---- one net of two ---- */

struct merge {
    struct state train, test;
    Caffe__NetParameter *net;
    Caffe__LayerParameter *data[2], *copy[2]; /* the layer of records, by phase; and as it was */
    struct err *err;
};

static int no_memory(const struct merge *m)
{
    return err_set(m->err, ERR_NOMEM, "net: out of memory");
}

static int take_data_layer(struct merge *m, Caffe__LayerParameter *layer, Caffe__Phase phase)
{
    if (m->data[phase])
        return err_set(m->err, ERR_UNSUPPORTED,
                       "layer \"%.100s\": a second data layer beside \"%.100s\" is not supported",
                       layer->name ? layer->name : "",
                       m->data[phase]->name ? m->data[phase]->name : "");
    m->data[phase] = layer;
    m->copy[phase] = (Caffe__LayerParameter *)copy_message(&layer->base);
    return m->copy[phase] ? OK : no_memory(m);
}

/* Append a copy of the layer for the phases that it is let into. */
static int add_layer(struct merge *m, const Caffe__LayerParameter *layer, bool in_train,
                     bool in_test)
{
    static const Caffe__Phase train = CAFFE__PHASE__TRAIN, test = CAFFE__PHASE__TEST;
    if (layer->n_include > 0 && layer->n_exclude > 0)
        return err_set(m->err, ERR_INPUT,
                       "layer \"%.100s\": include and exclude cannot both be given",
                       layer->name ? layer->name : "");
    if (!in_train && !in_test)
        return OK;
    Caffe__LayerParameter *copy = (Caffe__LayerParameter *)copy_message(&layer->base);
    if (!copy)
        return no_memory(m);
    m->net->layer[m->net->n_layer++] = copy;
    if (!put_phase(copy, in_train && in_test ? NULL : in_train ? &train : &test))
        return no_memory(m);
    if (layer->n_bottom > 0 || !job_data_layer_is(layer))
        return OK;
    int rc = in_train ? take_data_layer(m, copy, train) : OK;
    return rc == OK && in_test ? take_data_layer(m, copy, test) : rc;
}

static int add_layers(struct merge *m, const struct job_solver_merge *how)
{
    const Caffe__NetParameter *train = how->train, *test = how->test;
    bool one = !test || test == train;
    int rc = OK;
    for (size_t i = 0; rc == OK && i < train->n_layer; i++) {
        const Caffe__LayerParameter *layer = train->layer[i];
        rc = add_layer(m, layer, included(layer, &m->train), one && included(layer, &m->test));
    }
    for (size_t i = 0; rc == OK && !one && i < test->n_layer; i++)
        rc = add_layer(m, test->layer[i], false, included(test->layer[i], &m->test));
    return rc;
}

/* All of the training net but its layers, with room for those of both. */
static int open_net(struct merge *m, const struct job_solver_merge *how)
{
    Caffe__NetParameter bare = *how->train;
    bare.n_layer = 0;
    bare.state = NULL;
    m->net = (Caffe__NetParameter *)copy_message(&bare.base);
    size_t most = how->train->n_layer + (how->test ? how->test->n_layer : 0);
    if (m->net)
        m->net->layer = calloc(most + 1, sizeof *m->net->layer);
    return m->net && m->net->layer ? OK : no_memory(m);
}

/* Who brings records to training brings them to a test that has nobody else. */
static int settle_data(struct merge *m)
{
    Caffe__LayerParameter *train = m->data[CAFFE__PHASE__TRAIN];
    Caffe__LayerParameter *test = m->data[CAFFE__PHASE__TEST];
    if (train && !test && !put_phase(train, NULL))
        return no_memory(m);
    int rc = train ? job_data_layer_empty(train, m->err) : OK;
    return rc == OK && test && test != train ? job_data_layer_empty(test, m->err) : rc;
}

int job_merge_nets(const struct job_solver_merge *how, Caffe__NetParameter **out,
                   Caffe__LayerParameter **train_data, Caffe__LayerParameter **test_data,
                   struct err *err)
{
    const Caffe__NetState *own = how->train->state;
    const Caffe__NetState *others = how->test ? how->test->state : own;
    struct merge m = {.err = err};
    int rc = make_state(&m.train, CAFFE__PHASE__TRAIN, own, how->train_state, "train_state", err);
    if (rc == OK)
        rc = make_state(&m.test, CAFFE__PHASE__TEST, others, how->test_state, "test_state", err);
    if (rc == OK)
        rc = open_net(&m, how);
    if (rc == OK)
        rc = add_layers(&m, how);
    if (rc == OK)
        rc = settle_data(&m);
    if (rc == OK) {
        *out = m.net;
        *train_data = m.copy[CAFFE__PHASE__TRAIN];
        *test_data = m.copy[CAFFE__PHASE__TEST];
        return OK;
    }
    for (int i = 0; i < 2; i++)
        if (m.copy[i])
            protobuf_c_message_free_unpacked(&m.copy[i]->base, NULL);
    if (m.net)
        protobuf_c_message_free_unpacked(&m.net->base, NULL);
    return rc;
}
