/* Nets whose images are stored in blocks of channels (LAYOUT_BLOCKS) instead of NHWC.
 *
 * Some of oneDNN's kernels, its Winograd above all, read and write blocks alone, and copy NHWC
 * images to blocks and back. Paceline's own kernels read NHWC alone. So the tuner's times of the
 * convolutions decide for the net as a whole: a change of layout between layers costs as much as
 * those kernels save. */
#ifndef PL_NN_BLOCKS_H
#define PL_NN_BLOCKS_H

#include "nn/graph.h"

/* Might the net, whose images are NHWC, be faster in blocks? It might if it trains, the tuner chose
 * a kernel that copies images for one of its convolutions, and all layers can read blocks. */
bool blocks_may_help(const struct net *net, const struct net_options *options);

/* Is the net in blocks faster than the same in NHWC, going by the times of its convolutions? */
bool blocks_win(const struct net *nhwc, const struct net *blocks);

#endif
