#include "learner/text_sampler.h"

#include "base/fault.h"
#include "base/rng.h"
#include "model/load.h"
#include "model/scores.h"
#include "nn/rules.h"
#include "tensor/record_fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct text_sampler {
    struct arena arena;
    struct text_units *units;
    struct net *net;
    const char *blob;                    /* the scores, */
    bool shares;                         /* which are probabilities */
    size_t before;                       /* points of the workspace's nets */
    const struct slice_meeting *meeting; /* during a draw; NULL: the net is whole */
    int threads;                         /* of the caller, likewise */
    float *carried;                      /* the state behind the last unit */
    float *scores;                       /* of each unit, behind it */
    double *weight;                      /* of each unit, for the draw */
};

/* ---- planning ---- */

/* A record is a unit and the one that follows it, as source_text has them. */
static int plan_net(struct text_sampler *t, const Caffe__NetParameter *param,
                    const struct workspace *ws, struct err *err)
{
    static const struct fields fields = {
        2, {{"data", {1, {1}}, 0, true}, {"target", {1, {1}}, 1, true}}};
    const struct net_options options = {
        .phase = PHASE_TEST,
        .batch = 1,
        .input = {3, {2, 1, 1}},
        .fields = &fields,
        .kernels = ws->kernels,
        .keep = t->blob,
        .slice = ws->slice,
        .slices_from = ws->slices_from,
        .slices_to = ws->slices_to,
    };
    int before = kernels_threads();
    kernels_set_threads(1);
    int rc = net_create(param, &options, &t->net, err);
    kernels_set_threads(before);
    if (rc == ERR_INPUT)
        err->status = rc = ERR_UNSUPPORTED; /* it has been planned for windows */
    if (rc == ERR_UNSUPPORTED)
        err_prefix(err, "net: for one unit at a time");
    return rc;
}

/* A layer that reads its sequences backwards would begin with state 0 at each unit. */
static int check_directions(const Caffe__NetParameter *param, struct err *err)
{
    for (size_t i = 0; i < param->n_layer; i++) {
        const Caffe__LayerParameter *layer = param->layer[i];
        bool reverse = (layer->recurrent_param && layer->recurrent_param->reverse) ||
                       (layer->gru_param && layer->gru_param->reverse);
        if (reverse && rules_include(layer, param->state, PHASE_TEST))
            return err_set(err, ERR_UNSUPPORTED,
                           "net: layer \"%.100s\" reads its sequences backwards (reverse: true), "
                           "from units that have not been drawn; a text is drawn from nets that "
                           "read forwards",
                           layer->name ? layer->name : "");
    }
    return OK;
}

static int check_net(const struct text_sampler *t, const struct net *like, struct err *err)
{
    size_t scores = net_blob(t->net, t->blob, NULL, 0, NULL), units = text_units_count(t->units);
    if (!segments_match(net_segments(t->net), net_segments(like)) ||
        !segments_match(net_state_segments(t->net), net_state_segments(like)))
        return err_set(err, ERR_UNSUPPORTED,
                       "net: for one unit at a time it has other parameters than for windows; give "
                       "its InnerProduct layers axis: 2");
    if (net_carried(t->net) == 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "net: no layer carries a state from unit to unit; a text is drawn from nets "
                       "with LSTM, RNN or GRU");
    if (scores != units)
        return err_set(err, ERR_INPUT,
                       "net: blob \"%.100s\" has %zu scores a unit, and the text has %zu %s; give "
                       "the text that the net was trained on, or the net as many outputs",
                       t->blob, scores, units, text_units_name(t->units));
    return OK;
}

static int plan_sampler(struct text_sampler *t, const Caffe__NetParameter *param,
                        const struct workspace *ws, struct err *err)
{
    struct scores scores;
    int rc = model_scores(param, &scores, err);
    if (rc != OK)
        return rc;
    t->shares = scores.form == SCORES_PROBABILITIES;
    t->blob = arena_strdup(&t->arena, scores.blob);
    if (!t->blob)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    rc = plan_net(t, param, ws, err);
    if (rc == OK)
        rc = check_directions(param, err);
    if (rc == OK)
        rc = check_net(t, workspace_net(ws), err);
    if (rc != OK)
        return rc;
    size_t n = text_units_count(t->units);
    t->carried = arena_array(&t->arena, net_carried(t->net), float);
    t->scores = arena_array(&t->arena, n, float);
    t->weight = arena_array(&t->arena, n, double);
    return t->carried && t->scores && t->weight ? OK
                                                : err_set(err, ERR_NOMEM, "net: out of memory");
}

int text_sampler_create(const Paceline__Net *net, const struct workspace *ws,
                        struct text_units *units, struct text_sampler **out, struct err *err)
{
    Caffe__NetParameter *param = NULL;
    struct text_sampler *t = calloc(1, sizeof *t);
    if (!t) {
        text_units_free(units);
        return err_set(err, ERR_NOMEM, "net: out of memory");
    }
    arena_init(&t->arena);
    t->units = units;
    t->before = workspace_points(ws);
    int rc = model_load_net(net, &param, err);
    if (rc == OK)
        rc = plan_sampler(t, param, ws, err);
    caffe__net_parameter__free_unpacked(param, NULL);
    if (rc == OK)
        *out = t;
    else
        text_sampler_free(t);
    return rc;
}

void text_sampler_free(struct text_sampler *t)
{
    if (!t)
        return;
    net_free(t->net);
    text_units_free(t->units);
    arena_release(&t->arena);
    free(t);
}

size_t text_sampler_points(const struct text_sampler *t)
{
    return t->before + net_points(t->net);
}

/* ---- drawing ---- */

/* Other nodes of a simulation compute on this thread meanwhile. */
static int meet_others(void *user, const struct net_point *point)
{
    struct text_sampler *t = user;
    kernels_set_threads(t->threads);
    int rc = t->meeting->meet(t->meeting->user, point);
    kernels_set_threads(1);
    return rc;
}

/* The scores behind unit `id`. */
static int read_unit(struct text_sampler *t, const struct vec *x, struct vec *s, uint32_t id,
                     struct err *err)
{
    const float record[] = {(float)id, 0};
    const uint32_t label = 0; /* of a loss, which is ignored */
    const uint64_t number = 0;
    const struct net_batch batch = {
        .data = record, .labels = &label, .records = &number, .count = 1, .carried = t->carried};
    struct net_result ignored;
    size_t n = text_units_count(t->units);
    const struct slice_meeting meeting = {.meet = meet_others, .user = t};
    int rc = slice_meeting_forward(t->meeting ? &meeting : NULL, t->before, t->net, x, s, &batch,
                                   &ignored);
    if (rc != OK)
        return rc;
    net_blob(t->net, t->blob, t->scores, n, NULL);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(t->scores[i]))
            return err_set(err, ERR_DIVERGED,
                           "net: the scores behind unit %" PRIu32 " are not finite: the model has "
                           "diverged, or was trained on a text with fewer %s",
                           id, text_units_name(t->units));
    return OK;
}

static uint32_t find_highest(const struct text_sampler *t)
{
    uint32_t highest = 0;
    for (uint32_t i = 1; i < text_units_count(t->units); i++)
        if (t->scores[i] > t->scores[highest])
            highest = i;
    return highest;
}

/* p_i^(1/T), of logarithms exp(z_i / T), each over that of the highest, which so is 1. */
static double fill_weights(const struct text_sampler *t, double temperature)
{
    double highest = (double)t->scores[find_highest(t)], sum = 0;
    for (uint32_t i = 0; i < text_units_count(t->units); i++) {
        double z = (double)t->scores[i];
        t->weight[i] = t->shares ? pow(z > 0 ? z / highest : 0, 1 / temperature)
                                 : exp((z - highest) / temperature);
        sum += t->weight[i];
    }
    return sum;
}

static uint32_t draw_unit(const struct text_sampler *t, const struct text_request *request,
                          uint64_t number)
{
    uint32_t last = find_highest(t);
    if (request->temperature == 0)
        return last;
    double sum = fill_weights(t, request->temperature), below = 0;
    double at = sum * (double)(rng_u64(request->seed, RNG_TEXT, number) >> 11) * 0x1p-53;
    for (uint32_t i = 0; i < text_units_count(t->units); i++) {
        below += t->weight[i];
        if (at < below)
            return i;
        last = t->weight[i] > 0 ? i : last; /* where the product was rounded up to the sum */
    }
    return last;
}

/* The unit that a text without a prime follows. */
static uint32_t find_first(const struct text_sampler *t)
{
    struct err none;
    uint32_t id;
    size_t length;
    return text_units_take(t->units, "\n", 1, &id, &length, &none) == OK ? id : 0;
}

int text_sampler_check(const struct text_sampler *t, const char *prime, struct err *err)
{
    size_t n = prime ? strlen(prime) : 0, length;
    uint32_t id;
    for (size_t at = 0; at < n; at += length) {
        int rc = text_units_take(t->units, prime + at, n - at, &id, &length, err);
        if (rc != OK) {
            err_prefix(err, "prime: byte %zu", at);
            err_remedy(err, "leave it out");
            return rc;
        }
    }
    return OK;
}

static int read_prime(struct text_sampler *t, const struct vec *x, struct vec *s, const char *prime,
                      struct err *err)
{
    size_t n = prime ? strlen(prime) : 0, length;
    memset(t->carried, 0, net_carried(t->net) * sizeof *t->carried);
    if (n == 0)
        return read_unit(t, x, s, find_first(t), err);
    int rc = OK;
    for (size_t at = 0; rc == OK && at < n; at += length) {
        uint32_t id;
        bool known = text_units_take(t->units, prime + at, n - at, &id, &length, err) == OK;
        PL_ASSERT(known); /* text_sampler_check */
        rc = read_unit(t, x, s, id, err);
    }
    return rc;
}

static int draw_units(struct text_sampler *t, const struct vec *x, struct vec *s,
                      const struct text_request *request, struct buf *text, struct err *err)
{
    int rc = read_prime(t, x, s, request->prime, err);
    for (uint64_t i = 0; rc == OK && i < request->length; i++) {
        uint32_t id = draw_unit(t, request, i);
        text_units_put(t->units, id, text);
        if (i + 1 < request->length)
            rc = read_unit(t, x, s, id, err);
    }
    if (rc == OK && text->failed)
        rc = err_set(err, ERR_NOMEM, "net: out of memory for the text");
    return rc;
}

int text_sampler_draw(struct text_sampler *t, const struct vec *x, struct vec *s,
                      const struct text_request *request, const struct slice_meeting *meeting,
                      struct buf *text, struct err *err)
{
    t->threads = kernels_threads();
    t->meeting = meeting;
    kernels_set_threads(1);
    int rc = draw_units(t, x, s, request, text, err);
    kernels_set_threads(t->threads);
    return rc;
}
