#include "cli/cli.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void command_help(const struct command *command)
{
    printf("usage: paceline %s %s [OPTION]...\n%s.\n\n", command->name, command->arguments,
           command->summary);
    for (const struct option *o = command->options; o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        printf("  %-24s %s\n", left, o->help);
    }
    printf("  %-24s %s\n", "--help", "this text");
    if (strstr(command->arguments, "SPEC"))
        printf("\n`paceline help data-spec` lists what SPEC may be.\n");
}

static const struct option *find_option(const struct command *command, const char *name,
                                        size_t length)
{
    for (const struct option *o = command->options; o->name; o++) {
        if (strlen(o->name) == length && strncmp(o->name, name, length) == 0)
            return o;
    }
    return NULL;
}

enum { NAME_BYTES = 64 };

/* Levenshtein's distance. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[NAME_BYTES], n = strlen(a);
    for (size_t i = 0; i <= n; i++)
        row[i] = i;
    for (size_t j = 0; b[j]; j++) {
        size_t corner = row[0];
        row[0] = j + 1;
        for (size_t i = 1; i <= n; i++) {
            size_t change = corner + (a[i - 1] != b[j]);
            corner = row[i];
            size_t shorter = row[i] < row[i - 1] ? row[i] : row[i - 1];
            row[i] = change < shorter + 1 ? change : shorter + 1;
        }
    }
    return row[n];
}

bool cli_nearer(const char *name, const char *other, size_t *least)
{
    size_t n = strlen(name), d = n < NAME_BYTES ? edit_distance(name, other) : n;
    size_t most = n < 5 ? 1 : n < 9 ? 2 : 3; /* typing errors allowed in a name of this length */
    bool begins = n >= 3 && strncmp(name, other, n) == 0;
    if (begins)
        d = 1;
    if (d > most || d >= n || d >= *least)
        return false;
    *least = d;
    return true;
}

/* Other tools' names of our options. */
static const char *const aliases[][2] = {
    {"batch-size", "batch"},
    {"batch_size", "batch"},
    {"learning-rate", "lr"},
    {"num-workers", "workers"},
    {"nproc", "workers"},
    {"max-steps", "steps"},
    {"max-epochs", "epochs"},
    {"output", "out"},
    {"output-dir", "out"},
    {"dataset", "data"},
    {"device", "kernels"},
    {"optimizer", "set solver.type=..."},
    {"momentum", "set solver.momentum=..."},
    {"net", "set net.zoo=..."},
    {"validation", "set validation=..."},
};

/* The most similar option; NULL: none is similar. */
static const char *suggest_option(const struct command *command, const char *name)
{
    const char *meant = NULL;
    char root[NAME_BYTES];
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        snprintf(root, sizeof root, "%.*s", (int)strcspn(aliases[i][1], " "), aliases[i][1]);
        if (strcmp(aliases[i][0], name) == 0 && find_option(command, root, strlen(root)))
            return aliases[i][1];
    }
    for (const struct option *o = command->options; o->name; o++)
        if (cli_nearer(name, o->name, &least))
            meant = o->name;
    return meant;
}

static int unknown_option(const struct command *command, const char *text)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text + strspn(text, "-"), "="),
             text + strspn(text, "-"));
    const char *meant = suggest_option(command, name);
    fprintf(stderr, "paceline %s: unknown option %s%s%s%s; see paceline %s --help\n", command->name,
            text, meant ? "; did you mean --" : "", meant ? meant : "", meant ? "?" : "",
            command->name);
    return EXIT_BAD_INPUT;
}

static int usage_error(const struct command *command, const char *what, const char *name)
{
    fprintf(stderr, "paceline %s: %s %s; see paceline %s --help\n", command->name, what, name,
            command->name);
    return EXIT_BAD_INPUT;
}

static int store_value(const struct command *command, const struct option *o, const char *value,
                       void *into)
{
    void *field = (char *)into + o->offset;
    switch (o->kind) {
    case OPTION_FLAG: *(bool *)field = true; return -1;
    case OPTION_TEXT: *(const char **)field = value; return -1;
    case OPTION_LIST: break;
    }
    struct option_list *list = field;
    if (list->count == OPTION_LIST_MAX)
        return usage_error(command, "too many of option", o->name);
    list->at[list->count++] = value;
    return -1;
}

/* `--name VALUE`, `--name=VALUE` or `--flag`; *i is left at the last argument used. */
static int parse_option(const struct command *command, int argc, char **argv, int *i, void *into)
{
    const char *name = argv[*i] + 2;
    const char *equals = strchr(name, '=');
    const struct option *o =
        find_option(command, name, equals ? (size_t)(equals - name) : strlen(name));
    if (!o)
        return unknown_option(command, argv[*i]);
    const char *value = NULL;
    if (o->kind == OPTION_FLAG && equals)
        return usage_error(command, "no value is taken by option", argv[*i]);
    if (o->kind != OPTION_FLAG) {
        value = equals ? equals + 1 : *i + 1 < argc ? argv[++*i] : NULL;
        if (!value)
            return usage_error(command, "a value is missing after option", argv[*i]);
    }
    return store_value(command, o, value, into);
}

int options_parse(const struct command *command, int argc, char **argv, void *into,
                  const char **positional, size_t max, size_t *count)
{
    static char quiet[] = "--quiet", out[] = "--out";
    *count = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            command_help(command);
            return EXIT_DONE;
        }
        if (strcmp(argv[i], "-q") == 0)
            argv[i] = quiet;
        if (strcmp(argv[i], "-o") == 0 && find_option(command, "out", 3))
            argv[i] = out;
        if (argv[i][0] == '-' && argv[i][1] != '\0') {
            if (argv[i][1] != '-')
                return unknown_option(command, argv[i]);
            int end = parse_option(command, argc, argv, &i, into);
            if (end >= 0)
                return end;
        } else if (*count < max) {
            positional[(*count)++] = argv[i];
        } else {
            return usage_error(command, "unexpected argument", argv[i]);
        }
    }
    return -1;
}

bool cli_record_shape(const char *text, uint32_t shape[3])
{
    for (int i = 0; i < 3; i++) {
        char *end = NULL;
        unsigned long value = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
        if (value < 1 || value > 1000000 || *end != (i < 2 ? 'x' : '\0'))
            return false;
        shape[i] = (uint32_t)value;
        text = end + 1;
    }
    return true;
}
