package paceline.spark;

import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.SparkSession;

/** Applications in which no fit can train, one after the other in the JVM of another test. */
final class RefusedFits {
    private static final int PATIENCE_S = 1;
    /** On a loaded machine Spark takes seconds to plan a job, and to cancel it. */
    private static final int DEADLINE_S = 60;
    private static final String NO_WORKER = "local-cluster[0,1,512]";

    private RefusedFits() {}

    private interface Body {
        void run(SparkSession spark) throws Exception;
    }

    private static void with(SparkSession.Builder settings, Body body) throws Exception {
        SparkSession spark = settings.appName("refused-fits").getOrCreate();
        try {
            body.run(spark);
        } finally {
            spark.stop();
        }
    }

    /** What is known of the rows decides which job would be the first to wait. */
    static void withoutExecutors(Path folder) throws Exception {
        with(SparkSession.builder().master(NO_WORKER).config("spark.dynamicAllocation.enabled", false), spark -> {
            SparkTest base = new SparkTest(spark, folder);
            expectRefused(base, base.estimator(), "0 executors after 1 s, and minWorkers is 3");
        });
        with(SparkSession.builder().master(NO_WORKER).config("spark.dynamicAllocation.enabled", true), spark -> {
            SparkTest base = new SparkTest(spark, folder);
            PacelineEstimator estimator = base.estimator().setShardDir(folder.resolve("none").toString());
            expectRefused(base, estimator, "no executor was there to read the rows for 1 s");
            expectRefused(base, estimator.setShape("1,12,12").setClasses(SparkTest.CLASSES),
                    "no executor was there to read the rows for 1 s");
        });
    }

    /** Where it is not refused it would wait for ever, until the application ends. */
    private static void expectRefused(SparkTest base, PacelineEstimator estimator, String words) throws Exception {
        SparkTest.inBackground(() -> {
            base.expectError(estimator.setPatience(PATIENCE_S), base.rows, words);
            return null;
        }).get(DEADLINE_S, TimeUnit.SECONDS);
    }

    static void withoutPlugin(Path folder) throws Exception {
        with(SparkSession.builder().master("local[1]").config("spark.plugins", "")
                .config("spark.dynamicAllocation.enabled", false), spark -> {
            SparkTest base = new SparkTest(spark, folder);
            base.expectError(base.estimator(), base.rows, "no Paceline plugin",
                    "spark.plugins=paceline.spark.PacelinePlugin", "spark.jars=paceline-spark.jar");
        });
    }
}
