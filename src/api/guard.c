#include "api/guard.h"

#include "api/api.h"
#include "tensor/kernels.h"

/* The first mistake is the one that is reported. */
static void poison_engine(pl_engine *engine, const char *text)
{
    if (engine->bug.status == OK)
        err_set(&engine->bug, ERR_BUG, "%s", text);
}

/* The thread is the caller's. */
static void unbind_thread(const struct guard *guard)
{
    if (kernels_threads() != guard->threads)
        kernels_set_threads(guard->threads);
    fault_bind(guard->outer);
}

/* The way out of a failed assertion. A second one, in the callback that logs the first, would lead
 * here again and again: it is left to the guard outside, if there is one. */
static void fail_call(struct fault_sink *sink, const char *file, int line, const char *what)
{
    struct guard *guard = (struct guard *)sink;
    struct err text = {0};
    err_set(&text, ERR_BUG, "%s:%d: %s does not hold", file, line, what);
    poison_engine(guard->engine, text.text);
    unbind_thread(guard);
    log_error(&guard->engine->log, "%s", text.text);
    longjmp(guard->back, 1);
}

bool guard_begin(struct guard *guard, pl_engine *engine)
{
    guard->engine = engine;
    if (engine->bug.status != OK)
        return false;
    guard->threads = kernels_threads();
    guard->sink.fail = fail_call;
    guard->outer = fault_bind(&guard->sink);
    return true;
}

int guard_end(struct guard *guard, int status)
{
    unbind_thread(guard);
    if (status == ERR_BUG)
        poison_engine(guard->engine, guard->engine->error.text);
    return guard->engine->bug.status == OK ? status : guard_refuse(guard);
}

int guard_refuse(struct guard *guard)
{
    guard->engine->error = guard->engine->bug;
    return ERR_BUG;
}
