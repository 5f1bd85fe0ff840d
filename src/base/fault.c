#include "base/fault.h"

#include <stdlib.h>

static _Thread_local struct fault_sink *current_sink;

/* Not inlined: a fibre may be resumed on a stack that was left under another sink, so the
 * thread-local must be looked up again at each call. */
__attribute__((noinline)) struct fault_sink *fault_bind(struct fault_sink *sink)
{
    struct fault_sink *before = current_sink;
    current_sink = sink;
    return before;
}

_Noreturn void fault_raise(const char *file, int line, const char *what)
{
    if (current_sink)
        current_sink->fail(current_sink, file, line, what);
    abort();
}
