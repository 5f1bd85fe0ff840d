/* A file is a sequence of records (TFRecord): length as u64, masked CRC-32C of the length as u32,
 * data, masked CRC-32C of the data; all little-endian. Data is a message `Event` of TensorFlow
 * (tensorflow/core/util/event.proto):
 *
 *     Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
 *     Summary { Value value = 1; }     Value { string tag = 1; float simple_value = 2; }
 */
#include "cli/report_tensorboard.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { EVENT_BYTES = 128, PATH_BYTES = 4096 };

struct event {
    unsigned char byte[EVENT_BYTES];
    size_t n;
};

static void put_byte(struct event *e, unsigned value)
{
    if (e->n < EVENT_BYTES)
        e->byte[e->n++] = (unsigned char)value;
}

static void put_varint(struct event *e, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        put_byte(e, (unsigned)(value & 0x7f) | 0x80);
    put_byte(e, (unsigned)value);
}

/* The lowest `n` bytes, the lowest first. */
static void put_fixed(struct event *e, uint64_t value, int n)
{
    for (int i = 0; i < n; i++)
        put_byte(e, (unsigned)(value >> 8 * i & 0xff));
}

static void put_double(struct event *e, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_fixed(e, bits, 8);
}

static void put_float(struct event *e, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_fixed(e, bits, 4);
}

static void put_bytes(struct event *e, unsigned field, const void *bytes, size_t n)
{
    put_byte(e, field << 3 | 2);
    put_varint(e, n);
    for (size_t i = 0; i < n; i++)
        put_byte(e, ((const unsigned char *)bytes)[i]);
}

/* Castagnoli's polynomial, reflected. */
static uint32_t compute_crc(const unsigned char *data, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
    }
    return ~crc;
}

static uint32_t masked_crc(const unsigned char *data, size_t n)
{
    uint32_t crc = compute_crc(data, n);
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

static void write_record(FILE *out, const struct event *e)
{
    struct event head = {.n = 0}, tail = {.n = 0};
    put_fixed(&head, e->n, 8);
    put_fixed(&head, masked_crc(head.byte, 8), 4);
    put_fixed(&tail, masked_crc(e->byte, e->n), 4);
    fwrite(head.byte, 1, head.n, out);
    fwrite(e->byte, 1, e->n, out);
    fwrite(tail.byte, 1, tail.n, out);
}

static void begin_event(struct event *e, double wall_time)
{
    e->n = 0;
    put_byte(e, 1 << 3 | 1);
    put_double(e, wall_time);
}

static void write_point(FILE *out, const char *tag, double began, const struct run_point *p)
{
    struct event e, value = {.n = 0}, summary = {.n = 0};
    double samples = isfinite(p->samples) && p->samples > 0 ? fmin(round(p->samples), 1e18) : 0;
    put_bytes(&value, 1, tag, strlen(tag));
    put_byte(&value, 2 << 3 | 5);
    put_float(&value, (float)p->value);
    put_bytes(&summary, 1, value.byte, value.n);
    begin_event(&e, began + p->t);
    put_byte(&e, 2 << 3 | 0);
    put_varint(&e, (uint64_t)samples);
    put_bytes(&e, 5, summary.byte, summary.n);
    write_record(out, &e);
}

static void write_run(FILE *out, const struct report_run *run, double began)
{
    static const char version[] = "brain.Event:2";
    struct event e;
    begin_event(&e, began);
    put_bytes(&e, 3, version, sizeof version - 1);
    write_record(out, &e);
    for (int curve = 0; curve < CURVES; curve++) {
        const struct run_series *series = &run->summary->curve[curve];
        for (size_t i = 0; i < series->count; i++)
            write_point(out, run_curve_keys[curve], began, &series->point[i]);
    }
}

/* The events' last change is that of the run's end. */
static double find_beginning(const struct report_run *run)
{
    char path[PATH_BYTES];
    struct stat of;
    snprintf(path, sizeof path, "%s/events.jsonl", run->directory);
    return stat(path, &of) == 0 ? (double)of.st_mtime - run->summary->now.t : 0;
}

static bool make_folder(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

bool report_tensorboard_write(const char *directory, const struct report_run *run, size_t count)
{
    char path[2 * PATH_BYTES];
    bool good = make_folder(directory);
    snprintf(path, sizeof path, "%s", directory);
    for (size_t i = 0; good && i < count; i++) {
        double began = floor(find_beginning(&run[i]));
        snprintf(path, sizeof path, "%s/%s", directory, run[i].name);
        good = make_folder(path);
        snprintf(path, sizeof path, "%s/%s/events.out.tfevents.%.0f.paceline", directory,
                 run[i].name, began);
        FILE *out = good ? fopen(path, "wb") : NULL;
        if (out)
            write_run(out, &run[i], began);
        good = out && !ferror(out);
        if (out)
            good = fclose(out) == 0 && good;
    }
    if (!good)
        fprintf(stderr, "paceline report: --tensorboard: %s: cannot be written: %s\n", path,
                strerror(errno));
    return good;
}
