#include "cli/cli.h"

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

static int usage_error(const struct command *command, const char *what, const char *name)
{
    fprintf(stderr, "paceline %s: %s %s; see paceline %s --help\n", command->name, what, name,
            command->name);
    return EXIT_BAD_INPUT;
}

static int store(const struct command *command, const struct option *o, const char *value,
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
        return usage_error(command, "unknown option", argv[*i]);
    const char *value = NULL;
    if (o->kind == OPTION_FLAG && equals)
        return usage_error(command, "no value is taken by option", argv[*i]);
    if (o->kind != OPTION_FLAG) {
        value = equals ? equals + 1 : *i + 1 < argc ? argv[++*i] : NULL;
        if (!value)
            return usage_error(command, "a value is missing after option", argv[*i]);
    }
    return store(command, o, value, into);
}

int options_parse(const struct command *command, int argc, char **argv, void *into,
                  const char **positional, size_t max, size_t *count)
{
    *count = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            command_help(command);
            return EXIT_DONE;
        }
        if (argv[i][0] == '-' && argv[i][1] != '\0') {
            if (argv[i][1] != '-')
                return usage_error(command, "unknown option", argv[i]);
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
