/* Text of others (a layer's name, a path, a peer's reason) on its way to people. */
#ifndef PL_BASE_PRINTABLE_H
#define PL_BASE_PRINTABLE_H

/* Replace in place what a terminal or a log of one line a message would obey: each byte of an ASCII
 * control character, line feeds among them, and of UTF-8's U+0080 to U+009F, by '?'. Other
 * UTF-8 stays as it is. */
void printable(char *text);

#endif
