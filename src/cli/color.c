#include "cli/color.h"

#include "paceline/convert.h"

#include <stdio.h>
#include <string.h>

/* Is `color` among the maps "a=..&b=.."? */
static bool names_color(const char *maps)
{
    for (; maps; maps = strchr(maps, '&')) {
        maps += *maps == '&';
        if (strncmp(maps, "color=", 6) == 0)
            return true;
    }
    return false;
}

int cli_color(pl_engine *engine, const struct color_question *q, const char **color)
{
    const char *question = q->spec ? strchr(q->spec, '?') : NULL;
    bool pictures = q->pictures || (q->spec && strncmp(q->spec, "images:", 7) == 0);
    bool of_caffe = false;
    *color = q->given;
    if (q->given || !pictures || q->channels == 1 || names_color(q->maps) ||
        names_color(question ? question + 1 : NULL))
        return PL_OK;
    int rc = q->weights ? pl_weights_of_caffe(engine, q->weights, &of_caffe) : PL_OK;
    if (rc != PL_OK)
        return rc;
    *color = of_caffe ? "bgr" : "rgb";
    fprintf(stderr, "colours are taken as %s; --color %s turns them round\n",
            of_caffe ? "blue, green, red, as Caffe has them" : "red, green, blue",
            of_caffe ? "rgb" : "bgr");
    return PL_OK;
}
