#include "base/status.h"

const char *status_text(int status)
{
    switch (status) {
#define STATUS_CASE(name, value, text) \
    case name: return text;
        STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
    default: return "unknown status";
    }
}
