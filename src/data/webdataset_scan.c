#include "data/webdataset_scan.h"

#include "base/hash.h"
#include "data/label_json.h"
#include "data/picture.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LABEL_TEXT_MAX = 32, DIGITS_MAX = 9 };

uint32_t webdataset_check(const uint8_t header[TAR_BLOCK])
{
    return (uint32_t)hash_bytes(header, TAR_BLOCK);
}

static int leave_out(struct webdataset_scan *scan)
{
    uint64_t number = scan->records++;
    if (scan->config->bad)
        return source_leave_out(scan->config, number, scan->err);
    err_remedy(scan->err, BAD_RECORD_REMEDY);
    return ERR_INPUT;
}

/* Note what is wrong with the draft, if it is the first thing; `name` is a member's, or the key. */
static void blame_draft(struct webdataset_scan *scan, const char *name, const char *why)
{
    char quoted[SOURCE_NAME_MAX];
    if (scan->draft.fault.status == OK)
        err_set(&scan->draft.fault, ERR_INPUT, "%s: %s: %s", scan->tar.path,
                source_quote(name, quoted, sizeof quoted), why);
}

static int close_draft(struct webdataset_scan *scan)
{
    struct webdataset_draft *draft = &scan->draft;
    int rc = OK;
    if (draft->pictured != draft->labelled)
        blame_draft(scan, draft->key,
                    !draft->pictured  ? "has no picture; a file .jpg, .jpeg or .png is expected"
                    : scan->label_key ? "has no label; a file .json with it is expected"
                                      : "has no label; a file .cls with a number is expected");
    if (draft->fault.status != OK) {
        *scan->err = draft->fault;
        rc = leave_out(scan);
    } else if (draft->pictured) {
        scan->records++;
        rc = scan->add(scan->user, &draft->record, scan->err);
    }
    draft->key[0] = '\0';
    draft->pictured = draft->labelled = false;
    draft->fault.status = OK;
    if (rc != OK)
        return rc;
    uint64_t at = scan->tar.at, len = scan->tar.file->len;
    return open_watch_report(scan->config->watch, "bytes", scan->done + (at < len ? at : len),
                             scan->total, scan->err);
}

static int take_picture(struct webdataset_scan *scan, const struct tar_member *member)
{
    struct webdataset_draft *draft = &scan->draft;
    struct picture picture = {0};
    struct err why = {0}, unread = {0};
    const struct part_of part = {scan->tar.file, member->body, member->size, &unread};
    if (draft->pictured)
        blame_draft(scan, member->name, "a second picture of this record");
    draft->pictured = true;
    if (member->size > PICTURE_BYTES_MAX) {
        blame_draft(scan, member->name, "longer than the limit of 268435456 bytes");
        return OK;
    }
    const uint8_t *header = tar_bytes(&scan->tar, member->body - TAR_BLOCK, TAR_BLOCK, scan->err);
    if (!header)
        return ERR_INPUT;
    draft->record.check = webdataset_check(header);
    size_t n = part_left(&part, 0, PICTURE_HEAD);
    const uint8_t *head = tar_bytes(&scan->tar, member->body, n, scan->err);
    if (!head)
        return ERR_INPUT;
    int rc = picture_probe(&part, head, n, &picture, &why);
    if (rc == ERR_IO && scan->tar.file->remote) /* the record may be a good one */
        return err_set(scan->err, ERR_INPUT, "%s", unread.text);
    if (rc != OK)
        blame_draft(scan, member->name, why.text);
    draft->record.body = member->body;
    draft->record.bytes = (uint32_t)member->size;
    draft->record.H = (uint16_t)picture.H;
    draft->record.W = (uint16_t)picture.W;
    draft->record.hash =
        hash_mix(hash_bytes(member->name, strlen(member->name)), hash_bytes(head, n));
    return OK;
}

/* Digits, with white space around. */
static bool parse_label(const uint8_t *text, size_t n, uint32_t *out)
{
    size_t digits = 0;
    uint32_t label = 0;
    while (n > 0 && isspace(text[n - 1]))
        n--;
    for (; n > 0 && isspace(*text); n--)
        text++;
    for (; digits < n && digits < DIGITS_MAX && isdigit(text[digits]); digits++)
        label = label * 10 + (text[digits] - '0');
    *out = label;
    return digits > 0 && digits == n && label < LABEL_MAX;
}

static int take_number(struct webdataset_scan *scan, const struct tar_member *member)
{
    struct webdataset_draft *draft = &scan->draft;
    size_t n = member->size < LABEL_TEXT_MAX ? (size_t)member->size : LABEL_TEXT_MAX;
    const uint8_t *text = tar_bytes(&scan->tar, member->body, n, scan->err);
    if (!text)
        return ERR_INPUT;
    if (n < member->size || !parse_label(text, n, &draft->record.label))
        blame_draft(scan, member->name, "expected a label, a number from 0 to 1048575");
    return OK;
}

static int take_json(struct webdataset_scan *scan, const struct tar_member *member)
{
    const size_t n = (size_t)member->size;
    struct err why;
    if (member->size > LABEL_JSON_BYTES_MAX) {
        blame_draft(scan, member->name, "longer than the limit of 1048576 bytes");
        return OK;
    }
    char *text = malloc(n + 1);
    if (!text)
        return err_set(scan->err, ERR_NOMEM, "%s: out of memory", scan->tar.path);
    int rc =
        remote_part(scan->tar.file, scan->tar.path, member->body, text, n, ERR_INPUT, scan->err);
    if (rc == OK &&
        label_json_read(text, n, scan->label_key, &scan->draft.record.label, &why) != OK)
        blame_draft(scan, member->name, why.text);
    free(text);
    return rc;
}

static int take_label(struct webdataset_scan *scan, const struct tar_member *member)
{
    struct webdataset_draft *draft = &scan->draft;
    if (draft->labelled)
        blame_draft(scan, member->name, "a second label of this record");
    draft->labelled = true;
    return scan->label_key ? take_json(scan, member) : take_number(scan, member);
}

static bool is_picture(const char *extension)
{
    return strcasecmp(extension, "jpg") == 0 || strcasecmp(extension, "jpeg") == 0 ||
           strcasecmp(extension, "png") == 0;
}

static int take_member(struct webdataset_scan *scan, const struct tar_member *member)
{
    struct webdataset_draft *draft = &scan->draft;
    const char *slash = strrchr(member->name, '/'), *base = slash ? slash + 1 : member->name;
    const char *dot = strchr(base, '.');
    if (!dot || dot == base)
        return OK;
    size_t n = (size_t)(dot - member->name);
    if (strncmp(draft->key, member->name, n) != 0 || draft->key[n]) {
        int rc = close_draft(scan);
        if (rc != OK)
            return rc;
        memcpy(draft->key, member->name, n);
        draft->key[n] = '\0';
    }
    if (is_picture(dot + 1))
        return take_picture(scan, member);
    const char *labels = scan->label_key ? "json" : "cls";
    return strcasecmp(dot + 1, labels) == 0 ? take_label(scan, member) : OK;
}

int webdataset_scan_archive(struct webdataset_scan *scan)
{
    scan->tar.at = scan->tar.begin = scan->tar.filled = 0;
    for (;;) {
        struct tar_member member;
        int rc = tar_next(&scan->tar, &member, scan->err);
        if (rc == OK && !member.name)
            return close_draft(scan);
        if (rc == OK)
            rc = take_member(scan, &member);
        else if (scan->config->bad && tar_resume(&scan->tar))
            rc = leave_out(scan);
        if (rc != OK)
            return rc;
    }
}
