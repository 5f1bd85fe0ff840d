package paceline.spark;

import static paceline.spark.TestCases.check;
import static paceline.spark.TestCases.run;

import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.SparkSession;

/** Tasks of an RDD reduce vectors, in an application of three executors that spark/test/cluster.sh submits. */
public final class SharedVariableTest {
    private static final int TASKS = 12;
    private static final int ROUNDS = 5;
    private static final int FLOATS = 20_000;
    private static final int EXECUTORS = 3;
    private static final Duration WAIT = Duration.ofSeconds(120);
    private static final long DEADLINE_S = 180;
    private static final int REPORTS_S = 30; // below the time for which a process may not answer

    /** What a task has seen. */
    private static final class Seen implements Serializable {
        private static final long serialVersionUID = 1;
        final int task = TaskContext.getPartitionId();
        final int attempt = TaskContext.get().attemptNumber();
        final long pid = ProcessHandle.current().pid();
        long from; // the first round that it took part in
        long wrong = -1; // the first round whose result is not the sum
    }

    private final JavaSparkContext context;
    private final SparkSession spark;
    private final Path folder;
    private final JavaRDD<Integer> numbers;

    private SharedVariableTest(SparkSession spark, Path folder) {
        this.spark = spark;
        this.folder = folder;
        context = JavaSparkContext.fromSparkContext(spark.sparkContext());
        numbers = context.parallelize(IntStream.range(0, TASKS).boxed().collect(Collectors.toList()), TASKS);
    }

    public static void main(String[] arguments) throws Exception {
        SparkSession spark = SparkSession.builder().appName("shared-variable-test").getOrCreate();
        try {
            SharedVariableTest test = new SharedVariableTest(spark, Path.of(arguments[0]));
            run("test_wrong_use_is_refused", test::wrongUseIsRefused);
            run("test_failed_task_counts_once", test::failedTaskCountsOnce);
            run("test_tasks_that_end_are_run_again", test::tasksThatEndAreRunAgain);
            if (spark.sparkContext().getConf().getBoolean("spark.paceline.process", false)) {
                run("test_executor_reports_while_its_process_is_stopped", test::executorReports);
                run("test_tasks_of_killed_process_are_run_again", test::tasksOfKilledProcessAreRunAgain);
            }
            run("test_tasks_of_killed_executor_are_run_again", test::tasksOfKilledExecutorAreRunAgain);
            run("test_replacement_joins", test::replacementJoins);
            run("test_cancelled_task_ends", test::cancelledTaskEnds);
            run("test_end_of_application_ends_variables", test::endOfApplicationEndsVariables);
        } finally {
            spark.stop();
        }
    }

    private static void await(String what, Callable<Boolean> condition) throws Exception {
        await(what, condition, () -> "no more is known");
    }

    private static void await(String what, Callable<Boolean> condition, Callable<String> state) throws Exception {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(DEADLINE_S);
        while (!condition.call()) {
            if (System.nanoTime() > until) {
                throw new AssertionError(what + ": not within " + DEADLINE_S + " s: " + state.call());
            }
            Thread.sleep(20);
        }
    }

    private int executors() {
        return SparkTest.executors(spark.sparkContext().applicationId()).size();
    }

    private static <T> FutureTask<T> inBackground(Callable<T> body) {
        FutureTask<T> task = new FutureTask<>(body);
        Thread thread = new Thread(task, "job");
        thread.setDaemon(true);
        thread.start();
        return task;
    }

    private SharedVariable variable(String key) {
        return SharedVariable.init(spark, key, FLOATS, TASKS, SharedVariable.Reduction.SUM);
    }

    // ---- what tasks do

    private static float[] vector(long round, int task) {
        float[] x = new float[FLOATS];
        for (int i = 0; i < FLOATS; i++) {
            x[i] = (round * 7 + task * 31 + i) % 257; // whole numbers: sums are exact in any order
        }
        return x;
    }

    private static boolean isSum(float[] result, long round) {
        float[] sum = new float[FLOATS];
        for (int task = 0; task < TASKS; task++) {
            float[] x = vector(round, task);
            for (int i = 0; i < FLOATS; i++) {
                sum[i] += x[i];
            }
        }
        return Arrays.equals(result, sum);
    }

    private interface Step extends Serializable {
        void run(long round, Seen seen) throws Exception;
    }

    /** Each task takes part in the rounds that are not done; `before` and `after` run around its submit. */
    private List<Seen> playRounds(SharedVariable variable, Step before, Step after) {
        return numbers.map(number -> {
            Seen seen = new Seen();
            seen.from = variable.round();
            for (long round = seen.from; round < ROUNDS; round++) {
                before.run(round, seen);
                variable.submit(round, seen.task, vector(round, seen.task));
                after.run(round, seen);
                if (!isSum(variable.get(round, WAIT), round) && seen.wrong < 0) {
                    seen.wrong = round;
                }
            }
            return seen;
        }).collect();
    }

    private static void expectSums(SharedVariable variable, List<Seen> all) throws TimeoutException {
        check(all.size() == TASKS, "tasks");
        for (Seen seen : all) {
            check(seen.wrong < 0, "task " + seen.task + ": the result of round " + seen.wrong);
        }
        check(variable.round() == ROUNDS, "rounds that are done: " + variable.round());
        check(isSum(variable.get(ROUNDS - 1, WAIT), ROUNDS - 1), "the driver's result");
    }

    // ---- tests

    private static void refused(String words, Runnable call) {
        try {
            call.run();
        } catch (PacelineException thrown) {
            check(thrown.getMessage().contains(words), "'" + words + "' in: " + thrown.getMessage());
            return;
        }
        throw new AssertionError("no error about " + words);
    }

    private void wrongUseIsRefused() throws Exception {
        SharedVariable.Reduction sum = SharedVariable.Reduction.SUM;
        refused("63 characters", () -> SharedVariable.init(context, "k".repeat(64), FLOATS, TASKS, sum));
        refused("'w'", () -> SharedVariable.init(context, "w", 0, TASKS, sum));
        SharedVariable w = SharedVariable.init(context, "w", 3, 1, sum);
        refused("n is 3 elsewhere", () -> SharedVariable.init(context, "w", 4, 1, sum));
        refused("2 floats of 3", () -> w.submit(0, 0, new float[2]));
        refused("task 1, but it has 1", () -> w.submit(0, 1, new float[3]));
        refused("round 8 is too far ahead", () -> w.submit(8, 0, new float[3]));
        try {
            w.get(0, Duration.ofMillis(100));
            throw new AssertionError("a result of nothing");
        } catch (TimeoutException waited) {
            check(waited.getMessage().contains("'w', round 0"), waited.getMessage());
        }
        w.submit(0, 0, FloatBuffer.wrap(new float[] {9, 1, 2, 3}).position(1));
        check(Arrays.equals(w.get(0, WAIT), new float[] {1, 2, 3}), "floats of a heap's buffer");
        FloatBuffer direct = ByteBuffer.allocateDirect(16).order(ByteOrder.nativeOrder()).asFloatBuffer();
        direct.put(new float[] {9, 4, 5, 6}).position(1);
        w.submit(1, 0, direct);
        check(Arrays.equals(w.get(1, WAIT), new float[] {4, 5, 6}) && direct.position() == 1, "of a direct buffer");
        check(!spark.sparkContext().getConf().toDebugString().contains("paceline-team"), "the team is in SparkConf");
    }

    private void failedTaskCountsOnce() throws Exception {
        SharedVariable variable = variable("failed");
        List<Seen> all = playRounds(variable, (round, seen) -> { }, (round, seen) -> {
            if (round == 1 && seen.task == 3 && seen.attempt == 0) {
                throw new IllegalStateException("this task fails once");
            }
        });
        check(all.get(3).attempt == 1 && all.get(3).from >= 1, "the task did not fail");
        expectSums(variable, all);
    }

    /** Tasks submit and end. Another run of the action brings what is missing, and changes nothing else. */
    private void tasksThatEndAreRunAgain() throws Exception {
        SharedVariable variable = variable("again");
        numbers.filter(task -> task != 5).foreach(task -> variable.submit(0, task, vector(0, task)));
        check(variable.round() == 0, "a round without task 5 is done");
        numbers.foreach(task -> variable.submit(0, task, vector(0, task)));
        check(isSum(variable.get(0, WAIT), 0), "the sum");
    }

    private Set<Integer> submitted(String pattern) throws IOException {
        try (Stream<Path> files = Files.list(folder)) {
            return files.map(file -> file.getFileName().toString()).filter(name -> name.matches(pattern))
                    .map(name -> Integer.valueOf(name.split("-")[1])).collect(Collectors.toSet());
        }
    }

    private Set<Integer> submittedIn(String key, long pid) throws IOException {
        return submitted(key + ".submitted-\\d+-" + pid + "-\\d+");
    }

    private void tasksOfKilledExecutorAreRunAgain() throws Exception {
        tasksAreRunAgain("killed", executor -> executor);
    }

    /** The library's process of an executor, which stays, and joins again with another one. */
    private void tasksOfKilledProcessAreRunAgain() throws Exception {
        List<Long> before = executorPids();
        check(engines().size() == EXECUTORS, "processes: " + engines());
        tasksAreRunAgain("crashed", executor -> SparkTest.engines(executor).get(0));
        check(executorPids().equals(before), "executors: " + before + ", then " + executorPids());
        check(engines().size() == EXECUTORS, "processes: " + engines());
    }

    /** The driver takes an executor that does not report for one that stands still. */
    private void executorReports() throws Exception {
        check(engines().size() == EXECUTORS, "processes: " + engines());
        ProcessHandle stopped = engines().get(0);
        signal("STOP", stopped);
        try {
            Thread.sleep(2 * ExecutorEnd.SWEEP_MS); // it is called now
            long from = System.nanoTime();
            await("all executors report", () -> IntStream.range(0, EXECUTORS)
                    .allMatch(id -> DriverEnd.get().hasCalled(Integer.toString(id), from)));
            double took = (System.nanoTime() - from) / 1e9;
            check(took < REPORTS_S, "all executors have reported after " + took + " s");
        } finally {
            signal("CONT", stopped);
        }
        SharedVariable variable = variable("after a stop"); // the team has lost the process, and gets another one
        expectSums(variable, playRounds(variable, (round, seen) -> { }, (round, seen) -> { }));
    }

    private static void signal(String name, ProcessHandle process) throws Exception {
        check(new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().waitFor() == 0, name);
    }

    private List<Long> executorPids() {
        return SparkTest.executors(spark.sparkContext().applicationId()).stream().map(ProcessHandle::pid).sorted()
                .collect(Collectors.toList());
    }

    private List<ProcessHandle> engines() {
        return SparkTest.executors(spark.sparkContext().applicationId()).stream()
                .flatMap(executor -> SparkTest.engines(executor).stream()).collect(Collectors.toList());
    }

    /** Task 11 holds round 2 open until a process is killed, and the tasks of its executor have submitted again. */
    private void tasksAreRunAgain(String key, UnaryOperator<ProcessHandle> process) throws Exception {
        SharedVariable variable = variable(key);
        String files = folder.resolve(key).toString();
        int holder = TASKS - 1;
        FutureTask<List<Seen>> job = inBackground(() -> playRounds(variable, (round, seen) -> {
            if (round == 2 && seen.task == holder) {
                Files.createFile(Path.of(files + ".held-" + holder + "-" + seen.pid));
                while (!Files.exists(Path.of(files + ".go"))) {
                    Thread.sleep(10);
                }
            }
        }, (round, seen) -> {
            if (round == 2) {
                Files.createFile(Path.of(files + ".submitted-" + seen.task + "-" + seen.pid + "-" + seen.attempt));
            }
        }));
        await("all tasks but one submit", () -> job.isDone()
                || (submitted(key + ".submitted-.*").size() == holder && submitted(key + ".held-.*").size() == 1));
        check(!job.isDone(), "the job ended early");
        ProcessHandle victim = null;
        for (ProcessHandle executor : SparkTest.executors(spark.sparkContext().applicationId())) {
            boolean holds = submitted(key + ".held-\\d+-" + executor.pid()).size() == 1;
            victim = !holds && !submittedIn(key, executor.pid()).isEmpty() ? executor : victim;
        }
        Set<Integer> lost = submittedIn(key, victim.pid());
        check(process.apply(victim).destroyForcibly(), "kill");
        long from = System.nanoTime();
        String again = key + ".submitted-\\d+-\\d+-1";
        await("the lost tasks submit again", () -> job.isDone() || submitted(again).containsAll(lost));
        System.out.printf("%d tasks have submitted again after %.1f s%n", lost.size(),
                (System.nanoTime() - from) / 1e9);
        check(!job.isDone() && variable.round() == 2, "round 2 is not open");
        Files.createFile(Path.of(files + ".go"));
        List<Seen> all = job.get(DEADLINE_S, TimeUnit.SECONDS);
        for (int task : lost) {
            check(all.get(task).attempt == 1 && all.get(task).from == 2, "task " + task + " was not run again");
        }
        expectSums(variable, all);
    }

    private void replacementJoins() throws Exception {
        long from = System.nanoTime();
        await("a replacement", () -> executors() == EXECUTORS && DriverEnd.get().ready() == EXECUTORS,
                () -> executors() + " processes, " + DriverEnd.get().ready() + " with the library");
        await("three executors have tasks",
                () -> numbers.map(task -> ProcessHandle.current().pid()).distinct().count() == EXECUTORS);
        System.out.printf("the replacement has tasks after %.1f s%n", (System.nanoTime() - from) / 1e9);
        SharedVariable variable = variable("joined");
        List<Seen> all = playRounds(variable, (round, seen) -> { }, (round, seen) -> { });
        expectSums(variable, all);
        Set<Long> processes = all.stream().map(seen -> seen.pid).collect(Collectors.toSet());
        int earlier = 0;
        for (long pid : processes) {
            earlier += submittedIn("killed", pid).isEmpty() ? 0 : 1;
        }
        check(processes.size() == EXECUTORS && earlier == EXECUTORS - 1, earlier + " earlier ones of " + processes);
    }

    private void cancelledTaskEnds() throws Exception {
        SharedVariable variable = variable("cancelled");
        String files = folder.toString();
        FutureTask<Long> job = inBackground(() -> {
            context.setJobGroup("waits", "waits for ever");
            return numbers.filter(task -> {
                Files.createFile(Path.of(files, "waits-" + task));
                try {
                    return variable.get(0, Duration.ofHours(1)) == null;
                } finally {
                    Files.createFile(Path.of(files, "ends-" + task));
                }
            }).count();
        });
        await("tasks wait", () -> submitted("waits-.*").size() == TASKS);
        Thread.sleep(1000);
        long from = System.nanoTime();
        context.cancelJobGroup("waits");
        await("tasks end", () -> submitted("ends-.*").size() == TASKS);
        double took = (System.nanoTime() - from) / 1e9;
        System.out.printf("%d tasks end %.2f s after their job is cancelled%n", TASKS, took);
        check(took < 10, "they ended late");
        await("the job ends", job::isDone);
    }

    private void endOfApplicationEndsVariables() throws Exception {
        SharedVariable variable = variable("joined");
        check(variable.round() == ROUNDS, "a variable that is found has its rounds");
        spark.stop();
        refused("is over", variable::round);
    }
}
