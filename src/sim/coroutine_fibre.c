/* For MAP_ANONYMOUS, which POSIX has only since 2024. */
#define _DEFAULT_SOURCE
/* A checked siglongjmp refuses to continue on another stack. */
#undef _FORTIFY_SOURCE

#include "base/status.h"
#include "sim/coroutine.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { STACK_BYTES = 2 * 1024 * 1024 }; /* its red zones make frames larger */
#else
enum { STACK_BYTES = 512 * 1024 };
#endif

/* Where a stack continues. */
struct place {
    ucontext_t context; /* the first frame of a new stack */
    sigjmp_buf env;     /* of a stack that was left, */
    bool left;
};

struct coroutine {
    struct place self, caller;
    void (*fn)(void *arg);
    void *arg;
    struct fault_sink *sink; /* while it does not run */
    char *map;               /* a guard page, then the stack */
    size_t guard;
    struct coroutine *next; /* in the pool */
    /* For the address sanitizer: the fake stack of the coroutine that does not run, and the stack
     * of the caller. */
    void *fake;
    const void *caller_stack;
    size_t caller_bytes;
};

struct coroutine_host {
    struct coroutine *pool;
};

/* The address sanitizer must be told of every change of stack, on both sides of it. */
static void before_switch(void **fake, const void *stack, size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(fake, stack, bytes);
#else
    (void)fake, (void)stack, (void)bytes;
#endif
}

static void after_switch(void *fake, const void **stack, size_t *bytes)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake, stack, bytes);
#else
    (void)fake, (void)stack, (void)bytes;
#endif
}

static int fibre_open(struct coroutine_host **out)
{
    struct coroutine_host *host = calloc(1, sizeof *host);
    if (!host)
        return ERR_NOMEM;
    *out = host;
    return OK;
}

static void fibre_close(struct coroutine_host *host)
{
    while (host->pool) {
        struct coroutine *co = host->pool;
        host->pool = co->next;
        munmap(co->map, co->guard + STACK_BYTES);
        free(co);
    }
    free(host);
}

static struct coroutine *stack_new(void)
{
    struct coroutine *co = calloc(1, sizeof *co);
    if (!co)
        return NULL;
    co->guard = (size_t)sysconf(_SC_PAGESIZE);
    void *map = mmap(NULL, co->guard + STACK_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (map == MAP_FAILED) {
        free(co);
        return NULL;
    }
    co->map = map;
    if (mprotect(map, co->guard, PROT_NONE) != 0) {
        munmap(map, co->guard + STACK_BYTES);
        free(co);
        return NULL;
    }
    return co;
}

/* Continue at `to`, until somebody continues at `from`. swapcontext makes a system call each time,
 * for the signal mask, which tasks do not change. With the address sanitizer siglongjmp would erase
 * its notes on the stack that is left. */
__attribute__((noinline)) static void switch_stack(struct place *from, struct place *to)
{
#ifdef __SANITIZE_ADDRESS__
    swapcontext(&from->context, &to->context);
#else
    from->left = true;
    if (sigsetjmp(from->env, 0) != 0)
        return;
    if (to->left)
        siglongjmp(to->env, 1);
    setcontext(&to->context);
#endif
}

/* The first frame of a stack; makecontext passes only ints. */
static void enter_stack(unsigned low, unsigned high)
{
    struct coroutine *co = (struct coroutine *)((uintptr_t)high << 32 | low);
    after_switch(NULL, &co->caller_stack, &co->caller_bytes);
    co->fn(co->arg);
    before_switch(NULL, co->caller_stack, co->caller_bytes); /* NULL: never to return */
    switch_stack(&co->self, &co->caller);
}

/* A function of its own: the compiler takes getcontext for a setjmp, which may return. */
__attribute__((noinline)) static void prepare_stack(struct coroutine *co)
{
    ucontext_t *start = &co->self.context;
    co->self.left = false;
    getcontext(start);
    start->uc_stack.ss_sp = co->map + co->guard;
    start->uc_stack.ss_size = STACK_BYTES;
    start->uc_link = NULL;
    uintptr_t self = (uintptr_t)co;
    makecontext(start, (void (*)(void))enter_stack, 2, (unsigned)self, (unsigned)(self >> 32));
    start->uc_stack.ss_size = 0; /* or the sanitizer wipes its notes on the stack at each switch */
}

static int fibre_create(struct coroutine_host *host, void (*fn)(void *arg), void *arg,
                        struct fault_sink *sink, struct coroutine **out)
{
    struct coroutine *co = host->pool;
    if (co)
        host->pool = co->next;
    else
        co = stack_new();
    if (!co)
        return ERR_NOMEM;
    co->fn = fn;
    co->arg = arg;
    co->sink = sink;
    co->fake = NULL;
#ifdef __SANITIZE_ADDRESS__
    ASAN_UNPOISON_MEMORY_REGION(co->map + co->guard, STACK_BYTES); /* of who had it before */
#endif
    prepare_stack(co);
    *out = co;
    return OK;
}

static void fibre_resume(struct coroutine *co)
{
    struct fault_sink *outer = fault_bind(co->sink);
    void *fake = NULL;
    before_switch(&fake, co->map + co->guard, STACK_BYTES);
    switch_stack(&co->caller, &co->self);
    after_switch(fake, NULL, NULL);
    co->sink = fault_bind(outer);
}

static void fibre_yield(struct coroutine *co)
{
    before_switch(&co->fake, co->caller_stack, co->caller_bytes);
    switch_stack(&co->self, &co->caller);
    after_switch(co->fake, &co->caller_stack, &co->caller_bytes);
}

static void fibre_free(struct coroutine_host *host, struct coroutine *co)
{
    co->next = host->pool;
    host->pool = co;
}

const struct coroutine_ops coroutine_fibres = {
    .open = fibre_open,
    .close = fibre_close,
    .create = fibre_create,
    .resume = fibre_resume,
    .yield = fibre_yield,
    .free = fibre_free,
};
