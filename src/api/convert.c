#include "paceline/convert.h"

#include "api/convert.h"
#include "api/guard.h"
#include "api/net.h"
#include "api/option_size.h"
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

static int convert_model(pl_engine *engine, const char *in, const char *out,
                         const pl_convert_options *o)
{
    struct err *err = &engine->error;
    char here[API_PATH_MAX];
    const pl_net_spec *net = o->net;
    struct convert_options options = {.torch = o->torchvision};
    bool given = o->channels && o->height && o->width;
    int rc = net ? api_spec_check(net, err) : OK;
    if (rc == OK)
        rc = api_path_result(out, o->replace, here, err);
    if (rc != OK)
        return rc;
    if (!given && (o->channels || o->height || o->width))
        return err_set(err, ERR_USAGE, "records of %u channels, %u rows and %u columns",
                       o->channels, o->height, o->width);
    if (options.torch && !weights_file_called(out, "safetensors"))
        return err_set(err, ERR_USAGE, "%.200s: only a .safetensors has torchvision's names", out);
    options.net = net ? net->build.net : NULL;
    if (given)
        options.record = (struct shape){3, {o->channels, o->height, o->width}};
    else if (net)
        options.record = net->record;
    return caffe_convert(in, here, &options, real_disk(), &engine->log, err);
}

static int convert_as(pl_engine *engine, const char *in, const char *out,
                      const pl_convert_options *given)
{
    pl_convert_options o;
    int rc = OPTIONS_TAKE(pl_convert_options, &o, given, &engine->error);
    return rc == OK ? convert_model(engine, in, out, &o) : rc;
}

int pl_convert_as(pl_engine *engine, const char *in, const char *out,
                  const pl_convert_options *options)
{
    RETURN_GUARDED(engine, convert_as(engine, in, out, options));
}

int pl_convert(pl_engine *engine, const char *in, const char *out, const pl_net_spec *net,
               bool replace)
{
    const pl_convert_options options = {.size = sizeof options, .net = net, .replace = replace};
    return pl_convert_as(engine, in, out, &options);
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
