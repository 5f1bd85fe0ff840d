package paceline.spark;

import static paceline.spark.RunningFit.SYNC;
import static paceline.spark.SparkTest.EXECUTORS;
import static paceline.spark.TestCases.check;
import static paceline.spark.TestCases.run;

import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;

/** Processes of engines that end, in the application of FailureTest with process.conf. */
final class ProcessTest {
    private static final int FAILURES = 4;
    private static final int DECLINED = 3;

    private final SparkTest base;

    private ProcessTest(SparkTest base) {
        this.base = base;
    }

    static void runAll(SparkTest base) throws Exception {
        ProcessTest test = new ProcessTest(base);
        run("test_crashed_or_killed_process_is_replaced", test::processIsReplaced);
        run("test_host_with_failures_is_in_quarantine", test::hostIsInQuarantine);
    }

    private static Set<Long> pids(List<ProcessHandle> processes) {
        return processes.stream().map(ProcessHandle::pid).collect(Collectors.toSet());
    }

    private void expectNoProcess() throws Exception {
        base.expectNothingRuns();
    }

    /** Its executor stays, and so do the other processes. */
    private void processIsReplaced() throws Exception {
        RunningFit fit = new RunningFit(base,
                base.estimator().setMinWorkers(EXECUTORS).setMaxWorkers(EXECUTORS), "crash", SYNC);
        base.jobs.readings.clear();
        processIsReplaced(fit, "SEGV");
        processIsReplaced(fit, "KILL");
        endWithRows(fit);
    }

    private void processIsReplaced(RunningFit fit, String signal) throws Exception {
        Set<Long> executors = pids(base.executors());
        Set<Long> before = pids(base.engines());
        check(before.size() == EXECUTORS, "processes: " + before);
        for (long engine : before) {
            EstimatorTest.expectLibraryInLocalFolder(base.spark, engine);
        }
        long victim = before.iterator().next();
        long joined = fit.count("join");
        check(new ProcessBuilder("kill", "-" + signal, Long.toString(victim)).start().waitFor() == 0, "kill");
        fit.reach("a replacement", () -> fit.count("join") > joined);
        Set<Long> after = pids(base.engines());
        check(pids(base.executors()).equals(executors), "an executor has ended");
        check(after.size() == EXECUTORS && !after.contains(victim), "processes: " + before + ", then " + after);
        after.retainAll(before);
        check(after.size() == EXECUTORS - 1, "another process has ended");
    }

    /** The fourth process that ends within a minute puts its host in quarantine: leases there end, and none trains. */
    private void hostIsInQuarantine() throws Exception {
        RunningFit fit = new RunningFit(base,
                base.estimator().setMinWorkers(EXECUTORS).setMaxWorkers(EXECUTORS), "quarantine", SYNC);
        for (int failures = 1; failures <= FAILURES; failures++) {
            int joined = EXECUTORS + failures;
            base.jobs.started.clear();
            check(base.engines().get(0).destroyForcibly(), "kill");
            if (failures < FAILURES) {
                fit.reach("replacement " + failures, () -> fit.count("join") == joined);
            }
        }
        double declined = fit.reach("leases that are declined", () -> {
            check(fit.count("join") < EXECUTORS + FAILURES, "a worker joins");
            return base.jobs.started.size() > DECLINED;
        });
        System.out.printf("quarantine: %d leases were submitted again in %.1f s, and no worker joined%n",
                base.jobs.started.size(), declined);
        check(base.jobs.started.stream().allMatch(job -> job.contains("-lease-")), "jobs: " + base.jobs.started);
        SparkTest.expectEvenCounts(fit.end(EXECUTORS - 1));
        expectNoProcess();
    }

    /** Spark has read no row again. */
    private void endWithRows(RunningFit fit) throws Exception {
        SparkTest.expectEvenCounts(fit.end(EXECUTORS));
        check(base.jobs.readings.isEmpty(), "Spark read rows again: " + base.jobs.readings);
        expectNoProcess();
        base.expectNoRowsAreLeft();
    }
}
