package paceline.spark;

import static paceline.spark.RunningFit.LOADED;
import static paceline.spark.RunningFit.seconds;
import static paceline.spark.SparkTest.await;
import static paceline.spark.SparkTest.events;
import static paceline.spark.SparkTest.exchanges;
import static paceline.spark.TestCases.check;
import static paceline.spark.TestCases.run;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.SparkSession;

/**
 * A driver that is killed, and another application that continues its run with fewer executors. This program starts
 * both as processes: itself, with another argument. Also with process.conf.
 */
public final class ResumeTest {
    private static final double EXECUTORS_GONE_S = 5;
    /** On an idle machine it is less than 10 s, most of it cold JVMs of executors. */
    private static final double TRAINING_S = 90;
    private static final int FEWER = 2;
    private static final int ENOUGH = 10; // exchanges
    /** Of the driver. Its workers write the last one, when it is lost. */
    private static final int CHECKPOINT_S = 5;
    /** One whose workers write the last checkpoint, and one of leases, whose workers leave their reports. */
    private static final String STRATEGY =
            Boolean.getBoolean("spark.paceline.process") ? "mpca { }" : "sync { tau: 100 }";
    private static final String NAME = "resumed";

    private final Path folder;
    private final Path events;
    private final Path starting; // becomes the next one
    private final Path contextUp; // the name of the application
    private final String master = System.getProperty("spark.master", "");
    private final List<Process> started = new ArrayList<>();

    private ResumeTest(Path folder) {
        this.folder = folder;
        events = folder.resolve(NAME).resolve("run").resolve("events.jsonl");
        starting = folder.resolve("context-starts");
        contextUp = folder.resolve("context-is-up");
    }

    public static void main(String[] arguments) throws Exception {
        ResumeTest test = new ResumeTest(Path.of(arguments[arguments.length - 1]));
        if (arguments.length > 1) {
            test.train(arguments[0].equals("resume"));
        } else {
            run("test_killed_driver_is_resumed_with_fewer_executors", test::resumesWithFewerExecutors);
        }
    }

    /** What the processes do. */
    private void train(boolean resumes) throws Exception {
        SparkSession spark = SparkSession.builder().appName("resume-test").getOrCreate();
        try {
            Files.writeString(starting, spark.sparkContext().applicationId());
            Files.move(starting, contextUp);
            SparkTest base = new SparkTest(spark, folder);
            int workers = resumes ? FEWER : SparkTest.EXECUTORS;
            PacelineEstimator estimator = base.estimator().setMinWorkers(workers).setMaxWorkers(workers);
            estimator.setJob(estimator.getJob() + " checkpoint { every_seconds: " + CHECKPOINT_S + " }");
            int before = exchanges(events).size();
            RunningFit fit = new RunningFit(base, estimator, NAME, STRATEGY);
            fit.reach("exchanges", () -> resumes && exchanges(events).size() > before + ENOUGH);
            PacelineSummary summary = fit.end(workers);
            System.out.printf("executors %.1f s, ingest %.1f s%n", summary.seconds("executors"),
                    summary.seconds("ingest"));
        } finally {
            spark.stop();
        }
    }

    private Process start(String role, int executors) throws Exception {
        List<String> command = new ArrayList<>(List.of(System.getenv("SPARK_HOME") + "/bin/spark-submit",
                "--properties-file", System.getenv("SPARK_TEST_SETTINGS"), "--conf", "spark.cores.max=" + executors));
        if (!master.startsWith("spark:")) { // a cluster of the application's own
            command.addAll(List.of("--master", "local-cluster[" + executors + ",1,512]"));
        }
        command.addAll(List.of("--class", ResumeTest.class.getName(), System.getenv("SPARK_TEST_JAR"), role,
                folder.toString()));
        Process process = new ProcessBuilder(command).inheritIO().start();
        started.add(process);
        return process;
    }

    private void resumesWithFewerExecutors() throws Exception {
        try {
            killAndResume();
        } finally {
            started.forEach(Process::destroyForcibly); // one that is left would train for minutes
        }
    }

    private void killAndResume() throws Exception {
        Process first = start("train", SparkTest.EXECUTORS);
        Path checkpoints = events.resolveSibling("checkpoint");
        await(() -> !first.isAlive() || (exchanges(events).size() > ENOUGH && Files.isDirectory(checkpoints)
                && checkpoints.toFile().list().length > 1));
        check(first.isAlive(), "the first application ended");
        Thread.sleep(2000); // anywhere between two exchanges, and between two checkpoints of the driver
        List<ProcessHandle> executors = SparkTest.executors(Files.readString(contextUp));
        check(executors.size() == SparkTest.EXECUTORS, "executors: " + executors.size());
        first.destroyForcibly().waitFor();
        long killed = System.nanoTime();
        await(() -> executors.stream().noneMatch(ProcessHandle::isAlive));
        double gone = seconds(killed);
        List<JsonNode> done = events(events, "exchange");

        Files.delete(contextUp);
        Process second = start("resume", FEWER);
        await(() -> !second.isAlive() || Files.exists(contextUp));
        long up = System.nanoTime();
        await(() -> !second.isAlive() || exchanges(events).size() > done.size());
        double training = seconds(up);
        check(second.waitFor(180, TimeUnit.SECONDS) && second.exitValue() == 0, "the second application failed");

        long from = events(events, "start").get(1).path("resumed_after").asLong();
        long lost = done.size() - from;
        System.out.printf("driver killed: executors gone after %.1f s; training again %.1f s after the context was up,"
                + " from exchange %d, %d lost%n", gone, training, from, lost);
        check(gone < EXECUTORS_GONE_S * LOADED, "executors lived on for " + gone + " s");
        check(training < TRAINING_S, "training again after " + training + " s");
        check(lost <= 1 * LOADED, lost + " exchanges were lost");
    }
}
