package paceline.spark;

import static paceline.spark.RunningFit.SYNC;
import static paceline.spark.SparkTest.EXECUTORS;
import static paceline.spark.SparkTest.exchanges;
import static paceline.spark.TestCases.check;
import static paceline.spark.TestCases.run;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Map$;

/**
 * Where rows lie: beyond the limit in files, and after the loss of an executor in others that train (rows.conf); also
 * with process.conf.
 */
public final class RowsTest {
    private static final int HELD_OUT = 45;
    private static final int SIDE = 64;
    private static final int CLASSES = 2;
    private static final int PARTITIONS = 30; // of 8 MiB: 80 MiB in each executor, which has a limit of 8 MiB
    private static final int EACH = 8 << 20 >> 12; // rows of a partition
    private static final long LIMIT_MIB = 8;
    private static final int FEW = 100; // exchanges
    private static final int MANY = 5; // times as many exchanges as there were until rows were adopted
    /** For the net, its batch, the threads and the buffers of Spark's own tasks. */
    private static final long BESIDES_MIB = 40;
    private static final String NET = "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
            + "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
            + "  inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } }\n"
            + "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";
    private static final StructType COLUMNS = new StructType().add("image", DataTypes.BinaryType)
            .add("label", DataTypes.IntegerType).add("held", DataTypes.BooleanType);
    private static final ObjectMapper JSON = new ObjectMapper();

    private final SparkSession spark;
    private final SparkTest base;
    private final boolean byProcess; // of an engine

    private RowsTest(SparkSession spark, Path folder) {
        this.spark = spark;
        base = new SparkTest(spark, folder);
        byProcess = SparkTest.usesProcesses(spark);
    }

    public static void main(String[] arguments) throws Exception {
        SparkSession spark = SparkSession.builder().appName("rows-test").getOrCreate();
        try {
            RowsTest test = new RowsTest(spark, Path.of(arguments[0]));
            run("test_rows_beyond_the_limit_are_in_files", test::rowsBeyondTheLimit);
            if (!test.byProcess) { // ordinary tasks and the driver hold them out
                run("test_records_are_held_out", test::recordsAreHeldOut);
            }
            run("test_disk_that_is_full_is_named", test::fullDiskIsNamed);
            run("test_shards_of_a_lost_executor_are_packed_again", test::shardsArePackedAgain);
            run("test_rows_of_a_lost_executor_are_adopted", test::rowsAreAdopted);
        } finally {
            spark.stop();
        }
    }

    // ---- the limit

    /** Of class 1 the right half is bright. */
    private static Row drawRow(long number) {
        Random random = new Random(number);
        byte[] image = new byte[SIDE * SIDE];
        random.nextBytes(image);
        int label = (int) (number % CLASSES);
        for (int i = 0; i < image.length; i++) {
            boolean bright = (i % SIDE < SIDE / 2) == (label == 0);
            image[i] = (byte) ((image[i] & 127) + (bright ? 100 : 0));
        }
        return RowFactory.create(image, label, number % EACH == 0);
    }

    private Dataset<Row> largeRows() {
        List<Integer> numbers = IntStream.range(0, PARTITIONS).boxed().collect(Collectors.toList());
        return spark.createDataFrame(JavaSparkContext.fromSparkContext(spark.sparkContext())
                .parallelize(numbers, PARTITIONS).flatMap(partition -> IntStream.range(0, EACH)
                        .mapToObj(i -> drawRow((long) partition * EACH + i)).iterator()), COLUMNS);
    }

    private PacelineEstimator largeEstimator() {
        String job = base.estimator().getJob().replace("0.05", "0.001").replace("epochs: 3", "epochs: 1");
        return base.estimator().setNet(NET).setShape("1,64,64").setClasses(CLASSES).setJob(job);
    }

    private static long mib(ProcessHandle process, String key) {
        try (Stream<String> lines = Files.lines(Path.of("/proc/" + process.pid() + "/status"))) {
            return lines.filter(line -> line.startsWith(key + ":"))
                    .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", ""))).sum() >> 10;
        } catch (IOException gone) {
            return 0;
        }
    }

    /** The process that has an executor's rows. */
    private static ProcessHandle keeper(ProcessHandle executor) {
        return SparkTest.engines(executor).stream().findAny().orElse(executor);
    }

    /** Open files of rows. */
    private static long spills(ProcessHandle process) {
        try (Stream<Path> open = Files.list(Path.of("/proc/" + process.pid() + "/fd"))) {
            return open.filter(file -> {
                try {
                    return Files.readSymbolicLink(file).toString().contains("/paceline-rows.");
                } catch (IOException gone) {
                    return false;
                }
            }).count();
        } catch (IOException gone) {
            return 0;
        }
    }

    /** What a fit takes: the most resident memory of each process that has rows, in MiB, and those with a file. */
    private final class Taken {
        final List<Long> peaks = new ArrayList<>(Collections.nCopies(EXECUTORS, 0L));
        final PacelineSummary summary;
        long spills;

        Taken(Dataset<Row> rows) throws Exception {
            List<ProcessHandle> executors = base.executors();
            executors.forEach(RowsTest::forgetPeak);
            var fit = SparkTest.inBackground(() -> largeEstimator().fit(rows).summary());
            while (!fit.isDone()) {
                List<ProcessHandle> keepers = executors.stream().map(RowsTest::keeper).collect(Collectors.toList());
                for (int i = 0; i < EXECUTORS; i++) {
                    boolean has = !byProcess || !keepers.get(i).equals(executors.get(i)); // it is not its executor's
                    peaks.set(i, Math.max(peaks.get(i), has ? mib(keepers.get(i), "VmHWM") : 0));
                }
                spills = Math.max(spills, keepers.stream().filter(each -> spills(each) > 0).count());
                Thread.sleep(20);
            }
            summary = fit.get();
        }
    }

    private void rowsBeyondTheLimit() throws Exception {
        Taken few = new Taken(largeRows().filter("label + rand(1) < 0.02 or held")); // all code is loaded
        Taken all = new Taken(largeRows());
        List<Long> grown = new ArrayList<>();
        for (int i = 0; i < EXECUTORS; i++) {
            grown.add(all.peaks.get(i) - few.peaks.get(i));
        }
        System.out.printf("%d MiB of rows in %d executors with a limit of %d MiB: with few rows they took %s MiB, "
                + "and then %s MiB more; files in %d of them%n", (long) PARTITIONS * EACH * SIDE * SIDE >> 20, EXECUTORS,
                LIMIT_MIB, few.peaks, grown, all.spills);
        check(all.summary.testError() < 0.1, "test error: " + all.summary.json());
        check(all.summary.rows() == (long) PARTITIONS * (EACH - 1), "rows: " + all.summary.json());
        check(all.spills == EXECUTORS, "executors with a file: " + all.spills);
        check(grown.stream().allMatch(more -> more < LIMIT_MIB + BESIDES_MIB), "more memory: " + grown);
        SparkTest.expectEvenCounts(all.summary);
        base.expectNothingRuns();
    }

    private static void forgetPeak(ProcessHandle process) {
        try {
            Files.writeString(Path.of("/proc/" + process.pid() + "/clear_refs"), "5");
        } catch (IOException refused) {
            throw new AssertionError("the peak of memory cannot be reset", refused);
        }
    }

    /**
     * The rows that are held out are at the driver, equally by class, and no worker trains on them. They are chosen by
     * what they contain, wherever they lie.
     */
    private void recordsAreHeldOut() throws Exception {
        List<Row> chosen = heldOut(base.rows);
        check(chosen.equals(heldOut(base.rows.repartition(5).orderBy("label"))), "other rows are chosen");
        check(chosen.size() == HELD_OUT, "rows: " + chosen.size());
        for (int label = 0; label < SparkTest.CLASSES; label++) {
            int of = label;
            check(chosen.stream().filter(row -> row.getInt(1) == of).count() == HELD_OUT / SparkTest.CLASSES,
                    "of class " + of);
        }
        PacelineEstimator estimator = holdOut(base.estimator()
                .setCheckpointDir(base.folder.resolve("held").toString()));
        PacelineSummary summary = estimator.fit(base.rows).summary();
        check(summary.testError() < 0.1, "test error: " + summary.json());
        check(JSON.readTree(summary.json()).path("validation_error").asDouble(1) < 0.1, "held out: " + summary.json());
        JsonNode start = SparkTest.events(base.folder.resolve("held/run/events.jsonl"), "start").get(0);
        check(start.path("records").path("validation").asInt() == HELD_OUT, "at the driver: " + start);
        check(records(summary) == SparkTest.TRAIN - HELD_OUT, "records to train on: " + summary.json());
        SparkTest.expectEvenCounts(summary);
        base.expectError(base.estimator().setJob(estimator.getJob().replace(" " + HELD_OUT, " 9000")), base.rows,
                "validation: 9000 held out are 3000 a class or more, but class 0 has 1000 rows");
    }

    private static PacelineEstimator holdOut(PacelineEstimator estimator) {
        return estimator.setJob(estimator.getJob() + " validation: " + HELD_OUT);
    }

    /** In the order of their pixels. */
    private static List<Row> heldOut(Dataset<Row> rows) {
        return HoldOut.mark(rows.selectExpr("image as features", "label", "held as test"), HELD_OUT, SparkTest.CLASSES)
                .filter("held").orderBy("features").collectAsList();
    }

    private static long records(PacelineSummary summary) throws IOException {
        return sets(summary).stream().mapToLong(set -> set.path("records").asLong()).sum();
    }

    /** Files of an executor end at a limit, as on a disk that is full. */
    private void fullDiskIsNamed() throws Exception {
        limitFiles("5000000");
        base.expectError(largeEstimator(), largeRows(), "cannot keep the rows of partition", "cannot write",
                RowsLimit.SETTING);
        limitFiles("unlimited");
        check(largeEstimator().fit(largeRows()).summary().testError() < 0.1, "a fit with room again");
    }

    private void limitFiles(String bytes) throws Exception {
        for (ProcessHandle executor : base.executors()) {
            int status = new ProcessBuilder("prlimit", "--pid", Long.toString(executor.pid()), "--fsize=" + bytes + ":")
                    .inheritIO().start().waitFor();
            check(status == 0, "prlimit");
        }
    }

    // ---- lost executors

    private void setExecutors(int count) {
        spark.sparkContext().requestTotalExecutors(count, 0, Map$.MODULE$.empty());
    }

    private static List<JsonNode> sets(PacelineSummary summary) throws IOException {
        List<JsonNode> sets = new ArrayList<>();
        JSON.readTree(summary.json()).path("records").forEach(sets::add);
        return sets;
    }

    private static void runOn(RunningFit run, int more) throws Exception {
        int now = exchanges(run.events).size();
        run.reach("further exchanges", () -> exchanges(run.events).size() > now + more);
    }

    /** Others pack them with their free cores, and the worker that comes reads all shards, also these. */
    private void shardsArePackedAgain() throws Exception {
        PacelineEstimator estimator = base.estimator().setMinWorkers(EXECUTORS).setMaxWorkers(EXECUTORS)
                .setShardDir(Shards.LOCAL);
        RunningFit.Leases leases = new RunningFit.Leases();
        spark.sparkContext().addSparkListener(leases);
        RunningFit run = new RunningFit(base, estimator, "shards", SYNC);
        base.jobs.readings.clear();
        String victim = leases.executor.values().iterator().next(); // another one may have two leases
        check(base.executor(victim).destroyForcibly(), "kill");
        double read = run.reach("a job that packs them", () -> !base.jobs.readings.isEmpty());
        double joined = read + run.reach("a worker", () -> run.count("join") > EXECUTORS);
        runOn(run, FEW);
        System.out.printf("shards of a lost executor: packed again from %.1f s on, and read by another worker after"
                + " %.1f s; longest gap of exchanges %.2f s%n", read, joined, run.longestGap());
        check(base.jobs.readings.stream().allMatch("Paceline reads 2 partitions"::equals),
                "read: " + base.jobs.readings);
        PacelineSummary summary = run.end(EXECUTORS);
        check(run.count("dead") + run.count("leave") > 0, "no worker was lost"); // a process leaves at its parent's end
        check(summary.missed() + summary.repeated() < FEW * EXECUTORS, "counts: " + summary.json()); // open steps
        base.expectNoneIsLeft("paceline-shards");
        spark.sparkContext().removeSparkListener(leases);
    }

    /** No executor comes in the place of a lost one: its rows go to the others. A later one shares them. */
    private void rowsAreAdopted() throws Exception {
        setExecutors(EXECUTORS);
        PacelineSummary adopted = loseExecutor("adopted", false);
        long due = sets(adopted).stream().mapToLong(set -> set.path("due").asLong()).sum();
        System.out.printf("rows of a lost executor: %d of %d samples were missed, %d repeated%n", adopted.missed(),
                due, adopted.repeated());
        check(adopted.missed() < due / 5, "missed: " + adopted.json());
        if (byProcess) {
            return; // executors share rows as they adopt them
        }
        setExecutors(EXECUTORS);
        SparkTest.await(() -> base.executors().size() == EXECUTORS);
        loseExecutor("shared", true);
    }

    private PacelineSummary loseExecutor(String name, boolean later) throws Exception {
        RunningFit run = new RunningFit(base,
                holdOut(base.estimator().setMinWorkers(EXECUTORS).setMaxWorkers(EXECUTORS)), name, SYNC);
        setExecutors(EXECUTORS - 1);
        ProcessHandle victim = base.executors().get(0);
        base.jobs.started.clear();
        check(new ProcessBuilder("kill", "-KILL", Long.toString(victim.pid())).start().waitFor() == 0, "kill");
        run.reach("the executor's end", () -> !victim.isAlive());
        run.reach("the reading of its rows", () -> base.jobs.started.stream().anyMatch(job -> job.endsWith("-ingest")));
        Thread.sleep(1000);
        check(base.executors().size() == EXECUTORS - 1, "another executor came");
        runOn(run, later ? FEW : MANY * exchanges(run.events).size());
        if (later) {
            setExecutors(EXECUTORS);
            run.reach("a worker in a later executor", () -> run.count("join") > EXECUTORS);
            runOn(run, FEW);
        }
        PacelineSummary summary = run.end(later ? EXECUTORS : EXECUTORS - 1);
        SparkTest.expectEvenCounts(summary);
        for (JsonNode set : sets(summary)) {
            check(set.path("served").asBoolean() && set.path("used").asLong() > 0, "nobody has " + set);
        }
        check(records(summary) == SparkTest.TRAIN - HELD_OUT, "sets of records: " + summary.json());
        return summary;
    }
}
