/* Checks of numbers in jobs and clusters, with one wording. Each returns OK or ERR_INPUT naming the
 * field, its limit and its value. A number that is not finite passes none of them. Internal to
 * job. */
#ifndef PL_JOB_CHECK_H
#define PL_JOB_CHECK_H

#include "base/err.h"

int check_range(const char *field, double value, double low, double high, struct err *err);
int check_positive(const char *field, double value, struct err *err);
int check_not_negative(const char *field, double value, struct err *err);
int check_wait(const char *field, double value, struct err *err); /* seconds, up to 1e9 */
int check_finite(const char *field, double value, struct err *err);
/* 0 <= value < 1 */
int check_fraction(const char *field, double value, struct err *err);

/* A field that must be given: "FIELD: is missing" unless `given`. */
int check_given(const char *field, int given, struct err *err);

/* `rc` of a check, with `remedy` at the end of its message where it failed: "; --unset stop.steps
 * takes it away". */
int check_remedied(int rc, const char *remedy, struct err *err);

#endif
