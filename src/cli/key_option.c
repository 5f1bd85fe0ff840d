#include "cli/key_option.h"

#include "cli/cli.h"
#include "cli/secret_heap.h"

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

/* The same for a call that gives a key; *key is NULL unless it does. */
static int find_key(const char *command, int (*fn)(pl_engine *, const char *, char *),
                    const char *text, const char **key, int *status)
{
    char *room = secret_heap_take(PL_KEY_TEXT_SIZE);
    *key = NULL;
    *status = PL_ERR_NOMEM;
    if (!room)
        fprintf(stderr, "paceline %s: out of memory for a key\n", command);
    int end = room ? call_library(command, fn, text, room, status) : EXIT_FAILED;
    if (end < 0)
        *key = room;
    else
        secret_heap_give(room);
    return end;
}

int key_option_draw(const char *command, const char **key)
{
    int status;
    return find_key(command, draw_key, NULL, key, &status);
}

int key_option_read(const char *command, const char *file, const char **key)
{
    int status;
    return find_key(command, pl_key_read, file, key, &status);
}

int key_option_own(const char *command, const char **key)
{
    int status, end = find_key(command, own_key, NULL, key, &status);
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
