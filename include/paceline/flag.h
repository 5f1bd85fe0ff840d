/* A flag: a number that one thread or a signal handler sets and others read. It costs as much as an
 * int, and compiles as C99 and as C++11 and later. */
#ifndef PACELINE_FLAG_H
#define PACELINE_FLAG_H

#ifdef __cplusplus
extern "C" {
#endif

/* Zeroed, it is 0: `static pl_flag stop;` needs no more. It must live for as long as a call of the
 * library holds a pointer to it. `value` is for the two functions alone. */
typedef struct pl_flag {
    int value;
} pl_flag;

/* Both are async-signal-safe and may be called from any thread at any time; neither blocks nor
 * fails. A thread that reads the flag's new value also sees every write that preceded the set. */
void pl_flag_set(pl_flag *flag, int value);
int pl_flag_get(const pl_flag *flag);

#ifdef __cplusplus
}
#endif
#endif
