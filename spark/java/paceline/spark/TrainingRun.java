package paceline.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Path;
import java.util.List;
import java.util.function.Consumer;

/** The run's driver, inside of Spark's driver: the library on a thread of its own. */
final class TrainingRun implements AutoCloseable {
    static final String TEST = "test";
    static final int STOP_SOON = 1;
    static final int STOP_NOW = 2;

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long END_MS = 15_000;

    private final LocalEngine engine = new LocalEngine();
    private final Consumer<JsonNode> listener;
    private LibraryTask task;
    private String address;
    private JsonNode report;
    private JsonNode end;

    /** `listener` gets each event and each progress, on the thread that polls. */
    TrainingRun(Consumer<JsonNode> listener) {
        this.listener = listener;
    }

    /** Records that the driver itself reads: a sample of the training set, or the test set. */
    void addRecords(String name, RecordSchema schema, List<PackedRows> rows) {
        engine.add(name, schema, rows);
    }

    void start(Path job, List<String> overrides, List<String> options) {
        task = LibraryTask.start("paceline-driver", Native.runOpen(engine.handle(),
                job == null ? null : job.toString(), overrides.toArray(new String[0]),
                options.toArray(new String[0])));
    }

    /** Read what the run has written; true: it has ended. */
    boolean poll(long millis) {
        boolean ended = task.ended(millis);
        task.poll(this::take);
        return ended;
    }

    private void take(String line) {
        JsonNode event;
        try {
            event = JSON.readTree(line);
        } catch (JsonProcessingException broken) {
            throw new PacelineException("the library wrote a line that is no JSON: " + line, broken);
        }
        switch (event.path("kind").asText()) {
            case "listens":
                address = event.path("address").asText();
                break;
            case "report":
                report = event;
                break;
            case "end":
                end = event;
                break;
            default:
                break;
        }
        listener.accept(event);
    }

    /** Where it waits for workers; null: not yet. */
    String address() {
        return address;
    }

    /** What the library reports of a run that has ended well. */
    JsonNode report() {
        return report;
    }

    JsonNode end() {
        return end;
    }

    int status() {
        return task.status();
    }

    String message() {
        return task.message();
    }

    void stop(int stage) {
        task.signal(Native.STOP, stage);
    }

    /** End the run at once if it has not ended, and free it. */
    @Override
    public void close() {
        if (task != null) {
            if (!task.ended(1)) {
                stop(STOP_NOW);
                Thread.interrupted(); // an interrupted fit, too, waits for the end of the run
                task.ended(END_MS);
            }
            task.close();
        }
        engine.close();
    }
}
