/* For MAP_ANONYMOUS, which POSIX has only since 2024. */
#define _DEFAULT_SOURCE
/* A checked siglongjmp refuses to continue on another stack. */
#undef _FORTIFY_SOURCE

#include "base/status.h"
#include "sim/coroutine.h"

#include <setjmp.h>
#include <stdatomic.h>
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

/* Stacks begin at different offsets in their pages: else the frames in use of all tasks share the
 * same few sets of the cache. */
enum { CACHE_LINE = 64, SHIFTS = 61 };

/* A place in the code and its stack. The compiler stores what it keeps in other registers before,
 * and loads it again behind. */
#if defined(__x86_64__) && defined(__GNUC__)
typedef void *saved_place[5];
#define save_place(at)     __builtin_setjmp(at)
#define continue_place(at) __builtin_longjmp(at, 1)
#else
typedef sigjmp_buf saved_place;
#define save_place(at)     sigsetjmp(at, 0)
#define continue_place(at) siglongjmp(at, 1)
#endif

/* Where a stack continues. */
struct place {
    ucontext_t context; /* the first frame of a new stack */
    saved_place saved;  /* of a stack that was left, */
    bool left;
};

struct coroutine {
    struct place self, caller;
    void (*fn)(void *arg);
    void *arg;
    struct fault_sink *sink; /* while it does not run */
    char *map;               /* a guard page, the stack, and then this */
    size_t guard, bytes;
    size_t shift;           /* unused at the upper end */
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

/* Stacks of the host that was closed last, for the next one: the kernel clears no page of them
 * again. */
enum { KEPT_MAX = 64 };
static _Atomic(struct coroutine *) kept;

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
    host->pool = atomic_exchange(&kept, NULL);
    *out = host;
    return OK;
}

static void free_stacks(struct coroutine *first)
{
    while (first) {
        struct coroutine *next = first->next;
        munmap(first->map, first->bytes);
        first = next;
    }
}

static void fibre_close(struct coroutine_host *host)
{
    struct coroutine **end = &host->pool;
    for (int i = 0; *end && i < KEPT_MAX; i++)
        end = &(*end)->next;
    free_stacks(*end);
    *end = NULL;
    free_stacks(atomic_exchange(&kept, host->pool));
    free(host);
}

static struct coroutine *stack_new(void)
{
    size_t guard = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = guard + STACK_BYTES + (sizeof(struct coroutine) + guard - 1) / guard * guard;
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    if (mprotect(map, guard, PROT_NONE) != 0) {
        munmap(map, bytes);
        return NULL;
    }
    struct coroutine *co = (struct coroutine *)(void *)(map + guard + STACK_BYTES);
    co->map = map;
    co->guard = guard;
    co->bytes = bytes;
    co->shift = (uintptr_t)map / guard % SHIFTS * CACHE_LINE;
    return co;
}

/* Continue at `to`, until somebody continues at `from`. swapcontext makes a system call each time,
 * for the signal mask, which tasks do not change. With the address sanitizer siglongjmp would erase
 * its notes on the stack that is left. */
#ifdef __SANITIZE_ADDRESS__
static void switch_stack(struct place *from, struct place *to)
{
    swapcontext(&from->context, &to->context);
}
#else
_Noreturn __attribute__((noinline)) static void continue_stack(struct place *to)
{
    if (to->left)
        continue_place(to->saved);
    setcontext(&to->context);
    fault_raise(__FILE__, __LINE__, "the context can be entered");
}

__attribute__((noinline)) static void switch_stack(struct place *from, struct place *to)
{
    from->left = true;
    if (save_place(from->saved) == 0)
        continue_stack(to);
}
#endif

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
    start->uc_stack.ss_size = STACK_BYTES - co->shift;
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
