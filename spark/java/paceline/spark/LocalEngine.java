package paceline.spark;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** The library in this JVM. */
final class LocalEngine implements Engine {
    private final long engine;
    private long stream; // 0: there is none, or it is sealed

    /** Load the library, or throw with its message. */
    LocalEngine() {
        NativeLibrary.load();
        engine = Native.engineCreate(Native.LOG_WARN);
        if (engine < 0) {
            throw new PacelineException("an engine cannot be made: " + Native.message());
        }
    }

    /** For calls of Native. */
    long handle() {
        return engine;
    }

    private static void check(int status) {
        if (status != 0) {
            throw new PacelineException("records: " + Native.message());
        }
    }

    /** Records under another name than ROWS, all at once. */
    void add(String name, RecordSchema schema, List<PackedRows> rows) {
        openStream(name, schema, RowsLimit.NONE, Native.COMPLETE);
        rows.forEach(each -> each.appendTo(stream));
        check(Native.streamSeal(stream));
        stream = 0;
    }

    @Override
    public void open(RecordSchema schema, RowsLimit limit) {
        openStream(ROWS, schema, limit, limit.kept == null ? Native.PARTS : Native.KEPT);
    }

    private void openStream(String name, RecordSchema schema, RowsLimit limit, int growth) {
        long memory = limit.bytes == Long.MAX_VALUE ? 0 : Math.max(1, limit.bytes); // 0: there is no limit
        long opened = Native.streamOpen(engine, name, schema.channels, schema.height, schema.width,
                schema.classes, schema.type(), memory, limit.kept == null ? limit.folder : limit.kept, growth,
                limit.fit);
        if (opened < 0) {
            throw new PacelineException("records: " + Native.message());
        }
        stream = opened;
    }

    @Override
    public void append(PackedRows rows, long identity) {
        rows.appendTo(stream);
        check(Native.streamCut(stream, identity));
        printLog();
    }

    /** Warnings of the library, which are in the log of the executor or the driver then. */
    void printLog() {
        ByteBuffer lines = ByteBuffer.allocateDirect(Native.LINES_BYTES);
        for (int bytes; (bytes = Native.engineLog(engine, lines)) > 0;) {
            byte[] copy = new byte[bytes];
            lines.get(0, copy);
            new String(copy, StandardCharsets.UTF_8).lines()
                    .forEach(line -> System.err.println("paceline: " + line.substring(2))); // without its level
        }
    }

    @Override
    public Adoption adopt(String file, long[] identities, long[] records) {
        boolean[] came = new boolean[identities.length];
        int status = Native.streamAdopt(stream, file, identities, records, came);
        return new Adoption(came, status, status == 0 ? "" : Native.message());
    }

    @Override
    public Worker work(String driver, List<String> options) {
        return LibraryTask.start("paceline-worker",
                Native.workOpen(engine, driver, options.toArray(new String[0])));
    }

    @Override
    public Reply call(Call call) {
        return call.run(engine);
    }

    @Override
    public boolean usable() {
        return true;
    }

    @Override
    public void close() {
        if (stream != 0) {
            Native.close(stream);
            stream = 0;
        }
        printLog();
        Native.close(engine);
    }
}
