package paceline.spark;

import java.util.HashSet;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.SparkSession;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Leases that stay for several fits: estimators that are given the same session train one after the other in the same
 * executors. Between fits a lease waits in its task, without an engine or a worker. Each fit that is given no session
 * has one of its own.
 *
 * <pre>{@code
 * try (PacelineSession session = new PacelineSession(spark)) {
 *     PacelineModel first = estimator.setSession(session).fit(monday);
 *     PacelineModel second = estimator.fit(tuesday);
 * }
 * }</pre>
 */
public final class PacelineSession implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(PacelineSession.class);
    private static final long IDLE_S = 60;
    private static final long RUN_END_MS = 5000;
    private static final long FIT_END_MS = 2000;
    private static final long LEASES_END_MS = 1500;

    /** What executors hear, that of leases and that of ingest. */
    private final DriverEnd.Coordinator coordinator = new DriverEnd.Coordinator() {
        @Override
        public String join(String lease, String executor, String host) {
            return findWork(lease, executor, host);
        }

        @Override
        public boolean isToLeave(String lease, int worker) {
            return leases.isToLeave(lease, worker);
        }

        @Override
        public boolean isStuck(String executor, int worker) {
            return leases.isStuck(executor, worker);
        }

        @Override
        public void rowsLost(String executor) {
            leases.rowsLost(executor);
        }

        @Override
        public void stop() {
            synchronized (PacelineSession.this) {
                if (fit != null) {
                    fit.end();
                }
            }
        }

        @Override
        public void executorLost(String executor) {
            synchronized (PacelineSession.this) {
                if (fit != null) {
                    fit.executorLost(executor);
                }
            }
        }

        @Override
        public boolean admitsRows(String executor) {
            synchronized (PacelineSession.this) {
                return fit != null && fit.admitsRows(executor);
            }
        }

        @Override
        public String offerRows(String executor, Set<String> living) {
            synchronized (PacelineSession.this) {
                return fit == null ? DriverEnd.DECLINE : fit.offerRows(executor, living);
            }
        }

        @Override
        public void rowsTaken(String executor, String partitions) {
            synchronized (PacelineSession.this) {
                if (fit != null) {
                    fit.rowsTaken(executor, partitions);
                }
            }
        }
    };
    private final JavaSparkContext context;
    private final DriverEnd plugin;
    private final String id = "paceline-" + UUID.randomUUID();
    private final long idleNs;
    private final LeaseManager leases;
    private final ReentrantLock fits = new ReentrantLock(true); // one at a time
    private int begun; // fits
    private volatile boolean closed;
    private Fit fit; // whose rows are read, or whose run is in progress; null: none
    private long idleSinceNs = System.nanoTime();

    /** Workers leave a minute after a fit if there is no other one. */
    public PacelineSession(SparkSession spark) {
        this(spark, IDLE_S);
    }

    /** Workers leave so long after a fit if there is no other one. */
    public PacelineSession(SparkSession spark, long idleSeconds) {
        plugin = DriverEnd.get();
        context = JavaSparkContext.fromSparkContext(spark.sparkContext());
        Fit.checkSecurity(context.getConf());
        idleNs = TimeUnit.SECONDS.toNanos(idleSeconds);
        leases = new LeaseManager(context, id, plugin::isDecommissioned, LOG::warn);
        plugin.register(id, coordinator);
    }

    JavaSparkContext context() {
        return context;
    }

    LeaseManager leases() {
        return leases;
    }

    /** Wait for the end of another thread's fit. Returns the id of the next one, which begins. */
    String begin() {
        try {
            fits.lockInterruptibly();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new PacelineException("interrupted while another fit used the session");
        }
        if (closed || !plugin.isCurrent()) {
            fits.unlock();
            throw new PacelineException("the session is closed");
        }
        begun++;
        return id + "-" + begun;
    }

    /** From now on leases wait for this fit's work. */
    synchronized void attach(Fit next) {
        fit = next;
        plugin.register(next.id(), coordinator);
    }

    /** The fit's run is over: no lease gets work of it any more, and executors may free its rows. */
    synchronized void detach() {
        plugin.remove(fit.id());
        fit = null;
        idleSinceNs = System.nanoTime();
    }

    /** The fit is over. Wait for leases that still train, and let the next one begin. */
    void end() {
        try {
            leases.endRun(RUN_END_MS);
        } finally {
            fits.unlock();
        }
    }

    /** Executors with the library in which a lease is. */
    Set<String> executors() {
        Set<String> found = new HashSet<>(leases.executors());
        found.removeIf(executor -> !plugin.isReady(executor));
        return found;
    }

    private synchronized String findWork(String lease, String executor, String host) {
        String work = fit == null || closed ? null : fit.work(executor);
        switch (leases.join(lease, executor, host, work != null)) {
            case TRAIN:
                return work;
            case DECLINE:
                return DriverEnd.DECLINE;
            case OVER:
                return DriverEnd.OVER;
            default:
                return idle(lease, executor);
        }
    }

    private String idle(String lease, String executor) {
        if (closed) {
            return DriverEnd.OVER;
        }
        if (fit != null) {
            if (fit.keepsRowsInExecutors() && leases.isSecond(lease, executor)) {
                return DriverEnd.OVER; // two cannot train on the same rows, and it may hold the core that reads them
            }
            fit.checkCores();
            return DriverEnd.WAIT;
        }
        return System.nanoTime() - idleSinceNs >= idleNs ? DriverEnd.OVER : DriverEnd.WAIT;
    }

    /** End the fit that is in progress, and all leases. */
    @Override
    public void close() {
        synchronized (this) {
            closed = true;
            if (fit != null) {
                fit.stop("the session was closed during the fit");
            }
        }
        boolean interrupted = Thread.interrupted();
        try {
            boolean alone = fits.tryLock(FIT_END_MS, TimeUnit.MILLISECONDS);
            leases.close(LEASES_END_MS);
            if (alone) {
                fits.unlock();
            }
        } catch (InterruptedException again) {
            interrupted = true;
        } finally {
            plugin.remove(id);
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
