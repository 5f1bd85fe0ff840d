#include "api/api.h"
#include "api/option_size.h"
#include "base/release.h"
#include "real/http.h"
#include "real/real.h"
#include "tensor/isa.h"

#include <stdlib.h>

#define SAME(name) _Static_assert((int)PL_##name == (int)name, "public status codes are ours")
SAME(OK);
SAME(ERR_TIMEOUT);
SAME(ERR_STOP);
SAME(ERR_PEER);
SAME(ERR_INPUT);
SAME(ERR_USAGE);
SAME(ERR_NOT_FOUND);
SAME(ERR_UNSUPPORTED);
SAME(ERR_NOMEM);
SAME(ERR_IO);
SAME(ERR_DIVERGED);
SAME(ERR_BUG);
_Static_assert((int)PL_LOG_ERROR == (int)LOG_ERROR, "public log levels are ours");

/* The public callback takes the public enum; the cast of the level is all there is between. */
static void forward_log(void *user, enum log_level level, const char *line)
{
    const pl_engine_options *options = user;
    options->log(options->user, (pl_log_level)level, line);
}

struct engine_memory {
    pl_engine engine;
    pl_engine_options options;
};

int pl_engine_create(const pl_engine_options *options, pl_engine **out)
{
    struct err why;
    pl_engine_options given;
    if (isa_check(&why) != OK)
        return ERR_USAGE;
    int rc = OPTIONS_TAKE(pl_engine_options, &given, options, &why);
    if (rc != OK)
        return rc;
    struct engine_memory *memory = calloc(1, sizeof *memory);
    const struct http_options http = {.ca_file = getenv("SSL_CERT_FILE")};
    struct remote *remote = memory ? http_create(&http) : NULL;
    if (!remote) {
        free(memory);
        return ERR_NOMEM;
    }
    memory->engine.remote = remote;
    if (given.log) {
        memory->options = given;
        memory->engine.log =
            (struct logger){forward_log, &memory->options, (enum log_level)given.log_level};
    }
    *out = &memory->engine;
    return OK;
}

void pl_engine_destroy(pl_engine *engine)
{
    if (!engine)
        return;
    api_tuning_free(engine->tuning);
    bindings_release(&engine->bindings);
    http_free(engine->remote);
    free(engine); /* the first member of engine_memory */
}

const char *pl_engine_error(const pl_engine *engine)
{
    return engine->error.text;
}

uint32_t pl_cores(void)
{
    return (uint32_t)real_cores();
}

const char *pl_version(void)
{
    return release_text();
}
