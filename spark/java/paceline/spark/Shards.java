package paceline.spark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.List;
import org.apache.spark.TaskContext;

/** Rows in files of a folder that all executors share, so that any worker trains on any of them. */
final class Shards {
    /** As a folder: shards stay in the executors that write them. */
    static final String LOCAL = "local:";

    private static final String FILE_OF_PREFIX = "-00000.shard";

    private Shards() {}

    /** Write a partition to one file, with a name that no other attempt of the task has. */
    static String write(String folder, int partition, RecordSchema schema, PackedRows rows) {
        return write(folder + "/part-" + partition + "-" + TaskContext.get().taskAttemptId(), schema, List.of(rows));
    }

    /** Write rows to one file, whole or not at all. Returns its name. */
    static String write(String prefix, RecordSchema schema, List<PackedRows> rows) {
        try (LocalEngine engine = new LocalEngine()) {
            engine.add(Engine.ROWS, schema, rows);
            if (Native.pack(engine.handle(), "memory:" + Engine.ROWS, prefix) < 0) {
                throw new PacelineException("shard " + prefix + ": " + Native.message());
            }
            return prefix + FILE_OF_PREFIX;
        }
    }

    /** Give the files names with numbers from 0. Returns the name of all of them, as a job has it. */
    static String number(String folder, List<String> files) throws IOException {
        for (int i = 0; i < files.size(); i++) {
            Files.move(Paths.get(files.get(i)), Paths.get(folder, String.format("rows-%05d.shard", i)));
        }
        return folder + String.format("/rows-{00000..%05d}.shard", files.size() - 1);
    }

    static void delete(Path folder) throws IOException {
        try (var files = Files.newDirectoryStream(folder)) {
            for (Path file : files) {
                Files.delete(file);
            }
        }
        Files.delete(folder);
    }
}
