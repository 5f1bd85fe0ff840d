/* A file of CIFAR records; its first byte selects the kind. */
#include "support/fuzz.h"

#include "data/source_cifar.h"

#define NAME "in.bin"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n < 1)
        return 0;
    Paceline__Data__Cifar cifar = PACELINE__DATA__CIFAR__INIT;
    const struct source_config config = {0};
    struct source *source = NULL;
    struct err err = {0};
    cifar.path = (char *)(uintptr_t)NAME;
    cifar.coarse = bytes[0] & 2;
    fuzz_files_clear();
    fuzz_file(NAME, bytes + 1, n - 1);
    enum cifar_kind kind = bytes[0] & 1 ? CIFAR_100 : CIFAR_10;
    int rc = source_cifar_open(&config, &cifar, kind, &source, &err);
    fuzz_judge(rc, &err, NAME);
    fuzz_source(rc, source);
    return 0;
}
