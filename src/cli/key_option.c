#include "cli/key_option.h"

#include "cli/cli.h"

#include <stdio.h>

/* One call of the library, on an engine of its own; its message is printed as the command's. */
static int call_library(const char *command, int (*fn)(pl_engine *, const char *, char *),
                        const char *text, char *out, int *status)
{
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    *status = fn(engine, text, out);
    if (*status != PL_OK)
        fprintf(stderr, "paceline %s: %s\n", command, pl_engine_error(engine));
    pl_engine_destroy(engine);
    return *status == PL_OK ? -1 : *status == PL_ERR_INPUT ? EXIT_BAD_INPUT : EXIT_FAILED;
}

static int draw_key(pl_engine *engine, const char *text, char *out)
{
    (void)text;
    return pl_key_draw(engine, out);
}

static int own_key(pl_engine *engine, const char *text, char *out)
{
    (void)text;
    return pl_key_own(engine, out);
}

int key_option_draw(const char *command, char out[PL_KEY_TEXT_SIZE])
{
    int status;
    return call_library(command, draw_key, NULL, out, &status);
}

int key_option_read(const char *command, const char *file, char out[PL_KEY_TEXT_SIZE])
{
    int status;
    return call_library(command, pl_key_read, file, out, &status);
}

int key_option_own(const char *command, char out[PL_KEY_TEXT_SIZE], const char **key)
{
    int status = PL_OK, end = call_library(command, own_key, NULL, out, &status);
    *key = end < 0 ? out : NULL;
    if (status != PL_ERR_UNSUPPORTED)
        return end;
    fprintf(stderr,
            "paceline %s: every user of this machine can join; name a file with --key FILE\n",
            command);
    return -1;
}

void key_option_id(const char *key, char out[PL_KEY_ID_SIZE])
{
    int status;
    out[0] = '\0';
    if (key)
        (void)call_library("key", pl_key_id, key, out, &status);
}
