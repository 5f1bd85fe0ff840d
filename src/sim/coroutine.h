/* Coroutines, on which tasks run. One runs at any moment, until it yields. Two runs that resume in
 * the same order do the same on either back end. */
#ifndef PL_SIM_COROUTINE_H
#define PL_SIM_COROUTINE_H

#include "base/fault.h"

struct coroutine;
struct coroutine_host; /* a back end's own: its pool of stacks */

struct coroutine_ops {
    /* ERR_NOMEM */
    int (*open)(struct coroutine_host **out);
    /* All coroutines have been freed. */
    void (*close)(struct coroutine_host *host);

    /* Make one that will call fn(arg), at its first resume, under the fault sink `sink`. ERR_NOMEM
     */
    int (*create)(struct coroutine_host *host, void (*fn)(void *arg), void *arg,
                  struct fault_sink *sink, struct coroutine **out);
    /* Run it until it yields or fn returns. Not called from within a coroutine, nor after fn has
     * returned. The caller's fault sink is put back. */
    void (*resume)(struct coroutine *co);
    /* Called within `co`: return to its resumer. */
    void (*yield)(struct coroutine *co);
    /* Give its stack back. One that has not ended is abandoned: its frames are not unwound. */
    void (*free)(struct coroutine_host *host, struct coroutine *co);
};

/* On one OS thread: a stack each, of 512 KiB, with a guard page below it. */
extern const struct coroutine_ops coroutine_fibres;

/* One thread each, of which one runs at a time: slower, but known to debuggers and race detectors.
 */
extern const struct coroutine_ops coroutine_baton;

#endif
