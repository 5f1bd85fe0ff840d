#include "learner/workspace.h"

#include "base/fault.h"
#include "data/source_text.h"

const struct net *workspace_net(const struct workspace *ws)
{
    return ws->train ? ws->train : ws->test;
}

/* A net without a loss has no number of classes: an Accuracy accepts any label. One whose loss
 * reads no label has SIZE_MAX. */
static int labels_fit(const struct net *net, const char *what, const struct dataset *set,
                      const char *field, struct err *err)
{
    size_t classes = net_classes(net);
    if (classes > 0 && classes < SIZE_MAX && set->source->classes == 0)
        return err_set(err, ERR_INPUT, "%s: the records have no labels, which %s reads", field,
                       what);
    if (classes == 0 || set->source->classes <= classes)
        return OK;
    return err_set(err, ERR_INPUT,
                   "%s: label %u is out of range: %s has %zu classes; set num_output of its last "
                   "layer to %u",
                   field, set->source->classes - 1, what, classes, set->source->classes);
}

/* The numbers of a text's units have rows and scores; too many of these do no harm. */
static int text_fits(const struct net *net, const struct dataset *set, const char *field,
                     struct err *err)
{
    struct net_shortage short_of;
    const Paceline__Data__Text *text = source_text_settled(set->source);
    uint32_t units = source_text_rows(set->source);
    if (!text || !net_lacks(net, units, &short_of))
        return OK;
    bool bytes = text->unit == PACELINE__DATA__TEXT__UNIT__byte;
    return err_set(
        err, ERR_INPUT,
        "%s: the text has %u %s, and the net's layer \"%.64s\" has %s for %zu: set %s to "
        "%u, or give %s",
        field, units, bytes ? "values of bytes, from 0 to its highest" : "characters",
        short_of.layer, short_of.is_loss ? "scores" : "rows", short_of.has,
        short_of.is_loss ? "num_output of the layer that makes the scores"
                         : "its embed_param.input_dim",
        units,
        bytes ? "the text's `unit: character`"
              : "the `vocabulary` of the text that the net was made for");
}

/* Are these test records of a size of their own, for which there is a net? */
static bool is_separate(const struct workspace *ws, const struct dataset *set)
{
    return ws->separate && shape_equal(&set->shape, &ws->separate_shape);
}

int workspace_accepts(const struct workspace *ws, const struct dataset *set, const char *field,
                      struct err *err)
{
    char text[64];
    bool separate = is_separate(ws, set);
    if (!separate && shape_count(&set->shape) != ws->record_floats)
        return err_set(err, ERR_INPUT, "%s: records are %s, the net is made for %zu numbers each",
                       field, shape_text(&set->shape, text, sizeof text), ws->record_floats);
    if (!fields_equal(&set->source->fields, &ws->fields))
        return err_set(err, ERR_INPUT, "%s: records have other fields than the net was made for",
                       field);
    if (separate)
        return labels_fit(ws->separate, "the net for records of their size", set, field, err);
    int rc = ws->train ? labels_fit(ws->train, "the net", set, field, err) : OK;
    if (rc == OK)
        rc = labels_fit(ws->test, "the net in phase TEST", set, field, err);
    if (rc == OK && ws->train)
        rc = text_fits(ws->train, set, field, err);
    return rc == OK ? text_fits(ws->test, set, field, err) : rc;
}

int workspace_feed(struct workspace *ws, const Paceline__Job *job, const struct dataset *set,
                   struct err *err)
{
    struct loader *loader = &ws->loader;
    if (loader->set) {
        PL_ASSERT(!loader->world);
        loader->set = set;
        loader->sampler = dataset_sampler(set, job->seed);
        return OK;
    }
    int rc = loader_init(loader, &ws->arena, set, job->seed, ws->batch);
    if (rc != OK)
        err_set(err, rc, "net: out of memory for a batch of %zu records", ws->batch);
    return rc;
}

int workspace_fill(struct workspace *ws)
{
    for (size_t i = 0; i < ws->others; i++) {
        struct inner_space *space = &ws->other[i];
        if (!space->dx.at && vec_init(&space->dx, &ws->arena, net_segments(ws->train)->total) != OK)
            return ERR_NOMEM;
        if (!space->s.at &&
            vec_init(&space->s, &ws->arena, net_state_segments(ws->train)->total) != OK)
            return ERR_NOMEM;
    }
    return OK;
}

int workspace_load_ahead(struct workspace *ws, struct world *world, int threads, struct err *err)
{
    enum { SHARE = 8 }; /* of a budget the batches ahead take an eighth */
    if (ws->memory_budget > 0 && ws->memory_budget / SHARE < LOADER_AHEAD_BYTES)
        ws->loader.ahead_bytes = (size_t)(ws->memory_budget / SHARE) + 1;
    int rc = loader_start(&ws->loader, &ws->arena, world, threads);
    if (rc != OK)
        err_set(err, rc, "net: no batches prepared ahead: %s", status_text(rc));
    return rc;
}

struct net_memory workspace_memory(const struct workspace *ws)
{
    struct net_memory memory = net_memory(ws->train);
    memory.activations *= ws->others + 1;
    memory.gradients *= ws->others + 1;
    memory.scratch *= ws->others + 1;
    for (size_t i = 0; i < ws->others; i++)
        memory.gradients += (ws->other[i].dx.n + ws->other[i].s.n) * sizeof(float);
    return memory;
}

static size_t all_of(const struct net *net)
{
    const struct net_memory memory = net_memory(net);
    return memory.activations + memory.gradients + memory.scratch;
}

size_t workspace_testing(const struct workspace *ws)
{
    size_t size = sizeof(float), room = ws->room_floats - (ws->train ? net_room(ws->train) : 0);
    return room * size + all_of(ws->test) - net_room(ws->test) * size;
}

double workspace_flops(const struct workspace *ws)
{
    return net_flops(ws->train) * (double)(ws->others + 1);
}

size_t workspace_points(const struct workspace *ws)
{
    return (ws->train ? net_points(ws->train) : 0) + net_points(ws->test) +
           (ws->separate ? net_points(ws->separate) : 0);
}

int slice_meeting_forward(const struct slice_meeting *meeting, size_t before, struct net *net,
                          const struct vec *x, struct vec *s, const struct net_batch *batch,
                          struct net_result *result)
{
    const struct net_point *point = NULL;
    if (!meeting) {
        net_forward(net, x, s, batch, result);
        return OK;
    }
    net_begin_forward(net, x, s, batch);
    int rc = net_continue(net, &point);
    while (rc == OK && point) {
        struct net_point numbered = *point;
        numbered.number += before;
        rc = meeting->meet(meeting->user, &numbered);
        if (rc == OK)
            rc = net_continue(net, &point);
    }
    *result = *net_last_result(net);
    return rc;
}

static int pass_slice(struct workspace *ws, struct net *net, const struct vec *x, struct vec *s,
                      const struct net_batch *batch, const struct slice_meeting *meeting,
                      struct net_result *result)
{
    size_t before = ws->train ? net_points(ws->train) : 0;
    before += net == ws->separate ? net_points(ws->test) : 0;
    return slice_meeting_forward(meeting, before, net, x, s, batch, result);
}

int workspace_pass(struct workspace *ws, const struct vec *x, struct vec *s,
                   const struct net_batch *batch, const struct slice_meeting *meeting,
                   struct net_result *result)
{
    return pass_slice(ws, ws->test, x, s, batch, meeting, result);
}

int workspace_evaluate(struct workspace *ws, const struct dataset *set, size_t first, size_t count,
                       const struct vec *x, struct vec *s, struct net_result *sum, struct err *err)
{
    return workspace_evaluate_slice(ws, set, first, count, x, s, NULL, sum, err);
}

static int fill_batch(const struct workspace *ws, struct batch *batch, const struct dataset *set,
                      size_t first, size_t n, const struct slice_meeting *meeting, struct err *err)
{
    if (!meeting || !meeting->gathers_records || !batch_may_fill_own(set))
        return batch_fill_plain(batch, set, first, n, err);
    const struct net_point records = {.meeting = NET_GATHER,
                                      .values = batch->data,
                                      .rows = 1,
                                      .outputs = n,
                                      .each = batch->record_floats};
    int rc = batch_fill_own(batch, set, first, n, slice_units(&ws->slice, n), err);
    return rc == OK ? meeting->meet(meeting->user, &records) : rc;
}

int workspace_evaluate_slice(struct workspace *ws, const struct dataset *set, size_t first,
                             size_t count, const struct vec *x, struct vec *s,
                             const struct slice_meeting *meeting, struct net_result *sum,
                             struct err *err)
{
    PL_ASSERT(first + count <= set->count);
    bool separate = is_separate(ws, set);
    PL_ASSERT(separate || shape_count(&set->shape) == ws->record_floats);
    struct batch *records = separate ? &ws->separate_records : loader_spare(&ws->loader);
    struct net *net = separate ? ws->separate : ws->test;
    while (count > 0) {
        size_t n = count < records->cap ? count : records->cap;
        int rc = fill_batch(ws, records, set, first, n, meeting, err);
        if (rc != OK)
            return rc;
        struct net_batch batch = {
            .data = records->data,
            .labels = records->labels,
            .records = records->records,
            .count = n,
        };
        struct net_result piece;
        if (meeting)
            rc = pass_slice(ws, net, x, s, &batch, meeting, &piece);
        else
            net_forward(net, x, s, &batch, &piece);
        if (rc != OK)
            return rc;
        sum->loss += piece.loss;
        sum->right += piece.right;
        sum->has_right = piece.has_right;
        sum->count += n;
        first += n;
        count -= n;
    }
    return OK;
}

struct evaluation evaluation_of(const struct net_result *sum)
{
    double n = sum->count ? (double)sum->count : 1.0;
    return (struct evaluation){
        .error = sum->has_right ? 1.0 - (double)sum->right / n : -1.0,
        .loss = sum->loss / n,
        .count = sum->count,
    };
}
