#include "train/greeting.h"

#include "wire/catalogue.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void welcome_encode(const struct welcome *welcome, struct buf *out)
{
    buf_put_u8(out, welcome->busy_hosts);
    buf_put_u8(out, welcome->resumes);
    buf_put_u8(out, welcome->traces);
    buf_put_text(out, welcome->job);
    buf_put_text(out, welcome->folder ? welcome->folder : "");
}

/* A text of any length that is in bounds. NULL: it is cut short, or there is no memory for it. */
static char *take_text(struct cut *in, int *rc)
{
    uint32_t len = cut_u32(in);
    const char *text = cut_take(in, len);
    char *copy = text ? malloc((size_t)len + 1) : NULL;
    if (!copy) {
        *rc = text ? ERR_NOMEM : ERR_PROTOCOL;
        return NULL;
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

int welcome_decode(struct cut *in, struct welcome *out)
{
    bool busy = cut_u8(in) != 0;
    bool resumes = cut_u8(in) != 0;
    bool traces = cut_u8(in) != 0;
    int rc = OK;
    char *job = take_text(in, &rc);
    char *folder = job ? take_text(in, &rc) : NULL;
    if (rc == OK && !cut_done(in))
        rc = ERR_PROTOCOL;
    if (rc != OK) {
        free(job);
        free(folder);
        return rc;
    }
    *out = (struct welcome){job, folder, busy, resumes, traces};
    return OK;
}

void welcome_release(struct welcome *welcome)
{
    free(welcome->job);
    free(welcome->folder);
    welcome->job = welcome->folder = NULL;
}

void hello_write(const struct hello *hello, struct buf *out)
{
    buf_put_u32(out, hello->version);
    buf_put_u64(out, hello->job_hash);
    buf_put_u64(out, hello->data_hash);
    buf_put_u64(out, hello->segments_hash);
    buf_put_u32(out, hello->threads);
    buf_put_text(out, hello->isa);
    buf_put_text(out, hello->kernels);
    buf_put_text(out, hello->address);
}

int hello_read(struct cut *in, struct hello *out)
{
    out->version = cut_u32(in);
    out->job_hash = cut_u64(in);
    out->data_hash = cut_u64(in);
    out->segments_hash = cut_u64(in);
    out->threads = cut_u32(in);
    cut_text(in, out->isa, sizeof out->isa);
    cut_text(in, out->kernels, sizeof out->kernels);
    cut_text(in, out->address, sizeof out->address);
    return cut_done(in) ? OK : ERR_PROTOCOL;
}

static int differs(const char *what, uint64_t theirs, uint64_t ours, struct err *err)
{
    return err_set(err, ERR_INPUT, "its %s is %016" PRIx64 ", the driver's %016" PRIx64, what,
                   theirs, ours);
}

int hello_check(const struct hello *hello, const struct hello *own, struct err *err)
{
    if (hello->version != own->version)
        return err_set(err, ERR_INPUT, "it speaks protocol version %u, the driver %u",
                       hello->version, own->version);
    if (hello->job_hash != own->job_hash)
        return differs("job", hello->job_hash, own->job_hash, err);
    if (hello->data_hash != own->data_hash)
        return differs("data", hello->data_hash, own->data_hash, err);
    if (hello->segments_hash != own->segments_hash)
        return differs("net", hello->segments_hash, own->segments_hash, err);
    return OK;
}
