/* A file that may be gzip, unpacked while it is read, with a bound on the unpacked size. It is a
 * real file in memory (memfd). */
#define _GNU_SOURCE /* memfd_create */
#include "support/fuzz.h"

#include "base/file.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { UNPACKED_MAX = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static int fd = -1;
    char path[32];
    struct file_bytes unpacked;
    struct err err = {0};
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    PL_ASSERT(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, bytes, n, 0) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int rc = file_read(path, UNPACKED_MAX, &unpacked, &err);
    fuzz_judge(rc, &err, path);
    if (rc == OK) {
        PL_ASSERT(unpacked.len <= UNPACKED_MAX && unpacked.data[unpacked.len] == 0);
        file_release(&unpacked);
    }
    return 0;
}
