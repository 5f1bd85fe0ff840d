#include "api/option_size.h"

#include "base/release.h"

#include <stdbool.h>
#include <string.h>

/* A struct grows by less, so that a size which was never set is not taken for one. */
enum { GROWTH_MAX = 4096 };

static bool is_zero(const unsigned char *from, size_t count)
{
    while (count > 0 && from[count - 1] == 0)
        count--;
    return count == 0;
}

int options_take(void *own, size_t known, const void *given, const char *type, struct err *err)
{
    size_t size = known;
    if (given)
        memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > known + GROWTH_MAX)
        return err_set(err, ERR_USAGE, "%s: size is %zu: set it to sizeof(%s)", type, size, type);
    if (size > known && !is_zero((const unsigned char *)given + known, size - known))
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: a field is set that this library lacks: the program was built for a "
                       "newer one than %s",
                       type, release_text());
    memset(own, 0, known);
    if (given)
        memcpy(own, given, size < known ? size : known);
    memcpy(own, &known, sizeof known);
    return OK;
}
