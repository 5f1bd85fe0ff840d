#include "train/ledger.h"

#include <math.h>
#include <string.h>

void committed_encode(const struct committed *c, struct buf *out)
{
    buf_put_u32(out, c->lane);
    buf_put_u64(out, c->n);
    buf_put_u8(out, c->asynchronous);
    progress_encode(&c->progress, out);
    buf_put_f64(out, c->cost.seconds);
    buf_put_f64(out, c->cost.waited_s);
    buf_put_u32(out, c->cost.waited_for);
    buf_put_u64(out, c->cost.bytes);
    buf_put_f64(out, c->cost.arrival_mbit);
    buf_put_u32(out, c->cost.arrival_from);
    buf_put_u64(out, c->samples);
    buf_put_f64(out, c->loss);
    buf_put_f64(out, c->recent);
    members_encode(&c->contributors, out);
    members_encode(&c->participants, out);
    buf_put_f64(out, c->steps_s);
    buf_put_f64(out, c->data_s);
    buf_put_u8(out, c->cache.there);
    buf_put_u64(out, c->cache.records);
    buf_put_u64(out, c->cache.bytes);
    buf_put_u64(out, c->cache.disk_records);
    buf_put_u64(out, c->cache.disk_bytes);
    buf_put_u64(out, c->lease.taken);
    buf_put_u64(out, c->lease.repeated);
    buf_put_u64(out, c->lease.want);
    buf_put_u32(out, c->lease.request);
    buf_put_u8(out, c->lease.ends);
    buf_put_u32(out, c->holdings);
    for (uint32_t i = 0; i < c->holdings; i++) {
        buf_put_u64(out, c->of_holding[i].hash);
        buf_put_u64(out, c->of_holding[i].records);
        buf_put_u64(out, c->of_holding[i].taken);
    }
}

int committed_decode(struct byte_reader *in, struct committed *out)
{
    out->lane = read_u32(in);
    out->n = read_u64(in);
    out->asynchronous = read_u8(in) != 0;
    progress_decode(in, &out->progress);
    out->cost.seconds = read_f64(in);
    out->cost.waited_s = read_f64(in);
    out->cost.waited_for = read_u32(in);
    out->cost.bytes = read_u64(in);
    out->cost.arrival_mbit = read_f64(in);
    out->cost.arrival_from = read_u32(in);
    out->samples = read_u64(in);
    out->loss = read_f64(in);
    out->recent = read_f64(in);
    members_decode(in, &out->contributors);
    members_decode(in, &out->participants);
    out->steps_s = read_f64(in);
    out->data_s = read_f64(in);
    out->cache.there = read_u8(in) != 0;
    out->cache.records = read_u64(in);
    out->cache.bytes = read_u64(in);
    out->cache.disk_records = read_u64(in);
    out->cache.disk_bytes = read_u64(in);
    out->lease.taken = read_u64(in);
    out->lease.repeated = read_u64(in);
    out->lease.want = read_u64(in);
    out->lease.request = read_u32(in);
    out->lease.ends = read_u8(in) != 0;
    out->holdings = read_u32(in);
    if (out->holdings > HOLDINGS_MAX)
        return ERR_PROTOCOL;
    for (uint32_t i = 0; i < out->holdings; i++) {
        out->of_holding[i].hash = read_u64(in);
        out->of_holding[i].records = read_u64(in);
        out->of_holding[i].taken = read_u64(in);
    }
    return byte_reader_done(in) ? OK : ERR_PROTOCOL;
}

void ledger_reject(struct ledger *ledger, const struct rejection *r)
{
    const char *why = r->outlier ? "outlier" : "not finite";
    ledger->rejected++;
    log_warn(ledger->log, "worker %u: its contribution %llu is left out: %s", r->node,
             (unsigned long long)r->n, why);
    cJSON *event = events_new(ledger->events, "rejected");
    cJSON_AddNumberToObject(event, "lane", r->lane);
    cJSON_AddNumberToObject(event, "n", (double)r->n);
    cJSON_AddNumberToObject(event, "node", r->node);
    cJSON_AddStringToObject(event, "why", why);
    events_emit(ledger->events, event);
}

/* Names the participants whose contribution did not count. */
static void name_rejected(struct ledger *ledger, const struct committed *c)
{
    const struct members rejected = members_without(&c->participants, &c->contributors);
    MEMBERS_EACH (node, &c->contributors)
        ledger->refused[node] = 0;
    MEMBERS_EACH (node, &rejected) {
        ledger->refused[node]++;
        ledger_reject(ledger, &(struct rejection){c->lane, node, c->n, ledger->rejects});
    }
}

/* The evaluations since the last exchange are this one's. */
static const struct blame_driver *look_at_driver(struct ledger *ledger,
                                                 const struct exchange_cost *cost)
{
    enum { KNOWN = 3 };
    struct blame_driver *driver = &ledger->driver;
    driver->evaluated_s = ledger->seen.evaluated_s - ledger->evaluated_s;
    driver->waited_s = cost->waited_s;
    driver->usual_s = ledger->quiet_s.count >= KNOWN ? blame_median(&ledger->quiet_s) : -1;
    ledger->evaluated_s = ledger->seen.evaluated_s;
    if (driver->evaluated_s <= 0)
        blame_put(&ledger->quiet_s, cost->waited_s);
    return driver;
}

static struct blame_verdict blame_own(struct ledger *ledger, const struct committed *c,
                                      uint32_t node)
{
    const struct blame_driver *driver = look_at_driver(ledger, &c->cost);
    const struct blame_wait wait = {
        .by = node,
        .on = c->cost.waited_for,
        .at_bound = ledger->at_bound,
        .seconds = c->cost.waited_s,
        .bytes = (double)c->cost.bytes,
        .silent_s = ledger->seen.waited_for_silent_s,
    };
    return blame_find_async(ledger->history, &wait, driver);
}

/* Emit an `exchange` event; that of one worker's own exchange has its number, and no entry. */
static void report_exchange(struct ledger *ledger, const struct committed *c, uint32_t node,
                            const struct ledger_entry *entry)
{
    char why[BLAME_TEXT_MAX];
    const struct blame_verdict verdict =
        entry
            ? blame_find(ledger->history, entry->use, entry->uses, look_at_driver(ledger, &c->cost))
            : blame_own(ledger, c, node);
    cJSON *event = events_new(ledger->events, "exchange");
    cJSON_AddStringToObject(event, "strategy", ledger->strategy);
    if (c->asynchronous)
        events_add_whole(event, "node", events_node(node));
    events_add_whole(event, "lane", c->lane);
    events_add_whole(event, "n", (double)c->n);
    events_add_whole(event, "bytes", (double)c->cost.bytes);
    cJSON_AddNumberToObject(event, "seconds", c->cost.seconds);
    cJSON_AddNumberToObject(event, "waited_s", c->cost.waited_s);
    if (c->cost.waited_s > 0)
        events_add_whole(event, "waited_for", events_node(c->cost.waited_for));
    if (verdict.cause != BLAME_NONE) {
        blame_print(&verdict, why);
        events_add_whole(event, "blamed", events_node(verdict.node));
        cJSON_AddStringToObject(event, "cause", blame_word(verdict.cause));
        cJSON_AddStringToObject(event, "why", why);
    }
    events_emit(ledger->events, event);
}

/* Add a sum of losses over `records` samples. */
static void add_loss(struct ledger *ledger, double sum, uint64_t records)
{
    if (records == 0)
        return;
    ledger->loss = sum / (double)records;
    ledger->loss_sum += sum;
    ledger->loss_records += records;
}

/* The time of the round that this exchange ends, if all its members took part before and after. A
 * step is that of the slowest member, who may have the largest share; the rest of the round is the
 * exchange. */
static void measure_round(struct ledger *ledger, const struct ledger_entry *entry)
{
    const struct committed *c = &entry->sum;
    double t = events_seconds(ledger->events), took = t - ledger->closed_at, longest = 0;
    double steps = (double)c->progress.steps - (double)ledger->last.progress.steps;
    size_t members = members_count(&c->contributors);
    ledger->closed_at = t;
    if (steps <= 0 || c->samples == 0 || entry->uses < members ||
        members != members_count(&c->participants))
        return;
    for (size_t i = 0; i < entry->uses; i++) {
        double s = entry->use[i].step_s + entry->use[i].data_s;
        longest = s > longest ? s : longest;
    }
    run_model_add(ledger->measured,
                  &(struct run_round){
                      .N = members,
                      .b = ceil((double)c->samples / steps / (double)members),
                      .step_s = longest / steps,
                      .rest_s = (ledger->overlaps ? entry->shortest_s : took - longest) / steps,
                  });
}

static void close_entry(struct ledger *ledger, struct ledger_entry *entry)
{
    const struct committed *c = &entry->sum;
    if (!entry->open)
        return;
    entry->open = false;
    if (ledger->measured)
        measure_round(ledger, entry);
    report_exchange(ledger, c, 0, entry);
    name_rejected(ledger, c);
    ledger->used = c->progress.samples_used;
    ledger->missed = c->progress.sample_offset > c->progress.samples_used
                         ? c->progress.sample_offset - c->progress.samples_used
                         : 0;
    add_loss(ledger, c->loss, c->samples);
    ledger->slowest = entry->slowest;
    ledger->last = *c;
}

/* Add another member's report of an exchange. The participant that waited least arrived last. */
static void add_report(struct ledger_entry *entry, uint32_t node, const struct committed *report)
{
    const struct exchange_cost *cost = &report->cost;
    struct exchange_cost *sum = &entry->sum.cost;
    entry->reports++;
    sum->bytes += cost->bytes;
    if (cost->seconds > sum->seconds)
        sum->seconds = cost->seconds;
    if (cost->waited_s > sum->waited_s) {
        sum->waited_s = cost->waited_s;
        sum->waited_for = cost->waited_for;
    }
    if (cost->seconds < entry->shortest_s) {
        entry->shortest_s = cost->seconds;
        entry->slowest = node;
    }
}

/* The work of the member since its last report; false: unknown. */
static bool find_use(struct ledger *ledger, uint32_t node, const struct committed *c,
                     struct blame_use *use)
{
    const struct blame_report report = {
        .steps_s = c->steps_s,
        .data_s = c->data_s,
        .waited_s = c->cost.waited_s,
        .arrival_mbit = c->cost.arrival_mbit,
        .arrival_from = c->cost.arrival_from,
    };
    if (node >= VIEW_MEMBERS_MAX || !blame_take(&ledger->history[node], node, &report, use))
        return false;
    /* A worker may stand still between an exchange and its report, which then has the silence that
     * the next one waits for. */
    struct blame_history *history = &ledger->history[node];
    use->silent_s = fmax(ledger->seen.silent_s, history->silent_s);
    history->silent_s = ledger->seen.silent_s;
    use->on_driver_host = ledger->seen.on_driver_host;
    return true;
}

static void add_use(struct ledger *ledger, struct ledger_entry *entry, uint32_t node,
                    const struct committed *c)
{
    if (entry->uses < VIEW_MEMBERS_MAX && find_use(ledger, node, c, &entry->use[entry->uses]))
        entry->uses++;
}

/* Close all open exchanges below the nth, in order. */
static void close_below(struct ledger *ledger, uint64_t n)
{
    for (uint64_t k = ledger->last.progress.exchanges + 1; k < n; k++)
        close_entry(ledger, &ledger->entry[k % LEDGER_OPEN_MAX]);
}

/* The growth of a counter, which never falls. */
static uint64_t growth_of(uint64_t *was, uint64_t now)
{
    uint64_t by = now > *was ? now - *was : 0;
    *was += by;
    return by;
}

/* Asynchronous strategies: the workers' counts are added up, and nothing is closed. Counts are
 * totals, so a report that was lost while there was no driver is made up for by the next. */
static void report_async(struct ledger *ledger, uint32_t node, const struct committed *report)
{
    struct progress *all = &ledger->last.progress;
    struct ledger_own *own = &ledger->own[node % VIEW_MEMBERS_MAX];
    uint64_t samples = growth_of(&own->samples, report->progress.samples_used);
    uint64_t repeated = growth_of(&own->repeated_by, report->lease.repeated);
    ledger->used += samples - (repeated < samples ? repeated : samples);
    ledger->repeated_leases += repeated;
    all->sample_offset += samples;
    ledger->partial_step_samples += samples;
    all->steps += ledger->partial_step_samples / ledger->step_samples;
    ledger->partial_step_samples %= ledger->step_samples;
    if (ledger->grows)
        all->steps =
            (uint64_t)strategy_grown_steps(ledger->grows, all->sample_offset, ledger->records);
    add_loss(ledger, report->loss, report->samples);
    if (report->n == 0)
        return;
    struct blame_use use;
    find_use(ledger, node, report, &use);
    own->exchanges++;
    ledger->last.n = ++all->exchanges;
    ledger->last.cost = report->cost;
    ledger->slowest = report->cost.waited_s > 0 ? report->cost.waited_for : ledger->slowest;
    report_exchange(ledger, report, node, NULL);
}

struct cache_report ledger_cached(const struct ledger *ledger)
{
    struct cache_report sum = {.there = false};
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++) {
        const struct cache_report *of = &ledger->cache[node];
        sum.there |= of->there;
        sum.records += of->records;
        sum.bytes += of->bytes;
        sum.disk_records += of->disk_records;
        sum.disk_bytes += of->disk_bytes;
    }
    return sum;
}

void ledger_report(struct ledger *ledger, uint32_t node, const struct committed *report)
{
    if (report->data_s > ledger->data_s)
        ledger->data_s = report->data_s;
    ledger->cache[node] = report->cache;
    if (report->asynchronous) {
        report_async(ledger, node, report);
        return;
    }
    if (report->n == 0) {
        ledger->last = *report;
        ledger->used = report->progress.sample_offset - ledger->missed;
        ledger->recent = report->recent;
        add_loss(ledger, report->loss, report->samples);
        return;
    }
    uint64_t n = report->progress.exchanges, closed = ledger->last.progress.exchanges;
    if (n <= closed || n >= closed + LEDGER_OPEN_MAX)
        return; /* closed already, or not a number of an open exchange */
    close_below(ledger, n - 1);
    struct ledger_entry *entry = &ledger->entry[n % LEDGER_OPEN_MAX];
    /* A worker that completed an exchange and died at once may have reported a result that no other
     * member saw: they have repeated it without that worker, and the entry begins again. */
    if (!entry->open ||
        memcmp(&entry->sum.participants, &report->participants, sizeof report->participants) != 0) {
        entry->open = true;
        entry->sum = *report;
        entry->slowest = node;
        entry->shortest_s = report->cost.seconds;
        entry->expected = members_count(&report->participants);
        entry->reports = 1;
        entry->uses = 0;
    } else {
        add_report(entry, node, report);
    }
    add_use(ledger, entry, node, report);
    if (entry->reports >= entry->expected) {
        close_below(ledger, n); /* members without a report died before they could send it */
        close_entry(ledger, entry);
    }
}

void ledger_resume(struct ledger *ledger, const struct progress *progress)
{
    for (int i = 0; i < LEDGER_OPEN_MAX; i++)
        ledger->entry[i].open = false;
    ledger->last.n = progress->exchanges;
    ledger->last.progress = *progress;
    ledger->used = progress->samples_used;
    ledger->missed = progress->sample_offset > progress->samples_used
                         ? progress->sample_offset - progress->samples_used
                         : 0;
}

void ledger_lease(struct ledger *ledger, const struct lease_table *table)
{
    ledger->repeated = table->repeated;
    ledger->missed = table->lost;
}

bool ledger_report_loss(struct ledger *ledger, double epoch, double rate, uint64_t batch)
{
    if (ledger->loss_records == 0)
        return false;
    ledger->mean_loss = ledger->loss_sum / (double)ledger->loss_records;
    cJSON *event = events_new(ledger->events, "loss");
    events_add_measure(event, "epoch", epoch);
    cJSON_AddNumberToObject(event, "step", (double)ledger->last.progress.steps);
    cJSON_AddNumberToObject(event, "samples", (double)ledger->loss_records);
    events_add_measure(event, "loss", ledger->mean_loss);
    cJSON_AddNumberToObject(event, "rate", rate);
    if (batch > 0)
        cJSON_AddNumberToObject(event, "batch", (double)batch);
    events_emit(ledger->events, event);
    ledger->loss_sum = 0;
    ledger->loss_records = 0;
    return true;
}

void ledger_close(struct ledger *ledger)
{
    close_below(ledger, ledger->last.progress.exchanges + 1 + LEDGER_OPEN_MAX);
}
