#include "model/caffe_state.h"

#include "base/fault.h"
#include "model/caffe_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* SolverState's fields, by their numbers. */
enum { STATE_ITER = 1, STATE_LEARNED_NET = 2, STATE_HISTORY = 3, STATE_CURRENT_STEP = 4 };

/* More blobs than any layer has. */
enum { LAYER_BLOBS = 8 };

/* ---- reading ---- */

static int read_number(const struct proto_field *field, const char *name, int32_t *out,
                       struct err *err)
{
    int rc = proto_expect(field, PROTO_VARINT, name, err);
    if (rc != OK)
        return rc;
    if (field->value > INT32_MAX)
        return proto_fail(&field->in, field->from, err, "%s is %lld, not 0 to %d", name,
                          (long long)field->value, INT32_MAX);
    *out = (int32_t)field->value;
    return OK;
}

static int read_text_field(const struct proto_field *field, char **out, struct err *err)
{
    size_t len = (size_t)(field->in.end - field->in.at);
    int rc = proto_expect(field, PROTO_BYTES, "learned_net", err);
    if (rc != OK)
        return rc;
    if (memchr(field->in.at, 0, len))
        return proto_fail(&field->in, field->from, err, "learned_net: a text with a zero byte");
    free(*out);
    *out = strndup((const char *)field->in.at, len);
    return *out ? OK : err_set(err, ERR_NOMEM, "%.200s: out of memory", field->in.path);
}

static int read_blob(const struct proto_field *field, struct caffe_state *state, struct err *err)
{
    int rc = proto_expect(field, PROTO_BYTES, "history", err);
    if (rc == OK)
        rc = caffe_blob_read(&field->in, &state->history[state->n], err);
    if (rc != OK)
        err_prefix(err, "history %zu", state->n);
    state->n += rc == OK;
    return rc;
}

static int count_history(struct proto w, size_t *count, struct err *err)
{
    while (w.at < w.end) {
        struct proto_field field;
        int rc = proto_next(&w, &field, err);
        if (rc != OK)
            return rc;
        *count += field.number == STATE_HISTORY;
    }
    return *count <= CAFFE_BLOBS_MAX
               ? OK
               : err_set(err, ERR_INPUT, "%.200s: more than %d blobs", w.path, CAFFE_BLOBS_MAX);
}

static int parse_state(struct proto w, struct caffe_state *state, struct err *err)
{
    size_t count = 0;
    int rc = count_history(w, &count, err);
    if (rc != OK)
        return rc;
    state->history = calloc(count + 1, sizeof *state->history);
    if (!state->history)
        return err_set(err, ERR_NOMEM, "%.200s: out of memory", w.path);
    while (w.at < w.end && rc == OK) {
        struct proto_field field;
        rc = proto_next(&w, &field, err);
        if (rc != OK)
            break;
        switch (field.number) {
        case STATE_ITER: rc = read_number(&field, "iter", &state->iter, err); break;
        case STATE_LEARNED_NET: rc = read_text_field(&field, &state->learned_net, err); break;
        case STATE_HISTORY: rc = read_blob(&field, state, err); break;
        case STATE_CURRENT_STEP:
            rc = read_number(&field, "current_step", &state->current_step, err);
            break;
        default: break;
        }
    }
    return rc;
}

int caffe_state_read(const char *path, struct caffe_state *out, struct err *err)
{
    struct caffe_state state = {.path = path};
    int rc = file_read(path, CAFFE_MODEL_BYTES_MAX, &state.bytes, err);
    if (rc == OK)
        rc = parse_state(proto_of(path, state.bytes.data, state.bytes.len), &state, err);
    if (rc != OK) {
        caffe_state_release(&state);
        return rc;
    }
    *out = state;
    return OK;
}

void caffe_state_release(struct caffe_state *state)
{
    file_release(&state->bytes);
    free(state->learned_net);
    free(state->history);
    *state = (struct caffe_state){0};
}

/* ---- in a net's order ---- */

/* Iterates over Caffe's parameters of a net: layer by layer, blob by blob. */
struct walk {
    const Caffe__NetParameter *net;
    const struct segments *x, *s;
    size_t layer, blob;
};

/* Layers of one name belong to different phases: the first stands for all. */
static bool is_first(const Caffe__NetParameter *net, size_t layer)
{
    const char *name = net->layer[layer]->name;
    if (!name)
        return false;
    for (size_t i = 0; i < layer; i++)
        if (net->layer[i]->name && strcmp(net->layer[i]->name, name) == 0)
            return false;
    return true;
}

/* The next segment; `learnt` when it is one of x. NULL at the end. */
static const struct segment *next_segment(struct walk *w, bool *learnt)
{
    for (; w->layer < w->net->n_layer; w->layer++, w->blob = 0) {
        if (!is_first(w->net, w->layer))
            continue;
        while (w->blob < LAYER_BLOBS) {
            char name[SEGMENT_NAME_MAX];
            snprintf(name, sizeof name, "%s.%zu", w->net->layer[w->layer]->name, w->blob++);
            const struct segment *segment = segments_find(w->x, name);
            *learnt = segment != NULL;
            if (segment || (segment = segments_find(w->s, name)))
                return segment;
        }
    }
    return NULL;
}

int caffe_state_vectors(const struct caffe_state *state, const Caffe__NetParameter *net,
                        const struct segments *x, const struct segments *s, size_t *vectors,
                        struct err *err)
{
    size_t each = x->count + s->count, at = 0;
    char a[64], b[64];
    if (each == 0 || state->n == 0 || state->n % each != 0)
        return err_set(err, ERR_INPUT, "%s: %zu blobs of history, the net has %zu parameters",
                       state->path, state->n, each);
    while (at < state->n) {
        struct walk w = {.net = net, .x = x, .s = s};
        const struct segment *segment;
        bool learnt;
        for (size_t i = 0; i < each; i++, at++) {
            segment = next_segment(&w, &learnt);
            PL_ASSERT(segment); /* the tables are this net's */
            if (!caffe_shapes_fit(&state->history[at].shape, &segment->shape))
                return err_set(err, ERR_INPUT, "%s: history %zu is %s, %s of the net is %s",
                               state->path, at, shape_text(&state->history[at].shape, a, sizeof a),
                               segment->name, shape_text(&segment->shape, b, sizeof b));
            if (learnt && !caffe_blob_finite(&state->history[at]))
                return err_set(err, ERR_INPUT,
                               "%s: history %zu, of %s, holds a value that is no finite number",
                               state->path, at, segment->name);
        }
    }
    *vectors = state->n / each;
    return OK;
}

void caffe_state_take(const struct caffe_state *state, const Caffe__NetParameter *net,
                      const struct segments *x, const struct segments *s, size_t k, float *into)
{
    struct walk w = {.net = net, .x = x, .s = s};
    const struct segment *segment;
    bool learnt;
    for (size_t at = k * (x->count + s->count); (segment = next_segment(&w, &learnt)); at++) {
        PL_ASSERT(at < state->n);
        if (learnt)
            caffe_blob_copy(&state->history[at], into + segment->offset);
    }
}
