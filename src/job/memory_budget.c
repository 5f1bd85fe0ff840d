/* A job's memory_budget: "6GiB", "500MB", "1048576", "50%". */
#include "job/job.h"
#include "job/text_number.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *text;
    double bytes;
} units[] = {
    {"", 1},      {"B", 1},      {"kB", 1e3},      {"MB", 1e6},         {"GB", 1e9},
    {"TB", 1e12}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}, {"TiB", 1099511627776.0},
};

static int refuse_text(const char *text, struct err *err)
{
    return err_set(err, ERR_INPUT,
                   "memory_budget: expected bytes, as 6GiB or 500MB, or a share of the free memory "
                   "from 1%% to 100%%, not %.40s",
                   text);
}

/* Bytes of a number with this unit behind it; NaN: there is no such unit. */
static double bytes_of(double number, const char *unit)
{
    unit += strspn(unit, " ");
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(unit, units[i].text) == 0)
            return number * units[i].bytes;
    return NAN;
}

int job_memory_budget(const Paceline__Job *job, uint64_t available, uint64_t *out, struct err *err)
{
    const char *text = job->memory_budget;
    double number = 0;
    *out = 0;
    if (!text || !*text)
        return OK;
    size_t digits = strspn(text, "0123456789.");
    bool read = text_number_double(text, digits, &number);
    bool shares = strcmp(text + digits, "%") == 0;
    double bytes = shares ? number / 100 * (double)available : bytes_of(number, text + digits);
    if (!read || (shares && !(number >= 1 && number <= 100)) || !isfinite(bytes) || bytes > 1e15)
        return refuse_text(text, err);
    if (!shares && bytes < 1 << 20)
        return err_set(err, ERR_INPUT, "memory_budget: %.40s is less than 1 MiB", text);
    *out = bytes < 1 << 20 ? 1 << 20 : (uint64_t)bytes;
    return OK;
}
