/* How threads that compute wait for one another. OpenMP's spin, which on a machine of our own is
 * the fastest, and where something else wants the processors many times slower than to sleep: the
 * one that is waited for has none. OpenMP reads that from the environment when it is loaded, so the
 * command starts over with another one. */
#ifndef PL_CLI_WAIT_POLICY_H
#define PL_CLI_WAIT_POLICY_H

/* Check for 40 ms whether other processes compute; if so, execute this command again with
 * OMP_WAIT_POLICY=passive. Returns at once where the user has set that, GOMP_SPINCOUNT or
 * OMP_NUM_THREADS=1, and where the machine is not busy. Call it before anything is opened. */
void wait_policy_choose(char **argv);

#endif
