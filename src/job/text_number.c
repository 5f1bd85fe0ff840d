#include "job/text_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_TEXT_MAX = 512 };

bool text_number_integer(const char *s, size_t n, uint64_t *out)
{
    unsigned base = 10;
    if (n > 2 && s[0] == '0' && (s[1] | 0x20) == 'x') {
        base = 16;
        s += 2;
        n -= 2;
    } else if (n > 1 && s[0] == '0') {
        base = 8;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned digit = 99;
        char low = (char)(s[i] | 0x20);
        if (s[i] >= '0' && s[i] <= '9')
            digit = (unsigned)(s[i] - '0');
        else if (low >= 'a' && low <= 'f')
            digit = (unsigned)(low - 'a') + 10;
        if (digit >= base || value > (UINT64_MAX - digit) / base)
            return false;
        value = value * base + digit;
    }
    *out = value;
    return n > 0;
}

/* The decimal point of the process's locale, as the C library writes it; the locale is not ours to
 * change. */
static size_t radix_text(char out[8])
{
    char half[16] = {0};
    int n = snprintf(half, sizeof half, "%.1f", 0.5);
    size_t len = n > 2 && n < 10 ? (size_t)n - 2 : 0;
    memcpy(out, half + 1, len);
    out[len] = '\0';
    return len;
}

static size_t skip_digits(const char *s, size_t n, size_t at)
{
    while (at < n && s[at] >= '0' && s[at] <= '9')
        at++;
    return at;
}

/* Check the grammar and copy the number as the C library reads it. */
static bool decimal_copy(const char *s, size_t n, char out[NUMBER_TEXT_MAX])
{
    char point[8];
    size_t point_len = radix_text(point);
    if (n > 0 && (s[n - 1] | 0x20) == 'f')
        n--;
    if (n == 0 || n + sizeof point >= NUMBER_TEXT_MAX)
        return false;
    size_t whole = skip_digits(s, n, 0), at = whole, fraction = 0;
    memcpy(out, s, whole);
    size_t len = whole;
    if (at < n && s[at] == '.') {
        memcpy(out + len, point, point_len);
        len += point_len;
        size_t end = skip_digits(s, n, at + 1);
        fraction = end - at - 1;
        memcpy(out + len, s + at + 1, fraction);
        len += fraction;
        at = end;
    } else if (whole == n && whole > 1 && s[0] == '0') {
        return false; /* octal */
    }
    if (whole + fraction == 0)
        return false;
    if (at < n && (s[at] | 0x20) == 'e') {
        size_t digits = at + 1;
        if (digits < n && (s[digits] == '+' || s[digits] == '-'))
            digits++;
        size_t end = skip_digits(s, n, digits);
        if (end == digits)
            return false;
        memcpy(out + len, s + at, end - at);
        len += end - at;
        at = end;
    }
    out[len] = '\0';
    return at == n;
}

bool text_number_float(const char *s, size_t n, float *out)
{
    char copy[NUMBER_TEXT_MAX];
    if (!decimal_copy(s, n, copy))
        return false;
    float v = strtof(copy, NULL);
    if (!isfinite(v))
        return false;
    *out = v;
    return true;
}

bool text_number_double(const char *s, size_t n, double *out)
{
    char copy[NUMBER_TEXT_MAX];
    if (!decimal_copy(s, n, copy))
        return false;
    double v = strtod(copy, NULL);
    if (!isfinite(v))
        return false;
    *out = v;
    return true;
}

static bool put_special(struct buf *out, double v)
{
    if (isfinite(v))
        return false;
    buf_printf(out, "%s", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
    return true;
}

static void put_with_dot(struct buf *out, const char *number)
{
    char point[8];
    size_t point_len = radix_text(point);
    const char *at = point_len ? strstr(number, point) : NULL;
    if (!at) {
        buf_printf(out, "%s", number);
        return;
    }
    buf_put(out, number, (size_t)(at - number));
    buf_printf(out, ".%s", at + point_len);
}

void text_number_put_float(struct buf *out, float v)
{
    char number[64];
    if (put_special(out, (double)v))
        return;
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, (double)v);
        if (strtof(number, NULL) == v)
            break;
    }
    put_with_dot(out, number);
}

void text_number_put_double(struct buf *out, double v)
{
    char number[64];
    if (put_special(out, v))
        return;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, v);
        if (strtod(number, NULL) == v)
            break;
    }
    put_with_dot(out, number);
}
