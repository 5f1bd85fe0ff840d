/* The guard of every public call that reaches code of ours: a failed assertion ends the call and
 * poisons its engine, and the process lives on. The call returns ERR_BUG, with a message that names
 * file, line and condition, and so does every later call on that engine but its destruction. Other
 * engines do not notice. Memory that the call held is lost: its state is unknown.
 *
 * The call leaves the thread as it found it: OpenMP's number of threads is set back.
 *
 * A call that returns ERR_BUG, because a world that it ran was poisoned, poisons the engine,
 * too. */
#ifndef PL_API_GUARD_H
#define PL_API_GUARD_H

#include "base/fault.h"
#include "paceline/engine.h"

#include <setjmp.h>
#include <stdbool.h>

/* The whole body of a public function: `return expression`, an int status, under guard. `engine` is
 * the engine that keeps the error; if it is poisoned, the expression is not evaluated. */
#define RETURN_GUARDED(engine, expression)       \
    do {                                         \
        struct guard guard_;                     \
        if (!guard_begin(&guard_, engine))       \
            return guard_refuse(&guard_);        \
        if (setjmp(guard_.back) != 0)            \
            return guard_refuse(&guard_);        \
        return guard_end(&guard_, (expression)); \
    } while (0)

struct guard {
    struct fault_sink sink; /* first: a sink is its guard */
    struct fault_sink *outer;
    pl_engine *engine;
    int threads; /* that OpenMP took on this thread before */
    jmp_buf back;
};

/* Bind the guard to the thread. false: the engine is poisoned, nothing was bound. */
bool guard_begin(struct guard *guard, pl_engine *engine);

/* Unbind it. Returns the status that the call returns. */
int guard_end(struct guard *guard, int status);

/* ERR_BUG, with the message of what poisoned the engine. */
int guard_refuse(struct guard *guard);

#endif
