#include "paceline/convert.h"

#include "api/convert.h"
#include "api/guard.h"
#include "api/net.h"
#include "base/file.h"
#include "model/caffe_convert.h"
#include "model/judge_net.h"
#include "model/weights_file.h"
#include "real/disk.h"

#include <stdio.h>
#include <string.h>

int api_path_here(const char *path, char out[API_PATH_MAX], struct err *err)
{
    int len = snprintf(out, API_PATH_MAX, "%s%s", strchr(path, '/') ? "" : "./", path);
    return len < API_PATH_MAX ? OK
                              : err_set(err, ERR_INPUT, "%.100s...: the path is too long", path);
}

int api_path_result(const char *path, bool replace, char out[API_PATH_MAX], struct err *err)
{
    if (file_type(path) == FILE_IS_NONE)
        return api_path_here(path, out, err);
    if (!replace)
        return err_set(err, ERR_INPUT,
                       "%.200s: exists; give another name, or replace it with --force", path);
    return file_target(path, out, API_PATH_MAX, err);
}

static int convert_model(pl_engine *engine, const char *in, const char *out, const pl_net_spec *net,
                         bool replace)
{
    struct err *err = &engine->error;
    char here[API_PATH_MAX];
    int rc = net ? api_spec_check(net, err) : OK;
    if (rc == OK)
        rc = api_path_result(out, replace, here, err);
    return rc == OK ? caffe_convert(in, here, net ? net->build.net : NULL, real_disk(),
                                    &engine->log, err)
                    : rc;
}

int pl_convert(pl_engine *engine, const char *in, const char *out, const pl_net_spec *net,
               bool replace)
{
    RETURN_GUARDED(engine, convert_model(engine, in, out, net, replace));
}

int pl_weights_of_caffe(pl_engine *engine, const char *path, bool *of_caffe)
{
    RETURN_GUARDED(engine, weights_file_of_caffe(path, of_caffe, &engine->error));
}

static int judge_spec(pl_net_spec *spec, bool *lossless)
{
    struct err *err = &spec->engine->error;
    int rc = api_spec_check(spec, err);
    return rc == OK ? model_judge(spec->build.net, lossless, err) : rc;
}

int pl_net_spec_judge(pl_net_spec *spec, bool *lossless)
{
    RETURN_GUARDED(spec->engine, judge_spec(spec, lossless));
}
