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

#include "data/source.h"

/* `under` is the root of source_open_under, borrowed while the source is open. ERR_INPUT with file,
 * line and what is wrong; ERR_NOMEM */
int source_images_open(const char *under, const Paceline__Data__Images *spec, struct source **out,
                       struct err *err);

/* Paths of pictures and their labels, not looked at yet. */
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
};

enum { IMAGE_LIST_MAX = 1 << 24 };

/* Read the lines of a list, IMAGE_LIST_MAX at most, whose name is for messages; `text` (taken, of
 * `len` bytes and a zero) becomes the list's. ERR_INPUT naming the line; ERR_NOMEM */
int image_list_parse(const char *name, char *text, size_t len, struct image_list *out,
                     struct err *err);
/* Walk through a folder of class folders, of as many pictures, all of them within `under`.
 * ERR_INPUT, ERR_NOMEM */
int image_list_walk(const char *under, const char *folder, struct image_list *out, struct err *err);
void image_list_release(struct image_list *list);

#endif
