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
static bool join_path(char out[PREDICT_PATH_MAX], const char *folder, const char *name)
{
    return snprintf(out, PREDICT_PATH_MAX, "%s/%s", folder, name) < PREDICT_PATH_MAX;
}

static int refuse_path(const char *command, const char *path, const char *why)
{
    fprintf(stderr, "paceline %s: %s: %s\n", command, path, why);
    return EXIT_BAD_INPUT;
}

/* The job of the run that is the folder `path`, or that the file `path` belongs to: in its folder,
 * or in the folder above. */
static bool find_job(const char *path, bool is_run, char out[PREDICT_PATH_MAX])
{
    char folder[PREDICT_PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) : 1;
    if (is_run)
        return join_path(out, path, "job.prototxt") && is_there(out, false);
    snprintf(folder, sizeof folder, "%.*s", n, slash ? path : ".");
    if (join_path(out, folder, "job.prototxt") && is_there(out, false))
        return true;
    return join_path(out, folder, "../job.prototxt") && is_there(out, false) &&
           ends_in(folder, "checkpoint");
}

/* Find the named model: best, final, or a file in the directory or elsewhere. */
static int find_named(const char *command, const char *folder, const char *which,
                      char out[PREDICT_PATH_MAX])
{
    char name[PREDICT_PATH_MAX];
    bool word = strcmp(which, "best") == 0 || strcmp(which, "final") == 0;
    snprintf(name, sizeof name, "%.4000s%s", which, word ? ".safetensors" : "");
    if (join_path(out, folder, name) && is_there(out, false))
        return PL_OK;
    if (!word && is_there(which, false)) {
        snprintf(out, PREDICT_PATH_MAX, "%s", which);
        return PL_OK;
    }
    fprintf(stderr, "paceline %s: %s: no %s is in it; --model takes best, final or a file\n",
            command, folder, name);
    return EXIT_BAD_INPUT;
}

/* The model that a run's directory holds. */
static int find_weights(const char *command, const char *directory, const char *which,
                        char out[PREDICT_PATH_MAX])
{
    static const char *const names[] = {"final.safetensors", "best.safetensors"};
    char folder[PREDICT_PATH_MAX];
    snprintf(folder, sizeof folder, "%s", directory);
    for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/'; n--)
        folder[n - 1] = '\0';
    if (which)
        return find_named(command, folder, which, out);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (join_path(out, folder, names[i]) && is_there(out, false))
            return PL_OK;
    return refuse_path(command, directory,
                       "no run that has a model: neither final.safetensors nor "
                       "best.safetensors is in it");
}

int predict_model_find(pl_engine *engine, const char *command, const char *path, const char *which,
                       struct predict_model *model)
{
    char job[PREDICT_PATH_MAX];
    *model = (struct predict_model){0};
    if (strlen(path) >= PREDICT_PATH_MAX - 64)
        return refuse_path(command, "MODEL", "too long a path");
    if (is_there(path, true)) {
        int rc = find_weights(command, path, which, model->weights);
        if (rc != PL_OK)
            return rc;
        fprintf(stderr, "the model is %s\n", model->weights);
    } else if (!is_there(path, false)) {
        return refuse_path(
            command, path,
            "no such run or model; give a run's directory, a .safetensors, .caffemodel or .onnx");
    } else if (which) {
        return refuse_path(command, path,
                           "--model is for the directory of a run, and this is a file");
    } else if (!ends_in(path, ".safetensors") && !ends_in(path, ".caffemodel") &&
               !ends_in(path, ".onnx")) {
        return refuse_path(command, path,
                           "expected a run's directory, a .safetensors, .caffemodel or .onnx");
    } else {
        snprintf(model->weights, sizeof model->weights, "%s", path);
    }
    int rc = PL_OK;
    if (find_job(is_there(path, true) ? path : model->weights, is_there(path, true), job))
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
