/* Pictures in files of their own, JPEG or PNG, and a label each. Either a list,
 *
 *   path label\n        the last word of a line is the label, as in Caffe's ImageData
 *
 * whose paths count from `root`, and without one from the list's folder; or a folder with a folder
 * of pictures for each class, labels in the order of names.
 *
 * Opening looks at every file's header, so that sizes are known; decoding happens when a record is
 * read. The hash is over paths, labels, lengths and the first PICTURE_HEAD bytes of each file: the
 * data's identity without reading all of it. Memory: paths, and some bytes a record. */
#ifndef PL_DATA_SOURCE_IMAGES_H
#define PL_DATA_SOURCE_IMAGES_H

#include "base/file.h"
#include "data/source.h"

/* ERR_INPUT with file, line and fault; ERR_NOMEM, ERR_CANCELLED */
int source_images_open(const struct source_config *config, const Paceline__Data__Images *spec,
                       struct source **out, struct err *err);

/* Of files that are left out: how many, and the name of the first. */
struct image_strays {
    size_t count;
    char first[80];
};

/* Paths of pictures and their labels, not opened yet. */
struct image_list {
    char *text; /* all paths, each ended by a zero; owned */
    struct image_entry {
        size_t path; /* where in `text` */
        uint32_t label;
        uint16_t H, W;
        uint64_t bytes; /* of the file */
    } * at;             /* owned */
    size_t count, cap;
    uint32_t classes;
    /* In a folder: files next to the class folders, files in them that are no pictures, and classes
     * without any. */
    struct image_strays folder_prefix, inside, empty;
};

enum { IMAGE_LIST_MAX = 1 << 24 };

/* Read the lines of a list, IMAGE_LIST_MAX at most, whose name is for messages; `text` (taken, of
 * `len` bytes and a zero) becomes the list's. ERR_INPUT naming the line; ERR_NOMEM */
int image_list_parse(const char *name, char *text, size_t len, struct image_list *out,
                     struct err *err);
/* The class folders in a folder, in the order of names; plain files next to them are no classes,
 * and are left out and counted in *strays. ERR_INPUT, ERR_NOMEM */
int image_list_classes(const char *under, const char *folder, struct file_names *out,
                       struct image_strays *strays, struct err *err);
/* Walk through a folder of class folders, of as many pictures. A file in them that is no picture by
 * its name (Thumbs.db, *.txt) is left out and counted; one that only claims to be one is a broken
 * record. Watched in stage "folders". ERR_INPUT, ERR_NOMEM, ERR_CANCELLED */
int image_list_walk(const struct source_config *config, const char *folder, struct image_list *out,
                    struct err *err);
void image_list_release(struct image_list *list);

#endif
