/* `paceline keygen`: makes the key of a run. */
#include "cli/cli.h"
#include "cli/key_option.h"

#include <stdio.h>

static const struct option keygen_options[] = {{0}};

static int run_keygen(const struct command *command, int argc, char **argv)
{
    char id[PL_KEY_ID_SIZE];
    const char *file = NULL, *key;
    size_t count;
    int end = options_parse(command, argc, argv, NULL, &file, 1, &count);
    if (end >= 0)
        return end;
    if (count == 0) {
        fprintf(stderr,
                "paceline keygen: which file? Name a new one; see paceline keygen --help\n");
        return EXIT_BAD_INPUT;
    }
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    int rc = pl_key_make(engine, file);
    if (rc == PL_OK && (end = key_option_read("keygen", file, &key)) >= 0) {
        pl_engine_destroy(engine);
        return end;
    }
    if (rc == PL_OK)
        rc = pl_key_id(engine, key, id);
    if (rc == PL_OK)
        printf("%s has key %s: copy the file to each machine of the run, and give --key %s there\n",
               file, id, file);
    int code = rc == PL_OK ? EXIT_DONE : cli_fail(engine, rc);
    pl_engine_destroy(engine);
    return code;
}

const struct command cmd_keygen = {
    .name = "keygen",
    .summary = "Make a file with a new key, for runs on several machines",
    .arguments = "FILE",
    .options = keygen_options,
    .run = run_keygen,
};
