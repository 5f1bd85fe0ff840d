/* The files of src/cli/page, which cmake/embed.cmake puts into the command; each ends with a
 * zero. */
#ifndef PL_CLI_PAGE_FILES_H
#define PL_CLI_PAGE_FILES_H

extern const unsigned char page_css[], page_js[];

#endif
