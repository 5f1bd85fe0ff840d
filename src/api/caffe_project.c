#include "api/caffe_project.h"

#include "base/file.h"
#include "job/text.h"
#include "model/caffe_upgrade.h"
#include "model/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_TEXT_MAX = 4096 };

/* ---- where a file is ---- */

static bool is_there(const char *path)
{
    return file_is_regular(path) || file_is_folder(path);
}

/* FOLDER/name, where FOLDER is the first `n` characters of the solver's path, its slash left out.
 */
static bool is_in(const char *solver, size_t n, const char *name, char out[PATH_TEXT_MAX])
{
    int len = snprintf(out, PATH_TEXT_MAX, "%.*s/%s", (int)n, solver, name);
    return len < PATH_TEXT_MAX && is_there(out);
}

/* The folder's own folder: where its last slash is. 0: there is none that the path names. */
static size_t parent_length(const char *path, size_t n)
{
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 0 && path[n - 1] == '/')
        n--;
    return n;
}

/* The last part of a path, which may end in slashes. */
static const char *base_of(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    return path + n;
}

/* In the solver's folder by its base name; or as a collection renames the files of a model:
 * NAME_net of NAME_solver. */
static bool is_sibling(const char *solver, size_t folder, const char *path, char out[PATH_TEXT_MAX])
{
    const char *own = base_of(solver), *word = strstr(own, "solver");
    char in[PATH_TEXT_MAX], name[PATH_TEXT_MAX];
    snprintf(in, sizeof in, "%.*s", (int)(folder ? folder : 1),
             folder             ? solver
             : solver[0] == '/' ? ""
                                : ".");
    snprintf(name, sizeof name, "%.*s%s", word ? (int)(word - own) : 0, own, base_of(path));
    return is_in(in, strlen(in), base_of(path), out) || is_in(in, strlen(in), name, out);
}

/* false: it was not found; `out` is then the path as written. */
static bool find_file(const char *solver, const char *path, char out[PATH_TEXT_MAX])
{
    snprintf(out, PATH_TEXT_MAX, "%s", path);
    if (is_there(path))
        return true;
    size_t folder = parent_length(solver, strlen(solver));
    for (size_t n = folder; path[0] != '/' && n > 0; n = parent_length(solver, n))
        if (is_in(solver, n, path, out))
            return true;
    if (is_sibling(solver, folder, path, out))
        return true;
    snprintf(out, PATH_TEXT_MAX, "%s", path);
    return false;
}

struct finder {
    const char *solver;
    const struct logger *log;
    struct err *err;
};

/* Replace a path of the job by the one that was found. */
static int resolve_path(const struct finder *f, const char *field, char **path)
{
    char found[PATH_TEXT_MAX];
    if (!*path || !**path || !find_file(f->solver, *path, found) || strcmp(found, *path) == 0)
        return OK;
    log_info(f->log, "%s: %s is %s", field, *path, found);
    char *copy = strdup(found);
    if (!copy)
        return err_set(f->err, ERR_NOMEM, "%s: out of memory", field);
    free(*path);
    *path = copy;
    return OK;
}

/* Paths count from where Caffe is started, "."; those of a list that was found elsewhere, from its
 * folder. */
static int resolve_images(const struct finder *f, const char *field, Paceline__Data__Images *images)
{
    const char *root = images->root;
    bool here = is_there(images->list);
    int rc = resolve_path(f, field, &images->list);
    if (rc != OK || here || !root || strcmp(root, ".") != 0 || !is_there(images->list))
        return rc == OK ? resolve_path(f, field, &images->root) : rc;
    log_info(f->log, "%s: the paths of %s count from its folder", field, images->list);
    free(images->root);
    images->root = NULL;
    return OK;
}

static int resolve_data(const struct finder *f, Paceline__Data *data, const char *field)
{
    if (!data)
        return OK;
    int rc = resolve_path(f, field, &data->mean_file);
    if (rc == OK && data->source_case == PACELINE__DATA__SOURCE_LMDB)
        rc = resolve_path(f, field, &data->lmdb->path);
    if (rc == OK && data->source_case == PACELINE__DATA__SOURCE_IMAGES)
        rc = resolve_images(f, field, data->images);
    return rc;
}

/* One file, or several with commas between. */
static int resolve_weights(const struct finder *f, Paceline__Job *job)
{
    if (!job->weights || !*job->weights)
        return OK;
    char *list = strdup(job->weights), *rest = NULL;
    struct buf found = {0};
    for (char *one = list ? strtok_r(list, ",", &rest) : NULL; one;
         one = strtok_r(NULL, ",", &rest)) {
        char path[PATH_TEXT_MAX];
        find_file(f->solver, one + strspn(one, " "), path);
        buf_printf(&found, "%s%s", found.len ? "," : "", path);
    }
    buf_put_u8(&found, 0);
    int rc = !list || found.failed
                 ? err_set(f->err, ERR_NOMEM, "weights: out of memory")
                 : text_set(&job->base, "weights", (const char *)found.data, f->err);
    buf_release(&found);
    free(list);
    return rc;
}

/* ---- the nets ---- */

static int load_net(const struct finder *f, const struct job_solver_net *where,
                    Caffe__NetParameter **out)
{
    char path[PATH_TEXT_MAX];
    if (where->file) {
        find_file(f->solver, where->file, path);
        log_info(f->log, "net: %s", path);
        return model_load_prototxt(path, out, f->err);
    }
    int rc = model_copy_net(where->given, out, f->err);
    return rc == OK ? caffe_upgrade(*out, f->err) : rc;
}

static bool same_net(const struct job_solver_net *a, const struct job_solver_net *b)
{
    return a->file == b->file && a->given == b->given;
}

static void free_net(Caffe__NetParameter *net)
{
    if (net)
        caffe__net_parameter__free_unpacked(net, NULL);
}

static int convert_solver(const struct finder *f, const Caffe__SolverParameter *solver,
                          const char *name, struct job_solver_wants *wants, Paceline__Job **out)
{
    struct job_solver_net where_train, where_test;
    Caffe__NetParameter *train = NULL, *test = NULL;
    int rc = job_solver_nets(solver, &where_train, &where_test, f->err);
    if (rc != OK)
        return rc;
    bool same = same_net(&where_train, &where_test), tests = where_test.file || where_test.given;
    rc = load_net(f, &where_train, &train);
    if (rc == OK && tests && !same)
        rc = load_net(f, &where_test, &test);
    if (rc == OK)
        rc = job_from_solver(solver, train, same ? train : test, name, f->log, out, wants, f->err);
    free_net(train);
    free_net(test);
    return rc;
}

/* "lenet_solver" of "examples/lenet_solver.prototxt". */
static void name_of(const char *path, char *out, size_t size)
{
    snprintf(out, size, "%s", base_of(path));
    char *dot = strrchr(out, '.');
    if (dot && dot != out)
        *dot = '\0';
}

int api_load_solver(pl_engine *engine, const char *path, const char *text, size_t len,
                    struct job_solver_wants *wants, Paceline__Job **out)
{
    const struct finder f = {path, &engine->log, &engine->error};
    Caffe__SolverParameter *solver;
    Paceline__Job *job = NULL;
    char name[256];
    name_of(path, name, sizeof name);
    int rc = job_solver_parse(path, text, len, &solver, f.err);
    if (rc != OK)
        return rc;
    rc = convert_solver(&f, solver, name, wants, &job);
    caffe__solver_parameter__free_unpacked(solver, NULL);
    if (rc == OK)
        rc = resolve_data(&f, job->train_data, "train_data");
    if (rc == OK)
        rc = resolve_data(&f, job->test_data, "test_data");
    if (rc == OK)
        rc = resolve_weights(&f, job);
    if (rc == OK)
        *out = job;
    else
        job_free(job);
    return rc;
}

static int check_records(const Paceline__Data *data, const char *field, const char *option,
                         struct err *err)
{
    const char *path = !data                                                ? NULL
                       : data->source_case == PACELINE__DATA__SOURCE_LMDB   ? data->lmdb->path
                       : data->source_case == PACELINE__DATA__SOURCE_IMAGES ? data->images->list
                                                                            : NULL;
    if (!path || is_there(path))
        return OK;
    return err_set(err, ERR_INPUT,
                   "%s: %s is not there, neither from here nor from the solver's folder; give the "
                   "records with %s KIND:PATH",
                   field, path, option);
}

int api_check_solver_data(const pl_job *job)
{
    struct err *err = &job->engine->error;
    if (!job->wants)
        return OK;
    int rc = check_records(job->message->train_data, "train_data", "--data", err);
    return rc == OK ? check_records(job->message->test_data, "test_data", "--test-data", err) : rc;
}
