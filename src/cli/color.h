/* The order of colours that a net's pictures are read in, where nobody has said any: one rule for
 * every command. */
#ifndef PL_CLI_COLOR_H
#define PL_CLI_COLOR_H

#include "cli/cli.h"

struct color_question {
    const char *given;   /* --color, or NULL */
    const char *spec;    /* KIND:PATH[?MAPS]; or NULL */
    const char *maps;    /* of pictures that are given as files; or NULL */
    bool pictures;       /* there are such */
    const char *weights; /* the file that the net's weights come from; NULL: none */
    uint32_t channels;   /* that the net takes; 0: not known */
};

/* *color: what goes into the maps, or NULL for nothing. Caffe's nets have learnt blue, green, red,
 * all others red, green, blue; that the rule decides is said on stderr. A status. */
int cli_color(pl_engine *engine, const struct color_question *q, const char **color);

#endif
