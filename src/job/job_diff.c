#include "job/job_diff.h"

#include "base/bytes.h"
#include "base/remote.h"
#include "job/text.h"
#include "job/text_field.h"

#include <stdio.h>
#include <string.h>

enum { FIELD_TEXT_MAX = 256, VALUE_TEXT_MAX = 1024 };

/* Fields whose change makes it another run. The longest matching path applies; a field without a
 * match may change, such as the rate and its schedule, the stop, the number of workers and the
 * evaluations. `data` stands for train_data and test_data. The paths of data may change: the driver
 * compares the records. Rates and periods of strategies may change like those of the solver; a
 * change of the state that an optimizer, a server or a shard keeps may not. */
static const struct rule {
    const char *path;
    bool breaks;
} rules[] = {
    {"net", true},
    {"data", true},
    {"data.idx.images", false},
    {"data.idx.labels", false},
    {"data.cifar10.path", false},
    {"data.cifar100.path", false},
    {"data.images.list", false},
    {"data.images.root", false},
    {"data.lmdb.path", false},
    {"data.npy.values", false},
    {"data.npy.labels", false},
    {"data.shards.shards", false},
    {"data.csv.path", false},
    {"data.text.path", false},
    {"validation", true},
    {"driver_validates", true},
    {"batch", true},
    {"global_batch", true},
    {"batch_growth", true},
    {"iter_size", true},
    {"seed", true},
    {"precision", true},
    {"weights", true},
    {"solver.type", true},
    {"strategy", true},
    {"strategy.sync", false},
    {"strategy.sync.init_iterations", true},
    {"strategy.allreduce", false},
    {"strategy.async_allreduce", false},
    {"strategy.async_allreduce.method", true},
    {"strategy.ps", false},
    {"strategy.ps.consistency", true},
    {"strategy.ps.servers", true},
    {"strategy.ps.colocated", true},
    {"strategy.ps.aggregate", true},
    {"strategy.downpour", false},
    {"strategy.downpour.server_adagrad", true},
    {"strategy.downpour.servers", true},
    {"strategy.downpour.colocated", true},
    {"strategy.downpour.learning_rule", true},
    {"strategy.easgd", false},
    {"strategy.easgd.momentum", true},
    {"strategy.easgd.mode", true},
    {"strategy.mpca", false},
    {"strategy.mpca.phases", true},
    {"strategy.mpca.shards", true},
    {"strategy.mpca.penalty", true},
    {"strategy.mpca.coordination", true},
    {"strategy.pace", false},
    {"strategy.pace.shards", true},
    {"strategy.pace.coordination", true},
    {"strategy.gossip", false},
    {"strategy.full_batch", false},
    {"strategy.diloco", false},
    {"strategy.diloco.fragments", true},
    {"strategy.diloco.overlap", true},
};

struct differing {
    void (*each)(void *user, const struct job_change *change);
    void *user;
    bool failed; /* memory is out */
};

static bool breaks_run(const char *field)
{
    bool of_data = strncmp(field, "train_data", 10) == 0 || strncmp(field, "test_data", 9) == 0;
    const char *path = of_data ? strstr(field, "data") : field;
    size_t longest = 0;
    bool breaks = false;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        size_t n = strlen(rules[i].path);
        if (n > longest && strncmp(path, rules[i].path, n) == 0 &&
            (path[n] == '\0' || path[n] == '.')) {
            longest = n;
            breaks = rules[i].breaks;
        }
    }
    return breaks;
}

static void add_difference(struct differing *d, const char *field, struct buf *from, struct buf *to)
{
    char before[VALUE_TEXT_MAX], after[VALUE_TEXT_MAX];
    buf_put_u8(from, 0);
    buf_put_u8(to, 0);
    if (from->failed || to->failed)
        d->failed = true;
    else
        d->each(d->user,
                &(struct job_change){
                    field, remote_shown((const char *)from->data, before, sizeof before),
                    remote_shown((const char *)to->data, after, sizeof after), breaks_run(field)});
    buf_release(from);
    buf_release(to);
}

/* The member of the message's oneof that is set; NULL: it has none. */
static const ProtobufCFieldDescriptor *find_member(const ProtobufCMessage *msg)
{
    for (unsigned i = 0; i < msg->descriptor->n_fields; i++)
        if (text_field_in_oneof(&msg->descriptor->fields[i]))
            return text_field_rival(msg, &msg->descriptor->fields[i]);
    return NULL;
}

static const ProtobufCMessage *message_at(const ProtobufCMessage *msg,
                                          const ProtobufCFieldDescriptor *field)
{
    return *(const ProtobufCMessage *const *)text_field_slot(msg, field);
}

/* Describe a message in a few words: which member of its oneof is set. */
static void describe_message(const ProtobufCMessage *msg, struct buf *out)
{
    const ProtobufCFieldDescriptor *member = find_member(msg);
    buf_printf(out, "%s", member ? member->name : "set");
    if (member && member->type != PROTOBUF_C_TYPE_MESSAGE) {
        buf_printf(out, " ");
        text_write_scalar(member, text_field_slot(msg, member), out);
    }
}

static void describe_field(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field,
                           struct buf *out)
{
    if (!text_field_is_set(msg, field)) {
        buf_printf(out, "not set");
    } else if (!text_field_repeated(field)) {
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            describe_message(message_at(msg, field), out);
        else
            text_write_scalar(field, text_field_slot(msg, field), out);
    } else if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        buf_printf(out, "%zu of them", *text_field_count(msg, field));
    } else {
        const uint8_t *at = *(const uint8_t *const *)text_field_slot(msg, field);
        size_t n = *text_field_count(msg, field), size = text_field_size(field);
        buf_printf(out, "[");
        for (size_t i = 0; i < n; i++) {
            buf_printf(out, "%s", i ? ", " : "");
            text_write_scalar(field, at + i * size, out);
        }
        buf_printf(out, "]");
    }
}

/* The next character of a path as it is compared: without "/." and double slashes. */
static const char *skip_dots(const char *at)
{
    while (at[0] == '/' && (at[1] == '/' || (at[1] == '.' && (at[2] == '/' || at[2] == '\0'))))
        at += at[1] == '/' ? 1 : 2;
    return at;
}

static bool same_path(const char *a, const char *b)
{
    for (;; a++, b++) {
        a = skip_dots(a);
        b = skip_dots(b);
        if (*a != *b || !*a)
            return *a == *b;
    }
}

static bool same_value(struct differing *d, const ProtobufCFieldDescriptor *field,
                       const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    struct buf x = {0}, y = {0};
    if (field->type == PROTOBUF_C_TYPE_STRING && !text_field_repeated(field) &&
        text_field_is_set(a, field) && text_field_is_set(b, field))
        return same_path(*(const char *const *)text_field_slot(a, field),
                         *(const char *const *)text_field_slot(b, field));
    text_write_field(a, field, &x);
    text_write_field(b, field, &y);
    bool same = x.len == y.len && (x.len == 0 || memcmp(x.data, y.data, x.len) == 0);
    d->failed |= x.failed || y.failed;
    buf_release(&x);
    buf_release(&y);
    return same;
}

static void compare_messages(struct differing *d, const char *path, const ProtobufCMessage *a,
                             const ProtobufCMessage *b);

static void compare_field(struct differing *d, const char *path, const ProtobufCMessage *a,
                          const ProtobufCMessage *b, const ProtobufCFieldDescriptor *field)
{
    char name[FIELD_TEXT_MAX];
    snprintf(name, sizeof name, "%s%s%s", path, *path ? "." : "", field->name);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE && !text_field_repeated(field) &&
        text_field_is_set(a, field) && text_field_is_set(b, field)) {
        compare_messages(d, name, message_at(a, field), message_at(b, field));
        return;
    }
    if (same_value(d, field, a, b))
        return;
    struct buf from = {0}, to = {0};
    describe_field(a, field, &from);
    describe_field(b, field, &to);
    add_difference(d, name, &from, &to);
}

/* If the two are of different kinds, their fields are not compared. */
static void compare_messages(struct differing *d, const char *path, const ProtobufCMessage *a,
                             const ProtobufCMessage *b)
{
    if (find_member(a) != find_member(b)) {
        struct buf from = {0}, to = {0};
        describe_message(a, &from);
        describe_message(b, &to);
        add_difference(d, path, &from, &to);
    }
    for (unsigned i = 0; i < a->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &a->descriptor->fields[i];
        bool other_kind = text_field_in_oneof(field) && find_member(a) != find_member(b);
        if (!other_kind && (text_field_is_set(a, field) || text_field_is_set(b, field)))
            compare_field(d, path, a, b, field);
    }
}

int job_diff(const Paceline__Job *from, const Paceline__Job *to,
             void (*each)(void *user, const struct job_change *change), void *user, struct err *err)
{
    struct differing d = {each, user, false};
    compare_messages(&d, "", &from->base, &to->base);
    return d.failed ? err_set(err, ERR_NOMEM, "job: out of memory") : OK;
}
