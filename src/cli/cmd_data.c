/* `paceline data`: the number and shape of records, the first records, statistics of their
 * values; and the parsing for those that have files of their own. */
#include "cli/cli.h"
#include "cli/data_pack.h"
#include "cli/data_verify.h"
#include "cli/number.h"
#include "paceline/data.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_RECORDS = 10, SHEET_RECORDS = 64, SHEET_CELL = 64, CLASSES_SHOWN = 40 };

struct data_arguments {
    const char *first, *sheet, *columns, *side, *problems, *shard_bytes;
    bool training, force, json;
    size_t problems_n;
    size_t first_n; /* the numbers of the texts above; 0: not given */
    uint32_t columns_n, side_n;
    uint64_t shard_bytes_n;
};

#define DATA_OPTION(name, kind, value, help, field)                     \
    {                                                                   \
        name, kind, value, help, offsetof(struct data_arguments, field) \
    }

static const struct option data_options[] = {
    DATA_OPTION("training", OPTION_FLAG, NULL,
                "of a folder of CIFAR, the training set (verify: both)", training),
    DATA_OPTION("first", OPTION_TEXT, "N", "the first N records (head: 10; stats: all)", first),
    DATA_OPTION("sheet", OPTION_TEXT, "FILE", "head: a PNG that shows them (64 of them)", sheet),
    DATA_OPTION("force", OPTION_FLAG, NULL, "replace that FILE, or those shards, where they exist",
                force),
    DATA_OPTION("columns", OPTION_TEXT, "N", "number of columns (a square)", columns),
    DATA_OPTION("side", OPTION_TEXT, "PIXELS", "each so large (64)", side),
    DATA_OPTION("max-problems", OPTION_TEXT, "N", "verify: list at most N (all)", problems),
    DATA_OPTION("shard-bytes", OPTION_TEXT, "N",
                "pack: a shard ends with the record by which it has N bytes (1 GiB)", shard_bytes),
    DATA_OPTION("json", OPTION_FLAG, NULL, "print JSON, one object a line, on stdout", json),
    {0},
};

/* ---- what all print ---- */

/* Takes it. cJSON gives NULL when memory runs out, and takes it as well. */
static void print_json(cJSON *object)
{
    char *text = cJSON_PrintUnformatted(object);
    printf("%s\n", text ? text : "{}");
    cJSON_free(text);
    cJSON_Delete(object);
}

struct balance {
    uint64_t least, most;
};

static struct balance balance_of(const uint64_t *of_class, uint32_t classes)
{
    struct balance b = {UINT64_MAX, 0};
    for (uint32_t c = 0; c < classes; c++) {
        b.least = of_class[c] < b.least ? of_class[c] : b.least;
        b.most = of_class[c] > b.most ? of_class[c] : b.most;
    }
    return b;
}

static void add_classes(cJSON *object, const pl_data *data, const uint64_t *of_class,
                        uint32_t classes)
{
    cJSON_AddNumberToObject(object, "classes", (double)classes);
    if (classes == 0)
        return;
    struct balance b = balance_of(of_class, classes);
    cJSON *counts = cJSON_AddArrayToObject(object, "count"), *names = NULL;
    for (uint32_t c = 0; c < classes; c++) {
        const char *name = pl_data_class_name(data, c);
        cJSON_AddItemToArray(counts, cJSON_CreateNumber((double)of_class[c]));
        if (c == 0 && name)
            names = cJSON_AddArrayToObject(object, "names");
        if (names)
            cJSON_AddItemToArray(names, name ? cJSON_CreateString(name) : cJSON_CreateNull());
    }
    cJSON_AddNumberToObject(object, "least", (double)b.least);
    cJSON_AddNumberToObject(object, "most", (double)b.most);
    if (b.least > 0)
        cJSON_AddNumberToObject(object, "ratio", (double)b.most / (double)b.least);
    else
        cJSON_AddNullToObject(object, "ratio");
}

static void print_classes(const pl_data *data, const uint64_t *of_class, uint32_t classes)
{
    if (classes == 0)
        return;
    struct balance b = balance_of(of_class, classes);
    printf("classes    %" PRIu32 ", of %" PRIu64 " to %" PRIu64 " record%s", classes, b.least,
           b.most, number_plural((double)b.most, "s"));
    if (b.least > 0)
        printf(", %.2f to 1\n", (double)b.most / (double)b.least);
    else
        printf("; some have none\n");
    for (uint32_t c = 0; c < classes && c < CLASSES_SHOWN; c++) {
        const char *name = pl_data_class_name(data, c);
        printf("%9" PRIu32 "  %8" PRIu64 "%s%s\n", c, of_class[c], name ? "  " : "",
               name ? name : "");
    }
    if (classes > CLASSES_SHOWN)
        printf("           and %" PRIu32 " more; --json has them all\n", classes - CLASSES_SHOWN);
}

/* ---- info ---- */

static cJSON *range_json(uint32_t least, uint32_t most)
{
    cJSON *range = cJSON_CreateArray();
    cJSON_AddItemToArray(range, cJSON_CreateNumber(least));
    cJSON_AddItemToArray(range, cJSON_CreateNumber(most));
    return range;
}

static void info_json(const pl_data *data, const pl_data_info *info)
{
    char hash[24];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "kind", info->kind);
    cJSON_AddNumberToObject(object, "records", (double)info->records);
    cJSON_AddNumberToObject(object, "channels", info->channels);
    cJSON_AddItemToObject(object, "height", range_json(info->height_min, info->height_max));
    cJSON_AddItemToObject(object, "width", range_json(info->width_min, info->width_max));
    if (info->mapped) {
        cJSON *shape = cJSON_AddArrayToObject(object, "shape");
        for (int i = 0; i < 3; i++)
            cJSON_AddItemToArray(shape, cJSON_CreateNumber(info->shape[i]));
    }
    add_classes(object, data, info->of_class, info->classes);
    if (info->values > 0)
        cJSON_AddNumberToObject(object, "values", info->values);
    cJSON_AddNumberToObject(object, "bytes", (double)info->bytes);
    snprintf(hash, sizeof hash, "%016" PRIx64, info->hash);
    cJSON_AddStringToObject(object, "hash", hash);
    print_json(object);
}

/* "28" or "75 to 1200" */
static const char *range_text(uint32_t least, uint32_t most, char out[40])
{
    if (least == most)
        snprintf(out, 40, "%" PRIu32, least);
    else
        snprintf(out, 40, "%" PRIu32 " to %" PRIu32, least, most);
    return out;
}

static int print_info(pl_data *data, const struct data_arguments *a)
{
    pl_data_info info;
    char high[40], wide[40];
    int rc = pl_data_describe(data, &info);
    if (rc != PL_OK)
        return rc;
    if (a->json) {
        info_json(data, &info);
        return rc;
    }
    printf("kind       %s\n", info.kind);
    printf("records    %zu\n", info.records);
    printf("record     %" PRIu32 " channel%s, %s high, %s wide\n", info.channels,
           number_plural(info.channels, "s"), range_text(info.height_min, info.height_max, high),
           range_text(info.width_min, info.width_max, wide));
    if (info.mapped)
        printf("mapped     %" PRIu32 " x %" PRIu32 " x %" PRIu32 "\n", info.shape[0], info.shape[1],
               info.shape[2]);
    if (info.values > 0)
        printf("values     0 to %" PRIu32 "\n", info.values - 1);
    printf("bytes      %" PRIu64 "\n", info.bytes);
    printf("hash       %016" PRIx64 "\n", info.hash);
    print_classes(data, info.of_class, info.classes);
    printf("checked    headers and the first record; paceline data verify decodes all\n");
    return rc;
}

/* ---- head ---- */

static void record_json(size_t i, const pl_data_record *record)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "record", (double)i);
    if (record->has_label)
        cJSON_AddNumberToObject(object, "label", record->label);
    if (record->class_name)
        cJSON_AddStringToObject(object, "class", record->class_name);
    cJSON_AddNumberToObject(object, "height", record->height);
    cJSON_AddNumberToObject(object, "width", record->width);
    if (record->name[0])
        cJSON_AddStringToObject(object, "name", record->name);
    print_json(object);
}

static int print_head(pl_data *data, const struct data_arguments *a)
{
    pl_data_info info;
    pl_data_record record;
    size_t first = a->first_n ? a->first_n : a->sheet ? SHEET_RECORDS : HEAD_RECORDS;
    int widest = 5, rc = pl_data_describe(data, &info);
    first = rc == PL_OK && first > info.records ? info.records : first;
    if (rc == PL_OK && a->sheet)
        rc = pl_data_sheet(data, first, a->columns_n, a->side_n ? a->side_n : SHEET_CELL, a->sheet,
                           a->force);
    for (size_t i = 0; rc == PL_OK && i < first; i++) {
        rc = pl_data_record_at(data, i, &record);
        int length = rc == PL_OK && record.class_name ? (int)strlen(record.class_name) : 0;
        widest = length > widest ? length : widest;
    }
    if (rc == PL_OK && !a->json)
        printf("%8s  %6s  %-*s  %6s  %6s  %s\n", "record", "label", widest, "class", "high", "wide",
               "name");
    for (size_t i = 0; rc == PL_OK && i < first; i++) {
        char label[16] = "-";
        rc = pl_data_record_at(data, i, &record);
        if (rc == PL_OK && record.has_label)
            snprintf(label, sizeof label, "%" PRIu32, record.label);
        if (rc == PL_OK && a->json)
            record_json(i, &record);
        else if (rc == PL_OK)
            printf("%8zu  %6s  %-*s  %6" PRIu32 "  %6" PRIu32 "  %s\n", i, label, widest,
                   record.class_name ? record.class_name : "-", record.height, record.width,
                   record.name[0] ? record.name : "-");
    }
    return rc;
}

/* ---- stats ---- */

/* Maps that bring the values to mean 0 in each channel and, over all of them, deviation 1. */
struct suggestion {
    char job[512], spec[512]; /* in a job's form, and in a SPEC's */
};

static struct suggestion suggest_maps(const pl_data_stats *stats)
{
    struct suggestion s = {{0}, {0}};
    double variance = 0;
    bool one = true; /* one mean will do */
    size_t used = 0, also = 0;
    for (uint32_t c = 0; c < stats->channels; c++) {
        const pl_data_channel *channel = &stats->channel[c];
        variance += channel->deviation * channel->deviation / stats->channels;
        one = one && channel->mean == stats->channel[0].mean;
    }
    for (uint32_t c = 0; c < (one ? 1 : stats->channels) && used < sizeof s.job - 64; c++) {
        used += (size_t)snprintf(s.job + used, sizeof s.job - used, "mean: %.6g ",
                                 stats->channel[c].mean);
        also += (size_t)snprintf(s.spec + also, sizeof s.spec - also, "%s%.6g",
                                 c ? "," : "?mean=", stats->channel[c].mean);
    }
    double scale = variance > 0 ? 1 / sqrt(variance) : 1;
    snprintf(s.job + used, sizeof s.job - used, "scale: %.6g", scale);
    snprintf(s.spec + also, sizeof s.spec - also, "&scale=%.6g", scale);
    return s;
}

static void stats_json(const pl_data *data, const pl_data_stats *stats, const struct suggestion *s)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "records", (double)stats->records);
    cJSON *channels = cJSON_AddArrayToObject(object, "channels");
    for (uint32_t c = 0; c < stats->channels; c++) {
        cJSON *channel = cJSON_CreateObject();
        cJSON_AddNumberToObject(channel, "mean", stats->channel[c].mean);
        cJSON_AddNumberToObject(channel, "deviation", stats->channel[c].deviation);
        cJSON_AddNumberToObject(channel, "least", stats->channel[c].least);
        cJSON_AddNumberToObject(channel, "most", stats->channel[c].most);
        cJSON_AddItemToArray(channels, channel);
    }
    add_classes(object, data, stats->of_class, stats->classes);
    if (s) {
        cJSON_AddStringToObject(object, "job", s->job);
        cJSON_AddStringToObject(object, "maps", s->spec);
    }
    print_json(object);
}

static int print_stats(pl_data *data, const struct data_arguments *a)
{
    pl_data_stats stats;
    int rc = pl_data_measure(data, a->first_n, &stats);
    if (rc != PL_OK)
        return rc;
    struct suggestion s = suggest_maps(&stats);
    if (a->json) {
        stats_json(data, &stats, stats.scaled ? NULL : &s);
        return rc;
    }
    printf("records    %zu\n", stats.records);
    printf("%9s  %11s  %11s  %9s  %9s\n", "channel", "mean", "deviation", "least", "most");
    for (uint32_t c = 0; c < stats.channels; c++)
        printf("%9" PRIu32 "  %11.6g  %11.6g  %9.6g  %9.6g\n", c, stats.channel[c].mean,
               stats.channel[c].deviation, stats.channel[c].least, stats.channel[c].most);
    if (!stats.scaled)
        printf("in a job   %s\nin a SPEC  %s\n", s.job, s.spec);
    print_classes(data, stats.of_class, stats.classes);
    return rc;
}

static int print_index(pl_data *data, const struct data_arguments *a)
{
    uint32_t archives;
    int rc = pl_data_index(data, &archives);
    if (rc == PL_OK && a->json)
        printf("{\"archives\":%" PRIu32 "}\n", archives);
    else if (rc == PL_OK)
        printf("indexed    %" PRIu32 " archive%s\n", archives,
               number_plural((double)archives, "s"));
    return rc;
}

/* ---- the command ---- */

static const struct look {
    const char *name;
    int (*print)(pl_data *data, const struct data_arguments *a); /* NULL: in a file of its own */
} looks[] = {{"info", print_info},   {"head", print_head}, {"stats", print_stats},
             {"index", print_index}, {"verify", NULL},     {"pack", NULL}};

static bool is_called(const struct look *look, const char *name)
{
    return strcmp(look->name, name) == 0;
}

static int usage_error(const char *text)
{
    fprintf(stderr, "paceline data: %s; see paceline data --help\n", text);
    return EXIT_BAD_INPUT;
}

/* 0 when it is not given; false when it is not finite from 1 to `max`. */
static bool read_count(const char *text, unsigned long max, unsigned long *out)
{
    char *end = NULL;
    *out = text ? strtoul(text, &end, 10) : 0;
    return !text || (text[0] >= '0' && text[0] <= '9' && !*end && *out >= 1 && *out <= max);
}

/* Parse the numbers among the options, and check which options may be combined. -1 to continue, or
 * the exit code. */
static int check_options(struct data_arguments *a, const struct look *look)
{
    unsigned long first, columns, side, problems, shard_bytes;
    if (!read_count(a->first, UINT32_MAX, &first))
        return usage_error("--first must be a number from 1 to 4294967295");
    if (!read_count(a->problems, UINT32_MAX, &problems))
        return usage_error("--max-problems must be a number from 1 to 4294967295");
    if (!read_count(a->shard_bytes, 1ul << 62, &shard_bytes))
        return usage_error("--shard-bytes must be a number of bytes, of 1 or more");
    if (a->problems && !is_called(look, "verify"))
        return usage_error("--max-problems is for verify");
    if (a->shard_bytes && !is_called(look, "pack"))
        return usage_error("--shard-bytes is for pack");
    if (!read_count(a->columns, 4096, &columns))
        return usage_error("--columns must be a number from 1 to 4096");
    if (!read_count(a->side, 1024, &side) || (a->side && side < 8))
        return usage_error("--side must be a number from 8 to 1024");
    if (a->first && look->print != print_head && look->print != print_stats)
        return usage_error("--first is for head and stats");
    if (a->sheet && look->print != print_head)
        return usage_error("--sheet is for head");
    if ((a->columns || a->side) && !a->sheet)
        return usage_error("--columns and --side are for --sheet");
    if (a->force && !a->sheet && !is_called(look, "pack"))
        return usage_error("--force is for --sheet and for pack");
    a->first_n = first;
    a->problems_n = problems;
    a->shard_bytes_n = shard_bytes;
    a->columns_n = (uint32_t)columns;
    a->side_n = (uint32_t)side;
    return -1;
}

static int look_at(pl_engine *engine, const struct look *look, const char *spec,
                   const struct data_arguments *a)
{
    pl_data *data = NULL;
    int rc = pl_data_open(engine, spec, a->training, &data);
    if (rc == PL_OK)
        rc = look->print(data, a);
    pl_data_close(data);
    return rc == PL_OK ? EXIT_DONE : cli_fail(engine, rc);
}

/* Looks that have a file of their own. */
static int run_look(pl_engine *engine, const struct look *look, const char *const *given,
                    const struct data_arguments *a)
{
    const struct data_pack_options pack = {given[2], a->shard_bytes_n, a->training, a->force,
                                           a->json};
    return is_called(look, "pack")
               ? data_pack(engine, given[1], &pack)
               : data_verify(engine, given[1], a->training, a->problems_n, a->json);
}

static int run_data(const struct command *command, int argc, char **argv)
{
    struct data_arguments a = {0};
    const char *given[3] = {0};
    const struct look *look = NULL;
    size_t count;
    int end = options_parse(command, argc, argv, &a, given, 3, &count);
    if (end >= 0)
        return end;
    for (size_t i = 0; given[0] && i < sizeof looks / sizeof *looks; i++)
        if (strcmp(given[0], looks[i].name) == 0)
            look = &looks[i];
    if (!look) {
        fprintf(
            stderr,
            "paceline data: %s: expected info, head, stats, index, verify or pack; see paceline "
            "data --help\n",
            given[0] ? given[0] : "what?");
        return EXIT_BAD_INPUT;
    }
    if (!given[1])
        return usage_error("which records? give a SPEC, KIND:PATH");
    if (is_called(look, "pack") != (given[2] != NULL))
        return usage_error(given[2]
                               ? "unexpected argument behind the SPEC"
                               : "where to? give a PREFIX; shards are PREFIX-00000.shard, ...");
    end = check_options(&a, look);
    if (end >= 0)
        return end;
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    int code =
        look->print ? look_at(engine, look, given[1], &a) : run_look(engine, look, given, &a);
    pl_engine_destroy(engine);
    return code;
}

const struct command cmd_data = {
    .name = "data",
    .summary =
        "Inspect records: number and shape, the first of them, mean and deviation, broken ones; "
        "pack them into shards",
    .arguments = "info|head|stats|index|verify SPEC, or pack SPEC PREFIX",
    .options = data_options,
    .run = run_data,
};
