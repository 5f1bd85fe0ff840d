package paceline.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * When a lease that has ended is submitted again, on which hosts it may train, and when there were
 * too many failures. Decisions alone: the caller gives the time, in milliseconds.
 */
final class RestartPolicy {
    private static final long BACKOFF_MS = 1000;
    private static final long BACKOFF_MAX_MS = 60_000;
    private static final long EMPTY_MS = 100;
    private static final long EMPTY_MAX_MS = 5000;
    private static final int SHIFT_MAX = 10; // keeps a doubled pause within a long
    /** So many leases may fail without one that trained in between. */
    private static final int FAILURES_MAX = 10;
    /** More failures than these on one host, within a minute, put it in quarantine. */
    private static final int HOST_FAILURES_MAX = 3;
    private static final long HOST_WINDOW_MS = 60_000;
    private static final long QUARANTINE_MS = 60_000;
    private static final long QUARANTINE_MAX_MS = 3_600_000;

    /** What one lease has met; a new one begins when a worker joins. */
    static final class Record {
        private int failures; // in a row
        private int empty; // times in a row that its executor had no records
    }

    private static final class Host {
        final List<Long> failures = new ArrayList<>();
        long quarantineMs;
        long untilMs = Long.MIN_VALUE;
    }

    private final Map<String, Host> hosts = new HashMap<>();
    private final Map<Integer, Long> dropped = new HashMap<>(); // workers of the run, and since when
    private int failures; // of any lease, since one was known to train

    /** A lease has failed, on a host or, if that is empty, before it had one. Returns when it is due again. */
    long failed(Record lease, String host, long now) {
        failures++;
        if (!host.isEmpty()) {
            hostFailed(hosts.computeIfAbsent(host, name -> new Host()), now);
        }
        return now + Math.min(BACKOFF_MS << Math.min(lease.failures++, SHIFT_MAX), BACKOFF_MAX_MS);
    }

    private static void hostFailed(Host host, long now) {
        host.failures.removeIf(at -> now - at > HOST_WINDOW_MS);
        host.failures.add(now);
        if (host.failures.size() > HOST_FAILURES_MAX) {
            host.failures.clear();
            host.quarantineMs =
                    Math.min(Math.max(host.quarantineMs * 2, QUARANTINE_MS), QUARANTINE_MAX_MS);
            host.untilMs = now + host.quarantineMs;
        }
    }

    /** A lease has found no records. Returns when it is due again. */
    long foundNothing(Record lease, long now) {
        return now + Math.min(EMPTY_MS << Math.min(lease.empty++, SHIFT_MAX), EMPTY_MAX_MS);
    }

    /** A lease has ended without having failed. Returns when it is due again. */
    long ended(long now) {
        return now + BACKOFF_MS;
    }

    /** The run has a new member: whatever failed before does not count any more. */
    void workerJoined() {
        failures = 0;
    }

    /** Another run begins, with other workers. */
    void beginRun() {
        dropped.clear();
    }

    /** The run counts that worker as lost, while its lease runs. It may join again, with another number. */
    void workerDropped(int worker, long now) {
        dropped.putIfAbsent(worker, now);
    }

    /** Since when is that worker lost, if it was to have joined again within so long? Else Long.MAX_VALUE. */
    long overdue(int worker, long now, long rejoinMs) {
        long since = dropped.getOrDefault(worker, now);
        return now - since > rejoinMs ? since : Long.MAX_VALUE;
    }

    /** May a lease train on that host? */
    boolean admits(String host, long now) {
        Host known = hosts.get(host);
        return known == null || now >= known.untilMs;
    }

    /** Leases that have failed since a worker joined, if they are too many; else 0. */
    int exhausted() {
        return failures > FAILURES_MAX ? failures : 0;
    }
}
