/* Paceline's library: one engine holds everything; several live side by side in one process.
 *
 * Every function that can fail returns a pl_status and leaves a message that names the thing and
 * the place in pl_engine_error. An engine is used by one thread at a time, except where a function
 * says otherwise. The library prints nothing, starts no process, and changes no setting of its
 * process, except two of oneDNN's, which exist once a process: PACELINE_ISA limits all users of
 * oneDNN to those instructions, if it is set before its first use; and while kernels are timed,
 * oneDNN's cache of primitives is empty (afterwards it has its former capacity).
 *
 * The library checks itself. When a check fails the call returns PL_ERR_BUG, and so does every
 * later call on that engine, which can only be destroyed, like all objects made from it. Other
 * engines are not affected. Memory and files of the failed call are not released.
 *
 * Every struct of options begins with `size`, the sizeof of the struct as the program was built
 * with it. All other fields may stay zero, where nothing else is said:
 *
 *     const pl_run_options options = {.size = sizeof options, .out = "run"};
 *
 * A later library may have further fields: of a program that does not know them they are zero. So a
 * program need not be built again for a library of the same soname. In place of such a struct NULL
 * stands for all defaults, where nothing else is said. Every call that takes one may return
 *
 *   PL_ERR_USAGE        its size is 0, or no size of such a struct
 *   PL_ERR_UNSUPPORTED  a field is set that this library is too old for */
#ifndef PACELINE_ENGINE_H
#define PACELINE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pl_status {
    PL_OK = 0,
    PL_ERR_TIMEOUT = -1,   /* a deadline passed */
    PL_ERR_FULL = -2,      /* no room for it */
    PL_ERR_STOP = -3,      /* ended on request */
    PL_ERR_PEER = -30,     /* a peer is lost */
    PL_ERR_REPLICAS = -42, /* copies that must be equal are not */
    PL_ERR_INPUT = -60,    /* a file, job or value is bad */
    PL_ERR_USAGE = -61,    /* a call, option or assignment is wrong */
    PL_ERR_NOT_FOUND = -62,
    PL_ERR_UNSUPPORTED = -63,
    PL_ERR_NOMEM = -80,
    PL_ERR_IO = -81,
    PL_ERR_DIVERGED = -82, /* the loss is no longer a number */
    PL_ERR_BUG = -99,      /* our mistake; the engine is poisoned */
} pl_status;

typedef enum pl_log_level { PL_LOG_DEBUG, PL_LOG_INFO, PL_LOG_WARN, PL_LOG_ERROR } pl_log_level;

typedef struct pl_engine pl_engine;

typedef struct pl_engine_options {
    size_t size; /* sizeof this struct */
    /* A line of log, without newline; may be called from any of the engine's threads. NULL: silent.
     */
    void (*log)(void *user, pl_log_level level, const char *line);
    void *user;
    pl_log_level log_level;
} pl_engine_options;

/* `options` may be NULL and is copied. The environment's PACELINE_ISA (sse2, avx2, avx512), if set,
 * is the widest instruction set that is used. PL_ERR_USAGE: it is none of these. PL_ERR_NOMEM.
 *
 * The engine chooses the kernel of each convolution by timing each shape once, unless the job is
 * deterministic. The tuner keeps its choices in the file that PACELINE_TUNER names, by a path with
 * a slash in it (`off`: nothing is timed), else in paceline/kernels.txt under $XDG_CACHE_HOME or
 * ~/.cache; a file of that name with other contents is left alone. An engine times for 20 s at
 * most: the remaining shapes use a rule, and are timed in a later run. */
int pl_engine_create(const pl_engine_options *options, pl_engine **out);

/* Nets compute on OpenMP's threads, which spin while they wait for one another. Where other
 * processes use the same processors, spinning is many times slower than sleeping. The host program
 * can then set OMP_WAIT_POLICY=passive in the environment before OpenMP is loaded. The command
 * `paceline` sets it when it finds the machine busy. */

/* Everything made from the engine must have been freed. NULL is allowed. */
void pl_engine_destroy(pl_engine *engine);

/* Message of the last call on this engine that failed; valid until the next call. */
const char *pl_engine_error(const pl_engine *engine);

/* The compute threads that stand for a default: as many as the process may use processors, by its
 * affinity and its control groups, at least 1. */
uint32_t pl_cores(void);

/* "0.1.0" */
const char *pl_version(void);

#ifdef __cplusplus
}
#endif
#endif
