/* A safetensors file, with its checksums and without; and the net that it may bring along. */
#include "support/fuzz.h"

#include "model/caffe_convert.h"
#include "model/safetensors.h"

#define NAME "in.safetensors"

static void read_tensors(const struct safetensors *st)
{
    volatile float sink = 0.0f;
    for (size_t i = 0; i < st->n; i++) {
        const struct safetensors_item *item = &st->item[i];
        PL_ASSERT(safetensors_find(st, item->name, NULL) == item->data);
        for (size_t k = 0; k < item->count; k++)
            sink = item->data[k];
    }
    (void)sink;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct safetensors st;
    Caffe__NetParameter *net = NULL;
    struct err err = {0};
    int rc = safetensors_parse(NAME, bytes, n, true, &st, &err);
    fuzz_judge(rc, &err, NAME);
    if (rc == OK)
        safetensors_release(&st);
    rc = safetensors_parse(NAME, bytes, n, false, &st, &err);
    fuzz_judge(rc, &err, NAME);
    if (rc != OK)
        return 0;
    read_tensors(&st);
    rc = caffe_convert_net(NAME, &st, &net, &err);
    fuzz_judge(rc, &err, NAME);
    if (rc == OK)
        caffe__net_parameter__free_unpacked(net, NULL);
    safetensors_release(&st);
    return 0;
}
