#include "base/printable.h"

#include <stdbool.h>

void printable(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at; at++) {
        bool control = *at < ' ' || *at == 0x7f;
        bool upper =
            at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0; /* U+009B opens as ESC [ does */
        if (upper)
            *at++ = '?';
        if (control || upper)
            *at = '?';
    }
}

void printable_ascii(char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}
