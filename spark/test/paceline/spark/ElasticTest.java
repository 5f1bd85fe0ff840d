package paceline.spark;

import static paceline.spark.RunningFit.LOADED;
import static paceline.spark.RunningFit.seconds;
import static paceline.spark.TestCases.check;
import static paceline.spark.TestCases.run;

import java.nio.file.Path;
import org.apache.spark.sql.SparkSession;

/** A number of workers that changes, in an application whose executors Spark starts and ends as they are needed. */
public final class ElasticTest {
    private static final double EVENT_S = 3;
    private static final int FEW = 2;
    private static final int MOST = 4;

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
    }

    /** Leases that wait raise executors; those that leave, or are over, let them go. */
    private void workersFollowTarget() throws Exception {
        base.expectError(base.estimator(), base.rows, "set shardDir and maxWorkers");
        PacelineControl.setWorkers(1);
        RunningFit run = new RunningFit(base, base.estimator().setMinWorkers(1).setMaxWorkers(MOST)
                .setShardDir(base.folder.resolve("shards").toString()), "elastic", RunningFit.SYNC);
        int read = base.executors().size();
        double freed = run.reach("the end of executors that read rows", () -> base.executors().size() == 1);
        check(run.count("join") == 1, "workers: " + run.count("join"));

        leases.executorAddedNs.clear();
        PacelineControl.setWorkers(MOST);
        double slowest = 0;
        for (int i = 0; i < MOST - 1; i++) {
            int joined = i + 2;
            run.reach("worker " + joined, () -> run.count("join") >= joined);
            slowest = Math.max(slowest, seconds(leases.executorAddedNs.get(i)));
        }

        PacelineControl.setWorkers(FEW);
        double left = run.reach("two leaves", () -> run.count("leave") == MOST - FEW);
        double gone = left + run.reach("their executors' end", () -> base.executors().size() == FEW);
        System.out.printf("1 worker: %d executors are 1 after %.1f s; %d workers: each joined at most %.1f s after its"
                + " executor came; %d workers: two left after %.1f s, their executors after %.1f s%n", read, freed,
                MOST, slowest, FEW, left, gone);

        PacelineSummary summary = run.end(FEW);
        PacelineControl.setWorkers(0);
        run.expectNoLoss();
        check(summary.repeated() + summary.missed() == 0, "counts: " + summary.json());
        check(summary.leasesResubmitted() == 0, "leases: " + summary.json());
        check(slowest < EVENT_S * LOADED, "joined after " + slowest);
        check(left < EVENT_S * LOADED, "left after " + left);
        base.rows.unpersist();
        SparkTest.await(() -> base.executors().isEmpty());
    }
}
