package paceline.spark;

import static paceline.spark.TestCases.check;
import static paceline.spark.TestCases.run;

import java.io.IOException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The native functions in a JVM without Spark: a driver and two workers, an engine each, in this process. */
final class NativeTest {
    private static final int SIDE = 4;
    private static final int PIXELS = SIDE * SIDE;
    private static final String KEY = "0123456789abcdef0123456789abcdef";
    private static final long DEADLINE_MS = 120_000;
    private static final int LOG_LINES = 12_000;

    private final Path folder;
    private final ByteBuffer lines = direct(Native.LINES_BYTES);

    private NativeTest(Path folder) {
        this.folder = folder;
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 2) {
            NativeLibrary.load();
            new NativeTest(Path.of(arguments[1])).leaveRunning();
            return;
        }
        var before = new ProcessState();
        Path folder = Files.createTempDirectory("native-test-");
        var test = new NativeTest(folder);
        run("test_library_has_its_hash_in_its_name", test::libraryHasItsHash);
        run("test_library_loads_once", test::libraryLoadsOnce);
        run("test_wrong_handles_are_refused", test::wrongHandlesAreRefused);
        run("test_messages_are_unicode", test::messagesAreUnicode);
        run("test_stream_refuses_wrong_labels", test::streamRefusesWrongLabels);
        run("test_parts_are_readable", test::partsAreReadable);
        run("test_parts_are_adopted", test::partsAreAdopted);
        run("test_records_are_packed", test::recordsArePacked);
        run("test_workers_train_on_growing_streams", test::workersTrainOnGrowingStreams);
        run("test_job_is_known_before_it_runs", test::jobIsKnown);
        run("test_run_stops_and_worker_leaves", test::runStopsAndWorkerLeaves);
        run("test_wrong_key_is_refused", test::wrongKeyIsRefused);
        run("test_wrong_arguments_of_nets_are_refused", test::wrongArgumentsOfNetsAreRefused);
        run("test_log_that_nobody_collects_is_counted", test::logIsCounted);
        run("test_cycles_leak_nothing", test::cyclesLeakNothing);
        run("test_exit_ends_tasks", test::exitEndsTasks);
        run("test_process_keeps_its_state", before::expectUnchanged);
        run("test_library_that_has_ended_refuses_calls", test::endedLibraryRefusesCalls); // the last one
        removeTree(folder);
    }

    // ---- loading

    /** The system says from which file its code comes. The JVM loads it from the folder that it is given first. */
    private void libraryHasItsHash() throws Exception {
        NativeLibrary.load(folder);
        String file = null;
        for (String line : Files.readAllLines(Path.of("/proc/self/maps"))) {
            file = line.contains("libpaceline-jni") ? line.substring(line.indexOf('/')) : file;
        }
        String platform = System.getProperty("os.arch").equals("amd64") ? "x86_64" : System.getProperty("os.arch");
        byte[] library;
        try (var in = NativeLibrary.class.getResourceAsStream("/native/linux-" + platform + "/libpaceline-jni.so")) {
            library = in.readAllBytes();
        }
        String hash = java.util.HexFormat.of()
                .formatHex(java.security.MessageDigest.getInstance("SHA-256").digest(library));
        check(file.startsWith(folder + "/paceline-"), "it is not in " + folder + ": " + file);
        check(file.endsWith("/libpaceline-jni-" + hash + ".so (deleted)"), "its file is " + file + ", not of " + hash);
        try (var left = Files.list(folder)) {
            check(left.findAny().isEmpty(), "its folder is left");
        }
    }

    private void libraryLoadsOnce() throws Exception {
        NativeLibrary.load();
        NativeLibrary.load();
        URL classes = NativeTest.class.getProtectionDomain().getCodeSource().getLocation();
        List<URL> path = new ArrayList<>();
        path.add(classes);
        path.add(NativeLibrary.class.getProtectionDomain().getCodeSource().getLocation());
        try (var other = new URLClassLoader(path.toArray(new URL[0]), ClassLoader.getPlatformClassLoader())) {
            var load = other.loadClass("paceline.spark.NativeLibrary").getDeclaredMethod("load");
            load.setAccessible(true);
            for (int i = 0; i < 2; i++) {
                try {
                    load.invoke(null);
                    throw new AssertionError("a second class loader has loaded the library");
                } catch (java.lang.reflect.InvocationTargetException e) {
                    expectIn(e.getCause().getMessage(), "loaded already, by another class loader");
                }
            }
        }
        done(Native.close(opened(Native.engineCreate(Native.LOG_WARN)))); // also after the refusal
    }

    // ---- calls that are refused

    private void wrongHandlesAreRefused() {
        long engine = opened(Native.engineCreate(Native.LOG_WARN));
        long stream = openRows(engine, "rows", false);
        done(Native.close(stream));
        done(Native.close(engine));
        var buffer = direct(Native.LINES_BYTES);
        for (long wrong : new long[] {0, -1, 1, Long.MAX_VALUE, Long.MIN_VALUE, engine, stream}) {
            long[] status = {Native.close(wrong), Native.engineLog(wrong, buffer),
                    Native.runOpen(wrong, null, null, null), Native.workOpen(wrong, "x", null),
                    Native.taskMain(wrong), Native.taskSignal(wrong, Native.STOP, 1),
                    Native.taskPoll(wrong, buffer), Native.streamNext(wrong, new ByteBuffer[2]),
                    Native.streamOpen(wrong, "x", 1, 1, 1, 0, Native.U8, 0, null, Native.COMPLETE, 0),
                    Native.streamCommit(wrong, 1), Native.streamCut(wrong, 1), Native.streamSeal(wrong),
                    Native.streamAdopt(wrong, "x", new long[0], new long[0], new boolean[0]),
                    Native.pack(wrong, "memory:x", "x"),
                    Native.modelOpen(wrong, "x", "x", Native.U8, 1, 1, new int[] {1, 1, 1, 0, 0}),
                    Native.modelPredict(wrong, buffer, 0, buffer), Native.unbind(wrong, "x"),
                    Native.netOpen(wrong, "net={zoo: 'lenet'}", null, new int[4]),
                    Native.netData(wrong, "memory:x", true), Native.netTrain(wrong, 1, new double[1]),
                    Native.netTest(wrong, 1, new double[2]), Native.netForward(wrong, buffer, 0, "x", buffer),
                    Native.netTensors(wrong), Native.netCopy(wrong, 0, 0, buffer, 0, false),
                    Native.netFile(wrong, "x", false)};
            for (int i = 0; i < status.length; i++) {
                check(status[i] == Native.ERR_USAGE, "call " + i + " with " + wrong + " is " + status[i]);
            }
            check(Native.netTensor(wrong, 0, new int[Native.TENSOR_INTS]) == null, "a tensor of none");
            expectIn(Native.message(), "net: it is closed");
        }
        long live = opened(Native.engineCreate(Native.LOG_WARN));
        long rows = openRows(live, "rows", false);
        check(Native.close(live) == Native.ERR_USAGE, "an engine with a stream is closed");
        expectIn(Native.message(), "has open streams");
        check(Native.taskMain(rows) == Native.ERR_USAGE, "a stream is no task");
        check(Native.engineLog(live, ByteBuffer.allocate(Native.LINES_BYTES)) == Native.ERR_USAGE, "heap buffer");
        expectIn(Native.message(), "not direct");
        check(Native.engineLog(live, direct(100)) == Native.ERR_USAGE, "small buffer");
        check(Native.engineLog(live, null) == Native.ERR_USAGE, "null buffer");
        done(Native.close(rows));
        done(Native.close(live));
    }

    private void wrongArgumentsOfNetsAreRefused() {
        long engine = opened(Native.engineCreate(Native.LOG_WARN));
        int[] shape = {1, SIDE, SIDE, 0};
        String define = "net={define {layer {name:'d' type:'Input' top:'d' top:'l'} layer {name:'ip'"
                + " type:'InnerProduct' bottom:'d' top:'ip' inner_product_param {num_output:2}} layer {name:'loss'"
                + " type:'SoftmaxWithLoss' bottom:'ip' bottom:'l' top:'loss'}}}";
        check(Native.netOpen(engine, null, null, shape) == Native.ERR_USAGE, "no net");
        check(Native.netOpen(engine, define, null, null) == Native.ERR_USAGE, "no shape");
        check(Native.netOpen(engine, define, null, new int[3]) == Native.ERR_USAGE, "a short shape");
        check(Native.netOpen(engine, define, new String[] {"colour=red"}, shape) == Native.ERR_USAGE, "an option");
        check(Native.netOpen(engine, "batch=3", null, shape) == Native.ERR_INPUT, "an assignment of no net");
        check(Native.netOpen(engine, "net={zoo:", null, shape) < 0, "half an assignment");
        long net = opened(Native.netOpen(engine, define, new String[] {"threads=1"}, shape));
        check(shape[3] == 2, "classes");
        var buffer = direct(16 * PIXELS);
        var heap = ByteBuffer.allocate(16 * PIXELS);
        int[] about = new int[Native.TENSOR_INTS];
        check(Native.netTensors(net) == 2 && Native.netTensor(net, 0, about).length == 2, "tensors");
        check(about[1] == 2 && about[2] == 2 && about[3] == PIXELS, "shape of ip: " + Arrays.toString(about));
        check(Native.netTensor(net, 2, about) == null && Native.netTensor(net, -1, about) == null, "tensors beyond");
        check(Native.netTensor(net, 0, new int[2]) == null && Native.netTensor(net, 0, null) == null, "no room");
        long[] status = {Native.netCopy(net, 0, 0, buffer, 2 * PIXELS + 1, false),
                Native.netCopy(net, 0, -1, buffer, 1, true), Native.netCopy(net, 0, Long.MAX_VALUE, buffer, 1, true),
                Native.netCopy(net, 0, 0, buffer, -1, true), Native.netCopy(net, 0, 0, heap, 1, true),
                Native.netCopy(net, 0, 0, null, 1, true), Native.netCopy(net, 0, 0, direct(8), 3, false),
                Native.netTrain(net, 1, null), Native.netTrain(net, -1, new double[1]),
                Native.netTest(net, 1, new double[1]), Native.netTest(net, 1, new double[2]),
                Native.netData(net, null, true), Native.netForward(net, direct(8), 1, "ip", buffer),
                Native.netForward(net, buffer, 1, "ip", direct(4)), Native.netForward(net, buffer, -1, "ip", buffer),
                Native.netForward(net, buffer, 1, null, buffer), Native.netForward(net, heap, 1, "ip", buffer),
                Native.netFile(net, null, true), Native.close(engine), Native.unbind(engine, "rows"),
                Native.unbind(engine, null)};
        for (int i = 0; i < status.length; i++) {
            check(status[i] == Native.ERR_USAGE, "call " + i + " is " + status[i]);
        }
        check(Native.netForward(net, buffer, 1, "ip", direct(8)) == 2, "two scores");
        done(Native.close(net));
        done(Native.close(engine));
    }

    private void messagesAreUnicode() {
        long engine = opened(Native.engineCreate(Native.LOG_WARN));
        String name = folder + "/Grüße \uD83D\uDC1F.job";
        check(Native.runOpen(engine, name, null, null) == Native.ERR_INPUT, "a job that is not there");
        expectIn(Native.message(), name);
        check(Native.runOpen(engine, "a\0b", null, null) == Native.ERR_USAGE, "a NUL");
        check(Native.runOpen(engine, "a\uD83D", null, null) == Native.ERR_USAGE, "half a character");
        check(Native.runOpen(engine, null, null, new String[] {"colour=red"}) == Native.ERR_USAGE, "no such option");
        expectIn(Native.message(), "there is no option colour");
        check(Native.runOpen(engine, null, null, new String[] {"patience=0.5"}) == Native.ERR_USAGE, "a fraction");
        check(Native.runOpen(engine, null, new String[] {null}, null) == Native.ERR_USAGE, "a null text");
        check(Native.runOpen(engine, null, new String[] {"workers=many"}, null) == Native.ERR_USAGE, "many");
        check(Native.workOpen(engine, "127.0.0.1:1", new String[] {"threads=-1"}) == Native.ERR_USAGE, "-1 threads");
        done(Native.close(engine));
    }

    private void streamRefusesWrongLabels() {
        long engine = opened(Native.engineCreate(Native.LOG_WARN));
        for (int[] wrong : new int[][] {{-1, 1, 1, 2, 0}, {1, 0, 1, 2, 0}, {1, 1, 1, -1, 0}, {1, 1, 1, 2, 9}}) {
            check(Native.streamOpen(engine, "rows", wrong[0], wrong[1], wrong[2], wrong[3], wrong[4], 0, null,
                    Native.GROWS, 0) < 0, "a stream of " + Arrays.toString(wrong));
        }
        check(Native.streamOpen(engine, null, 1, 1, 1, 2, 0, 0, null, Native.GROWS, 0) == Native.ERR_USAGE, "no name");
        long rows = openRows(engine, "rows", false);
        for (ByteBuffer[] no : new ByteBuffer[][] {null, {}, new ByteBuffer[1], new ByteBuffer[3]}) {
            check(Native.streamNext(rows, no) == Native.ERR_USAGE, "room for two buffers");
        }
        check(Native.streamCommit(rows, 1) == Native.ERR_USAGE, "a commit of what was not acquired");
        check(Native.streamSeal(rows) == Native.ERR_INPUT, "an empty stream");
        var next = new ByteBuffer[2];
        done(Native.streamNext(rows, next));
        next[1].order(ByteOrder.nativeOrder()).putInt(0, 7);
        check(Native.streamCommit(rows, 1) == Native.ERR_INPUT, "label 7 of 2");
        expectIn(Native.message(), "label 7 of 2 classes");
        check(Native.streamCommit(rows, -1) == Native.ERR_USAGE, "-1 records");
        done(Native.close(rows));
        done(Native.close(engine));
    }

    // ---- records

    /** The left half of the picture is brighter in class 0, the right half in class 1. */
    private static int drawRow(Random random, byte[] pixels) {
        int label = random.nextInt(2);
        for (int i = 0; i < PIXELS; i++) {
            boolean bright = (i % SIDE < SIDE / 2) == (label == 0);
            pixels[i] = (byte) ((bright ? 120 : 20) + random.nextInt(100));
        }
        return label;
    }

    private static long openRows(long engine, String name, boolean grows) {
        return opened(Native.streamOpen(engine, name, 1, SIDE, SIDE, 2, Native.U8, 0, null,
                grows ? Native.GROWS : Native.COMPLETE, 0));
    }

    private static void addRows(long stream, Random random, int count) {
        var pixels = new byte[PIXELS];
        var next = new ByteBuffer[2];
        while (count > 0) {
            done(Native.streamNext(stream, next));
            ByteBuffer values = next[0];
            ByteBuffer labels = next[1].order(ByteOrder.nativeOrder());
            int n = Math.min(count, values.capacity() / PIXELS);
            check(labels.capacity() / 4 == values.capacity() / PIXELS, "as many labels as records");
            for (int i = 0; i < n; i++) {
                labels.putInt(drawRow(random, pixels));
                values.put(pixels);
            }
            done(Native.streamCommit(stream, n));
            count -= n;
        }
    }

    /** Records can be read up to the last cut. */
    private void partsAreReadable() {
        long engine = opened(Native.engineCreate(Native.LOG_WARN));
        long grows = openRows(engine, "grows", true);
        addRows(grows, new Random(3), 10);
        check(Native.streamCut(grows, 7) == Native.ERR_USAGE, "a stream without parts is cut");
        expectIn(Native.message(), "stream grows: it is not in parts");
        done(Native.close(grows));
        long rows = opened(Native.streamOpen(engine, "rows", 1, SIDE, SIDE, 2, Native.U8, 0, null, Native.PARTS, 0));
        check(Native.streamCut(rows, 7) == Native.ERR_USAGE, "a part without records");
        addRows(rows, new Random(3), 10);
        done(Native.streamCut(rows, 7));
        addRows(rows, new Random(4), 5);
        check(opened(Native.pack(engine, "memory:rows", folder + "/one")) == 10, "records of one part");
        check(Native.streamSeal(rows) == Native.ERR_USAGE, "records in no part are sealed");
        expectIn(Native.message(), "its last records are in no part");
        done(Native.streamCut(rows, 8));
        check(opened(Native.pack(engine, "memory:rows", folder + "/two")) == 15, "records of two parts");
        done(Native.streamSeal(rows));
        done(Native.close(engine));
    }

    /** Another engine gets parts out of a file whose engine is gone. */
    private void partsAreAdopted() {
        String file = folder + "/kept.rows";
        long first = opened(Native.engineCreate(Native.LOG_WARN));
        long kept = openKept(first, file);
        addRows(kept, new Random(3), 10);
        done(Native.streamCut(kept, 7));
        long engine = opened(Native.engineCreate(Native.LOG_WARN));
        long rows = openKept(engine, folder + "/adopts.rows");
        boolean[] adopted = new boolean[2];
        long[] hashes = {6, 7};
        check(Native.streamAdopt(rows, file, hashes, new long[] {1, 10}, adopted) == Native.ERR_USAGE, "a file in use");
        expectIn(Native.message(), "the process that has it lives");
        done(Native.close(kept));
        done(Native.close(first));
        for (Object[] wrong : new Object[][] {{null, hashes, hashes, adopted}, {file, null, hashes, adopted},
                {file, hashes, null, adopted}, {file, hashes, new long[1], adopted}, {file, hashes, hashes, null},
                {file, hashes, hashes, new boolean[1]}}) {
            check(Native.streamAdopt(rows, (String) wrong[0], (long[]) wrong[1], (long[]) wrong[2],
                    (boolean[]) wrong[3]) == Native.ERR_USAGE, "wrong arguments are taken");
        }
        done(Native.streamAdopt(rows, file, hashes, new long[] {1, 10}, adopted));
        check(!adopted[0] && adopted[1], "adopted: " + Arrays.toString(adopted));
        check(opened(Native.pack(engine, "memory:kept", folder + "/adopted")) == 10, "records that were adopted");
        done(Native.close(rows));
        done(Native.close(engine));
    }

    private static long openKept(long engine, String file) {
        return opened(Native.streamOpen(engine, "kept", 1, SIDE, SIDE, 2, Native.U8, 0, file, Native.KEPT, 5));
    }

    private void recordsArePacked() {
        long engine = opened(Native.engineCreate(Native.LOG_WARN));
        long rows = openRows(engine, "rows", false);
        addRows(rows, new Random(3), 100_000);
        done(Native.streamSeal(rows));
        String prefix = folder + "/packed";
        check(opened(Native.pack(engine, "memory:rows", prefix)) == 100_000, "records in shards");
        check(Files.exists(Path.of(prefix + "-00000.shard")), "a shard");
        check(Native.pack(engine, "memory:others", prefix) == Native.ERR_INPUT, "records that are not there");
        expectIn(Native.message(), "others");
        done(Native.close(engine));
    }

    // ---- tasks

    /** A task whose taskMain runs on a thread of its own, as that of a lease. */
    private final class Task {
        final long handle;
        final StringBuilder text = new StringBuilder();
        final Thread thread;
        volatile int status = 1;
        volatile String message;
        volatile boolean announced;

        Task(long opened) {
            handle = opened(opened);
            thread = new Thread(() -> {
                int rc = Native.taskMain(handle);
                message = rc == 0 ? "" : Native.message();
                status = rc;
                if (announced) {
                    System.out.println("a task has ended with " + rc + " " + message);
                }
            });
            thread.setDaemon(true);
            thread.start();
        }

        void poll() {
            for (int n; (n = counted(Native.taskPoll(handle, lines))) > 0;) {
                var bytes = new byte[n];
                lines.get(0, bytes);
                check(bytes[n - 1] == '\n', "lines are whole");
                text.append(new String(bytes, StandardCharsets.UTF_8));
            }
        }

        /** The first group of the pattern in the lines so far; null: none. */
        String find(String pattern) {
            poll();
            Matcher matcher = Pattern.compile(pattern).matcher(text);
            return matcher.find() ? matcher.group(1) : null;
        }

        String await(String pattern) {
            for (long end = System.currentTimeMillis() + DEADLINE_MS; System.currentTimeMillis() < end; pause()) {
                boolean over = status <= 0;
                String found = find(pattern);
                if (found != null) {
                    return found;
                }
                check(!over, "the task ended with " + status + ", " + message + ", without " + pattern + "\n" + text);
            }
            throw new AssertionError("no " + pattern + " in time:\n" + text);
        }

        void end(int expected) throws InterruptedException {
            thread.join(DEADLINE_MS);
            check(status == expected, "the task ended with " + status + ": " + message + "\n" + text);
            poll();
        }

        void close() {
            done(Native.close(handle));
        }
    }

    private final class Worker {
        final long engine = opened(Native.engineCreate(Native.LOG_WARN));
        final long rows = openRows(engine, "rows", true);
        final Random random;
        Task task;

        Worker(int seed) {
            random = new Random(seed);
        }

        void begin(String address, String key) {
            task = new Task(Native.workOpen(engine, address,
                    new String[] {"key=" + key, "threads=1", "retry=0"}));
        }

        void close() {
            task.close();
            done(Native.close(rows));
            done(Native.close(engine));
        }
    }

    private String writeJob() throws IOException {
        Path job = folder.resolve("tiny.job");
        Files.writeString(job, "name: 'tiny'\nnet { define {\n"
                + "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
                + "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
                + "  inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } }\n"
                + "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n"
                + "} }\nsolver { type: 'SGD' base_lr: 0.1 momentum: 0.9 lr_policy: 'fixed' }\n"
                + "batch: 16\nthreads: 1\nworkers: 2\nstrategy { sync { tau: 4 } }\nlocal_data: true\n"
                + "train_data { memory { name: 'rows' begin_with: 64 } scale: 0.00390625 }\n");
        return job.toString();
    }

    /** An engine with a few records that tell a driver their shape. */
    private static long openDriver() {
        long engine = opened(Native.engineCreate(Native.LOG_INFO));
        long rows = openRows(engine, "rows", false);
        addRows(rows, new Random(1), 64);
        done(Native.streamSeal(rows));
        return engine;
    }

    private Task drive(long engine, String out, String... overrides) throws IOException {
        return new Task(Native.runOpen(engine, writeJob(), overrides,
                new String[] {"out=" + folder + "/" + out, "key=" + KEY, "patience=60"}));
    }

    private void workersTrainOnGrowingStreams() throws Exception {
        long engine = openDriver();
        Task run = drive(engine, "run", "epoch_records=8000", "stop.epochs=3");
        String address = run.await("\"kind\":\"listens\",\"address\":\"([^\"]+)\"");
        Worker[] workers = {new Worker(11), new Worker(12)};
        for (Worker worker : workers) {
            worker.begin(address, KEY);
        }
        busyObjectsAreRefused(engine, run);
        for (int i = 0; i < 40; i++) {
            for (Worker worker : workers) {
                addRows(worker.rows, worker.random, 100);
            }
            Thread.sleep(10);
        }
        String model = run.await("\"kind\":\"report\",\"reason\":\"epochs\".*\"model\":\"([^\"]+)\"");
        run.end(0);
        check(run.find("(\"kind\":\"start\")") != null, "an event start in\n" + run.text);
        check(run.find("\"kind\":\"progress\".*\"workers\":(2)") != null, "progress in\n" + run.text);
        for (Worker worker : workers) {
            worker.task.await("\"kind\":\"work\",\"stage\":\"(joined)\"");
            worker.task.await("\"kind\":\"work\",\"stage\":\"(over)\".*\"reason\":\"epochs\"");
            worker.task.end(0);
            check(Native.taskMain(worker.task.handle) == Native.ERR_USAGE, "a task runs once");
            worker.close();
        }
        run.close();
        done(Native.close(engine));
        predict(folder + "/run/job.prototxt", model);
    }

    private void busyObjectsAreRefused(long engine, Task run) {
        check(Native.close(run.handle) == Native.ERR_USAGE, "a task that runs is closed");
        expectIn(Native.message(), "another thread uses it");
        check(Native.runOpen(engine, null, null, null) == Native.ERR_USAGE, "a second task of the engine");
        check(Native.pack(engine, "memory:rows", "x") == Native.ERR_USAGE, "packing meanwhile");
        check(Native.close(engine) == Native.ERR_USAGE, "an engine that runs is closed");
        check(Native.taskSignal(run.handle, Native.LEAVE, 1) == Native.ERR_USAGE, "a run leaves");
        check(Native.taskSignal(run.handle, 99, 1) == Native.ERR_USAGE, "signal 99");
    }

    private void predict(String job, String weights) {
        final int count = 500;
        long engine = opened(Native.engineCreate(Native.LOG_WARN));
        int[] shape = {1, SIDE, SIDE, 0, 0};
        long model = opened(Native.modelOpen(engine, job, weights, Native.U8, 1, 64, shape));
        check(shape[3] == 2 && shape[4] == Native.PROBABILITIES, "two probabilities");
        var random = new Random(99);
        var pixels = new byte[PIXELS];
        var records = direct(count * PIXELS);
        var labels = new int[count];
        for (int i = 0; i < count; i++) {
            labels[i] = drawRow(random, pixels);
            records.put(pixels);
        }
        var scores = direct(count * 2 * Float.BYTES);
        done(Native.modelPredict(model, records, count, scores));
        int right = 0;
        for (int i = 0; i < count; i++) {
            float first = scores.getFloat(8 * i), second = scores.getFloat(8 * i + 4);
            check(Math.abs(first + second - 1) < 1e-4, "probabilities " + first + " and " + second);
            right += (second > first ? 1 : 0) == labels[i] ? 1 : 0;
        }
        check(right > count * 0.95, right + " of " + count + " are right");
        check(Native.modelPredict(model, records, count + 1, scores) == Native.ERR_USAGE, "too few records");
        check(Native.modelPredict(model, records, count, direct(8)) == Native.ERR_USAGE, "no room for scores");
        check(Native.modelOpen(engine, job, "missing", Native.U8, 1, 64, shape) == Native.ERR_INPUT, "no weights");
        check(Native.modelOpen(engine, job, weights, Native.U8, 1, 64, new int[] {1, 3, 3, 0, 0}) < 0, "3 x 3");
        check(Native.modelOpen(engine, job, weights, 9, 1, 64, shape) == Native.ERR_USAGE, "type 9");
        check(Native.modelOpen(engine, job, weights, Native.U8, 1, 64, null) == Native.ERR_USAGE, "no shape");
        done(Native.close(model));
        done(Native.close(engine));
    }

    private void runStopsAndWorkerLeaves() throws Exception {
        long engine = openDriver();
        Task run = drive(engine, "stopped", "epoch_records=1000", "stop.epochs=100000", "pace=0.002");
        String address = run.await("\"kind\":\"listens\",\"address\":\"([^\"]+)\"");
        Worker[] workers = {new Worker(21), new Worker(22)};
        for (Worker worker : workers) {
            addRows(worker.rows, worker.random, 2000);
            worker.begin(address, KEY);
        }
        run.await("\"kind\":\"(exchange)\"");
        check(Native.taskSignal(workers[0].task.handle, Native.STOP, 1) == Native.ERR_USAGE, "a worker stops");
        done(Native.taskSignal(workers[1].task.handle, Native.LEAVE, 1));
        workers[1].task.await("\"stage\":\"(left)\"");
        workers[1].task.end(0);
        run.await("\"kind\":\"member\".*\"what\":\"(leave)\"");
        done(Native.taskSignal(run.handle, Native.STOP, 1));
        run.await("\"kind\":\"report\",\"reason\":\"(interrupted)\"");
        run.end(0);
        workers[0].task.end(0);
        for (Worker worker : workers) {
            worker.close();
        }
        run.close();
        done(Native.close(engine));
    }

    private void wrongKeyIsRefused() throws Exception {
        long engine = openDriver();
        Task run = drive(engine, "key", "epoch_records=1000", "stop.epochs=1");
        String address = run.await("\"kind\":\"listens\",\"address\":\"([^\"]+)\"");
        var worker = new Worker(31);
        worker.begin(address, "fedcba9876543210fedcba9876543210");
        worker.task.end(Native.ERR_INPUT);
        expectIn(worker.task.message, "key");
        worker.close();
        done(Native.taskSignal(run.handle, Native.STOP, 2));
        run.thread.join(DEADLINE_MS);
        check(run.status < 0, "a run that never began ends with " + run.status);
        run.close();
        done(Native.close(engine));
    }

    private void jobIsKnown() throws Exception {
        long engine = opened(Native.engineCreate(Native.LOG_WARN));
        long run = opened(Native.runOpen(engine, writeJob(), new String[] {"validation=7", "stop.epochs=1"}, null));
        String text = new String(Native.taskJob(run), StandardCharsets.UTF_8);
        expectIn(text, "\nvalidation: 7\n");
        expectIn(text, "\nkernels: auto\n"); // a default
        done(Native.close(run));
        run = opened(Native.runOpen(engine, writeJob(), new String[] {"batch=0", "stop.epochs=1"}, null));
        check(Native.taskJob(run) == null, "a batch of no records");
        expectIn(Native.message(), "batch");
        done(Native.close(run));
        long worker = opened(Native.workOpen(engine, "127.0.0.1:1", null));
        check(Native.taskJob(worker) == null, "a worker's job");
        done(Native.close(worker));
        done(Native.close(engine));
    }

    /** Each of these overrides logs that it unsets `workers`. */
    private void logIsCounted() throws Exception {
        long engine = opened(Native.engineCreate(Native.LOG_INFO));
        String job = writeJob();
        for (int i = 0; i < LOG_LINES; i++) {
            done(Native.close(opened(Native.runOpen(engine, job, new String[] {"workers_min=1"}, null))));
        }
        int whole = 0, missing = 0;
        for (int n; (n = counted(Native.engineLog(engine, lines))) > 0;) {
            var bytes = new byte[n];
            lines.get(0, bytes);
            for (String line : new String(bytes, StandardCharsets.UTF_8).split("\n")) {
                check(line.matches("[0-3] .+"), "a line of log: " + line);
                whole += line.contains("workers") ? 1 : 0;
                missing += line.matches("2 \\d+ lines of log are missing.*") ? Integer.parseInt(line.split(" ")[1]) : 0;
            }
        }
        check(missing > 0 && whole + missing == LOG_LINES, whole + " lines, and " + missing + " that are missing");
        done(Native.close(engine));
    }

    // ---- what is left

    private void cycle() throws Exception {
        var worker = new Worker(41);
        addRows(worker.rows, worker.random, 1000);
        worker.begin("127.0.0.1:1", KEY);
        worker.task.end(Native.ERR_PEER);
        worker.close();
        predictOnce();
    }

    private void predictOnce() throws Exception {
        long engine = opened(Native.engineCreate(Native.LOG_WARN));
        long model = opened(Native.modelOpen(engine, folder + "/run/job.prototxt",
                folder + "/run/final.safetensors", Native.U8, 2, 16, new int[] {1, SIDE, SIDE, 0, 0}));
        int[] status = {1};
        var thread = new Thread(() -> status[0] = Native.modelPredict(model, direct(16 * PIXELS), 16, direct(128)));
        thread.start();
        thread.join();
        done(status[0]);
        done(Native.close(model));
        done(Native.close(engine));
    }

    /** The JVM starts and ends threads of its own meanwhile. */
    private void cyclesLeakNothing() throws Exception {
        for (int i = 0; i < 30; i++) {
            cycle();
        }
        System.gc();
        int threads = entries("task"), files = entries("fd");
        long resident = residentKilobytes();
        for (int i = 0; i < 100; i++) {
            cycle();
        }
        System.gc();
        check(entries("task") < threads + 10, "threads: " + threads + ", then " + entries("task"));
        check(entries("fd") < files + 10, "descriptors: " + files + ", then " + entries("fd"));
        long more = residentKilobytes() - resident;
        System.out.println("100 cycles: " + threads + " threads, " + files + " descriptors, " + more + " KiB more");
        check(more < 16 << 10, more + " KiB more");
    }

    /** In a process of its own: main returns while a run and two workers compute. */
    private void leaveRunning() throws Exception {
        Task run = drive(openDriver(), "left", "epoch_records=1000", "stop.epochs=100000");
        String address = run.await("\"kind\":\"listens\",\"address\":\"([^\"]+)\"");
        for (int seed = 51; seed <= 52; seed++) {
            var worker = new Worker(seed);
            addRows(worker.rows, worker.random, 2000);
            worker.begin(address, KEY);
            worker.task.announced = true;
        }
        run.announced = true;
        run.await("\"kind\":\"(exchange)\"");
    }

    /** A thread that closes something now would free what exit handlers free, too. */
    private void endedLibraryRefusesCalls() {
        long engine = Native.engineCreate(Native.LOG_WARN);
        check(engine > 0, "engine: " + Native.message());
        check(Native.endCalls() == 0, "calls are in progress");
        check(Native.close(engine) == Native.ERR_USAGE && Native.message().contains("ending"),
                "an engine was closed: " + Native.message());
    }

    private void exitEndsTasks() throws Exception {
        Process process = new ProcessBuilder(ProcessHandle.current().info().command().get(), "-Xcheck:jni",
                "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", System.getProperty("java.class.path"),
                NativeTest.class.getName(), "leave", folder.toString()).redirectErrorStream(true).start();
        String text = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        check(process.waitFor() == 0, "exit code " + process.exitValue() + ":\n" + text);
        check(text.split("a task has ended", -1).length == 4, "not three tasks ended first:\n" + text);
    }

    static int entries(String name) {
        return new java.io.File("/proc/self/" + name).list().length;
    }

    static long residentKilobytes() throws IOException {
        return Long.parseLong(statusOf("VmRSS").replaceAll("\\D", ""));
    }

    private static String statusOf(String key) throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith(key + ":")) {
                return line.substring(key.length() + 1).trim();
            }
        }
        throw new AssertionError("no " + key);
    }

    /** What a library that is a guest leaves as it is. */
    private static final class ProcessState {
        private final Map<String, String> state = read();

        ProcessState() throws IOException {}

        private static Map<String, String> read() throws IOException {
            var state = new TreeMap<String, String>();
            for (String key : new String[] {"SigIgn", "SigCgt"}) {
                state.put(key, statusOf(key));
            }
            state.put("mask of this thread",
                    Files.readString(Path.of("/proc/thread-self/status")).replaceAll("(?s).*SigBlk:\\s*(\\w+).*", "$1"));
            state.put("directory", Path.of("/proc/self/cwd").toRealPath().toString());
            double smallest = Double.parseDouble("1e-308");
            state.put("denormal numbers", "" + smallest / 16);
            state.put("rounding", "" + (1 + Math.ulp(1.0) * Double.parseDouble("0.4999")));
            return state;
        }

        void expectUnchanged() throws IOException {
            check(read().equals(state), "before: " + state + ", after: " + read());
        }
    }

    // ---- tools

    static ByteBuffer direct(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    }

    static void expectIn(String text, String part) {
        check(text.contains(part), "\"" + text + "\" does not contain \"" + part + "\"");
    }

    static void done(int status) {
        check(status == 0, "status " + status + ": " + Native.message());
    }

    static long opened(long handle) {
        check(handle > 0, "status " + handle + ": " + Native.message());
        return handle;
    }

    private static int counted(int count) {
        check(count >= 0, "status " + count + ": " + Native.message());
        return count;
    }

    private static void pause() {
        try {
            Thread.sleep(20);
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    private static void removeTree(Path root) throws IOException {
        try (var files = Files.walk(root)) {
            for (Path file : files.sorted((a, b) -> b.compareTo(a)).toList()) {
                Files.delete(file);
            }
        }
    }
}
