#include "data/source.h"

#include "data/source_idx.h"

int source_open(const Paceline__Data *spec, struct source **out, struct err *err)
{
    switch (spec->source_case) {
    case PACELINE__DATA__SOURCE_IDX: return source_idx_open(spec->idx, out, err);
    default: return err_set(err, ERR_INPUT, "data: no source is set; there is: idx");
    }
}

void source_close(struct source *source)
{
    if (source)
        source->ops->close(source);
}
