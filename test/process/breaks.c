/* Linked into a second copy of the command: a net that fails an assertion after ten training
 * passes, in the one process that is the first to make the file that PACELINE_BREAKS names. */
#include "base/fault.h"
#include "nn/net.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

void __real_net_begin_forward(struct net *net, const struct vec *x, struct vec *s,
                              const struct net_batch *batch);
void __wrap_net_begin_forward(struct net *net, const struct vec *x, struct vec *s,
                              const struct net_batch *batch);

/* The memory of a broken call is lost, by intention. */
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

static bool is_chosen(void)
{
    const char *path = getenv("PACELINE_BREAKS");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_EXCL, 0600) : -1;
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

void __wrap_net_begin_forward(struct net *net, const struct vec *x, struct vec *s,
                              const struct net_batch *batch)
{
    static atomic_int passes;
    bool breaks = atomic_fetch_add(&passes, 1) == 10 && is_chosen();
    PL_ASSERT(!breaks);
    __real_net_begin_forward(net, x, s, batch);
}
