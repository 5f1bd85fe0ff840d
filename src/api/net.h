/* Declarations that the files of the public net interface share. */
#ifndef PL_API_NET_H
#define PL_API_NET_H

#include "api/api.h"
#include "learner/learner.h"
#include "learner/text_sampler.h"
#include "model/build.h"
#include "paceline/net.h"

struct pl_net_spec {
    pl_engine *engine;
    struct build build;
    char *slices_from, *slices_to; /* the layers that a job's slices share out; NULL: all */
    struct err error;              /* the first of the building calls; status OK: none */
    struct shape record; /* the record shape that a net of the zoo was published for; else n = 0 */
    struct buf text;     /* pl_net_spec_text's */
    struct arena arena;  /* pl_net_spec_layers' */
};

/* OK, or the first error of its construction. */
int api_spec_check(const pl_net_spec *spec, struct err *err);

/* A copy, if there is a name; false: out of memory. */
bool api_copy_name(const char *name, char **out);

/* The shape of records to plan for: the one given, or, if that is three zeros, the shape that the
 * net states or was published for. ERR_USAGE: unknown */
int api_spec_record(const pl_net_spec *spec, const uint32_t given[3], struct shape *out,
                    struct err *err);

/* Set a field of the job to a word; NULL leaves it. As job_set. */
int api_set_word(Paceline__Job *job, const char *field, const char *word, struct err *err);

/* The part of a job that a learner reads, with the net and the options or their defaults.
 * *out is the caller's (job_free), also on failure. ERR_INPUT, ERR_USAGE, ERR_NOMEM */
int api_net_job(const pl_net_spec *spec, const pl_net_options *options, Paceline__Job **out,
                struct err *err);

/* Data that is open, shared by an engine's nets. Read-only. */
struct api_source {
    struct api_source *next;
    struct buf key; /* its description as text */
    struct source *source;
    unsigned users;
};

struct pl_net {
    pl_engine *engine;
    Paceline__Job *job;                   /* net, batch, seed, threads, kernels, solver */
    struct api_source *source[SET_COUNT]; /* of the sets below, where there is one */
    struct corpus corpus;                 /* SET_TRAIN to train on, SET_TEST to test with */
    struct workspace *ws;                 /* NULL while the shape of records is not known, */
    struct shape record;                  /* which is this */
    struct arena arena;
    struct learner learner;
    const char **layer;           /* of each segment of the weights, its layer's name */
    uint64_t place;               /* in the stream of training records */
    bool inference;               /* the learner is no more than its weights and state */
    size_t given;                 /* of a record's floats so many are given to predict; 0: all */
    Paceline__Data__Text *text;   /* pl_net_form_text's; owned; NULL: none */
    struct text_sampler *sampler; /* of that text, or of the training data; NULL: not needed yet */
    struct buf drawn;             /* pl_net_sample's */
    pl_team *team;                /* that has the model in slices; NULL: the model is whole */
    struct model_slice slice;     /* this member's of it */
    bool broken;                  /* a pass of the slices has failed */
    float *parts;                 /* of a blob that the slices gather; */
    size_t room;                  /* so many floats */
};

/* Give the net its form, for records of that shape. */
int api_net_form(pl_net *net, const struct shape *record, const struct fields *fields,
                 struct err *err);

/* ERR_USAGE while it has none. */
int api_net_formed(const pl_net *net, struct err *err);

/* The members of the team (NULL: none) have a slice of the net each (net_slice.c). ERR_USAGE,
 * ERR_PEER */
int api_net_join(pl_net *net, pl_team *team, struct err *err);

/* ERR_UNSUPPORTED where the net is a slice: `what` needs the whole model. */
int api_net_whole(const pl_net *net, const char *what, struct err *err);

/* Evaluate the first records of a set; a forward pass of the net for tests; a text of the net's
 * sampler. ERR_PEER: a slice was lost; ERR_NOMEM; records' errors; text_sampler_draw's */
int api_net_evaluate(pl_net *net, const struct dataset *set, size_t count, struct net_result *sum);
int api_net_pass(pl_net *net, const struct net_batch *batch, struct err *err);
int api_net_draw(pl_net *net, const struct text_request *request, struct buf *text,
                 struct err *err);

/* Release the net's data. */
void api_net_release_data(pl_net *net);

/* The net draws from another text, or none. */
void api_net_release_text(pl_net *net);

#endif
