package paceline.spark;

import static paceline.spark.TestCases.check;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Path;

/** A worker that hangs in native code: the program hold_thread holds the thread of a process that computes. */
final class HeldThread implements AutoCloseable {
    private static final int SKIPS = 77; // the program's code where the system does not let it hold a thread

    private final Process holder;

    private HeldThread(Process holder) {
        this.holder = holder;
    }

    /** Until it is closed. Null: the system does not let one process hold a thread of another. */
    static HeldThread of(long pid) throws IOException, InterruptedException {
        Path program = Path.of(System.getenv("SPARK_TEST_BUILD"), "hold_thread");
        Process holder = new ProcessBuilder(program.toString(), Long.toString(pid))
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String line = new BufferedReader(new InputStreamReader(holder.getInputStream())).readLine();
        if (line == null && holder.waitFor() == SKIPS) {
            return null;
        }
        check(line != null, "no thread is held");
        return new HeldThread(holder);
    }

    @Override
    public void close() {
        holder.destroyForcibly();
    }
}
