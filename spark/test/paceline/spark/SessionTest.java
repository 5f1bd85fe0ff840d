package paceline.spark;

import static paceline.spark.SparkTest.EXECUTORS;
import static paceline.spark.SparkTest.await;
import static paceline.spark.TestCases.check;
import static paceline.spark.TestCases.run;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.apache.spark.api.java.function.VoidFunction2;
import org.apache.spark.ml.evaluation.MulticlassClassificationEvaluator;
import org.apache.spark.ml.tuning.CrossValidator;
import org.apache.spark.ml.tuning.CrossValidatorModel;
import org.apache.spark.ml.tuning.ParamGridBuilder;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.Trigger;

/**
 * Several fits with the same workers, in an application whose executors have a core beside that of a lease; also with
 * process.conf.
 */
public final class SessionTest {
    private static final long CLOSE_NS = TimeUnit.SECONDS.toNanos(5);
    private static final int BATCHES = 3;
    private static final int FITS = 8;
    private static final int FEW = 100; // rows with a short name
    private static final long IDLE_S = 600;

    private final SparkSession spark;
    private final Path folder;
    private final SparkTest base;
    private final Dataset<Row> rows;

    private SessionTest(SparkSession spark, Path folder) {
        this.spark = spark;
        this.folder = folder;
        base = new SparkTest(spark, folder);
        rows = base.rows;
    }

    public static void main(String[] arguments) throws Exception {
        SparkSession spark = SparkSession.builder().appName("session-test").getOrCreate();
        try {
            SessionTest test = new SessionTest(spark, Path.of(arguments[0]));
            run("test_fits_use_the_same_leases", test::fitsUseTheSameLeases);
            run("test_lease_that_waits_has_no_worker", test::waitingLeaseHasNoWorker);
            run("test_key_is_hidden", () -> KeyTest.keyIsHidden(spark, test.base));
            run("test_close_ends_a_fit", test::closeEndsAFit);
            if (!SparkTest.usesProcesses(spark)) { // what the driver alone does is the same
                run("test_numbers_of_workers_differ", test::numbersOfWorkersDiffer);
                run("test_fit_in_a_session_is_as_one_without", test::fitIsAsOneWithout);
                run("test_failed_fit_keeps_leases", test::failedFitKeepsLeases);
                run("test_stream_trains_on", test::streamTrainsOn);
                run("test_folds_are_fitted_one_after_the_other", test::foldsAreFitted);
                run("test_idle_workers_leave", test::idleWorkersLeave);
                run("test_fit_without_a_core_is_refused", test::fitWithoutCoreIsRefused);
                run("test_sessions_leave_nothing", test::sessionsLeaveNothing);
            }
            run("test_executor_lost_between_fits", test::executorLostBetweenFits);
        } finally {
            spark.stop();
        }
    }

    private PacelineEstimator estimator(PacelineSession session) {
        return base.estimator().setSession(session);
    }

    private long leaseJobs() {
        return base.jobs.started.stream().filter(group -> group.contains("-lease-")).count();
    }

    private void expectGood(PacelineSummary summary, int workers) {
        check(summary.testError() < 0.1, "test error: " + summary.json());
        check(summary.workers() == workers, "workers: " + summary.json());
        check(summary.leasesResubmitted() == 0, "leases: " + summary.json());
    }

    private void expectError(PacelineEstimator estimator, String words) {
        try {
            estimator.fit(rows);
        } catch (PacelineException refused) {
            check(refused.getMessage().contains(words), refused.getMessage());
            return;
        }
        throw new AssertionError("no error about " + words);
    }

    /** Close it, in time, and expect that no job, no thread of a worker and no engine with rows is left. */
    private void close(PacelineSession session) throws Exception {
        long from = System.nanoTime();
        session.close();
        long took = System.nanoTime() - from;
        check(took < CLOSE_NS, "close took " + took / 1e9 + " s");
        base.expectNothingRuns();
    }

    // ---- leases of several fits

    private void fitsUseTheSameLeases() throws Exception {
        PacelineSession session = new PacelineSession(spark);
        try {
            base.jobs.started.clear();
            for (int i = 1; i <= 3; i++) {
                fitAndSay(session, "fit " + i);
                check(leaseJobs() == EXECUTORS, "lease jobs: " + base.jobs.started);
            }
            check(base.jobs.running.size() == EXECUTORS, "leases that wait: " + base.jobs.running);
            long from = cpuMs();
            Thread.sleep(2000);
            long used = cpuMs() - from;
            System.out.printf("executors between fits: %d ms of CPU time in 2 s%n", used);
            check(used < 1500, "executors compute between fits: " + used + " ms");
        } finally {
            close(session);
        }
        expectError(estimator(session), "the session is closed");
        fitAndSay(null, "fit without a session");
    }

    /** A worker is made with the run that needs it, and goes with it; the leases of others wait meanwhile. */
    private void waitingLeaseHasNoWorker() throws Exception {
        PacelineSession session = new PacelineSession(spark);
        try {
            estimator(session).fit(rows);
            await(() -> base.executorsWithWorkers() == 0);
            check(base.jobs.running.size() == EXECUTORS, "leases that wait: " + base.jobs.running);
            Path directory = folder.resolve("one");
            FutureTask<PacelineModel> fit = SparkTest.inBackground(() -> estimator(session).setMinWorkers(1)
                    .setMaxWorkers(1).setCheckpointDir(directory.toString()).setEpochs(10_000).fit(rows));
            Path events = directory.resolve("run").resolve("events.jsonl");
            await(() -> fit.isDone() || SparkTest.exchanges(events).size() > 5);
            check(!fit.isDone(), "the fit ended early");
            check(base.executorsWithWorkers() == 1, "executors with a worker: " + base.executorsWithWorkers());
            check(base.jobs.running.size() == EXECUTORS, "leases: " + base.jobs.running);
        } finally {
            close(session);
        }
    }

    private void fitAndSay(PacelineSession session, String name) throws Exception {
        Path directory = folder.resolve(name);
        PacelineEstimator estimator = estimator(session).setCheckpointDir(directory.toString());
        long from = System.nanoTime();
        FutureTask<PacelineModel> fit = SparkTest.inBackground(() -> estimator.fit(rows));
        Path events = directory.resolve("run").resolve("events.jsonl");
        await(() -> fit.isDone() || !SparkTest.exchanges(events).isEmpty());
        double first = (System.nanoTime() - from) / 1e9;
        PacelineSummary summary = fit.get().summary();
        System.out.printf("%s: first exchange after %.2f s (executors %.2f, ingest %.2f), %.2f s in all%n", name, first,
                summary.seconds("executors"), summary.seconds("ingest"), (System.nanoTime() - from) / 1e9);
        expectGood(summary, EXECUTORS);
        SparkTest.expectEvenCounts(summary);
    }

    private long cpuMs() {
        return base.executors().stream().mapToLong(one -> one.info().totalCpuDuration().orElseThrow().toMillis()).sum();
    }

    /** A step of one worker with all records does not depend on their order, which Spark may change. */
    private void fitIsAsOneWithout() throws Exception {
        double plain = lossOfOne(null);
        PacelineSession session = new PacelineSession(spark);
        try {
            estimator(session).fit(rows);
            double within = lossOfOne(session);
            System.out.println("loss without a session " + plain + ", with one " + within);
            check(Math.abs(within - plain) < 0.001 * plain, "a fit within a session has another loss");
        } finally {
            close(session);
        }
    }

    private double lossOfOne(PacelineSession session) throws Exception {
        PacelineSummary summary = estimator(session).setMinWorkers(1).setMaxWorkers(1).setBatchSize(FEW).setEpochs(12)
                .fit(rows.filter("held or length(name) < 7")).summary();
        check(summary.rows() == FEW, "rows: " + summary.json());
        return new ObjectMapper().readTree(summary.json()).path("test_loss").asDouble();
    }

    private void numbersOfWorkersDiffer() throws Exception {
        PacelineSession session = new PacelineSession(spark);
        try {
            base.jobs.started.clear();
            for (int workers : new int[] {2, 3, 1, 3}) {
                PacelineEstimator estimator = estimator(session).setMinWorkers(workers).setMaxWorkers(workers);
                expectGood(estimator.fit(rows).summary(), workers);
            }
            PacelineEstimator byFiles = estimator(session).setShardDir(folder.resolve("shards").toString());
            PacelineSummary files = byFiles.fit(rows).summary();
            check(files.testError() < 0.1 && files.workers() == EXECUTORS, "by files: " + files.json());
            check(leaseJobs() == EXECUTORS, "lease jobs: " + base.jobs.started);
        } finally {
            close(session);
        }
    }

    private void failedFitKeepsLeases() throws Exception {
        PacelineSession session = new PacelineSession(spark);
        try {
            estimator(session).fit(rows);
            base.jobs.started.clear();
            expectError(estimator(session).setNet("lenex"), "lenex");
            expectGood(estimator(session).fit(rows).summary(), EXECUTORS);
            check(leaseJobs() == 0, "lease jobs: " + base.jobs.started);
        } finally {
            close(session);
        }
    }

    // ---- a stream

    private void streamTrainsOn() throws Exception {
        Path input = folder.resolve("input");
        rows.repartition(BATCHES).write().parquet(input.toString());
        Path weights = folder.resolve("stream.safetensors");
        List<PacelineSummary> fits = new ArrayList<>();
        PacelineSession session = new PacelineSession(spark);
        try {
            base.jobs.started.clear();
            StreamingQuery query = spark.readStream().schema(rows.schema()).option("maxFilesPerTrigger", 1)
                    .parquet(input.toString()).writeStream().trigger(Trigger.AvailableNow())
                    .option("checkpointLocation", folder.resolve("query").toString())
                    .foreachBatch((VoidFunction2<Dataset<Row>, Long>) (batch, number) -> {
                        PacelineEstimator estimator = estimator(session).setClasses(SparkTest.CLASSES);
                        PacelineModel model = (Files.exists(weights) ? estimator.setInitialModel(weights.toString())
                                : estimator).fit(batch);
                        model.saveWeights(weights.toString());
                        fits.add(model.summary());
                    }).start();
            query.awaitTermination();
            check(fits.size() == BATCHES, "batches: " + fits.size());
            check(fits.get(BATCHES - 1).testError() < 0.1, "test error: " + fits.get(BATCHES - 1).json());
            check(leaseJobs() == EXECUTORS, "lease jobs: " + base.jobs.started);
        } finally {
            close(session);
        }
    }

    // ---- several learning rates

    /** Threads of Spark's wait for one another; the rate with which a net learns something wins. */
    private void foldsAreFitted() throws Exception {
        double[] rates = {1e-6, 0.1};
        PacelineSession session = new PacelineSession(spark);
        try {
            base.jobs.started.clear();
            PacelineEstimator estimator = EstimatorTest.estimator().setSession(session);
            CrossValidatorModel best = new CrossValidator().setEstimator(estimator).setNumFolds(2).setParallelism(2)
                    .setEstimatorParamMaps(
                            new ParamGridBuilder().addGrid(estimator.learningRate(), rates).build())
                    .setEvaluator(new MulticlassClassificationEvaluator().setMetricName("accuracy"))
                    .fit(EstimatorTest.vectors(spark));
            double[] accuracy = best.avgMetrics();
            System.out.println("accuracy by learning rate: " + Arrays.toString(accuracy));
            check(accuracy[0] < 0.8 && accuracy[1] > 0.9, "accuracy by learning rate: " + Arrays.toString(accuracy));
            PacelineModel model = (PacelineModel) best.bestModel();
            check(model.job().contains("base_lr: 0.1"), "the best model's job: " + model.job());
            check(model.summary().workers() == EXECUTORS, "workers: " + model.summary().json());
            check(leaseJobs() == EXECUTORS, "lease jobs: " + base.jobs.started);
        } finally {
            close(session);
        }
    }

    // ---- ends

    private void idleWorkersLeave() throws Exception {
        PacelineSession session = new PacelineSession(spark, 3);
        try {
            estimator(session).fit(rows);
            long from = System.nanoTime();
            Thread.sleep(1000);
            check(base.jobs.running.size() == EXECUTORS, "workers left early: " + base.jobs.running);
            base.expectNothingRuns();
            System.out.printf("idle workers left %.1f s after the fit%n", (System.nanoTime() - from) / 1e9);
            expectGood(estimator(session).fit(rows).summary(), EXECUTORS);
        } finally {
            close(session);
        }
    }

    private void closeEndsAFit() throws Exception {
        PacelineSession session = new PacelineSession(spark);
        Path directory = folder.resolve("closed");
        FutureTask<PacelineModel> fit = SparkTest.inBackground(
                () -> estimator(session).setCheckpointDir(directory.toString()).setEpochs(10_000).fit(rows));
        Path events = directory.resolve("run").resolve("events.jsonl");
        await(() -> fit.isDone() || SparkTest.exchanges(events).size() > 5);
        check(!fit.isDone(), "the fit ended early");
        close(session);
        try {
            fit.get(1, TimeUnit.SECONDS);
            throw new AssertionError("the fit of a closed session ended well");
        } catch (ExecutionException thrown) {
            check(thrown.getMessage().contains("the session was closed"), thrown.getMessage());
        }
    }

    /** Two sessions hold both cores of each executor. */
    private void fitWithoutCoreIsRefused() throws Exception {
        PacelineSession first = new PacelineSession(spark, IDLE_S);
        PacelineSession second = new PacelineSession(spark, IDLE_S);
        try {
            estimator(first).fit(rows);
            estimator(second).fit(rows);
            expectError(estimator(second).setPatience(3), "no core was free to read the rows for 3 s");
            first.close();
            expectGood(estimator(second).fit(rows).summary(), EXECUTORS);
        } finally {
            first.close();
            close(second);
        }
    }

    private void sessionsLeaveNothing() throws Exception {
        List<Long> before = null;
        PacelineSession session = new PacelineSession(spark);
        for (int i = 0; i < FITS; i++) {
            estimator(session).setEpochs(0.5).fit(rows);
            if (i % 2 == 1) {
                close(session);
                session = new PacelineSession(spark);
            }
            if (i == 2) {
                Thread.sleep(SparkTest.SWEEP_MS);
                before = base.held();
            }
        }
        close(session);
        base.expectNoMoreThan(before);
    }

    private void executorLostBetweenFits() throws Exception {
        PacelineSession session = new PacelineSession(spark);
        try {
            estimator(session).fit(rows);
            ProcessHandle victim = base.executors().get(0);
            victim.destroyForcibly();
            await(() -> !victim.isAlive());
            PacelineSummary summary = estimator(session).fit(rows).summary();
            check(summary.testError() < 0.1 && summary.workers() == EXECUTORS, "after the loss: " + summary.json());
            SparkTest.expectEvenCounts(summary);
        } finally {
            close(session);
        }
    }
}
