package paceline.spark;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The job of a fit: a file, and fields that the estimator sets on top of it. */
final class JobFields {
    private static final Pattern HOLDS_OUT = Pattern.compile("(?m)^validation: (\\d+)$");
    private static final Pattern FOLLOWS_BATCH = Pattern.compile("(?m)^ *follow_batch \\{");

    private final List<String> overrides = new ArrayList<>();
    private final boolean whole; // there is no job of the user's: all is set here
    private final Path file;
    private String text; // the whole job, as a run uses it

    /** `job` is the text of a job, or the path of its file; empty: there is none. */
    JobFields(String job, Path directory) throws IOException {
        whole = job.isEmpty();
        if (whole) {
            file = null;
            add("solver", "{type: 'SGD' base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: 'inv'"
                    + " gamma: 0.0001 power: 0.75}");
        } else if (isText(job)) {
            file = directory.resolve("job.prototxt");
            Files.write(file, job.getBytes(StandardCharsets.UTF_8));
        } else {
            file = Paths.get(job);
            if (!Files.isReadable(file)) {
                throw new PacelineException("job: there is no file '" + job
                        + "'; give a job's text, or a path that the driver can read");
            }
        }
    }

    private static boolean isText(String text) {
        return text.indexOf('{') >= 0 || text.indexOf('\n') >= 0 || text.indexOf(": ") >= 0;
    }

    /** Does the user's job set that field, of the job itself or of a part of it? */
    boolean sets(String field) {
        try {
            return !whole && Pattern.compile("\\b" + field + " *:").matcher(Files.readString(file)).find();
        } catch (IOException failed) {
            throw new PacelineException("job: " + file + " cannot be read: " + failed.getMessage(), failed);
        }
    }

    void add(String field, String value) {
        overrides.add(field + "=" + value);
    }

    static String quoted(String text) {
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'";
    }

    /** A net of the zoo, a file of Caffe's, or its text. */
    void setNet(String net) {
        if (net.indexOf('{') >= 0) {
            add("net", "{define {" + net + "}}");
        } else {
            add("net", "{" + (Files.isReadable(Paths.get(net)) ? "file: " : "zoo: ") + quoted(net) + "}");
        }
    }

    /**
     * Records in place of the job's own source, `kind` with its fields; the job's maps stay. Where there is no job,
     * bytes are scaled to 0 to 1.
     */
    void setRecords(String data, String kind, String fields, RecordSchema schema) {
        if (whole) {
            String scale = schema.holdsBytes() ? " scale: 0.00390625" : "";
            add(data, "{" + kind + " " + fields + scale + "}");
        } else {
            add(data + "." + kind, fields);
        }
    }

    static String memory(String name) {
        return "{name: " + quoted(name) + "}";
    }

    /** Records that workers have, of whom each begins with those that are there. */
    static String growingMemory(String name) {
        return "{name: " + quoted(name) + " begin_with: 1}";
    }

    /**
     * Throw with what is wrong with the job, whose records and number of workers are not known yet. `old`: a run to
     * continue; or null.
     */
    void check(Path old) {
        text = resolve(old, List.of());
    }

    /** May a run of it wait for workers? Not where the model is in slices, which need all of theirs. */
    boolean mayPause(Path old) {
        try {
            resolve(old, List.of("pause_below=1"));
            return true;
        } catch (PacelineException refused) {
            return false;
        }
    }

    private String resolve(Path old, List<String> more) {
        List<String> fields = new ArrayList<>(overrides);
        fields.add("train_data.memory=" + memory(Engine.ROWS));
        fields.add("test_data.memory=" + memory(TrainingRun.TEST));
        fields.add("workers_min=1");
        fields.add("workers_max=2"); // or more
        fields.addAll(more);
        String[] options = old == null ? new String[0] : new String[] {"out=" + old, "resume=1"};
        LocalEngine engine = new LocalEngine();
        try {
            long run = Native.runOpen(engine.handle(), file == null ? null : file.toString(),
                    fields.toArray(new String[0]), options);
            byte[] bytes = run < 0 ? null : Native.taskJob(run);
            String wrong = bytes == null ? Native.message() : "";
            if (run >= 0) {
                Native.close(run);
            }
            if (bytes == null) {
                throw new PacelineException("job: " + wrong);
            }
            return new String(bytes, StandardCharsets.UTF_8);
        } finally {
            engine.close();
        }
    }

    /** How many records it holds out for validation. */
    int heldOut() {
        Matcher found = HOLDS_OUT.matcher(text);
        return found.find() ? (int) Math.min(Long.parseLong(found.group(1)), Integer.MAX_VALUE) : 0;
    }

    /** Does its number of workers follow the batch? */
    boolean followsBatch() {
        return FOLLOWS_BATCH.matcher(text).find();
    }

    List<String> overrides() {
        return overrides;
    }

    /** The job's file; null: an empty job. */
    Path file() {
        return file;
    }
}
