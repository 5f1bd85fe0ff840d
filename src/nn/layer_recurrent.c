/* LSTM, RNN and GRU: layers of units over sequences, which read their own outputs of the step
 * before (tensor/recurrence.h has the equations; LSTM and RNN are Caffe's, with the order of its
 * gates and blobs; GRU, and RNN without output_product, are PyTorch's). Axis 0 has the
 * records here as everywhere, and axis 1 the steps: where Caffe has T x N x .., a net here has
 * N x T x ..
 *
 * Bottoms are the sequences, N x T x .., the rest of which is one vector a step; `cont`, N x T, 0
 * where a sequence begins and 1 where it continues; and, if wanted, a static input, N x .. Without
 * cont all sequences continue. The state before the first step is the one that the batch carries
 * (net_batch.carried), unless expose_hidden makes it more bottoms, N x 1 x num_output, and the
 * state behind the last step more tops. A layer that reads its sequences from the last step to the
 * first begins with 0.
 *
 * Shorter sequences are padded behind their end with any finite values, and the loss ignores the
 * labels there (ignore_label). A layer that reads backwards needs its padding in front. */
#include "nn/layers.h"
#include "nn/partition.h"
#include "tensor/recurrence.h"

#include <stdio.h>
#include <string.h>

struct layer_recurrent {
    struct layer layer;
    struct recurrence *op; /* layer.op */
    struct recurrence_spec spec;
    enum recurrence_param param[RECURRENCE_PARAMS]; /* of each blob of parameters */
    size_t cont, fixed, hidden;                     /* numbers of bottoms; 0: there is none */
    size_t states;
    /* Of the pass of a slice that has begun: meetings of forward; those in steps to go, what
     * follows, and the next bottom. */
    size_t met, left, next;
    enum { BACKWARD_STEPS, BACKWARD_BOTTOM, BACKWARD_WEIGHTS, BACKWARD_REST } backward;
    size_t carried;            /* where the state lies in a record's part of net_batch.carried, */
    const size_t *carried_row; /* whose length this is */
};

static const char *const lstm_types[] = {"LSTM", NULL};
static const char *const rnn_types[] = {"RNN", NULL};
static const char *const gru_types[] = {"GRU", NULL};
static const char *const recurrent_messages[] = {"recurrent_param", NULL};
static const char *const gru_messages[] = {"gru_param", NULL};

/* The fields of either message. */
struct recurrent_fields {
    const char *message;
    uint32_t num_output;
    const Caffe__FillerParameter *weight_filler, *bias_filler;
    bool expose_hidden, debug_info, no_product, reset_first, reverse;
};

static struct recurrent_fields read_gru(const Caffe__GRUParameter *p)
{
    return (struct recurrent_fields){
        .message = "gru_param",
        .num_output = p ? p->num_output : 0,
        .weight_filler = p ? p->weight_filler : NULL,
        .bias_filler = p ? p->bias_filler : NULL,
        .expose_hidden = p && p->expose_hidden,
        .reset_first = p && p->reset_first,
        .reverse = p && p->reverse,
    };
}

static struct recurrent_fields read_recurrent(const Caffe__RecurrentParameter *p)
{
    return (struct recurrent_fields){
        .message = "recurrent_param",
        .num_output = p ? p->num_output : 0,
        .weight_filler = p ? p->weight_filler : NULL,
        .bias_filler = p ? p->bias_filler : NULL,
        .expose_hidden = p && p->expose_hidden,
        .debug_info = p && p->debug_info,
        .no_product = p && !p->output_product,
        .reverse = p && p->reverse,
    };
}

/* ---- setting up ---- */

static int check_fields(const struct recurrent_fields *f, struct err *err)
{
    if (f->num_output == 0)
        return err_set(err, ERR_INPUT, "%s.num_output must be positive", f->message);
    if (f->debug_info)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s.debug_info: true is not supported: nothing is printed of each step",
                       f->message);
    return OK;
}

/* Which bottom is what. */
static int name_bottoms(struct layer_recurrent *self, const struct recurrent_fields *f,
                        struct err *err)
{
    struct layer *layer = &self->layer;
    size_t exposed = f->expose_hidden ? self->states : 0;
    size_t least = f->expose_hidden ? 2 + exposed : 1;
    int rc = layer_links_between(layer, least, 3 + exposed, 1 + exposed, 1 + exposed, err);
    if (rc != OK)
        return rc;
    if (f->reverse && layer->n_bottom > 1)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s.reverse: true is supported for one bottom, the sequences", f->message);
    self->cont = layer->n_bottom > 1 ? 1 : 0;
    self->fixed = layer->n_bottom == 3 + exposed ? 2 : 0;
    self->hidden = f->expose_hidden ? layer->n_bottom - exposed : 0;
    return OK;
}

static int refuse_shape(const struct blob *blob, const char *what, const struct shape *want,
                        struct err *err)
{
    char a[128], b[128];
    return err_set(err, ERR_INPUT, "bottom \"%.64s\", %s, is %s, not %s", blob->name, what,
                   shape_text(&blob->shape, a, sizeof a), shape_text(want, b, sizeof b));
}

/* The values of a record, or of a step, are read as they lie. */
static int check_plain(const struct blob *blob, struct err *err)
{
    char text[128];
    if (blob->shape.n != 4)
        return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "bottom \"%.64s\", %s, is an image; Reshape makes vectors of it", blob->name,
                   shape_text(&blob->shape, text, sizeof text));
}

static int check_sequences(const struct layer_recurrent *self, struct err *err)
{
    const struct blob *x = self->layer.bottom[0].blob;
    char text[128];
    if (x->shape.n < 2)
        return err_set(err, ERR_INPUT,
                       "bottom \"%.64s\" is %s; sequences are NxTx..: records, then steps", x->name,
                       shape_text(&x->shape, text, sizeof text));
    return check_plain(x, err);
}

static int check_bottoms(const struct layer_recurrent *self, struct err *err)
{
    const struct layer *layer = &self->layer;
    const struct shape places = {2, {self->spec.N, self->spec.T}};
    const struct shape state = {3, {self->spec.N, 1, self->spec.H}};
    if (self->cont && !shape_equal(&layer->bottom[self->cont].blob->shape, &places))
        return refuse_shape(layer->bottom[self->cont].blob, "the marks of continuation", &places,
                            err);
    for (size_t k = 0; self->hidden && k < self->states; k++)
        if (!shape_equal(&layer->bottom[self->hidden + k].blob->shape, &state))
            return refuse_shape(layer->bottom[self->hidden + k].blob, "the state before the steps",
                                &state, err);
    return self->fixed ? check_plain(layer->bottom[self->fixed].blob, err) : OK;
}

static int make_params(struct layer_recurrent *self, const struct setup *setup,
                       const struct recurrent_fields *f, struct err *err)
{
    struct layer *layer = &self->layer;
    char field[64];
    int rc = OK;
    for (enum recurrence_param k = 0; rc == OK && k < RECURRENCE_PARAMS; k++) {
        const struct shape shape = recurrence_param_shape(&self->spec, k);
        bool bias = shape.n == 1;
        if (shape.n == 0)
            continue;
        self->param[layer->n_at] = k;
        snprintf(field, sizeof field, "%s.%s", f->message, bias ? "bias_filler" : "weight_filler");
        rc =
            layer_param(layer, setup, &shape, field, bias ? f->bias_filler : f->weight_filler, err);
    }
    return rc == OK ? layer_params_done(layer, err) : rc;
}

static int make_tops(const struct layer_recurrent *self, struct layer *layer, struct err *err)
{
    const struct shape y = {3, {self->spec.N, self->spec.T, self->spec.H}};
    const struct shape state = {3, {self->spec.N, 1, self->spec.H}};
    int rc = layer_top(layer, 0, &y, LAYOUT_PLAIN, err);
    for (size_t k = 1; rc == OK && k < layer->n_top; k++)
        rc = layer_top(layer, k, &state, LAYOUT_PLAIN, err);
    return rc;
}

/* Some bottoms have no gradient, and some are not read in backward. */
static void mark_bottoms(const struct layer_recurrent *self)
{
    struct link *bottom = self->layer.bottom;
    if (self->cont)
        bottom[self->cont].no_gradient = true;
    for (size_t k = 0; self->hidden && k < self->states; k++)
        bottom[self->hidden + k].forward_only = true;
}

/* Slices share out the units, all gates of a unit together; the outputs, and the state behind the
 * steps, of all are gathered within the layer. */
static int take_part(struct layer_recurrent *self, const struct setup *setup, struct err *err)
{
    struct layer *layer = &self->layer;
    int rc = layer_share_units(layer, setup, self->spec.H, "units", err);
    layer->by_gate = true;
    self->spec.own = layer_is_cut(layer) ? layer->own : (struct range){0, self->spec.H};
    return rc;
}

static int setup_units(struct layer *layer, const struct setup *setup, enum recurrence_kind kind,
                       const struct recurrent_fields *f, struct err *err)
{
    struct layer_recurrent *self = (struct layer_recurrent *)layer;
    bool training = setup->options->phase == PHASE_TRAIN;
    self->states = recurrence_states(kind);
    int rc = check_fields(f, err);
    if (rc == OK)
        rc = name_bottoms(self, f, err);
    if (rc == OK)
        rc = check_sequences(self, err);
    if (rc != OK)
        return rc;
    const struct blob *x = layer->bottom[0].blob;
    self->spec = (struct recurrence_spec){
        .kind = kind,
        .N = x->shape.dim[0],
        .T = x->shape.dim[1],
        .D = shape_count_from(&x->shape, 2),
        .S = self->fixed ? layer->bottom[self->fixed].blob->count / x->shape.dim[0] : 0,
        .H = f->num_output,
        .reverse = f->reverse,
    };
    bool by_step = x->numbers && x->numbers->count == self->spec.N * self->spec.T;
    self->spec.kinds = by_step ? x->kinds : 0;
    mark_bottoms(self);
    rc = take_part(self, setup, err);
    if (rc == OK)
        rc = check_bottoms(self, err);
    if (rc == OK)
        rc = make_tops(self, layer, err);
    if (rc == OK)
        rc = make_params(self, setup, f, err);
    if (rc != OK)
        return rc;
    layer->products = recurrence_products(&self->spec);
    if (!f->expose_hidden && !f->reverse) {
        self->carried = *setup->carried;
        self->carried_row = setup->carried;
        *setup->carried += self->states * self->spec.H;
    }
    rc = setup->options->kernels->recurrence(&self->spec, training, setup->arena, &self->op, err);
    layer->op = rc == OK ? &self->op->op : NULL;
    return rc;
}

static int setup_lstm(struct layer *layer, const struct setup *setup, struct err *err)
{
    const struct recurrent_fields f = read_recurrent(layer->param->recurrent_param);
    if (f.no_product)
        return err_set(err, ERR_INPUT,
                       "recurrent_param.output_product: an LSTM has no product for its output");
    return setup_units(layer, setup, RECURRENCE_LSTM, &f, err);
}

static int setup_rnn(struct layer *layer, const struct setup *setup, struct err *err)
{
    const struct recurrent_fields f = read_recurrent(layer->param->recurrent_param);
    return setup_units(layer, setup, f.no_product ? RECURRENCE_STATE : RECURRENCE_TANH, &f, err);
}

static int setup_gru(struct layer *layer, const struct setup *setup, struct err *err)
{
    const struct recurrent_fields f = read_gru(layer->param->gru_param);
    return setup_units(layer, setup, f.reset_first ? RECURRENCE_RESET : RECURRENCE_GRU, &f, err);
}

/* ---- running ---- */

static struct recurrence_args args_of(const struct layer_recurrent *self, const struct pass *pass)
{
    const struct layer *layer = &self->layer;
    struct recurrence_args args = {
        .x = layer->bottom[0].blob->at,
        .numbers = self->spec.kinds > 0 ? layer->bottom[0].blob->numbers->at : NULL,
        .fixed = self->fixed ? layer->bottom[self->fixed].blob->at : NULL,
        .cont = self->cont ? layer->bottom[self->cont].blob->at : NULL,
        .y = layer->top[0]->at,
    };
    for (size_t k = 0; k < layer->n_at; k++)
        args.w[self->param[k]] = pass->x + layer->at[k].offset;
    return args;
}

static void take_exposed(const struct layer_recurrent *self, struct recurrence_args *args)
{
    const struct layer *layer = &self->layer;
    args->first_row = args->last_row = self->spec.H;
    args->first_records = args->last_records = self->spec.N;
    for (size_t k = 0; k < self->states; k++) {
        args->first[k] = layer->bottom[self->hidden + k].blob->at;
        args->last[k] = layer->top[1 + k]->at;
    }
}

/* Records that the batch does not have begin with 0: their values count for nothing. */
static void take_carried(const struct layer_recurrent *self, const struct net_batch *batch,
                         struct recurrence_args *args)
{
    args->first_row = args->last_row = *self->carried_row;
    args->first_records = args->last_records = batch->count;
    for (size_t k = 0; k < self->states; k++)
        args->first[k] = args->last[k] = batch->carried + self->carried + k * self->spec.H;
}

static void keep_own_carried(const struct layer *layer, const struct model_slice *slice, float *row,
                             bool is_own)
{
    const struct layer_recurrent *self = (const struct layer_recurrent *)layer;
    size_t H = self->spec.H;
    struct range own = {0, H};
    if (layer_is_cut(layer))
        own = self->spec.own;
    else if (layer->data_parallel ? !is_own : slice->index > 0)
        own.len = 0;
    for (size_t k = 0; self->carried_row && k < self->states; k++) {
        float *state = row + self->carried + k * H;
        memset(state, 0, own.from * sizeof *state);
        memset(state + own.from + own.len, 0, (H - own.from - own.len) * sizeof *state);
    }
}

static struct recurrence_args forward_args(const struct layer_recurrent *self,
                                           const struct pass *pass)
{
    struct recurrence_args args = args_of(self, pass);
    if (self->hidden)
        take_exposed(self, &args);
    else if (pass->batch->carried && !self->spec.reverse)
        take_carried(self, pass->batch, &args);
    return args;
}

static struct recurrence_args backward_args(const struct layer_recurrent *self,
                                            const struct pass *pass)
{
    const struct layer *layer = &self->layer;
    struct recurrence_args args = args_of(self, pass);
    args.dy = layer->top[0]->d;
    args.dx = layer->bottom[0].dx;
    args.dfixed = self->fixed ? layer->bottom[self->fixed].dx : NULL;
    for (size_t k = 0; self->hidden && k < self->states; k++) {
        args.dlast[k] = layer->top[1 + k]->d;
        args.dfirst[k] = layer->bottom[self->hidden + k].dx;
    }
    for (size_t k = 0; k < layer->n_at; k++)
        args.dw[self->param[k]] = pass->dx + layer->at[k].offset;
    return args;
}

static void recurrent_forward(struct layer *layer, const struct pass *pass)
{
    const struct layer_recurrent *self = (const struct layer_recurrent *)layer;
    const struct recurrence_args args = forward_args(self, pass);
    recurrence_forward(self->op, &args);
}

static void recurrent_backward(struct layer *layer, const struct pass *pass)
{
    const struct layer_recurrent *self = (const struct layer_recurrent *)layer;
    const struct recurrence_args args = backward_args(self, pass);
    recurrence_backward(self->op, &args);
}

/* ---- running a slice ---- */

static bool has_outputs(const struct layer_recurrent *self)
{
    return self->spec.kind == RECURRENCE_TANH;
}

/* The slices gather, or add up, so many rows of H values. */
static bool meet_units(const struct layer_recurrent *self, enum net_meeting meeting, size_t number,
                       float *values, size_t rows, double share, struct net_point *point)
{
    *point = (struct net_point){
        .meeting = meeting,
        .number = partition_number(&self->layer, number),
        .values = values,
        .rows = rows,
        .outputs = self->spec.H,
        .each = 1,
        .share = share,
    };
    return true;
}

/* How often the slices meet in a step. */
static size_t meetings_of_step(const struct layer_recurrent *self)
{
    return recurrence_halves(self->op) ? 2 : 1;
}

/* Behind each step its outputs, and before them what its second product reads; then the outputs of
 * all steps, where units have products of their own for them, or the cells of the last one. */
static bool recurrent_forward_part(struct layer *layer, const struct pass *pass, bool begins,
                                   struct net_point *point)
{
    struct layer_recurrent *self = (struct layer_recurrent *)layer;
    const struct recurrence_args args = forward_args(self, pass);
    size_t T = self->spec.T, N = self->spec.N, met = begins ? 0 : self->met;
    size_t each = meetings_of_step(self), all = each * T;
    if (begins)
        recurrence_begin_forward(self->op, &args);
    else if (met <= all && met % each == 0)
        recurrence_take_step(self->op, &args, met / each - 1);
    self->met = met + 1;
    if (met < all) {
        bool half = met % each + 1 < each;
        (half ? recurrence_half_forward : recurrence_step_forward)(self->op, &args, met / each);
        return meet_units(self, NET_GATHER, POINT_STEP,
                          half ? self->op->reset.reset : self->op->state, N,
                          (double)(met + 1) / (double)all, point);
    }
    if (met > all)
        return false;
    recurrence_end_forward(self->op, &args);
    if (has_outputs(self))
        return meet_units(self, NET_GATHER, POINT_OUTPUT, args.y, N * T, 1, point);
    return self->hidden && args.last[1] &&
           meet_units(self, NET_GATHER, POINT_STEP, args.last[1], N, 1, point);
}

/* The part of the products back that the steps have: those of the state. */
static double share_of_steps(const struct layer_recurrent *self)
{
    double H = (double)self->spec.H, inputs = (double)(self->spec.D + self->spec.S);
    return H / (2 * H + (self->layer.bottom[0].dx ? 2 : 1) * inputs);
}

/* A step back, or half of one. Behind the first step the gradient is of use to a bottom alone. */
static bool step_backward(struct layer_recurrent *self, const struct recurrence_args *args,
                          struct net_point *point)
{
    size_t each = meetings_of_step(self), all = each * self->spec.T, left = --self->left;
    bool half = left % each > 0;
    (half ? recurrence_half_backward : recurrence_step_backward)(self->op, args, left / each);
    return (left > 0 || args->dfirst[0]) &&
           meet_units(self, NET_SUM, POINT_HIDDEN, half ? self->op->reset.reset : self->op->state,
                      self->spec.N, share_of_steps(self) * (double)(all - left) / (double)all,
                      point);
}

/* The gradients of the static input, and of the state before the steps, by units. */
static bool rest_meets(struct layer_recurrent *self, struct net_point *point)
{
    const struct layer *layer = &self->layer;
    while (self->next < layer->n_bottom) {
        size_t k = self->next++;
        if (k == self->fixed && partition_sum(layer, k, POINT_FIXED, point))
            return true;
        if (self->hidden && k >= self->hidden && layer->bottom[k].dx)
            return meet_units(self, NET_GATHER, POINT_STEP, layer->bottom[k].dx, self->spec.N, 1,
                              point);
    }
    return false;
}

/* Behind the steps: the sum of the gradient of the bottom, which is half of the products, while
 * those of the weights are computed; and those of the other bottoms. */
static bool end_backward_part(struct layer_recurrent *self, const struct recurrence_args *args,
                              struct net_point *point)
{
    const struct layer *layer = &self->layer;
    struct recurrence_args part = *args;
    if (self->backward == BACKWARD_BOTTOM) {
        self->backward = BACKWARD_WEIGHTS;
        if (partition_sum(layer, 0, POINT_BOTTOM, point)) {
            memset(part.dw, 0, sizeof part.dw);
            recurrence_end_backward(self->op, &part);
            point->meeting = NET_SUM_BEGINS;
            point->share = 0.5;
            return true;
        }
    }
    if (self->backward == BACKWARD_WEIGHTS) {
        self->backward = BACKWARD_REST;
        part.dx = NULL;
        recurrence_end_backward(self->op, &part);
        if (partition_sum(layer, 0, POINT_BOTTOM, point)) {
            point->meeting = NET_SUM_ENDS;
            return true;
        }
    }
    return rest_meets(self, point);
}

/* Of units with products for their outputs, the gradients of all h; then of the outputs before each
 * step but the first; then those of the bottoms. */
static bool recurrent_backward_part(struct layer *layer, const struct pass *pass, bool begins,
                                    struct net_point *point)
{
    struct layer_recurrent *self = (struct layer_recurrent *)layer;
    const struct recurrence_args args = backward_args(self, pass);
    size_t T = self->spec.T, N = self->spec.N, each = meetings_of_step(self);
    if (begins) {
        self->backward = BACKWARD_STEPS;
        self->left = each * T;
        self->next = 1;
        recurrence_begin_backward(self->op, &args);
        if (has_outputs(self))
            return meet_units(self, NET_SUM, POINT_SLOPE, self->op->dh_all, N * T, 0, point);
    } else if (self->backward == BACKWARD_STEPS && self->left < each * T &&
               self->left % each == 0) {
        recurrence_finish_step(self->op, &args, self->left / each);
    }
    if (self->backward == BACKWARD_STEPS && self->left > 0 && step_backward(self, &args, point))
        return true;
    if (self->backward == BACKWARD_STEPS)
        self->backward = BACKWARD_BOTTOM;
    return end_backward_part(self, &args, point);
}

#define RECURRENT(name, names, fields, make, top) \
    const struct layer_ops layer_##name = {       \
        .types = names,                           \
        .messages = fields,                       \
        .size = sizeof(struct layer_recurrent),   \
        .reads_bottom = true,                     \
        .reads_top = top,                         \
        .setup = make,                            \
        .keep_own_carried = keep_own_carried,     \
        .forward = recurrent_forward,             \
        .backward = recurrent_backward,           \
        .forward_part = recurrent_forward_part,   \
        .backward_part = recurrent_backward_part, \
    }

RECURRENT(lstm, lstm_types, recurrent_messages, setup_lstm, false);
RECURRENT(rnn, rnn_types, recurrent_messages, setup_rnn, true);
RECURRENT(gru, gru_types, gru_messages, setup_gru, false);
