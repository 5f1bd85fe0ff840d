#include "cli/cli.h"

#include <stdio.h>

void data_spec_help(void)
{
    puts("SPEC names records: KIND:PATH, and after a ? what is done with them, with & between.\n"
         "\n"
         "  idx:IMAGES,LABELS    two files of IDX (MNIST), plain or gzip\n"
         "  cifar10:DIR|FILE     CIFAR-10, binary version; of a folder what is trained on, or "
         "tested\n"
         "  cifar100:DIR|FILE    CIFAR-100, binary version\n"
         "  images:DIR|LIST      a folder with a folder of pictures (JPEG, PNG) for each class, or "
         "a\n"
         "                       file with a path and a label a line\n"
         "  lmdb:DIR             a database of Caffe's Datums\n"
         "  memory:NAME          records of a program that uses the library (pl_data_bind)\n"
         "\n"
         "For every kind, done in this order:\n"
         "\n"
         "  resize=N             the shorter edge, to N pixels\n"
         "  resize_height=N, resize_width=N   to exactly that, instead\n"
         "  pad=N                N zeros around, to crop from\n"
         "  crop=N               N by N pixels: drawn in training, else the middle\n"
         "  mirror=true          left to right, every second time, in training\n"
         "  mean=M or M1,M2,M3   is taken away: one number, or one a channel\n"
         "  mean_file=FILE       instead: one a pixel, a binaryproto of Caffe's\n"
         "  scale=F              what remains, times F: 0.00390625 brings 0...255 to 0...1\n"
         "\n"
         "For some:\n"
         "\n"
         "  color=rgb|bgr|gray   images (rgb), lmdb of pictures (bgr)\n"
         "  root=DIR             images: where the paths of a LIST begin (the list's folder)\n"
         "  coarse=true          cifar100: the 20 coarse labels\n"
         "\n"
         "As in: 'images:pets?resize=256&crop=224&mirror=true&scale=0.0078125&mean=128'\n"
         "In quotes, since a shell takes ? and & for itself. A job says the same in fields:\n"
         "train_data { images { list: \"pets\" } resize: 256 crop: 224 mirror: true }");
}
