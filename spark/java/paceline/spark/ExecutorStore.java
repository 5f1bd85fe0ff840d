package paceline.spark;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The records that one executor has of one session: an engine with a stream, to which ingest tasks
 * append partitions, also while a lease trains on those that are there. They are in a file, too, from which
 * another executor adopts them when this one is lost, and this one when its engine is.
 */
final class ExecutorStore {
    /** As many parts as a stream may have. */
    static final int PARTITIONS_MAX = 256;

    private static final Logger LOG = LoggerFactory.getLogger(ExecutorStore.class);
    private static final Map<String, ExecutorStore> STORES = new HashMap<>();

    private final String session;
    private final RecordSchema schema;
    private final Supplier<Engine> engines;
    private final RowsLimit limit; // what its stream may keep in memory
    private final KeptRows keeper;
    private final List<Path> kept = new ArrayList<>(); // files of its records
    private final Map<Integer, Long> partitions = new TreeMap<>(); // how many records each has
    private int partitionsOf; // all executors
    private Engine engine;
    private boolean trains; // a lease has the engine
    private boolean over; // released as soon as no lease trains
    private boolean released;

    private ExecutorStore(String session, RecordSchema schema, Supplier<Engine> engines, RowsLimit limit,
            KeptRows keeper) {
        this.session = session;
        this.schema = schema;
        this.engines = engines;
        this.limit = limit;
        this.keeper = keeper;
        engine = openEngine();
    }

    /** With a stream that is kept, where that can be. */
    private Engine openEngine() {
        Engine opened = engines.get();
        Path file = keeper.newFile(session);
        if (file != null) {
            try {
                opened.open(schema, limit.keptIn(file.toString(), KeptRows.identity(session)));
                kept.add(file);
                return opened;
            } catch (PacelineException failed) {
                LOG.warn("rows end with this executor: {}", failed.getMessage());
            }
        }
        opened.open(schema, limit);
        return opened;
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
    static ExecutorStore open(String session, RecordSchema schema, Supplier<Engine> engine, RowsLimit limit,
            KeptRows keeper) {
        synchronized (STORES) {
            return STORES.computeIfAbsent(session, key -> {
                long taken = STORES.values().stream().mapToLong(store -> store.limit.bytes).sum();
                return new ExecutorStore(session, schema, engine,
                        new RowsLimit(Math.max(0, limit.bytes - taken), limit.folder), keeper);
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

    /** The executor ends: nothing of its files is to stay. */
    static void deleteFiles() {
        synchronized (STORES) {
            STORES.values().forEach(store -> store.kept.forEach(KeptRows::delete));
        }
    }

    /** By this a run knows the records of a partition, whichever executor has them. */
    private static long identity(int partition, int of) {
        return UUID.nameUUIDFromBytes(("partition " + partition + " of " + of).getBytes(StandardCharsets.UTF_8))
                .getMostSignificantBits();
    }

    /** Append partition `partition` of `of`, once. False: it has to go to another executor. */
    synchronized boolean append(int partition, int of, PackedRows rows) {
        if (partitions.containsKey(partition)) {
            return true;
        }
        if (released || partitions.size() == PARTITIONS_MAX) {
            return false;
        }
        engine.append(rows, identity(partition, of));
        partitions.put(partition, (long) rows.count());
        partitionsOf = of;
        return true;
    }

    /**
     * Take partitions of `of`, of which the numbers of records are given, from the file of an executor that has ended.
     * Returns those that have come; null: its process lives yet.
     */
    synchronized List<Integer> adopt(KeptRows.Kept file, Map<Integer, Long> wanted, int of) {
        Map<Integer, Long> lacking = new TreeMap<>(wanted);
        lacking.keySet().removeAll(partitions.keySet());
        if (released || lacking.isEmpty()) {
            return List.of();
        }
        Engine.Adoption result = engine.adopt(file.path.toString(), identities(lacking, of), numbers(lacking));
        List<Integer> came = result.of(new ArrayList<>(lacking.keySet()));
        if (result.status == Native.ERR_USAGE) {
            return null;
        }
        if (result.status != 0) {
            LOG.warn("rows of a lost executor are refused, and read again: {}", result.message);
        }
        came.forEach(partition -> partitions.put(partition, lacking.get(partition)));
        if (!came.isEmpty()) {
            partitionsOf = of;
            kept.add(keeper.take(file));
        } else if (result.status == Native.ERR_INPUT) {
            KeptRows.delete(file.path);
        }
        return came;
    }

    private static long[] identities(Map<Integer, Long> those, int of) {
        return those.keySet().stream().mapToLong(partition -> identity(partition, of)).toArray();
    }

    private static long[] numbers(Map<Integer, Long> those) {
        return those.values().stream().mapToLong(Long::longValue).toArray();
    }

    /** The engine of that store is broken. False: its records are gone, and the store with them. */
    static boolean restore(String session) {
        ExecutorStore store = find(session);
        boolean restored = store != null && store.restore();
        if (!restored) {
            release(session);
        }
        return restored;
    }

    /** Give the engine of a worker back; no lease gets a broken one before it is replaced. False: its records are gone. */
    synchronized boolean takeBack(Runnable giveBack, Engine of) {
        giveBack.run();
        return of.usable() || released || restore();
    }

    /** Its engine is broken: get all records from the files into another one. False: they are gone. */
    synchronized boolean restore() {
        if (trains || released || kept.isEmpty()) {
            return false;
        }
        engine.close();
        List<Path> files = List.copyOf(kept);
        try {
            engine = openEngine();
            Map<Integer, Long> lacking = new TreeMap<>(partitions);
            for (Path file : files) {
                Engine.Adoption result = engine.adopt(file.toString(), identities(lacking, partitionsOf),
                        numbers(lacking));
                if (result.status != 0) {
                    LOG.warn("rows of an engine are refused: {}", result.message);
                }
                lacking.keySet().removeAll(result.of(new ArrayList<>(lacking.keySet())));
            }
            return lacking.isEmpty();
        } catch (PacelineException failed) {
            LOG.warn("rows of an engine are lost: {}", failed.getMessage());
            return false;
        }
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
        kept.forEach(KeptRows::delete);
        released = true;
    }
}
