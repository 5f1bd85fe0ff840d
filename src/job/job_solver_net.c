#include "job/job_solver_net.h"

#include "job/job_solver_data.h"
#include "job/net_rules.h"
#include "job/text.h"
#include "job/text_field.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a net's state lets in ---- */

/* The solver's stages are added to the net's own. */
static int make_state(struct net_state *out, Caffe__Phase phase, const Caffe__NetState *net,
                      const Caffe__NetState *solver, const char *field, struct err *err)
{
    *out = (struct net_state){.phase = phase, .given = {net, solver}};
    for (int i = 0; i < 2; i++) {
        const Caffe__NetState *given = out->given[i];
        if (given && given->has_phase && given->phase != phase)
            return err_set(err, ERR_UNSUPPORTED, "%s.phase: a net runs in its own phase alone",
                           i == 0 ? "net: state" : field);
        if (given && given->has_level)
            out->level = given->level;
    }
    return OK;
}

/* ---- copies ---- */

static void clear_field(ProtobufCMessage *message, const char *field)
{
    text_field_clear(message, text_field_find(message->descriptor, field, strlen(field)));
}

/* The layer for one phase, or for both where `phase` is NULL. False when memory is out. */
static bool put_phase(Caffe__LayerParameter *layer, const Caffe__Phase *phase)
{
    clear_field(&layer->base, "include");
    clear_field(&layer->base, "exclude");
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
    struct net_state train, test;
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
                       "layer \"%.100s\": a second data layer next to \"%.100s\" is not supported",
                       layer->name ? layer->name : "",
                       m->data[phase]->name ? m->data[phase]->name : "");
    m->data[phase] = layer;
    m->copy[phase] = (Caffe__LayerParameter *)text_copy(&layer->base);
    return m->copy[phase] ? OK : no_memory(m);
}

/* Append a copy of the layer for the phases that it is let into. */
static int add_layer(struct merge *m, const Caffe__LayerParameter *layer, bool in_train,
                     bool in_test)
{
    static const Caffe__Phase train = CAFFE__PHASE__TRAIN, test = CAFFE__PHASE__TEST;
    if (net_rules_check(layer, m->err) != OK) {
        err_prefix(m->err, "layer \"%.100s\"", layer->name ? layer->name : "");
        return ERR_INPUT;
    }
    if (!in_train && !in_test)
        return OK;
    Caffe__LayerParameter *copy = (Caffe__LayerParameter *)text_copy(&layer->base);
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

static int add_layers(struct merge *m, const struct job_solver_merge *state)
{
    const Caffe__NetParameter *train = state->train, *test = state->test;
    bool one = !test || test == train;
    int rc = OK;
    for (size_t i = 0; rc == OK && i < train->n_layer; i++) {
        const Caffe__LayerParameter *layer = train->layer[i];
        rc = add_layer(m, layer, net_rules_include(layer, &m->train),
                       one && net_rules_include(layer, &m->test));
    }
    for (size_t i = 0; rc == OK && !one && i < test->n_layer; i++)
        rc = add_layer(m, test->layer[i], false, net_rules_include(test->layer[i], &m->test));
    return rc;
}

/* All of the training net but its layers, with room for those of both. */
static int open_net(struct merge *m, const struct job_solver_merge *state)
{
    Caffe__NetParameter bare = *state->train;
    bare.n_layer = 0;
    bare.state = NULL;
    m->net = (Caffe__NetParameter *)text_copy(&bare.base);
    size_t most = state->train->n_layer + (state->test ? state->test->n_layer : 0);
    if (m->net)
        m->net->layer = calloc(most + 1, sizeof *m->net->layer);
    return m->net && m->net->layer ? OK : no_memory(m);
}

/* A layer that brings records to training brings them to a test that has no other. */
static int finish_data(struct merge *m)
{
    Caffe__LayerParameter *train = m->data[CAFFE__PHASE__TRAIN];
    Caffe__LayerParameter *test = m->data[CAFFE__PHASE__TEST];
    if (train && !test && !put_phase(train, NULL))
        return no_memory(m);
    int rc = train ? job_data_layer_empty(train, m->err) : OK;
    return rc == OK && test && test != train ? job_data_layer_empty(test, m->err) : rc;
}

int job_merge_nets(const struct job_solver_merge *state, Caffe__NetParameter **out,
                   Caffe__LayerParameter **train_data, Caffe__LayerParameter **test_data,
                   struct err *err)
{
    const Caffe__NetState *own = state->train->state;
    const Caffe__NetState *others = state->test ? state->test->state : own;
    struct merge m = {.err = err};
    int rc = make_state(&m.train, CAFFE__PHASE__TRAIN, own, state->train_state, "train_state", err);
    if (rc == OK)
        rc = make_state(&m.test, CAFFE__PHASE__TEST, others, state->test_state, "test_state", err);
    if (rc == OK)
        rc = open_net(&m, state);
    if (rc == OK)
        rc = add_layers(&m, state);
    if (rc == OK)
        rc = finish_data(&m);
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
