/* The order of colours in which a net's pictures are read, if the user gives none: one rule for all
 * commands. */
#ifndef PL_CLI_COLOR_H
#define PL_CLI_COLOR_H

#include "cli/cli.h"

struct color_question {
    const char *given;   /* --color, or NULL */
    const char *spec;    /* KIND:PATH[?MAPS]; or NULL */
    const char *maps;    /* of pictures that are given as files; or NULL */
    bool pictures;       /* there are such */
    const char *weights; /* the file of the net's weights; NULL: none */
    uint32_t channels;   /* that the net takes; 0: not known */
};

/* **color: the value for the maps, or NULL for none. Caffe's nets were trained on blue, green, red,
 * all others on red, green, blue. A line on stderr reports that the rule decided. A status. */
int cli_color(pl_engine *engine, const struct color_question *q, const char **color);

#endif
