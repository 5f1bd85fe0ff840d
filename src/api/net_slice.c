/* A net of which this process has a slice, and the other members of a team have the others. */
#include "api/data.h"
#include "api/guard.h"
#include "api/net.h"
#include "base/fault.h"
#include "base/minmax.h"
#include "paceline/predict.h"
#include "tensor/codec.h"

#include <stdlib.h>
#include <string.h>

int api_net_whole(const pl_net *net, const char *what, struct err *err)
{
    return net->team ? err_set(err, ERR_UNSUPPORTED,
                               "net: %s needs the whole model, of which this is a slice", what)
                     : OK;
}

int api_net_join(pl_net *net, pl_team *team, struct err *err)
{
    uint32_t members = team ? pl_team_size(team) : 1;
    if (team && !net->inference)
        return err_set(err, ERR_USAGE, "team: a net in slices is for inference");
    if (members == 0)
        return err_set(err, ERR_PEER, "team: it is over");
    net->slice = (struct model_slice){SLICE_ALL, 1};
    if (members == 1)
        return OK;
    net->team = team;
    net->slice = (struct model_slice){pl_team_rank(team), members};
    return OK;
}

/* ---- gathers ---- */

static struct columns columns_of(const pl_net *net, const struct net_point *p, size_t index)
{
    const struct model_slice slice = {index, net->slice.count};
    return net_point_columns(p, &slice);
}

/* The floats of the longest part, rounded up to a block, so that pl_team_part cuts the vector
 * between parts. */
static size_t part_floats(const pl_net *net, const struct net_point *p)
{
    size_t most = 0;
    for (size_t f = 0; f < net->slice.count; f++) {
        const struct columns own = columns_of(net, p, f);
        most = max_size(most, columns_floats(&own));
    }
    return (most + CODEC_BLOCK - 1) / CODEC_BLOCK * CODEC_BLOCK;
}

static int reserve_parts(pl_net *net, size_t floats)
{
    if (floats <= net->room)
        return OK;
    float *parts = realloc(net->parts, floats * sizeof *parts);
    if (!parts)
        return ERR_NOMEM;
    memset(parts + net->room, 0, (floats - net->room) * sizeof *parts);
    net->parts = parts;
    net->room = floats;
    return OK;
}

/* One that may last while the pass continues is over when it begins. */
static int gather_blob(void *user, const struct net_point *p)
{
    pl_net *net = user;
    size_t count = net->slice.count, part = part_floats(net, p);
    if (p->meeting == NET_GATHER_ENDS)
        return OK;
    PL_ASSERT(p->meeting == NET_GATHER || p->meeting == NET_GATHER_BEGINS);
    int rc = reserve_parts(net, part * count);
    if (rc != OK)
        return rc;
    if (pl_team_size(net->team) != count || pl_team_rank(net->team) != net->slice.index)
        return ERR_PEER;
    const struct columns own = columns_of(net, p, net->slice.index);
    columns_get(&own, p->values, net->parts + part * net->slice.index);
    if (pl_team_part(part * count, (uint32_t)count, 1) != part)
        return ERR_BUG;
    rc = pl_team_all_gather(net->team, net->parts, part * count, NULL);
    for (size_t f = 0; rc == OK && f < count; f++) {
        const struct columns columns = columns_of(net, p, f);
        if (f != net->slice.index)
            columns_put(&columns, net->parts + part * f, p->values);
    }
    return rc;
}

/* A gather writes no message. A net whose pass has failed once cannot be used any more: its members
 * may stand at different gathers. */
static int end_pass(pl_net *net, int rc, struct err *err)
{
    if (rc == OK || !net->team)
        return rc;
    net->broken = true;
    if (rc == err->status)
        return rc;
    if (rc == ERR_NOMEM)
        return err_set(err, rc, "net: out of memory for the values that slices gather");
    return err_set(err, rc, "net: a slice of the model is lost: %s", pl_team_error(net->team, 0));
}

static int begin_pass(const pl_net *net, struct err *err)
{
    err->status = OK;
    return net->broken ? err_set(err, ERR_PEER,
                                 "net: an earlier call failed, and so the slices of the model do "
                                 "not fit together any more: make the net again, in a new team")
                       : OK;
}

int api_net_evaluate(pl_net *net, const struct dataset *set, size_t count, struct net_result *sum)
{
    const struct slice_meeting meeting = {gather_blob, net, true};
    struct err *err = &net->engine->error;
    int rc = begin_pass(net, err);
    if (rc != OK)
        return rc;
    rc = workspace_evaluate_slice(net->ws, set, 0, count, &net->learner.x, &net->learner.s,
                                  net->team ? &meeting : NULL, sum, err);
    return end_pass(net, rc, err);
}

int api_net_pass(pl_net *net, const struct net_batch *batch, struct err *err)
{
    const struct slice_meeting meeting = {gather_blob, net, true};
    struct net_result ignored;
    int rc = begin_pass(net, err);
    if (rc != OK)
        return rc;
    rc = workspace_pass(net->ws, &net->learner.x, &net->learner.s, batch,
                        net->team ? &meeting : NULL, &ignored);
    return end_pass(net, rc, err);
}

/* The members read a part of the records each, which all of them then have. */
static int read_records(pl_net *net, pl_data *data, size_t first, size_t count, float *out,
                        size_t room)
{
    struct err *err = &net->engine->error;
    if (!net->team)
        return pl_data_read(data, first, count, out, room);
    int rc = begin_pass(net, err);
    if (rc == OK)
        rc = api_data_check(data, first, count, room); /* as on all members */
    if (rc != OK)
        return rc;
    size_t each = shape_count(&data->set.shape);
    struct range own = slice_units(&net->slice, count);
    rc = pl_data_read(data, first + own.from, own.len, out + own.from * each, own.len * each);
    const struct net_point records = {
        .meeting = NET_GATHER, .values = out, .rows = 1, .outputs = count, .each = each};
    if (rc == OK)
        rc = gather_blob(net, &records);
    return end_pass(net, rc, err);
}

int pl_net_read(pl_net *net, pl_data *data, size_t first, size_t count, float *out, size_t room)
{
    RETURN_GUARDED(net->engine, read_records(net, data, first, count, out, room));
}

int api_net_draw(pl_net *net, const struct text_request *request, struct buf *text, struct err *err)
{
    const struct slice_meeting meeting = {gather_blob, net, true};
    int rc = begin_pass(net, err);
    if (rc != OK)
        return rc;
    rc = text_sampler_draw(net->sampler, &net->learner.x, &net->learner.s, request,
                           net->team ? &meeting : NULL, text, err);
    return end_pass(net, rc, err);
}
