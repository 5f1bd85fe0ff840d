#include "paceline/sample.h"

#include "api/data.h"
#include "api/guard.h"
#include "api/net.h"
#include "api/option_size.h"
#include "data/source_text.h"
#include "job/text.h"

#include <inttypes.h>
#include <math.h>

enum { LENGTH_MAX = 100000000 };

/* ---- the text ---- */

static int refuse_kind(const char *field, struct err *err)
{
    return err_set(err, ERR_INPUT,
                   "%s: is not a text; give a model that was trained on one (text:FILE)", field);
}

/* A copy of the settled text of open data. */
static int copy_text(const pl_data *data, const char *field, Paceline__Data__Text **out,
                     struct err *err)
{
    const Paceline__Data__Text *text = source_text_settled(data->source);
    if (!text)
        return refuse_kind(field, err);
    *out = (Paceline__Data__Text *)text_copy(&text->base);
    return *out ? OK : err_set(err, ERR_NOMEM, "%s: out of memory", field);
}

/* That of the job, settled or else from its file. */
static int text_of_job(const pl_job *job, Paceline__Data__Text **out, struct err *err)
{
    const Paceline__Data *spec = job->message->train_data;
    pl_data *data;
    if (!spec || spec->source_case != PACELINE__DATA__SOURCE_TEXT)
        return refuse_kind("train_data", err);
    bool characters = spec->text->unit == PACELINE__DATA__TEXT__UNIT__character;
    if (!characters || (spec->text->vocabulary && spec->text->vocabulary[0])) {
        *out = (Paceline__Data__Text *)text_copy(&spec->text->base);
        return *out ? OK : err_set(err, ERR_NOMEM, "train_data: out of memory");
    }
    int rc = pl_data_open_job(job, true, &data);
    if (rc != OK)
        return rc;
    rc = copy_text(data, "train_data", out, err);
    pl_data_close(data);
    return rc;
}

void api_net_release_text(pl_net *net)
{
    text_sampler_free(net->sampler);
    net->sampler = NULL;
}

static int take_text(pl_net *net, Paceline__Data__Text *text)
{
    static const struct shape record = {3, {2, 1, 1}};
    static const struct fields fields = {
        2, {{"data", {1, {1}}, 0, true}, {"target", {1, {1}}, 1, true}}};
    int rc = net->ws ? OK : api_net_form(net, &record, &fields, &net->engine->error);
    if (rc != OK) {
        protobuf_c_message_free_unpacked(&text->base, NULL);
        return rc;
    }
    api_net_release_text(net);
    if (net->text)
        protobuf_c_message_free_unpacked(&net->text->base, NULL);
    net->text = text;
    return OK;
}

static int form_text(pl_net *net, const pl_job *job, const pl_data *data)
{
    struct err *err = &net->engine->error;
    Paceline__Data__Text *text = NULL;
    if (!data && !job)
        return err_set(err, ERR_USAGE, "net: its text is given neither as data nor by a job");
    int rc = data ? copy_text(data, "data", &text, err) : text_of_job(job, &text, err);
    return rc == OK ? take_text(net, text) : rc;
}

int pl_net_form_text(pl_net *net, const pl_job *job, const pl_data *text)
{
    RETURN_GUARDED(net->engine, form_text(net, job, text));
}

/* ---- drawing ---- */

static const Paceline__Data__Text *text_of_net(const pl_net *net)
{
    const struct api_source *train = net->source[SET_TRAIN];
    return net->text ? net->text : train ? source_text_settled(train->source) : NULL;
}

static int make_sampler(pl_net *net, struct err *err)
{
    const Paceline__Data__Text *text = text_of_net(net);
    struct text_units *units;
    if (!text)
        return err_set(err, ERR_USAGE,
                       "net: its text is unknown: name it, or set text as its training data");
    int rc = text_units_create(text, &units, err);
    return rc == OK ? text_sampler_create(net->job->net, net->ws, units, &net->sampler, err) : rc;
}

static int check_options(const pl_net_sample_options *o, struct err *err)
{
    if (o->length == 0 || o->length > LENGTH_MAX)
        return err_set(err, ERR_USAGE, "sample: length %" PRIu64 " is out of range, 1 to %d",
                       o->length, LENGTH_MAX);
    if (!isfinite(o->temperature) || o->temperature < 0)
        return err_set(err, ERR_USAGE,
                       "sample: temperature %g is out of range: 0, or a finite number above it",
                       o->temperature);
    return OK;
}

static int sample_net(pl_net *net, const pl_net_sample_options *given, const char **text,
                      size_t *bytes)
{
    struct err *err = &net->engine->error;
    pl_net_sample_options o;
    int rc = OPTIONS_TAKE(pl_net_sample_options, &o, given, err);
    if (rc != OK)
        return rc;
    const struct text_request request = {
        .prime = o.prime, .length = o.length, .temperature = o.temperature, .seed = o.seed};
    rc = check_options(&o, err);
    if (rc == OK)
        rc = api_net_formed(net, err);
    if (rc == OK && !net->sampler)
        rc = make_sampler(net, err);
    if (rc == OK)
        rc = text_sampler_check(net->sampler, o.prime, err);
    if (rc != OK)
        return rc;
    buf_release(&net->drawn);
    net->drawn = (struct buf){0};
    rc = api_net_draw(net, &request, &net->drawn, err);
    size_t drawn = net->drawn.len;
    buf_put_u8(&net->drawn, 0);
    if (rc == OK && net->drawn.failed)
        rc = err_set(err, ERR_NOMEM, "sample: out of memory for the text");
    if (rc != OK)
        return rc;
    *text = (const char *)net->drawn.data;
    *bytes = drawn;
    return OK;
}

int pl_net_sample(pl_net *net, const pl_net_sample_options *options, const char **text,
                  size_t *bytes)
{
    RETURN_GUARDED(net->engine, sample_net(net, options, text, bytes));
}
