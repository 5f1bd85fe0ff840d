#include "cli/data_pack.h"

#include "cli/cli.h"
#include "cli/data_progress.h"
#include "cli/number.h"
#include "cli/output.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>

static void print_json(const pl_data_packed *packed)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "records", (double)packed->records);
    cJSON_AddNumberToObject(object, "shards", packed->shards);
    cJSON_AddNumberToObject(object, "bytes", (double)packed->bytes);
    cJSON_AddStringToObject(object, "spec", packed->spec);
    char *text = cJSON_PrintUnformatted(object);
    printf("%s\n", text ? text : "{}");
    cJSON_free(text);
    cJSON_Delete(object);
}

int data_pack(pl_engine *engine, const char *spec, const struct data_pack_options *options)
{
    const pl_data_packing packing = {.size = sizeof packing,
                                     .prefix = options->prefix,
                                     .shard_bytes = options->shard_bytes,
                                     .replace = options->force,
                                     .progress = data_progress_report};
    pl_data *data = NULL;
    pl_data_packed packed;
    int rc = pl_data_open(engine, spec, options->training, &data);
    data_progress_begin();
    if (rc == PL_OK)
        rc = pl_data_pack(data, &packing, &packed);
    output_finish();
    pl_data_close(data);
    if (rc == PL_ERR_STOP) {
        output_line("interrupted: no shard is left");
        return EXIT_INTERRUPTED;
    }
    if (rc != PL_OK)
        return cli_fail(engine, rc);
    if (options->json)
        print_json(&packed);
    else
        printf("packed     %zu record%s, %" PRIu64 " bytes, %" PRIu32 " shard%s\nSPEC       %s\n",
               packed.records, number_plural((double)packed.records, "s"), packed.bytes,
               packed.shards, number_plural(packed.shards, "s"), packed.spec);
    return EXIT_DONE;
}
