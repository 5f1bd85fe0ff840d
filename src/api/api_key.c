#include "api/api_key.h"

#include "api/guard.h"
#include "paceline/key.h"
#include "real/run_key.h"
#include "real/secret.h"

#include <string.h>

_Static_assert((int)PL_KEY_TEXT_SIZE == (int)KEY_TEXT_SIZE, "a key fits into the public size");
_Static_assert((int)PL_KEY_ID_SIZE == (int)KEY_ID_TEXT_MAX, "an id fits into the public size");

int api_key_choose(const struct logger *log, struct err *err, const char *given,
                   const char *address, char **own, const char **key)
{
    *own = NULL;
    *key = given;
    if (given || (address && !real_is_loopback(address)))
        return OK;
    *own = secret_alloc(KEY_TEXT_SIZE);
    if (!*own)
        return err_set(err, ERR_NOMEM, "out of memory for a key");
    int rc = key_file_own(*own, err);
    if (rc == ERR_UNSUPPORTED) {
        log_warn(log, "%s: every user of this machine can join; give a key", err->text);
        err->text[0] = '\0';
        return OK;
    }
    if (rc == OK)
        *key = *own;
    return rc;
}

static int print_id(pl_engine *engine, const char *key, char out[PL_KEY_ID_SIZE])
{
    struct run_key derived;
    size_t n = key ? strlen(key) : 0;
    if (n < RUN_KEY_TEXT_MIN || n > RUN_KEY_TEXT_MAX)
        return err_set(&engine->error, ERR_INPUT, "key: %d to %d characters, not %zu",
                       RUN_KEY_TEXT_MIN, RUN_KEY_TEXT_MAX, n);
    if (run_key_derive(&derived, key) != OK)
        return err_set(&engine->error, ERR_NOMEM, "out of memory for a key");
    run_key_print(derived.id, out);
    run_key_forget(&derived);
    return OK;
}

int pl_key_draw(pl_engine *engine, char out[PL_KEY_TEXT_SIZE])
{
    RETURN_GUARDED(engine, key_draw(out, &engine->error));
}

int pl_key_make(pl_engine *engine, const char *file)
{
    RETURN_GUARDED(engine, key_file_make(file, &engine->error));
}

int pl_key_read(pl_engine *engine, const char *file, char out[PL_KEY_TEXT_SIZE])
{
    RETURN_GUARDED(engine, key_file_read(file, out, &engine->error));
}

int pl_key_own(pl_engine *engine, char out[PL_KEY_TEXT_SIZE])
{
    RETURN_GUARDED(engine, key_file_own(out, &engine->error));
}

int pl_key_id(pl_engine *engine, const char *key, char out[PL_KEY_ID_SIZE])
{
    RETURN_GUARDED(engine, print_id(engine, key, out));
}
