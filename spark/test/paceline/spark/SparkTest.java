package paceline.spark;

import static paceline.spark.TestCases.check;
import static paceline.spark.TestCases.run;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.spark.ml.Pipeline;
import org.apache.spark.ml.PipelineModel;
import org.apache.spark.ml.PipelineStage;
import org.apache.spark.ml.evaluation.MulticlassClassificationEvaluator;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * The module in one application of three executors, which spark/test/cluster.sh submits; also with process.conf.
 */
public final class SparkTest {
    private static final int SIDE = 12;
    static final int CLASSES = 3;
    static final int TRAIN = 3000;
    static final int TEST = 300;
    static final int EXECUTORS = 3;
    private static final double MANY_EPOCHS = 17; // 1,000 exchanges, one a step of three batches
    private static final long DEADLINE_MS = 180_000;
    static final long SWEEP_MS = 3000;
    private static final long LEVEL_NS = TimeUnit.SECONDS.toNanos(24);
    /** The one that frees rows of fits that are over, and the one that watches processes of engines. */
    private static final Set<String> EXECUTOR_THREADS = Set.of("paceline-sweepe", "paceline-watch");
    private static final String NET = "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
            + "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n"
            + "  convolution_param { num_output: 6 kernel_size: 3 weight_filler { type: 'xavier' } } }\n"
            + "layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool'\n"
            + "  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }\n"
            + "layer { name: 'relu' type: 'ReLU' bottom: 'pool' top: 'pool' }\n"
            + "layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'\n"
            + "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
            + "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";
    private static final String TEXT_NET = "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
            + "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n"
            + "  convolution_param { num_output: 8 kernel_h: 1 kernel_w: 4 weight_filler { type: 'xavier' } } }\n"
            + "layer { name: 'relu' type: 'ReLU' bottom: 'conv' top: 'conv' }\n"
            + "layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool'\n"
            + "  pooling_param { pool: MAX global_pooling: true } }\n"
            + "layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'\n"
            + "  inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } }\n"
            + "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";
    private static final StructType COLUMNS = new StructType().add("image", DataTypes.BinaryType)
            .add("label", DataTypes.IntegerType).add("held", DataTypes.BooleanType)
            .add("name", DataTypes.StringType);
    private static final ObjectMapper JSON = new ObjectMapper();

    /** What Spark does, by job group. */
    static final class Jobs extends SparkListener {
        final ConcurrentLinkedQueue<String> started = new ConcurrentLinkedQueue<>();
        final ConcurrentLinkedQueue<String> readings = new ConcurrentLinkedQueue<>(); // descriptions of ingest jobs
        final ConcurrentLinkedQueue<Properties> properties = new ConcurrentLinkedQueue<>();
        final Set<Integer> running = ConcurrentHashMap.newKeySet();

        @Override
        public void onJobStart(SparkListenerJobStart job) {
            Properties properties = job.properties();
            String group = properties == null ? null : properties.getProperty("spark.jobGroup.id");
            started.add(String.valueOf(group));
            if (properties != null) {
                this.properties.add(properties);
            }
            if (group != null && group.endsWith("-ingest")) {
                readings.add(properties.getProperty("spark.job.description"));
            }
            running.add(job.jobId());
        }

        @Override
        public void onJobEnd(SparkListenerJobEnd job) {
            running.remove(job.jobId());
        }
    }

    final SparkSession spark;
    final Path folder;
    final Jobs jobs = new Jobs();
    final Dataset<Row> rows;

    SparkTest(SparkSession spark, Path folder) {
        this.spark = spark;
        this.folder = folder;
        spark.sparkContext().addSparkListener(jobs);
        rows = makeRows();
    }

    public static void main(String[] arguments) throws Exception {
        SparkSession spark = SparkSession.builder().appName("spark-test").getOrCreate();
        try {
            SparkTest test = new SparkTest(spark, Path.of(arguments[0]));
            if (!usesProcesses(spark)) { // what the driver and ordinary tasks do is the same
                run("test_nets_average_through_spark", () -> SparkNetTest.netsAverageThroughSpark(spark));
                run("test_wrong_columns_are_refused", test::wrongColumnsAreRefused);
                run("test_bad_rows_stop_or_are_left_out", test::badRowsStopOrAreLeftOut);
                run("test_nets_that_do_not_fit_are_refused", () -> EstimatorTest.netsThatDoNotFitAreRefused(test));
                run("test_library_is_in_the_local_folder", test::libraryIsInLocalFolder);
                run("test_pipeline_is_saved_and_loaded", test::pipelineIsSavedAndLoaded);
                run("test_strings_are_classified", test::stringsAreClassified);
            }
            run("test_vectors_are_classified", () -> EstimatorTest.vectorsAreClassified(spark));
            run("test_fit_needs_no_job_but_leases_and_ingest", test::fitNeedsNoOtherJob);
            run("test_rows_go_through_shared_files", test::rowsGoThroughSharedFiles);
            run("test_rows_go_through_shards_of_executors", test::rowsGoThroughShardsOfExecutors);
            run("test_run_is_continued", test::runIsContinued);
            run("test_interrupted_fit_ends", test::interruptedFitEnds);
            run("test_fits_leave_nothing", test::fitsLeaveNothing);
        } finally {
            spark.stop();
        }
    }

    /** Class c is a bright bar: lying, standing, slanting; the rest is noise. */
    private Dataset<Row> makeRows() {
        Random random = new Random(1);
        List<Row> all = new ArrayList<>();
        for (int i = 0; i < TRAIN + TEST; i++) {
            int label = i % CLASSES;
            int at = 3 + random.nextInt(6);
            byte[] image = new byte[SIDE * SIDE];
            for (int row = 0; row < SIDE; row++) {
                for (int col = 0; col < SIDE; col++) {
                    boolean on = label == 0 ? row == at : label == 1 ? col == at : row + col == 2 * at;
                    image[row * SIDE + col] = (byte) (random.nextInt(100) + (on ? 150 : 0));
                }
            }
            all.add(RowFactory.create(image, label, i >= TRAIN, "row " + i));
        }
        return spark.createDataFrame(all, COLUMNS).repartition(6).cache();
    }

    PacelineEstimator estimator() {
        return new PacelineEstimator().setJob("name: 'spark-test' batch: 16 threads: 1 kernels: ref\n"
                + "train_data { scale: 0.00390625 } test_data { scale: 0.00390625 }\n"
                + "solver { base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed' } strategy { sync { tau: 4 } } stop { epochs: 3 }")
                .setNet(NET).setFeaturesCol("image").setValidationIndicatorCol("held")
                .setMinWorkers(EXECUTORS).setMaxWorkers(EXECUTORS).setBelowMinWorkers("continue");
    }

    void expectNothingRuns() throws Exception {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(15);
        List<String> running = running();
        while (!running.isEmpty() && System.nanoTime() < until) {
            Thread.sleep(50);
            running = running();
        }
        check(running.isEmpty(), "still running: " + running);
    }

    /** Jobs, leases among them; processes of engines; threads of the library but those that an executor always has. */
    private List<String> running() throws IOException {
        List<String> found = jobs.running.stream().map(job -> "job " + job).collect(Collectors.toList());
        engines().forEach(engine -> found.add("engine " + engine.pid()));
        List<ProcessHandle> processes = executors();
        processes.add(ProcessHandle.current());
        for (ProcessHandle process : processes) {
            threads(process).filter(name -> !EXECUTOR_THREADS.contains(name))
                    .forEach(name -> found.add(name + " in " + process.pid()));
        }
        return found;
    }

    /** The processes of engines, of all executors. */
    List<ProcessHandle> engines() {
        return executors().stream().flatMap(executor -> engines(executor).stream()).collect(Collectors.toList());
    }

    static List<ProcessHandle> engines(ProcessHandle executor) {
        return executor.descendants()
                .filter(process -> commandLine(process.pid()).contains(EngineChild.class.getName()))
                .collect(Collectors.toList());
    }

    /** The executors in which the library has a worker, or a process. */
    long executorsWithWorkers() throws IOException {
        long count = 0;
        for (ProcessHandle executor : executors()) {
            boolean has = threads(executor).anyMatch(name -> !EXECUTOR_THREADS.contains(name));
            count += has || !engines(executor).isEmpty() ? 1 : 0;
        }
        return count;
    }

    /** The library's threads. One has the name of the thread that started it. */
    private static Stream<String> threads(ProcessHandle process) throws IOException {
        try (Stream<Path> tasks = Files.list(Path.of("/proc/" + process.pid() + "/task"))) {
            return tasks.map(task -> read(task.resolve("comm")).strip()).filter(name -> name.startsWith("paceline"))
                    .collect(Collectors.toList()).stream();
        } catch (NoSuchFileException ended) {
            return Stream.empty();
        }
    }

    void expectError(PacelineEstimator estimator, Dataset<Row> data, String... words) throws Exception {
        try {
            estimator.fit(data);
        } catch (PacelineException refused) {
            for (String word : words) {
                check(refused.getMessage().contains(word), "'" + word + "' in: " + refused.getMessage());
            }
            expectNothingRuns();
            return;
        }
        throw new AssertionError("no error about " + words[0]);
    }

    // ---- errors

    private void wrongColumnsAreRefused() throws Exception {
        expectError(estimator().setFeaturesCol("picture"), rows, "featuresCol 'picture' is no column", "image, label");
        expectError(estimator().setFeaturesCol("held"), rows, "featuresCol 'held' is boolean", "binary, a string");
        expectError(estimator().setLabelCol("name"), rows, "labelCol 'name' is string", "StringIndexer");
        expectError(estimator().setValidationIndicatorCol("label"), rows, "validationIndicatorCol 'label' is int");
        expectError(estimator().setShape("1,12,13"), rows, "its features have 144 values, and records have 156");
        expectError(estimator().setClasses(2), rows, "its label 2.0 is no class; classes are 0 to 1");
        expectError(estimator().setNet("lenex"), rows, "lenex");
        expectError(estimator().setJob(estimator().getJob() + " batchsize: 9"), rows, "job: ", "batchsize");
        expectError(estimator().setMaxWorkers(1), rows, "maxWorkers 1 is below minWorkers 3");
        expectError(estimator().setMinWorkers(5).setMaxWorkers(5).setPatience(1), rows, "minWorkers is 5");
        expectError(estimator().setJob(estimator().getJob().replace("batch: 16", "global_batch: 64")
                + " follow_batch { samples_per_s: 9 }"), rows, "set shardDir");
        expectError(estimator(), rows.filter("label > 5"), "there is no row to train on");
    }

    private void badRowsStopOrAreLeftOut() throws Exception {
        Dataset<Row> bad = rows.limit(0).union(spark.createDataFrame(
                List.of(RowFactory.create(new byte[5], 1, false, "short"), RowFactory.create(null, 1, false, "null"),
                        RowFactory.create(new byte[SIDE * SIDE], null, false, "no label")),
                COLUMNS)).union(rows);
        PacelineEstimator estimator = estimator().setShape("1,12,12");
        expectError(estimator, bad, "bad rows in partition", "onBadRecord");
        PacelineSummary summary = estimator.setOnBadRecord("skip").fit(bad).summary();
        check(summary.badRows() == 3, "bad rows: " + summary.json());
        check(summary.rows() == TRAIN, "rows: " + summary.json());
    }

    private void libraryIsInLocalFolder() throws Exception {
        for (ProcessHandle executor : executors()) {
            EstimatorTest.expectLibraryInLocalFolder(spark, executor.pid());
        }
    }

    // ---- fits

    private void fitNeedsNoOtherJob() throws Exception {
        rows.count();
        jobs.started.clear();
        Path directory = folder.resolve("jobs");
        PacelineEstimator estimator = estimator().setCheckpointDir(directory.toString()).setEpochs(MANY_EPOCHS);
        PacelineModel model = estimator.setJob(estimator.getJob().replace("tau: 4", "tau: 1")).fit(rows);
        PacelineSummary summary = model.summary();
        expectNothingRuns();
        int exchanges = exchanges(directory.resolve("run").resolve("events.jsonl")).size();
        System.out.println(exchanges + " exchanges, and the jobs of Spark " + jobs.started);
        check(exchanges >= 1000, "exchanges: " + exchanges);
        long leases = jobs.started.stream().filter(group -> group.contains("-lease-")).count();
        long ingest = jobs.started.stream().filter(group -> group.endsWith("-ingest")).count();
        check(leases == EXECUTORS + summary.leasesResubmitted(), "lease jobs: " + jobs.started);
        check(leases + ingest == jobs.started.size() && ingest <= 6, "jobs: " + jobs.started);
        check(summary.testError() < 0.1, "test error: " + summary.json());
        check(summary.workers() == EXECUTORS, "workers: " + summary.json());
        expectEvenCounts(summary);

        Dataset<Row> predicted = model.transform(rows.filter("held"));
        double error = 1 - new MulticlassClassificationEvaluator().setMetricName("accuracy").evaluate(predicted);
        check(Math.abs(error - summary.testError()) < 0.003, "error by transform " + error + ": " + summary.json());
        check(model.transform(rows.limit(1).selectExpr("cast(null as binary) as image")).first().isNullAt(2),
                "a row without features has a prediction");
    }

    /** Of each set of records, and of the run: what was taken is what was due, less the missed, and the repeated. */
    static void expectEvenCounts(PacelineSummary summary) throws IOException {
        JsonNode sets = JSON.readTree(summary.json()).path("records");
        check(sets.size() >= summary.workers(), "sets of records: " + summary.json());
        long used = 0;
        for (JsonNode set : sets) {
            long taken = set.path("used").asLong();
            long due = set.path("due").asLong();
            check(taken + set.path("missed").asLong() - set.path("repeated").asLong() == due, "counts of " + set);
            used += taken;
        }
        check(used <= summary.used() + summary.repeated(), "samples: " + summary.json());
    }

    private void pipelineIsSavedAndLoaded() throws Exception {
        PipelineModel fitted = new Pipeline().setStages(new PipelineStage[] {estimator()}).fit(rows);
        String path = folder.resolve("model").toString();
        fitted.write().overwrite().save(path);
        PipelineModel loaded = PipelineModel.load(path);
        Dataset<Row> test = rows.filter("held").select("image").coalesce(1);
        check(fitted.transform(test).select("prediction").collectAsList()
                .equals(loaded.transform(test).select("prediction").collectAsList()), "predictions of the loaded model");
        PacelineModel model = (PacelineModel) loaded.stages()[0];
        check(model.summary().rows() == TRAIN, "summary of the loaded model");

        String estimatorPath = folder.resolve("estimator").toString();
        estimator().setSeed(7).write().overwrite().save(estimatorPath);
        check(PacelineEstimator.load(estimatorPath).getSeed() == 7, "the loaded estimator's seed");
    }

    private void rowsGoThroughSharedFiles() throws Exception {
        Path shards = folder.resolve("shards");
        PacelineModel model = estimator().setShardDir(shards.toString()).fit(rows);
        PacelineSummary summary = model.summary();
        check(summary.testError() < 0.1, "test error: " + summary.json());
        check(summary.used() >= 3 * TRAIN && summary.repeated() + summary.missed() == 0, "counts: " + summary.json());
        try (Stream<Path> left = Files.list(shards)) {
            check(left.count() == 0, "shards are left");
        }
        check(model.transform(rows.filter("held")).filter("prediction = label").count() > TEST * 9 / 10,
                "predictions without the shards");
    }

    /** All workers read them there. */
    private void rowsGoThroughShardsOfExecutors() throws Exception {
        PacelineSummary summary = estimator().setShardDir(Shards.LOCAL).fit(rows).summary();
        check(summary.testError() < 0.1 && summary.workers() == EXECUTORS, "test error: " + summary.json());
        check(summary.rows() == TRAIN, "rows: " + summary.json());
        check(summary.used() >= 3 * TRAIN && summary.repeated() + summary.missed() == 0, "counts: " + summary.json());
        expectNothingRuns();
        expectNoneIsLeft("paceline-shards");
    }

    /** Class 1 are numbers; texts of any length, also of none but spaces, are cut or filled to the same one. */
    private void stringsAreClassified() throws Exception {
        Random random = new Random(2);
        List<Row> all = new ArrayList<>();
        for (int i = 0; i < 900; i++) {
            StringBuilder text = new StringBuilder(" ".repeat(random.nextInt(10)));
            for (int more = 5 + random.nextInt(60); more > 0; more--) {
                text.append((i % 2 == 1 ? "0123456789" : "abcdefgh\u00e9\u4e2d").charAt(random.nextInt(10)));
            }
            all.add(RowFactory.create(text.toString(), i % 2, i >= 800));
        }
        Dataset<Row> texts = spark.createDataFrame(all, new StructType().add("text", DataTypes.StringType)
                .add("label", DataTypes.IntegerType).add("held", DataTypes.BooleanType)).repartition(6);
        PacelineModel model = new PacelineEstimator().setNet(TEXT_NET).setFeaturesCol("text").setTextLength(32)
                .setValidationIndicatorCol("held").setEpochs(8).setBatchSize(8).setLearningRate(0.1)
                .setMinWorkers(EXECUTORS).setMaxWorkers(EXECUTORS).fit(texts);
        check(model.summary().testError() < 0.1, "test error: " + model.summary().json());
        String path = folder.resolve("text").toString();
        model.write().overwrite().save(path);
        Dataset<Row> predicted = PacelineModel.load(path).transform(texts.filter("held"));
        check(predicted.filter("prediction = label").count() >= 90, "predictions of the loaded model");
        check(model.transform(texts.limit(1).selectExpr("cast(null as string) as text")).first().isNullAt(2),
                "no text has a prediction");
    }

    private void runIsContinued() throws Exception {
        PacelineEstimator estimator = estimator().setCheckpointDir(folder.resolve("continued").toString());
        PacelineSummary first = estimator.fit(rows).summary();
        check(Math.abs(first.epochs() - 3) < 0.2, "epochs: " + first.json());
        PacelineSummary second = estimator.setEpochs(5).setMinWorkers(2).setMaxWorkers(2).fit(rows).summary();
        check(Math.abs(second.epochs() - 5) < 0.2, "epochs: " + second.json());
        long served = 0;
        for (JsonNode set : JSON.readTree(second.json()).path("records")) {
            served += set.path("served").asBoolean() ? set.path("records").asLong() : 0;
        }
        check(served == TRAIN, "two workers have all rows: " + second.json());
        check(second.used() > first.used() && second.samples() < first.samples(), "samples: " + second.json());
    }

    private void interruptedFitEnds() throws Exception {
        Thread[] thread = new Thread[1];
        Path directory = folder.resolve("interrupted");
        FutureTask<PacelineModel> fit = inBackground(() -> {
            thread[0] = Thread.currentThread();
            return estimator().setCheckpointDir(directory.toString()).setEpochs(10_000).fit(rows);
        });
        await(() -> fit.isDone() || exchanges(directory.resolve("run").resolve("events.jsonl")).size() > 5);
        check(!fit.isDone(), "the fit ended early");
        thread[0].interrupt();
        try {
            fit.get(30, TimeUnit.SECONDS);
            throw new AssertionError("an interrupted fit ended well");
        } catch (ExecutionException thrown) {
            check(thrown.getMessage().contains("interrupted while training"), thrown.getMessage());
        }
        expectNothingRuns();
    }

    /** Files of rows that outlive their executor go with their fit. */
    void expectNoRowsAreLeft() throws Exception {
        expectNoneIsLeft("paceline-rows");
    }

    void expectNoneIsLeft(String prefix) throws Exception {
        Path local = Path.of(spark.sparkContext().getConf().get("spark.local.dir"));
        await(() -> {
            try (Stream<Path> files = Files.walk(local)) {
                return files.noneMatch(file -> file.getFileName().toString().startsWith(prefix));
            } catch (UncheckedIOException gone) { // a folder, meanwhile
                return false;
            }
        });
    }

    /** Threads of the library and open files of this process and of the executors stay as many. */
    private void fitsLeaveNothing() throws Exception {
        PacelineEstimator estimator = estimator().setEpochs(0.5);
        List<Long> before = null;
        for (int i = 0; i < 8; i++) {
            estimator.fit(rows);
            if (i == 2) {
                Thread.sleep(SWEEP_MS);
                before = held();
            }
        }
        expectNoMoreThan(before);
        expectNoRowsAreLeft();
    }

    void expectNoMoreThan(List<Long> before) throws Exception {
        long from = System.nanoTime();
        List<Long> after = held();
        while (more(before, after) && System.nanoTime() - from < LEVEL_NS) {
            Thread.sleep(200);
            after = held();
        }
        System.out.printf("threads, files and MB of each process after 3 fits %s, at the end, %.1f s later, %s%n", before,
                (System.nanoTime() - from) / 1e9, after);
        check(!more(before, after), "more than before");
    }

    /** One for each of five fits would be more; Spark itself opens a connection now and then. */
    private static boolean more(List<Long> before, List<Long> after) {
        return IntStream.range(0, after.size()).anyMatch(k -> after.get(k) > before.get(k) + (k % 3 == 2 ? 60 : 4));
    }

    /** Threads of the library, open files and resident MB of each process. Spark's own pools of threads fill up. */
    List<Long> held() throws IOException {
        List<Long> counts = new ArrayList<>();
        List<ProcessHandle> processes = executors();
        processes.add(ProcessHandle.current());
        for (ProcessHandle process : processes) {
            Path files = Path.of("/proc/" + process.pid());
            try (Stream<Path> open = Files.list(files.resolve("fd"))) {
                counts.add(threads(process).count());
                counts.add(open.count());
            }
            counts.add(Long.parseLong(read(files.resolve("statm")).split(" ")[1]) * 4 / 1024);
        }
        return counts;
    }

    private static String read(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException gone) {
            return "";
        }
    }

    // ---- what FailureTest, too, uses

    static boolean usesProcesses(SparkSession spark) {
        return spark.sparkContext().getConf().getBoolean("spark.paceline.process", false);
    }

    static <T> FutureTask<T> inBackground(Callable<T> body) {
        FutureTask<T> task = new FutureTask<>(body);
        Thread thread = new Thread(task, "fit");
        thread.setDaemon(true);
        thread.start();
        return task;
    }

    static void await(Callable<Boolean> condition) throws Exception {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(DEADLINE_MS);
        while (!condition.call()) {
            check(System.nanoTime() < until, "nothing happened for " + DEADLINE_MS + " ms");
            Thread.sleep(20);
        }
    }

    static List<JsonNode> events(Path file, String kind) throws IOException {
        List<JsonNode> found = new ArrayList<>();
        if (Files.exists(file)) {
            for (String line : Files.readString(file).split("\n")) {
                if (line.contains("\"kind\":\"" + kind + "\"") && line.endsWith("}")) {
                    found.add(JSON.readTree(line));
                }
            }
        }
        return found;
    }

    /** The times of all exchanges. */
    static List<Double> exchanges(Path file) throws IOException {
        return events(file, "exchange").stream().map(e -> e.path("t").asDouble()).collect(Collectors.toList());
    }

    static long members(Path file, String what) throws IOException {
        return events(file, "member").stream().filter(e -> e.path("what").asText().equals(what)).count();
    }

    /** The processes of this application's executors. */
    List<ProcessHandle> executors() {
        return executors(spark.sparkContext().applicationId());
    }

    /** Those of an application: below the script of the test, as are workers that are processes of their own. */
    static List<ProcessHandle> executors(String application) {
        ProcessHandle script = ProcessHandle.of(Long.parseLong(System.getenv("SPARK_TEST_PID"))).orElseThrow();
        return script.descendants().filter(process -> {
            String line = commandLine(process.pid()); // without what executors and Hadoop start themselves
            return line.contains("--executor-id") && line.contains("--app-id " + application + " ");
        }).collect(Collectors.toList());
    }

    ProcessHandle executor(String id) {
        return executors().stream().filter(process -> commandLine(process.pid()).contains("--executor-id " + id + " "))
                .findAny().orElseThrow();
    }

    static String commandLine(long pid) {
        return read(Path.of("/proc/" + pid + "/cmdline")).replace('\0', ' ');
    }
}
