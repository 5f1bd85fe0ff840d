#include "paceline/flag.h"

#include "api/api.h"

/* Inside the library it is an atomic integer, which C++ cannot name. */
_Static_assert(sizeof(pl_flag) == sizeof(atomic_int) && _Alignof(pl_flag) == _Alignof(atomic_int),
               "a flag is laid out as an atomic integer");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a signal handler may set a flag");

const atomic_int *api_flag(const pl_flag *flag)
{
    return flag ? (const atomic_int *)&flag->value : NULL;
}

void pl_flag_set(pl_flag *flag, int value)
{
    atomic_store((atomic_int *)&flag->value, value);
}

int pl_flag_get(const pl_flag *flag)
{
    return atomic_load((const atomic_int *)&flag->value);
}
