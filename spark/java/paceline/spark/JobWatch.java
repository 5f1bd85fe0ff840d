package paceline.spark;

import java.util.HashSet;
import java.util.Set;
import java.util.Timer;
import java.util.TimerTask;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerTaskStart;

/**
 * The jobs of one group, which a fit needs before it trains: how long one waits for its first core, or has no executor.
 * Under dynamic allocation a job is Spark's reason to start an executor, so that none need be there when it starts.
 * A timer looks after them, because a driver without executors hears nothing.
 */
final class JobWatch extends SparkListener implements AutoCloseable {
    private static final int TICK_MS = 100;

    private final String group;
    private final BooleanSupplier hasExecutor;
    private final Set<Integer> jobs = new HashSet<>(); // that run
    private final Set<Integer> stages = new HashSet<>();
    private final Timer timer = new Timer("paceline-jobs", true);
    private long waitsSinceNs; // a job, for its first core; 0: none does
    private long lacksSinceNs; // a job, an executor; 0: none does

    /** While a job has had no executor for so long, `stop` is called again and again. */
    JobWatch(String group, int patienceS, BooleanSupplier hasExecutor, Runnable stop) {
        this.group = group;
        this.hasExecutor = hasExecutor;
        timer.schedule(new TimerTask() {
            @Override
            public void run() {
                if (lacksExecutor(System.nanoTime(), patienceS)) {
                    stop.run();
                }
            }
        }, TICK_MS, TICK_MS);
    }

    @Override
    public synchronized void onJobStart(SparkListenerJobStart job) {
        if (job.properties() != null && group.equals(job.properties().getProperty("spark.jobGroup.id"))) {
            job.stageInfos().foreach(stage -> stages.add(stage.stageId()));
            jobs.add(job.jobId());
            waitsSinceNs = System.nanoTime();
        }
    }

    @Override
    public synchronized void onTaskStart(SparkListenerTaskStart task) {
        if (stages.contains(task.stageId())) {
            waitsSinceNs = 0;
        }
    }

    @Override
    public synchronized void onJobEnd(SparkListenerJobEnd job) {
        jobs.remove(job.jobId());
    }

    /** Has a job waited for its first core for so long? */
    synchronized boolean waits(int seconds) {
        return waitsSinceNs != 0 && System.nanoTime() - waitsSinceNs > TimeUnit.SECONDS.toNanos(seconds);
    }

    private synchronized boolean lacksExecutor(long now, int seconds) {
        if (jobs.isEmpty() || hasExecutor.getAsBoolean()) {
            lacksSinceNs = 0;
        } else if (lacksSinceNs == 0) {
            lacksSinceNs = now;
        }
        return lacksSinceNs != 0 && now - lacksSinceNs > TimeUnit.SECONDS.toNanos(seconds);
    }

    @Override
    public void close() {
        timer.cancel();
    }
}
