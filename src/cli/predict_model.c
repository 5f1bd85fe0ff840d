#include "cli/predict_model.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool is_there(const char *path, bool folder)
{
    struct stat st;
    return stat(path, &st) == 0 && (folder ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode));
}

static bool ends_in(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    return n > m && strcmp(path + n - m, ending) == 0;
}

/* "FOLDER/name", if it fits. */
static bool join(char out[PREDICT_PATH_MAX], const char *folder, const char *name)
{
    return snprintf(out, PREDICT_PATH_MAX, "%s/%s", folder, name) < PREDICT_PATH_MAX;
}

static int refuse(const char *path, const char *why)
{
    fprintf(stderr, "paceline predict: %s: %s\n", path, why);
    return EXIT_BAD_INPUT;
}

/* The job of the run that the file `path` belongs to: beside it, or beside its folder. */
static bool find_job(const char *path, char out[PREDICT_PATH_MAX])
{
    char folder[PREDICT_PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) : 1;
    snprintf(folder, sizeof folder, "%.*s", n, slash ? path : ".");
    if (join(out, folder, "job.prototxt") && is_there(out, false))
        return true;
    return join(out, folder, "../job.prototxt") && is_there(out, false) &&
           ends_in(folder, "checkpoint");
}

/* The model that a run's directory holds. */
static int find_weights(const char *directory, char out[PREDICT_PATH_MAX])
{
    static const char *const names[] = {"final.safetensors", "best.safetensors"};
    char folder[PREDICT_PATH_MAX];
    snprintf(folder, sizeof folder, "%s", directory);
    for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/'; n--)
        folder[n - 1] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (join(out, folder, names[i]) && is_there(out, false))
            return PL_OK;
    return refuse(directory, "no run that has a model: neither final.safetensors nor "
                             "best.safetensors is in it");
}

int predict_model_find(pl_engine *engine, const char *path, struct predict_model *model)
{
    char job[PREDICT_PATH_MAX];
    *model = (struct predict_model){0};
    if (strlen(path) >= PREDICT_PATH_MAX - 64)
        return refuse("MODEL", "too long a path");
    if (is_there(path, true)) {
        int rc = find_weights(path, model->weights);
        if (rc != PL_OK)
            return rc;
        fprintf(stderr, "the model is %s\n", model->weights);
    } else if (!is_there(path, false)) {
        return refuse(path, "no such run or model");
    } else if (!ends_in(path, ".safetensors") && !ends_in(path, ".caffemodel")) {
        return refuse(path, "expected a run's directory, a .safetensors or a .caffemodel");
    } else {
        snprintf(model->weights, sizeof model->weights, "%s", path);
    }
    int rc = PL_OK;
    if (find_job(model->weights, job))
        rc = pl_job_load_run(engine, job, &model->job);
    if (rc == PL_OK)
        rc = model->job ? pl_net_spec_job(model->job, &model->spec)
                        : pl_net_spec_load(engine, model->weights, &model->spec);
    return rc;
}

int predict_model_make(pl_engine *engine, const char *net, const char *weights,
                       struct predict_model *model)
{
    *model = (struct predict_model){0};
    int rc = cli_net_spec(engine, net, &model->spec);
    snprintf(model->weights, sizeof model->weights, "%s", weights);
    return rc;
}

void predict_model_release(struct predict_model *model)
{
    pl_net_spec_free(model->spec);
    pl_job_free(model->job);
}
