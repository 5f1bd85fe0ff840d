/* The passes of a net: forward and backward, layer by layer. A pass over a slice of a net stops
 * where the slices exchange a blob, and continues when its caller asks for it. */
#include "nn/net.h"

#include "base/fault.h"
#include "nn/axes.h"
#include "nn/cast.h"
#include "nn/graph.h"
#include "nn/live_ranges.h"
#include "nn/partition.h"

#include <string.h>

static void probe_begins(const struct net *net, size_t layer, bool backward)
{
    if (net->probe)
        net->probe->begins(net->probe->user, layer, backward);
}

static void probe_ends(const struct net *net, size_t layer, bool backward)
{
    if (net->probe)
        net->probe->ends(net->probe->user, layer, backward);
}

/* The backward pass leaves rematerialised values in their second memory, also those of layers that
 * do not run in this pass. */
static void restart_tops(const struct layer *layer)
{
    for (size_t k = 0; k < layer->n_top; k++)
        if (layer->top[k]->rematerialised)
            live_ranges_restart(layer->top[k]);
}

static double pass_flops(const struct net *net, bool backward)
{
    double sum = 0.0;
    for (size_t i = 0; i < net->file.n_layers; i++)
        sum += net_layer_flops(net, i, backward);
    return sum;
}

double net_flops(const struct net *net)
{
    return pass_flops(net, false) + pass_flops(net, true);
}

/* Of a step of the whole net, of which this one may be a slice; 1 where it has no products. */
static double count_whole_flops(const struct net *net)
{
    double sum = 0.0;
    for (size_t i = 0; i < net->file.n_layers; i++) {
        const struct layer *layer = net->file.layer[i];
        double flops = net_layer_flops(net, i, false) + net_layer_flops(net, i, true);
        sum += flops * partition_slices_of(net, layer);
    }
    return sum > 0.0 ? sum : 1.0;
}

/* ---- forward ---- */

/* loss_weight on a top that is no loss's: all its values count. */
static double weighted_tops(const struct layer *layer, size_t count)
{
    double sum = 0.0;
    for (size_t k = layer->ops->is_loss ? 1 : 0; k < layer->n_top; k++) {
        const struct blob *top = layer->top[k];
        size_t n = top->weight != 0.0f ? axes_live(top, count) : 0;
        double values = 0.0;
        for (size_t i = 0; i < n; i++)
            values += (double)cast_element(top->dtype, top->at, i);
        sum += (double)top->weight * values;
    }
    return sum;
}

/* The caller that brings the batch has checked its labels. */
static void check_labels(const struct net *net, const struct net_batch *batch)
{
    for (size_t i = 0; i < batch->count && batch->labels && net->classes > 0; i++)
        PL_ASSERT(batch->labels[i] < net->classes);
}

/* The pass of data-parallel layers. */
static void take_part(struct net *net, const struct net_batch *batch)
{
    struct net_run *run = &net->run;
    struct range own = net_own_records(net, batch->count);
    run->records = *batch;
    run->records.count = own.len;
    if (batch->records)
        run->records.records += own.from;
    if (batch->carried)
        run->records.carried += own.from * net->carried;
    run->part = run->pass;
    run->part.batch = &run->records;
}

void net_begin_forward(struct net *net, const struct vec *x, struct vec *s,
                       const struct net_batch *batch)
{
    struct net_run *run = &net->run;
    PL_ASSERT(batch->count >= 1 && batch->count <= net->N);
    PL_ASSERT(x->n >= net->segments.total && s->n >= net->states.total);
    PL_ASSERT(net->room);
    check_labels(net, batch);
    if (net->poisoned)
        live_ranges_poison(net);
    *run = (struct net_run){.result = {.count = batch->count}};
    run->pass = (struct pass){.x = x->at, .s = s->at, .batch = batch, .result = &run->result};
    take_part(net, batch);
    for (size_t i = 0; i < net->n_layers; i++)
        restart_tops(net->layer[i]);
}

/* Of data-parallel layers a batch may have no records for this slice: they do not run. */
static bool is_idle(const struct net *net, const struct layer *layer)
{
    return layer->data_parallel && net->run.records.count == 0;
}

static const struct pass *pass_of(const struct net *net, const struct layer *layer)
{
    return layer->data_parallel ? &net->run.part : &net->run.pass;
}

/* Does the pass stop within or behind the layer, whose share of the pass is then the point's? */
static bool stop_at(struct net *net, const struct layer *layer, bool meets)
{
    struct net_run *run = &net->run;
    double flops = net_layer_flops(net, layer->in_file, run->backward);
    if (meets)
        run->point.share = (run->done + run->point.share * flops) / count_whole_flops(net);
    return run->stopped = meets;
}

static bool meets_within(const struct layer *layer)
{
    return layer_is_cut(layer) && layer->ops->forward_part;
}

static void begin_forward(struct net *net, struct layer *layer)
{
    probe_begins(net, layer->in_file, false);
    net->scratch.at = live_ranges_scratch(net, layer, false);
}

/* Other layers run forward, or backward, until `awaited_by`. */
static void continue_during(struct net *net, struct layer *layer)
{
    PL_ASSERT(!net->run.meeting);
    net->run.meeting = layer;
}

static bool is_awaited_by(const struct net *net, const struct layer *layer)
{
    return net->run.meeting && net->run.meeting->awaited_by == layer;
}

/* The pass stops until the gather or the sum is over that other layers have run during. */
static const struct net_point *await_end(struct net *net, double share)
{
    struct net_run *run = &net->run;
    bool meets = run->backward ? partition_backward(run->meeting, &run->end)
                               : partition_forward(run->meeting, &run->end);
    PL_ASSERT(meets && !run->ends);
    run->end.meeting = run->backward ? NET_SUM_ENDS : NET_GATHER_ENDS;
    run->end.share = share;
    run->ends = true;
    return &run->end;
}

static void end_meeting(struct net *net)
{
    net->run.meeting = NULL;
    net->run.ends = false;
}

/* Run the layer, or what is left of it. */
static bool forward_meets(struct net *net, struct layer *layer)
{
    struct net_run *run = &net->run;
    bool begins = !run->stopped;
    if (begins)
        begin_forward(net, layer);
    if (meets_within(layer))
        return layer->ops->forward_part(layer, pass_of(net, layer), begins, &run->point);
    if (begins)
        layer->ops->forward(layer, pass_of(net, layer));
    else if (run->point.meeting == NET_GATHER_BEGINS)
        continue_during(net, layer);
    return begins && partition_forward(layer, &run->point);
}

static void end_forward(struct net *net, const struct layer *layer)
{
    struct net_run *run = &net->run;
    size_t count = run->pass.batch->count;
    run->result.loss += (double)count * weighted_tops(layer, count);
    run->done += is_idle(net, layer) ? 0 : net_layer_flops(net, layer->in_file, false);
    if (net->poisoned)
        live_ranges_poison_after(net, run->next);
    probe_ends(net, layer->in_file, false);
}

static const struct net_point *continue_forward(struct net *net)
{
    struct net_run *run = &net->run;
    if (run->ends)
        end_meeting(net);
    for (; run->next < net->n_layers; run->next++) {
        struct layer *layer = net->layer[run->next];
        if (!run->stopped && is_awaited_by(net, layer))
            return await_end(net, run->done / count_whole_flops(net));
        if (!is_idle(net, layer) && stop_at(net, layer, forward_meets(net, layer)))
            return &run->point;
        end_forward(net, layer);
    }
    net->count = run->result.count;
    return NULL;
}

void net_forward(struct net *net, const struct vec *x, struct vec *s, const struct net_batch *batch,
                 struct net_result *result)
{
    net_begin_forward(net, x, s, batch);
    const struct net_point *point = continue_forward(net);
    PL_ASSERT(!point);
    *result = net->run.result;
}

const struct net_result *net_last_result(const struct net *net)
{
    return &net->run.result;
}

/* ---- backward ---- */

/* Where a top is weighted the net's loss has its values, and their gradient the weight, in addition
 * to the gradients of the top's readers. */
static void add_weights(const struct net *net, const struct layer *layer)
{
    for (size_t k = 0; k < layer->n_top; k++) {
        const struct blob *top = layer->top[k];
        if (top->weight == 0.0f)
            continue;
        if (top->parts == 0)
            memset(top->d, 0, top->count * dtype_size(top->dtype));
        cast_add_number(top->dtype, top->weight, axes_live(top, net->count), top->d);
    }
}

/* A frozen parameter has no gradient, though a layer's backward may add one. */
static void clear_frozen(const struct net *net, const struct layer *layer, float *dx)
{
    for (size_t k = 0; k < layer->n_at; k++) {
        const struct segment *segment = &net->segments.at[layer->at[k].index];
        if (param_frozen(net, &layer->at[k]))
            memset(dx + segment->offset, 0, segment->len * sizeof *dx);
    }
}

static void add_scratch(const struct layer *layer)
{
    for (size_t k = 0; k < layer->n_bottom; k++) {
        const struct link *link = &layer->bottom[k];
        if (link->adds && link->blob->second_grad != link)
            cast_add(link->blob->dtype, link->blob->count, link->dx, link->blob->d);
    }
}

/* Rematerialises the values that the layer's backward is the first to read. */
static void rematerialise_blob(const struct net *net, const struct layer *layer)
{
    for (size_t k = 0; k < layer->n_bottom; k++) {
        struct blob *blob = layer->bottom[k].blob;
        if (!layer->bottom[k].remakes)
            continue;
        probe_begins(net, blob->maker->in_file, true);
        live_ranges_repeat(net, blob);
        blob->maker->ops->remake(blob->maker);
        probe_ends(net, blob->maker->in_file, true);
    }
}

static struct watched_pass watch_pass(const struct net *net, const struct net_watch *watch)
{
    return (struct watched_pass){
        .watch = watch,
        .all = watch ? net_flops(net) : 0.0,
        .done = watch ? pass_flops(net, false) : 0.0,
        .from = net->segments.total,
    };
}

/* Layer i of the planned net has run backward. */
static int watch_layer(const struct net *net, size_t i, struct watched_pass *pass)
{
    pass->done += net_layer_flops(net, net->layer[i]->in_file, true);
    if (!pass->watch || net->finished[i] >= pass->from)
        return OK;
    pass->from = net->finished[i];
    return pass->watch->finished(pass->watch->user, pass->from,
                                 pass->all > 0.0 ? pass->done / pass->all : 1.0);
}

static int watch_end(const struct watched_pass *pass)
{
    bool nothing_learns = pass->watch && pass->from > 0;
    return nothing_learns ? pass->watch->finished(pass->watch->user, 0, 1.0) : OK;
}

void net_begin_backward(struct net *net, const struct vec *x, struct vec *dx,
                        const struct net_watch *watch)
{
    struct net_run *run = &net->run;
    PL_ASSERT(net->phase == PHASE_TRAIN && net->count > 0);
    PL_ASSERT(x->n >= net->segments.total && dx->n >= net->segments.total);
    run->part = run->pass = (struct pass){.x = x->at, .dx = dx->at};
    run->backward = true;
    run->stopped = false;
    run->meeting = NULL;
    run->ends = false;
    run->next = net->n_layers;
    run->watched = watch_pass(net, watch);
    for (size_t i = 0; i < net->n_layers; i++) /* what has not run is not done */
        if (is_idle(net, net->layer[i]))
            run->watched.done -= net_layer_flops(net, net->layer[i]->in_file, false);
}

static void begin_backward(struct net *net, struct layer *layer)
{
    rematerialise_blob(net, layer);
    probe_begins(net, layer->in_file, true);
    add_weights(net, layer);
    net->scratch.at = live_ranges_scratch(net, layer, true);
}

static void run_backward(const struct net *net, struct layer *layer, enum gradients gradients)
{
    struct pass pass = *pass_of(net, layer);
    pass.gradients = gradients;
    layer->ops->backward(layer, &pass);
}

/* The slices add up the gradient of the bottom, which is half of the layer's products, while each
 * computes that of its parameters. */
static bool sum_in_background(const struct net *net, struct layer *layer, enum net_meeting meeting,
                              struct net_point *point)
{
    bool begins = meeting == NET_SUM_BEGINS;
    run_backward(net, layer, begins ? GRADIENTS_BOTTOMS : GRADIENTS_PARAMS);
    point->meeting = meeting;
    point->share = begins ? 0.5 : 1;
    return true;
}

static bool backward_meets(struct net *net, struct layer *layer)
{
    struct net_run *run = &net->run;
    bool begins = !run->stopped;
    if (begins)
        begin_backward(net, layer);
    if (meets_within(layer))
        return layer->ops->backward_part(layer, pass_of(net, layer), begins, &run->point);
    if (begins && partition_backward(layer, &run->point))
        return sum_in_background(net, layer, NET_SUM_BEGINS, &run->point);
    if (begins)
        run_backward(net, layer, GRADIENTS_ALL);
    else if (run->point.meeting == NET_SUM_BEGINS && !layer->awaited_by)
        return sum_in_background(net, layer, NET_SUM_ENDS, &run->point);
    else if (run->point.meeting == NET_SUM_BEGINS) {
        run_backward(net, layer, GRADIENTS_PARAMS);
        continue_during(net, layer);
    }
    return false;
}

static int end_backward(struct net *net, const struct layer *layer)
{
    net->run.done += net_layer_flops(net, layer->in_file, true);
    clear_frozen(net, layer, net->run.pass.dx);
    if (layer != net->run.meeting)
        add_scratch(layer);
    probe_ends(net, layer->in_file, true);
    return watch_layer(net, net->run.next - 1, &net->run.watched);
}

/* Run the layer backward, up to its point or its end. */
static int pass_layer(struct net *net, struct layer *layer, const struct net_point **point)
{
    struct net_run *run = &net->run;
    if (!run->stopped && is_awaited_by(net, layer) && !partition_sums_next(run->meeting)) {
        *point = await_end(net, run->done / count_whole_flops(net));
        return OK;
    }
    if (!layer->runs_backward || is_idle(net, layer))
        return OK;
    if (!stop_at(net, layer, backward_meets(net, layer)))
        return end_backward(net, layer);
    bool waits = run->meeting && run->point.meeting == NET_SUM_BEGINS;
    *point = waits ? await_end(net, run->point.share) : &run->point;
    return OK;
}

static int continue_backward(struct net *net, const struct net_point **point)
{
    struct net_run *run = &net->run;
    bool waited = run->ends && run->stopped;
    int rc = OK;
    *point = waited ? &run->point : NULL; /* where the next sum begins */
    if (run->ends) {
        add_scratch(run->meeting);
        end_meeting(net);
    }
    while (rc == OK && !*point && run->next > 0) {
        struct layer *layer = net->layer[run->next - 1];
        if (net->poisoned && !run->stopped)
            live_ranges_poison_after(net, live_ranges_backward(net, layer) - 1);
        rc = pass_layer(net, layer, point);
        if (!*point)
            run->next--;
    }
    return rc == OK && !*point ? watch_end(&run->watched) : rc;
}

int net_backward(struct net *net, const struct vec *x, struct vec *dx,
                 const struct net_watch *watch)
{
    const struct net_point *point;
    net_begin_backward(net, x, dx, watch);
    int rc = continue_backward(net, &point);
    PL_ASSERT(!point);
    return rc;
}

int net_continue(struct net *net, const struct net_point **point)
{
    if (net->run.backward)
        return continue_backward(net, point);
    *point = continue_forward(net);
    return OK;
}

double net_share(const struct net *net)
{
    return net_flops(net) / count_whole_flops(net);
}

int net_foresee_backward(const struct net *net, const struct net_watch *watch)
{
    struct watched_pass watched = watch_pass(net, watch);
    int rc = OK;
    for (size_t i = net->n_layers; rc == OK && i-- > 0;)
        if (net->layer[i]->runs_backward)
            rc = watch_layer(net, i, &watched);
    return rc == OK ? watch_end(&watched) : rc;
}
