#include "learner/workspace.h"

#include "base/fault.h"
#include "model/load.h"

#include <stdlib.h>

static int plan(struct workspace *ws, const Caffe__NetParameter *param, const Paceline__Job *job,
                const struct corpus *corpus, struct err *err)
{
    struct net_options options = {
        .phase = PHASE_TRAIN,
        .batch = job->batch,
        .input = corpus->train_source->shape,
        .kernels = ws->kernels,
    };
    int rc = net_create(param, &options, &ws->train, err);
    if (rc != OK)
        return rc;
    options.phase = PHASE_TEST;
    rc = net_create(param, &options, &ws->test, err);
    if (rc != OK)
        return rc;
    if (!segments_match(net_segments(ws->train), net_segments(ws->test)))
        return err_set(err, ERR_INPUT, "net: training and test phase differ in their parameters");
    size_t classes = net_classes(ws->train);
    if (classes == 0)
        return err_set(err, ERR_INPUT, "net: there is no loss to train on");
    if (corpus->train_source->classes > classes)
        return err_set(err, ERR_INPUT,
                       "train_data: label %u is out of range: the net has %zu classes",
                       corpus->train_source->classes - 1, classes);
    return OK;
}

static void unplan(struct workspace *ws)
{
    net_free(ws->train);
    net_free(ws->test);
    ws->train = ws->test = NULL;
}

/* `auto` falls back from oneDNN to plain C as a whole: a net never mixes the two. */
static int plan_auto(struct workspace *ws, const Caffe__NetParameter *param,
                     const Paceline__Job *job, const struct corpus *corpus,
                     const struct logger *log, struct err *err)
{
    ws->kernels = job->kernels == PACELINE__JOB__KERNELS__ref ? &kernels_ref : &kernels_dnnl;
    int rc = plan(ws, param, job, corpus, err);
    if (rc != ERR_UNSUPPORTED || job->kernels != PACELINE__JOB__KERNELS__auto)
        return rc;
    struct err why = *err;
    unplan(ws);
    ws->kernels = &kernels_ref;
    rc = plan(ws, param, job, corpus, err);
    if (rc == OK)
        log_warn(log, "using the slow reference kernels: %s", why.text);
    return rc;
}

int workspace_create(const Paceline__Job *job, const struct corpus *corpus,
                     const struct logger *log, struct workspace **out, struct err *err)
{
    Caffe__NetParameter *param;
    int rc = model_load_net(job->net, &param, err);
    if (rc != OK)
        return rc;
    struct workspace *ws = calloc(1, sizeof *ws);
    if (!ws) {
        rc = err_set(err, ERR_NOMEM, "net: out of memory");
        goto done;
    }
    arena_init(&ws->arena);
    rc = plan_auto(ws, param, job, corpus, log, err);
    if (rc == OK) {
        size_t floats = shape_count(&corpus->train_source->shape);
        rc = batch_init(&ws->batch, &ws->arena, job->batch, floats);
        if (rc != OK)
            err_set(err, rc, "net: out of memory for a batch of %u records", job->batch);
    }
done:
    caffe__net_parameter__free_unpacked(param, NULL);
    if (rc == OK)
        *out = ws;
    else
        workspace_free(ws);
    return rc;
}

void workspace_free(struct workspace *ws)
{
    if (!ws)
        return;
    unplan(ws);
    arena_release(&ws->arena);
    free(ws);
}

void workspace_evaluate(struct workspace *ws, const struct dataset *set, size_t first, size_t count,
                        const struct vec *x, struct vec *s, struct net_result *sum)
{
    PL_ASSERT(first + count <= set->count);
    while (count > 0) {
        size_t n = count < ws->batch.cap ? count : ws->batch.cap;
        batch_fill_plain(&ws->batch, set, first, n);
        struct net_batch batch = {
            .data = ws->batch.data,
            .labels = ws->batch.labels,
            .records = ws->batch.records,
            .count = n,
        };
        struct net_result piece;
        net_forward(ws->test, x, s, &batch, &piece);
        sum->loss += piece.loss;
        sum->right += piece.right;
        sum->has_right = piece.has_right;
        sum->count += n;
        first += n;
        count -= n;
    }
}

struct evaluation evaluation_of(const struct net_result *sum)
{
    double n = sum->count ? (double)sum->count : 1.0;
    return (struct evaluation){
        .error = sum->has_right ? 1.0 - (double)sum->right / n : 1.0,
        .loss = sum->loss / n,
        .count = sum->count,
    };
}
