/* For tests of `precision: bf16`: skipped, with the reason, where the processor has none. */
#ifndef PL_LIB_BF16_NEEDED_H
#define PL_LIB_BF16_NEEDED_H

#include "tensor/bf16.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static inline void bf16_needed(void)
{
    struct err err;
    if (bf16_check(&err) == OK)
        return;
    print_message("    skipped: %s\n", err.text);
    skip();
}

#endif
