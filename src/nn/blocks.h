/* Nets whose images lie in blocks of channels (LAYOUT_BLOCKS) instead of NHWC.
 *
 * Some of oneDNN's codes, its Winograd above all, read and write blocks alone, and over NHWC copy
 * their images there and back. Codes of our own read NHWC alone. So the tuner's times of the
 * convolutions decide, for the net as a whole: to go from one layout to the other between layers
 * costs as much as such codes save. */
#ifndef PL_NN_BLOCKS_H
#define PL_NN_BLOCKS_H

#include "nn/graph.h"

/* Might the net, whose images are NHWC, be faster in blocks? It might if it trains, the tuner chose
 * a code that copies images for one of its convolutions, and all layers can read blocks. */
bool blocks_may_help(const struct net *net, const struct net_options *options);

/* Is the net in blocks faster than the same in NHWC, going by the times of its convolutions? */
bool blocks_win(const struct net *nhwc, const struct net *blocks);

#endif
