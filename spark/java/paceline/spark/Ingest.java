package paceline.spark;

import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.Function2;
import org.apache.spark.sql.Row;
import org.apache.spark.storage.StorageLevel;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Brings the rows of a DataFrame into the stores of the executors that read them, and knows which
 * executor has which partition. Rows of the test set, and those that are held out, travel to the driver.
 */
final class Ingest {
    /** Columns of the selected rows. */
    static final int FEATURES = 0;
    static final int LABEL = 1;
    static final int TEST = 2; // does it belong to the test set?
    static final int HELD = 3; // is it held out for validation? Only where HoldOut has marked the rows

    private static final Logger LOG = LoggerFactory.getLogger(Ingest.class);
    private static final int SAMPLE_ROWS = 16;

    private static final long ROUND_PAUSE_MS = 100;
    /** For so long a fit whose run continues tries again to read partitions that no executor takes. */
    private static final long LOST_MS = 500;
    /** An executor that takes no rows holds a partition so long that others get the most of them. */
    private static final long DECLINE_MS = 200;

    /** What became of one partition. */
    private static final class Taken implements Serializable {
        private static final long serialVersionUID = 1;
        int partition;
        String executor; // null: its store takes no more, and another executor must take it
        String unable; // an executor that cannot keep it, and
        String failure; // why
        long records;
        long bad;
        String reason; // of the first bad row
        PackedRows test;
        PackedRows held;
        String shard; // the file of its rows, where they go to files, or its URL
        String identity; // of a shard that has a URL
        PackedRows sample; // a few rows, by which the driver knows the records

        /** The same in another executor. */
        Taken in(String other) {
            Taken moved = new Taken();
            moved.partition = partition;
            moved.executor = other;
            moved.records = records;
            moved.bad = bad;
            moved.reason = reason;
            moved.test = test;
            moved.held = held;
            moved.sample = sample;
            return moved;
        }
    }

    /** The task of a partition. */
    private static final class Take implements Function2<Integer, Iterator<Row>, Iterator<Taken>> {
        private static final long serialVersionUID = 1;
        private final String session;
        private final RecordSchema schema;
        private final String folder; // of shards; empty: rows stay in this executor; LOCAL: shards do
        private final int partitions;

        Take(String session, RecordSchema schema, String folder, int partitions) {
            this.partitions = partitions;
            this.session = session;
            this.schema = schema;
            this.folder = folder;
        }

        @Override
        public Iterator<Taken> call(Integer partition, Iterator<Row> rows) throws Exception {
            ExecutorEnd end = ExecutorEnd.get();
            if (folder.isEmpty() && !end.ask(DriverEnd.PLACE, session).equals(DriverEnd.PLACE)) {
                Thread.sleep(DECLINE_MS);
                return Collections.emptyIterator();
            }
            RowPacker packer = new RowPacker(schema);
            PackedRows train = PackedRows.forStore(schema);
            PackedRows test = new PackedRows(schema);
            PackedRows held = new PackedRows(schema);
            PackedRows sample = new PackedRows(schema);
            Taken taken = new Taken();
            taken.partition = partition;
            while (rows.hasNext()) {
                Row row = rows.next();
                PackedRows set = is(row, TEST) ? test : is(row, HELD) ? held : train;
                String wrong = set.add(packer, row, FEATURES, LABEL);
                if (wrong != null && taken.bad++ == 0) {
                    taken.reason = wrong;
                } else if (wrong == null && set == train && sample.count() < SAMPLE_ROWS) {
                    sample.add(packer, row, FEATURES, LABEL);
                }
            }
            taken.records = train.count();
            taken.test = test.trim();
            taken.held = held.trim();
            taken.sample = sample.trim();
            if (folder.equals(Shards.LOCAL) && train.count() > 0) {
                host(end, train, taken);
            } else if (!folder.isEmpty() && train.count() > 0) {
                taken.shard = Shards.write(folder, partition, schema, train);
            }
            if (train.count() == 0 || !folder.isEmpty() || keep(end, train, taken)) {
                taken.executor = end.id();
            }
            train.release();
            return Collections.singletonList(taken).iterator();
        }

        /** Another executor that packs the same rows makes the same file. */
        private void host(ExecutorEnd end, PackedRows rows, Taken taken) throws IOException {
            HostedShards shards = HostedShards.of(session, end.id());
            rows.sort();
            Path file = shards.write(taken.partition, schema, rows);
            taken.identity = ShardServer.identity(file);
            taken.shard = shards.serve(file);
        }

        private static boolean is(Row row, int column) {
            return row.length() > column && !row.isNullAt(column) && row.getBoolean(column);
        }

        /** Spark would repeat a task that fails, and each time with the same end. */
        private boolean keep(ExecutorEnd end, PackedRows rows, Taken taken) throws Exception {
            try {
                return end.openStore(session, schema).append(taken.partition, partitions, rows);
            } catch (PacelineException failed) {
                taken.failure = "executor " + end.id() + " cannot keep the rows of partition " + taken.partition + ": "
                        + failed.getMessage() + "; beyond " + RowsLimit.SETTING
                        + " they are in a file below spark.local.dir";
                taken.unable = end.id();
                return false;
            }
        }
    }

    private final JavaSparkContext context;
    private final String group;
    private final boolean skipsBad;
    private final JavaRDD<Row> rows;
    private final Take task;
    private final boolean hosts; // shards stay in the executors
    private final JavaRDD<Taken> work; // where they do not
    private final List<JavaRDD<Taken>> held = new CopyOnWriteArrayList<>();
    private final int partitions;
    private final Map<Integer, Taken> taken = new ConcurrentHashMap<>();
    private final Map<Integer, Taken> lost = new ConcurrentHashMap<>(); // what was known of those that are missing
    private final Consumer<String> unable;
    private final Set<Integer> adopted = ConcurrentHashMap.newKeySet(); // partitions that came to executors which train
    private volatile String changed; // why what was read again is of no use

    /** `rows` has the columns above. `unable` gets executors that cannot keep rows of lost ones. */
    Ingest(JavaSparkContext context, String session, String group, JavaRDD<Row> rows,
            RecordSchema schema, boolean skipsBad, String folder, Consumer<String> unable) {
        this.unable = unable;
        this.context = context;
        this.group = group;
        this.skipsBad = skipsBad;
        partitions = rows.getNumPartitions();
        this.rows = rows;
        hosts = folder.equals(Shards.LOCAL);
        task = new Take(session, schema, folder, partitions);
        work = rows.mapPartitionsWithIndex(task, false);
    }

    /**
     * What a job computes. Executors with shards of the fit must not become idle, at which Spark would end them under
     * dynamic allocation. They do not as long as they have a cached partition, which the result is. It is read once.
     */
    private JavaRDD<Taken> work() {
        if (!hosts) {
            return work;
        }
        JavaRDD<Taken> cached = rows.mapPartitionsWithIndex(task, false).persist(StorageLevel.MEMORY_AND_DISK());
        held.add(cached);
        return cached;
    }

    /** Nobody needs the shards in the executors any more. */
    void close() {
        held.forEach(cached -> cached.unpersist(false));
    }

    /** Throw if rows were others when they were read again. */
    void checkUnchanged() {
        if (changed != null) {
            throw new PacelineException(changed);
        }
    }

    /** End the job that reads; the call that waits for it throws. */
    void cancel() {
        context.cancelJobGroup(group);
    }

    int partitions() {
        return partitions;
    }

    /**
     * Read all partitions that no executor has; `beforeRound` says which executors are lost. Those that no executor
     * takes are tried again for so long in vain.
     */
    void readAll(long millis, Runnable beforeRound) {
        readMissing(millis, beforeRound, true);
        if (!isComplete()) {
            throw new PacelineException("no executor has room for partitions " + Arrays.toString(missing())
                    + " of the rows");
        }
    }

    /**
     * Read partitions of lost executors, as far as another takes them; one that cannot keep them gets no more.
     * `adopts`: those that train may. Returns how many these were.
     */
    int readLost(Runnable beforeRound, boolean adopts) {
        Set<Integer> before = Set.copyOf(taken.keySet());
        int read = readMissing(LOST_MS, beforeRound, false);
        if (adopts) {
            taken.keySet().stream().filter(partition -> !before.contains(partition)).forEach(adopted::add);
        }
        return read;
    }

    private int readMissing(long millis, Runnable beforeRound, boolean all) {
        int read = 0;
        long until = System.nanoTime() + millis * 1_000_000;
        for (;;) {
            beforeRound.run();
            int[] missing = missing();
            if (missing.length == 0) {
                return read;
            }
            int now = readOnce(missing, all);
            read += now;
            if (now > 0) {
                until = System.nanoTime() + millis * 1_000_000;
            } else if (System.nanoTime() < until) {
                pause();
            } else {
                return read;
            }
        }
    }

    private int readOnce(int[] missing, boolean all) {
        int read = 0;
        JobGroup jobs = new JobGroup(context, group, "Paceline reads " + missing.length + " partitions");
        try {
            for (List<Taken> list : work().collectPartitions(missing)) {
                for (Taken one : list) {
                    if (one.bad > 0 && !skipsBad) {
                        throw new PacelineException(one.bad + " bad rows in partition " + one.partition
                                + "; of the first one " + one.reason
                                + "; set onBadRecord to skip to leave them out");
                    }
                    if (one.failure != null && all) {
                        throw new PacelineException(one.failure);
                    }
                    if (one.failure != null) {
                        unable.accept(one.unable);
                        LOG.warn("{}", one.failure);
                    }
                    if (one.executor != null) {
                        compareWithLost(one);
                        taken.put(one.partition, one);
                        lost.remove(one.partition);
                        read++;
                    }
                }
            }
        } finally {
            jobs.leave();
        }
        return read;
    }

    private void compareWithLost(Taken one) {
        Taken before = lost.get(one.partition);
        if (before != null && !Objects.equals(before.identity, one.identity)) {
            changed = "partition " + one.partition + " of the rows has other rows than when it was first read, which"
                    + " went with executor " + before.executor + ": cache the rows, or set shardDir to a folder";
            throw new PacelineException(changed);
        }
    }

    private static void pause() {
        try {
            Thread.sleep(ROUND_PAUSE_MS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new PacelineException("interrupted while rows were read");
        }
    }

    private int[] missing() {
        return IntStream.range(0, partitions)
                .filter(p -> !taken.containsKey(p)).toArray();
    }

    boolean isComplete() {
        return taken.size() == partitions;
    }

    /** The partitions of a lost executor have to be read again, unless they are in files of a shared folder. */
    void executorLost(String executor) {
        lose(one -> one.executor.equals(executor) && one.records > 0 && (one.shard == null || hosts));
    }

    private void lose(Predicate<Taken> kind) {
        taken.values().removeIf(one -> {
            boolean loses = kind.test(one);
            if (loses) {
                lost.put(one.partition, one);
            }
            return loses;
        });
    }

    /** The partitions that an executor which comes may adopt, with their numbers of records. Any thread. */
    Map<Integer, Long> lacking() {
        Map<Integer, Long> found = new TreeMap<>();
        lost.values().forEach(one -> found.put(one.partition, one.records));
        adopted.stream().map(taken::get).filter(Objects::nonNull)
                .forEach(one -> found.put(one.partition, one.records));
        return found;
    }

    /** That executor has these now, without Spark. Returns how many of them were missing or shared. Any thread. */
    int adopt(String executor, List<Integer> partitionsThere) {
        int count = 0;
        for (int partition : partitionsThere) {
            Taken one = adopted.remove(partition) ? taken.get(partition) : lost.remove(partition);
            if (one != null) {
                taken.put(partition, one.in(executor));
                count++;
            }
        }
        return count;
    }

    /** Let adopted partitions be read once more, by another executor, which shares them. Are there any? */
    boolean shareAdopted() {
        boolean any = !adopted.isEmpty();
        lose(one -> adopted.contains(one.partition));
        adopted.clear();
        return any;
    }

    /** How many partitions that executor has. */
    int partitionsOf(String executor) {
        return (int) taken.values().stream().filter(one -> one.executor.equals(executor)).count();
    }

    long records() {
        return taken.values().stream().mapToLong(one -> one.records).sum();
    }

    long bad() {
        return taken.values().stream().mapToLong(one -> one.bad).sum();
    }

    /** The partitions that have rows. */
    int[] partitionsWithRows() {
        return IntStream.range(0, partitions).filter(p -> taken.get(p).records > 0).toArray();
    }

    /** The URL of that partition's shard; empty: it is lost. */
    String shard(int partition) {
        Taken one = taken.get(partition);
        return one == null ? "" : one.shard;
    }

    /** The files of the rows, by partition. */
    List<String> shards() {
        return IntStream.range(0, partitions).mapToObj(p -> taken.get(p).shard).filter(file -> file != null)
                .collect(Collectors.toList());
    }

    /** The rows of the test set, by partition. */
    List<PackedRows> test() {
        return collect(one -> one.test);
    }

    /** The rows that are held out, by partition. */
    List<PackedRows> held() {
        return collect(one -> one.held);
    }

    /** A few rows of each partition to train on. */
    List<PackedRows> sample() {
        return collect(one -> one.sample);
    }

    private List<PackedRows> collect(Function<Taken, PackedRows> which) {
        return IntStream.range(0, partitions).mapToObj(p -> which.apply(taken.get(p)))
                .filter(rows -> rows.count() > 0).collect(Collectors.toList());
    }
}
