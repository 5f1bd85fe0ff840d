/* The interfaces of this host: which one an address belongs to, and which one leads to another
 * host. */
#ifndef PL_REAL_INTERFACE_H
#define PL_REAL_INTERFACE_H

#include "real/address.h"

enum { INTERFACE_TEXT_MAX = 256 };

/* "eth0", for an address of this host; for every address (a wildcard) all that are up, loopback
 * apart, each with its own: "eth0 10.0.0.4, wlan0 192.168.1.7". "no interface" where there is none.
 * The text is cut where it does not fit. */
void interface_name(const struct address *a, char out[INTERFACE_TEXT_MAX]);

/* The address from which packets to `there` leave this host, with port 0: where others of its
 * network reach this host. Nothing is sent. ERR_IO without a route */
int interface_towards(const struct address *there, struct address *out, struct err *err);

#endif
