#include "job/check.h"

#include <math.h>

int check_finite(const char *field, double value, struct err *err)
{
    if (isfinite(value))
        return OK;
    return err_set(err, ERR_INPUT, "%s: must be a finite number, is %g", field, value);
}

int check_range(const char *field, double value, double low, double high, struct err *err)
{
    if (value >= low && value <= high)
        return OK;
    return err_set(err, ERR_INPUT, "%s: must be from %.10g to %.10g, is %.10g", field, low, high,
                   value);
}

int check_positive(const char *field, double value, struct err *err)
{
    if (value > 0 && isfinite(value))
        return OK;
    if (value > 0)
        return check_finite(field, value, err);
    return err_set(err, ERR_INPUT, "%s: must be > 0, is %.10g", field, value);
}

int check_not_negative(const char *field, double value, struct err *err)
{
    if (value >= 0 && isfinite(value))
        return OK;
    if (value > 0)
        return check_finite(field, value, err);
    return err_set(err, ERR_INPUT, "%s: must be >= 0, is %.10g", field, value);
}

int check_fraction(const char *field, double value, struct err *err)
{
    if (value >= 0 && value < 1)
        return OK;
    return err_set(err, ERR_INPUT, "%s: must be >= 0 and < 1, is %.10g", field, value);
}

int check_given(const char *field, int given, struct err *err)
{
    if (given)
        return OK;
    return err_set(err, ERR_INPUT, "%s: is missing", field);
}
