/* The release that this is: nodes of one run must be of the same. */
#ifndef PL_BASE_RELEASE_H
#define PL_BASE_RELEASE_H

enum { RELEASE_MAX = 32 };

/* "0.1.0" */
const char *release_text(void);

#endif
