#include "cli/run_hosts.h"

#include "cli/json_value.h"
#include "cli/json_write.h"

#include <string.h>

static const double numbers_max = 9007199254740992.0; /* whole numbers below are exact */

static double count_of(const cJSON *event, const char *key)
{
    double value = 0;
    return json_has_number(event, key, &value) && value > 0 && value < numbers_max ? value : 0;
}

static bool is_same(const struct run_host *a, const struct run_host *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->cpu, b->cpu) == 0 && a->cores == b->cores &&
           a->memory == b->memory;
}

void run_hosts_take(struct run_hosts *hosts, int node, const cJSON *event)
{
    struct run_host host = {.cores = count_of(event, "cores"), .memory = count_of(event, "memory")};
    uint32_t i = 0;
    if (node < -1 || node >= RUN_NODES_MAX)
        return;
    snprintf(host.name, sizeof host.name, "%s", json_text(event, "host"));
    snprintf(host.cpu, sizeof host.cpu, "%s", json_text(event, "cpu"));
    if (!host.name[0])
        return;
    while (i < hosts->count && !is_same(&hosts->host[i], &host))
        i++;
    hosts->of[node + 1] = i < RUN_HOSTS_MAX ? i + 1 : 0;
    if (i == hosts->count && i < RUN_HOSTS_MAX)
        hosts->host[hosts->count++] = host;
}

static void put_count(FILE *out, double count)
{
    if (count > 0)
        json_put_number(out, count);
    else
        fputs("null", out);
}

static void put_nodes(FILE *out, const struct run_hosts *hosts, uint32_t host)
{
    struct json_list nodes = {out, true};
    fputc('[', out);
    for (int node = -1; node < RUN_NODES_MAX; node++) {
        if (hosts->of[node + 1] != host + 1)
            continue;
        json_next(&nodes);
        fprintf(out, "%d", node);
    }
    fputc(']', out);
}

void run_hosts_put(FILE *out, const struct run_hosts *hosts)
{
    struct json_list list = {out, true};
    bool used[RUN_HOSTS_MAX + 1] = {false};
    for (int node = -1; node < RUN_NODES_MAX; node++)
        used[hosts->of[node + 1]] = true;
    fputs("\"hosts\":[", out);
    for (uint32_t i = 0; i < hosts->count; i++) {
        const struct run_host *host = &hosts->host[i];
        if (!used[i + 1])
            continue;
        json_next(&list);
        fputc('[', out);
        json_put_text(out, host->name);
        fputc(',', out);
        if (host->cpu[0])
            json_put_text(out, host->cpu);
        else
            fputs("null", out);
        fputc(',', out);
        put_count(out, host->cores);
        fputc(',', out);
        put_count(out, host->memory);
        fputc(',', out);
        put_nodes(out, hosts, i);
        fputc(']', out);
    }
    fputc(']', out);
}
