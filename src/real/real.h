/* The real world: threads, TCP, files. */
#ifndef PL_REAL_REAL_H
#define PL_REAL_REAL_H

#include "world/world.h"

/* The world of this process. */
struct world *real_world(void);

/* Processors this process may use. */
int real_cores(void);

/* Highest resident memory of this process yet, bytes. */
uint64_t real_peak_bytes(void);

#endif
