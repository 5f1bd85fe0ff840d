/* A JPEG, which libjpeg-turbo decodes. */
#include "support/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    fuzz_picture(bytes, n);
    return 0;
}
