#include "train/snapshot.h"

#include "model/caffe_convert.h"
#include "model/load.h"
#include "nn/rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SNAPSHOT_END ".caffemodel"

int snapshot_net(const Paceline__Job *job, Caffe__NetParameter **out, struct err *err)
{
    Caffe__NetParameter *net;
    int rc = model_load_net(job->net, &net, err);
    if (rc != OK)
        return rc;
    size_t kept = 0;
    for (size_t i = 0; i < net->n_layer; i++) {
        if (rules_include(net->layer[i], net->state, PHASE_TRAIN))
            net->layer[kept++] = net->layer[i];
        else
            caffe__layer_parameter__free_unpacked(net->layer[i], NULL);
    }
    net->n_layer = kept;
    *out = net;
    return OK;
}

int snapshot_open(struct snapshot *s, const Paceline__Job *job, const struct rundir *dir,
                  struct err *err)
{
    *s = (struct snapshot){.job = job, .dir = dir};
    const char *prefix = job->solver->snapshot_prefix;
    return dir && prefix && *prefix ? snapshot_net(job, &s->net, err) : OK;
}

void snapshot_close(struct snapshot *s)
{
    if (s->net)
        caffe__net_parameter__free_unpacked(s->net, NULL);
    s->net = NULL;
}

bool snapshot_at_end(const struct snapshot *s)
{
    return s->net && s->job->solver->snapshot_after_train;
}

/* A prefix that is a folder has no last part: the job's name stands in. */
static void make_path(const struct snapshot *s, uint64_t steps, char *out, size_t size)
{
    const char *prefix = s->job->solver->snapshot_prefix, *slash = strrchr(prefix, '/');
    const char *last = slash ? slash + 1 : prefix;
    char name[RUNDIR_PATH_MAX];
    snprintf(name, sizeof name, "%s%s_iter_%" PRIu64 SNAPSHOT_END, prefix[0] == '/' ? prefix : last,
             *last ? "" : s->job->name, steps);
    if (prefix[0] == '/')
        snprintf(out, size, "%s", name);
    else
        rundir_file(s->dir, name, out, size);
}

struct found {
    const char *last; /* the beginning of snapshots' names */
    uint64_t steps;   /* only those of later ones count */
    char name[256];   /* "": none */
};

static void find_later(void *user, const char *name)
{
    struct found *found = user;
    size_t n = strlen(found->last);
    char *end;
    if (found->name[0] || strncmp(name, found->last, n) != 0 || name[n] < '0' || name[n] > '9')
        return;
    if (strtoull(name + n, &end, 10) > found->steps && strcmp(end, SNAPSHOT_END) == 0)
        snprintf(found->name, sizeof found->name, "%s", name);
}

int snapshot_check_free(const struct snapshot *s, uint64_t steps, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    if (!s->net || s->job->solver->snapshot_prefix[0] != '/')
        return OK;
    make_path(s, 0, path, sizeof path);
    char *last = strrchr(path, '/');
    *last++ = '\0';
    last[strlen(last) - strlen("0" SNAPSHOT_END)] = '\0';
    struct found found = {.last = last, .steps = steps};
    int rc = s->dir->disk->ops->list(s->dir->disk, path[0] ? path : "/", find_later, &found, err);
    if (rc != OK || !found.name[0])
        return rc;
    return err_set(err, ERR_INPUT,
                   "%.300s/%s: is another run's snapshot, which this run would replace; move it "
                   "away, or set another solver.snapshot_prefix",
                   path, found.name);
}

int snapshot_write(const struct snapshot *s, const struct model_layout *layout, const float *model,
                   uint64_t steps, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    make_path(s, steps, path, sizeof path);
    return caffe_convert_save(s->net, layout->x, model, layout->s, model + layout->x->total,
                              &(struct shape){0}, s->dir->disk, path, err);
}
