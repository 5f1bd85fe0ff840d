package paceline.spark;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.function.Supplier;

/**
 * The records that one executor has of one session: an engine with a stream, to which ingest tasks
 * append partitions, also while a lease trains on those that are there.
 */
final class ExecutorStore {
    /** As many parts as a stream may have. */
    static final int PARTITIONS_MAX = 256;

    private static final Map<String, ExecutorStore> STORES = new HashMap<>();

    private final Set<Integer> partitions = new HashSet<>();
    private final Engine engine;
    private final long memory; // bytes of values that its stream may keep there
    private boolean trains; // a lease has the engine
    private boolean over; // released as soon as no lease trains
    private boolean released;

    private ExecutorStore(RecordSchema schema, Engine own, RowsLimit limit) {
        engine = own;
        memory = limit.bytes;
        engine.open(schema, limit);
    }

    static List<String> sessions() {
        synchronized (STORES) {
            return new ArrayList<>(STORES.keySet());
        }
    }

    /**
     * The store of a session, which is made with an engine of its own where there is none. The executor's limit is that
     * of all its stores: a new one has what the others leave.
     */
    static ExecutorStore open(String session, RecordSchema schema, Supplier<Engine> engine, RowsLimit limit) {
        synchronized (STORES) {
            return STORES.computeIfAbsent(session, key -> {
                long taken = STORES.values().stream().mapToLong(store -> store.memory).sum();
                return new ExecutorStore(schema, engine.get(),
                        new RowsLimit(Math.max(0, limit.bytes - taken), limit.folder));
            });
        }
    }

    /** The store of a session; null: this executor has no records of it. */
    static ExecutorStore find(String session) {
        synchronized (STORES) {
            return STORES.get(session);
        }
    }

    static void release(String session) {
        ExecutorStore store;
        synchronized (STORES) {
            store = STORES.remove(session);
        }
        if (store != null) {
            store.release();
        }
    }

    /** By this a run knows the records of a partition, whichever executor has them. */
    private static long identity(int partition, int of) {
        return UUID.nameUUIDFromBytes(("partition " + partition + " of " + of).getBytes(StandardCharsets.UTF_8))
                .getMostSignificantBits();
    }

    /** Append partition `partition` of `of`, once. False: it has to go to another executor. */
    synchronized boolean append(int partition, int of, PackedRows rows) {
        if (partitions.contains(partition)) {
            return true;
        }
        if (released || partitions.size() == PARTITIONS_MAX) {
            return false;
        }
        engine.append(rows, identity(partition, of));
        partitions.add(partition);
        return true;
    }

    /** The engine, for a lease that now begins; null: another lease has it, or there is no record. */
    synchronized Engine beginTraining() {
        if (trains || released || partitions.isEmpty()) {
            return null;
        }
        trains = true;
        return engine;
    }

    synchronized void endTraining() {
        trains = false;
        if (over) {
            release();
        }
    }

    private synchronized void release() {
        over = true;
        if (trains || released) {
            return;
        }
        engine.close();
        released = true;
    }
}
