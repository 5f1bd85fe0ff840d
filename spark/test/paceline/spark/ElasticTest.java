package paceline.spark;

import static paceline.spark.RunningFit.LOADED;
import static paceline.spark.RunningFit.seconds;
import static paceline.spark.TestCases.check;
import static paceline.spark.TestCases.run;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Path;
import org.apache.spark.sql.SparkSession;

/**
 * A number of workers that changes, in an application whose executors Spark starts and ends as they are needed.
 */
public final class ElasticTest {
    private static final double EVENT_S = 3;
    private static final int FEW = 2;
    private static final int MOST = 4;
    private static final int OF_A_PROFILE = 2;
    /** Twice the time after which Spark ends an executor that is idle. */
    private static final long IDLE_MS = 6_000;
    /** The seconds of a step: 64 by one worker, 56, 57.3 and 64 ms by more. FEW are the fastest. */
    private static final String FOLLOW = "global_batch: 64\n"
            + "follow_batch { samples_per_s: 1000 exchange_s_per_worker: 0.048 gain: 0.01 }"; // in tau = 4 steps

    private final SparkTest base;
    private final RunningFit.Leases leases = new RunningFit.Leases();

    private ElasticTest(SparkSession spark, Path folder) {
        base = new SparkTest(spark, folder);
        spark.sparkContext().addSparkListener(leases);
    }

    public static void main(String[] arguments) throws Exception {
        SparkSession spark = SparkSession.builder().appName("elastic-test").getOrCreate();
        try {
            ElasticTest test = new ElasticTest(spark, Path.of(arguments[0]));
            run("test_workers_follow_target", test::workersFollowTarget);
        } finally {
            spark.stop();
        }
        Path folder = Path.of(arguments[0]);
        run("test_executors_with_shards_stay", () -> executorsWithShardsStay(folder));
        run("test_fit_without_executors_is_refused", () -> RefusedFits.withoutExecutors(folder));
        run("test_fit_without_plugin_is_refused", () -> RefusedFits.withoutPlugin(folder));
    }

    /**
     * An executor that only keeps files has no task, and stays until the fit is over. Its cores are not for leases. Here
     * the library is in processes.
     */
    private static void executorsWithShardsStay(Path folder) throws Exception {
        SparkSession spark = SparkSession.builder().appName("shards-test")
                .config("spark.dynamicAllocation.maxExecutors", OF_A_PROFILE)
                .config("spark.dynamicAllocation.cachedExecutorIdleTimeout", "1h")
                .config("spark.paceline.process", true).getOrCreate();
        try {
            ElasticTest test = new ElasticTest(spark, folder);
            SparkTest base = test.base;
            RunningFit run = new RunningFit(base, base.estimator().setMinWorkers(1).setMaxWorkers(OF_A_PROFILE)
                    .setShardDir(Shards.LOCAL), "shards-stay", RunningFit.SYNC);
            run.reach("its workers", () -> run.count("join") == OF_A_PROFILE);
            base.rows.unpersist(); // cached rows would keep them as well
            long packers = test.leases.executors(false);
            Thread.sleep(IDLE_MS);
            check(packers > 0 && test.leases.executors(false) == packers
                    && test.leases.executors(true) == OF_A_PROFILE, "profiles: " + test.leases.profile);
            PacelineSummary summary = run.end(OF_A_PROFILE);
            run.expectNoLoss();
            check(summary.repeated() + summary.missed() == 0, "counts: " + summary.json());
            SparkTest.await(() -> base.executors().isEmpty());
        } finally {
            spark.stop();
        }
    }

    /**
     * Leases that wait raise executors; those that leave, or are over, let them go. The target is that of the batch,
     * from one worker on, until the user sets one.
     */
    private void workersFollowTarget() throws Exception {
        base.expectError(base.estimator(), base.rows, "set shardDir and maxWorkers");
        PacelineEstimator estimator = base.estimator().setMinWorkers(1).setMaxWorkers(MOST)
                .setShardDir(base.folder.resolve("shards").toString());
        RunningFit run = new RunningFit(base, estimator.setJob(estimator.getJob().replace("batch: 16", FOLLOW)),
                "elastic", RunningFit.SYNC);
        run.reach("the workers for the batch", () -> run.count("join") == FEW);
        JsonNode wanted = SparkTest.events(run.events, "want_workers").get(0);
        check(wanted.path("of").asInt() == 1 && wanted.path("workers").asInt() == FEW, "wanted: " + wanted);
        double freed = run.reach("the end of executors that read rows", () -> base.executors().size() == FEW);
        check(leases.executors(true) == FEW && leases.executors(false) == 0, "profiles: " + leases.profile);
        base.jobs.started.clear();
        PacelineControl.setWorkers(1);
        run.reach("the end of its executor", () -> base.executors().size() == 1);
        check(run.count("join") == FEW && run.count("leave") == 1, "workers: " + run.count("join"));

        leases.executorAddedNs.clear();
        PacelineControl.setWorkers(MOST);
        double slowest = 0;
        for (int i = 0; i < MOST - 1; i++) {
            int joined = FEW + i + 1;
            run.reach("worker " + joined, () -> run.count("join") >= joined);
            slowest = Math.max(slowest, seconds(leases.executorAddedNs.get(i)));
        }

        PacelineControl.setWorkers(0);
        double left = run.reach("two leaves", () -> run.count("leave") == 1 + MOST - FEW);
        double gone = left + run.reach("their executors' end", () -> base.executors().size() == FEW);
        System.out.printf("executors that read rows have ended %.1f s after the second worker joined; %d workers: each joined at most %.1f s after its"
                + " executor came; %d workers: two left after %.1f s, their executors after %.1f s%n", freed,
                MOST, slowest, FEW, left, gone);

        check(base.jobs.started.stream().allMatch(job -> job.contains("-lease-")), "jobs: " + base.jobs.started);
        check(leases.executors(false) == 0, "profiles: " + leases.profile);
        PacelineSummary summary = run.end(FEW);
        run.expectNoLoss();
        check(summary.repeated() + summary.missed() == 0, "counts: " + summary.json());
        check(summary.leasesResubmitted() == 0, "leases: " + summary.json());
        check(slowest < EVENT_S * LOADED, "joined after " + slowest);
        check(left < EVENT_S * LOADED, "left after " + left);
        base.rows.unpersist();
        SparkTest.await(() -> base.executors().isEmpty());
    }
}
