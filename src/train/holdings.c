#include "train/holdings.h"

#include "base/array.h"
#include "base/fault.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KNOWN_MAX = 65536 };

void holdings_release(struct holdings *book)
{
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++)
        free(book->worker[node]);
    free(book->known);
    free(book->past);
    *book = (struct holdings){.known = NULL};
}

/* ---- who has what ---- */

/* The index of a holding, which is added if it is new; SIZE_MAX: no memory, or too many. */
static size_t find_or_add(struct holdings *book, const struct holding *holding)
{
    for (size_t k = 0; k < book->count; k++)
        if (book->known[k].is.hash == holding->hash &&
            (book->known[k].is.count == holding->count || book->known[k].is.grows ||
             holding->grows)) {
            book->known[k].is.grows |= holding->grows;
            return k;
        }
    if (book->count == KNOWN_MAX ||
        !array_grow(&book->known, book->count, &book->room, sizeof *book->known))
        return SIZE_MAX;
    book->known[book->count] = (struct known_holding){.is = *holding};
    return book->count++;
}

static void grow_holding(struct holding *is, uint64_t records)
{
    if (is->grows && records > is->count && records <= UINT32_MAX)
        is->count = records;
}

/* The worker, which has another holding, owns it; its data is described as that which it had. */
static void own_holding(struct holdings *book, uint32_t node, size_t k, const char *path,
                        const char *host)
{
    struct known_holding *known = &book->known[k];
    struct worker_holdings *own = book->worker[node];
    own->index[own->count++] = (uint32_t)k;
    known->owner = node;
    members_add(&known->owners, node);
    snprintf(known->path, sizeof known->path, "%s", path);
    snprintf(known->host, sizeof known->host, "%s", host);
}

int holdings_add(struct holdings *book, uint32_t node, const struct hello_records *records,
                 const char *host)
{
    const struct hello_local *local = &records->local;
    PL_ASSERT(node < VIEW_MEMBERS_MAX);
    if (book->worker[node])
        return OK;
    struct worker_holdings *own = calloc(1, sizeof *own);
    if (!own)
        return ERR_NOMEM;
    book->worker[node] = own;
    for (uint32_t i = 0; i < local->holdings; i++) {
        size_t k = find_or_add(book, &local->holding[i]);
        if (k == SIZE_MAX)
            return ERR_NOMEM;
        grow_holding(&book->known[k].is, local->holding[i].count);
        own_holding(book, node, k, records->train.path, host);
    }
    return OK;
}

/* Which of the worker's holdings is holding k? Its count: none. */
static uint32_t place_of(const struct worker_holdings *own, size_t k)
{
    uint32_t i = 0;
    while (i < own->count && own->index[i] != k)
        i++;
    return i;
}

/* The samples that a worker of an earlier driver took are its own count if it is still there. */
static void settle_past(struct holdings *book, const struct view *view)
{
    for (size_t i = 0; i < book->pasts; i++) {
        const struct past_taking *past = &book->past[i];
        struct worker_holdings *own = book->worker[past->node];
        uint32_t at = own ? place_of(own, past->k) : 0;
        if (view->number > 1 && own && at < own->count)
            own->taken[at] = past->taken;
        else
            book->known[past->k].before += past->taken;
    }
    book->pasts = 0;
}

void holdings_process_view(struct holdings *book, const struct view *view)
{
    if (book->view == 0)
        settle_past(book, view);
    const struct members here = view_members(view);
    for (size_t k = 0; k < book->count; k++) {
        const struct members owners = members_intersection(&book->known[k].owners, &here);
        book->known[k].served = !members_empty(&owners);
    }
    book->view = view->number;
    book->here = book->unsent = here;
    if (book->epoch_records == 0)
        for (size_t k = 0; k < book->count; k++)
            book->epoch_records += book->known[k].is.count;
}

size_t holdings_share(const struct holdings *book, const struct view *view, uint32_t node,
                      struct range share[HOLDINGS_MAX])
{
    const struct worker_holdings *own = book->worker[node];
    const struct members here = view_members(view);
    PL_ASSERT(own && members_has(&here, node));
    for (uint32_t h = 0; h < own->count; h++) {
        const struct known_holding *known = &book->known[own->index[h]];
        const struct members owners = members_intersection(&known->owners, &here);
        uint64_t n = known->is.count, of = members_count(&owners);
        uint64_t rank = members_rank(&owners, node);
        size_t from = (size_t)(n * rank / of), to = (size_t)(n * (rank + 1) / of);
        PL_ASSERT(rank < of);
        share[h] = (struct range){.from = from, .len = to - from};
    }
    return own->count;
}

/* ---- counts ---- */

/* A worker may have the same records twice. */
static uint64_t taken_by(const struct worker_holdings *own, size_t k)
{
    uint64_t taken = 0;
    for (uint32_t i = 0; i < own->count; i++)
        taken += own->index[i] == k ? own->taken[i] : 0;
    return taken;
}

/* Holdings that a worker has by now beyond those that it had. false: they are none, or there is no
 * memory, and the next report tries again. */
static bool add_later(struct holdings *book, uint32_t node, const struct holding_use *use,
                      uint32_t count)
{
    struct worker_holdings *own = book->worker[node];
    for (uint32_t i = own->count; i < count; i++)
        if (use[i].records == 0 || use[i].records > UINT32_MAX)
            return false;
    while (own->count < count) {
        const struct holding_use *later = &use[own->count];
        const struct holding holding = {later->hash, later->records, false};
        size_t k = find_or_add(book, &holding);
        if (k == SIZE_MAX)
            return false;
        const struct known_holding *first = &book->known[own->index[0]];
        char path[HELLO_PATH_MAX], host[WORKER_HOST_MAX];
        snprintf(path, sizeof path, "%s", first->path);
        snprintf(host, sizeof host, "%s", first->host);
        own_holding(book, node, k, path, host);
        const struct members owners = members_intersection(&book->known[k].owners, &book->here);
        book->known[k].served = !members_empty(&owners);
        MEMBERS_EACH (owner, &owners)
            members_add(&book->unsent, owner);
    }
    return true;
}

uint32_t holdings_report(struct holdings *book, uint32_t node, const struct holding_use *use,
                         uint32_t count)
{
    struct worker_holdings *own = node < VIEW_MEMBERS_MAX ? book->worker[node] : NULL;
    if (!own || own->count == 0 || own->count > count)
        return 0;
    const uint32_t before = own->count;
    if (!add_later(book, node, use, count))
        return own->count - before;
    for (uint32_t i = 0; i < count; i++) {
        grow_holding(&book->known[own->index[i]].is, use[i].records);
        if (use[i].taken > own->taken[i])
            own->taken[i] = use[i].taken;
    }
    return own->count - before;
}

struct holding_count holdings_count(const struct holdings *book, size_t k, uint64_t samples)
{
    const struct known_holding *known = &book->known[k];
    struct holding_count count = {.taken = known->before};
    MEMBERS_EACH (node, &known->owners)
        count.taken += taken_by(book->worker[node], k);
    if (book->epoch_records > 0)
        count.due =
            (uint64_t)((double)known->is.count / (double)book->epoch_records * (double)samples +
                       0.5);
    count.repeated = count.taken > count.due ? count.taken - count.due : 0;
    count.missed = count.due > count.taken ? count.due - count.taken : 0;
    return count;
}

struct holding_count holdings_sum(const struct holdings *book, uint64_t samples)
{
    struct holding_count sum = {.taken = 0};
    for (size_t k = 0; k < book->count; k++) {
        const struct holding_count count = holdings_count(book, k, samples);
        sum.taken += count.taken;
        sum.due += count.due;
        sum.repeated += count.repeated;
        sum.missed += count.missed;
    }
    return sum;
}

/* ---- checkpoints ---- */

void holdings_write(const struct holdings *book, struct buf *out)
{
    buf_printf(out, "%" PRIu64, book->epoch_records);
    for (size_t k = 0; k < book->count; k++) {
        const struct known_holding *known = &book->known[k];
        char path[HELLO_PATH_MAX];
        buf_printf(out, " %016" PRIx64 ":%" PRIu64 ":%" PRIu64 ":", known->is.hash, known->is.count,
                   known->before);
        MEMBERS_EACH (node, &known->owners)
            buf_printf(out, "%" PRIu32 "=%" PRIu64 ",", node, taken_by(book->worker[node], k));
        snprintf(path, sizeof path, "%s", known->path);
        for (char *c = path; *c; c++)
            if (*c == '"' || *c == '\\' || (unsigned char)*c <= ' ')
                *c = '_';
        buf_printf(out, ":%s", path);
    }
    buf_put_u8(out, 0);
}

/* NODE=TAKEN,… up to a colon. */
static bool read_takings(struct holdings *book, size_t k, const char **text)
{
    for (int len; **text != ':'; *text += len) {
        struct past_taking past = {.k = (uint32_t)k};
        len = 0;
        if (sscanf(*text, "%" SCNu32 "=%" SCNu64 ",%n", &past.node, &past.taken, &len) != 2 ||
            len == 0 || past.node >= VIEW_MEMBERS_MAX ||
            !array_grow(&book->past, book->pasts, &book->pasts_room, sizeof *book->past))
            return false;
        book->past[book->pasts++] = past;
    }
    return true;
}

static bool read_one(struct holdings *book, const char **text)
{
    struct holding holding = {.grows = false};
    uint64_t before;
    int len = 0;
    if (sscanf(*text, "%" SCNx64 ":%" SCNu64 ":%" SCNu64 ":%n", &holding.hash, &holding.count,
               &before, &len) != 3 ||
        len == 0 || holding.count == 0 || holding.count > UINT32_MAX)
        return false;
    *text += len;
    size_t k = find_or_add(book, &holding);
    if (k == SIZE_MAX || !read_takings(book, k, text))
        return false;
    size_t path = strcspn(++*text, " ");
    book->known[k].before = before;
    snprintf(book->known[k].path, sizeof book->known[k].path, "%.*s",
             (int)(path < HELLO_PATH_MAX ? path : HELLO_PATH_MAX), *text);
    *text += path;
    return true;
}

int holdings_read(struct holdings *book, const char *text)
{
    int len = 0;
    if (sscanf(text, "%" SCNu64 "%n", &book->epoch_records, &len) != 1)
        return ERR_INPUT;
    for (text += len; *text == ' ';) {
        text++;
        if (!read_one(book, &text))
            return ERR_INPUT;
    }
    return *text == '\0' ? OK : ERR_INPUT;
}

/* ---- the message ---- */

void share_encode(const struct share_message *share, struct buf *out)
{
    buf_put_u32(out, share->view);
    buf_put_u64(out, share->epoch_records);
    buf_put_u32(out, share->count);
    for (uint32_t i = 0; i < share->count; i++) {
        buf_put_u64(out, share->range[i].from);
        buf_put_u64(out, share->range[i].len);
    }
}

int share_decode(struct byte_reader *in, struct share_message *out)
{
    *out = (struct share_message){.view = read_u32(in)};
    out->epoch_records = read_u64(in);
    out->count = read_u32(in);
    if (out->count > HOLDINGS_MAX || out->epoch_records == 0)
        return ERR_PROTOCOL;
    for (uint32_t i = 0; i < out->count; i++) {
        out->range[i].from = read_u64(in);
        out->range[i].len = read_u64(in);
    }
    return byte_reader_done(in) ? OK : ERR_PROTOCOL;
}
