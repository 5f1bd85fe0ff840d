#include "job/check.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_MAX = 32 };

/* As its author wrote it: -0.01, and not the float that is nearest to it. */
static const char *show_number(double value, char out[SHOWN_MAX])
{
    bool single = (double)(float)value == value;
    snprintf(out, SHOWN_MAX, isnan(value) ? "nan" : "%g", value);
    for (int digits = 6; digits <= 17 && isfinite(value); digits++) {
        snprintf(out, SHOWN_MAX, "%.*g", digits, value);
        if (single ? strtof(out, NULL) == (float)value : strtod(out, NULL) == value)
            break;
    }
    return out;
}

int check_finite(const char *field, double value, struct err *err)
{
    char shown[SHOWN_MAX];
    if (isfinite(value))
        return OK;
    return err_set(err, ERR_INPUT, "%s: must be a finite number, is %s", field,
                   show_number(value, shown));
}

int check_range(const char *field, double value, double low, double high, struct err *err)
{
    char least[SHOWN_MAX], most[SHOWN_MAX], shown[SHOWN_MAX];
    if (value >= low && value <= high)
        return OK;
    return err_set(err, ERR_INPUT, "%s: must be from %s to %s, is %s", field,
                   show_number(low, least), show_number(high, most), show_number(value, shown));
}

int check_positive(const char *field, double value, struct err *err)
{
    char shown[SHOWN_MAX];
    if (value > 0 && isfinite(value))
        return OK;
    if (value > 0)
        return check_finite(field, value, err);
    return err_set(err, ERR_INPUT, "%s: must be > 0, is %s", field, show_number(value, shown));
}

int check_not_negative(const char *field, double value, struct err *err)
{
    char shown[SHOWN_MAX];
    if (value >= 0 && isfinite(value))
        return OK;
    if (value > 0)
        return check_finite(field, value, err);
    return err_set(err, ERR_INPUT, "%s: must be >= 0, is %s", field, show_number(value, shown));
}

int check_wait(const char *field, double value, struct err *err)
{
    char shown[SHOWN_MAX];
    int rc = check_not_negative(field, value, err);
    if (rc != OK || value <= 1e9)
        return rc;
    return err_set(err, ERR_INPUT, "%s: must be at most 1e9 seconds, is %s", field,
                   show_number(value, shown));
}

int check_fraction(const char *field, double value, struct err *err)
{
    char shown[SHOWN_MAX];
    if (value >= 0 && value < 1)
        return OK;
    return err_set(err, ERR_INPUT, "%s: must be >= 0 and < 1, is %s", field,
                   show_number(value, shown));
}

int check_given(const char *field, int given, struct err *err)
{
    if (given)
        return OK;
    return err_set(err, ERR_INPUT, "%s: is missing", field);
}

int check_remedied(int rc, const char *remedy, struct err *err)
{
    size_t n = err ? strlen(err->text) : 0;
    if (rc != OK && err)
        snprintf(err->text + n, sizeof err->text - n, "%s", remedy);
    return rc;
}
