/* A net in Caffe's text, of either syntax: read, written and read again, planned, and where it is
 * small, trained a step. */
#include "support/fuzz.h"

#include "model/load.h"

#define NAME "in.prototxt"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    Caffe__NetParameter *net = NULL;
    struct err err = {0};
    fuzz_files_clear();
    fuzz_file(NAME, bytes, n);
    int rc = model_load_prototxt(NAME, &net, &err);
    fuzz_judge(rc, &err, NAME);
    if (rc != OK)
        return 0;
    fuzz_text(&net->base);
    fuzz_net(net);
    caffe__net_parameter__free_unpacked(net, NULL);
    return 0;
}
