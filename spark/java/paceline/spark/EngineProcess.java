package paceline.spark;

import java.io.File;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.net.URISyntaxException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Timer;
import java.util.TimerTask;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * The library in a process of its own, a JVM that runs {@link EngineChild}. A crash of the library
 * ends that process alone: the next call throws. The process ends with this one, because it reads
 * calls from a pipe. A process that does not answer is killed.
 */
final class EngineProcess implements Engine {
    /** What the process does with its engine. It travels there, and its result back. */
    interface Call extends Serializable {
        Serializable run(EngineChild child) throws Exception;
    }

    /** The message of a call that has failed. */
    static final class Failure implements Serializable {
        private static final long serialVersionUID = 1;
        final String message;

        Failure(String message) {
            this.message = message;
        }
    }

    /** A process that has not answered for so long is killed. */
    private static final long ANSWER_MS = 60_000;
    /** The same for calls about its worker, which wait for nothing in the library. */
    private static final long WORKER_ANSWER_MS = 10_000;
    /** Its silence is measured in so many parts: of a time in which this process stood still, one counts. */
    private static final int SILENCE_PARTS = 10;
    private static final long END_S = 10;
    private static final Timer WATCH = new Timer("paceline-watch", true);

    private final Process process;
    private final ObjectOutputStream calls;
    private final ObjectInputStream results;

    private final long workerAnswerMs;
    private long answerMs = ANSWER_MS;
    private volatile boolean killed;

    /** Its temporary files are in that folder. */
    EngineProcess(Path folder, String... javaOptions) {
        this(Stream.concat(Stream.of("-Djava.io.tmpdir=" + folder), Stream.of(javaOptions)).collect(Collectors.toList()),
                ANSWER_MS, WORKER_ANSWER_MS);
    }

    /** `javaOptions` are further options of its JVM. It is given these times once it has started. */
    EngineProcess(List<String> javaOptions, long answerMs, long workerAnswerMs) {
        this.workerAnswerMs = workerAnswerMs;
        try {
            process = start(javaOptions);
            calls = new ObjectOutputStream(process.getOutputStream());
            calls.flush();
            results = within(ANSWER_MS, () -> new ObjectInputStream(process.getInputStream()));
        } catch (IOException failed) {
            throw new PacelineException("the process of an engine cannot be started: " + failed.getMessage(), failed);
        }
        ask(child -> null); // the library is loaded
        this.answerMs = answerMs;
    }

    private static Process start(List<String> javaOptions) throws IOException {
        List<String> command = new ArrayList<>(
                List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx256m",
                        "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
        command.addAll(javaOptions);
        command.addAll(List.of("-cp", ownJar() + File.pathSeparator + System.getProperty("java.class.path"),
                EngineChild.class.getName()));
        return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    /** Spark loads the jar of an application by a loader of its own. */
    private static String ownJar() throws IOException {
        try {
            return Path.of(EngineProcess.class.getProtectionDomain().getCodeSource().getLocation().toURI()).toString();
        } catch (URISyntaxException broken) {
            throw new IOException("the jar of the module has no path: " + broken.getMessage(), broken);
        }
    }

    private interface Answer<T> {
        T read() throws IOException;
    }

    /** Call the process, which is killed if it takes longer. */
    private <T> T within(long millis, Answer<T> answer) throws IOException {
        TimerTask kill = new TimerTask() {
            private int parts;

            @Override
            public void run() {
                parts++;
                if (parts == SILENCE_PARTS) {
                    kill();
                }
            }
        };
        WATCH.schedule(kill, millis / SILENCE_PARTS, millis / SILENCE_PARTS); // each after the one before
        try {
            return answer.read();
        } finally {
            kill.cancel();
        }
    }

    private Serializable ask(Call call) {
        return ask(answerMs, call);
    }

    private synchronized Serializable ask(long millis, Call call) {
        Object result;
        try {
            result = within(millis, () -> {
                calls.writeObject(call);
                calls.reset(); // or it would keep all records
                calls.flush();
                try {
                    return results.readObject();
                } catch (ClassNotFoundException strange) {
                    throw new IOException(strange);
                }
            });
        } catch (IOException gone) {
            throw new PacelineException("the engine's process " + ending(), gone);
        }
        if (result instanceof Failure) {
            throw new PacelineException(((Failure) result).message);
        }
        return (Serializable) result;
    }

    private String ending() {
        try {
            if (process.waitFor(END_S, TimeUnit.SECONDS)) {
                return "has ended with code " + process.exitValue();
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        kill();
        return "does not answer";
    }

    private void kill() {
        killed = true;
        process.destroyForcibly();
    }

    long pid() {
        return process.pid();
    }

    @Override
    public void open(RecordSchema schema, RowsLimit limit) {
        ask(child -> {
            child.engine.open(schema, limit);
            return null;
        });
    }

    @Override
    public void append(PackedRows rows, long identity) {
        ask(child -> {
            child.engine.append(rows, identity);
            return null;
        });
    }

    @Override
    public Adoption adopt(String file, long[] identities, long[] records) {
        return (Adoption) ask(child -> child.engine.adopt(file, identities, records));
    }

    @Override
    public Worker work(String driver, List<String> options) {
        List<String> own = List.copyOf(options);
        ask(child -> {
            child.worker = child.engine.work(driver, own);
            return null;
        });
        return new RemoteWorker();
    }

    /** The worker in the process; how it ended is asked once. */
    private final class RemoteWorker implements Worker {
        private int status;
        private String message = "";

        @Override
        public boolean ended(long millis) {
            Serializable[] end = (Serializable[]) ask(millis + workerAnswerMs, child -> !child.worker.ended(millis)
                    ? null : new Serializable[] {child.worker.status(), child.worker.message()});
            if (end == null) {
                return false;
            }
            status = (Integer) end[0];
            message = (String) end[1];
            return true;
        }

        @Override
        public void leave() {
            ask(workerAnswerMs, child -> {
                child.worker.leave();
                return null;
            });
        }

        @Override
        public int number() {
            return (Integer) ask(workerAnswerMs, child -> child.worker.number());
        }

        @Override
        public int status() {
            return status;
        }

        @Override
        public String message() {
            return message;
        }

        @Override
        public boolean kill() {
            EngineProcess.this.kill();
            return true;
        }

        @Override
        public boolean close() {
            try {
                return !usable() || (Boolean) ask(workerAnswerMs, child -> child.worker.close());
            } catch (PacelineException gone) {
                return kill();
            }
        }
    }

    @Override
    public Reply call(Engine.Call call) {
        return (Reply) ask(child -> child.engine.call(call));
    }

    @Override
    public boolean usable() {
        return !killed && process.isAlive();
    }

    /** Its process ends when it has read the last call. */
    @Override
    public void close() {
        try {
            calls.close();
            if (!process.waitFor(END_S, TimeUnit.SECONDS)) {
                process.destroyForcibly().waitFor(END_S, TimeUnit.SECONDS);
            }
        } catch (IOException | InterruptedException gone) {
            if (gone instanceof InterruptedException) {
                Thread.currentThread().interrupt();
            }
            process.destroyForcibly();
        }
    }
}
