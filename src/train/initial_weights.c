#include "train/initial_weights.h"

#include "job/job.h"
#include "model/caffe_state.h"
#include "model/weights.h"
#include "train/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_TEXT_MAX = 4096 };

static int load_weights(const char *path, const struct model_layout *layout,
                        const struct logger *log, float *model, struct err *err)
{
    const struct weights_into into = {layout->x, layout->s, model, model + layout->x->total};
    return model_weights_load(path, WEIGHTS_SOME, &into, log, err);
}

int initial_weights(const Paceline__Job *job, const struct model_layout *layout,
                    const struct logger *log, float *model, struct err *err)
{
    char *list = strdup(job->weights), *rest = NULL;
    if (!list)
        return err_set(err, ERR_NOMEM, "weights: out of memory");
    int rc = OK;
    for (char *path = strtok_r(list, ",", &rest); rc == OK && path;
         path = strtok_r(NULL, ",", &rest)) {
        path += strspn(path, " ");
        log_info(log, "weights from %s", path);
        rc = load_weights(path, layout, log, model, err);
    }
    if (rc != OK)
        err_prefix(err, "weights");
    free(list);
    return rc;
}

/* Loads the weights that it names, at the given path or, by their base name, in its own folder. */
static int load_named(const struct caffe_state *state, const struct model_layout *layout,
                      const struct logger *log, float *model, struct err *err)
{
    const char *named = state->learned_net, *slash = named ? strrchr(named, '/') : NULL;
    char sibling[PATH_TEXT_MAX];
    if (!named)
        return err_set(err, ERR_INPUT, "%s: names no weights (learned_net)", state->path);
    int rc = file_resolve(state->path, slash ? slash + 1 : named, sibling, sizeof sibling, err);
    if (rc != OK)
        return rc;
    const char *path = file_is_regular(named) ? named : sibling;
    log_info(log, "weights from %s", path);
    return load_weights(path, layout, log, model, err);
}

static int take_vectors(const struct caffe_state *state, const Paceline__Job *job,
                        const struct model_layout *layout, float *model, struct err *err)
{
    Caffe__NetParameter *net;
    size_t vectors = 0;
    int rc = snapshot_net(job, &net, err);
    if (rc != OK)
        return rc;
    rc = caffe_state_vectors(state, net, layout->x, layout->s, &vectors, err);
    if (rc == OK && vectors != layout->optim->states)
        rc = err_set(err, ERR_INPUT,
                     "%s: holds %zu vectors of an optimizer's, and \"%s\" has %zu: it is of "
                     "another solver",
                     state->path, vectors, layout->optim->type, layout->optim->states);
    model += layout->x->total + layout->s->total;
    for (size_t k = 0; rc == OK && k < vectors; k++, model += layout->x->total) {
        memset(model, 0, layout->x->total * sizeof *model);
        caffe_state_take(state, net, layout->x, layout->s, k, model);
    }
    caffe__net_parameter__free_unpacked(net, NULL);
    return rc;
}

int initial_solver_state(const char *path, const Paceline__Job *job, struct model_layout *layout,
                         const struct logger *log, float *model, struct checkpoint_header *header,
                         struct err *err)
{
    struct caffe_state state;
    if (strcmp(job_strategy_name(job), "single") != 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "snapshot %s: a solver's state is one worker's, and strategy %s has "
                       "several; write workers: 1 and strategy { single { } }",
                       path, job_strategy_name(job));
    if (job->batch_growth)
        return err_set(err, ERR_UNSUPPORTED,
                       "snapshot %s: it counts steps, and with batch_growth these had different "
                       "batches; write `batch` instead",
                       path);
    int rc = caffe_state_read(path, &state, err);
    if (rc != OK)
        return rc;
    if (state.iter < 0)
        rc = err_set(err, ERR_INPUT, "%s: iter is %d", path, (int)state.iter);
    if (rc == OK)
        rc = load_named(&state, layout, log, model, err);
    if (rc == OK)
        rc = take_vectors(&state, job, layout, model, err);
    if (rc == OK) {
        uint64_t steps = (uint64_t)state.iter;
        layout->has_state = layout->optim->states > 0;
        header->updates = header->progress.steps = header->progress.exchanges = steps;
        header->progress.sample_offset = header->used = steps * job_step_records(job);
    }
    caffe_state_release(&state);
    return rc;
}
