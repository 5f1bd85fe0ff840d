/* Threads of the library in a process that is not ours. */
#ifndef PL_REAL_THREAD_H
#define PL_REAL_THREAD_H

#include <pthread.h>

/* Create a thread that leaves signals to the program's own threads. Signals of a thread's own
 * faults are not blocked: where they are, the kernel ends the process without calling the program's
 * handler, and a JVM has one that writes a report. 0, or an error number as pthread_create
 * returns. */
int thread_create(pthread_t *thread, void *(*fn)(void *arg), void *arg);

#endif
