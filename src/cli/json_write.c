#include "cli/json_write.h"

#include <math.h>
#include <stdlib.h>

void json_put_number(FILE *out, double value)
{
    char text[32];
    if (!isfinite(value)) {
        fputs("null", out);
        return;
    }
    for (int digits = 15; digits <= 17; digits += 2) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    fputs(text, out);
}

void json_put_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < ' ' || c == '<' || c == '>' || c == '&' || c == 0x7f)
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

void json_put_key(FILE *out, const char *key)
{
    json_put_text(out, key);
    fputc(':', out);
}

void json_put_item(FILE *out, const cJSON *item)
{
    char *text = cJSON_PrintUnformatted(item);
    for (const char *c = text ? text : "null"; *c; c++) {
        if (*c == '<' || *c == '>' || *c == '&')
            fprintf(out, "\\u%04x", (unsigned char)*c);
        else
            fputc(*c, out);
    }
    cJSON_free(text);
}

void json_next(struct json_list *list)
{
    fputs(list->first ? "" : ",", list->out);
    list->first = false;
}
