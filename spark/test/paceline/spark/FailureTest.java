package paceline.spark;

import static paceline.spark.RunningFit.LOADED;
import static paceline.spark.RunningFit.SYNC;
import static paceline.spark.SparkTest.EXECUTORS;
import static paceline.spark.SparkTest.events;
import static paceline.spark.SparkTest.exchanges;
import static paceline.spark.TestCases.check;
import static paceline.spark.TestCases.run;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;

/** Executors and leases that end during a fit, in one application of three executors; also with process.conf. */
public final class FailureTest {
    private static final double DRAIN_S = 3;
    private static final double CANCEL_S = 0.5;
    private static final double GAP_S = 10;
    private static final double FINISH_S = 0.5; // an exchange under way when the pause begins
    private static final double SILENT_S = 60; // Spark waits for an executor's heartbeat for 120 s
    private static final long REJOIN_MS = 4500;
    private static final int DAMAGED_BYTE = 100;
    private static final int KNOWN = 300; // exchanges, which take more than the 100 ms between two polls of a lease
    private static final int HANG_TAU = 20;
    private static final int OPEN = HANG_TAU * 16; // records of a worker between two exchanges
    private static final String ONE_READ = "Paceline reads 1 partitions";

    private final SparkTest base;
    private final SparkContext context;
    private final RunningFit.Leases leases = new RunningFit.Leases();

    private FailureTest(SparkSession spark, Path folder) {
        base = new SparkTest(spark, folder);
        context = spark.sparkContext();
        context.addSparkListener(leases);
    }

    public static void main(String[] arguments) throws Exception {
        SparkSession spark = SparkSession.builder().appName("failure-test").getOrCreate();
        try {
            FailureTest test = new FailureTest(spark, Path.of(arguments[0]));
            run("test_workers_leave_when_asked", test::workersLeaveWhenAsked);
            run("test_fit_pauses_below_min_workers", () -> test.fitPauses("KILL"));
            run("test_killed_executor_mpca", () -> test.fitOutlivesExecutor("mpca { }", "KILL", true));
            if (SparkTest.usesProcesses(spark)) {
                run("test_worker_that_hangs_is_replaced", () -> test.hangingProcessIsReplaced(""));
                run("test_worker_that_hangs_is_replaced_with_shards",
                        () -> test.hangingProcessIsReplaced(test.base.folder.resolve("shards").toString()));
                run("test_stopped_executor_is_replaced_with_its_process", test::stoppedExecutorIsReplacedWithItsProcess);
                ProcessTest.runAll(test.base);
            } else { // with processes they are the driver's work
                run("test_fit_pauses_without_decommissioned_executor", () -> test.fitPauses("PWR"));
                run("test_native_crash_allreduce", () -> test.fitOutlivesExecutor("allreduce { }", "SEGV", false));
                run("test_stopped_or_hanging_executor_is_replaced", test::stoppedOrHangingExecutorIsReplaced);
                run("test_only_worker_leaves_after_its_replacement_joined", test::onlyWorkerIsReplaced);
                run("test_killed_executor_sync", () -> test.fitOutlivesExecutor(SYNC, "KILL", false));
                run("test_rows_are_adopted_that_were_to_be_read", test::rowsAreAdoptedInsteadOfRead);
            }
        } finally {
            spark.stop();
        }
    }

    private RunningFit fit(String name, String strategy, int workers) throws Exception {
        return new RunningFit(base, base.estimator().setMinWorkers(workers).setMaxWorkers(workers), name, strategy);
    }

    private static void signal(ProcessHandle process, String name) throws Exception {
        int status = new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).inheritIO().start().waitFor();
        check(status == 0, "kill -" + name);
    }

    /** Decommissioned executor, cancelled stage, killed task: the worker leaves, and another takes its place. */
    private void workersLeaveWhenAsked() throws Exception {
        RunningFit run = fit("asked", SYNC, EXECUTORS);
        String lease = leases.task.keySet().iterator().next();
        ProcessHandle drained = base.executor(leases.executor.get(lease));
        signal(drained, "PWR");
        double left = run.reach("the drain", () -> run.count("leave") == 1);
        double gone = left + run.reach("the executor's end", () -> !drained.isAlive());
        System.out.printf("decommissioned: the worker left after %.2f s, its executor after %.2f s%n", left, gone);
        run.reach("a replacement", () -> run.count("join") > EXECUTORS);

        String cancelled = leases.task.keySet().iterator().next();
        context.cancelJobGroup(cancelled);
        double cancel = run.reach("the cancelled worker's leave", () -> run.count("leave") == 2);
        run.reach("its return", () -> run.count("join") > EXECUTORS + 1);

        long killed = leases.task.values().iterator().next();
        context.killTaskAttempt(killed, true, "test");
        double kill = run.reach("the killed task's worker's leave", () -> run.count("leave") == 3);
        run.reach("its return", () -> run.count("join") > EXECUTORS + 2);
        System.out.printf("cancelled stage: the worker left after %.2f s; killed task: %.2f s%n", cancel, kill);

        SparkTest.expectEvenCounts(run.end(EXECUTORS));
        check(left < DRAIN_S && gone < DRAIN_S * LOADED, "drained after " + left + " s, gone after " + gone);
        check(cancel < CANCEL_S * LOADED && kill < CANCEL_S * LOADED, "left " + cancel + " s and " + kill + " s after");
        run.expectNoLoss();
    }

    private void onlyWorkerIsReplaced() throws Exception {
        RunningFit run = fit("only", SYNC, 1);
        signal(base.executor(leases.executor.get(leases.task.keySet().iterator().next())), "PWR");
        run.reach("the drain", () -> run.count("leave") == 1);
        check(run.count("join") == 2, "workers that have joined: " + run.count("join"));
        SparkTest.expectEvenCounts(run.end(1));
        run.expectNoLoss();
    }

    /** By default a fit with fewer workers than minWorkers takes no steps until the lost one is replaced. */
    private void fitPauses(String signal) throws Exception {
        PacelineEstimator estimator = base.estimator();
        estimator.clear(estimator.belowMinWorkers());
        RunningFit run = new RunningFit(base, estimator, "pauses" + signal, SYNC);
        signal(base.executors().get(0), signal);
        run.reach("the pause", () -> events(run.events, "paused").size() == 1);
        run.reach("its end", () -> events(run.events, "resumed").size() == 1);
        long before = exchanges(run.events).size();
        run.reach("more exchanges", () -> exchanges(run.events).size() > before + 5);
        SparkTest.expectEvenCounts(run.end(EXECUTORS));
        JsonNode paused = events(run.events, "paused").get(0);
        check(paused.path("workers").asInt() == EXECUTORS - 1 && paused.path("needed").asInt() == EXECUTORS,
                "it paused with other numbers: " + paused);
        double from = paused.path("t").asDouble();
        double to = events(run.events, "resumed").get(0).path("t").asDouble();
        long within = exchanges(run.events).stream().filter(t -> t > from + FINISH_S && t < to).count();
        System.out.printf("pause of %.2f s with %d workers%n", to - from, EXECUTORS - 1);
        check(within == 0, within + " exchanges in the pause");
        if (signal.equals("PWR")) {
            check(run.count("leave") == 1, "the worker has not left");
            run.expectNoLoss();
        }
    }

    /** The file in which an executor, or a process of its own, keeps rows for another one. */
    private static Path keptFile(ProcessHandle executor) {
        return Stream.concat(Stream.of(executor), executor.descendants()).flatMap(FailureTest::openFiles)
                .filter(name -> name.contains("/paceline-rows.")).map(Path::of).findAny().orElseThrow();
    }

    private static Stream<String> openFiles(ProcessHandle process) {
        try (Stream<Path> open = Files.list(Path.of("/proc/" + process.pid() + "/fd"))) {
            return open.map(FailureTest::target).collect(Collectors.toList()).stream();
        } catch (IOException ended) {
            return Stream.empty();
        }
    }

    private static String target(Path link) {
        try {
            return Files.readSymbolicLink(link).toString();
        } catch (IOException closed) {
            return "";
        }
    }

    /** Another value in the first record. */
    private static void damage(Path file) throws IOException {
        try (RandomAccessFile rows = new RandomAccessFile(file.toFile(), "rw")) {
            rows.seek(DAMAGED_BYTE);
            int value = rows.read();
            rows.seek(DAMAGED_BYTE);
            rows.write(value ^ 1);
        }
    }

    /**
     * The others train on, and the executor that comes in its place joins them, with the rows that the lost one has
     * left there. Spark reads none of them again, or only the partition that is damaged.
     */
    private void fitOutlivesExecutor(String strategy, String signal, boolean damages) throws Exception {
        RunningFit run = fit(strategy.split(" ")[0] + signal, strategy, EXECUTORS);
        leases.executorAddedNs.clear();
        long before = exchanges(run.events).size();
        ProcessHandle victim = base.executors().get(0);
        Path home = Files.readSymbolicLink(Path.of("/proc/" + victim.pid() + "/cwd"));
        if (damages) {
            damage(keptFile(victim));
        }
        base.jobs.readings.clear();
        signal(victim, signal);
        run.reach("the executor's end", () -> !victim.isAlive());
        run.reach("another executor", () -> !leases.executorAddedNs.isEmpty());
        run.reach("its worker", () -> run.count("join") > EXECUTORS);
        double trainedAfter = RunningFit.seconds(leases.executorAddedNs.get(0));
        PacelineSummary summary = run.end(EXECUTORS);
        SparkTest.expectEvenCounts(summary);
        double gap = run.longestGap();
        System.out.printf("%s after %s: replacement joined %.1f s after its executor; longest gap of exchanges %.2f s;"
                + " %d before, %d in all; %d used, %d repeated, %d missed%n", strategy, signal, trainedAfter, gap,
                before, exchanges(run.events).size(), summary.used(), summary.repeated(), summary.missed());
        check(gap < GAP_S, "the others waited " + gap + " s");
        List<String> readings = List.copyOf(base.jobs.readings);
        check(damages ? !readings.isEmpty() && readings.stream().allMatch(ONE_READ::equals) : readings.isEmpty(),
                "Spark read rows again: " + readings);
        base.expectNoRowsAreLeft();
        check(signal.equals("SEGV") == Files.exists(home.resolve("hs_err_pid" + victim.pid() + ".log")),
                "a report of a crash, after " + signal);
    }

    /** A worker without progress for 3 s hangs; one that has been lost has 4 s to join again. */
    private RunningFit fitOfHangs(String name, String shardDir) throws Exception {
        context.conf().set("spark.paceline.rejoinWait", "4s");
        PacelineEstimator estimator = base.estimator().setShardDir(shardDir);
        RunningFit run = new RunningFit(base, estimator.setJob(estimator.getJob() + " stall_seconds: 3"), name,
                "sync { tau: " + HANG_TAU + " }");
        run.reach("exchanges by which the driver knows all workers", () -> exchanges(run.events).size() > KNOWN);
        return run;
    }

    /** Workers that hang; one that stands still may be among them, or it is silent. */
    private static long lost(RunningFit run) throws IOException {
        return run.count("hung") + run.count("cut");
    }

    /** Null: the system does not let one process hold a thread of another. */
    private static HeldThread hang(ProcessHandle library) throws Exception {
        HeldThread held = HeldThread.of(library.pid());
        if (held == null) {
            System.out.println("[  SKIPPED ] test_worker_that_hangs_is_replaced (no thread can be held here)");
        }
        return held;
    }

    /** A worker that joins again in time keeps its lease. Else, and if it hangs, Spark replaces its executor. */
    private void stoppedOrHangingExecutorIsReplaced() throws Exception {
        RunningFit run = fitOfHangs("stopped", "");
        Map<String, Long> before = Map.copyOf(leases.task);
        ProcessHandle victim = base.executors().get(0);
        ProcessHandle hangs = base.executors().get(1);
        HeldThread held = null;
        try {
            signal(victim, "STOP");
            run.reach("its loss", () -> lost(run) == 1);
            signal(victim, "CONT");
            run.reach("its return", () -> run.count("join") > EXECUTORS);
            held = hang(hangs);
            Thread.sleep(REJOIN_MS); // and the one that hangs keeps its lease for longer
            check(leases.task.equals(before), "leases " + before + " and then " + leases.task);
            signal(victim, "STOP");
            HeldThread holds = held;
            double lost = run.reach("their losses", () -> lost(run) == (holds == null ? 2 : 3));
            int exchanged = exchanges(run.events).size();
            double ended = run.reach("their ends", () -> !victim.isAlive() && (holds == null || !hangs.isAlive()));
            int trained = exchanges(run.events).size() - exchanged;
            double joined = run.reach("their replacements",
                    () -> run.count("join") > EXECUTORS + (holds == null ? 1 : 2));
            System.out.printf("one hangs, one stands still: lost after %.1f s, both end within %.1f s, and replacements"
                    + " join %.1f s later; %d exchanges meanwhile, longest gap %.1f s%n", lost, ended, joined, trained,
                    run.longestGap());
            check(ended < SILENT_S && trained > 0, "ended after " + ended + " s and " + trained + " exchanges");
        } finally {
            victim.destroyForcibly();
            if (held != null) {
                held.close();
            }
        }
        PacelineSummary summary = run.end(EXECUTORS);
        SparkTest.expectEvenCounts(summary);
        // More than once where the next executor has declined it until the rows were there.
        check(summary.leasesResubmitted() >= 1, "leases: " + summary.json());
        base.expectNoRowsAreLeft();
    }

    /** It is killed, and its executor lives. */
    private void hangingProcessIsReplaced(String shardDir) throws Exception {
        RunningFit run = fitOfHangs(shardDir.isEmpty() ? "hangs" : "hangs-with-shards", shardDir);
        ProcessHandle executor = base.executors().get(0);
        ProcessHandle engine = SparkTest.engines(executor).get(0);
        try (HeldThread held = hang(engine)) {
            if (held != null) {
                double lost = run.reach("its loss", () -> run.count("hung") == 1);
                int exchanged = exchanges(run.events).size();
                double ended = run.reach("its end", () -> !engine.isAlive());
                int trained = exchanges(run.events).size() - exchanged;
                double joined = run.reach("its replacement", () -> run.count("join") > EXECUTORS);
                System.out.printf("a process hangs: lost after %.1f s, it ends %.1f s later, and its replacement joins"
                        + " %.1f s later; %d exchanges meanwhile%n", lost, ended, joined, trained);
                check(executor.isAlive() && trained > 0, "its executor has ended, or the others wait");
            }
        }
        PacelineSummary summary = run.end(EXECUTORS);
        if (shardDir.isEmpty()) {
            SparkTest.expectEvenCounts(summary);
        } else {
            check(summary.repeated() + summary.missed() <= EXECUTORS * OPEN, "counts: " + summary.json());
        }
        base.expectNoRowsAreLeft();
    }

    /** Both are replaced when an executor stands still with its process, which ends when it continues. */
    private void stoppedExecutorIsReplacedWithItsProcess() throws Exception {
        RunningFit run = fitOfHangs("still", "");
        ProcessHandle victim = base.executors().get(0);
        ProcessHandle engine = SparkTest.engines(victim).get(0);
        try {
            signal(victim, "STOP");
            signal(engine, "STOP");
            double lost = run.reach("its loss", () -> lost(run) == 1);
            double ended = run.reach("its end", () -> !victim.isAlive());
            double joined = run.reach("its replacement", () -> run.count("join") > EXECUTORS);
            System.out.printf("an executor stands still with its process: lost after %.1f s, it ends after %.1f s, and"
                    + " its replacement joins %.1f s later%n", lost, ended, joined);
            check(ended < SILENT_S, "ended after " + ended);
            check(engine.isAlive(), "a process that stands still has ended");
            signal(engine, "CONT");
            run.reach("the end of the process", () -> SparkTest.commandLine(engine.pid()).isEmpty());
        } finally {
            victim.destroyForcibly();
            engine.destroyForcibly();
        }
        SparkTest.expectEvenCounts(run.end(EXECUTORS));
        base.expectNoRowsAreLeft();
    }

    /** A job that reads the rows waits for a core when the executor comes in which they are. */
    private void rowsAreAdoptedInsteadOfRead() throws Exception {
        context.conf().set("spark.paceline.replacementWait", "100ms");
        RunningFit run = fit("withdrawn", SYNC, EXECUTORS);
        base.jobs.readings.clear();
        ProcessHandle victim = base.executors().get(0);
        signal(victim, "KILL");
        run.reach("a job that waits", () -> !base.jobs.readings.isEmpty());
        run.reach("its worker", () -> run.count("join") > EXECUTORS);
        SparkTest.expectEvenCounts(run.end(EXECUTORS));
        base.expectNoRowsAreLeft();
    }
}
