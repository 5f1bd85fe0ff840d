/* Busy processes that want the processors: one for each, until the test ends. */
#ifndef PL_LIB_CROWD_H
#define PL_LIB_CROWD_H

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CROWD_MAX = 256, CROWD_SECONDS = 240 }; /* a crowd never lasts longer */

struct crowd {
    pid_t pid[CROWD_MAX];
    int count;
};

/* A setup and a teardown of cmocka. */
static inline int crowd_start(void **state)
{
    static struct crowd crowd;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    crowd = (struct crowd){.count = cores < CROWD_MAX ? (int)cores : CROWD_MAX};
    for (int i = 0; i < crowd.count; i++) {
        crowd.pid[i] = fork();
        if (crowd.pid[i] == 0) {
            alarm(CROWD_SECONDS);
            for (volatile unsigned n = 0;; n++)
                ;
        }
    }
    *state = &crowd;
    return 0;
}

static inline int crowd_end(void **state)
{
    const struct crowd *crowd = *state;
    for (int i = 0; i < crowd->count; i++) {
        kill(crowd->pid[i], SIGKILL);
        waitpid(crowd->pid[i], NULL, 0);
    }
    return 0;
}

#endif
