#include "base/release.h"

/* With a mark before it, so that an executable can be asked, too. */
#define MARK "paceline-release:"

static const char marked[RELEASE_MAX + sizeof MARK] = MARK "0.1.0";

const char *release_text(void)
{
    return marked + sizeof MARK - 1;
}
