package paceline.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;

/**
 * The records that one executor has of one session: an engine with a stream, to which ingest tasks
 * append, and which a lease seals before it trains.
 */
final class ExecutorStore {
    private enum State {
        OPEN, // records can be appended
        SEALED, // a lease may train on them
        TRAINING, // a lease does
        RELEASED
    }

    private static final Map<String, ExecutorStore> STORES = new HashMap<>();

    private final Set<Integer> partitions = new HashSet<>();
    private final Engine engine;
    private State state = State.OPEN;
    private boolean over; // released as soon as no lease trains

    private ExecutorStore(RecordSchema schema, Engine own) {
        engine = own;
        engine.open(schema);
    }

    static List<String> sessions() {
        synchronized (STORES) {
            return new ArrayList<>(STORES.keySet());
        }
    }

    /** The store of a session, which is made with an engine of its own where there is none. */
    static ExecutorStore open(String session, RecordSchema schema, Supplier<Engine> engine) {
        synchronized (STORES) {
            return STORES.computeIfAbsent(session, key -> new ExecutorStore(schema, engine.get()));
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

    /**
     * Append a partition, once. False: a lease has sealed the store, and the partition has to go to
     * another executor.
     */
    synchronized boolean append(int partition, PackedRows rows) {
        if (partitions.contains(partition)) {
            return true;
        }
        if (state != State.OPEN) {
            return false;
        }
        engine.append(rows);
        partitions.add(partition);
        return true;
    }

    /** The engine, for a lease that now begins; null: another lease has it, or there is no record. */
    synchronized Engine beginTraining() {
        if (state == State.OPEN && !partitions.isEmpty()) {
            engine.seal();
            state = State.SEALED;
        }
        if (state != State.SEALED) {
            return null;
        }
        state = State.TRAINING;
        return engine;
    }

    synchronized void endTraining() {
        state = State.SEALED;
        if (over) {
            release();
        }
    }

    private synchronized void release() {
        over = true;
        if (state == State.TRAINING || state == State.RELEASED) {
            return;
        }
        engine.close();
        state = State.RELEASED;
    }
}
