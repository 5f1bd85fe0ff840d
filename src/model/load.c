#include "model/load.h"

#include "base/file.h"
#include "job/text.h"
#include "model/zoo.h"

static int load_prototxt(const char *path, Caffe__NetParameter **out, struct err *err)
{
    struct file_bytes text;
    int rc = file_read(path, TEXT_BYTES_MAX, &text, err);
    if (rc != OK)
        return rc;
    ProtobufCMessage *msg;
    rc =
        text_parse(&caffe__net_parameter__descriptor, path, (char *)text.data, text.len, &msg, err);
    file_release(&text);
    if (rc == OK)
        *out = (Caffe__NetParameter *)msg;
    return rc;
}

int model_load_net(const Paceline__Net *spec, Caffe__NetParameter **out, struct err *err)
{
    switch (spec->source_case) {
    case PACELINE__NET__SOURCE_ZOO: return zoo_net(spec->zoo, out, err);
    case PACELINE__NET__SOURCE_FILE: return load_prototxt(spec->file, out, err);
    default: return err_set(err, ERR_INPUT, "net: neither zoo nor file is set");
    }
}
