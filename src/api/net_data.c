#include "api/guard.h"
#include "api/net.h"
#include "job/text.h"

#include <stdlib.h>
#include <string.h>

/* ---- sources, shared by an engine's nets ---- */

static struct api_source *find_source(pl_engine *engine, const struct buf *key)
{
    struct api_source *s = engine->sources;
    while (s && (s->key.len != key->len || memcmp(s->key.data, key->data, key->len) != 0))
        s = s->next;
    return s;
}

static int new_source(pl_engine *engine, const Paceline__Data *data, enum source_role role,
                      const struct buf *key, struct api_source **out, struct err *err)
{
    struct api_source *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "out of memory");
    const struct source_config config = {
        .role = role, .bindings = &engine->bindings, .remote = engine->remote};
    int rc = source_open_with(&config, data, &s->source, err);
    if (rc != OK) {
        free(s);
        return rc;
    }
    s->key = *key;
    s->next = engine->sources;
    engine->sources = s;
    *out = s;
    return OK;
}

static int take_source(pl_engine *engine, const Paceline__Data *data, enum source_role role,
                       struct api_source **out, struct err *err)
{
    struct buf key = {0};
    text_write(&data->base, &key);
    buf_put_u8(&key, role); /* a folder holds records for both */
    if (key.failed)
        return err_set(err, ERR_NOMEM, "out of memory");
    struct api_source *s = find_source(engine, &key);
    int rc = s ? OK : new_source(engine, data, role, &key, &s, err);
    if (rc != OK || s->users > 0)
        buf_release(&key);
    if (rc != OK)
        return rc;
    s->users++;
    *out = s;
    return OK;
}

static void leave_source(pl_engine *engine, struct api_source *source)
{
    if (!source || --source->users > 0)
        return;
    struct api_source **at = &engine->sources;
    while (*at != source)
        at = &(*at)->next;
    *at = source->next;
    source_close(source->source);
    buf_release(&source->key);
    free(source);
}

void api_net_release_data(pl_net *net)
{
    corpus_close(&net->corpus);
    for (int i = 0; i < SET_COUNT; i++)
        leave_source(net->engine, net->source[i]);
}

/* ---- what a net is given ---- */

/* Training batches come from the training set; without one, batches for testing get the room. */
static int feed_set(pl_net *net, enum corpus_set which, struct err *err)
{
    if (which != SET_TRAIN && net->ws->loader.set)
        return OK;
    net->place = 0;
    return workspace_feed(net->ws, net->job, &net->corpus.set[which], err);
}

static int put_source(pl_net *net, enum corpus_set which, const struct source *source,
                      const Paceline__Data *data, struct part part, struct err *err)
{
    struct dataset set;
    int rc = corpus_make(source, data, part, &set, err);
    if (rc != OK)
        return rc;
    rc = net->ws ? OK : api_net_form(net, &set.shape, &set.source->fields, err);
    if (rc == OK)
        rc = workspace_accepts(net->ws, &set, corpus_set_name(which), err);
    if (rc != OK) {
        dataset_release(&set);
        return rc;
    }
    corpus_put(&net->corpus, which, &set);
    rc = feed_set(net, which, err);
    if (rc != OK)
        dataset_release(&net->corpus.set[which]); /* it was the first: there was no room */
    return rc;
}

/* Records have the columns and the vocabulary of the net's training data. */
static int settle_columns(const pl_net *net, enum corpus_set which, Paceline__Data *data)
{
    const struct api_source *train = which == SET_TRAIN ? NULL : net->source[SET_TRAIN];
    return train ? source_settle(train->source, data, &net->engine->error) : OK;
}

static int set_data(pl_net *net, enum corpus_set which, Paceline__Data *data, struct part part)
{
    struct err *err = &net->engine->error;
    struct api_source *source = NULL;
    enum source_role role = which == SET_TRAIN ? SOURCE_TRAIN : SOURCE_TEST;
    int rc = settle_columns(net, which, data);
    if (rc == OK)
        rc = take_source(net->engine, data, role, &source, err);
    if (rc != OK)
        return rc;
    rc = put_source(net, which, source->source, data, part, err);
    if (rc != OK) {
        leave_source(net->engine, source);
        return rc;
    }
    leave_source(net->engine, net->source[which]);
    net->source[which] = source;
    if (which == SET_TRAIN)
        api_net_release_text(net);
    return OK;
}

static int set_spec(pl_net *net, enum corpus_set which, const char *spec, uint32_t part,
                    uint32_t parts)
{
    struct err *err = &net->engine->error;
    Paceline__Data *data = NULL;
    if (part >= parts)
        return err_set(err, ERR_USAGE, "part %u of %u: there is no such part", part, parts);
    int rc = job_set_data(&data, spec, err);
    if (rc == OK)
        rc = job_check_data(data, "data", err);
    if (rc == OK)
        rc = set_data(net, which, data, (struct part){part, parts});
    paceline__data__free_unpacked(data, NULL);
    return rc;
}

int pl_net_set_training_data(pl_net *net, const char *spec, uint32_t part, uint32_t parts)
{
    RETURN_GUARDED(net->engine, set_spec(net, SET_TRAIN, spec, part, parts));
}

int pl_net_set_validation_data(pl_net *net, const char *spec, uint32_t part, uint32_t parts)
{
    RETURN_GUARDED(net->engine, set_spec(net, SET_TEST, spec, part, parts));
}

static int set_test_data_of(pl_net *net, const pl_job *job)
{
    Paceline__Job *finished;
    int rc = api_job_finish(job, 1, &finished);
    if (rc != OK)
        return rc;
    rc = finished->test_data
             ? set_data(net, SET_TEST, finished->test_data, (struct part){0, 1})
             : err_set(&net->engine->error, ERR_INPUT,
                       "test_data: is missing from the job; name records with --data KIND:PATH");
    job_free(finished);
    return rc;
}

int pl_net_set_validation_data_of(pl_net *net, const pl_job *job)
{
    RETURN_GUARDED(net->engine, set_test_data_of(net, job));
}

size_t pl_net_training_records(const pl_net *net)
{
    return net->corpus.set[SET_TRAIN].count;
}

size_t pl_net_validation_records(const pl_net *net)
{
    return net->corpus.set[SET_TEST].count;
}
