package paceline.spark;

import static paceline.spark.TestCases.check;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/** An engine in a process of its own trains as one in this JVM does, and its end is not this JVM's. */
public final class EngineProcessTest {
    private static final int SIDE = 8;
    private static final int ROWS = 1100; // more than a block
    private static final long PATIENCE_MS = 120_000;
    private static final String KEY = "0123456789abcdef0123456789abcdef";
    private static final RecordSchema SCHEMA =
            new RecordSchema(RecordSchema.Source.BINARY, new int[] {1, SIDE, SIDE}, 2);
    private static final int PARTS = 3;
    private static final int BLOCK_BYTES = 64 << 10; // which a stream in parts keeps in memory
    private static final long ANSWER_MS = 60_000;
    private static final long SILENT_MS = 30_000;
    private static final long SILENCE_MS = 1000; // for which the processes of tests may not answer
    private static final long PAUSE_MS = 2500;
    private static final List<String> OPTIONS = List.of("key=" + KEY, "threads=1", "retry=0");

    private final Path folder;
    private long exchanges; // of all runs so far

    private EngineProcessTest(Path folder) {
        this.folder = folder;
    }

    public static void main(String[] args) throws Exception {
        if (args.length > 0) {
            watchEngine(args[0]);
            return;
        }
        Path folder = Files.createTempDirectory("paceline-engine-");
        try {
            new EngineProcessTest(folder).runAll();
        } finally {
            delete(folder);
        }
    }

    private void runAll() throws Exception {
        TestCases.run("test_two_processes_train", this::processesTrain);
        TestCases.run("test_rows_in_a_file_train_as_those_in_memory", this::rowsInAFileTrain);
        TestCases.run("test_missing_folder_is_named", this::missingFolderIsNamed);
        TestCases.run("test_warning_is_printed", this::warningIsPrinted);
        TestCases.run("test_messages_arrive", EngineProcessTest::messagesArrive);
        TestCases.run("test_a_crash_ends_the_process_alone", this::crashEndsTheProcess);
        TestCases.run("test_a_silent_process_is_killed", EngineProcessTest::silentProcessIsKilled);
        TestCases.run("test_a_silent_process_that_reads_nothing_is_killed",
                EngineProcessTest::silentProcessThatReadsNothingIsKilled);
        TestCases.run("test_a_silent_worker_is_killed_sooner", EngineProcessTest::silentWorkerIsKilledSooner);
        TestCases.run("test_a_process_outlives_a_pause_and_ends_with_its_parent", this::processEndsWithItsParent);
        TestCases.run("test_a_library_that_cannot_be_loaded", EngineProcessTest::libraryCannotBeLoaded);
    }

    private static void delete(Path folder) throws IOException {
        try (Stream<Path> all = Files.walk(folder)) {
            for (Path each : all.sorted(Comparator.reverseOrder()).collect(Collectors.toList())) {
                Files.delete(each);
            }
        }
    }

    // ---- what a process has

    /** The left half is brighter in class 0, the right half in class 1. */
    private static PackedRows rows(int seed) {
        Random random = new Random(seed);
        RowPacker packer = new RowPacker(SCHEMA);
        PackedRows rows = new PackedRows(SCHEMA);
        for (int i = 0; i < ROWS; i++) {
            int label = random.nextInt(2);
            byte[] pixels = new byte[SIDE * SIDE];
            for (int k = 0; k < pixels.length; k++) {
                boolean bright = (k % SIDE < SIDE / 2) == (label == 0);
                pixels[k] = (byte) ((bright ? 120 : 20) + random.nextInt(100));
            }
            Row row = RowFactory.create(pixels, (double) label);
            check(rows.add(packer, row, 0, 1) == null, "a row is refused");
        }
        return rows.trim();
    }

    private static EngineProcess opened(int seed) {
        return opened(seed, ANSWER_MS);
    }

    private static EngineProcess opened(int seed, long workerAnswerMs) {
        EngineProcess engine = new EngineProcess(List.of(), ANSWER_MS, workerAnswerMs);
        engine.open(SCHEMA, RowsLimit.NONE);
        engine.append(rows(seed), seed);
        return engine;
    }

    private static void expectFailure(Runnable call, String message) {
        try {
            call.run();
        } catch (PacelineException expected) {
            check(expected.getMessage().contains(message), "the message is: " + expected.getMessage());
            return;
        }
        throw new AssertionError("no failure with " + message);
    }

    // ---- a run of two workers

    private TrainingRun run(String out, int epochs, String... overrides) throws IOException {
        Path job = folder.resolve("tiny.job");
        Files.writeString(job, "name: 'tiny'\nnet { define {\n"
                + "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
                + "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
                + "  inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } }\n"
                + "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n"
                + "} }\nsolver { type: 'SGD' base_lr: 0.1 momentum: 0.9 lr_policy: 'fixed' }\n"
                + "batch: 16\nthreads: 1\nworkers: 2\npace: 0.001\nstrategy { sync { tau: 4 } }\nlocal_data: true\n"
                + "train_data { memory { name: 'rows' begin_with: 64 } scale: 0.00390625 }\n");
        TrainingRun run = new TrainingRun(event ->
                exchanges += event.path("kind").asText().equals("exchange") ? 1 : 0);
        run.addRecords(Engine.ROWS, SCHEMA, List.of(rows(1)));
        List<String> all = new ArrayList<>(List.of("epoch_records=" + 2 * ROWS, "stop.epochs=" + epochs));
        all.addAll(List.of(overrides));
        run.start(job, all,
                List.of("out=" + folder.resolve(out), "key=" + KEY, "patience=60"));
        await("the run's address", () -> {
            check(!run.poll(10), "the run has ended: " + run.message());
            return run.address() != null;
        });
        return run;
    }

    private interface Condition {
        boolean holds();
    }

    private static void await(String what, Condition condition) {
        for (long end = System.nanoTime() + PATIENCE_MS * 1_000_000; !condition.holds();) {
            check(System.nanoTime() < end, "not in time: " + what);
        }
    }

    private void processesTrain() throws Exception {
        try (TrainingRun run = run("trains", 3)) {
            List<EngineProcess> engines = new ArrayList<>(List.of(opened(2), opened(3)));
            List<Engine.Worker> workers = new ArrayList<>();
            for (EngineProcess engine : engines) {
                workers.add(engine.work(run.address(), OPTIONS));
            }
            await("the end of the run", () -> run.poll(100));
            check(run.status() == 0, "the run: " + run.message());
            check(run.report().path("reason").asText().equals("epochs"), "its report: " + run.report());
            for (Engine.Worker worker : workers) {
                await("the end of a worker", () -> worker.ended(100));
                check(worker.status() == 0, "a worker: " + worker.message());
                check(worker.close(), "a worker is closed");
            }
            for (EngineProcess engine : engines) {
                engine.close();
                check(ProcessHandle.of(engine.pid()).isEmpty(), "a process is still there");
            }
        }
    }

    /** One worker in this process: the model is the same, bit by bit. */
    private void rowsInAFileTrain() throws Exception {
        byte[] model = modelOf("memory", RowsLimit.NONE);
        check(Arrays.equals(model, modelOf("file", new RowsLimit(0, folder.toString()))), "the models differ");
        for (long limit : new long[] {0, 2 * BLOCK_BYTES, Long.MAX_VALUE}) {
            Path kept = folder.resolve("kept-" + limit);
            check(Arrays.equals(model, modelOf(kept + "-run", new RowsLimit(limit, null).keptIn(kept.toString(), 1))),
                    "the model of kept rows differs");
            Files.delete(kept);
        }
    }

    /** Until a block is full, and is to be written. */
    private static void fill(Engine engine) {
        for (int part = 0; part < BLOCK_BYTES / (ROWS * SIDE * SIDE) + 1; part++) {
            engine.append(rows(9), part);
        }
    }

    private void missingFolderIsNamed() {
        EngineProcess engine = new EngineProcess(List.of(), ANSWER_MS, ANSWER_MS);
        engine.open(SCHEMA, new RowsLimit(0, folder + "/gone"));
        expectFailure(() -> fill(engine), "/gone/paceline-rows-");
        for (int i = 0; i < 2; i++) { // once it has failed it fails for ever
            expectFailure(() -> engine.append(rows(9), 1), "cannot open for writing: No such file or directory");
        }
        engine.close();
    }

    /** Files of this process end at a limit, as on a disk that is full. The rows stay in memory. */
    private void warningIsPrinted() throws Exception {
        var printed = new ByteArrayOutputStream();
        PrintStream before = System.err;
        System.setErr(new PrintStream(printed, true));
        try (LocalEngine engine = new LocalEngine()) {
            engine.open(SCHEMA, RowsLimit.NONE.keptIn(folder.resolve("full").toString(), 1));
            limitFiles("1000");
            fill(engine);
        } finally {
            limitFiles("unlimited");
            System.setErr(before);
        }
        String expected = "paceline: stream rows: no part is kept from here on";
        check(printed.toString().startsWith(expected), "standard error has: " + printed);
    }

    private static void limitFiles(String bytes) throws Exception {
        int status = new ProcessBuilder("prlimit", "--pid", Long.toString(ProcessHandle.current().pid()),
                "--fsize=" + bytes + ":").inheritIO().start().waitFor();
        check(status == 0, "prlimit");
    }

    private byte[] modelOf(String out, RowsLimit limit) throws Exception {
        LocalEngine engine = new LocalEngine();
        engine.open(SCHEMA, limit);
        for (int part = 0; part < PARTS; part++) {
            engine.append(rows(10 + part), part);
        }
        check(spills() > 0 == (limit.folder != null), "files of rows: " + spills());
        try (TrainingRun run = run(out, 5, "workers=1", "deterministic=true")) {
            Engine.Worker worker = engine.work(run.address(), OPTIONS);
            await("the end of the run", () -> run.poll(100));
            check(run.status() == 0, "the run: " + run.message());
            await("the end of its worker", () -> worker.ended(100));
            check(worker.close(), "the worker is closed");
            return Files.readAllBytes(Path.of(run.report().path("model").asText()));
        } finally {
            engine.close();
            check(spills() == 0, "a file of rows is still open");
        }
    }

    /** Open files of rows that lie in this test's folder, and have no name any more. */
    private long spills() throws IOException {
        try (Stream<Path> open = Files.list(Path.of("/proc/self/fd"))) {
            return open.filter(file -> {
                try {
                    String target = Files.readSymbolicLink(file).toString();
                    return target.startsWith(folder + "/paceline-rows-") && target.endsWith("(deleted)");
                } catch (IOException gone) {
                    return false;
                }
            }).count();
        }
    }

    private static void messagesArrive() {
        EngineProcess engine = opened(4);
        expectFailure(() -> engine.work("127.0.0.1:9", List.of("colour=red")), "there is no option colour");
        Engine.Worker worker = engine.work("127.0.0.1:9", OPTIONS);
        await("the end of a worker without a driver", () -> worker.ended(100));
        check(worker.status() != 0 && worker.message().contains("127.0.0.1:9"), "its message: " + worker.message());
        worker.close();
        engine.close();
    }

    // ---- ends

    private void crashEndsTheProcess() throws Exception {
        try (TrainingRun run = run("crash", 100_000)) {
            EngineProcess engine = opened(5);
            EngineProcess other = opened(6);
            Engine.Worker worker = engine.work(run.address(), OPTIONS);
            Engine.Worker stays = other.work(run.address(), OPTIONS);
            long begin = exchanges;
            await("both workers", () -> {
                check(!run.poll(10), "the run has ended: " + run.message());
                return exchanges > begin;
            });
            new ProcessBuilder("kill", "-SEGV", Long.toString(engine.pid())).start().waitFor();
            expectFailure(() -> await("the crash", () -> worker.ended(100)), "has ended with code 134");
            check(worker.close(), "a worker of a process that is gone");
            engine.close();
            long before = exchanges;
            await("exchanges of the other worker", () -> {
                check(!run.poll(10) && !stays.ended(1), "the run or its worker has ended");
                return exchanges > before;
            });
            stays.leave();
            await("its leave", () -> stays.ended(100));
            stays.close();
            other.close();
        }
    }

    /** Long before a call that opens or fills an engine would be given up. */
    private static void silentWorkerIsKilledSooner() throws Exception {
        EngineProcess engine = opened(7, SILENCE_MS);
        Engine.Worker worker = engine.work("127.0.0.1:9", List.of("key=" + KEY, "threads=1", "retry=100"));
        check(!worker.ended(1), "the worker has ended: " + worker.message());
        new ProcessBuilder("kill", "-STOP", Long.toString(engine.pid())).start().waitFor();
        long from = System.nanoTime();
        expectFailure(() -> worker.ended(100), "has ended with code 137");
        check(System.nanoTime() - from < SILENT_MS * 1_000_000, "it was killed after more than " + SILENT_MS + " ms");
        check(worker.close() && !engine.usable(), "the process is there");
        engine.close();
    }

    /** In a JVM of its own: a process with a worker that is asked for as an executor asks for it. */
    private static void watchEngine(String driver) throws InterruptedException {
        EngineProcess engine = opened(8, SILENCE_MS);
        Engine.Worker worker = engine.work(driver, OPTIONS);
        System.out.println(engine.pid());
        while (!worker.ended(100)) {
            continue;
        }
        System.out.println(worker.message());
    }

    /** It trains on while its parent stands still, and after that. It ends although its worker hangs. */
    private void processEndsWithItsParent() throws Exception {
        try (TrainingRun run = run("orphan", 100_000, "workers=1")) {
            Process parent = new ProcessBuilder(ProcessHandle.current().info().command().orElseThrow(), "-cp",
                    System.getProperty("java.class.path"), EngineProcessTest.class.getName(), run.address())
                    .redirectError(ProcessBuilder.Redirect.INHERIT).start();
            BufferedReader lines = new BufferedReader(new InputStreamReader(parent.getInputStream()));
            long engine = Long.parseLong(lines.readLine());
            awaitExchange(run);
            kill("STOP", parent.pid());
            for (long end = System.nanoTime() + PAUSE_MS * 1_000_000; System.nanoTime() < end;) {
                awaitExchange(run);
            }
            kill("CONT", parent.pid());
            for (long end = System.nanoTime() + SILENCE_MS * 1_000_000; System.nanoTime() < end;) {
                awaitExchange(run);
            }
            check(!hasEnded(engine) && !lines.ready(), "the process has ended in the pause");
            try (HeldThread held = HeldThread.of(engine)) {
                if (held == null) {
                    System.out.println("no thread can be held here: the process ends while it trains");
                }
                kill("KILL", parent.pid());
                await("the end of the process", () -> hasEnded(engine));
            } finally {
                parent.destroyForcibly();
            }
        }
    }

    private void awaitExchange(TrainingRun run) {
        long before = exchanges;
        await("an exchange", () -> {
            check(!run.poll(10), "the run has ended: " + run.message());
            return exchanges > before;
        });
    }

    private static void kill(String signal, long pid) throws Exception {
        check(new ProcessBuilder("kill", "-" + signal, Long.toString(pid)).start().waitFor() == 0, "kill " + signal);
    }

    /** Nobody may have waited for it yet. */
    private static boolean hasEnded(long pid) {
        return SparkTest.commandLine(pid).isEmpty();
    }

    private static void silentProcessIsKilled() throws Exception {
        EngineProcess engine = new EngineProcess(List.of(), SILENCE_MS, ANSWER_MS);
        new ProcessBuilder("kill", "-STOP", Long.toString(engine.pid())).start().waitFor();
        expectFailure(() -> engine.open(SCHEMA, RowsLimit.NONE), "has ended with code 137");
        engine.close();
    }

    /** It does not even read a call that the pipe has no room for. */
    private static void silentProcessThatReadsNothingIsKilled() throws Exception {
        EngineProcess engine = new EngineProcess(List.of(), SILENCE_MS, ANSWER_MS);
        float[] large = new float[1 << 18];
        new ProcessBuilder("kill", "-STOP", Long.toString(engine.pid())).start().waitFor();
        expectFailure(() -> engine.call(own -> new Engine.Reply(large.length)), "has ended with code 137");
        engine.close();
    }

    private static void libraryCannotBeLoaded() {
        expectFailure(() -> new EngineProcess(List.of("-Dos.name=Plan9"), ANSWER_MS, ANSWER_MS), "the jar has no native/plan9-");
    }
}
