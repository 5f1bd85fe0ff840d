/* Text of others (a layer's name, a path, a peer's reason) on its way to people. */
#ifndef PL_BASE_PRINTABLE_H
#define PL_BASE_PRINTABLE_H

/* Make a text safe for terminals and for logs of one line a message: replace, in place, each byte
 * of ASCII control characters, line feeds included, and of U+0080 to U+009F in UTF-8 by '?'. Other
 * UTF-8 is kept. */
void printable(char *text);

/* Likewise each byte that is not of printable ASCII, for texts in files that must be UTF-8. */
void printable_ascii(char *text);

#endif
