/* Assertions of our own mistakes. PL_ASSERT stays on in every build. When it fails, it calls the
 * thread's current fault sink, which logs, poisons its engine and never returns to the failing
 * code: a task is parked, a call from the user's thread is unwound to the API. Without a sink the
 * process aborts. The sink is per thread, and a world switches it when it resumes a task, so
 * engines of one process do not share it. */
#ifndef PL_BASE_FAULT_H
#define PL_BASE_FAULT_H

struct fault_sink {
    /* Must not return. */
    void (*fail)(struct fault_sink *sink, const char *file, int line, const char *what);
};

/* Install `sink` (borrowed; NULL for none) on the calling thread; returns the one before. */
struct fault_sink *fault_bind(struct fault_sink *sink);

_Noreturn void fault_raise(const char *file, int line, const char *what);

#define PL_ASSERT(condition)                             \
    do {                                                 \
        if (!(condition))                                \
            fault_raise(__FILE__, __LINE__, #condition); \
    } while (0)

#endif
