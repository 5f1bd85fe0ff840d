#include "train/ledger.h"

void committed_encode(const struct committed *c, struct buf *out)
{
    buf_put_u32(out, c->lane);
    buf_put_u64(out, c->n);
    buf_put_u8(out, c->free);
    course_encode(&c->course, out);
    buf_put_f64(out, c->cost.seconds);
    buf_put_f64(out, c->cost.waited_s);
    buf_put_u32(out, c->cost.waited_for);
    buf_put_u64(out, c->cost.bytes);
    buf_put_u64(out, c->samples);
    buf_put_f64(out, c->loss);
    buf_put_f64(out, c->recent);
    members_encode(&c->who, out);
    members_encode(&c->took_part, out);
    buf_put_u64(out, c->lease.taken);
    buf_put_u64(out, c->lease.again);
    buf_put_u64(out, c->lease.want);
    buf_put_u32(out, c->lease.ask);
    buf_put_u8(out, c->lease.ends);
}

int committed_decode(struct byte_reader *in, struct committed *out)
{
    out->lane = read_u32(in);
    out->n = read_u64(in);
    out->free = read_u8(in) != 0;
    course_decode(in, &out->course);
    out->cost.seconds = read_f64(in);
    out->cost.waited_s = read_f64(in);
    out->cost.waited_for = read_u32(in);
    out->cost.bytes = read_u64(in);
    out->samples = read_u64(in);
    out->loss = read_f64(in);
    out->recent = read_f64(in);
    members_decode(in, &out->who);
    members_decode(in, &out->took_part);
    out->lease.taken = read_u64(in);
    out->lease.again = read_u64(in);
    out->lease.want = read_u64(in);
    out->lease.ask = read_u32(in);
    out->lease.ends = read_u8(in) != 0;
    return byte_reader_done(in) ? OK : ERR_PROTOCOL;
}

/* Who took part and did not count has its name told. */
static void name_rejected(const struct ledger *ledger, const struct committed *c)
{
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++) {
        if (!members_has(&c->took_part, node) || members_has(&c->who, node))
            continue;
        log_warn(ledger->log, "worker %u: its part in exchange %llu was not finite and is left out",
                 node, (unsigned long long)c->n);
        cJSON *event = events_new(ledger->events, "rejected");
        cJSON_AddNumberToObject(event, "lane", c->lane);
        cJSON_AddNumberToObject(event, "n", (double)c->n);
        cJSON_AddNumberToObject(event, "node", node);
        events_emit(ledger->events, event);
    }
}

/* An `exchange`; of one worker's own, with its number. */
static void tell_exchange(const struct ledger *ledger, const struct committed *c, uint32_t node)
{
    cJSON *event = events_new(ledger->events, "exchange");
    cJSON_AddStringToObject(event, "strategy", ledger->strategy);
    if (c->free)
        cJSON_AddNumberToObject(event, "node", events_node(node));
    cJSON_AddNumberToObject(event, "lane", c->lane);
    cJSON_AddNumberToObject(event, "n", (double)c->n);
    cJSON_AddNumberToObject(event, "bytes", (double)c->cost.bytes);
    cJSON_AddNumberToObject(event, "seconds", c->cost.seconds);
    cJSON_AddNumberToObject(event, "waited_s", c->cost.waited_s);
    if (c->cost.waited_s > 0)
        cJSON_AddNumberToObject(event, "waited_for", events_node(c->cost.waited_for));
    events_emit(ledger->events, event);
}

/* What records had as their loss, all together. */
static void add_loss(struct ledger *ledger, double sum, uint64_t records)
{
    if (records == 0)
        return;
    ledger->loss = sum / (double)records;
    ledger->loss_sum += sum;
    ledger->loss_records += records;
}

static void close_entry(struct ledger *ledger, struct ledger_entry *entry)
{
    const struct committed *c = &entry->sum;
    if (!entry->open)
        return;
    entry->open = false;
    tell_exchange(ledger, c, 0);
    name_rejected(ledger, c);
    ledger->used = c->course.used;
    ledger->missed = c->course.place > c->course.used ? c->course.place - c->course.used : 0;
    add_loss(ledger, c->loss, c->samples);
    ledger->slowest = entry->slowest;
    ledger->last = *c;
}

/* Another member's share of an exchange. Who comes last waits least. */
static void add_report(struct ledger_entry *entry, uint32_t node, const struct committed *report)
{
    const struct exchange_cost *cost = &report->cost;
    /* Who completed an exchange and died at once may have spoken of a result that nobody else ever
     * saw: the last to speak is right. */
    entry->sum.samples = report->samples;
    entry->sum.loss = report->loss;
    entry->sum.who = report->who;
    entry->sum.took_part = report->took_part;
    entry->expected = members_count(&report->took_part);
    entry->reports++;
    struct exchange_cost *sum = &entry->sum.cost;
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

/* Close what is open below the nth of all exchanges: in order, and none is left behind. */
static void close_below(struct ledger *ledger, uint64_t n)
{
    for (uint64_t k = ledger->last.course.exchanges + 1; k < n; k++)
        close_entry(ledger, &ledger->entry[k % LEDGER_OPEN_MAX]);
}

/* What a count that only grows has grown by. */
static uint64_t grown(uint64_t *was, uint64_t now)
{
    uint64_t by = now > *was ? now - *was : 0;
    *was += by;
    return by;
}

/* Workers run free: what each has done adds up, and there is nothing to close. A report that never
 * came, for want of a driver, is made good by the next. */
static void report_free(struct ledger *ledger, uint32_t node, const struct committed *report)
{
    struct course *all = &ledger->last.course;
    struct ledger_own *own = &ledger->own[node % VIEW_MEMBERS_MAX];
    uint64_t samples = grown(&own->samples, report->course.used);
    uint64_t again = grown(&own->again, report->lease.again);
    ledger->used += samples - (again < samples ? again : samples);
    ledger->again += again;
    all->place += samples;
    ledger->odd_samples += samples;
    all->steps += ledger->odd_samples / ledger->step_samples;
    ledger->odd_samples %= ledger->step_samples;
    add_loss(ledger, report->loss, report->samples);
    if (report->n == 0)
        return;
    own->exchanges++;
    ledger->last.n = ++all->exchanges;
    ledger->last.cost = report->cost;
    ledger->slowest = report->cost.waited_s > 0 ? report->cost.waited_for : ledger->slowest;
    tell_exchange(ledger, report, node);
}

void ledger_report(struct ledger *ledger, uint32_t node, const struct committed *report)
{
    if (report->free) {
        report_free(ledger, node, report);
        return;
    }
    if (report->n == 0) {
        ledger->last = *report;
        ledger->used = report->course.place - ledger->missed;
        ledger->recent = report->recent;
        add_loss(ledger, report->loss, report->samples);
        return;
    }
    uint64_t n = report->course.exchanges, closed = ledger->last.course.exchanges;
    if (n <= closed || n >= closed + LEDGER_OPEN_MAX)
        return; /* closed without it, or nonsense */
    close_below(ledger, n - 1);
    struct ledger_entry *entry = &ledger->entry[n % LEDGER_OPEN_MAX];
    if (!entry->open) {
        *entry = (struct ledger_entry){
            .open = true,
            .sum = *report,
            .slowest = node,
            .shortest_s = report->cost.seconds,
            .expected = members_count(&report->took_part),
            .reports = 1,
        };
    } else {
        add_report(entry, node, report);
    }
    if (entry->reports >= entry->expected) {
        close_below(ledger, n); /* who lacks there died before it could report */
        close_entry(ledger, entry);
    }
}

void ledger_go_on(struct ledger *ledger, const struct course *course)
{
    for (int i = 0; i < LEDGER_OPEN_MAX; i++)
        ledger->entry[i].open = false;
    ledger->last.n = course->exchanges;
    ledger->last.course = *course;
    ledger->used = course->used;
    ledger->missed = course->place > course->used ? course->place - course->used : 0;
}

void ledger_lease(struct ledger *ledger, const struct lease_table *book)
{
    ledger->repeated = book->repeated;
    ledger->missed = book->lost;
}

bool ledger_tell_loss(struct ledger *ledger, double epoch, double rate)
{
    if (ledger->loss_records == 0)
        return false;
    ledger->mean_loss = ledger->loss_sum / (double)ledger->loss_records;
    cJSON *event = events_new(ledger->events, "loss");
    events_add_measure(event, "epoch", epoch);
    cJSON_AddNumberToObject(event, "step", (double)ledger->last.course.steps);
    cJSON_AddNumberToObject(event, "samples", (double)ledger->loss_records);
    events_add_measure(event, "loss", ledger->mean_loss);
    cJSON_AddNumberToObject(event, "rate", rate);
    events_emit(ledger->events, event);
    ledger->loss_sum = 0;
    ledger->loss_records = 0;
    return true;
}

void ledger_close(struct ledger *ledger)
{
    close_below(ledger, ledger->last.course.exchanges + 1 + LEDGER_OPEN_MAX);
}
