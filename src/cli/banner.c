#include "cli/banner.h"

#include "cli/json_value.h"
#include "cli/number.h"
#include "cli/output.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 256, NUMBER_BYTES = 40 };

/* 431,080 */
static const char *grouped_digits(double value, char out[NUMBER_BYTES])
{
    char digits[NUMBER_BYTES];
    int n = snprintf(digits, sizeof digits, "%.0f", value), used = 0;
    for (int i = 0; i < n && used < NUMBER_BYTES - 2; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
    return out;
}

/* Append a piece to a line. */
__attribute__((format(printf, 2, 3))) static void add_text(char line[LINE_BYTES],
                                                           const char *format, ...)
{
    size_t n = strlen(line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + n, LINE_BYTES - n, format, arguments);
    va_end(arguments);
}

static void print_net(const cJSON *start)
{
    char line[LINE_BYTES] = "", n[NUMBER_BYTES];
    add_text(line, "%s, %s parameter%s", json_text(start, "net"),
             grouped_digits(json_number(start, "parameters"), n),
             number_plural(json_number(start, "parameters"), "s"));
    if (json_number(start, "classes") > 0)
        add_text(line, ", %s class%s", grouped_digits(json_number(start, "classes"), n),
                 number_plural(json_number(start, "classes"), "es"));
    output_line("net         %s", line);
}

static void print_records(const cJSON *start)
{
    static const struct {
        const char *set, *what;
    } sets[] = {{"train", "to train on"}, {"validation", "to validate"}, {"test", "to test"}};
    const cJSON *records = cJSON_GetObjectItemCaseSensitive(start, "records");
    char line[LINE_BYTES] = "", n[NUMBER_BYTES];
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (json_number(records, sets[i].set) > 0)
            add_text(line, "%s%s %s", line[0] ? ", " : "",
                     grouped_digits(json_number(records, sets[i].set), n), sets[i].what);
    output_line("records     %s; each %s", line, json_text(start, "record"));
}

static void print_step(const cJSON *start)
{
    char batch[NUMBER_BYTES], steps[NUMBER_BYTES], who[NUMBER_BYTES];
    double workers = json_number(start, "nodes"), slices = json_number(start, "slices"),
           each = json_number(start, "batch"), epoch = json_number(start, "steps_an_epoch");
    if (cJSON_HasObjectItem(start, "global_batch")) {
        const char *growth = json_text(start, "batch_growth");
        double all = json_number(start, "global_batch");
        output_line("a step      %s record%s, shared out by %.0f worker%s, %s step%s an epoch",
                    grouped_digits(all, batch), number_plural(all, "s"), workers,
                    number_plural(workers, "s"), grouped_digits(epoch, steps),
                    number_plural(epoch, "s"));
        if (growth[0])
            output_line("batch       grows from %s", growth);
        return;
    }
    double replicas = slices > 1 ? workers / slices : workers;
    const char *plural = number_plural(replicas, "s");
    if (slices > 1)
        snprintf(who, sizeof who, "replica%s of %.0f slices", plural, slices);
    else
        snprintf(who, sizeof who, "worker%s", plural);
    output_line("a step      %s record%s x %.0f %s, %s step%s an epoch",
                grouped_digits(each, batch), number_plural(each, "s"), replicas, who,
                grouped_digits(epoch, steps), number_plural(epoch, "s"));
}

static void print_solver(const cJSON *start)
{
    char line[LINE_BYTES] = "";
    add_text(line, "%s", json_text(start, "optimizer"));
    if (cJSON_GetObjectItemCaseSensitive(start, "base_lr"))
        add_text(line, ", rate %g, %s", json_number(start, "base_lr"),
                 json_text(start, "lr_policy"));
    if (json_number(start, "momentum") > 0)
        add_text(line, ", momentum %g", json_number(start, "momentum"));
    output_line("optimizer   %s", line);
}

static void print_end(const cJSON *start)
{
    const cJSON *ends = cJSON_GetObjectItemCaseSensitive(start, "ends");
    char line[LINE_BYTES] = "", n[NUMBER_BYTES];
    const cJSON *end;
    cJSON_ArrayForEach(end, ends)
    {
        bool error = strstr(end->string, "error") != NULL;
        const char *name = strcmp(end->string, "test_error") == 0 ? "a test error" : "an error";
        if (error)
            add_text(line, "%sat %s of %g %%", line[0] ? ", or " : "", name,
                     100 * end->valuedouble);
        else if (strcmp(end->string, "steps") == 0)
            add_text(line, "%safter %s step%s", line[0] ? ", or " : "",
                     grouped_digits(end->valuedouble, n), number_plural(end->valuedouble, "s"));
        else
            add_text(line, "%safter %g %.*s", line[0] ? ", or " : "", end->valuedouble,
                     (int)(strlen(end->string) - (end->valuedouble == 1)), end->string);
    }
    output_line("ends        %s", line);
}

static void print_machine(const cJSON *start)
{
    char line[LINE_BYTES] = "";
    double threads = json_number(start, "threads");
    add_text(line, "%s kernels, %s", json_text(start, "kernels"), json_text(start, "isa"));
    if (threads > 0)
        add_text(line, ", %.0f thread%s a worker", threads, number_plural(threads, "s"));
    output_line("computes    %s", line);
}

void banner_print(const cJSON *start, const char *directory)
{
    const char *settings = json_text(start, "settings");
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(start, "simulated")))
        output_line("simulated   times and speeds are those of the cluster file");
    print_net(start);
    print_records(start);
    print_step(start);
    output_line("strategy    %s%s%s", json_text(start, "strategy"), settings[0] ? ": " : "",
                settings);
    print_solver(start);
    print_end(start);
    print_machine(start);
    if (directory[0])
        output_line("directory   %s", directory);
}
