/* The real world: a task is a thread, a peer a connection through TCP, several where that is asked
 * for, or, between processes of one host, through shared memory.
 *
 * One thread at a time, mostly an I/O thread, serves all connections of a world through epoll.
 * Frames are bounded before anything is allocated; bytes of a posted receive go from the socket
 * into the caller's range, those of a posted send from there to the socket. Several worlds may live
 * in one process. */
#ifndef PL_REAL_REAL_H
#define PL_REAL_REAL_H

#include "base/logger.h"
#include "world/world.h"

enum { RUN_KEY_TEXT_MIN = 32, RUN_KEY_TEXT_MAX = 64 };

struct real_options {
    const struct logger *log;
    /* Where to listen, "host:port", port 0 for any that is free; NULL: 127.0.0.1, or, for a
     * driver beyond loopback, the address by which this host reaches it. An address beyond loopback
     * is refused without a key. */
    const char *listen;
    /* The port of 127.0.0.1 where `listen` is NULL; where another process has it, one that is free,
     * and the log says so. 0: one that is free. */
    uint16_t port;
    /* Do not encrypt connections where the other side says so, too. They are authenticated at their
     * start, and open to all who can change packets on their way; the log says so each minute. */
    bool insecure;
    /* Where others are told to connect to, "host:port" too, when that is not where this node
     * listens: behind a forwarded port or a proxy. No memory is shared then, for who seems to be
     * near may not be. NULL: where it listens. */
    const char *advertise;
    /* The run's key, RUN_KEY_TEXT_MIN to RUN_KEY_TEXT_MAX characters: each side of a connection
     * proves that it has it, and what follows is encrypted unless it stays in this host's memory
     * (real/run_key.h, real/seal.h). Copied. NULL: none; this node connects to nodes without a key
     * only, at loopback. */
    const char *key;
    /* NULL: this node is the driver. Else the driver's address: connect, and be given a number. */
    const char *driver;
    uint64_t seed; /* of world_random */
    /* A driver's: which run it is, and the first number it gives to a worker. 0: a new one. Workers
     * that have a number of that run may return with it. */
    uint64_t run;
    uint32_t first_number;
    uint32_t
        numbers; /* limit of numbers: a worker that gets none is refused for now. 0: no limit */
    /* Connections to open to a peer that we connect to, 1 (0: the same) to 16: the stripes of
     * posted sends. Others may open as many to us as they like, up to 16. */
    uint32_t stripes;
    /* Hold what this node sends, and what it is sent, to so many Mbit/s each way, headers counted
     * in; control messages go at once and are counted. 0: no limit. No memory is shared then. */
    double max_mbit;
    /* Niceness, 0 to 19, of this node's threads; those that keep it in touch with others, and the
     * caller's, stay as they are. The main task then runs on a thread of its own. */
    int nice;
    bool no_shm; /* TCP also between processes of one host */
    bool ucx;    /* use UCX with peers that do, too, in builds with it; without `insecure` on
                    loopback only */
    /* Carries out want_nodes; may be NULL: ERR_UNSUPPORTED. Called on the asking task. */
    int (*want_nodes)(void *user, uint32_t n);
    void *user;
};

/* Open the world of a new node. A worker is connected to the driver when this returns.
 *
 * ERR_INPUT  a bad number of stripes, a bad address, one beyond loopback without a key, a port in
 *            use, a key that is not the driver's
 * ERR_PEER   the driver cannot be reached, refuses, or speaks another protocol version
 * ERR_IO, ERR_NOMEM */
int real_open(const struct real_options *options, struct world **out, struct err *err);

/* Which run this world belongs to. */
uint64_t real_run_of(const struct world *world);

/* Run fn(arg) as the main task of the world, on the calling thread unless its threads are to be
 * nice, and return what it returned. If
 * an assertion failed in any task, ERR_BUG, with the place in *err. */
int real_run(struct world *world, task_fn fn, void *arg, struct err *err);

/* Flush what has been sent (for at most two seconds), close all connections, end the I/O thread.
 * All tasks must have been joined, but for those parked by a failed assertion. */
void real_close(struct world *world);

/* Would real_open take that for a driver's address? ERR_INPUT saying why not */
int real_check_driver(const char *address, bool keyed, struct err *err);

/* Can only this host reach that address, "host:port"? false, too, if it is none. */
bool real_is_loopback(const char *address);

/* Does a node of ours listen at that address? Connects, reads its challenge, and hangs up; blocks
 * for `patience` ns at most. ERR_PEER: it cannot be connected to, or what answers is none of ours;
 * ERR_INPUT: that is no address */
int real_reach(const char *address, int64_t patience, struct err *err);

/* Monotonic nanoseconds, for measurements without a world. */
int64_t real_now(void);

/* The name of this machine; "" when it has none. */
void real_host_name(char *out, size_t size);

/* The model of its processor, "" where the system does not say; its memory in bytes. */
void real_cpu_name(char *out, size_t size);
uint64_t real_memory_bytes(void);

/* Sleep, outside of any world. */
void real_sleep(int64_t ns);

/* Processors this process may use: those of its affinity, at most as many as the quota of its
 * control groups (base/cgroup.h) comes to, rounded up. The second looks for control groups under
 * `root`. */
int real_cores(void);
int real_cores_under(const char *root);

/* Threads to compute by in each of so many processes: a share of these processors, at least one,
 * and at most OMP_NUM_THREADS where the environment has it. */
int real_threads(uint32_t processes);

/* The peak resident memory of this process, in bytes. */
uint64_t real_peak_bytes(void);

#endif
