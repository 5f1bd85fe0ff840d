package paceline.spark;

import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.SparkConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Brings the rows of lost executors back during training. An executor that comes in the place of a lost one adopts
 * those that this has left on its host. All others are read again: in such an executor, or, where none comes, in those
 * that train. The thread that fits uses it. A thread of its own waits for Spark's job,
 * because that may wait for a free core, and the run has to be looked after meanwhile.
 */
final class LostRows {
    private static final Logger LOG = LoggerFactory.getLogger(LostRows.class);
    private static final String WAIT = "spark.paceline.replacementWait";
    private static final String WAIT_DEFAULT = "10s";
    private static final long PAUSE_NS = TimeUnit.SECONDS.toNanos(2); // after an attempt in which nobody took them
    private static final long OFFER_NS = TimeUnit.SECONDS.toNanos(10); // an executor looks for rows so long at most
    private static final int SPARE_WAITS = 10; // times as long, where an executor is there that may take them
    private static final long END_MS = 5000;

    private final Ingest ingest;
    private final RowPlaces places;
    private final Queue<String> lost; // executors
    private final boolean anywhere; // any executor may take them
    private final long waitNs;
    private final Set<String> offered = new HashSet<>(); // executors that came later, to share adopted rows
    private int adopted; // partitions, since the last tick
    private boolean lacksSome; // an executor has adopted a part of those that were lost
    private FutureTask<Integer> reader; // null: nothing is read
    private boolean withdrawn; // what is read is offered to an executor meanwhile
    private int attempts; // to read those that are missing
    private long sinceNs; // rows are missing; 0: none are
    private long againNs = Long.MIN_VALUE; // not before
    private volatile boolean areMissing;

    /** `lost` has executors whose rows are gone, as others tell it. `anywhere`: any executor may take them, at once. */
    LostRows(SparkConf conf, Ingest ingest, RowPlaces places, Queue<String> lost, boolean anywhere) {
        this.anywhere = anywhere;
        this.ingest = ingest;
        this.places = places;
        this.lost = lost;
        waitNs = TimeUnit.MILLISECONDS.toNanos(conf.getTimeAsMs(WAIT, WAIT_DEFAULT));
    }

    /** Rows that were lost are not in an executor again. Any thread. */
    boolean areMissing() {
        return areMissing;
    }

    /** Before partitions are read: which of them are gone? */
    void forget() {
        for (String executor; (executor = lost.poll()) != null;) {
            ingest.executorLost(executor);
            places.remove(executor);
        }
        areMissing = !ingest.isComplete();
    }

    /** The rows that an executor which has come may look for on its host. Any thread. */
    synchronized String offer(String executor, RecordSchema schema, Set<String> living) {
        forget();
        noteLoss();
        Map<Integer, Long> lacking = places.admitsAdopter(executor) ? ingest.lacking() : Map.of();
        if (lacking.isEmpty()) {
            return DriverEnd.DECLINE;
        }
        if (reader != null && !reader.isDone()) {
            withdrawn = true; // its task would take the core that the lease of this executor needs
            ingest.cancel();
        }
        againNs = System.nanoTime() + OFFER_NS;
        return new RowsOffer(schema, ingest.partitions(), lacking, living).text();
    }

    /** It has found these, or none. Any thread. */
    synchronized void take(String executor, List<Integer> partitions) {
        againNs = Long.MIN_VALUE;
        if (partitions.isEmpty()) {
            return;
        }
        int came = ingest.adopt(executor, partitions);
        places.adopted(executor, came);
        areMissing = !ingest.isComplete();
        lacksSome = areMissing;
        adopted += came;
        LOG.warn("executor {} has adopted {} partitions of a lost one", executor, came);
    }

    /** Rows are missing from now on: who trains? */
    private void noteLoss() {
        if (areMissing && sinceNs == 0) {
            sinceNs = System.nanoTime();
            attempts = 0;
            places.loseRows(ingest::partitionsOf);
        }
    }

    /**
     * `ready`: executors with the library; `needed`: a lease has found no rows. Returns whether rows have arrived.
     */
    synchronized boolean tick(Set<String> ready, boolean needed) {
        boolean arrived = adopted > 0;
        adopted = 0;
        if (reader != null && !reader.isDone()) {
            return arrived;
        }
        arrived |= reader != null && takeRead() > 0;
        forget();
        long now = System.nanoTime();
        Set<String> spare = places.spare(ready);
        if (!areMissing) {
            sinceNs = 0;
            lacksSome = false;
            if (!offered.containsAll(spare) && ingest.shareAdopted()) {
                offered.addAll(spare);
            }
            return arrived;
        }
        noteLoss();
        boolean adopt = now - sinceNs > (spare.isEmpty() ? waitNs : SPARE_WAITS * waitNs);
        if (needed || ((anywhere || adopt || lacksSome || !spare.isEmpty()) && now > againNs)) {
            read(adopt);
        }
        return arrived;
    }

    private void read(boolean adopt) {
        places.beginReading(ingest.partitions(), ++attempts, adopt, ingest::partitionsOf);
        reader = new FutureTask<>(() -> ingest.readLost(this::forget, adopt));
        Thread thread = new Thread(reader, "paceline-reader");
        thread.setDaemon(true);
        thread.start();
    }

    /** Rows that cannot be read are counted as missed, and training continues. */
    private int takeRead() {
        int read = 0;
        try {
            read = reader.get();
        } catch (ExecutionException failed) {
            if (!withdrawn) {
                LOG.warn("rows of a lost executor cannot be read: {}", String.valueOf(failed.getCause()));
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        reader = null;
        if (read > 0) {
            LOG.warn("rows of a lost executor are read again: {} partitions", read);
        } else if (!withdrawn) {
            againNs = System.nanoTime() + PAUSE_NS;
        }
        withdrawn = false;
        return read;
    }

    /** Nobody needs them any more. */
    void close() {
        if (reader == null || reader.isDone()) {
            return;
        }
        ingest.cancel();
        try {
            reader.get(END_MS, TimeUnit.MILLISECONDS);
        } catch (ExecutionException | TimeoutException ignored) {
            LOG.debug("the job that read lost rows was cancelled");
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
