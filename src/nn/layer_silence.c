/* Silence: consumes blobs that no layer reads. It has no effect here, where such blobs are
 * allowed. */
#include "nn/layers.h"

static const char *const types[] = {"Silence", NULL};
static const char *const messages[] = {NULL};

static int setup(struct layer *layer, const struct setup *setup, struct err *err)
{
    (void)setup;
    int rc = layer_links_between(layer, 1, 0, 0, 0, err);
    if (rc == OK && layer->n_top > 0)
        return err_set(err, ERR_INPUT, "type \"%s\" makes no tops", layer->type);
    return rc == OK ? layer_params_done(layer, err) : rc;
}

static void silence_forward(struct layer *layer, const struct pass *pass)
{
    (void)layer;
    (void)pass;
}

const struct layer_ops layer_silence = {
    .types = types,
    .messages = messages,
    .size = sizeof(struct layer),
    .setup = setup,
    .forward = silence_forward,
    .takes = TAKES_EITHER,
    .takes_whole = true,
};
