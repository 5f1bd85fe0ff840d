/* Which net and weights the command predicts with. */
#ifndef PL_CLI_PREDICT_MODEL_H
#define PL_CLI_PREDICT_MODEL_H

#include "cli/cli.h"
#include "paceline/predict.h"

enum { PREDICT_PATH_MAX = 4096 };

struct predict_model {
    pl_net_spec *spec;
    pl_job *job; /* of a run; NULL: there is none */
    char weights[PREDICT_PATH_MAX];
};

/* MODEL: the directory of a run, of which `which` is taken, "best", "final" or the name of a file
 * in it (NULL: final.safetensors, or else best.safetensors); a file of weights in such a directory,
 * or in its checkpoint/; or a .caffemodel or .safetensors that brings its net along. A status; or,
 * after a message, an exit code. */
int predict_model_find(pl_engine *engine, const char *command, const char *path, const char *which,
                       struct predict_model *model);

/* A net by its name or file, and weights from a file. */
int predict_model_make(pl_engine *engine, const char *net, const char *weights,
                       struct predict_model *model);
void predict_model_release(struct predict_model *model);

#endif
