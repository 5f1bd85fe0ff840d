package paceline.spark;

import static paceline.spark.TestCases.check;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.sql.SparkSession;

/** The key of a run is in no place that others may read: arguments of processes, settings of Spark, its files. */
final class KeyTest {
    private static final int EXCHANGES = 5;

    private KeyTest() {}

    /** As a lease in that executor gets it. */
    private static String keyOf(PacelineSession session, String executor) throws ReflectiveOperationException {
        var field = PacelineSession.class.getDeclaredField("fit");
        field.setAccessible(true);
        return ((Fit) field.get(session)).work(executor).split("\n")[3];
    }

    /** The files below a folder, as text. */
    private static String files(Path folder) throws IOException {
        StringBuilder text = new StringBuilder();
        try (Stream<Path> files = Files.walk(folder)) {
            for (Path file : files.filter(Files::isRegularFile).collect(Collectors.toList())) {
                text.append(Files.readString(file, StandardCharsets.ISO_8859_1));
            }
        }
        return text.toString();
    }

    /** What any user, or this one, sees of a process. */
    private static String process(ProcessHandle process) {
        String text = SparkTest.commandLine(process.pid());
        try {
            return text + Files.readString(Path.of("/proc/" + process.pid() + "/environ"), StandardCharsets.ISO_8859_1);
        } catch (IOException denied) {
            return text;
        }
    }

    private static void expectWithout(String key, String what, String text, String known) {
        check(text.contains(known), what + " should say " + known + ": " + text);
        check(!text.contains(key), what + " has the key of the run");
    }

    /** The same places have other words, so that they are the right ones. */
    static void keyIsHidden(SparkSession spark, SparkTest base) throws Exception {
        Path directory = base.folder.resolve("key");
        base.jobs.properties.clear();
        PacelineSession session = new PacelineSession(spark);
        FutureTask<PacelineModel> fit = SparkTest.inBackground(() -> base.estimator().setSession(session)
                .setCheckpointDir(directory.toString()).setEpochs(10_000).fit(base.rows));
        try {
            Path events = directory.resolve("run").resolve("events.jsonl");
            SparkTest.await(() -> fit.isDone() || SparkTest.exchanges(events).size() > EXCHANGES);
            check(!fit.isDone(), "the fit ended early");
            String key = keyOf(session, session.executors().iterator().next());
            check(key.matches("[0-9a-f]{64}"), "a key of other form");

            var context = spark.sparkContext();
            expectWithout(key, "SparkConf", context.getConf().toDebugString(), "spark.plugins");
            expectWithout(key, "the session's settings", spark.conf().getAll().mkString("\n"), "spark.plugins");
            expectWithout(key, "a job's properties", base.jobs.properties.toString(), "-lease-");
            expectWithout(key, "the driver's properties", System.getProperties().toString(), "java.class.path");
            Path log = Path.of(context.getConf().get("spark.eventLog.dir"));
            SparkTest.await(() -> files(log).contains("-lease-"));
            expectWithout(key, "the log of events", files(log), "SparkListenerJobStart");
            List<ProcessHandle> all = ProcessHandle.allProcesses().collect(Collectors.toList());
            expectWithout(key, "a process", all.stream().map(KeyTest::process).collect(Collectors.joining("\n")),
                    "--executor-id");
            expectWithout(key, "the run's events", Files.readString(events), "\"kind\":\"exchange\"");
            expectWithout(key, "the run's job", Files.readString(events.resolveSibling("job.prototxt")), "local_data");
        } finally {
            session.close();
        }
        try {
            fit.get();
        } catch (ExecutionException closed) {
            check(closed.getMessage().contains("the session was closed"), closed.getMessage());
        }
        base.expectNothingRuns();
    }
}
