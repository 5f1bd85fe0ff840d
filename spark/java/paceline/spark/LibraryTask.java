package paceline.spark;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A run or a worker of the library, on a daemon thread of its own. One thread uses it. */
final class LibraryTask implements Engine.Worker {
    private static final int STACK_BYTES = 8 << 20;

    private static final Pattern JOINED = Pattern.compile("^\\{\"kind\":\"work\",\"stage\":\"joined\",.*\"worker\":(\\d+),");

    private final long handle;
    private final Thread thread;
    private final ByteBuffer buffer = ByteBuffer.allocateDirect(Native.LINES_BYTES);
    private int number = NO_NUMBER;
    private volatile int status;
    private volatile String message = "";

    private LibraryTask(String name, long handle) {
        this.handle = handle;
        thread = new Thread(null, this::run, name, STACK_BYTES);
        thread.setDaemon(true);
    }

    /** The library has a message for the thread that called it, so this thread keeps it. */
    private void run() {
        int result = Native.taskMain(handle);
        if (result != 0) {
            message = Native.message();
        }
        status = result;
    }

    /** Start what Native.runOpen or workOpen has opened, or throw with its message. */
    static LibraryTask start(String name, long opened) {
        if (opened < 0) {
            throw new PacelineException(Native.message());
        }
        LibraryTask task = new LibraryTask(name, opened);
        task.thread.start();
        return task;
    }

    @Override
    public boolean ended(long millis) {
        try {
            thread.join(millis);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        return !thread.isAlive();
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
    public void leave() {
        signal(Native.LEAVE, 1);
    }

    /** Each line of a membership that begins names it. */
    @Override
    public int number() {
        poll(line -> {
            Matcher joined = JOINED.matcher(line);
            number = joined.find() ? Integer.parseInt(joined.group(1)) : number;
        });
        return number;
    }

    void signal(int what, int value) {
        Native.taskSignal(handle, what, value);
    }

    /** Give each line that the task has written to `line`. */
    void poll(Consumer<String> line) {
        int bytes;
        while ((bytes = Native.taskPoll(handle, buffer)) > 0) {
            byte[] copy = new byte[bytes];
            buffer.get(0, copy);
            new String(copy, StandardCharsets.UTF_8).lines().forEach(line);
        }
    }

    @Override
    public boolean kill() {
        return false;
    }

    @Override
    public boolean close() {
        return Native.close(handle) == 0;
    }
}
