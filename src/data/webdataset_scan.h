/* The records of a TAR archive as WebDataset lays them out (source_webdataset.h), found by a scan
 * of its members. */
#ifndef PL_DATA_WEBDATASET_SCAN_H
#define PL_DATA_WEBDATASET_SCAN_H

#include "data/source.h"
#include "data/tar_file.h"
#include "data/tar_index.h"

/* The record whose members are being read. */
struct webdataset_draft {
    char key[TAR_NAME_MAX]; /* "": none */
    bool pictured, labelled;
    struct tar_record record;
    struct err fault; /* the first thing that is wrong with it; its status is OK: nothing */
};

/* A scan of one archive after another. The caller sets all but the draft, and tar.file and tar.path
 * of each archive; the rest is zero. */
struct webdataset_scan {
    const struct source_config *config;
    const char *label_key; /* labels are in .json under it; NULL: in .cls */
    struct err *err;       /* not NULL */
    uint64_t done, total;  /* bytes of archives: those before this one, and all */
    uint64_t records;      /* found so far, bad ones too */
    /* Receives each good record in turn; what it returns ends the scan unless it is OK. */
    int (*add)(void *user, const struct tar_record *record, struct err *err);
    void *user;
    struct tar tar;
    struct webdataset_draft draft;
};

/* Scan the open archive. ERR_INPUT: it is truncated or no archive, or has a bad record (too many of
 * them where config->bad counts them); ERR_NOMEM, ERR_CANCELLED, and what `add` returns */
int webdataset_scan_archive(struct webdataset_scan *scan);

/* The check of the header in front of a picture. */
uint32_t webdataset_check(const uint8_t header[TAR_BLOCK]);

#endif
